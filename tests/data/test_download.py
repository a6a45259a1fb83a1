"""Sets of DEBD are downloaded once, whole and checked, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import circurve as cc
from circurve.data import debd, download_dataset, list_datasets, load_dataset
from circurve.data.cache import _announced, cache_folder, replacing
from circurve.errors import DataError, DownloadError, FileAccessError
from debd_server import ROWS, Server, content, entry, serving

BY_HAND = "git clone https://github.com/arranger1044/DEBD, then pass data_dir='DEBD'"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a collection that contains a set `tiny` in addition to the real ones."""
    monkeypatch.setenv("CIRCURVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(debd.COLLECTION, "tiny", entry("tiny"))
    return tmp_path / "cache"


@pytest.fixture
def server(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving("tiny") as running:
        monkeypatch.setenv("CIRCURVE_DEBD_URL", running.url)
        yield running


def files(folder: Path) -> list[str]:
    """All files below, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def failure(kind: type[Exception] = DownloadError) -> str:
    with pytest.raises(kind) as caught:
        load_dataset("tiny")
    message = str(caught.value)
    assert "\n" not in message
    return message


def check_rows(data: cc.Dataset) -> None:
    for split, count in ROWS.items():
        rows = getattr(data, split)
        assert rows.dtype == np.uint8
        assert rows.shape == (count, 13)
        text = "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())
        assert text.encode() == content("tiny", split)


class TestFacts:
    def test_all_sets_of_the_collection_are_known(self) -> None:
        assert len(debd.COLLECTION) == 28
        assert len(debd.DEBD) == 20
        assert set(debd.COLLECTION) > set(debd.DEBD)
        assert {"adult", "connect4", "rcv1", "voting"} <= set(debd.COLLECTION) - set(debd.DEBD)
        for name, known in debd.COLLECTION.items():
            assert known.name == name
            assert all(len(blob) == 40 and set(blob) <= set("0123456789abcdef") for blob in known.blobs)
        assert len({blob for known in debd.COLLECTION.values() for blob in known.blobs}) == 3 * 28

    def test_the_hash_is_what_git_computes(self) -> None:
        assert debd.blob_hash(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        assert debd.blob_hash(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"

    def test_files_come_from_one_commit_on_github(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CIRCURVE_DEBD_URL")
        commit = "850908666388f1b1c766a304b37dae14613f1e51"
        expected = (
            f"https://raw.githubusercontent.com/arranger1044/DEBD/{commit}/datasets/pumsb_star/pumsb_star.test.data"
        )
        assert debd.file_url("pumsb_star", "test") == expected


class TestDownload:
    def test_the_first_use_downloads_and_the_second_does_not(self, server: Server, cache: Path) -> None:
        check_rows(load_dataset("tiny"))
        assert server.asked == [f"/datasets/tiny/tiny.{split}.data" for split in ROWS]
        check_rows(load_dataset("tiny"))
        assert len(server.asked) == 3
        folder = "debd/datasets/tiny"
        expected = [f"{folder}/tiny.{split}{end}" for split in ROWS for end in (".bits.npz", ".data")]
        assert files(cache) == sorted(expected)

    def test_the_cache_can_be_given_as_a_folder_of_data(self, server: Server, cache: Path) -> None:
        assert download_dataset("tiny")
        assert not download_dataset("tiny")
        check_rows(load_dataset("tiny", cache / "debd"))

    def test_the_list_says_what_is_cached(self, server: Server) -> None:
        def tiny() -> tuple[str, bool]:
            return next((item.source, item.available) for item in list_datasets() if item.name == "tiny")

        assert tiny() == ("download on first use", False)
        load_dataset("tiny")
        assert tiny() == ("cached", True)

    def test_only_what_is_lacking_is_downloaded(self, server: Server, cache: Path) -> None:
        load_dataset("tiny")
        for path in (cache / "debd/datasets/tiny").glob("tiny.valid.*"):
            path.unlink()
        check_rows(load_dataset("tiny"))
        assert server.asked[3:] == ["/datasets/tiny/tiny.valid.data"]

    def test_a_name_outside_the_collection_is_refused(self, cache: Path) -> None:
        with pytest.raises(DataError, match=r"unknown data set 'digits'; choose one of accidents, ad, adult"):
            download_dataset("digits")

    def test_two_processes_at_once_both_end_well(self, server: Server, cache: Path) -> None:
        program = (
            "import sys, circurve.cli.fit; early = {'platformdirs', 'requests', 'sklearn'} & set(sys.modules)\n"
            "from circurve.data import debd, load_dataset; from debd_server import entry\n"
            "debd.COLLECTION['tiny'] = entry('tiny')\n"
            "print(early, flush=True); input()\n"
            "print(load_dataset('tiny').train.sum())"
        )
        folders = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert other.stdout.readline() == "set()\n"  # importing circurve imports no downloader
            other.stdin.write("go\n")
            other.stdin.flush()
            here = load_dataset("tiny")
            there = other.communicate()[0]
        assert other.returncode == 0
        assert there == f"{here.train.sum()}\n"
        assert len(files(cache)) == 6

    def test_threads_at_once_all_end_well(self, server: Server, cache: Path) -> None:
        with ThreadPoolExecutor(8) as pool:
            for data in pool.map(lambda _: load_dataset("tiny"), range(8)):
                check_rows(data)
        assert len(files(cache)) == 6

    @pytest.mark.linux
    def test_progress_is_shown_on_a_terminal_only(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        import pty

        load_dataset("tiny")
        assert capfd.readouterr() == ("", "")
        ours, theirs = pty.openpty()
        monkeypatch.setenv("TERM", "xterm")
        for path in cache_folder().rglob("tiny.*"):
            path.unlink()
        with os.fdopen(theirs, "w") as terminal:
            monkeypatch.setattr(sys, "stderr", terminal)
            load_dataset("tiny")
            monkeypatch.undo()
        assert "tiny.train.data" in os.read(ours, 100_000).decode()
        os.close(ours)


class TestFailures:
    """Whatever goes wrong, one message says what to do, and the cache holds no part of the file."""

    def test_nobody_listens(self, cache: Path) -> None:
        expected = "cannot download http://127.0.0.1:9/datasets/tiny/tiny.train.data: no connection (ConnectionError); "
        assert failure() == f"{expected}try again later, or get the collection yourself: {BY_HAND}"
        assert files(cache) == []

    @pytest.mark.parametrize(
        ("how", "expected"),
        [
            ("404", "the server answered 404 Not Found"),
            ("500", "the server answered 500 Internal Server Error"),
            ("interrupted", "the transfer was interrupted"),
            ("hangs up", "no connection (ConnectionError)"),
        ],
    )
    def test_the_server_fails(self, server: Server, cache: Path, how: str, expected: str) -> None:
        server.how["valid"] = how
        message = failure()
        assert message.startswith(f"cannot download {server.url}/datasets/tiny/tiny.valid.data: {expected}; try again")
        assert message.endswith(BY_HAND)
        assert [name for name in files(cache) if "train" not in name] == []
        server.how.clear()
        check_rows(load_dataset("tiny"))

    @pytest.mark.parametrize("how", ["changed", "empty"])
    def test_the_content_is_wrong(self, server: Server, cache: Path, how: str) -> None:
        server.how["train"] = how
        message = failure()
        assert message.startswith(f"{server.url}/datasets/tiny/tiny.train.data is not the file of the collection: its")
        assert f"not {entry('tiny').blob('train')}; it was deleted" in message
        assert message.endswith(BY_HAND)
        assert files(cache) == []

    @pytest.mark.parametrize("how", ["endless", "endless, packed"])
    def test_an_answer_without_end_is_given_up_soon(self, server: Server, cache: Path, how: str) -> None:
        server.how["train"] = how
        message = failure()
        expected = (
            f"{server.url}/datasets/tiny/tiny.train.data is not the file of the collection: it has more than 3,120"
        )
        assert message.startswith(f"{expected} bytes; it was deleted")
        assert message.endswith(BY_HAND)
        assert files(cache) == []

    @pytest.mark.parametrize("length", ["many", "9" * 5_000, "", "-1", "٣"])
    def test_a_length_that_is_no_number_is_not_announced(self, length: str) -> None:
        assert _announced(length) is None
        assert _announced("1024") == 1024

    def test_the_server_does_not_answer_in_time(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        import requests

        def never(*_: object, **__: object) -> None:
            raise requests.ReadTimeout("HTTPConnectionPool(...): Read timed out.")

        monkeypatch.setattr(requests, "get", never)
        assert "tiny.train.data: the server did not answer in time; try again" in failure()

    def test_an_address_that_is_none_is_named(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CIRCURVE_DEBD_URL", "nowhere/")
        assert failure().startswith("cannot download nowhere/datasets/tiny/tiny.train.data: Invalid URL")

    @pytest.mark.linux
    def test_no_space_is_left(self, server: Server, cache: Path) -> None:
        import resource

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            message = failure(FileAccessError)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        target = cache / "debd/datasets/tiny/tiny.train.data"
        assert message.startswith(f"cannot write {target}: File too large; free some space there, set the environment")
        assert "CIRCURVE_CACHE" in message
        assert message.endswith(BY_HAND)
        assert files(cache) == []

    def test_the_cache_cannot_be_written(self, server: Server, cache: Path) -> None:
        cache.write_text("a file where the folder should be")
        message = failure(FileAccessError)
        assert message.startswith(f"cannot write {cache}/debd/datasets/tiny/tiny.train.data: ")
        assert "CIRCURVE_CACHE" in message
        assert server.asked == []

    def test_an_interrupt_leaves_nothing(self, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("circurve.data.cache._check", stop)
        with pytest.raises(KeyboardInterrupt):
            load_dataset("tiny")
        assert server.asked
        assert files(cache) == []


def test_a_file_that_is_being_replaced_is_old_or_new(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "file"
    with replacing(target) as part:
        part.write_text("old")
    with replacing(target) as part:
        part.write_text("new, but only half of")
        assert target.read_text() == "old"
    assert target.read_text() == "new, but only half of"

    def fail() -> None:
        with replacing(target) as part:
            part.write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert files(tmp_path) == ["folder/file"]


def test_the_usual_cache_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.setenv("CIRCURVE_CACHE", "~/elsewhere")
    assert cache_folder() == Path.home() / "elsewhere"
    monkeypatch.delenv("CIRCURVE_CACHE")
    assert cache_folder() == Path(platformdirs.user_cache_dir("circurve"))
