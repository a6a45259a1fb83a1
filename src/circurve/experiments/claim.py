"""What a claim is, and what the checks of claims have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from circurve.experiments.outputs import Shelf
from circurve.experiments.summary import Chosen, Rows
from circurve.experiments.table import Number

__all__ = ["Check", "Claim", "Found", "agreed", "judged", "rows_with"]

Found: TypeAlias = Mapping[str, tuple[Sequence[bool], str]]
"""Data set -> whether it agrees, one answer or several, and its numbers."""


@dataclass(frozen=True)
class Claim:
    """A statement, whether it holds, and the numbers."""

    text: str
    holds: bool | None
    """None: in part."""

    evidence: str
    group: str = ""
    line: str = ""
    """The claim in a few words."""

    protocol: str = ""
    """Whose records it is judged by; empty where none are needed."""

    @property
    def verdict(self) -> str:
        """In words."""
        return {True: "holds", False: "does not hold", None: "holds in part"}[self.holds]


Check: TypeAlias = Callable[[Shelf, str], Claim | None]
"""A claim judged by the records of one protocol; None where they do not decide it."""


def judged(text: str, found: Found, numbers: str, starts: str = "") -> Claim | None:
    """None without answers; `numbers` says what the numbers are."""
    answers = [answer for given, _ in found.values() for answer in given]
    if not answers:
        return None
    told = ", ".join(f"{name} {shown}" for name, (_, shown) in found.items())
    return Claim(text, agreed(answers), f"{numbers}: {told}.{starts}")


def agreed(answers: Sequence[bool]) -> bool | None:
    """True or False if all answers agree, else None."""
    return all(answers) if all(answers) or not any(answers) else None


def rows_with(shelf: Shelf, table: str, *labels: str) -> Rows:
    """Data sets on which all the labels were run."""
    return {name: row for name, row in shelf.chosen(table).items() if set(labels) <= row.keys()}


def best_of(row: Mapping[str, Chosen], labels: Iterable[str]) -> str:
    """Of the labels that were run, the one that validation prefers."""
    return max((label for label in labels if label in row), key=lambda label: row[label].mean("valid_ll"))


def mixed_starts(rows: Rows, *labels: str) -> str:
    """A sentence about the data sets where validation chose different starts for the labels; nothing if there are none.

    It begins with a blank, to be put behind other evidence.
    """
    told = []
    for name, row in rows.items():
        starts = {label: row[label].method["init"] for label in labels}
        if len(set(starts.values())) > 1:
            told.append(f"{name} ({', '.join(f'{label} {start}' for label, start in starts.items())})")
    return f" Starts differ: {', '.join(told)}." if told else ""


def signed(value: float, digits: int = 2) -> str:
    """`+0.12`."""
    return Number(value, None, digits, signed=True).text()
