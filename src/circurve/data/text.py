"""Tables in text files: comma, semicolon, tab or space between fields, with or without a header row."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from circurve.bounds import MAX_RATIO, TRUST_HINT, allowed_bytes, check_seconds, readable_bytes
from circurve.data.arrow import BYTE_ORDER_MARK, arrow_name, read_fields, read_numbers
from circurve.data.convert import (
    Array,
    Coded,
    about,
    column_label,
    column_of_fields,
    number_of,
    smallest_integer,
    stack_in_place,
)
from circurve.data.raw_files import read_bytes
from circurve.data.table import Places, Table, table_of, with_codings
from circurve.data.text_layout import SEPARATORS, SNIFFED_BYTES, Layout, Rows, decoded, layout_of, rows_of
from circurve.errors import Argument, DataError, warn_user
from circurve.words import counted

__all__ = ["digit_grid", "parse_text", "read_text"]

OWN_READER = "circurve"

BYTES_PER_CELL, BYTES_PER_COLUMN, BYTES_PER_TEXT = 20, 1_000, 400
"""What a table takes for each field, for each column, and for each different text of a column, at most."""

SECONDS_PER_ROW, SECONDS_PER_FIELD = 6e-7, 1.6e-7
"""What a row and a field of a text take where Python's own reader reads it."""

SECONDS_PER_COLUMN, SECONDS_PER_TEXT_COLUMN, SECONDS_PER_TEXT = 1e-5, 2e-5, 2.4e-6
"""What a column takes, what more where it holds text, and what each different text in it."""

MAX_ARROW_COLUMNS = 1 << 12
"""pyarrow takes 18 kB and 0.1 ms for each column of a text: wider texts are read by Python's own reader."""

PART_ROWS = 256
"""Rows that are taken apart at a time: Python's collector would visit the lists of more of them again and again."""

OTHER_BLANKS = re.compile(rb"[\t\v\f\x1c-\x1f]")
"""What parts fields of a text with blanks, and is not a blank."""


def read_text(path: Path, header: bool | None = None, categorical: Collection[str] = (), trust: bool = False) -> Table:
    """Read a table; empty fields, NA, NaN, ? and null are missing.

    `header`: whether the first row contains the names of the columns; None: it does if it has text and no number.
    Columns contain numbers, true and false, dates in ISO form, or text. Text in a column with at least half numbers is
    an error, unless the column is named in `categorical`. A table of whole numbers with nothing missing comes back in
    the smallest integer type. pyarrow reads the file if it is installed and the text is plain; `Table.source` says
    which package did.
    """
    try:
        regular = path.is_file()  # a pipe can be read only once, and its size is not known
        size = path.stat().st_size if regular else 0
    except OSError:
        regular, size = False, 0
    packed = path.suffix.lower() == ".gz"
    if regular and size >= SNIFFED_BYTES and not packed:
        table = _read_large(path, header, categorical, None if trust else allowed_bytes(size))
        if table is not None:
            return table
    raw = read_bytes(path, trust)
    budget = None if trust else allowed_bytes(size if packed else len(raw))
    return parse_text(raw, path, header, categorical, budget, size if packed else len(raw))


def _read_large(path: Path, header: bool | None, categorical: Collection[str], budget: int | None) -> Table | None:
    """The table in a large file of numbers, which need not be in memory as text; None for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(SNIFFED_BYTES)
    except OSError:
        return None
    head = head[: head.rfind(b"\n") + 1].removeprefix(BYTE_ORDER_MARK)
    if not head:
        return None
    _check_width(head, path, budget)
    layout = replace(layout_of(head, path, header, categorical), budget=budget)
    grid = digit_grid(head) if layout.header_line == 0 else digit_grid(head, head.find(b"\n") + 1)
    table = None if grid is not None else _numbers_by_arrow(path, layout)
    if table is not None:
        _point_out_indices(head, path, header)
    return table


def parse_text(
    raw: bytes,
    path: Path,
    header: bool | None = None,
    categorical: Collection[str] = (),
    budget: int | None = None,
    size: int = 0,
) -> Table:
    """A table from content that was already read; `path` is for messages, `budget` is the memory that it may take.

    size: bytes of the file, which bound the time that it may take where there is a budget.
    """
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    if (
        budget is not None and MAX_RATIO * len(raw) > budget
    ):  # it was packed: its unpacked size is compared with the size of the file
        cells = raw.count(b"\n") + sum(raw.count(mark.encode()) for mark in SEPARATORS)
        _check_budget(len(raw) + BYTES_PER_CELL * cells, budget, path)
    _point_out_indices(raw, path, header)
    if header is not True and (grid := digit_grid(raw)) is not None:
        return replace(table_of(grid, None, _lines(grid)), source=OWN_READER)
    _check_width(raw, path, budget)
    layout = replace(layout_of(raw, path, header, categorical), budget=budget, size=size)
    body = raw.find(b"\n") + 1
    if layout.header_line == 1 and 0 < body < len(raw):
        grid = digit_grid(raw, body)
        if grid is not None and grid.shape[1] == layout.width:
            return replace(table_of(grid, layout.columns, _lines(grid, 1)), source=OWN_READER)
    return _numbers_by_arrow(raw, layout) or _by_arrow(raw, layout) or _by_csv(raw, layout)


def _point_out_indices(raw: bytes, path: Path, header: bool | None) -> None:
    """Warn of a first line 0,1,2,... that nobody called a row: it may be a header, as of a frame without names."""
    if header is not None or not raw.startswith((b"0", *(mark.encode() + b"0" for mark in SEPARATORS))):
        return
    line = raw[: raw.find(b"\n") % (len(raw) + 1)].decode(errors="replace").rstrip("\r")
    first = next((mark for mark in SEPARATORS if mark in line), ",")
    fields = line.removeprefix(first).split(first)
    if len(fields) > 2 and fields == [str(number) for number in range(len(fields))]:
        shown = line if len(fields) < 6 else first.join([*fields[:3], "..."])
        words = f"{path}: line 1, which is {shown}, is read as a row; if it contains the names of the columns, pass "
        warn_user(words, Argument("header", True))


def _check_width(raw: bytes, path: Path, budget: int | None) -> None:
    """A column takes memory and time of its own, however short it is."""
    end = raw.find(b"\n") % (len(raw) + 1)
    width = 1 + max(raw.count(mark.encode(), 0, end) for mark in SEPARATORS)
    _check_budget(BYTES_PER_COLUMN * width, budget, path, f": {counted(width, 'column')}")


def check_distinct(count: int, layout: Layout) -> None:
    """Refuse a table whose different texts, as objects of Python, take more memory than allowed."""
    what = f"{count:,} different texts"
    _check_budget(BYTES_PER_TEXT * count, layout.budget, layout.path, f": {what}")
    _check_time(SECONDS_PER_TEXT * count, what, layout)


def _check_time(seconds: float, what: str, layout: Layout) -> None:
    with about(layout.path):
        check_seconds(seconds, what, layout.size, layout.budget is None, DataError)


def _check_budget(needed: int, budget: int | None, path: Path, what: str = ": it") -> None:
    if budget is not None and needed > budget:
        need, allowed = readable_bytes(needed), readable_bytes(budget)
        raise DataError(f"{path}{what} would take {need} of memory, more than {allowed}", *TRUST_HINT)


def digit_grid(raw: bytes, start: int = 0) -> NDArray[np.uint8] | None:  # (N, V)
    """Rows of single digits with one separator between them, read by their places; None for any other text.

    All lines are then equally long, so the text from `start` on is a rectangle of bytes: digits in the even columns.
    """
    end = raw.find(b"\n", start) + 1 or len(raw) + 1
    ending = b"\r\n" if raw[end - 2 : end] == b"\r\n" else b"\n"
    width, length = end - start - len(ending), end - start
    if width % 2 == 0 or not all(48 <= byte <= 57 for byte in raw[start : start + width : 2]):  # 48 is "0"
        return None
    raw = raw[start:].rstrip(b"\r\n") + ending
    if len(raw) % length:
        return None
    grid = np.frombuffer(raw, dtype=np.uint8).reshape(-1, length)
    digits: NDArray[np.uint8] = grid[:, 0:width:2] - np.uint8(ord("0"))  # characters below "0" wrap around to > 9
    between, endings = grid[:, 1:width:2], grid[:, width:]
    if digits.max() > 9 or not (endings == np.frombuffer(ending, dtype=np.uint8)).all():
        return None
    if width > 1 and not (chr(raw[1]) in SEPARATORS and (between == raw[1]).all()):
        return None
    return digits


def _numbers_by_arrow(source: bytes | Path, layout: Layout) -> Table | None:
    """The table of a text of plain numbers as pyarrow reads it; None for any other text, or without pyarrow."""
    if not layout.only_numbers or layout.width > MAX_ARROW_COLUMNS:
        return None
    if layout.separator == " ":
        if not isinstance(source, bytes) or OTHER_BLANKS.search(source):
            return None
        source = _single_blanks(source)
    found = read_numbers(source, layout)
    if found is None:
        return None
    values, reader = found
    values = _compact(values) if values.dtype.kind == "f" else values
    places = _lines(values, layout.header_line)
    return replace(table_of(values, layout.columns, places, layout.path), source=reader)


def _single_blanks(text: bytes) -> bytes:
    """A text in which one blank is between two fields, and none at the ends of lines."""
    while b"  " in text:
        text = text.replace(b"  ", b" ")
    for end in (b"\n", b"\r"):
        text = text.replace(b" " + end, end).replace(end + b" ", end)
    return text.strip(b" ")


def _lines(values: Array, header_line: int = 0) -> Places:
    """One line for each row, from the header on."""
    return Places("line", range(header_line + 1, header_line + 1 + len(values)))


def _by_arrow(raw: bytes, layout: Layout) -> Table | None:
    """The table as pyarrow reads it; None where it is not installed, or where the text is not plain."""
    if layout.separator == " " or not 1 < layout.width <= MAX_ARROW_COLUMNS:
        return None
    if (columns := read_fields(raw, layout, check_distinct)) is None:
        return None
    rows, first = len(columns[0].values), layout.header_line + 1
    ended = raw.endswith(b"\n")
    if raw.count(b"\n") + (not ended) - layout.header_line == rows:
        lines: Sequence[int] = range(first, first + rows)
    else:  # blank lines, or line ends within quotes
        found = rows_of(raw, layout.separator, layout.path)
        lines = array("q", (line for line, _ in found))[1 if layout.header_line else 0 :]
    return _made(columns, layout, lines, arrow_name())


def _by_csv(raw: bytes, layout: Layout) -> Table:
    """The table by Python's own reader, which records the line of every field."""
    decoded(raw, layout.path)  # an error for bytes that are not text
    rows, width = raw.count(b"\n"), layout.width
    _check_time(rows * (SECONDS_PER_ROW + width * SECONDS_PER_FIELD), counted(rows, "row"), layout)
    found = _numbers(_body(raw, layout), layout)
    if found is None:
        found = _fields(_body(raw, layout), layout)
    columns, lines = found
    if lines and lines[-1] - lines[0] == len(lines) - 1:
        lines = range(lines[0], lines[-1] + 1)
    return _made(columns, layout, lines, OWN_READER)


def _body(text: bytes, layout: Layout) -> Rows:
    rows = rows_of(text, layout.separator, layout.path)
    if layout.header_line:
        next(rows)
    for line, fields in rows:
        if len(fields) != layout.width:
            raise DataError(f"{layout.path}:{line}: expected {layout.width} fields, found {len(fields)}")
        yield line, fields


def _numbers(rows: Rows, layout: Layout) -> tuple[list[Coded], Sequence[int]] | None:
    """Columns and line numbers of a table of numbers; None if there is other text in it."""
    numbers, lines = array("d"), array("q")
    for line, fields in rows:
        found = [number_of(field) for field in fields]
        if None in found:
            return None
        numbers.extend(cast("list[float]", found))
        lines.append(line)
    values = np.frombuffer(numbers, dtype=np.float64).reshape(-1, layout.width)
    return [Coded(column) for column in values.T], lines


def _fields(rows: Rows, layout: Layout) -> tuple[list[Coded], Sequence[int]]:
    """Columns and line numbers of any table; each different field of a column is kept once."""
    lines = array("q")
    places: list[dict[str, int]] = [{} for _ in range(layout.width)]
    coded_fields = [array("l") for _ in range(layout.width)]
    while part := list(islice(rows, PART_ROWS)):
        lines.extend([line for line, _ in part])
        columns_of_part = zip(*[fields for _, fields in part], strict=True)
        for place, codes, column in zip(places, coded_fields, columns_of_part, strict=True):
            for field in dict.fromkeys(column):
                place.setdefault(field, len(place))
            codes.extend(map(place.__getitem__, column))
        check_distinct(sum(map(len, places)), layout)
    texts = sum(number_of(next(iter(place), "")) is None for place in places)
    seconds = SECONDS_PER_COLUMN * layout.width + SECONDS_PER_TEXT_COLUMN * texts
    _check_time(seconds, counted(layout.width, "column"), layout)
    columns = []
    for v, place in enumerate(places):
        numbers = np.array(coded_fields[v], dtype=np.int64)
        coded, stray = column_of_fields(list(place), numbers, layout.is_forced(v))
        if stray is not None:
            row = int(np.flatnonzero(numbers == stray)[0])
            raise _stray_text(layout, v, lines[row], list(place)[stray].strip())
        columns.append(coded)
    return columns, lines


def _stray_text(layout: Layout, v: int, line: int, text: str) -> DataError:
    label = column_label(layout.columns, v)
    problem = (
        f"{layout.path}:{line}: {label} is numeric, but has the text {text!r}; correct it or leave the field empty"
    )
    if layout.columns is not None:
        types = {layout.columns[v]: "categorical"}
        return DataError(problem, Argument("types", types, ", or read the column as categories: pass "))
    if line == 1:
        return DataError(
            problem, " (if the first row contains the names of the columns, pass ", Argument("header", True), ")"
        )
    return DataError(problem)


def _made(columns: list[Coded], layout: Layout, lines: Sequence[int], source: str) -> Table:
    if not columns or not len(columns[0].values):
        raise DataError(f"{layout.path}: there is a header row, but no data rows")
    table = table_of(_compact(stack_in_place(columns)), layout.columns, Places("line", lines), layout.path)
    return replace(with_codings(table, columns), source=source)


def _compact(values: Array) -> Array:
    """Whole numbers in the smallest type that holds them; others, and tables with NaN, as they are."""
    start = values[:1000]
    if values.dtype.kind == "f" and not ((np.floor(start) == start).all() and (np.floor(values) == values).all()):
        return values
    return values.astype(smallest_integer(values.min(), values.max()), copy=False)
