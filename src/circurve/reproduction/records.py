"""Result records on disk: one JSON line for each run, appended whole, by one writer at a time.

A run's id is a hash of all that determines its result, so that a run is known by its id wherever it was trained, and no
run is recorded twice. A process that is killed while it writes leaves at most a torn last line, which the next one cuts
off. A line ends with the checksum of the text before it: a record with a changed digit would otherwise look valid.
Lines of earlier versions have none, and are taken as they are.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, cast

from circurve.bounds import check_expansion, check_seconds, inflate
from circurve.errors import FileAccessError, FileFormatError, OptionError
from circurve.whole_files import LOCK_NAME, lock_file

__all__ = [
    "FILE_NAME",
    "Record",
    "RecordFile",
    "RunRecord",
    "as_run",
    "identify",
    "is_failed",
    "of_debd",
    "read_records",
    "significant",
]

FILE_NAME = "records.jsonl"
BINARY: int = getattr(os, "O_BINARY", 0)
"""Windows would write the end of a line as two bytes."""

SECONDS_PER_RECORD = 3e-6
"""How long a line takes to read, however short it is."""

Record: TypeAlias = dict[str, Any]
"""Plain values by name, as JSON has them: what a file of records holds, or a figure is drawn from."""


class FleetCost(TypedDict):
    """The training that a run was a part of."""

    key: str
    runs: int
    seconds: float


class FailedRun(TypedDict):
    """In which epoch a run broke, and why."""

    epoch: int
    reason: str


class RunRecord(TypedDict, total=False):
    """The record of one run of a study. A failed one has `status` and `failure` in place of scores and history."""

    id: str
    study: str
    label: str
    protocol: str
    choose_epoch: Literal["best", "last"]
    dataset: str
    fraction: float
    seed: int
    method: Record
    settings: Record
    environment: Record
    final: dict[str, Any]
    best: dict[str, Any]
    history: dict[str, list[Any]]
    curvature: Record | None
    gates: dict[str, float] | None
    probe: Record
    seconds: float
    fleet: FleetCost
    status: Literal["failed"]
    failure: FailedRun


FIELDS = {
    **dict.fromkeys(("id", "study", "label", "dataset"), str),
    **dict.fromkeys(("method", "settings", "environment", "final", "best", "history", "fleet"), dict),
    "fraction": float,
    "seed": int,
}
"""What every record of a run holds."""

CHECKSUM = re.compile(rb',"crc32":"([0-9a-f]{8})"\}\n?$')
"""The end of a line that has a checksum: that of the line without it."""

BYTES_PER_MARK = 56
"""What a comma, a colon or a bracket of a line takes in memory."""

SCORES = ("final", "best", "history")
"""What the record of a failed run does not hold."""


def is_failed(record: Mapping[str, Any]) -> bool:
    """Whether the run broke in training: its record says in which epoch and why, and holds no scores."""
    return bool(record.get("status") == "failed")


EARLIER_HASHES = {
    "nltcs": "01c5e071ddd2e282db972c0c52e93eb32f6cfaff1ef1447d88469f4f53c1c1f5",
    "plants": "fa49f4d3faf071137df18c10d307ca63b1e7b6f0181f5ea92ab0a1b10762dace",
    "baudio": "8d66153acdf24a3dc69ce1402ba86fc28f84debe29fe3ba2d80736957bdf0764",
    "dna": "67d783955691607cdd6f9a66699c5879803f87d4a71950cc8dddefceef609380",
    "bbc": "df92a61b5c1932d4396c1cb5178c112f6dea3493d91d6affe658626d90c46e4e",
}
"""Data sets of DEBD in records of earlier versions, which have only the hash of the data."""


def of_debd(record: Mapping[str, Any]) -> bool:
    """Whether the data were those of DEBD's files: only then can scores be compared with published ones."""
    environment = record["environment"]
    known = EARLIER_HASHES.get(record["dataset"]) == environment["data_hash"]
    return bool(environment.get("debd", known))


def as_run(record: Mapping[str, Any]) -> RunRecord:
    """A record of a run, as it was read or put together; `RecordFile.check_complete` checks what it holds."""
    return cast("RunRecord", record)


def identify(facts: Any) -> str:
    """The hash of plain values: equal for equal facts, whatever the order of their keys."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def read_records(path: str | Path, *, trust: bool = False) -> list[Record]:
    """All complete records of a file, plain or compressed (.gz); none if there is no file.

    trust: take a file that needs more than ten times its size in memory, too.
    """
    path = Path(path)
    if not path.exists():
        return []
    try:
        stored = path.read_bytes()
        content = inflate(stored, trust, FileFormatError) if path.suffix == ".gz" else stored
        marks = sum(content.count(mark) for mark in (b",", b":", b"{", b"["))
        check_expansion(len(content) + BYTES_PER_MARK * marks, len(stored), trust, FileFormatError)
        lines = content.count(b"\n")
        check_seconds(SECONDS_PER_RECORD * lines, f"{lines:,} lines", len(stored), trust, FileFormatError)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: ", *error.parts) from None
    except (EOFError, zlib.error) as error:
        raise FileFormatError(f"{path}: not a .gz file, or damaged: {error}") from None
    except OSError as error:
        raise FileAccessError(f"cannot read {path}: {error.strerror or error}") from error
    return _parse(content, path)[0]


class RecordFile:
    """A file of records in a folder, open for appending; a lock keeps other writers out."""

    def __init__(self, folder: Path, name: str = FILE_NAME) -> None:
        self.folder, self.path = folder, folder / name
        self.lock_path = folder / (LOCK_NAME if name == FILE_NAME else f"{LOCK_NAME}-{name}")
        self.records: list[Record] = []
        self.by_id: dict[str, Record] = {}
        self._lock = -1
        self._file = -1

    def check_complete(self) -> None:
        """Refuse records without what tables and figures are made from: written by hand, or by another program."""
        failed = {"failure": dict, **{name: kind for name, kind in FIELDS.items() if name not in SCORES}}
        for line, record in enumerate(self.records, 1):
            for name, kind in (failed if is_failed(record) else FIELDS).items():
                if not isinstance(record.get(name), kind):
                    raise FileFormatError(
                        f"{self.path}: line {line} is an incomplete result record: {name!r} is missing"
                    )

    def __enter__(self) -> RecordFile:
        with _named_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.lock_path, os.O_RDWR | os.O_CREAT, 0o666)
        if not lock_file(self._lock):
            os.close(self._lock)
            raise OptionError(f"{self.folder}: another process is writing records there")
        try:
            with _named_errors(self.path):
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY, 0o666)
                content = self.path.read_bytes()
            self.records, complete = _parse(content, self.path)
            if complete < len(content):
                os.ftruncate(self._file, complete)
                os.fsync(self._file)
        except BaseException:
            self.__exit__()
            raise
        self.by_id = {record["id"]: record for record in self.records}
        return self

    def __exit__(self, *_: object) -> None:
        for number in (self._file, self._lock):  # closing the lock's file releases the lock
            if number >= 0:
                os.close(number)
        self._file = self._lock = -1

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add records, all of them in one write that is on disk when this returns."""
        new = {record["id"]: dict(record) for record in records}
        known = [name for name in new if name in self.by_id]
        if known or len(new) < len(records):
            raise FileFormatError(f"{self.path}: run {known[0] if known else 'twice'} is already recorded")
        content = b"".join(line_of(record) for record in records)
        with _named_errors(self.path):
            while content:  # one turn, unless the system takes only a part
                content = content[os.write(self._file, content) :]
            os.fsync(self._file)
        self.records += new.values()
        self.by_id |= new


def significant(value: float | None, digits: int = 6) -> float | None:
    """Rounded to this many digits; None for a number that is not finite, which JSON cannot express."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def line_of(record: Mapping[str, Any]) -> bytes:
    """A record as its line, with its checksum at the end."""
    line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    return line[:-1] + b',"crc32":"%08x"}\n' % zlib.crc32(line)


def _parse(content: bytes, path: Path) -> tuple[list[Record], int]:
    """The records, and how many bytes they take: less than there are if the last line is torn."""
    records: list[Record] = []
    place = 0
    while place < len(content):
        end = content.find(b"\n", place) + 1
        record = _record(content[place:end], f"{path}: line {len(records) + 1}") if end else None
        if record is None:
            if end and content[end:].strip():
                raise FileFormatError(f"{path}: line {len(records) + 1} is not a result record")
            break
        records.append(record)
        place = end
    return records, place


def _record(line: bytes, place: str) -> Record | None:
    """The record of a line; None if it holds none, an error if it holds one that was changed."""
    try:
        record = json.loads(line)  # what the whole file takes was checked
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        return None
    if (found := CHECKSUM.search(line)) is not None:
        if int(found[1], 16) != zlib.crc32(line[: found.start()] + b"}"):
            hint = "remove the line, and its run is trained again"
            raise FileFormatError(f"{place} does not match its checksum: it was damaged or changed by hand; {hint}")
        record.pop("crc32", None)
    return record


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileAccessError(f"cannot write {path}: {error.strerror or error}") from error
