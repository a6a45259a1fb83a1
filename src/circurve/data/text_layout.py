"""How the text of a table is to be read: separator, header and width, from its first lines; and its rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np

from circurve.data.convert import Names, about, number_of, refuse_repeated
from circurve.errors import DataError

__all__ = ["SEPARATORS", "SNIFFED_BYTES", "Layout", "Rows", "decoded", "layout_of", "rows_of"]

SEPARATORS = "\t;, "
SNIFFED_ROWS, SNIFFED_BYTES = 20, 1 << 16

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
    """Whether the first row contains only numbers."""

    budget: int | None = None
    """The memory that the table may take, None without a bound."""

    size: int = 0
    """Bytes of the file; with a budget, they bound the time that the text may take."""

    def is_forced(self, column: int) -> bool:
        """Whether a column is one of those in `categorical`."""
        return self.columns is not None and self.columns[column] in self.categorical


def decoded(raw: bytes, path: Path) -> str:
    """The text in UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}: the file is not UTF-8 text") from None


def layout_of(raw: bytes, path: Path, header: bool | None, categorical: Collection[str]) -> Layout:
    """Separator, header and width, from the first lines."""
    cut = len(raw) if len(raw) <= SNIFFED_BYTES else raw.rfind(b"\n", 0, SNIFFED_BYTES) + 1
    text = decoded(raw[: cut or len(raw)], path)
    separator = _sniff(text)
    line, fields = next(rows_of(text, separator, path), (0, []))
    if not line and cut < len(raw):  # only blank lines so far
        line, fields = next(rows_of(decoded(raw, path), separator, path), (0, []))
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


def _sniff(text: str) -> str:
    """The separator that cuts the first rows into equally many fields, more than one; a comma if none does.

    A tab at the edge of a line may part off an empty field, or mean nothing: with no other tab, it is tried last.
    """
    lines = list(islice((line for line in io.StringIO(text, newline="") if line.strip()), SNIFFED_ROWS))
    present = [mark for mark in SEPARATORS if any(mark in line.strip() for line in lines)]
    for mark in [*present, "\t"]:
        try:
            widths = {len(fields) for _, fields in rows_of("".join(lines), mark, Path())}
        except DataError:  # a quote left open, because the sample ends inside the quotes
            continue
        if len(widths) == 1 and widths != {1}:
            return mark
    return next((mark for mark in present if mark in lines[-1].strip()), ",")


def rows_of(text: str | bytes, separator: str, path: Path) -> Rows:
    """The rows of a text, or of bytes in UTF-8, which are decoded piece by piece."""
    lines: Iterable[str] = (
        io.StringIO(text, newline="")
        if isinstance(text, str)
        else io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="")
    )
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
