"""Data sets by name: built in, in a folder laid out like the public DEBD repository, or downloaded on first use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from circurve.budget import Need, check_budget
from circurve.data.cache import fetch, is_cached
from circurve.data.dataset import SPLITS, Dataset, split_rows
from circurve.data.debd import COLLECTION, is_text_of
from circurve.data.file_need import check_files
from circurve.data.raw_files import read_bytes
from circurve.data.synthetic import SIZES, synthetic_dataset
from circurve.data.text import read_text
from circurve.errors import Argument, DataError, needs

__all__ = [
    "SOURCES",
    "DatasetInfo",
    "check_collected",
    "check_folder",
    "download_dataset",
    "find_datasets",
    "is_debd",
    "is_name",
    "list_datasets",
    "load_dataset",
    "read_folder",
]

BUILT_IN: dict[str, tuple[int, tuple[int, int | None, int]]] = {"digits": (64, (1257, 270, 270)), **SIZES}
DIGITS_THRESHOLD = 7
"""A pixel of `digits` (0..16) counts as ink if it is larger than this."""

BYTES_PER_VALUE = 24
"""What a value of a known data set takes while it is loaded: as the library has it, as a number, and in its part."""

TRAIN = ".train.data"
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


def load_dataset(name: str | Path, data_dir: str | Path | None = None, *, memory_budget: int | None = None) -> Dataset:
    """Load a data set by name, or from the folder that holds its files.

    Built in: `digits`, scikit-learn's 1797 images of 8 x 8 pixels, ink (a value above 7 of 16) or not, split 70/15/15;
    `triangle`, `moons`, `spiral` and `pinwheel`, points in the plane. The 28 sets of the public collection DEBD are
    downloaded on first use, checked, and kept in the user's cache folder. The environment variable CIRCURVE_CACHE
    names another cache folder, CIRCURVE_DEBD_URL another address with the same layout.

    Parameters
    ----------
    name : str or Path
        A name, such as "digits" or "nltcs", or a folder with NAME.train.data, NAME.valid.data and NAME.test.data.
    data_dir : str or Path, optional
        Look for names there, as `datasets/NAME/NAME.train.data`, `NAME/NAME.train.data` or `NAME.train.data`, and
        download nothing; the folder is never written to.
    memory_budget : int, optional
        Memory limit for reading, in bytes; checked before memory is allocated.

    Returns
    -------
    Dataset
        With `.train`, `.valid` and `.test`.

    Raises
    ------
    DataError
        If there is no data set of this name; the message suggests the nearest.
    DownloadError
        If a set cannot be downloaded.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.load_dataset("digits")
    <Dataset digits: 64 variables, rows: 1257 train, 270 valid, 270 test>
    >>> cc.load_dataset("moons").train.shape
    (2000, 2)
    """
    check_budget(memory_budget)
    if not isinstance(name, str) or Path(name).name != name:
        check_files(f"loading {name}", memory_budget, *sorted(Path(name).expanduser().glob("*.data")))
        return read_folder(name)
    found = {} if data_dir is None else find_datasets(data_dir)
    if name in found:
        check_files(f"loading {name}", memory_budget, *(found[name] / f"{name}.{split}.data" for split in SPLITS))
        return _read_dataset(name, found[name])
    _check_known_size(name, memory_budget)
    if name == "digits":
        return _load_digits()
    if name in SIZES:
        return synthetic_dataset(name)
    if data_dir is not None:
        there = ", ".join(sorted(found)) or "no NAME.train.data file"
        downloaded = ("without ", Argument("data_dir"), " it is downloaded")
        other = downloaded if name in COLLECTION else (f"built in: {', '.join(BUILT_IN)}",)
        guess = _guess(name, [*BUILT_IN, *sorted(found)])
        raise DataError(f"no data set '{name}' in {check_folder(data_dir)}{guess}; found there: {there}; ", *other)
    _check_known(name, [*BUILT_IN, *COLLECTION])
    parts, _ = fetch(COLLECTION[name])
    return Dataset(name, parts["train"], parts["valid"], parts["test"])


def _check_known_size(name: str, memory_budget: int | None) -> None:
    """Refuse a set that is built in or in the collection, by its known size."""
    sizes = {**BUILT_IN, **{other: (entry.variables, entry.rows) for other, entry in COLLECTION.items()}}
    if memory_budget is not None and name in sizes:
        variables, rows = sizes[name]
        parts = {"rows": BYTES_PER_VALUE * variables * sum(count or 0 for count in rows)}
        Need(f"loading {name}", parts, "choose a smaller data set").left(memory_budget)


def download_dataset(name: str) -> bool:
    """See that a set of DEBD is whole in the cache; whether anything had to be downloaded for that."""
    check_collected([name])
    return bool(fetch(COLLECTION[name])[1])


def check_collected(names: Iterable[str]) -> None:
    """Refuse names that are not in DEBD."""
    for name in names:
        _check_known(name, list(COLLECTION))


def is_debd(data: Dataset) -> bool:
    """Whether all parts hold the rows of DEBD's files of this name, in their order, wherever they were read from."""
    entry, parts = COLLECTION.get(data.name), (data.train, data.valid, data.test)
    if entry is None:
        return False
    for part, count, blob in zip(parts, entry.rows, entry.blobs, strict=True):
        if part is None or part.shape != (count, entry.variables):
            return False
        rows = np.asarray(part)
        if not np.isin(rows, (0, 1)).all() or not is_text_of(rows.astype(np.uint8), blob):
            return False
    return True


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
            source = ELSEWHERE if data_dir is not None else CACHED if is_cached(name) else REMOTE
            entry = COLLECTION[name]
            listed.append(DatasetInfo(name, entry.variables, entry.rows, source, source == CACHED))
    return listed


def is_name(name: str, data_dir: str | Path | None) -> bool:
    """Whether this is a name for `load_dataset`: built in, or of a set in `data_dir`."""
    return name in {**BUILT_IN, **COLLECTION} or (data_dir is not None and name in find_datasets(data_dir))


def _load_digits() -> Dataset:
    with needs("sklearn", "the data set digits"):
        from sklearn.datasets import load_digits  # noqa: PLC0415 - slow to import, and only needed here

    source = load_digits()
    pixels = (source.data > DIGITS_THRESHOLD).astype(np.uint8)
    train, valid, test = split_rows(pixels, valid=0.15, test=0.15, seed=0)
    return Dataset("digits", train, valid, test, columns=tuple(str(name) for name in source.feature_names))


def _describe_found(name: str, folder: Path) -> DatasetInfo:
    """Columns and lines are counted, numbers are not parsed."""
    try:
        raws = [read_bytes(folder / f"{name}.{split}.data") for split in SPLITS]
    except DataError as error:
        return DatasetInfo(name, None, None, str(error), False)
    train, valid, test = (raw.count(b"\n") + (not raw.endswith(b"\n")) for raw in raws)
    variables = raws[0].partition(b"\n")[0].count(b",") + 1
    return DatasetInfo(name, variables, (train, valid, test), str(folder), True)


def _check_known(name: str, known: list[str]) -> None:
    if name not in known:
        raise DataError(f"unknown data set '{name}'{_guess(name, known)}; choose one of {', '.join(known)}")


def _guess(name: str, known: list[str]) -> str:
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def check_folder(path: str | Path, argument: str | None = "data_dir") -> Path:
    """The folder, if it is one; DataError if not. argument: the one that names it."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        named = () if argument is None else (Argument(argument), " ")
        raise DataError(*named, f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}")
    return folder


def find_datasets(data_dir: str | Path) -> dict[str, Path]:
    """The data sets in a folder, by name, each with the folder that holds its files.

    Looked for are datasets/NAME/NAME.train.data, NAME/NAME.train.data and NAME.train.data.
    """
    folder = Path(data_dir).expanduser()
    found: dict[str, Path] = {}
    for pattern in (f"datasets/*/*{TRAIN}", f"*/*{TRAIN}", f"*{TRAIN}"):
        for path in sorted(folder.glob(pattern)):
            name = path.name.removesuffix(TRAIN)
            if path.parent == folder or path.parent.name == name:
                found.setdefault(name, path.parent)
    return found


def _read_dataset(name: str, folder: Path) -> Dataset:
    train, valid, test = (read_text(folder / f"{name}.{split}.data", header=False) for split in SPLITS)
    return Dataset(name, train, valid, test)


def read_folder(path: str | Path) -> Dataset:
    """The one set whose files are in this folder, whatever its name."""
    folder = check_folder(path, None)
    names = sorted(file.name.removesuffix(TRAIN) for file in folder.glob(f"*{TRAIN}"))
    if len(names) == 1:
        return _read_dataset(names[0], folder)
    if not (below := ", ".join(sorted(find_datasets(folder)))):
        raise DataError(f"{folder}: the folder contains no data set: no file NAME{TRAIN}")
    named = f", with one of the names {below}"
    raise DataError(f"{folder}: is a folder of data sets; pass it as ", Argument("data_dir"), named)
