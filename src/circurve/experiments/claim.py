"""What a claim is, and what the checks of claims have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from circurve.experiments.compare import paired
from circurve.experiments.summary import Chosen
from circurve.experiments.table import Number
from circurve.experiments.view import Shelf

__all__ = ["CLEAR", "KEPT", "Check", "Claim", "Shelves", "gap", "judge", "listed", "mean", "rows_with", "signed"]

KEPT, CLEAR = 0.05, 0.5
"""Nats: no loss to speak of, a clear gain."""

Shelves: TypeAlias = Mapping[str, Shelf]
"""Protocol -> its records."""

Rows: TypeAlias = Mapping[str, Mapping[str, Chosen]]


@dataclass(frozen=True)
class Claim:
    """A statement, whether it holds, and the numbers."""

    text: str
    holds: bool | None
    """None: in part."""

    evidence: str

    @property
    def verdict(self) -> str:
        """In words."""
        return {True: "holds", False: "does not hold", None: "holds in part"}[self.holds]


Check: TypeAlias = Callable[[Shelves], Claim | None]
"""None where the records say nothing about it."""


def judge(answers: Sequence[bool]) -> bool | None:
    """True or False if all answers agree, else None."""
    return all(answers) if all(answers) or not any(answers) else None


def rows_with(shelves: Shelves, protocol: str, table: str, *labels: str) -> Rows:
    """Data sets on which all the labels were run."""
    if protocol not in shelves:
        return {}
    rows = shelves[protocol].chosen(table)
    return {name: row for name, row in rows.items() if all(label in row for label in labels)}


def mean(chosen: Chosen, name: str = "test_ll") -> float:
    """A score, its mean over seeds."""
    return chosen.spread(name).mean


def gap(row: Mapping[str, Chosen], first: str, second: str) -> float:
    """First minus second in test log-likelihood, seed by seed."""
    return paired(row[first], row[second]).mean


def listed(parts: Sequence[str]) -> str:
    """`a, b, c`."""
    return ", ".join(parts)


def signed(value: float, digits: int = 2) -> str:
    """`+0.12`."""
    return Number(value, None, digits, signed=True).text()
