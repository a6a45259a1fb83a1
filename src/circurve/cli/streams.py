"""Large Parquet and Arrow files, and folders of them, on the command line: rows stay on the disk."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from circurve.data import Stream, Table, infer_schema, open_stream, split_rows
from circurve.data.bind import align_source
from circurve.data.convert import Names, about
from circurve.data.open_stream import READERS
from circurve.data.unseen import Unseen
from circurve.errors import OptionError
from circurve.model import Model
from circurve.words import counted

if TYPE_CHECKING:
    from circurve.cli.loading import Source
    from circurve.data import Dataset
    from circurve.data.infer import Types

__all__ = [
    "ScoredStream",
    "StreamedDataset",
    "scored_streams",
    "stream_columns",
    "stream_fingerprint",
    "streamed",
    "training_stream",
    "with_splits",
]

STREAMED_VALUES = 1 << 27
"""Files with more values than these, 1 GiB as floats, are read piece by piece. A fixed number: rows of streams are
shuffled in another order, and a training should not depend on the machine's memory."""


@dataclass(frozen=True)
class StreamedDataset:
    """A data set whose rows are read piece by piece; it has what commands ask of a `Dataset`."""

    name: str
    train: Stream
    valid: Stream | Table | None = None
    test: Stream | Table | None = None

    @property
    def columns(self) -> Names:
        """The columns' names."""
        return self.train.columns

    def __repr__(self) -> str:
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        sizes = ", ".join(f"{len(part)} {split}" for split, part in parts.items() if part is not None)
        return f"<Dataset {self.name}: {counted(self.train.shape[1], 'variable')}, rows: {sizes}, read piece by piece>"


def streamed(source: Source) -> Stream | None:
    """The stream of a folder of Parquet or Arrow files, or of a large file; None for everything that is read into
    memory."""
    path = Path(source.data).expanduser()
    folder = path.is_dir() and source.data_dir is None
    if folder:
        if not any(file.suffix.lower() in READERS for file in path.iterdir()):
            return None
    elif path.suffix.lower() not in READERS or not path.is_file():
        return None
    with about(source.data):
        stream = open_stream(path, missing=source.missing, **source.options())
        if source.dropped:
            kept = [name for name in stream.columns or () if name not in source.dropped]
            stream = open_stream(path, columns=kept, missing=source.missing, **source.options())
    return stream if folder or stream.shape[0] * stream.shape[1] > STREAMED_VALUES else None


def training_stream(source: Source, stream: Stream) -> StreamedDataset:
    """The stream in a schema of its own, for training."""
    with about(source.data):
        schema = infer_schema(stream, types=cast("Types", source.types))
        bound = align_source(stream, schema, unseen="error")
    assert isinstance(bound, Stream)
    return StreamedDataset(Path(source.data).stem, bound)


def with_splits(data: StreamedDataset, valid: float, test: float, seed: int) -> Dataset:
    """The same rows in parts, the ones that a table in memory would be split into."""
    parts = split_rows(np.arange(len(data.train)), valid, test, seed)
    trains, valids, tests = (None if rows is None else data.train.rows(rows) for rows in parts)
    assert trains is not None
    return cast("Dataset", StreamedDataset(data.name, trains, valids, tests))


def stream_fingerprint(stream: Stream) -> int:
    """A checksum of the values as they were read; for files of numbers, that of the table in memory."""
    found = 0
    for piece in stream.pieces():
        found = zlib.crc32(np.ascontiguousarray(np.asarray(piece, dtype=np.float64)).tobytes(), found)
    return found


def recorded_rows(training: Mapping[str, Any], stream: Stream, aligned: Stream) -> dict[str, Stream]:
    """The parts of an aligned stream as the model's file says that it was split; none if it was another one."""
    record = training.get("split")
    if not isinstance(record, dict) or record.get("fingerprint") != stream_fingerprint(stream):
        return {}
    parts = split_rows(np.arange(len(stream)), record["valid"], record["test"], record["seed"])
    names = ("train", "valid", "test")
    return {name: aligned.rows(rows) for name, rows in zip(names, parts, strict=True) if rows is not None}


@dataclass(frozen=True)
class ScoredStream:
    """Some rows of a stream with the log-likelihood of each."""

    aligned: Stream
    rows: NDArray[np.int64]  # (N,) their numbers in the stream
    scores: NDArray[np.float64]  # (N,)


def scored_streams(
    model: Model,
    stream: Stream,
    training: Mapping[str, Any],
    split: str,
    unseen: Unseen,
    memory_budget: int | None = None,
) -> dict[str, ScoredStream]:
    """The parts that were asked for, scored piece by piece; a stream that the training did not split is `test`."""
    aligned = align_source(stream, model.schema, unseen=unseen)
    assert isinstance(aligned, Stream)
    parts = recorded_rows(training, stream, aligned) or {"test" if split == "all" else split: aligned}
    if split != "all" and split not in parts:
        raise OptionError(f"--split {split}: the data set has only {', '.join(parts)}")
    wanted = parts if split == "all" else {split: parts[split]}
    numbers = {name: np.arange(len(p)) if p.chosen is None else p.chosen.numpy() for name, p in wanted.items()}
    scores = {name: model.log_prob(part, memory_budget=memory_budget) for name, part in wanted.items()}
    return {name: ScoredStream(part, numbers[name], scores[name]) for name, part in wanted.items()}


def stream_columns(parts: Mapping[str, ScoredStream]) -> dict[str, Any]:
    """The table of scores, in the order of the rows, with the part of each row if there are several."""
    rows = np.concatenate([part.rows for part in parts.values()])
    order = np.argsort(rows, kind="stable")
    names = np.repeat(list(parts), [len(part.rows) for part in parts.values()])
    split = {"split": names[order]} if len(parts) > 1 else {}
    scores = np.concatenate([part.scores for part in parts.values()])
    return {**split, "row": rows[order], "log_likelihood": scores[order]}
