"""The memory that data take as a table, by their shape and type, before the table is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from circurve.budget import Need
from circurve.data.frames import as_narwhals
from circurve.data.table import Table

__all__ = ["check_data", "check_inferred", "table_bytes"]

NUMBER_BYTES = 12
"""A number of a data frame as float64, with whether it is there, and its code in a schema."""

OBJECT_BYTES = 24
"""A text, date or other object of a data frame, a list or a mapping while it becomes a number."""

NARROW_BYTES = 2
"""The least bytes for each value of an array: its code, and a copy of it while codes are checked."""

COLUMN_BYTES = 32
"""A value of the column that a family is chosen for: in float64, without missing values, sorted, counted."""

UNCHECKED_BYTES = 16 << 20
"""Bytes for which free memory is not looked up without a budget: that takes longer than to make so small a table."""


def table_bytes(*tables: Any) -> int:
    """About how much these data take as tables, in bytes; 0 for what is read piece by piece."""
    return sum(_table_bytes(data) for data in tables)


def check_data(what: str, memory_budget: int | None, *tables: Any) -> int | None:
    """What a budget leaves once these data are tables; MemoryLimitError, before they are made, if it is too small."""
    size = table_bytes(*tables)
    if memory_budget is None and size <= UNCHECKED_BYTES:
        return None
    cure = "use fewer rows, or pass open_stream(x), which keeps few of them in memory"
    return Need(what, {"data": size}, cure).left(memory_budget)


def check_inferred(what: str, memory_budget: int | None, *tables: Any) -> int | None:
    """What a budget leaves for a scan of these tables, next to the tables and a column of all of them."""
    if memory_budget is None:
        return None
    rows = sum(_rows(data) for data in tables)
    parts = {"data": table_bytes(*tables), "a column": COLUMN_BYTES * rows}
    return Need(what, parts, "use fewer rows, or pass open_stream(x)").left(memory_budget)


def _rows(data: Any) -> int:
    if isinstance(data, Mapping):
        return max((_length(column) for column in data.values()), default=0)
    shape = getattr(data, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else _length(data)


def _table_bytes(data: Any) -> int:
    if isinstance(data, Table):
        return data.nbytes
    if isinstance(data, str | np.memmap):
        return 0
    if isinstance(data, np.ndarray) or hasattr(data, "toarray") or isinstance(data, Tensor):
        cells = int(np.prod(data.shape, dtype=np.float64))
        size = data.element_size() if isinstance(data, Tensor) else np.dtype(data.dtype).itemsize
        plain = isinstance(data, Tensor) or data.dtype.kind in "biuf"
        return cells * (max(size, NARROW_BYTES) if plain else max(size, OBJECT_BYTES))
    if isinstance(data, Mapping):
        return sum(OBJECT_BYTES * _length(column) for column in data.values())
    if isinstance(data, Sequence):
        return OBJECT_BYTES * len(data) * (_length(data[0]) if len(data) else 0)
    frame = as_narwhals(data)
    if frame is None:
        return 0
    rows, kinds = len(frame), frame.schema.dtypes()
    return sum(rows * (NUMBER_BYTES if kind.is_numeric() else OBJECT_BYTES) for kind in kinds)


def _length(column: Any) -> int:
    return len(column) if hasattr(column, "__len__") and not isinstance(column, str) else 1
