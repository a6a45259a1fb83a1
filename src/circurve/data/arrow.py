"""Plain text files by pyarrow, where it is installed."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from csv import QUOTE_NONE
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice, pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from circurve.data.convert import MISSING, Array, Coded, column_of_fields, dates, smallest_integer
from circurve.schema import Coding

if TYPE_CHECKING:
    from circurve.data.text_layout import Layout

__all__ = ["BYTE_ORDER_MARK", "arrow_name", "read_fields", "read_numbers"]

MARKS = sorted({variant for mark in MISSING for variant in (mark, mark.upper(), mark.title())} | {"NaN", "<NA>"})
TRUE, FALSE = ([word, word.upper(), word.title()] for word in ("true", "false"))
FIRST_PART, MIN_PART, PART, BLOCK = 1 << 17, 1 << 20, 1 << 22, 1 << 20
"""Bytes of a text that one thread reads at a time, at first and later, and that pyarrow holds apart."""

PARTS, LONG_PART = 32, 1 << 12
"""The least number of parts of a text, and the least number of bytes of a part for each column, which takes time."""

PARTS_PER_THREAD = 5
"""A part takes up to 11 times its size while it is read, so few of the parts may be in memory at a time."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLANK_AFTER_MARK = (BYTE_ORDER_MARK + b"\n", BYTE_ORDER_MARK + b"\r")  # pyarrow reads it as a row of missing values
BLANK_LINE = (b"\n\n", b"\n\r", b"\r\r")
UNQUOTED: dict[str, Any] = {"quote_char": False, "ignore_empty_lines": False}

PARALLEL_PANDAS = (3, 1)
"""The first version of pandas whose `read_csv` reads a text with several threads."""

PANDAS_BYTES_PER_CELL = 3
"""Texts with fewer bytes for each number would take pandas more memory than a file of that size may take."""

OF_NUMBERS = b"0123456789+-.eE,;\t \r\n"
SAMPLES, MIN_SAMPLE, MAX_STEP = 1 << 10, 1 << 9, 1 << 18
"""The number of places where a text is sampled, the least bytes of a sample, and the most bytes between two."""


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
    if text[:4] in BLANK_AFTER_MARK:
        return None
    cuts = _cuts(text, layout.width)
    view = memoryview(text)
    first = _parsed(view[: cuts[1]], layout, skipped=layout.header_line, **UNQUOTED)
    if first is None or (kind := _common_type(first, view[: cuts[1]])) is None:
        return None
    pieces = _sampled(source, range(cuts[1], len(text)), 4 * cuts[1] // len(first))
    room = _expected_rows(pieces, len(text), len(first) / cuts[1])
    if isinstance(source, Path) and len(cuts) > 2 and (pandas := _pandas_for(first, len(text) / room)) is not None:
        values = None if _has_words(pieces) else _by_pandas(pandas, source, layout, first)
        if values is not None:
            return values, f"{arrow_name()} and pandas {pandas.__version__}"
    read = partial(_part_of_numbers, text=view, layout=layout, kinds=first.schema.types)
    threads = min(os.cpu_count() or 1, 1 + len(cuts) // PARTS_PER_THREAD)
    with ThreadPoolExecutor(threads) as pool:
        values = _joined(chain([(first.columns, kind)], _ahead(pool, read, cuts[1:], threads)), room)
        pool.shutdown(cancel_futures=True)
    return None if values is None else (values, arrow_name())


def _cuts(text: bytes | mmap, width: int) -> list[int]:
    """Where the parts of a text begin and end, each after a line."""
    part = min(PART, max(MIN_PART, LONG_PART * width, len(text) // PARTS))
    cuts = [0, text.find(b"\n", FIRST_PART) + 1 or len(text)]
    while cuts[-1] < len(text):
        cuts.append(text.find(b"\n", cuts[-1] + part) + 1 or len(text))
    return cuts


def _ahead(
    pool: ThreadPoolExecutor, read: Callable[[int, int], Any], cuts: Sequence[int], threads: int
) -> Iterator[Any]:
    """`read` of each part, in order; only a few parts are in memory at a time, whatever the length of the text."""
    spans, running = pairwise(cuts), deque[Future[Any]]()
    for start, end in islice(spans, 1 + threads):
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
    if bytes(part[:3]) == BYTE_ORDER_MARK:  # pyarrow would skip it, as at the beginning of a file
        return None
    table = _parsed(part, layout, kinds, **UNQUOTED)
    if table is None:  # a column of whole numbers may hold others from here on
        table = _parsed(part, layout, **UNQUOTED)
    dtype = None if table is None else _common_type(table, part)
    return None if dtype is None else (table.columns, dtype)


def _pandas_for(first: Any, line: float) -> Any:
    """The module pandas, where it reads a text that begins with these columns sooner than pyarrow does; else None.

    That is so for real numbers with nothing missing, and only if the program has imported pandas: to import it takes
    longer than to read most texts. line: bytes of a line.
    """
    pandas = sys.modules.get("pandas")
    version = str(getattr(pandas, "__version__", "")).split(".")[:2]
    if pandas is None or not all(map(str.isdigit, version)) or tuple(map(int, version)) < PARALLEL_PANDAS:
        return None
    real = "double" in map(str, first.schema.types) and not any(column.null_count for column in first.columns)
    return pandas if real and line >= PANDAS_BYTES_PER_CELL * first.num_columns else None


def _by_pandas(pandas: Any, path: Path, layout: Layout, first: Any) -> Array | None:  # (N, V)
    """The values of a text of real numbers that begins with the rows `first`; None where pandas refuses it.

    With these options pandas refuses whatever is not a number: missing values, blank lines, quotes, rows of another
    length.
    """
    try:
        frame = pandas.read_csv(
            path.absolute(),
            sep=layout.separator,
            header=None,
            skiprows=layout.header_line,
            dtype=np.float64,
            na_filter=False,
            skip_blank_lines=False,
            quoting=QUOTE_NONE,
            compression=None,
        )
    except (ValueError, OverflowError):
        return None
    values: Array = frame.to_numpy()
    if values.shape[1] != layout.width or len(values) < len(first):
        return None
    same = (np.array_equal(values[: len(first), v], column.to_numpy()) for v, column in enumerate(first.columns))
    return values if all(same) else None


def _sampled(source: bytes | Path, part: range, span: int) -> list[bytes]:
    """Pieces of `span` bytes or more from SAMPLES places of a part of a text, and from its end.

    A file is read, not mapped: the system would map pages around each place too, which takes longer.
    """
    span, step = max(MIN_SAMPLE, span), min(max(1, len(part) // SAMPLES), MAX_STEP)
    starts = [*part[::step], max(part.start, part.stop - span)]
    if isinstance(source, bytes):
        return [source[start : start + span] for start in starts]
    with source.open("rb", buffering=0) as file:
        return [file.read(span) for start in starts if file.seek(start) >= 0]


def _has_words(pieces: Sequence[bytes]) -> bool:
    """Whether other characters than those of numbers are found in one of the pieces of a text.

    A thread of pandas that finds only `True` and `False` in a column reads them as 1 and 0. It reads many
    lines at a time, far more than lie between two places.
    """
    return any(piece.translate(None, OF_NUMBERS) for piece in pieces)


def _expected_rows(pieces: Sequence[bytes], size: int, density: float) -> int:
    """About how many lines a text has, or a few more; its first part has `density` lines for each byte."""
    sampled = sum(piece.count(b"\n") for piece in pieces) / max(1, sum(map(len, pieces)))
    return int(1.02 * size * max(density, sampled)) + 1


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
        if gaps and (any(ends in piece for ends in BLANK_LINE) or (start == 0 and piece[:1] in b"\r\n")):
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
    if (
        raw[:4] in BLANK_AFTER_MARK
        or lone
        or b"0x" in raw
        or b"0X" in raw
        or (quoted and f'{layout.separator} "'.encode() in raw)
    ):
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
    if find_spec("pyarrow") is None or (skipped and _ends_after(bytes(text), skipped)):
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


def _ends_after(text: bytes, lines: int) -> bool:
    """True if only blanks follow: pyarrow refuses that while its threads start, which can abort a process that ends."""
    position = 0
    for _ in range(lines):
        position = text.find(b"\n", position) + 1 or len(text)
    return len(text) - position <= 64 and not text[position:].strip()


def _encoded(column: Any) -> Any:
    """A column of numbers, true and false, or dates, `Coded`; any other one as text in a dictionary of pyarrow.

    None for bytes that are not UTF-8.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    if pa.types.is_integer(kind := column.type) and not column.null_count and len(column):
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
