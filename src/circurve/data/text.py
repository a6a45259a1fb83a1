"""Tables in text files: comma, semicolon, tab or space between numbers, with or without a header row."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import Array, Names, column_label, first_true
from circurve.data.table import Table, table_of
from circurve.errors import DataError

__all__ = ["digit_grid", "parse_text", "read_bytes", "read_text", "unreadable"]

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
SEPARATORS = "\t;, "
SNIFFED_ROWS = 20

Rows: TypeAlias = Iterator[tuple[int, list[str]]]
"""Line number (from 1) and fields of each row that is not blank."""


def read_bytes(path: Path) -> bytes:
    """The whole file; DataError names the file if it cannot be read or is empty."""
    try:
        raw = path.read_bytes()
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


def read_text(path: Path, header: bool | None = None) -> Table:
    """Read a table of numbers; empty fields, NA, NaN, ? and null are missing.

    `header` says whether the first row names the columns; None: it does if it holds text and not one number.
    A table of whole numbers with nothing missing comes back in the smallest integer type.
    """
    return parse_text(read_bytes(path), path, header)


def parse_text(raw: bytes, path: Path, header: bool | None = None) -> Table:
    """The same for content that was read already; `path` is for messages."""
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    if header is not True and (grid := digit_grid(raw)) is not None:
        return table_of(grid)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not text in UTF-8") from None
    separator = _sniff(text)
    rows = _rows(text, separator, path)
    line, fields = next(rows, (0, []))
    if not line:
        raise DataError(f"{path}: the file is empty")
    if header is None:
        numbers = [_number(field) for field in fields]
        header = None in numbers and all(number is None or np.isnan(number) for number in numbers)
    if not header:
        return _general(_rows(text, separator, path), path, None, len(fields))
    columns = tuple(field.strip() for field in fields)
    if line == 1 and (grid := digit_grid(raw[raw.find(b"\n") + 1 :])) is not None and grid.shape[1] == len(columns):
        return table_of(grid, columns)
    return _general(rows, path, columns, len(columns))


def digit_grid(raw: bytes) -> NDArray[np.uint8] | None:  # (N, V)
    """Rows of single digits with one separator between them, read by their places; None for any other text.

    All lines are then equally long, so the file is a rectangle of bytes: digits in the even columns.
    """
    end = raw.find(b"\n") + 1 or len(raw) + 1
    ending = b"\r\n" if raw[end - 2 : end] == b"\r\n" else b"\n"
    width = end - len(ending)
    raw = raw.rstrip(b"\r\n") + ending
    if width % 2 == 0 or len(raw) % end:
        return None
    grid = np.frombuffer(raw, dtype=np.uint8).reshape(-1, end)
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


@lru_cache(1000)  # in tables of counts the same few fields come again and again
def _number(field: str) -> float | None:
    """The field as a float, NaN if missing, None if it is text."""
    try:
        # Python reads 20_21 as 2021; in a data file it is a label
        return None if "_" in field else float(field)
    except ValueError:
        return float("nan") if field.strip().lower() in MISSING else None


def _general(rows: Rows, path: Path, columns: Names, width: int) -> Table:
    numbers, lines = array("d"), array("q")
    for line, fields in rows:
        if len(fields) != width:
            raise DataError(f"{path}:{line}: expected {width} fields, found {len(fields)}")
        found = [_number(field) for field in fields]
        if None in found:
            column = found.index(None)
            hint = " (if the first row names the columns, say header=True)" if line == 1 and columns is None else ""
            text = f"holds text {fields[column].strip()!r}, expected a number{hint}"
            raise DataError(f"{path}:{line}: {column_label(columns, column)} {text}")
        numbers.extend(cast("list[float]", found))
        lines.append(line)
    if not lines:
        raise DataError(f"{path}: there is a header row, but no rows of numbers")
    values = np.frombuffer(numbers, dtype=np.float64).reshape(-1, width)
    if (infinite := np.isinf(values)).any():
        row, column = first_true(infinite)
        label = column_label(columns, column)
        raise DataError(f"{path}:{lines[row]}: {label} is not finite ({values[row, column]})")
    return table_of(_compact(values), columns)


def _compact(values: NDArray[np.float64]) -> Array:
    """Whole numbers in the smallest type that holds them; others, and tables with NaN, as they are."""
    low, high = values.min(), values.max()
    if not (abs(low) < 2**53 and abs(high) < 2**53 and (np.floor(values) == values).all()):
        return values.copy()
    kinds = (np.uint8, np.int16, np.int32, np.int64)
    return values.astype(next(k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max))
