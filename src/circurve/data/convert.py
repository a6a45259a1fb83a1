"""Arrays, Python objects and fields of text -> columns of numbers, with the coding that leads back to the originals."""

from __future__ import annotations

import math
import numbers
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from string import ascii_letters
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from circurve.errors import DataError
from circurve.schema import Coding, Value

__all__ = [
    "MAX_EXACT",
    "MISSING",
    "Array",
    "Coded",
    "Names",
    "about",
    "by_category",
    "coded_column",
    "column_label",
    "column_of_fields",
    "dates",
    "days_since",
    "first_true",
    "from_objects",
    "is_missing",
    "moment_of",
    "native",
    "number_of",
    "refuse_repeated",
    "short",
    "smallest_integer",
    "stack",
    "stack_in_place",
    "unmasked",
]

Array: TypeAlias = NDArray[Any]
Names: TypeAlias = tuple[str, ...] | None

NUMBER = Coding()
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
"""Texts that mean a missing value, in upper or lower case."""

BOOLEANS = ("false", "true")
ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
MAX_EXACT = 2**53
"""Whole numbers below this are exact as floats."""

FIRST_OF_TEXT = frozenset(ascii_letters) - frozenset("iInN")
"""Letters that no number begins with; inf and nan are numbers."""

DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")
"""Microseconds in a day."""


@dataclass(frozen=True, eq=False)
class Coded:
    """One column as numbers: integers, or floats in which NaN is missing."""

    values: Array  # (N,)
    coding: Coding = NUMBER


@contextmanager
def about(what: object) -> Iterator[None]:
    """A context in which the message of a DataError starts with what the data are: `train: column 3 ...`."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{what}: ", *error.parts) from error


def column_label(columns: Names, number: int) -> str:
    """`column 3`, or `column 3 ('age')` where columns have names, for the number 2: people count from 1."""
    return f"column {number + 1}" if columns is None else f"column {number + 1} ({columns[number]!r})"


def refuse_repeated(names: Sequence[object]) -> None:
    """Raise DataError if two columns have the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"two columns have the name {twice!r}; rename one of them")


def first_true(wrong: NDArray[np.bool_]) -> tuple[int, int]:
    """Row and column of the first true entry, row by row; there must be one."""
    row, column = np.unravel_index(int(wrong.argmax()), wrong.shape)
    return int(row), int(column)


def coded_column(column: Array, label: str) -> Coded:  # (N,)
    """A column of a numpy array of any type; `label` opens messages."""
    kind = column.dtype.kind
    if kind == "b":
        return Coded(native(column), Coding("boolean"))
    if kind in "iuf":
        return Coded(native(column))
    if kind == "M":
        return dates(column)
    if kind == "m":
        raise DataError(f"{label} holds durations ({column.dtype}); convert them to numbers first, such as seconds")
    if kind == "V":
        raise DataError(f"{label} holds records ({column.dtype}), expected numbers")
    return from_objects(column.tolist(), label)


def native(array: Array) -> Array:
    """In the machine's byte order; booleans as uint8, half precision as float32, extended as float64."""
    if array.dtype.kind == "b":
        return np.asarray(array).view(np.uint8)
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind == "f":
        dtype = np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    return np.asarray(array, dtype=dtype)


def unmasked(array: Any) -> Array:
    """Masked entries become NaN (None in an array of objects); integers without masked ones stay integers."""
    mask = np.ma.getmaskarray(array)
    data = np.asarray(array.data)
    if not mask.any() or data.dtype.kind not in "biufO":
        return data
    filled: Array = data.astype(np.float64 if data.dtype.kind in "biu" else data.dtype)
    filled[mask] = None if data.dtype.kind == "O" else np.nan
    return filled


def stack(columns: Sequence[Coded]) -> Array:  # (N, V)
    """Columns side by side, in the smallest type that holds them all; each stays in one piece of memory."""
    arrays = [column.values for column in columns]
    return np.stack(arrays, axis=0, dtype=np.result_type(*{array.dtype for array in arrays}), casting="unsafe").T


def stack_in_place(columns: list[Coded]) -> Array:  # (N, V)
    """`stack`, with the list's columns replaced by views of the result one by one: memory holds one copy only."""
    dtype = np.result_type(*{column.values.dtype for column in columns})
    stacked: Array = np.empty((len(columns), len(columns[0].values)), dtype)
    for place, column in enumerate(columns):
        stacked[place] = column.values
        columns[place] = replace(column, values=stacked[place])
    return stacked.T


def smallest_integer(low: Any, high: Any) -> type[np.number]:
    """The type for whole numbers from low to high; float64 where one is NaN, or so large that floats round it."""
    if not (abs(low) < MAX_EXACT and abs(high) < MAX_EXACT):
        return np.float64
    kinds = (np.uint8, np.int16, np.int32, np.int64)
    return next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)


def dates(column: Array) -> Coded:  # (N,) datetime64
    """Days since the day of the first date; NaT is missing."""
    missing = np.isnat(column)
    micros = column.astype("datetime64[us]")
    present = micros[~missing]
    first = present.min().astype("datetime64[D]") if present.size else np.datetime64("1970-01-01")
    whole = bool((present == present.astype("datetime64[D]")).all())
    origin = str(first) if whole else f"{first}T00:00:00"
    return Coded(days_since(micros, origin), Coding("date", origin=origin))


def days_since(micros: Array, origin: str) -> NDArray[np.float64]:  # datetime64[us]
    """Days from the origin to each time; NaN for NaT."""
    passed = (micros.astype("datetime64[us]") - np.datetime64(origin, "us")).astype(np.int64)
    return np.where(np.isnat(micros), np.nan, passed / DAY)


def moment_of(text: str) -> np.datetime64:
    """A date or time as ISO text writes it, in UTC; ValueError for any other text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # numpy warns that it converts times with an offset to UTC
        return np.datetime64(text.strip(), "us")


def is_missing(value: object) -> bool:
    """Whether a Python object means a missing value: None, NaN, NaT, pandas.NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | np.datetime64 | Decimal) and bool(
        np.isnat(value) if isinstance(value, np.datetime64) else math.isnan(value)
    )


def from_objects(values: Sequence[object], label: str) -> Coded:
    """A column of Python objects: all numbers, all true or false, all text, or all dates; None and NaN are missing."""
    alone = values[0] if len(values) == 1 else None
    if type(alone) is float or (type(alone) is int and abs(alone) < MAX_EXACT):  # single rows are asked for often
        return Coded(native(np.array(values)))
    kinds = [None if is_missing(value) else _kind(value) for value in values]
    found = [kind for kind in dict.fromkeys(kinds) if kind is not None]
    if "other" in found:
        row = kinds.index("other")
        raise _not_a_value(values[row], f"{label}, row {row + 1}")
    if set(found) == {"boolean", "number"}:
        found = ["number"]
    if len(found) > 1:
        rows = [kinds.index(kind) for kind in found[:2]]
        both = " and ".join(f"{WORDS[kinds[row] or '']} (row {row + 1}: {short(values[row])})" for row in rows)
        raise DataError(f"{label} holds {both}; convert all of them to text or to numbers")
    kind = found[0] if found else "number"
    if kind == "text":
        return by_category(values, sorted({cast("str", value) for value in values if not is_missing(value)}))
    if kind == "date":
        return dates(np.array([None if is_missing(v) else _utc(v) for v in values], dtype="datetime64[us]"))
    array = np.array([float("nan") if is_missing(v) else _number(v) for v in values])
    try:
        array = array.astype(np.float64) if array.dtype.kind == "O" else array
    except OverflowError:
        raise DataError(f"{label} holds a number too large for a float") from None
    return Coded(native(array), Coding("boolean") if kind == "boolean" else NUMBER)


WORDS = {"text": "text", "number": "numbers", "boolean": "true or false", "date": "dates"}


def _kind(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "boolean"
    if isinstance(value, str):
        return "text"
    if isinstance(value, numbers.Real | Decimal):
        return "number"
    return "date" if isinstance(value, date | np.datetime64) else "other"


def _number(value: object) -> int | float:
    if isinstance(value, bool | np.bool_ | numbers.Integral):
        return int(cast("int", value))
    return float(cast("float", value))


def _utc(value: object) -> object:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def by_category(values: Sequence[object], categories: Sequence[Value]) -> Coded:
    """Each value by its place among the categories; what is none of them is missing."""
    place: dict[object, int] = {value: code for code, value in enumerate(categories)}
    codes = np.array([place.get(value, -1) for value in values], dtype=np.int64)
    found = np.where(codes < 0, np.nan, codes) if (codes < 0).any() else codes
    return Coded(found, Coding("category", categories=tuple(categories)))


def _not_a_value(value: object, where: str) -> DataError:
    if isinstance(value, complex | np.complexfloating):
        return DataError(f"{where}: {value} is a complex number, expected a real one")
    if isinstance(value, bytes):
        return DataError(f"{where}: {short(value)} is bytes; decode it into text first")
    return DataError(
        f"{where}: {short(value)} ({type(value).__name__}) is not a number, text, true or false, or a date"
    )


def short(value: object, most: int = 40) -> str:
    """The value as Python writes it, cut off where it is long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= most else text[:most] + "..."


@lru_cache(1000)  # in tables of counts the same few fields come again and again
def number_of(field: str) -> float | None:
    """The field as a float, NaN if missing, None if it is text."""
    try:
        # Python reads 20_21 as 2021; in a data file it is a label
        if field[:1] not in FIRST_OF_TEXT:  # an exception takes longer than all the rest
            return None if "_" in field else float(field)
    except ValueError:
        pass
    return float("nan") if field.strip().lower() in MISSING else None


def column_of_fields(
    distinct: Sequence[str], codes: NDArray[np.integer], categorical: bool
) -> tuple[Coded, int | None]:
    """The column whose row n holds the field distinct[codes[n]], and the code of a stray text in it (None: none).

    Text is stray where at least half of the fields are numbers, unless the column is said to be `categorical`.
    """
    numbers = [number_of(field.strip()) for field in distinct]
    fields = [None if field.strip().lower() in MISSING else field.strip() for field in distinct]
    present = {field for field in fields if field is not None}
    texts = [n for n, number in enumerate(numbers) if number is None]
    if not texts and not (categorical and present):
        return Coded(np.array(numbers, dtype=np.float64)[codes]), None
    if not categorical:
        if all(field.lower() in BOOLEANS for field in present):
            found = by_category([field and field.lower() for field in fields], BOOLEANS)
            return Coded(found.values[codes], Coding("boolean")), None
        if (days := _days(fields)) is not None:
            return dates(days[codes]), None
    counts = np.bincount(codes, minlength=len(fields))
    known = np.array([field is not None for field in fields])
    numeric = known & [number is not None for number in numbers]
    stray = texts[0] if texts and not categorical and 2 * counts[numeric].sum() >= counts[known].sum() else None
    found = by_category(fields, sorted(present))
    values = found.values
    if values.dtype.kind == "i" and values.size:
        values = values.astype(smallest_integer(0, len(present)))
    return Coded(values[codes], found.coding), stray


def _days(fields: Sequence[str | None]) -> NDArray[np.datetime64] | None:
    """The fields as dates, NaT for None; None if one is something else."""
    if not all(field is None or ISO_DATE.fullmatch(field) for field in fields):
        return None
    try:
        return np.array(fields, dtype="datetime64[us]")
    except ValueError:  # the 31st of June
        return None
