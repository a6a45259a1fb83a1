"""Large Parquet, Arrow and .npy files, and folders of the first two, on the command line: rows stay on the disk."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data import Stream, Table, open_stream
from circurve.data.bind import align_source
from circurve.data.convert import Names, about
from circurve.data.dataset import split_numbers
from circurve.data.open_stream import ARRAY, READERS
from circurve.errors import DataError
from circurve.model import Model
from circurve.schema import Schema, nearest
from circurve.words import counted

if TYPE_CHECKING:
    from circurve.cli.loading import Source

__all__ = [
    "ScoredStream",
    "StreamedDataset",
    "kept_columns",
    "scored_stream",
    "stream_as_trained",
    "stream_columns",
    "stream_fingerprint",
    "streamed",
    "together",
    "training_stream",
    "with_splits",
]

STREAMED_VALUES = 1 << 27
"""Files with more values than these, 1 GiB as floats, are read piece by piece, and so are files whose rows take more
memory than files of their size may take. A fixed number: rows of streams are shuffled in another order, and a training
should not depend on the machine's memory."""


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
    """The stream of a folder of Parquet or Arrow files, or of a large one; None for everything that is read into
    memory."""
    path = Path(source.data).expanduser()
    folder = path.is_dir() and source.data_dir is None
    if folder:
        if not any(file.suffix.lower() in READERS for file in path.iterdir()):
            return None
    elif path.suffix.lower() == ARRAY:
        return _mapped(path, source)
    elif path.suffix.lower() not in READERS or not path.is_file():
        return None
    with about(source.data):
        stream = open_stream(path, missing=source.missing, **source.options())
        if source.dropped:
            kept = kept_columns(stream.columns, source.dropped)
            names = [name for number, name in enumerate(stream.columns or ()) if number in kept]
            stream = open_stream(path, columns=names, missing=source.missing, **source.options())
    large = stream.shape[0] * stream.shape[1] > STREAMED_VALUES or getattr(stream.reader, "expands", False)
    return stream if folder or large else None


def _mapped(path: Path, source: Source) -> Stream | None:
    """The stream of a large .npy file of numbers. What cannot be mapped goes to the reader of small files, which says
    why it cannot be read."""
    if not path.is_file() or path.stat().st_size <= STREAMED_VALUES:  # a value has at least one byte
        return None
    try:
        stream = open_stream(path, missing=source.missing, memory_budget=source.memory_budget)
    except DataError:
        return None
    if stream.shape[0] * stream.shape[1] <= STREAMED_VALUES:
        return None
    if source.dropped:
        with about(source.data):
            kept_columns(None, source.dropped)
    return stream


def kept_columns(columns: Names, dropped: frozenset[str]) -> list[int]:
    """The numbers of the columns that are not left out; DataError for an unknown column, or if none is left."""
    names = columns or ()
    unknown = next((name for name in sorted(dropped) if name not in names), None)
    if unknown is not None:
        raise DataError(f"no column {unknown!r} to leave out{nearest(unknown, names) if names else ''}")
    kept = [number for number, name in enumerate(names) if name not in dropped]
    if not kept:
        raise DataError("no column is left: --types leaves out all of them")
    return kept


def training_stream(data: StreamedDataset, schema: Schema, what: str) -> StreamedDataset:
    """The rows in a schema of their own, for training. `what` is the start of messages."""
    with about(what):
        bound = align_source(data.train, schema, unseen="error")
    assert isinstance(bound, Stream)
    return replace(data, train=bound)


def with_splits(data: StreamedDataset, valid: float, test: float, seed: int) -> StreamedDataset:
    """The same rows in parts, the ones that a table in memory would be split into."""
    parts = split_numbers(len(data.train), valid, test, seed)
    trains, valids, tests = (None if rows is None else data.train.rows(rows) for rows in parts)
    assert trains is not None
    return StreamedDataset(data.name, trains, valids, tests)


def stream_fingerprint(stream: Stream) -> int:
    """A checksum of the values as they were read; for files of numbers, that of the table in memory."""
    found = 0
    for piece in stream.pieces():
        found = zlib.crc32(np.ascontiguousarray(np.asarray(piece, dtype=np.float64)).tobytes(), found)
    return found


def stream_as_trained(data: StreamedDataset, aligned: Stream, training: Mapping[str, Any]) -> StreamedDataset:
    """An aligned stream in the parts that the model's file says; whole if the model was trained on other rows."""
    record = training.get("split")
    if not isinstance(record, dict) or record.get("fingerprint") != stream_fingerprint(data.train):
        return replace(data, train=aligned)
    return with_splits(replace(data, train=aligned), record["valid"], record["test"], record["seed"])


def together(parts: Sequence[Stream]) -> Stream:
    """The rows of all parts of one stream, in their order in it."""
    chosen = [part.chosen for part in parts if part.chosen is not None]
    if len(parts) == 1 or len(chosen) < len(parts):
        return parts[0]
    return replace(parts[0], chosen=torch.cat(chosen).sort().values)


@dataclass(frozen=True)
class ScoredStream:
    """Some rows of a stream with the log-likelihood of each."""

    aligned: Stream
    rows: NDArray[np.int64]  # (N,) their numbers in the stream
    scores: NDArray[np.float64]  # (N,)


def scored_stream(model: Model, part: Stream, memory_budget: int | None = None) -> ScoredStream:
    """Rows in the model's schema, scored piece by piece."""
    rows = np.arange(len(part)) if part.chosen is None else part.chosen.numpy()
    return ScoredStream(part, rows, model.log_prob(part, memory_budget=memory_budget))


def stream_columns(parts: Mapping[str, ScoredStream]) -> dict[str, Any]:
    """The table of scores, in the order of the rows, with the part of each row if there are several."""
    rows = np.concatenate([part.rows for part in parts.values()])
    order = np.argsort(rows, kind="stable")
    names = np.repeat(list(parts), [len(part.rows) for part in parts.values()])
    split = {"split": names[order]} if len(parts) > 1 else {}
    scores = np.concatenate([part.scores for part in parts.values()])
    return {**split, "row": rows[order], "log_likelihood": scores[order]}
