"""From DATASET|FILE and the options around it to a data set in parts, with missing values marked."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from circurve.cli.options import STANDARD, Part
from circurve.cli.streams import (
    StreamedDataset,
    kept_columns,
    stream_as_trained,
    stream_fingerprint,
    streamed,
    training_stream,
    with_splits,
)
from circurve.data import (
    Dataset,
    Stream,
    Table,
    align,
    as_table,
    infer_schema,
    is_streamed,
    load_data,
    read_table,
    split_rows,
)
from circurve.data.align import in_order
from circurve.data.catalogue import find_datasets
from circurve.data.convert import Names, about
from circurve.data.infer import Types
from circurve.data.table import Places
from circurve.data.unseen import Unseen
from circurve.errors import DataError, OptionError, warn_user
from circurve.inputs import Bernoulli
from circurve.model import Model
from circurve.schema import Schema, nearest
from circurve.scoring import align_rows

__all__ = [
    "SPLITS",
    "HeldOut",
    "Opened",
    "Shares",
    "Source",
    "SplitRecord",
    "aligned_parts",
    "check_known",
    "choose",
    "common_schema",
    "files_of",
    "fingerprint",
    "load",
    "load_in_parts",
    "open_data",
    "open_parts",
    "parts_for",
    "parts_of",
    "recorded_parts",
    "rows_of",
    "source_for",
    "split_as_trained",
    "warn_of_training_rows",
    "without",
]

SPLITS = ("train", "valid", "test")

Shares: TypeAlias = tuple[float, float, float]
"""The shares of the rows of a table for training, validation and test; they add up to 1."""

SplitRecord: TypeAlias = dict[str, float]
"""How a single table was split: the shares of validation and test, the seed, and the fingerprint of the table."""

DEFAULT_SHARES: Shares = (0.8, 0.1, 0.1)


@dataclass(frozen=True)
class Source:
    """Where data come from and how they are read."""

    data: str
    data_dir: Path | None = None
    header: bool | None = None
    missing: int | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    """The families of some columns, as --types names them."""

    categorical: frozenset[str] = frozenset()
    """Columns that are known to hold text."""

    dropped: frozenset[str] = frozenset()
    """Columns to leave out of a table that is read for a model."""

    unseen: Unseen = "missing"
    """What to do with values of validation and test tables that the training table does not contain."""

    trust: bool = False
    """Whether files may take far more memory than their size."""

    memory_budget: int | None = None
    """Bytes that reading may take."""

    def options(self) -> dict[str, Any]:
        """How files are read, as keywords."""
        return {"trust": self.trust, "memory_budget": self.memory_budget}


def source_for(model: Model, source: Source) -> Source:
    """The source, read with the schema of the model."""
    columns = model.schema.columns
    texts = [c.name for c in columns if c.name and any(isinstance(value, str) for value in c.categories or ())]
    return replace(source, categorical=frozenset(texts))


@dataclass(frozen=True)
class HeldOut:
    """Where validation and test rows come from: files, shares of the table, or nowhere."""

    valid: Path | None = None
    test: Path | None = None
    shares: Shares | None = None
    no_split: bool = False

    def __post_init__(self) -> None:
        if self.shares is not None and self.no_split:
            raise OptionError("--split and --no-split cannot be combined; leave one of them out")
        if self.shares is not None and (self.valid or self.test):
            raise OptionError("--split cannot be combined with --valid or --test: leave one of them out")


def files_of(source: Source) -> list[Path]:
    """The files that a data set is read from, as far as they are on this machine."""
    place = Path(source.data).expanduser()
    if place.is_file():
        return [place]
    sets = {} if source.data_dir is None else find_datasets(source.data_dir.expanduser())
    folder = sets.get(source.data, place)
    return [file for file in folder.iterdir() if file.is_file()] if folder.is_dir() else []


def load(source: Source) -> Dataset:
    """A data set or file as it is; a file with one table has `train` only."""
    data = load_data(source.data, source.data_dir, source.header, _categorical(source), **source.options())
    parts = {split: as_table(part, missing=source.missing) for split, part in parts_of(data).items()}
    if source.dropped:
        with about(source.data):
            parts = {split: without(part, source.dropped) for split, part in parts.items()}
        return Dataset(data.name, parts["train"], parts.get("valid"), parts.get("test"))
    return _with_parts(data, parts)


def without(table: Table, dropped: frozenset[str]) -> Table:
    """The other columns of a table; DataError for an unknown column."""
    names, kept = table.columns or (), kept_columns(table.columns, dropped)
    return replace(
        table,
        values=table.values[:, kept],
        observed=None if table.observed is None else table.observed[:, kept],
        columns=tuple(names[number] for number in kept),
        codings=None if table.codings is None else tuple(table.codings[number] for number in kept),
    )


def load_in_parts(source: Source, held: HeldOut, seed: int) -> tuple[Dataset, SplitRecord | None]:
    """A data set for training: its own parts, those in files, or a single table split at random by the seed.

    Also returns the record of the split, for `recorded_parts`, if the table was split.
    """
    if sum(str(place) == STANDARD for place in (source.data, held.valid, held.test)) > 1:
        raise OptionError("standard input (-) can be read only once; name files for the other tables")
    if (stream := streamed(source)) is not None:
        return _streamed_parts(source, stream, held, seed)
    data = load(source)
    if held.valid or held.test:
        files = {"valid": held.valid, "test": held.test}
        read = {s: _load_file(path, source, data.columns) for s, path in files.items() if path}
        return _aligned(_with_parts(data, read), source), None
    in_parts = len(parts_of(data)) > 1
    if in_parts and (held.shares is not None or held.no_split):
        raise OptionError(f"--split and --no-split are for a file with one table; {data.name} already has parts")
    if in_parts or held.no_split:
        return _aligned(data, source), None
    _, valid, test = held.shares or DEFAULT_SHARES
    with about(source.data):  # find values that no family takes while rows have the numbers that they have in the file
        whole = _aligned(data, source)
    trains, valids, tests = split_rows(whole.train, valid, test, seed)
    record: SplitRecord = {"valid": valid, "test": test, "seed": seed, "fingerprint": fingerprint(data.train)}
    return replace(whole, train=trains, valid=valids, test=tests), record


def _streamed_parts(source: Source, stream: Stream, held: HeldOut, seed: int) -> tuple[Dataset, SplitRecord | None]:
    """The parts of a stream: rows are chosen by their numbers; other files are read into memory."""
    read = _of_stream(source, stream)
    with about(source.data):
        schema = common_schema(cast("Dataset", read), source.types)
    data = training_stream(read, schema, source.data)
    if held.valid or held.test:
        files = {"valid": held.valid, "test": held.test}
        tables = {s: _load_file(path, source, data.columns) for s, path in files.items() if path}
        parts = {s: _in_schema(s, part, schema, source.unseen) for s, part in tables.items()}
        return cast("Dataset", replace(data, **cast("dict[str, Any]", parts))), None
    if held.no_split:
        return cast("Dataset", data), None
    _, valid, test = held.shares or DEFAULT_SHARES
    record: SplitRecord = {"valid": valid, "test": test, "seed": seed, "fingerprint": stream_fingerprint(stream)}
    return cast("Dataset", with_splits(data, valid, test, seed)), record


def _of_stream(source: Source, stream: Stream) -> StreamedDataset:
    return StreamedDataset(Path(source.data).stem, stream)


def open_data(source: Source) -> Dataset:
    """A data set or file as it is: what `load` returns, or one whose rows are read piece by piece (`is_streamed`)."""
    stream = streamed(source)
    return load(source) if stream is None else cast("Dataset", _of_stream(source, stream))


@dataclass(frozen=True)
class Opened:
    """Data for a model that was trained before: as a table, or as a stream."""

    data: Dataset
    """In the parts of the training, if the model was trained on these rows; a table as it was read."""

    parts: dict[str, Table]
    """The parts that were asked for, in the model's schema."""

    read: dict[str, Table]
    """The same as they were read; none of a stream."""


def open_parts(model: Model, source: Source, training: Mapping[str, Any], split: Part, unseen: Unseen) -> Opened:
    """The parts of DATASET|FILE to measure a model on, from memory or piece by piece. training: what the model's file
    says about its training."""
    data = open_data(source_for(model, source))
    if not is_streamed(data.train):
        divided = split_as_trained(data, training)
        read = parts_for(model, divided, split, training, source.data)
        return Opened(divided, aligned_parts(model, read, source.data, unseen), read)
    _check_names(model, data.columns, training, source.data)
    raw = cast("StreamedDataset", data)
    with about(source.data):
        check_known(model, raw.columns)
        aligned = align_rows(model, raw.train, unseen)
    streams = cast("Dataset", stream_as_trained(raw, cast("Stream", aligned), training))
    return Opened(streams, choose(streams, split), {})


def parts_of(data: Dataset) -> dict[str, Table]:
    """The existing parts, by name."""
    parts = {split: getattr(data, split) for split in SPLITS}
    return {split: part for split, part in parts.items() if part is not None}


def choose(data: Dataset, split: Part) -> dict[str, Table]:
    """The requested parts, by name; all rows of a single table are one part, named `test` or as `split` says."""
    parts = parts_of(data)
    if len(parts) == 1:
        return {"test" if split is Part.all else split.value: data.train}
    if split is Part.all:
        return parts
    if split.value not in parts:
        raise OptionError(f"--split {split.value}: {data.name} has only {', '.join(parts)}")
    return {split.value: parts[split.value]}


def rows_of(parts: Mapping[str, Sized]) -> dict[str, int | None]:
    """The number of rows of each part; None for a missing part."""
    return {split: len(parts[split]) if split in parts else None for split in SPLITS}


def common_schema(data: Dataset, types: Mapping[str, str], memory_budget: int | None = None) -> Schema:
    """The schema that covers the values of all parts: a rare category may be in `test` alone."""
    unknown = [name for name in types if data.columns is None]
    if unknown:
        raise OptionError(f"--types {unknown[0]}=...: {data.name} has no column names; give the file a header")
    return infer_schema(*parts_of(data).values(), types=cast("Types", types), memory_budget=memory_budget)


def _aligned(data: Dataset, source: Source) -> Dataset:
    """The parts in the schema of the training table, whose values are those of the model."""
    schema = common_schema(Dataset(data.name, data.train), source.types, source.memory_budget)
    parts = {split: _in_schema(split, part, schema, source.unseen) for split, part in parts_of(data).items()}
    return Dataset(data.name, parts["train"], parts.get("valid"), parts.get("test"))


def _in_schema(split: str, part: Table, schema: Schema, unseen: Unseen) -> Table:
    if split == "train":
        return align(part, schema, unseen="error")
    with about(f"{split} data"):
        return align(part, schema, unseen=unseen)


def _categorical(source: Source) -> frozenset[str]:
    return source.categorical | {name for name, kind in source.types.items() if kind == "categorical"}


def fingerprint(table: Table) -> int:
    """A checksum of the values of a table as it was read; the same file has the same one."""
    return zlib.crc32(np.ascontiguousarray(np.asarray(table, dtype=np.float64)).tobytes())


def recorded_parts(training: Mapping[str, Any], table: Table) -> dict[str, Table]:
    """The parts of a single table, as the model's file says that it was split; none if it was another table."""
    record = training.get("split")
    if not isinstance(record, dict) or record.get("fingerprint") != fingerprint(table):
        return {}
    if table.places is None:
        table = replace(table, places=Places("row", range(1, len(table) + 1)))
    parts = split_rows(table, record["valid"], record["test"], record["seed"])
    return {split: part for split, part in zip(SPLITS, parts, strict=True) if part is not None}


def _with_parts(data: Dataset, parts: dict[str, Table]) -> Dataset:
    train, valid, test = ({**parts_of(data), **parts}.get(split) for split in SPLITS)
    return Dataset(data.name, data.train if train is None else train, valid, test, data.columns)


def _load_file(path: Path, source: Source, columns: Names) -> Table:
    table = read_table(path, source.header, _categorical(source), **source.options())
    if isinstance(table, Dataset):
        raise DataError(f"{path}: expected one table, found the parts of a data set")
    with about(path):
        if columns is not None:
            table = in_order(table, Schema.of([Bernoulli()] * len(columns), columns), "error")
        return as_table(table, missing=source.missing)


def parts_for(model: Model, data: Dataset, split: Part, training: Mapping[str, Any], what: str) -> dict[str, Table]:
    """The parts to look at, as they were read; the training table is split in the same way as in training."""
    _check_names(model, data.columns, training, what)
    return choose(split_as_trained(data, training), split)


def split_as_trained(data: Dataset, training: Mapping[str, Any]) -> Dataset:
    """A single table that the model was trained on in the parts of its training; any other data as they are."""
    recorded = recorded_parts(training, data.train) if len(parts_of(data)) == 1 else {}
    if not recorded:
        return data
    return replace(data, train=recorded["train"], valid=recorded.get("valid"), test=recorded.get("test"))


def aligned_parts(model: Model, parts: Mapping[str, Table], what: str, unseen: Unseen) -> dict[str, Table]:
    """The parts in the model's schema. `what` is the start of messages."""
    with about(what):
        for part in parts.values():
            check_known(model, part.columns)
        return {name: model.align(part, unseen=unseen) for name, part in parts.items()}


def check_known(model: Model, columns: Names) -> None:
    """Refuse a column that is not in the model; the message says how to leave it out."""
    names = model.schema.names or ()
    known = {*names, *model.schema.ignored}
    unknown = next((name for name in columns or () if name not in known), None)
    if names and unknown is not None:
        hint = nearest(unknown, names)
        more = f"{' Or' if hint.endswith('?') else ';'} leave it out with --types {unknown}=drop"
        raise DataError(f"no column {unknown!r} in the training data{hint}{more}")


def warn_of_training_rows(training: Mapping[str, Any], data: Dataset, split: Part, what: str) -> None:
    """One warning if the file of a model, from before splits were recorded, names a table of this name and length."""
    if split is not Part.all or len(parts_of(data)) > 1 or isinstance(training.get("split"), dict):
        return
    rows = training.get("rows")
    total = sum(count or 0 for count in rows.values()) if isinstance(rows, dict) else None
    if training.get("dataset") == data.name and total == len(data.train):
        warn_user(f"{what} looks like the table that the model was trained on; test_ll includes the training rows")


def _check_names(model: Model, columns: Names, training: Mapping[str, Any], what: str) -> None:
    """Refuse columns with other names than those of the training data of a model that has no names."""
    if model.schema.names is None:
        names = training.get("columns")
        check_columns(what, columns, tuple(map(str, names)) if isinstance(names, list) else None)


def check_columns(what: object, found: Names, trained: Names) -> None:
    """Refuse columns with other names than those of the training data, where both have names."""
    if found is None or trained is None or found == trained:
        return
    pairs = zip(trained, found, strict=False)
    wrong = next((f"{b!r} where the training data has {a!r}" for a, b in pairs if a != b), "their number differs")
    raise DataError(f"{what}: the columns do not match: {wrong}")
