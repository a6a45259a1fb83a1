from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

from circurve import bounds
from circurve.data import load_dataset
from circurve.data.catalogue import is_debd
from circurve.errors import FileAccessError, FileFormatError, OptionError
from circurve.reproduction.plan import digest
from circurve.reproduction.records import (
    EARLIER_HASHES,
    FILE_NAME,
    RecordFile,
    identify,
    line_of,
    of_debd,
    read_records,
)


def records(count: int) -> list[dict[str, object]]:
    return [{"id": f"run {i}", "value": i / 7, "fleet": {"key": "k"}} for i in range(count)]


def test_records_are_lines_of_json_and_come_back(tmp_path: Path) -> None:
    with RecordFile(tmp_path) as file:
        file.append(records(3)[:2])
        file.append(records(3)[2:])
        assert file.records == records(3)
    lines = (tmp_path / FILE_NAME).read_text().splitlines()
    assert [{**json.loads(line), "crc32": None} for line in lines] == [{**r, "crc32": None} for r in records(3)]
    assert read_records(tmp_path / FILE_NAME) == records(3)
    with RecordFile(tmp_path) as file:
        assert list(file.by_id) == ["run 0", "run 1", "run 2"]


def test_compressed_records_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / f"{FILE_NAME}.gz"
    path.write_bytes(gzip.compress(b"".join(line_of(record) for record in records(2))))
    assert read_records(path) == records(2)


def test_records_of_earlier_versions_are_known_by_the_hash_of_their_data() -> None:
    def of(dataset: str, **environment: object) -> bool:
        return of_debd({"dataset": dataset, "environment": environment})

    assert of("dna", data_hash=EARLIER_HASHES["dna"])
    assert not of("bbc", data_hash=EARLIER_HASHES["dna"])
    assert not of("mine", data_hash="abc")
    assert of("jester", data_hash="abc", debd=True)
    assert not of("dna", data_hash=EARLIER_HASHES["dna"], debd=False)


def test_the_hashes_of_earlier_versions_are_those_of_the_files(debd: Path) -> None:
    for name, known in EARLIER_HASHES.items():
        data = load_dataset(name, debd)
        assert (digest(data), is_debd(data)) == (known, True)


def test_no_file_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / FILE_NAME) == []


def test_a_torn_last_line_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    whole = b"".join(line_of(record) for record in records(2))
    first = len(line_of(records(1)[0]))
    for length in range(len(whole)):
        (tmp_path / FILE_NAME).write_bytes(whole[:length])
        complete = 0 if length < first else 1
        assert read_records(tmp_path / FILE_NAME) == records(complete)
        with RecordFile(tmp_path) as file:
            assert file.records == records(complete)
            file.append(records(2)[complete:])
        assert (tmp_path / FILE_NAME).read_bytes() == whole


def test_garbage_after_a_crash_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(line_of(records(1)[0]) + b"\0\0\0\n")
    with RecordFile(tmp_path) as file:
        assert file.records == records(1)
    assert (tmp_path / FILE_NAME).read_bytes() == line_of(records(1)[0])


@pytest.mark.parametrize("line", [b"not json\n", b"[1]\n", b'{"no": "id"}\n'])
def test_a_damaged_line_before_others_is_refused_and_left_alone(tmp_path: Path, line: bytes) -> None:
    content = line_of(records(1)[0]) + line + line_of(records(2)[1])
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(FileFormatError, match=r"records\.jsonl: line 2 is not a result record"), RecordFile(tmp_path):
        pass
    assert (tmp_path / FILE_NAME).read_bytes() == content
    with pytest.raises(FileFormatError, match="line 2"):  # the lock is free again
        RecordFile(tmp_path).__enter__()


def test_a_known_run_is_not_recorded_twice(tmp_path: Path) -> None:
    with RecordFile(tmp_path) as file:
        file.append(records(1))
        with pytest.raises(FileFormatError, match="run 0 is already recorded"):
            file.append(records(2))
        with pytest.raises(FileFormatError, match="twice"):
            file.append([records(2)[1], records(2)[1]])
        assert file.records == records(1)
    assert read_records(tmp_path / FILE_NAME) == records(1)


def test_only_one_writer_at_a_time(tmp_path: Path) -> None:
    with RecordFile(tmp_path), pytest.raises(OptionError, match="another process is writing records there"):
        RecordFile(tmp_path).__enter__()
    with RecordFile(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileAccessError, match=r"cannot write .*file"):
        RecordFile(tmp_path / "file" / "out").__enter__()


def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    with RecordFile(tmp_path) as file, pytest.raises(ValueError, match="JSON"):
        file.append([{"id": "a", "value": float("nan")}])
    assert read_records(tmp_path / FILE_NAME) == []


def test_an_id_depends_on_the_facts_and_not_on_their_order() -> None:
    assert identify({"a": 1, "b": [1.5, None]}) == identify({"b": [1.5, None], "a": 1})
    assert identify({"a": 1}) != identify({"a": 2})


def test_a_line_carries_the_checksum_of_what_stands_before_it(tmp_path: Path) -> None:
    record = {"id": "a", "score": -6.25, "crc32": "mine"}
    line = line_of(record)
    assert line.endswith(b',"crc32":"mine","crc32":"%08x"}\n' % zlib.crc32(b'{"id":"a","score":-6.25,"crc32":"mine"}'))
    (tmp_path / FILE_NAME).write_bytes(line_of(records(1)[0]))
    assert read_records(tmp_path / FILE_NAME) == records(1)


@pytest.mark.parametrize("last", [True, False])
def test_a_digit_that_changed_is_found(tmp_path: Path, last: bool) -> None:
    line = line_of({"id": "a", "score": -6.25})
    changed = line.replace(b"6.25", b"6.15")
    (tmp_path / FILE_NAME).write_bytes(changed + (b"" if last else line_of({"id": "b"})))
    for read in (lambda: read_records(tmp_path / FILE_NAME), lambda: RecordFile(tmp_path).__enter__()):
        with pytest.raises(FileFormatError, match=r"records.jsonl: line 1 does not match its checksum"):
            read()
    assert (tmp_path / FILE_NAME).read_bytes().startswith(changed)


def test_lines_of_earlier_versions_have_no_checksum_and_are_taken(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"id":"a","score":1}\n' + line_of({"id": "b"}))
    assert read_records(tmp_path / FILE_NAME) == [{"id": "a", "score": 1}, {"id": "b"}]


@pytest.mark.parametrize("value", ["[" * 100_000 + "]" * 100_000, "1" + "0" * 5_000])
def test_a_hostile_value_is_a_line_that_is_no_record(tmp_path: Path, value: str) -> None:
    (tmp_path / FILE_NAME).write_text(f'{{"id":"a","x":{value}}}\n{{"id":"b"}}\n')
    with pytest.raises(FileFormatError, match="line 1 is not a result record"):
        read_records(tmp_path / FILE_NAME)


def test_packed_records_that_expand_too_far_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE_BYTES", 1 << 20)
    path = tmp_path / f"{FILE_NAME}.gz"
    path.write_bytes(gzip.compress(b'{"id":"a"}\n' * 200_000))
    with pytest.raises(FileFormatError, match="if you trust the file, pass trust=True"):
        read_records(path)
    assert len(read_records(path, trust=True)) == 200_000
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileFormatError, match="damaged"):
        read_records(path, trust=True)


def test_a_file_of_very_many_tiny_records_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b'{"id":"a"}\n' * 400_000)
    with pytest.raises(FileFormatError, match=r"400,000 lines take 1.2 seconds to read; .* pass trust=True"):
        read_records(path)
    path.write_bytes(b'{"id":"a"}\n' * 1_000)
    assert len(read_records(path)) == 1_000
