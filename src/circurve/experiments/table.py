"""A table as data: cells with a mean, a standard deviation and a mark; see `render` for what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from circurve.experiments.summary import Spread

__all__ = ["Cell", "Number", "Report", "Table", "mark_best"]


@dataclass(frozen=True)
class Number:
    """A number to show."""

    mean: float
    std: float | None = None
    digits: int = 2
    mark: Literal["best", "second"] | None = None
    signed: bool = False

    @classmethod
    def of(cls, values: Spread, digits: int = 2) -> Number:
        """Mean and standard deviation over seeds."""
        return cls(values.mean, values.std, digits)

    def text(self, plus_minus: str = "±") -> str:
        """`-12.66±0.02`; a dash for what is not known."""
        if math.isnan(self.mean):
            return "-"
        sign = "+" if self.signed else ""
        text = f"{self.mean:{sign}.{self.digits}f}"
        if float(text) == 0:
            text = text.lstrip("+-")  # no -0.00
        return text if self.std is None else f"{text}{plus_minus}{self.std:.{self.digits}f}"


Cell: TypeAlias = Number | str
"""Text is shown as it is."""


@dataclass(frozen=True)
class Table:
    """Heads and rows; text columns are flushed left, all others right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    text_columns: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Report:
    """All there is to say about one table of the paper."""

    name: str
    title: str
    tables: tuple[Table, ...]
    """The main one first."""

    notes: tuple[str, ...]
    """How the numbers came about: protocol, choices, and what to run to get them again."""

    columns: tuple[str, ...]
    values: tuple[dict[str, Any], ...] = field(repr=False)
    """The same numbers unrounded, one row for each, for the CSV file."""


def mark_best(numbers: Sequence[Number]) -> list[Number]:
    """Mark the highest mean as best and the next as second; nothing to mark where there is no choice."""
    order = sorted((i for i, n in enumerate(numbers) if not math.isnan(n.mean)), key=lambda i: -numbers[i].mean)
    marked = list(numbers)
    if len(order) > 1:
        marked[order[0]] = replace(numbers[order[0]], mark="best")
        marked[order[1]] = replace(numbers[order[1]], mark="second")
    return marked
