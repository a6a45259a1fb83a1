"""Data sets by name: one that is embedded, and those in a folder laid out like the public DEBD repository."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from circurve.data.convert import Array, Names
from circurve.data.text import read_bytes, read_text
from circurve.errors import DataError, OptionError

__all__ = ["DEBD", "EMBEDDED", "Dataset", "DatasetInfo", "list_datasets", "load_dataset", "split_rows"]

SPLITS = ("train", "valid", "test")
EMBEDDED = {"digits": (64, (1257, 270, 270))}
DIGITS_THRESHOLD = 7
"""A pixel of `digits` (0..16) counts as ink if it is larger than this."""

DEBD = {
    "accidents": (111, (12758, 1700, 2551)),
    "ad": (1556, (2461, 327, 491)),
    "baudio": (100, (15000, 2000, 3000)),
    "bbc": (1058, (1670, 225, 330)),
    "bnetflix": (100, (15000, 2000, 3000)),
    "book": (500, (8700, 1159, 1739)),
    "c20ng": (910, (11293, 3764, 3764)),
    "cr52": (889, (6532, 1028, 1540)),
    "cwebkb": (839, (2803, 558, 838)),
    "dna": (180, (1600, 400, 1186)),
    "jester": (100, (9000, 1000, 4116)),
    "kdd": (64, (180092, 19907, 34955)),
    "kosarek": (190, (33375, 4450, 6675)),
    "msnbc": (17, (291326, 38843, 58265)),
    "msweb": (294, (29441, 3270, 5000)),
    "nltcs": (16, (16181, 2157, 3236)),
    "plants": (69, (17412, 2321, 3482)),
    "pumsb_star": (163, (12262, 1635, 2452)),
    "tmovie": (500, (4524, 1002, 591)),
    "tretail": (135, (22041, 2938, 4408)),
}
"""The 20 data sets that papers report: variables, and rows for training, validation and test, as published.

Only `list_datasets` shows these, for sets whose files are not at hand; what is there is measured.
"""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows for training and, where there are any, for validation and test; all with the same columns."""

    name: str
    train: Array
    valid: Array | None = None
    test: Array | None = None
    columns: Names = None

    def __post_init__(self) -> None:
        width = self.train.shape[1]
        for split, part in (("valid", self.valid), ("test", self.test)):
            if part is not None and part.shape[1] != width:
                raise DataError(f"{self.name}: train has {width} columns, {split} has {part.shape[1]}")
        if self.columns is not None and len(self.columns) != width:
            raise DataError(f"{self.name}: train has {width} columns, but there are {len(self.columns)} names")

    def __repr__(self) -> str:
        parts = [(split, getattr(self, split)) for split in SPLITS]
        sizes = ", ".join(f"{len(part)} {split}" for split, part in parts if part is not None)
        return f"<Dataset {self.name}: {self.train.shape[1]} variables, rows: {sizes}>"


@dataclass(frozen=True)
class DatasetInfo:
    """One line of `list_datasets`."""

    name: str
    variables: int | None
    rows: tuple[int, int, int] | None
    """Training, validation and test; None, like `variables`, where the files cannot be read."""

    source: str
    """`embedded`, the folder it was found in, `needs data_dir`, or what is wrong with its files."""

    available: bool
    """Whether `load_dataset` finds it."""


def load_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a data set by name.

    `digits` is embedded: scikit-learn's 1797 images of 8 x 8 pixels, ink (a value above 7 of 16) or not, split
    70/15/15. Any other name is looked for in `data_dir` as `datasets/NAME/NAME.{train,valid,test}.data`,
    `NAME/NAME.*.data` or `NAME.*.data`.
    """
    if name in EMBEDDED:
        return _load_digits()
    if data_dir is None:
        raise _unknown(name, None, {})
    folder = _folder(data_dir)
    found = _find(folder)
    if name not in found:
        raise _unknown(name, folder, found)
    train, valid, test = (read_text(found[name] / f"{name}.{split}.data", header=False).values for split in SPLITS)
    return Dataset(name, train, valid, test)


def list_datasets(data_dir: str | Path | None = None) -> list[DatasetInfo]:
    """All known data sets by name: embedded, in `data_dir`, and those of DEBD that would need one."""
    found = {} if data_dir is None else _find(_folder(data_dir))
    listed = [DatasetInfo(name, *sizes, "embedded", True) for name, sizes in EMBEDDED.items()]
    for name in sorted({*DEBD, *found}):
        if name in found:
            listed.append(_measure(name, found[name]))
        else:
            listed.append(DatasetInfo(name, *DEBD[name], "needs data_dir", False))
    return listed


def split_rows(
    values: Array, valid: float = 0.1, test: float = 0.1, seed: int = 0
) -> tuple[Array, Array | None, Array | None]:
    """Training, validation and test rows, drawn at random; rows keep their order, and a share of 0 gives None.

    The same seed gives the same split with every version of numpy: it sorts raw PCG64 output, whose stream is fixed.
    """
    for option, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1:
            raise OptionError(f"{option} must be a share of the rows from 0 to below 1, not {share!r}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed must be a whole number >= 0, not {seed!r}")
    values = np.asanyarray(values)
    count = len(values)
    held, tested = (max(1, round(count * share)) if share else 0 for share in (valid, test))
    if held + tested >= count:
        raise DataError(f"{count} rows are too few for shares of {valid} for validation and {test} for test")
    order = np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")
    parts = np.split(order, [tested, tested + held])
    tests, valids, trains = (values[np.sort(part)] for part in parts)
    return trains, valids if held else None, tests if tested else None


def _load_digits() -> Dataset:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - slow to import, and only needed here

    source = load_digits()
    pixels = (source.data > DIGITS_THRESHOLD).astype(np.uint8)
    train, valid, test = split_rows(pixels, valid=0.15, test=0.15, seed=0)
    return Dataset("digits", train, valid, test, columns=tuple(str(name) for name in source.feature_names))


def _folder(data_dir: str | Path) -> Path:
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "no such folder"
        raise DataError(f"data_dir {folder}: {problem}")
    return folder


def _find(folder: Path) -> dict[str, Path]:
    """The data sets in a folder, by name, each with the folder that holds its files."""
    found: dict[str, Path] = {}
    for pattern in ("datasets/*/*.train.data", "*/*.train.data", "*.train.data"):
        for path in sorted(folder.glob(pattern)):
            name = path.name.removesuffix(".train.data")
            if path.parent == folder or path.parent.name == name:
                found.setdefault(name, path.parent)
    return found


def _measure(name: str, folder: Path) -> DatasetInfo:
    """Count columns and lines without parsing the numbers."""
    try:
        raws = [read_bytes(folder / f"{name}.{split}.data") for split in SPLITS]
    except DataError as error:
        return DatasetInfo(name, None, None, str(error), False)
    variables = raws[0].partition(b"\n")[0].count(b",") + 1
    train, valid, test = (raw.count(b"\n") + (not raw.endswith(b"\n")) for raw in raws)
    return DatasetInfo(name, variables, (train, valid, test), str(folder), True)


def _unknown(name: str, folder: Path | None, found: dict[str, Path]) -> DataError:
    if folder is None and name in DEBD:
        return DataError(
            f"'{name}' is not embedded: give a folder in the layout of the public DEBD repository "
            f"(datasets/{name}/{name}.train.data, ...) with data_dir or --data-dir"
        )
    known = [*EMBEDDED, *(DEBD if folder is None else sorted(found))]
    close = get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    guess = f" (did you mean {' or '.join(close)}?)" if close else ""
    if folder is None:
        return DataError(f"unknown data set '{name}'{guess}; known are {', '.join(known)}")
    there = ", ".join(sorted(found)) or "no NAME.train.data file"
    return DataError(f"no data set '{name}' in {folder}{guess}; found there: {there}; embedded: {', '.join(EMBEDDED)}")
