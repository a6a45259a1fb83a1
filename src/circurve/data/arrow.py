"""Tables by pyarrow, where it is installed: plain text files, Parquet and Arrow files."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from circurve.data.convert import MISSING, Array, Coded, column_of_fields, dates, smallest_integer
from circurve.errors import DataError
from circurve.schema import Coding

if TYPE_CHECKING:
    from circurve.data.text import Layout

__all__ = ["arrow_name", "read_fields", "read_frame_file", "read_numbers"]

MARKS = sorted({variant for mark in MISSING for variant in (mark, mark.upper(), mark.title())} | {"NaN", "<NA>"})
TRUE, FALSE = ([word, word.upper(), word.title()] for word in ("true", "false"))
PART, BLOCK = 1 << 25, 1 << 20
"""Bytes of a text that are read at a time, by all threads and by one."""


def arrow_name() -> str:
    """`pyarrow 26.0.1`."""
    import pyarrow  # noqa: PLC0415 - optional, and slow to import

    return f"pyarrow {pyarrow.__version__}"


def read_numbers(source: bytes | Path, layout: Layout) -> Array | None:  # (N, V)
    """The values of a text of numbers without blank lines, NaN for missing ones; None for any other text.

    The text is read in parts, so that memory is used again and again; a file need not be copied into memory at all.
    """
    if find_spec("pyarrow") is None:
        return None
    import pyarrow as pa  # noqa: PLC0415 - optional, and slow to import

    text = pa.py_buffer(source) if isinstance(source, bytes) else pa.memory_map(str(source)).read_buffer()
    values, rows, start = np.empty((layout.width, 0), dtype=np.uint8), 0, 0
    with ThreadPoolExecutor() as pool:
        while start < len(text):
            end = _line_end(text, start + PART)
            part = text[start:end]
            table = _parsed(part, layout, start == 0, quote_char=False, ignore_empty_lines=False)
            if table is None or (dtype := _common_type(table, part, pool)) is None:
                return None
            start, filled, rows = end, rows, rows + len(table)
            dtype = np.promote_types(dtype, values.dtype)
            if rows > values.shape[1] or dtype != values.dtype:
                room = rows if end == len(text) else int(1.02 * rows * len(text) / end)
                grown = np.empty((layout.width, room), dtype=dtype)
                grown[:, :filled] = values[:, :filled]
                values = grown
            list(pool.map(_copy, table.columns, values[:, filled:rows]))
    return values[:, :rows].T


def _line_end(text: Any, near: int) -> int:
    """The end of the last line that ends just before this place, or of the text."""
    if near >= len(text):
        return len(text)
    line_end = text[near - BLOCK // 8 : near].to_pybytes().rfind(b"\n") + 1
    return near - BLOCK // 8 + line_end if line_end else len(text)


def _common_type(table: Any, part: Any, pool: ThreadPoolExecutor) -> np.dtype[Any] | None:
    """The type for the numbers in all columns; None if there are other values, or a blank line, or a number like 0x1f.

    pyarrow takes a blank line for a row of missing values, and 0x1f for a number.
    """
    columns, kinds = table.columns, {str(kind) for kind in table.schema.types}
    if not kinds <= {"int64", "double", "null"} or all(column.null_count for column in columns):
        return None
    pieces = (part[start : start + BLOCK].to_pybytes() for start in range(0, len(part), BLOCK))
    if "int64" in kinds and any(b"x" in piece or b"X" in piece for piece in pieces):
        return None
    if kinds != {"int64"} or any(column.null_count for column in columns):
        return np.dtype(np.float64)
    ends = list(pool.map(_ends, columns))
    return np.dtype(smallest_integer(min(low for low, _ in ends), max(high for _, high in ends)))


def _ends(column: Any) -> tuple[int, int]:
    """The smallest and the largest number of a column of whole numbers."""
    from pyarrow import compute  # noqa: PLC0415 - optional, and slow to import

    low, high = compute.min_max(column).as_py().values()
    return low, high


def _copy(column: Any, target: Array) -> None:  # (N,)
    start = 0
    for chunk in (chunk for chunk in column.chunks if len(chunk)):
        end = start + len(chunk)
        target[start:end] = np.nan if chunk.null_count == len(chunk) else chunk.to_numpy(zero_copy_only=False)
        start = end


def read_fields(raw: bytes, layout: Layout) -> list[Coded] | None:
    """The columns of a text file; None without pyarrow, or where the text needs the other reader.

    That is text which pyarrow refuses or reads in another way: quotes after a blank, lone carriage returns, hexadecimal
    numbers, rows of different length, text among numbers, bytes that are not UTF-8. The other reader names the line at
    fault.
    """
    quoted, lone = b'"' in raw, b"\r" in raw and b"\r" in raw.replace(b"\r\n", b"")
    if lone or b"0x" in raw or b"0X" in raw or (quoted and f'{layout.separator} "'.encode() in raw):
        return None
    table = _parsed(raw, layout, newlines_in_values=quoted)
    columns = [] if table is None else [_column(table[v], layout.is_forced(v)) for v in range(layout.width)]
    found = [column for column in columns if column is not None]
    return found if found and len(found) == len(columns) else None


def _parsed(text: Any, layout: Layout, from_start: bool = True, **parsing: Any) -> Any:
    """The columns of a text or a part of it, at least one row; None without pyarrow, or where it cannot read it."""
    if find_spec("pyarrow") is None:
        return None
    import pyarrow as pa  # noqa: PLC0415 - optional, and slow to import
    from pyarrow import csv  # noqa: PLC0415

    skipped = layout.header_line if from_start else 0
    names = [str(v) for v in range(layout.width)]
    try:
        table = csv.read_csv(
            pa.BufferReader(text),
            csv.ReadOptions(column_names=names, skip_rows=skipped, block_size=BLOCK),
            csv.ParseOptions(delimiter=layout.separator, **parsing),
            csv.ConvertOptions(
                null_values=MARKS,
                true_values=TRUE,
                false_values=FALSE,
                strings_can_be_null=True,
                column_types={name: pa.string() for v, name in enumerate(names) if layout.is_forced(v)},
            ),
        )
    except pa.ArrowException:
        return None
    return table if len(table) else None


def _column(column: Any, forced: bool) -> Coded | None:
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Coded(column.to_numpy())
    if pa.types.is_null(kind):
        return Coded(np.full(len(column), np.nan))
    if pa.types.is_boolean(kind):
        values = column.cast(pa.int8()).to_numpy()
        return Coded(values, Coding("boolean"))
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return dates(column.to_numpy())
    encoded = column.cast(pa.string()).combine_chunks().fill_null("").dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    codes = encoded.indices.to_numpy().astype(np.int64)
    coded, stray = column_of_fields(distinct, codes, forced)
    return coded if stray is None else None


def read_frame_file(path: Path, raw: bytes) -> tuple[Any, str]:
    """The data frame in a Parquet, Arrow or Feather file, and the name of the library that read it."""
    name = next((name for name in ("pyarrow", "polars") if find_spec(name) is not None), None)
    if name is None:
        raise DataError(f"{path}: Parquet and Arrow files need pyarrow or polars: pip install pyarrow")
    try:
        return (_by_pyarrow(raw), arrow_name()) if name == "pyarrow" else _by_polars(raw)
    except Exception as error:  # both libraries have many kinds of errors for damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a Parquet or Arrow file, or damaged: {reason}") from None


def _by_pyarrow(raw: bytes) -> Any:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import feather, ipc, parquet  # noqa: PLC0415

    source = pa.BufferReader(raw)
    if raw.startswith(b"PAR1"):
        return parquet.read_table(source)
    return feather.read_table(source) if raw.startswith((b"ARROW1", b"FEA1")) else ipc.open_stream(source).read_all()


def _by_polars(raw: bytes) -> tuple[Any, str]:
    import polars  # noqa: PLC0415

    read = polars.read_parquet if raw.startswith(b"PAR1") else polars.read_ipc
    return read(io.BytesIO(raw)), f"polars {polars.__version__}"
