"""What a claim is, and what the checks of claims have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from circurve.experiments.compare import paired
from circurve.experiments.summary import Chosen
from circurve.experiments.table import Number
from circurve.experiments.view import Shelf

__all__ = [
    "BEST_EPOCH",
    "CLEAR",
    "KEPT",
    "LAST_EPOCH",
    "OPENINGS",
    "SMOOTHED_OPENINGS",
    "Check",
    "Claim",
    "ProtocolCheck",
    "Rows",
    "Shelves",
    "gap",
    "judge",
    "listed",
    "mean",
    "mixed_starts",
    "rows_with",
    "signed",
]

KEPT, CLEAR = 0.05, 0.5
"""Nats: no loss to speak of, a clear gain."""

LAST_EPOCH, BEST_EPOCH = "With the last epoch (protocol `paper`)", "With the best epoch (protocol `best`)"
OPENINGS = {"paper": LAST_EPOCH, "best": BEST_EPOCH}
"""Protocol -> how a claim begins that is judged by it."""

SMOOTHED_OPENINGS = {"paper": LAST_EPOCH, "best": f"{BEST_EPOCH} and vanilla smoothed"}
"""The same, for comparisons with the vanilla of tables A to C."""

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

ProtocolCheck: TypeAlias = Callable[[Shelves, str], Claim | None]
"""The same by one protocol, which the claim names."""


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


def mixed_starts(rows: Rows, *labels: str) -> str:
    """A sentence about the data sets where validation chose different starts for the labels; nothing if there are none.

    It begins with a blank, to be put behind other evidence.
    """
    told = []
    for name, row in rows.items():
        starts = {label: row[label].method["init"] for label in labels}
        if len(set(starts.values())) > 1:
            told.append(f"{name} ({listed([f'{label} {start}' for label, start in starts.items()])})")
    return f" Starts differ: {listed(told)}." if told else ""


def listed(parts: Sequence[str]) -> str:
    """`a, b, c`."""
    return ", ".join(parts)


def signed(value: float, digits: int = 2) -> str:
    """`+0.12`."""
    return Number(value, None, digits, signed=True).text()
