"""The memory that a data file takes while it becomes a table, found before the table is read.

Array, Parquet and Arrow files declare their size. Of a text, lines are counted, piece by piece; a packed text is
unpacked for that, piece by piece too.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from circurve.budget import Need
from circurve.data.array_files import declared_bytes
from circurve.data.arrow import MIN_PART, PART, PARTS
from circurve.data.frame_bounds import arrow_parts, cost_of, parquet_parts
from circurve.data.text import BYTES_PER_CELL, BYTES_PER_COLUMN, digit_grid
from circurve.data.text_layout import SEPARATORS

__all__ = ["check_files", "file_bytes"]

PIECE = 1 << 20
"""Bytes of a text that are looked at together."""

PART_COPIES = 11
"""How many times its size a part of a text takes while it is read, and `threads + 2` parts are read at once."""

NUMBER_BYTES = 17
"""A number of a text: in float64 column by column, row by row, and with a place for what was not expected."""

DIGIT_BYTES = 3
"""A digit of a text of digits: as text, without separators, and in the table."""


def check_files(what: str, memory_budget: int | None, *paths: Path) -> None:
    """MemoryLimitError if these files take more than a budget as tables; nothing without a budget."""
    if memory_budget is not None:
        parts = {path.name: file_bytes(path) for path in paths}
        Need(what, parts, "read a file with fewer rows, or stream it with open_stream").left(memory_budget)


def file_bytes(path: Path) -> int:
    """About how much a file takes while it becomes a table; 0 for one that cannot be read, which is an error later."""
    suffix = path.suffix.lower()
    try:
        if suffix in (".npy", ".npz"):
            return declared_bytes(path)
        if suffix in (".parquet", ".arrow", ".feather") and find_spec("pyarrow") is not None:
            return path.stat().st_size + (_parquet(path) if suffix == ".parquet" else _arrow(path))
        return _text(path, packed=suffix == ".gz")
    except Exception:  # damaged files trip whatever reads them; the reader of the whole file says what is wrong
        return 0


def _parquet(path: Path) -> int:
    from pyarrow import parquet  # noqa: PLC0415 - optional, and slow to import

    with parquet.ParquetFile(path) as file:
        groups = parquet_parts(file)
        unpacked, rows = sum(group.unpacked for group in groups), sum(group.rows for group in groups)
        return 2 * unpacked + _frame_bytes(file.schema_arrow, rows)


def _arrow(path: Path) -> int:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import ipc  # noqa: PLC0415

    with path.open("rb") as content:
        batches = arrow_parts(mmap(content.fileno(), 0, access=ACCESS_READ))
    with pa.memory_map(str(path)) as source:
        schema = ipc.open_file(source).schema
    return sum(batch.unpacked for batch in batches) + _frame_bytes(schema, sum(batch.rows for batch in batches))


def _frame_bytes(schema: Any, rows: int) -> int:
    """What a table of this many rows takes: the numbers of all columns get the widest type of them, twice."""
    import pyarrow as pa  # noqa: PLC0415

    if not all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in schema.types):
        return cost_of(schema, rows)
    widest = max((kind.bit_width // 8 for kind in schema.types), default=0)
    return rows * len(schema) * (2 * widest + 1) + BYTES_PER_COLUMN * len(schema)


@dataclass(frozen=True)
class _Counted:
    """What a pass over a text found."""

    size: int
    lines: int
    head: bytes
    """Its first lines."""


def _text(path: Path, packed: bool) -> int:
    found = _counted(_unpacked(path) if packed else _pieces(path))
    first = found.head.splitlines()[0] if found.head else b""
    width = 1 + max(first.count(mark.encode()) for mark in SEPARATORS)
    cells, held = found.lines * width, 2 * found.size if packed else 0
    body = found.head[found.head.find(b"\n") + 1 :]
    if digit_grid(found.head) is not None or (body and digit_grid(body) is not None):
        return held + 2 * found.size + DIGIT_BYTES * cells
    if not packed and not body.strip(b"0123456789+-.eE,;\t \r\n"):
        part = min(PART, max(MIN_PART, found.size // PARTS))
        return NUMBER_BYTES * cells + PART_COPIES * min(part, found.size) * ((os.cpu_count() or 1) + 2)
    return held + found.size + BYTES_PER_CELL * cells + BYTES_PER_COLUMN * width


def _counted(pieces: Iterator[bytes]) -> _Counted:
    size, lines, head, last = 0, 0, b"", b"\n"
    for piece in pieces:
        if not size:
            head = piece[: piece.rfind(b"\n") + 1] or piece
        size, lines, last = size + len(piece), lines + piece.count(b"\n"), piece[-1:]
    return _Counted(size, lines + (last != b"\n"), head)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def _unpacked(path: Path) -> Iterator[bytes]:
    """The content of a gzip file, which may have several members."""
    unpacker = zlib.decompressobj(wbits=31)
    for packed in _pieces(path):
        rest = packed
        while rest:
            piece = unpacker.decompress(rest, PIECE)
            rest = unpacker.unconsumed_tail
            if piece:
                yield piece
            if unpacker.eof:
                rest, unpacker = unpacker.unused_data.lstrip(b"\0"), zlib.decompressobj(wbits=31)
