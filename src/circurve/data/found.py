"""One column that a schema is inferred from, as the rules see it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import MAX_EXACT, Array, Names, column_label
from circurve.data.scan import SAMPLED_ROWS, centre
from circurve.data.table import Table
from circurve.errors import warn_user
from circurve.inputs import Categorical, Family, Gaussian
from circurve.schema import Coding, Column, Kind, Value

__all__ = ["Distinct", "Facts", "Found", "FoundInTables", "facts_of", "gaussian_for"]

RELATIVE_RESOLUTION = 1e-5
"""float32 tells values apart whose spread is at least this share of their size."""


@dataclass(frozen=True)
class Facts:
    """What is known of the observed values of a column, as numbers in its coding."""

    size: int
    """How many there are."""

    low: float
    high: float
    whole: bool
    mean: float
    """Of whole numbers; NaN for others."""

    variance: float
    """Of whole numbers; NaN for others."""


@dataclass(frozen=True)
class Distinct:
    """The different observed values of a column, ascending."""

    values: NDArray[np.float64]  # (D,)
    counts: NDArray[np.int64]  # (D,)
    complete: bool = True
    """False if there are more, which were not counted."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def words(self) -> str:
        """How many there are, for messages."""
        return str(len(self)) if self.complete else f"at least {len(self)}"


class Found(ABC):
    """One column, as the rules for schemas see it."""

    coding: Coding
    number: int
    columns: Names

    @property
    def name(self) -> str | None:
        return self.columns[self.number] if self.columns else None

    @property
    def label(self) -> str:
        return column_label(self.columns, self.number)

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """Of all observed values."""

    @property
    @abstractmethod
    def distinct(self) -> Distinct:
        """The observed values, each once."""

    @property
    @abstractmethod
    def first(self) -> float:
        """The first observed value."""

    @abstractmethod
    def sample(self, step: int) -> Array:
        """Every step-th observed value."""

    @property
    def gaussian(self) -> Gaussian:
        """The Gaussian with the floor for the spread of the column."""
        return gaussian_for(*centre(self.sample(1 + self.facts.size // SAMPLED_ROWS)))

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


class FoundInTables(Found):
    """One column of all tables in memory together."""

    def __init__(self, tables: Sequence[Table], number: int, coding: Coding) -> None:
        self.tables, self.number, self.coding, self.columns = tables, number, coding, tables[0].columns

    @cached_property
    def observed(self) -> Array:  # (n,)
        values: Array = np.concatenate([np.asarray(table[:, self.number], dtype=np.float64) for table in self.tables])
        return values[~np.isnan(values)]

    @cached_property
    def facts(self) -> Facts:
        return facts_of(self.observed)

    @cached_property
    def distinct(self) -> Distinct:
        return Distinct(*np.unique(self.observed, return_counts=True))

    @property
    def first(self) -> float:
        return float(self.observed[0])

    def sample(self, step: int) -> Array:
        return self.observed[::step]


def facts_of(values: Array) -> Facts:  # (n,)
    """The facts of observed values."""
    if not values.size:
        return Facts(0, math.nan, math.nan, True, math.nan, math.nan)
    with np.errstate(over="ignore", invalid="ignore"):  # squares of numbers above 1e154: such columns are no counts
        whole = bool((values == np.floor(values)).all())
        moments = (float(values.mean()), float(values.var())) if whole else (math.nan, math.nan)
        return Facts(values.size, float(values.min()), float(values.max()), whole, *moments)


def gaussian_for(median: float, spread: float) -> Gaussian:
    """A Gaussian with min_variance 1e-4 s^2 for the spread s.

    A spread too small compared with the median is mostly rounding, which should not be fitted: there the floor goes
    down only as far as float32 sees.
    """
    if not spread > 0:
        return Gaussian()
    visible = max(spread, min(RELATIVE_RESOLUTION * abs(median), 1.0))
    return Gaussian(min_variance=1e-4 * min(max(visible, 1e-13), 1e16) ** 2)
