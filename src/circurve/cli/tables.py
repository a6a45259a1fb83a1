"""From DATASET|FILE and the options around it to a data set in parts, with missing values marked."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from circurve.data import Dataset, Table, as_table, check, load_data, read_table, split_rows
from circurve.data.catalogue import find_datasets
from circurve.data.convert import Names, about
from circurve.errors import CircurveWarning, DataError, OptionError
from circurve.inputs import Family
from circurve.structures import infer_families

__all__ = [
    "SPLITS",
    "HeldOut",
    "Part",
    "Shares",
    "Source",
    "check_columns",
    "choose",
    "common_families",
    "files_of",
    "load",
    "load_in_parts",
    "parts_of",
    "rows_of",
]

SPLITS = ("train", "valid", "test")
Part = StrEnum("Part", ["all", "train", "valid", "test"])
"""Which rows of a data set to look at."""

Shares: TypeAlias = tuple[float, float, float]
"""Of the rows of a table: for training, validation and test; they add up to 1."""

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
    data = load_data(source.data, source.data_dir, source.header)
    return _with_parts(data, {split: as_table(part, missing=source.missing) for split, part in parts_of(data).items()})


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CircurveWarning)  # it comes when the circuit is built
        families = common_families(data)
    with about(source.data):  # find values that no family takes while rows have the numbers that they have in the file
        check(data.train, families)
    _, valid, test = held.shares or DEFAULT_SHARES
    trains, valids, tests = split_rows(data.train, valid, test, seed)
    return replace(data, train=trains, valid=valids, test=tests)


def parts_of(data: Dataset) -> dict[str, Table]:
    """The parts that are there, by name."""
    parts = {split: getattr(data, split) for split in SPLITS}
    return {split: part for split, part in parts.items() if part is not None}


def choose(data: Dataset, split: Part) -> dict[str, Table]:
    """The parts that were asked for, by name; a single table is taken whole, as `test` or what `split` names."""
    parts = parts_of(data)
    if len(parts) == 1:
        return {"test" if split is Part.all else split.value: data.train}
    if split is Part.all:
        return parts
    if split.value not in parts:
        raise OptionError(f"--split {split.value}: {data.name} has only {', '.join(parts)}")
    return {split.value: parts[split.value]}


def rows_of(parts: dict[str, Table]) -> dict[str, int | None]:
    """The number of rows of each part, None for one that is not there."""
    return {split: len(parts[split]) if split in parts else None for split in SPLITS}


def common_families(data: Dataset) -> tuple[Family, ...]:
    """One family for each column that takes the values of all parts: a rare category may be in `test` alone."""
    return infer_families(*parts_of(data).values())


def _with_parts(data: Dataset, parts: dict[str, Table]) -> Dataset:
    train, valid, test = ({**parts_of(data), **parts}.get(split) for split in SPLITS)
    return Dataset(data.name, data.train if train is None else train, valid, test, data.columns)


def _load_file(path: Path, source: Source, columns: Names) -> Table:
    table = read_table(path, source.header)
    if isinstance(table, Dataset):
        raise DataError(f"{path}: expected one table, found the parts of a data set")
    check_columns(path, table.columns, columns)
    return as_table(table, missing=source.missing)


def check_columns(what: object, found: Names, trained: Names) -> None:
    """Refuse columns with other names than those of the training data, where both have names."""
    if found is None or trained is None or found == trained:
        return
    pairs = zip(trained, found, strict=False)
    wrong = next((f"{b!r} where the training data has {a!r}" for a, b in pairs if a != b), "another number of them")
    raise DataError(f"{what}: the columns do not match: {wrong}")
