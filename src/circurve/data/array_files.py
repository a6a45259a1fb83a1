"""Arrays in .npy and .npz files. Headers are read first: the size that an array declares is compared with its file."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from circurve.bounds import check_expansion, check_seconds, cut
from circurve.budget import Need
from circurve.data.convert import Array
from circurve.errors import DataError, FileAccessError

__all__ = ["declared_bytes", "mapped_npy", "read_npy", "read_npz", "read_record", "record_bytes"]

MAX_HEADER = 10_000
"""Bytes of the header of an array; numpy's own limit for headers that it evaluates."""

MAX_CHARACTER = 0x10FFFF
"""The last code point of Unicode."""

RECORD_COPIES = 3
"""How many times its arrays a record takes: as they are read, in the record, and the text among them as objects."""

COPIES = {"U": 12, "S": 24, "M": 4, "m": 4}
"""How many times its own size an array takes while it becomes a table, by the kind of its values; 3 for numbers."""


SECONDS_PER_ARRAY = 1e-4
"""How long an array of an archive takes to read, whatever its size."""


def read_npy(file: IO[bytes], size: int, trust: bool) -> Array:
    """The array of an .npy file of `size` bytes."""
    _check_header(file, size, size, trust, as_table=True)
    return _read(file)


def mapped_npy(path: Path) -> Array:
    """The array of an .npy file, mapped, once the file is found to hold what its header declares."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            _check_header(file, size, size, trust=True, as_table=False)
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as error:  # numpy raises whatever the damage trips over
        raise DataError(f"{path}: cannot be read as a stream: {cut(str(error))}") from None


def read_npz(
    file: IO[bytes], size: int, trust: bool, as_table: bool = True, only: Collection[str] | None = None
) -> dict[str, Array]:
    """The arrays of an .npz file of `size` bytes, by name; none is unpacked before all of them are found to fit.

    as_table: whether they are to become tables, which takes more memory than the arrays themselves. only: the names of
    some of them.
    """
    with zipfile.ZipFile(file) as archive:
        entries = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        check_seconds(SECONDS_PER_ARRAY * len(entries), f"{len(entries):,} arrays", size, trust, DataError)
        needed = 0
        for info in entries.values():
            with archive.open(info) as packed:
                needed += _check_header(packed, info.file_size, size, trust, as_table)
        check_expansion(needed, size, trust, DataError)
        found: dict[str, Array] = {}
        for name, info in entries.items():
            if only is None or name in only:
                with archive.open(info) as packed:
                    found[name] = _read(packed)
        return found


def declared_bytes(path: Path, as_table: bool = True) -> int:
    """The memory of the arrays of an .npy or .npz file, by their headers, with copies while they become tables."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            file.seek(0)
            return _check_header(file, size, size, trust=True, as_table=as_table)
        with zipfile.ZipFile(file) as archive:
            total = 0
            for info in archive.infolist():
                with archive.open(info) as packed:
                    total += _check_header(packed, info.file_size, size, trust=True, as_table=as_table)
            return total


def read_record(path: str | PathLike[str], memory_budget: int | None = None) -> bytes:
    """The content of an .npz file, once its arrays are found to fit a budget; FileAccessError if it cannot be read."""
    place = Path(path)
    try:
        if memory_budget is not None:
            Need(f"reading {path}", {"record": record_bytes(path)}, "read a smaller record").left(memory_budget)
        return place.read_bytes()
    except OSError as error:
        raise FileAccessError(f"cannot read {path}: {error.strerror or error}") from error


def record_bytes(path: str | PathLike[str]) -> int:
    """What a file of records takes while it is read; of a damaged one, which is refused later, its size."""
    try:
        arrays = declared_bytes(Path(path), as_table=False)
    except Exception:  # zipfile and numpy raise whatever the damage trips over
        arrays = 0
    return (Path(path).stat().st_size if arrays else 0) + RECORD_COPIES * arrays


def _read(file: IO[bytes]) -> Array:
    array = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    if array.dtype.kind == "U":  # numpy does not check that these are characters
        points = np.ascontiguousarray(array).view(
            np.uint32 if array.dtype.isnative else np.dtype(np.uint32).newbyteorder()
        )
        if array.size and (points > MAX_CHARACTER).any():
            raise ValueError("its text contains numbers that are not characters")
    return array


def _check_header(file: IO[bytes], held: int, size: int, trust: bool, as_table: bool) -> int:
    """The memory that an array takes by its header; an error if `held` bytes cannot hold it, or if it is too much.

    The file is left at its beginning where it can be; an entry of an archive is opened again.
    """
    start = file.read(12)
    length = _header_length(start)
    head = io.BytesIO(start + file.read(max(0, length - 2)))
    shape, dtype = _declared(head)
    if dtype.hasobject:
        raise ValueError("it contains Python objects, which are never loaded")
    declared = math.prod(shape) * dtype.itemsize
    if declared > held - head.tell():
        raise ValueError(f"its header declares {declared:,} bytes, but only {held - head.tell():,} follow")
    needed = declared * (COPIES.get(dtype.kind, 3) if as_table else 1)
    check_expansion(needed, size, trust, DataError)
    if file.seekable() and not isinstance(file, zipfile.ZipExtFile):
        file.seek(0)
    return needed


def _header_length(start: bytes) -> int:
    if start[:6] != b"\x93NUMPY":
        raise ValueError("it does not start like a numpy array")
    wide = start[6:7] != b"\x01"
    length = int.from_bytes(start[8:12] if wide else start[8:10], "little") + (2 if wide else 0)
    if length > MAX_HEADER:
        raise ValueError(f"its header has {length:,} bytes, more than {MAX_HEADER:,}")
    return length


def _declared(head: io.BytesIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(head, max_header_size=MAX_HEADER)
    if any(size < 0 for size in shape):  # numpy 2.0 reads as many as there are
        raise ValueError(f"its header declares a negative size, {shape}")
    return shape, dtype
