"""Data sets by name: built in, in a folder of the user's, or downloaded on first use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from circurve.data.cache import is_cached
from circurve.data.dataset import Dataset
from circurve.data.debd import COLLECTION
from circurve.data.download import fetch
from circurve.data.folders import check_folder, find_datasets, measure, read_dataset, read_folder
from circurve.data.rows import split_rows
from circurve.data.synthetic import SIZES, synthetic_dataset
from circurve.errors import DataError

__all__ = [
    "BUILT_IN",
    "SOURCES",
    "DatasetInfo",
    "check_collected",
    "download_dataset",
    "is_name",
    "list_datasets",
    "load_dataset",
]

BUILT_IN: dict[str, tuple[int, tuple[int, int | None, int]]] = {"digits": (64, (1257, 270, 270)), **SIZES}
DIGITS_THRESHOLD = 7
"""A pixel of `digits` (0..16) counts as ink if it is larger than this."""

EMBEDDED, SYNTHETIC, CACHED, REMOTE, ELSEWHERE = SOURCES = (
    "embedded",
    "synthetic",
    "cached",
    "download on first use",
    "not in data_dir",
)


@dataclass(frozen=True)
class DatasetInfo:
    """One line of `list_datasets`."""

    name: str
    variables: int | None
    rows: tuple[int, int | None, int] | None
    """Training, validation and test; None, like `variables`, where the files cannot be read."""

    source: str
    """One of `SOURCES`, the folder it was found in, or what is wrong with its files."""

    available: bool
    """Whether it is at hand: `load_dataset` needs no download."""


def load_dataset(name: str | Path, data_dir: str | Path | None = None) -> Dataset:
    """Load a data set by name, or from the folder that holds its files.

    Built in: `digits`, scikit-learn's 1797 images of 8 x 8 pixels, ink (a value above 7 of 16) or not, split 70/15/15;
    `triangle`, `moons`, `spiral` and `pinwheel`, points in the plane (see `circurve.data.synthetic`).

    With `data_dir`, names are looked for there, as `datasets/NAME/NAME.{train,valid,test}.data`, `NAME/NAME.*.data` or
    `NAME.*.data`; that folder is never written to.

    Without it, the 28 sets of the public collection DEBD (`list_datasets` names them) are downloaded on first use,
    checked, and kept in the user's cache folder. The environment variable CIRCURVE_CACHE names another cache folder,
    CIRCURVE_DEBD_URL another place to download from, laid out like the collection.
    """
    if not isinstance(name, str) or os.sep in name:
        return read_folder(name)
    found = {} if data_dir is None else find_datasets(Path(data_dir).expanduser())
    if name in found:
        return read_dataset(name, found[name])
    if name == "digits":
        return _load_digits()
    if name in SIZES:
        return synthetic_dataset(name)
    if data_dir is not None:
        raise _not_there(name, check_folder(data_dir), sorted(found))
    if name not in COLLECTION:
        raise _unknown(name, [*BUILT_IN, *COLLECTION])
    parts, _ = fetch(COLLECTION[name])
    return Dataset(name, parts["train"], parts["valid"], parts["test"])


def download_dataset(name: str) -> bool:
    """See that a set of DEBD is whole in the cache; whether anything had to be downloaded for that."""
    check_collected([name])
    _, downloaded = fetch(COLLECTION[name])
    return bool(downloaded)


def check_collected(names: Iterable[str]) -> None:
    """Refuse names that are not in DEBD."""
    for name in names:
        if name not in COLLECTION:
            raise _unknown(name, list(COLLECTION))


def list_datasets(data_dir: str | Path | None = None) -> list[DatasetInfo]:
    """All known data sets by name: built in, in `data_dir`, and those of DEBD, in the cache or to be downloaded."""
    found = {} if data_dir is None else find_datasets(check_folder(data_dir))
    listed = []
    for name in (*BUILT_IN, *sorted({*COLLECTION, *found} - set(BUILT_IN))):
        if name in found:
            listed.append(_describe_found(name, found[name]))
        elif name in BUILT_IN:
            listed.append(DatasetInfo(name, *BUILT_IN[name], SYNTHETIC if name in SIZES else EMBEDDED, True))
        else:
            entry, source = (
                COLLECTION[name],
                ELSEWHERE if data_dir is not None else CACHED if is_cached(name) else REMOTE,
            )
            listed.append(DatasetInfo(name, entry.variables, entry.rows, source, source == CACHED))
    return listed


def is_name(name: str, data_dir: str | Path | None) -> bool:
    """Whether `load_dataset` knows this name: its own, or one of a set in `data_dir`."""
    if name in BUILT_IN or name in COLLECTION:
        return True
    return data_dir is not None and name in find_datasets(Path(data_dir).expanduser())


def _load_digits() -> Dataset:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow to import, and only needed here

    source = load_digits()
    pixels = (source.data > DIGITS_THRESHOLD).astype(np.uint8)
    train, valid, test = split_rows(pixels, valid=0.15, test=0.15, seed=0)
    return Dataset("digits", train, valid, test, columns=tuple(str(name) for name in source.feature_names))


def _describe_found(name: str, folder: Path) -> DatasetInfo:
    try:
        variables, rows = measure(name, folder)
    except DataError as error:
        return DatasetInfo(name, None, None, str(error), False)
    return DatasetInfo(name, variables, rows, str(folder), True)


def _not_there(name: str, folder: Path, found: list[str]) -> DataError:
    there = ", ".join(found) or "no NAME.train.data file"
    guess = _guess(name, [*BUILT_IN, *found])
    other = "; without data_dir it is downloaded" if name in COLLECTION else f"; built in: {', '.join(BUILT_IN)}"
    return DataError(f"no data set '{name}' in {folder}{guess}; found there: {there}{other}")


def _unknown(name: str, known: list[str]) -> DataError:
    return DataError(f"unknown data set '{name}'{_guess(name, known)}; known are {', '.join(known)}")


def _guess(name: str, known: list[str]) -> str:
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
