"""Tables by pyarrow, where it is installed: plain text files, Parquet and Arrow files."""

from __future__ import annotations

import io
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, islice, pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from circurve.bounds import cut
from circurve.data.convert import MISSING, Array, Coded, column_of_fields, dates, smallest_integer
from circurve.data.frame_bounds import check_arrow, check_parquet, check_table
from circurve.errors import DataError
from circurve.schema import Coding

if TYPE_CHECKING:
    from circurve.data.text import Layout

__all__ = ["arrow_name", "read_fields", "read_frame_file", "read_numbers"]

MARKS = sorted({variant for mark in MISSING for variant in (mark, mark.upper(), mark.title())} | {"NaN", "<NA>"})
TRUE, FALSE = ([word, word.upper(), word.title()] for word in ("true", "false"))
FIRST_PART, PART, BLOCK = 1 << 17, 1 << 22, 1 << 20
"""Bytes of a text that one thread reads at a time, at first and later, and that pyarrow holds apart."""

UNQUOTED: dict[str, Any] = {"quote_char": False, "ignore_empty_lines": False}

BATCH_ROWS = 1 << 16
"""Rows that polars hands over at a time."""

WORTH_AN_IMPORT = 1 << 29
"""Bytes of a text from which on polars saves more time than its import takes."""


def arrow_name() -> str:
    """`pyarrow 26.0.1`."""
    import pyarrow  # noqa: PLC0415 - optional, and slow to import

    return f"pyarrow {pyarrow.__version__}"


def read_numbers(source: bytes | Path, layout: Layout) -> tuple[Array, str] | None:  # (N, V)
    """The values of a text of numbers without blank lines, NaN for missing ones, and what read them; else None.

    A short first part shows the types of the columns: to guess them in every part takes longer than to read it. Threads
    then read the other parts while this one puts them together; a file is never in memory as a whole.
    """
    if find_spec("pyarrow") is None:
        return None
    text = source if isinstance(source, bytes) else _mapped(source)
    cuts = [0, text.find(b"\n", FIRST_PART) + 1 or len(text)]
    while cuts[-1] < len(text):
        cuts.append(text.find(b"\n", cuts[-1] + PART) + 1 or len(text))
    view = memoryview(text)
    first = _parsed(view[: cuts[1]], layout, skipped=layout.header_line, **UNQUOTED)
    if first is None or (kind := _common_type(first, view[: cuts[1]])) is None:
        return None
    polars = _polars_for(first, len(text)) if len(cuts) > 2 else None
    room = int(1.02 * len(first) * len(text) / cuts[1])
    if polars is not None and (values := _joined(_parts_by_polars(polars, source, layout), room)) is not None:
        return values, f"{arrow_name()} and polars {polars.__version__}"
    read = partial(_part_of_numbers, text=view, layout=layout, kinds=first.schema.types)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        values = _joined(chain([(first.columns, kind)], _ahead(pool, read, cuts[1:])), room)
        pool.shutdown(cancel_futures=True)
    return None if values is None else (values, arrow_name())


def _ahead(pool: ThreadPoolExecutor, read: Callable[[int, int], Any], cuts: Sequence[int]) -> Iterator[Any]:
    """`read` of each part, in order; only a few parts are in memory at a time, whatever the length of the text."""
    spans, running = pairwise(cuts), deque[Future[Any]]()
    for start, end in islice(spans, 1 + (os.cpu_count() or 1)):
        running.append(pool.submit(read, start, end))
    while running:
        yield running.popleft().result()
        for start, end in islice(spans, 1):
            running.append(pool.submit(read, start, end))


def _joined(parts: Iterable[tuple[Sequence[Any], np.dtype[Any]] | None], room: int) -> Array | None:  # (N, V)
    """The rows of all parts, each a list of columns with a type that holds them; None if one of them is None.

    room: how many rows to expect.
    """
    values, rows = np.empty((0, 0), dtype=np.uint8), 0
    for part in parts:
        if part is None:
            return None
        columns, kind = part
        filled, rows = rows, rows + len(columns[0])
        dtype = np.promote_types(kind, values.dtype)
        if rows > values.shape[1] or dtype != values.dtype:
            grown = np.empty((len(columns), max(room, rows + rows // 8)), dtype=dtype)
            grown[: len(values), :filled] = values[:, :filled]
            values = grown
        for column, target in zip(columns, values, strict=True):
            target[filled:rows] = column.to_numpy()
    return values[:, :rows].T


def _mapped(path: Path) -> mmap:
    with path.open("rb") as file:
        return mmap(file.fileno(), 0, access=ACCESS_READ)


def _part_of_numbers(
    start: int, end: int, text: memoryview, layout: Layout, kinds: Sequence[Any]
) -> tuple[Sequence[Any], np.dtype[Any]] | None:
    """The columns of a part and a type that holds all of them; None if there is more than numbers in it."""
    part = text[start:end]
    table = _parsed(part, layout, kinds, **UNQUOTED)
    if table is None:  # a column of whole numbers may hold others from here on
        table = _parsed(part, layout, **UNQUOTED)
    dtype = None if table is None else _common_type(table, part)
    return None if dtype is None else (table.columns, dtype)


def _polars_for(first: Any, size: int) -> Any:
    """The module polars, where it reads the rest of a text that begins with these columns sooner than pyarrow does.

    That is so for real numbers with nothing missing, once polars is imported; to import it takes longer than to read a
    text of less than WORTH_AN_IMPORT bytes.
    """
    real = "double" in map(str, first.schema.types) and not any(column.null_count for column in first.columns)
    loaded = "polars" in sys.modules or (size >= WORTH_AN_IMPORT and find_spec("polars") is not None)
    polars = import_module("polars") if real and loaded else None
    return polars if hasattr(getattr(polars, "LazyFrame", None), "collect_batches") else None


def _parts_by_polars(
    polars: Any, source: bytes | Path, layout: Layout
) -> Iterator[tuple[Sequence[Any], np.dtype[Any]] | None]:
    """The columns of a text of real numbers, in batches; None where polars refuses it, or finds a value missing.

    polars fills short rows and blank lines with missing values, so pyarrow has to look at these.
    """
    schema = {str(v): polars.Float64 for v in range(layout.width)}
    options = {"has_header": False, "skip_rows": layout.header_line, "quote_char": None, "glob": False}
    try:
        frames = polars.scan_csv(source, schema=schema, separator=layout.separator, **options)
        for frame in frames.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            columns = frame.get_columns()
            yield None if any(column.null_count() for column in columns) else (columns, np.dtype(np.float64))
    except polars.exceptions.PolarsError:
        yield None


def _common_type(table: Any, text: memoryview) -> np.dtype[Any] | None:
    """The type for the numbers in all columns; None if there are other values, or a blank line, or a number like 0x1f.

    pyarrow takes a blank line for a row of missing values, and 0x1f for a number.
    """
    from pyarrow import compute  # noqa: PLC0415 - optional, and slow to import

    columns, kinds = table.columns, {str(kind) for kind in table.schema.types}
    if not kinds <= {"int64", "double", "null"} or kinds == {"null"}:
        return None
    gaps = all(column.null_count for column in columns)
    for start in range(0, len(text), BLOCK):
        piece = bytes(text[start : start + BLOCK + 2])  # a blank line may extend over two pieces
        if "int64" in kinds and (b"x" in piece or b"X" in piece):
            return None
        if gaps and (b"\n\n" in piece or b"\n\r\n" in piece or (start == 0 and piece[:1] in b"\r\n")):
            return None
    if kinds != {"int64"} or any(column.null_count for column in columns):
        return np.dtype(np.float64)
    ends = [compute.min_max(column).as_py() for column in columns]
    return np.dtype(smallest_integer(min(end["min"] for end in ends), max(end["max"] for end in ends)))


def read_fields(raw: bytes, layout: Layout, check_distinct: Callable[[int, Layout], None]) -> list[Coded] | None:
    """The columns of a text file; None without pyarrow, or where the text needs the other reader.

    That is text which pyarrow refuses or reads in another way: quotes after a blank, lone carriage returns, hexadecimal
    numbers, rows of different length, text among numbers, bytes that are not UTF-8. The other reader names the wrong
    line. check_distinct: refuses a number of different texts.
    """
    quoted, lone = b'"' in raw, b"\r" in raw and b"\r" in raw.replace(b"\r\n", b"")
    if lone or b"0x" in raw or b"0X" in raw or (quoted and f'{layout.separator} "'.encode() in raw):
        return None
    table = _parsed(raw, layout, skipped=layout.header_line, newlines_in_values=quoted)
    if table is None:
        return None
    pending, found, distinct = list(reversed(table.columns)), list[Coded](), 0
    del table  # each column is dropped once it is converted
    while pending:
        encoded = _encoded(pending.pop())
        if encoded is None:
            return None
        if isinstance(encoded, Coded):
            found.append(encoded)
            continue
        distinct += len(encoded.dictionary)
        check_distinct(distinct, layout)
        codes = encoded.indices.to_numpy()
        coded, stray = column_of_fields(encoded.dictionary.to_pylist(), codes, layout.is_forced(len(found)))
        if stray is not None:
            return None
        found.append(coded)
    return found


def _parsed(
    text: bytes | memoryview, layout: Layout, kinds: Sequence[Any] | None = None, skipped: int = 0, **parsing: Any
) -> Any:
    """The columns of a text or a part of it, at least one row; None without pyarrow, or where it cannot read it.

    kinds: the types of the columns, where they are known; several threads then read one part each.
    """
    if find_spec("pyarrow") is None:
        return None
    import pyarrow as pa  # noqa: PLC0415 - optional, and slow to import
    from pyarrow import csv  # noqa: PLC0415

    names = [str(v) for v in range(layout.width)]
    if kinds is None:
        types = {name: pa.string() for v, name in enumerate(names) if layout.is_forced(v)}
        reading = csv.ReadOptions(column_names=names, skip_rows=skipped, block_size=BLOCK)
    else:
        types = {name: pa.float64() if pa.types.is_null(k) else k for name, k in zip(names, kinds, strict=True)}
        reading = csv.ReadOptions(column_names=names, block_size=max(BLOCK, len(text)), use_threads=False)
    try:
        table = csv.read_csv(
            pa.BufferReader(text),
            reading,
            csv.ParseOptions(delimiter=layout.separator, **parsing),
            csv.ConvertOptions(
                null_values=MARKS,
                true_values=TRUE,
                false_values=FALSE,
                strings_can_be_null=True,
                column_types=types,
            ),
        )
    except pa.ArrowException:
        return None
    return table if len(table) else None


def _encoded(column: Any) -> Any:
    """A column of numbers, true and false, or dates, `Coded`; any other one as text in a dictionary of pyarrow.

    None for bytes that are not UTF-8.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    kind = column.type
    if pa.types.is_integer(kind) and not column.null_count and len(column):
        ends = compute.min_max(column).as_py()
        return Coded(column.to_numpy().astype(smallest_integer(ends["min"], ends["max"])))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Coded(column.to_numpy())
    if pa.types.is_null(kind):
        return Coded(np.full(len(column), np.nan))
    if pa.types.is_boolean(kind):
        values = column.cast(pa.int8()).to_numpy()
        return Coded(values, Coding("boolean"))
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return dates(column.to_numpy())
    try:
        return column.cast(pa.string()).combine_chunks().fill_null("").dictionary_encode()
    except pa.ArrowInvalid:
        return None


def read_frame_file(path: Path, raw: bytes, trust: bool = False) -> tuple[Any, str]:
    """The data frame in a Parquet, Arrow or Feather file, and the name of the library that read it."""
    name = next((name for name in ("pyarrow", "polars") if find_spec(name) is not None), None)
    if name is None:
        raise DataError(f"{path}: Parquet and Arrow files need pyarrow or polars: pip install 'circurve[pyarrow]'")
    try:
        return (_by_pyarrow(raw, trust), arrow_name()) if name == "pyarrow" else _by_polars(raw)
    except DataError as error:
        raise DataError(f"{path}: ", *error.parts) from None
    except Exception as error:  # both libraries have many kinds of errors for damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a Parquet or Arrow file, or damaged: {cut(reason)}") from None


def _by_pyarrow(raw: bytes, trust: bool) -> Any:
    """A table of pyarrow, once what it declares is found to fit; text in dictionaries, which repeat no characters."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import feather, ipc, parquet  # noqa: PLC0415

    source = pa.BufferReader(raw)
    if raw.startswith(b"PAR1"):
        limits = {"thrift_string_size_limit": len(raw) + 1, "thrift_container_size_limit": len(raw) + 1}
        file = parquet.ParquetFile(source, **limits)
        check_parquet(file, len(raw), trust)
        texts = [field.name for field in file.schema_arrow if pa.types.is_string(field.type)]
        table = parquet.ParquetFile(source, read_dictionary=texts, **limits).read()
        table.validate(full=True)
        return table
    if not raw.startswith(b"FEA1"):
        check_arrow(raw, trust)
    read = feather.read_table if raw.startswith((b"ARROW1", b"FEA1")) else lambda s: ipc.open_stream(s).read_all()
    table = read(source)
    table.validate(full=True)  # offsets and codes that point outside would end the process later
    check_table(table, len(raw), trust)
    return table


def _by_polars(raw: bytes) -> tuple[Any, str]:
    import polars  # noqa: PLC0415

    read = polars.read_parquet if raw.startswith(b"PAR1") else polars.read_ipc
    return read(io.BytesIO(raw)), f"polars {polars.__version__}"
