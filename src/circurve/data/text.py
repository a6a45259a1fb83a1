"""Tables in text files: comma, semicolon, tab or space between fields, with or without a header row."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from circurve.data.arrow import arrow_name, read_fields, read_numbers
from circurve.data.convert import (
    Array,
    Coded,
    Names,
    about,
    column_label,
    column_of_fields,
    number_of,
    refuse_repeated,
    smallest_integer,
    stack,
)
from circurve.data.table import Places, Table, table_of, with_codings
from circurve.errors import Argument, DataError

__all__ = ["digit_grid", "parse_text", "read_bytes", "read_text", "unreadable"]

SEPARATORS = "\t;, "
SNIFFED_ROWS, SNIFFED_BYTES = 20, 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
OWN_READER = "circurve"

Rows: TypeAlias = Iterator[tuple[int, list[str]]]
"""Line number (from 1) and fields of each row that is not blank."""


@dataclass(frozen=True)
class Layout:
    """How the text of a table is to be read."""

    path: Path
    separator: str
    columns: Names
    width: int
    header_line: int
    """The last line of the header, 0 if there is none."""

    categorical: Collection[str]
    """Columns that hold categories, whatever their values look like."""

    only_numbers: bool
    """Whether the first row holds nothing but numbers."""

    def is_forced(self, column: int) -> bool:
        """Whether a column is one of those in `categorical`."""
        return self.columns is not None and self.columns[column] in self.categorical


def read_bytes(path: Path) -> bytes:
    """The whole file, unpacked if its name ends in .gz; DataError names it if it cannot be read or is empty."""
    try:
        raw = path.read_bytes()
        if path.suffix.lower() == ".gz" and raw:
            raw = gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a .gz file, or damaged: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if not raw:
        raise DataError(f"{path}: the file is empty")
    return raw


def unreadable(path: Path, error: OSError) -> DataError:
    """What to tell the user about a file that the system will not open."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path}: is a directory, not a file")
    return DataError(f"{path}: cannot be read ({error.strerror or error})")


def read_text(path: Path, header: bool | None = None, categorical: Collection[str] = ()) -> Table:
    """Read a table; empty fields, NA, NaN, ? and null are missing.

    `header` says whether the first row names the columns; None: it does if it holds text and not one number.
    Columns hold numbers, true and false, dates in ISO form, or else text. Text in a column of which at least half are
    numbers is an error, unless the column is named in `categorical`.
    A table of whole numbers with nothing missing comes back in the smallest integer type.
    pyarrow reads the file where it is installed and the text is plain; `Table.source` says what did.
    """
    return _read_large(path, header, categorical) or parse_text(read_bytes(path), path, header, categorical)


def _read_large(path: Path, header: bool | None, categorical: Collection[str]) -> Table | None:
    """The table in a large file of numbers, which need not be in memory as text; None for any other file."""
    try:
        if not path.is_file() or path.stat().st_size < SNIFFED_BYTES or path.suffix.lower() == ".gz":
            return None  # a pipe can be read only once
        with path.open("rb") as file:
            head = file.read(SNIFFED_BYTES)
    except OSError:
        return None
    head = head[: head.rfind(b"\n") + 1].removeprefix(BYTE_ORDER_MARK)
    if not head:
        return None
    layout = _layout(head, path, header, categorical)
    grid = digit_grid(head) if layout.header_line == 0 else digit_grid(head, head.find(b"\n") + 1)
    return None if grid is not None else _numbers_by_arrow(path, layout)


def parse_text(raw: bytes, path: Path, header: bool | None = None, categorical: Collection[str] = ()) -> Table:
    """The same for content that was read already; `path` is for messages."""
    raw = raw.removeprefix(BYTE_ORDER_MARK)
    if header is not True and (grid := digit_grid(raw)) is not None:
        return replace(table_of(grid, None, _lines(grid)), source=OWN_READER)
    layout = _layout(raw, path, header, categorical)
    body = raw.find(b"\n") + 1
    if layout.header_line == 1 and 0 < body < len(raw):
        grid = digit_grid(raw, body)
        if grid is not None and grid.shape[1] == layout.width:
            return replace(table_of(grid, layout.columns, _lines(grid, 1)), source=OWN_READER)
    return _numbers_by_arrow(raw, layout) or _by_arrow(raw, layout) or _by_csv(_decoded(raw, path), layout)


def _decoded(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not text in UTF-8") from None


def _layout(raw: bytes, path: Path, header: bool | None, categorical: Collection[str]) -> Layout:
    """Separator, header and width, from the first lines."""
    cut = len(raw) if len(raw) <= SNIFFED_BYTES else raw.rfind(b"\n", 0, SNIFFED_BYTES) + 1
    text = _decoded(raw[: cut or len(raw)], path)
    separator = _sniff(text)
    line, fields = next(_rows(text, separator, path), (0, []))
    if not line and cut < len(raw):  # nothing but blank lines so far
        line, fields = next(_rows(_decoded(raw, path), separator, path), (0, []))
    if not line:
        raise DataError(f"{path}: the file is empty")
    if header is None:
        numbers = [number_of(field) for field in fields]
        header = None in numbers and all(number is None or np.isnan(number) for number in numbers)
    columns = tuple(field.strip() for field in fields) if header else None
    with about(f"{path}:{line}"):
        refuse_repeated(columns or ())
    header_line = line if header else 0
    first = [field for line in text.splitlines()[header_line : header_line + 1] for field in line.split(separator)]
    only_numbers = all(number_of(field) is not None for field in first)
    return Layout(path, separator, columns, len(fields), header_line, categorical, only_numbers)


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
    digits: NDArray[np.uint8] = grid[:, 0:width:2] - np.uint8(ord("0"))  # what lies below "0" wraps around to > 9
    between, endings = grid[:, 1:width:2], grid[:, width:]
    if digits.max() > 9 or not (endings == np.frombuffer(ending, dtype=np.uint8)).all():
        return None
    if width > 1 and not (chr(raw[1]) in SEPARATORS and (between == raw[1]).all()):
        return None
    return digits


def _sniff(text: str) -> str:
    """The separator that cuts the first rows into equally many fields, more than one; a comma if none does.

    A tab at the edge of a line may part off an empty field, or mean nothing: with no other tab, it is tried last.
    """
    lines = list(islice((line for line in io.StringIO(text, newline="") if line.strip()), SNIFFED_ROWS))
    present = [mark for mark in SEPARATORS if any(mark in line.strip() for line in lines)]
    for mark in [*present, "\t"]:
        try:
            widths = {len(fields) for _, fields in _rows("".join(lines), mark, Path())}
        except DataError:  # a quote left open, because the sample ends within it
            continue
        if len(widths) == 1 and widths != {1}:
            return mark
    return next((mark for mark in present if mark in lines[-1].strip()), ",")


def _rows(text: str, separator: str, path: Path) -> Rows:
    lines = io.StringIO(text, newline="")
    if separator == " ":
        yield from ((number, fields) for number, line in enumerate(lines, 1) if (fields := line.split()))
        return
    # the reader finds one empty field both in a line of blanks and in the line "": the latter is a missing value
    plain = (line if line.strip() or separator in line else "\n" for line in lines)
    reader = csv.reader(plain, delimiter=separator, skipinitialspace=True, strict=True)
    single = True
    try:
        for fields in reader:
            single = single and len(fields) < 2
            if len(fields) > 1 or (fields and (single or fields[0].strip())):
                yield reader.line_num, fields
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: {error}") from None


def _numbers_by_arrow(source: bytes | Path, layout: Layout) -> Table | None:
    """The table of a text of plain numbers as pyarrow reads it; None for any other text, or without pyarrow."""
    if not layout.only_numbers or layout.separator == " " or layout.width == 1:
        return None
    found = read_numbers(source, layout)
    if found is None:
        return None
    values, reader = found
    values = _compact(values) if values.dtype.kind == "f" else values
    places = _lines(values, layout.header_line)
    return replace(table_of(values, layout.columns, places, layout.path), source=reader)


def _lines(values: Array, header_line: int = 0) -> Places:
    """One line for each row, from the header on."""
    return Places("line", range(header_line + 1, header_line + 1 + len(values)))


def _by_arrow(raw: bytes, layout: Layout) -> Table | None:
    """The table as pyarrow reads it; None where it is not installed, or where the text is not plain."""
    if layout.separator == " " or layout.width == 1 or (columns := read_fields(raw, layout)) is None:
        return None
    rows, first = len(columns[0].values), layout.header_line + 1
    ended = raw.endswith(b"\n")
    if raw.count(b"\n") + (not ended) - layout.header_line == rows:
        lines: range | list[int] = range(first, first + rows)
    else:  # blank lines, or line ends within quotes
        found = _rows(_decoded(raw, layout.path), layout.separator, layout.path)
        lines = [line for line, _ in found][1 if layout.header_line else 0 :]
    return _made(columns, layout, lines, arrow_name())


def _by_csv(text: str, layout: Layout) -> Table:
    """The table by Python's own reader, which knows the line of every field."""
    found = _numbers(_body(text, layout), layout)
    if found is None:
        found = _fields(_body(text, layout), layout)
    columns, lines = found
    return _made(columns, layout, lines, OWN_READER)


def _body(text: str, layout: Layout) -> Rows:
    rows = _rows(text, layout.separator, layout.path)
    if layout.header_line:
        next(rows)
    for line, fields in rows:
        if len(fields) != layout.width:
            raise DataError(f"{layout.path}:{line}: expected {layout.width} fields, found {len(fields)}")
        yield line, fields


def _numbers(rows: Rows, layout: Layout) -> tuple[list[Coded], list[int]] | None:
    """Columns and line numbers of a table of numbers; None if there is other text in it."""
    numbers, lines = array("d"), array("q")
    for line, fields in rows:
        found = [number_of(field) for field in fields]
        if None in found:
            return None
        numbers.extend(cast("list[float]", found))
        lines.append(line)
    values = np.frombuffer(numbers, dtype=np.float64).reshape(-1, layout.width)
    return [Coded(column) for column in values.T], lines.tolist()


def _fields(rows: Rows, layout: Layout) -> tuple[list[Coded], list[int]]:
    lines: list[int] = []
    fields: list[list[str]] = []
    for line, row_fields in rows:
        lines.append(line)
        fields.append(row_fields)
    columns = []
    for v, column in enumerate(zip(*fields, strict=True)):
        places = {field: code for code, field in enumerate(dict.fromkeys(column))}
        codes = np.array([places[field] for field in column], dtype=np.int64)
        coded, stray = column_of_fields(list(places), codes, layout.is_forced(v))
        if stray is not None:
            row = int(np.flatnonzero(codes == stray)[0])
            raise _stray_text(layout, v, lines[row], column[row].strip())
        columns.append(coded)
    return columns, lines


def _stray_text(layout: Layout, v: int, line: int, text: str) -> DataError:
    label = column_label(layout.columns, v)
    problem = f"{layout.path}:{line}: {label} holds text {text!r} among numbers; correct it or leave the field empty"
    if layout.columns is not None:
        types = {layout.columns[v]: "categorical"}
        return DataError(problem, Argument("types", types, ", or take the column as categories, "))
    if line == 1:
        return DataError(problem, " (if the first row names the columns, say ", Argument("header", True), ")")
    return DataError(problem)


def _made(columns: list[Coded], layout: Layout, lines: range | list[int], source: str) -> Table:
    if not columns or not len(columns[0].values):
        raise DataError(f"{layout.path}: there is a header row, but no rows of numbers")
    table = table_of(_compact(stack(columns)), layout.columns, Places("line", lines), layout.path)
    return replace(with_codings(table, columns), source=source)


def _compact(values: Array) -> Array:
    """Whole numbers in the smallest type that holds them; others, and tables with NaN, as they are."""
    start = values[:1000]
    if values.dtype.kind == "f" and not ((np.floor(start) == start).all() and (np.floor(values) == values).all()):
        return values
    return values.astype(smallest_integer(values.min(), values.max()), copy=False)
