"""A few rows of numbers, checked in a few operations: what `as_table` and `check` do, without the records between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data.table import Table
from circurve.inputs import Family

__all__ = ["QuickCheck"]

Columns: TypeAlias = tuple[NDArray[np.float64], NDArray[np.bool_] | None]
"""Values (V, N) with 0 where nothing is observed, and what is observed (V, N), None if everything is."""

LARGEST = float(np.iinfo(np.int32).max)
"""The largest value of a discrete column."""


class QuickCheck:
    """Says which plain arrays fit the families of a circuit; made once for a model.

    It accepts only what `check(as_table(data), families)` accepts, and raises nothing: what it does not accept goes
    that longer way, which names the culprit or takes what is out of the ordinary here (frames, lists, masked arrays).
    """

    def __init__(self, families: Sequence[Family]) -> None:
        self._width = len(families)
        largest = [_largest(family) for family in families]
        bounded = [family.discrete for family in families]
        self._least = np.where(bounded, 0.0, -np.finfo(float).max)[:, None]  # (V, 1)
        self._most = np.array([LARGEST if most is None else most for most in largest])[:, None]
        self._most[~np.array(bounded)] = np.finfo(float).max
        self._whole: slice | list[int] | None = [v for v, family in enumerate(families) if family.discrete] or None
        if self._whole is not None and len(self._whole) == self._width:
            self._whole = slice(None)
        self._others: dict[Family, list[int]] = {}
        for number, (family, most) in enumerate(zip(families, largest, strict=True)):
            if most is None:
                self._others.setdefault(family, []).append(number)

    def __call__(self, data: Any) -> Columns | None:
        """The columns of an array, tensor or table (N, V) that fits, in memory of their own; None for all else."""
        if isinstance(data, Table):
            return self._of_table(data)
        if type(data) is Tensor and data.device.type == "cpu" and data.layout == torch.strided:
            data = data.detach().numpy() if data.dtype in NUMBERS else None
        if type(data) is not np.ndarray or data.ndim != 2 or data.dtype.kind not in "biuf":
            return None
        if data.shape[1] != self._width or not len(data):
            return None
        columns = np.array(data.T, dtype=np.float64, order="C")
        observed: NDArray[np.bool_] | None = None
        if data.dtype.kind == "f":
            observed = ~np.isnan(columns)
            if observed.all():
                observed = None
            else:
                columns[~observed] = 0
        return (columns, observed) if self._fits(columns, observed) else None

    def _of_table(self, table: Table) -> Columns | None:
        if table.shape[1] != self._width or not len(table):
            return None
        columns = np.array(table.values.detach().cpu().numpy().T, dtype=np.float64, order="C")
        observed = None if table.observed is None else np.ascontiguousarray(table.observed.cpu().numpy().T)
        if observed is not None:
            columns[~observed] = 0
        return (columns, observed) if self._fits(columns, observed) else None

    def _fits(self, columns: NDArray[np.float64], observed: NDArray[np.bool_] | None) -> bool:
        if not ((columns >= self._least) & (columns <= self._most)).all():
            return False
        if self._whole is not None:
            whole = columns[self._whole]
            if not (np.floor(whole) == whole).all():
                return False
        for family, numbers in self._others.items():
            block = columns[numbers]
            seen = block.reshape(-1) if observed is None else block[observed[numbers]]
            if family.check_values(seen) is not None:
                return False
        return True


NUMBERS = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
)
"""What torch and numpy both know."""


def _largest(family: Family) -> float | None:
    """S - 1 for a family that takes exactly 0, 1, ..., S - 1; None for all others, which are asked value by value."""
    support = family.support()
    if not family.discrete or support is None or support != tuple(range(len(support))):
        return None
    taken = family.check_values(np.arange(len(support))) is None
    return float(len(support) - 1) if taken and family.check_values(np.array([len(support)])) is not None else None
