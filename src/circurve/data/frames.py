"""pandas data frames, without importing pandas: only its objects' own methods are used."""

from __future__ import annotations

from typing import Any

import numpy as np

from circurve.data.convert import Array, Names, numeric_column, stack_columns

__all__ = ["frame_columns", "frame_values", "is_frame"]


def is_frame(data: object) -> bool:
    """Whether `data` is a pandas.DataFrame or of a class derived from it."""
    return any(k.__name__ == "DataFrame" and k.__module__.split(".")[0] == "pandas" for k in type(data).__mro__)


def frame_columns(frame: Any) -> Names:
    """The columns' names as text; None for the numbers that pandas gives to columns without names."""
    names = list(frame.columns)
    return None if names == list(range(len(names))) else tuple(str(name) for name in names)


def frame_values(frame: Any, columns: Names) -> Array:  # (N, V)
    """The frame as numbers, NaN where it holds NaN, None or NA; text raises DataError."""
    dtypes = set(frame.dtypes)
    if not dtypes or not len(frame):
        return np.empty(frame.shape)
    if all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in dtypes):
        common = np.result_type(*(np.uint8 if dtype.kind == "b" else dtype for dtype in dtypes))
        return np.asarray(frame.to_numpy(dtype=common))
    return stack_columns([_column(frame.iloc[:, v], columns, v) for v in range(frame.shape[1])])


def _column(series: Any, columns: Names, number: int) -> Array:
    if isinstance(series.dtype, np.dtype) or series.dtype.kind not in "biuf":
        return numeric_column(series.to_numpy(), columns, number)
    if series.isna().any():
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(series.to_numpy(dtype=f"{series.dtype.kind}{np.dtype(series.dtype.type).itemsize}"))
