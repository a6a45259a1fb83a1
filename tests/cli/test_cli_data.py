"""`circurve data download` and `data list`, against a local server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import error_line
from typer.testing import Result

from circurve.data import debd
from debd_server import Server, entry, serving

Invoke = Callable[[str], Result]
Answer = Callable[[str], dict[str, Any]]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A collection of two sets, and an empty cache."""
    monkeypatch.setenv("CIRCURVE_CACHE", str(tmp_path / "cache"))
    real = dict(debd.COLLECTION)
    debd.COLLECTION.clear()
    debd.COLLECTION.update({name: entry(name) for name in ("one", "two")})
    with serving("one", "two") as running:
        monkeypatch.setenv("CIRCURVE_DEBD_URL", running.url)
        yield running
    debd.COLLECTION.clear()
    debd.COLLECTION.update(real)


def sources(answer: Answer, options: str = "") -> dict[str, str]:
    return {item["name"]: item["source"] for item in answer(f"data list {options}")["datasets"]}


def test_download_by_name_and_all(answer: Answer, invoke: Invoke, server: Server, folder: Path) -> None:
    assert sources(answer)["one"] == "download on first use"
    report = answer("data download one")
    assert report["datasets"] == [{"name": "one", "downloaded": True}]
    assert report["cache"] == str(folder / "cache")
    assert (sources(answer)["one"], sources(answer)["two"]) == ("cached", "download on first use")
    report = answer("data download --all")
    assert report["datasets"] == [{"name": "one", "downloaded": False}, {"name": "two", "downloaded": True}]
    assert len(server.asked) == 6
    result = invoke("data download two one two")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.count("already there") == 2
    assert str(folder / "cache") in result.stdout


def test_the_list_says_where_sets_are(answer: Answer, invoke: Invoke, server: Server, folder: Path) -> None:
    answer("data download one")
    lines = {line.split()[0]: line for line in invoke("data list").stdout.splitlines() if line.split()}
    assert "cached" in lines["one"]
    assert "download on first use" in lines["two"]
    assert "embedded" in lines["digits"]
    assert "synthetic" in lines["triangle"]
    (folder / "sets").mkdir()
    assert sources(answer, "--data-dir sets")["one"] == "not in data_dir"
    assert "not in --data-dir" in invoke("data list --data-dir sets").stdout


def test_a_command_downloads_what_it_needs(answer: Answer, server: Server) -> None:
    report = answer("data info one")
    assert report["rows"] == {"train": 60, "valid": 7, "test": 11}
    assert report["families"] == {"Bernoulli": 13}
    assert len(server.asked) == 3


def test_a_folder_of_one_set_can_be_given(answer: Answer, server: Server, folder: Path) -> None:
    answer("data download one")
    report = answer(f"data info {folder}/cache/debd/datasets/one")
    assert (report["dataset"], report["rows"]["test"]) == ("one", 11)
    assert answer(f"data info one --data-dir {folder}/cache/debd")["rows"]["train"] == 60


def test_a_failed_download_is_a_failure_while_working(invoke: Invoke, server: Server) -> None:
    server.how["valid"] = "404"
    for command in ("data download two", "fit two --epochs 1", "data info two"):
        line = error_line(invoke(command), code=1)
        assert line.startswith(f"cannot download {server.url}/datasets/two/two.valid.data: the server answered 404")
        assert line.endswith("git clone https://github.com/arranger1044/DEBD, then say --data-dir DEBD")


def test_a_cache_that_cannot_be_written_is_bad_use(invoke: Invoke, server: Server, folder: Path) -> None:
    (folder / "cache").write_text("not a folder")
    line = error_line(invoke("data download one"))
    assert line.startswith(f"cannot write {folder}/cache/debd/datasets/one/one.train.data: ")
    assert "CIRCURVE_CACHE" in line


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "name one or more data sets, or pass --all"),
        ("one --all", "name one or more data sets, or pass --all, not both"),
        ("one tow", "unknown data set 'tow' (did you mean two?); known are one, two"),
        ("digits", "unknown data set 'digits'; known are one, two"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_downloaded(
    invoke: Invoke, server: Server, options: str, expected: str
) -> None:
    assert error_line(invoke(f"data download {options}")) == expected
    assert server.asked == []


def test_messages_name_the_option_of_the_command_line(invoke: Invoke, server: Server, folder: Path) -> None:
    (folder / "sets" / "datasets" / "mine").mkdir(parents=True)
    assert "no data set 'one' in sets" in error_line(invoke("data info one --data-dir sets"))
    assert error_line(invoke("data info one --data-dir sets")).endswith("without --data-dir it is downloaded")
    for name in ("mine.train.data", "yours.train.data"):
        (folder / "sets" / name).write_text("0,1\n")
    line = error_line(invoke("data info ./sets"))
    assert line == "sets: is a folder of data sets; pass it as --data-dir, with one of the names mine, yours"
