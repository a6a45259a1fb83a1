"""One column of all tables that a schema is inferred from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import MAX_EXACT, Array, column_label
from circurve.data.scan import SAMPLED_ROWS, centre
from circurve.data.table import Table
from circurve.errors import warn_user
from circurve.inputs import Categorical, Family, Gaussian
from circurve.schema import Coding, Column, Kind, Value

__all__ = ["Found", "gaussian_for"]

RELATIVE_RESOLUTION = 1e-5
"""float32 tells values apart whose spread is at least this share of their size."""


@dataclass(frozen=True, eq=False)
class Found:
    """One column of all tables together."""

    tables: Sequence[Table]
    number: int
    coding: Coding

    @property
    def table(self) -> Table:
        """The first of them."""
        return self.tables[0]

    @cached_property
    def observed(self) -> Array:  # (n,)
        """The numbers in this coding."""
        values: Array = np.concatenate([np.asarray(table[:, self.number], dtype=np.float64) for table in self.tables])
        return values[~np.isnan(values)]

    @property
    def name(self) -> str | None:
        return self.table.columns[self.number] if self.table.columns else None

    @property
    def label(self) -> str:
        return column_label(self.table.columns, self.number)

    @property
    def gaussian(self) -> Gaussian:
        """The Gaussian with the floor for the spread of the column."""
        return gaussian_for(*centre(self.observed[:: 1 + len(self.observed) // SAMPLED_ROWS]))

    def column(self, family: Family, reason: str, kind: Kind = "number") -> Column:
        return Column(self.name, family, kind, None, self.coding.origin if kind == "date" else None, reason)

    def categories(self, categories: Sequence[Value], reason: str) -> Column:
        """A Categorical over categories."""
        return Column(self.name, Categorical(max(1, len(categories))), "category", tuple(categories), reason=reason)

    def numbers(self, distinct: NDArray[Any], reason: str) -> Column:
        """A Categorical over numbers; they are their own codes where they are 0, 1, 2, ..."""
        if float(np.abs(distinct).max(initial=0)) >= MAX_EXACT:
            found = f"{self.label}: whole numbers beyond 2^53, such as {int(np.abs(distinct).max())}, are rounded"
            warn_user(f"{found}, so that different ones become one category; convert the column to text, or drop it")
        values: list[Value] = [int(value) if float(value).is_integer() else float(value) for value in distinct]
        if values and values == list(range(len(values))):
            return self.column(Categorical(len(values)), reason)
        return self.categories(values, reason)


def gaussian_for(median: float, spread: float) -> Gaussian:
    """A Gaussian with min_variance 1e-4 s^2 for the spread s.

    A spread too small compared with the median is mostly rounding, which should not be fitted: there the floor goes
    down only as far as float32 sees.
    """
    if not spread > 0:
        return Gaussian()
    visible = max(spread, min(RELATIVE_RESOLUTION * abs(median), 1.0))
    return Gaussian(min_variance=1e-4 * min(max(visible, 1e-13), 1e16) ** 2)
