"""Data sets in folders laid out like the public DEBD repository: NAME.train.data, NAME.valid.data, NAME.test.data."""

from __future__ import annotations

from pathlib import Path

from circurve.data.dataset import SPLITS, Dataset
from circurve.data.text import read_bytes, read_text
from circurve.errors import DataError

__all__ = ["check_folder", "find_datasets", "measure", "read_dataset", "read_folder"]

TRAIN = ".train.data"


def check_folder(data_dir: str | Path) -> Path:
    """The folder, if it is one; DataError if not."""
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "no such folder"
        raise DataError(f"data_dir {folder}: {problem}")
    return folder


def find_datasets(folder: Path) -> dict[str, Path]:
    """The data sets in a folder, by name, each with the folder that holds its files.

    Looked for are datasets/NAME/NAME.train.data, NAME/NAME.train.data and NAME.train.data.
    """
    found: dict[str, Path] = {}
    for pattern in (f"datasets/*/*{TRAIN}", f"*/*{TRAIN}", f"*{TRAIN}"):
        for path in sorted(folder.glob(pattern)):
            name = path.name.removesuffix(TRAIN)
            if path.parent == folder or path.parent.name == name:
                found.setdefault(name, path.parent)
    return found


def read_dataset(name: str, folder: Path) -> Dataset:
    """The set of that name whose files lie in the folder."""
    train, valid, test = (read_text(folder / f"{name}.{split}.data", header=False) for split in SPLITS)
    return Dataset(name, train, valid, test)


def read_folder(path: str | Path) -> Dataset:
    """The one set whose files lie in this very folder, whatever its name."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise DataError(f"{folder}: {'is not a folder' if folder.exists() else 'no such folder'}")
    names = sorted(file.name.removesuffix(TRAIN) for file in folder.glob(f"*{TRAIN}"))
    if len(names) == 1:
        return read_dataset(names[0], folder)
    below = sorted(find_datasets(folder))
    if not below:
        raise DataError(f"{folder}: is a folder without a data set; there is no NAME{TRAIN} in it")
    raise DataError(
        f"{folder}: is a folder of data sets; give it as data_dir, with one of the names {', '.join(below)}"
    )


def measure(name: str, folder: Path) -> tuple[int, tuple[int, int, int]]:
    """Variables, and rows of each split: columns and lines are counted, numbers are not parsed."""
    raws = [read_bytes(folder / f"{name}.{split}.data") for split in SPLITS]
    train, valid, test = (raw.count(b"\n") + (not raw.endswith(b"\n")) for raw in raws)
    return raws[0].partition(b"\n")[0].count(b",") + 1, (train, valid, test)
