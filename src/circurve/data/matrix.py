"""The one door through which users' data enter: anything like a table -> `Matrix`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from circurve.data.convert import Array, Names, column_label, first_true, numeric_array
from circurve.data.frames import frame_columns, frame_values, is_frame
from circurve.errors import DataError

__all__ = ["Matrix", "as_matrix"]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A table of numbers with at least one row and one column, and no infinities.

    It may share memory with the data it was made from.
    """

    values: Array
    """(N, V): an integer type where nothing is missing, else float32 or float64 with NaN for missing."""

    columns: Names = None
    """The columns' names, where they have any."""


def as_matrix(data: Any) -> Matrix:
    """Take a numpy array, torch tensor, nested list, pandas data frame or scipy sparse matrix as a table.

    Integers keep their type, booleans become uint8, float32 and float64 stay what they are. NaN, None, pandas.NA and
    the masked entries of a masked array are missing. Raises DataError for whatever is not a table of numbers.
    """
    if isinstance(data, Matrix):
        return data
    columns = frame_columns(data) if is_frame(data) else None
    array = _as_array(data, columns)
    _check_shape(array, data)
    values = numeric_array(array, columns)
    if values.dtype.kind == "f" and (infinite := np.isinf(values)).any():
        row, column = first_true(infinite)
        raise DataError(f"{column_label(columns, column)}, row {row}: {values[row, column]} is not finite")
    return Matrix(values, columns)


def _as_array(data: Any, columns: Names) -> Array:
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, torch.Tensor):
        return _from_tensor(data)
    if is_frame(data):
        return frame_values(data, columns)
    if any(k.__module__.startswith("scipy.sparse") for k in type(data).__mro__):
        return np.asarray(data.toarray())
    try:
        array = np.asarray(data)
    except (ValueError, TypeError):
        raise DataError(_why_no_table(data)) from None
    # numpy turns [[1, "a"]] into text throughout; as objects, the culprit can still be told from its neighbours
    return np.array(data, dtype=object) if array.dtype.kind in "US" and isinstance(data, Sequence) else array


def _from_tensor(tensor: torch.Tensor) -> Array:
    dense = tensor.detach().cpu().to_dense().resolve_conj().resolve_neg()
    narrow = dense.is_floating_point() and dense.element_size() < 4  # numpy does not know all of these
    return np.asarray((dense.float() if narrow else dense).numpy())


def _why_no_table(data: Any) -> str:
    lengths = [len(row) if hasattr(row, "__len__") else 0 for row in data] if isinstance(data, Sequence) else []
    for row, length in enumerate(lengths):
        if length != lengths[0]:
            return f"rows differ in length: row 0 has {lengths[0]} values, row {row} has {length}"
    return f"the {type(data).__name__} does not form rows x columns of numbers"


def _check_shape(array: Array, data: object) -> None:
    if array.ndim == 0:
        raise DataError(f"data must be a table, rows x columns of numbers, not a {type(data).__name__}")
    if array.shape[0] == 0:
        raise DataError("data has no rows")
    if array.ndim == 1:
        raise DataError(
            f"data has 1 dimension (shape {array.shape}), expected rows x columns; "
            "for a single row use data.reshape(1, -1), for a single column data.reshape(-1, 1)"
        )
    if array.ndim != 2:
        raise DataError(f"data has {array.ndim} dimensions (shape {array.shape}), expected rows x columns")
    if array.shape[1] == 0:
        raise DataError("data has no columns")
