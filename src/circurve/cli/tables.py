"""From DATASET|FILE and the options around it to a data set in parts, with NaN for what is missing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from circurve.cli.options import Shares
from circurve.data import Dataset, load_data, read_table, split_rows
from circurve.data.convert import Array, Names, column_label
from circurve.errors import CircurveWarning, DataError, OptionError
from circurve.inputs import Family
from circurve.structures.columns import Columns, families_of, scan_columns

__all__ = ["SPLITS", "HeldOut", "Source", "common_families", "load", "load_in_parts", "parts_of", "rows_of", "scan"]

SPLITS = ("train", "valid", "test")
DEFAULT_SHARES: Shares = (0.8, 0.1, 0.1)


@dataclass(frozen=True)
class Source:
    """Where data come from and how they are read."""

    data: str
    data_dir: Path | None = None
    header: bool | None = None
    missing: int | None = None


@dataclass(frozen=True)
class HeldOut:
    """Where validation and test rows come from: files, shares of the table, or nowhere."""

    valid: Path | None = None
    test: Path | None = None
    shares: Shares | None = None
    no_split: bool = False

    def __post_init__(self) -> None:
        if self.shares is not None and self.no_split:
            raise OptionError("--split and --no-split exclude each other")
        if self.shares is not None and (self.valid or self.test):
            raise OptionError("--split does not go with --valid or --test: hold rows out, or name files, not both")


def load(source: Source) -> Dataset:
    """A data set or file as it is; a file with one table has `train` only."""
    data = load_data(source.data, source.data_dir, source.header)
    if source.missing is None:
        return data
    return _with_parts(data, {split: _blank(part, source.missing) for split, part in parts_of(data).items()})


def load_in_parts(source: Source, held: HeldOut, seed: int) -> Dataset:
    """A data set for training: its own parts, those in files, or a single table split at random by the seed."""
    data = load(source)
    if held.valid or held.test:
        files = {"valid": held.valid, "test": held.test}
        return _with_parts(data, {s: _load_file(path, source, data.columns) for s, path in files.items() if path})
    in_parts = len(parts_of(data)) > 1
    if in_parts and (held.shares is not None or held.no_split):
        raise OptionError(f"--split and --no-split are for a file with one table; {data.name} comes in parts")
    if in_parts or held.no_split:
        return data
    _, valid, test = held.shares or DEFAULT_SHARES
    trains, valids, tests = split_rows(data.train, valid, test, seed)
    return replace(data, train=trains, valid=valids, test=tests)


def parts_of(data: Dataset) -> dict[str, Array]:
    """The parts that are there, by name."""
    parts = {split: getattr(data, split) for split in SPLITS}
    return {split: part for split, part in parts.items() if part is not None}


def rows_of(parts: dict[str, Array]) -> dict[str, int | None]:
    """The number of rows of each part, None for one that is not there."""
    return {split: len(parts[split]) if split in parts else None for split in SPLITS}


def scan(parts: Sequence[Array]) -> Columns:
    """Range, wholeness and missing values of each column over all parts."""
    facts = [scan_columns(part) for part in parts]
    return Columns(
        low=np.fmin.reduce([f.low for f in facts]),
        high=np.fmax.reduce([f.high for f in facts]),
        whole=np.logical_and.reduce([f.whole for f in facts]),
        missing=np.logical_or.reduce([f.missing for f in facts]),
    )


def common_families(data: Dataset) -> tuple[Family, ...]:
    """One family for each column that takes the values of all parts: a rare category may be in `test` alone."""
    columns = scan(list(parts_of(data).values()))
    suspects = np.flatnonzero(columns.whole & (columns.low == -1) & (columns.high < 256))
    if suspects.size:
        first = column_label(data.columns, int(suspects[0]))
        more = f" and {suspects.size - 1} more" if suspects.size > 1 else ""
        warnings.warn(
            f"{first}{more}: whole numbers from -1 on, taken as Gaussian; if -1 marks missing values, say missing=-1",
            CircurveWarning,
            stacklevel=2,
        )
    return families_of(columns)


def _with_parts(data: Dataset, parts: dict[str, Array]) -> Dataset:
    train, valid, test = ({**parts_of(data), **parts}.get(split) for split in SPLITS)
    return Dataset(data.name, data.train if train is None else train, valid, test, data.columns)


def _blank(values: Array, missing: int) -> Array:
    """NaN where the values equal `missing`; a type that holds both only if there is any."""
    found = values == missing
    if not found.any():
        return values
    blanked: Array = values.astype(np.promote_types(values.dtype, np.float32))
    blanked[found] = np.nan
    return blanked


def _load_file(path: Path, source: Source, columns: Names) -> Array:
    table = read_table(path, source.header)
    if isinstance(table, Dataset):
        raise DataError(f"{path}: expected one table, found the parts of a data set")
    if columns is not None and table.columns is not None and columns != table.columns:
        pairs = zip(columns, table.columns, strict=False)
        wrong = next((f"{b!r} where the training data has {a!r}" for a, b in pairs if a != b), "another number of them")
        raise DataError(f"{path}: the columns do not match: {wrong}")
    return table.values if source.missing is None else _blank(table.values, source.missing)
