"""Some rows of an array without a copy of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import Array

__all__ = ["ChosenRows"]


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Rows of an array by their numbers; only those that are asked for are copied: `rows[:1000, 2:5]`."""

    array: Array  # (all rows, V)
    numbers: NDArray[np.int64]  # (N,)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, V)."""
        return len(self.numbers), int(self.array.shape[1])

    def __getitem__(self, key: Any) -> Array:
        """The cells of a slice of rows; columns are a slice, a number or an array of numbers."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        numbers = self.numbers[rows]
        cells = self.array[np.ix_(numbers, columns)] if np.ndim(columns) else self.array[numbers, columns]
        return np.asarray(cells)
