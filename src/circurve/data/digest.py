"""A digest of data that are too large to be read in full: their sizes, their metadata, and bytes from many places."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from circurve.data.readers import ArrayReader, FrameReader
from circurve.data.reading import Reader

__all__ = ["reader_digest"]

PLACES = 1 << 10
"""The number of evenly spaced places where data are sampled; they include the first and the last bytes."""

LOOK = 1 << 12
"""Bytes that are read in each place, or a row if that is longer."""

MAX_FOOTER = 1 << 24


def reader_digest(reader: Reader) -> str:
    """The digest of the source of a stream, without reading all of it; names and times of files do not count.

    It covers the columns, the number of rows and their blocks; of Parquet and Arrow files also their sizes and footers
    (those of Parquet hold the smallest and largest value of each column in each row group); of files and arrays also
    LOOK bytes in each of PLACES places. It misses a change between two places that leaves all of these as they are.
    Of iterables of batches, which may come in any order, it covers the number of rows in each batch only.
    """
    found = hashlib.sha256(repr((reader.access, reader.columns, reader.width)).encode())
    found.update(np.asarray(reader.sizes, dtype="<i8").tobytes())
    for part in _parts(reader):
        found.update(struct.pack("<q", len(part)))
        found.update(part)
    return found.hexdigest()


def _parts(reader: Reader) -> Iterator[bytes]:
    if isinstance(reader, ArrayReader):
        yield from _array_parts(reader)
    if isinstance(reader, FrameReader):
        for path in reader.paths:
            yield from _file_parts(path, len(reader.paths))


def _array_parts(reader: ArrayReader) -> Iterator[bytes]:
    array = reader.array
    rows, row_bytes = len(array), max(1, array.itemsize * reader.width)
    height = max(1, LOOK // row_bytes)
    yield repr((array.dtype.str, array.shape)).encode()
    for start in _places(rows, height, PLACES):
        yield np.ascontiguousarray(array[start : start + height]).tobytes()


def _file_parts(path: Path, files: int) -> Iterator[bytes]:
    """The size, the footer, and bytes of one of several files."""
    size = path.stat().st_size
    yield struct.pack("<q", size)
    with path.open("rb") as file:
        yield _footer(file, size)
        for start in _places(size, LOOK, max(2, PLACES // files)):
            file.seek(start)
            yield file.read(LOOK)


def _footer(file: IO[bytes], size: int) -> bytes:
    """The metadata at the end of a Parquet or Arrow file, before their length and the mark of the format."""
    file.seek(max(0, size - 10))
    end = file.read()
    length = struct.unpack("<I", end[:4] if end.endswith(b"ARROW1") else end[-8:-4])[0]
    file.seek(max(0, size - 10 - min(length, MAX_FOOTER)))
    return file.read()


def _places(size: int, look: int, places: int) -> Iterator[int]:
    """Where to look at `size` bytes or rows, `look` of them at a time: evenly spaced, or everywhere in a small file."""
    last = max(0, size - look)
    if size <= look * places:
        yield from range(0, size, look)
        return
    yield from (place * last // (places - 1) for place in range(places))
