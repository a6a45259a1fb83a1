"""Arrays of anything, pandas data frames -> arrays of numbers: compact integers, or floats in which NaN is missing.

pandas is not imported: only its objects' own methods are used.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from circurve.errors import DataError

__all__ = ["Array", "Names", "about", "column_label", "first_true", "frame_values", "is_frame", "numeric_array"]

Array: TypeAlias = NDArray[Any]
Names: TypeAlias = tuple[str, ...] | None


@contextmanager
def about(what: object) -> Iterator[None]:
    """Within it, the message of a DataError opens with what the data are: `train: column 3 ...`."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{what}: {error}") from error


def column_label(columns: Names, number: int) -> str:
    """`column 3`, or `column 3 ('age')` where columns have names; numbers count from 0."""
    return f"column {number}" if columns is None else f"column {number} ({columns[number]!r})"


def first_true(wrong: NDArray[np.bool_]) -> tuple[int, int]:
    """Row and column of the first true entry, row by row; there must be one."""
    row, column = np.unravel_index(int(wrong.argmax()), wrong.shape)
    return int(row), int(column)


def numeric_array(array: Array, columns: Names) -> Array:  # (N, V) -> (N, V)
    """A table of any type as numbers; masked entries, None and pandas.NA become NaN."""
    if isinstance(array, np.ma.MaskedArray):
        array = _unmasked(array)
    if array.dtype.kind in "biuf":
        return _native(array)
    if array.dtype.kind == "O":
        return _stack([_numeric_column(array[:, v], columns, v) for v in range(array.shape[1])])
    return _numeric_column(array[:, 0], columns, 0)  # the other kinds are errors: say which, with an example


def is_frame(data: object) -> bool:
    """Whether `data` is a pandas.DataFrame or of a class derived from it."""
    return any(k.__name__ == "DataFrame" and k.__module__.split(".")[0] == "pandas" for k in type(data).__mro__)


def frame_values(frame: Any, columns: Names) -> Array:  # (N, V)
    """The frame as numbers, NaN where it holds NaN, None or NA; text raises DataError."""
    dtypes = set(frame.dtypes)
    if not dtypes or not len(frame):
        return np.empty(frame.shape)
    if all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes):
        common = np.result_type(*(np.uint8 if dtype.kind == "b" else dtype for dtype in dtypes))
        return np.asarray(frame.to_numpy(dtype=common))
    return _stack([_frame_column(frame.iloc[:, v], columns, v) for v in range(frame.shape[1])])


def _frame_column(series: Any, columns: Names, number: int) -> Array:
    if isinstance(series.dtype, np.dtype) or series.dtype.kind not in "biuf":
        return _numeric_column(series.to_numpy(), columns, number)
    if series.isna().any():
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(series.to_numpy(dtype=f"{series.dtype.kind}{np.dtype(series.dtype.type).itemsize}"))


def _numeric_column(column: Array, columns: Names, number: int) -> Array:  # (N,) -> (N,)
    """One column as numbers; text, dates and complex numbers raise DataError with the column and a value."""
    kind, label = column.dtype.kind, column_label(columns, number)
    if kind in "biuf":
        return _native(column)
    if kind == "O":
        return _from_objects(column, label)
    if kind in "USTc":
        raise _not_a_number(column[0], label, 0)
    held = "dates or times" if kind in "mM" else "records"
    raise DataError(f"{label} holds {held} ({column.dtype}), expected numbers")


def _stack(arrays: list[Array]) -> Array:
    """Columns side by side, in the smallest type that holds them all."""
    return np.stack(arrays, axis=1, dtype=np.result_type(*{a.dtype for a in arrays}), casting="unsafe")


def _native(array: Array) -> Array:
    """In the machine's byte order; booleans as uint8, half precision as float32, extended as float64."""
    if array.dtype.kind == "b":
        return np.asarray(array).view(np.uint8)
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind == "f":
        dtype = np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    return np.asarray(array, dtype=dtype)


def _unmasked(array: Any) -> Array:
    """Masked entries become NaN (None in an array of objects); integers without masked ones stay integers."""
    mask = np.ma.getmaskarray(array)
    data = np.asarray(array.data)
    if not mask.any() or data.dtype.kind not in "biufO":
        return data
    filled: Array = data.astype(np.float64 if data.dtype.kind in "biu" else data.dtype)
    filled[mask] = None if data.dtype.kind == "O" else np.nan
    return filled


def _from_objects(column: Array, label: str) -> Array:
    found = [_number(value) for value in column]
    if None in found:
        row = found.index(None)
        raise _not_a_number(column[row], label, row)
    array = np.array(found)
    if array.dtype.kind != "O":
        return array
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise DataError(f"{label} holds a number too large for a float") from None


def _number(value: object) -> int | float | None:
    """A whole number as int, another as float, missing as NaN; None if it is no number."""
    if value is None or type(value).__name__ == "NAType":
        return float("nan")
    if isinstance(value, bool | np.bool_ | numbers.Integral):
        return int(cast("int", value))
    if isinstance(value, numbers.Real | Decimal):
        return float(value)
    return None


def _not_a_number(value: object, label: str, row: int) -> DataError:
    if isinstance(value, str | bytes):
        return DataError(f"{label}, row {row}: {_short(value)} is text; turn text into numbers first")
    if isinstance(value, complex | np.complexfloating):
        return DataError(f"{label}, row {row}: {value} is a complex number, expected a real one")
    return DataError(f"{label}, row {row}: {_short(value)} ({type(value).__name__}) is not a number")


def _short(value: object, most: int = 40) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= most else text[:most] + "..."
