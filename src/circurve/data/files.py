"""Data files: text, Parquet, Arrow, .npy and .npz; and the one function that takes a name, a file or a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from circurve.bounds import TRUST_HINT, allowed_bytes, cut
from circurve.budget import Need, check_budget
from circurve.data.array_files import read_npy, read_npz
from circurve.data.catalogue import is_name, load_dataset
from circurve.data.convert import Array, about
from circurve.data.dataset import SPLITS, Dataset
from circurve.data.entry import as_table
from circurve.data.file_need import check_files
from circurve.data.frame_files import read_frame_file
from circurve.data.open_stream import open_stream
from circurve.data.raw_files import read_bytes, unpacked, unreadable
from circurve.data.table import Table
from circurve.data.text import parse_text, read_text
from circurve.errors import CircurveError, DataError

__all__ = ["load_data", "read_table"]

TEXT = (".csv", ".tsv", ".txt", ".data")
FRAMES = (".parquet", ".arrow", ".feather")
ARRAYS = (".npy", ".npz")
STANDARD_INPUT = "-"
PIPED_COPIES = 12
"""How many times its size a text from standard input may take while it becomes a table."""

MAX_MESSAGE = 600
"""Characters of each part of a message about a file."""


def read_table(
    path: str | Path,
    header: bool | None = None,
    categorical: Collection[str] = (),
    *,
    trust: bool = False,
    memory_budget: int | None = None,
) -> Table | Dataset:
    """Read a data file; an .npz with an array `train` gives a Dataset, everything else one table.

    .csv, .tsv and .txt are text with comma, semicolon, tab or space; .data is the same, by default without a header.
    Text may be packed (.csv.gz), or come from standard input (-). .parquet, .arrow and .feather need pyarrow or polars.
    categorical: columns of a text file that hold categories, even if most of them look like numbers.
    A file that needs more than ten times its size in memory (and more than 256 MB) is refused before that memory is
    taken; trust=True takes it. memory_budget: bytes that reading may take, checked before they are.
    """
    check_budget(memory_budget)
    if str(path) != STANDARD_INPUT:
        check_files(f"reading {path}", memory_budget, Path(path).expanduser())
    try:
        return _read_any(path, header, categorical, trust, memory_budget)
    except DataError as error:  # a file may hold names and values of any length
        short = (part if len(str(part)) <= MAX_MESSAGE else cut(str(part), MAX_MESSAGE) for part in error.parts)
        raise DataError(*short) from None


def _read_any(
    path: str | Path, header: bool | None, categorical: Collection[str], trust: bool, memory_budget: int | None
) -> Table | Dataset:
    if str(path) == STANDARD_INPUT:
        return _read_standard_input(header, categorical, trust, memory_budget)
    path = Path(path).expanduser()
    suffix = path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if path.is_dir():
        raise DataError(f"{path}: is a directory, not a file")
    if suffix in ARRAYS and path.suffix.lower() != ".gz":
        return _read_arrays(path, trust)
    if suffix in FRAMES:
        raw = read_bytes(path, trust)
        try:
            frame, reader = read_frame_file(path, raw, trust)
        except DataError as error:
            raise _with_stream(error, path) from None
        with about(path):
            return replace(as_table(frame), source=reader)
    if suffix not in TEXT:
        known = ", ".join((*TEXT, *FRAMES, *ARRAYS))
        raise DataError(f"{path}: unknown kind of file '{path.suffix.lower()}'; use {known}, or .gz of a text file")
    return read_text(path, False if header is None and suffix == ".data" else header, categorical, trust)


def _with_stream(error: DataError, path: Path) -> DataError:
    """The error of a file that takes too much memory as a table, with the way to read it in pieces, if there is one."""
    if TRUST_HINT[-1] not in error.parts:
        return error
    try:
        open_stream(path)
    except CircurveError:
        return error
    at = error.parts.index(TRUST_HINT[0])
    return DataError(*error.parts[:at], f"; open_stream({str(path)!r}) reads it in pieces", *error.parts[at:])


def _read_standard_input(
    header: bool | None, categorical: Collection[str], trust: bool, memory_budget: int | None
) -> Table:
    """Text, packed text, or a Parquet or Arrow file, by its first bytes; with a budget, no more than a share of it."""
    path = Path("standard input")
    raw = sys.stdin.buffer.read(-1 if memory_budget is None else memory_budget // PIPED_COPIES + 1)
    Need(f"reading {path}", {"text": PIPED_COPIES * len(raw)}, "read a file instead").left(memory_budget)
    if not raw:
        raise DataError(f"{path}: there is nothing to read")
    size = len(raw)
    if raw.startswith(b"\x1f\x8b"):
        raw = unpacked(raw, path, trust)
    if raw.startswith((b"PAR1", b"ARROW1")):
        frame, reader = read_frame_file(path, raw, trust)
        return replace(as_table(frame), source=reader)
    return parse_text(raw, path, header, categorical, None if trust else allowed_bytes(size), size)


def load_data(
    name_or_path: str | Path,
    data_dir: str | Path | None = None,
    header: bool | None = None,
    categorical: Collection[str] = (),
    *,
    trust: bool = False,
    memory_budget: int | None = None,
) -> Dataset:
    r"""Load a data set by name, from its folder (as `load_dataset` does), or a data file.

    Parameters
    ----------
    name_or_path : str or Path
        A name, a folder, or a file: .csv, .tsv, .txt, .data (also .gz of them), .parquet, .arrow, .feather, .npy, .npz.
    data_dir : str or Path, optional
        The folder of the data sets.
    header : bool, optional
        Whether the first line of a text file has names; None finds out.
    categorical : collection of str, default ()
        Columns whose numbers are names of categories.
    trust : bool, default False
        Also read a compressed array file that unpacks to far more than its own size.
    memory_budget : int, optional
        Memory limit for reading, in bytes; checked before memory is allocated.

    Returns
    -------
    Dataset
        A file that holds one table gives a Dataset with `train` only.

    Raises
    ------
    FileAccessError, FileFormatError, DataError
        If the file cannot be opened, is damaged, or does not hold a table.

    Examples
    --------
    >>> import os, tempfile
    >>> import circurve as cc
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "flowers.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("length,species\n1.4,setosa\n4.7,versicolor\n")
    >>> cc.load_data(path).train.columns
    ('length', 'species')
    """
    if not _is_path(name_or_path, data_dir):
        return load_dataset(str(name_or_path), data_dir, memory_budget=memory_budget)
    if Path(name_or_path).expanduser().is_dir():
        return load_dataset(Path(name_or_path), memory_budget=memory_budget)
    table = read_table(name_or_path, header, categorical, trust=trust, memory_budget=memory_budget)
    if isinstance(table, Dataset):
        return table
    piped = str(name_or_path) == STANDARD_INPUT
    return Dataset("standard input" if piped else Path(Path(name_or_path).name.removesuffix(".gz")).stem, table)


def _is_path(name_or_path: str | Path, data_dir: str | Path | None) -> bool:
    if isinstance(name_or_path, Path) or name_or_path == STANDARD_INPUT:
        return True
    if not name_or_path or is_name(name_or_path, data_dir):
        return False
    path = Path(name_or_path)
    in_folder = path.name != name_or_path
    return bool(path.suffix) or in_folder or path.is_file() or (path.is_dir() and data_dir is None)


def _read_arrays(path: Path, trust: bool) -> Table | Dataset:
    arrays = _load_arrays(path, trust)
    if "train" in arrays and set(arrays) <= set(SPLITS):
        parts = {}
        for split, array in arrays.items():
            with about(f"{path}: array '{split}'"):
                parts[split] = as_table(array)
        with about(path):
            return Dataset(path.stem, parts["train"], parts.get("valid"), parts.get("test"))
    if len(arrays) == 1:
        with about(path):
            return as_table(next(iter(arrays.values())))
    names = ", ".join(arrays) or "nothing"
    raise DataError(f"{path}: expected the arrays train, valid, test, or a single array, found {names}")


def _load_arrays(path: Path, trust: bool) -> dict[str, Array]:
    """The arrays of an .npz by name; the one of an .npy under the empty name. Pickled objects are refused."""
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise DataError(f"{path}: the file is empty")
            file.seek(0)
            try:
                size = os.fstat(file.fileno()).st_size
                if path.suffix.lower() == ".npy":
                    return {"": read_npy(file, size, trust)}
                return read_npz(file, size, trust)
            except DataError as error:
                raise DataError(f"{path}: ", *error.parts) from None
            except Exception as error:  # numpy and zipfile raise many kinds of errors for damaged files
                raise DataError(f"{path}: not a {path.suffix} file of numbers, or damaged: {cut(str(error))}") from None
    except OSError as error:
        raise unreadable(path, error) from None
