"""Tables by pyarrow, where it is installed: plain text files, Parquet and Arrow files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from circurve.data.convert import Coded, dates
from circurve.data.fields import MISSING, column_of_fields
from circurve.errors import DataError
from circurve.schema import Coding

if TYPE_CHECKING:
    from circurve.data.text import Layout

__all__ = ["arrow_name", "read_fields", "read_frame_file"]

MARKS = sorted({variant for mark in MISSING for variant in (mark, mark.upper(), mark.title())} | {"NaN", "<NA>"})
TRUE, FALSE = ([word, word.upper(), word.title()] for word in ("true", "false"))
BLOCK = 1 << 22
"""Bytes that one thread reads at a time."""


def arrow_name() -> str:
    """`pyarrow 26.0.1`."""
    import pyarrow  # noqa: PLC0415 - optional, and slow to import

    return f"pyarrow {pyarrow.__version__}"


def read_fields(raw: bytes, layout: Layout) -> list[Coded] | None:
    """The columns of a text file; None without pyarrow, or where the text needs the other reader.

    That is text which pyarrow refuses or reads in another way: quotes after a blank, lone carriage returns, hexadecimal
    numbers, rows of different length, text among numbers, bytes that are not UTF-8. The other reader names the line at
    fault.
    """
    if find_spec("pyarrow") is None or _odd(raw, layout.separator):
        return None
    import pyarrow as pa  # noqa: PLC0415 - optional, and slow to import
    from pyarrow import csv  # noqa: PLC0415

    names = [str(v) for v in range(layout.width)]
    forced = [str(v) for v, name in enumerate(layout.columns or ()) if name in layout.categorical]
    try:
        table = csv.read_csv(
            pa.BufferReader(raw),
            csv.ReadOptions(column_names=names, skip_rows=layout.header_line, block_size=BLOCK),
            csv.ParseOptions(delimiter=layout.separator, newlines_in_values=b'"' in raw),
            csv.ConvertOptions(
                null_values=MARKS,
                true_values=TRUE,
                false_values=FALSE,
                strings_can_be_null=True,
                column_types=dict.fromkeys(forced, pa.string()),
            ),
        )
    except pa.ArrowException:
        return None
    columns = [_column(table[name], name in forced) for name in names]
    return None if None in columns or not len(table) else [column for column in columns if column is not None]


def _odd(raw: bytes, separator: str) -> bool:
    """Whether the text needs the other reader. Single bytes are looked for first, which takes hardly any time."""
    if b"\r" in raw and b"\r" in raw.replace(b"\r\n", b""):
        return True
    hexadecimal = any(mark in raw and b"0" + mark in raw for mark in (b"x", b"X"))
    return hexadecimal or (b'"' in raw and f'{separator} "'.encode() in raw)


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
    import io  # noqa: PLC0415

    import polars  # noqa: PLC0415

    read = polars.read_parquet if raw.startswith(b"PAR1") else polars.read_ipc
    return read(io.BytesIO(raw)), f"polars {polars.__version__}"
