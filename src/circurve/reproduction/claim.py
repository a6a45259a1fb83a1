"""What a claim is, and what the checks of claims have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from circurve.reproduction.outputs import Shelf
from circurve.reproduction.summary import Chosen, Rows
from circurve.reproduction.table import Number

__all__ = ["TERMS", "Check", "Claim", "Found", "agreed", "judged", "rows_with", "settings_in_words"]

Found: TypeAlias = Mapping[str, tuple[Sequence[bool], str]]
"""Data set -> whether it agrees, one answer or several, and its numbers."""


TERMS = """The paper adds a penalty on sharpness to EM, in order to reduce overfitting. It compares three methods:
**vanilla** is EM without a penalty, **global** puts the same penalty on every sum node, **gated** a stronger penalty on
sharper nodes. Sharpness is the trace of the Hessian of the loss. The contribution of a node to the trace is **T**, its
use squared times its own sharpness **t**. A score is the mean log-likelihood of the test rows in nats; higher is
better."""

SETTINGS = {
    "paper": "the settings of the paper; the last epoch counts",
    "paper-own": "the settings of the paper, and a hidden variable for every column; the last epoch counts",
    "smoothed": "as `paper`, with a pseudocount of 0.1 in every method",
    "best": "validation chooses the epoch, the strength and the pseudocount",
}
"""What each protocol does, for readers who have not read the paper."""


@dataclass(frozen=True)
class Claim:
    """A statement, whether it holds, and the numbers."""

    text: str
    holds: bool | None
    """None if it holds in part."""

    evidence: str
    group: str = ""
    line: str = ""
    """The claim in a few words."""

    protocol: str = ""
    """Whose records it is judged by; empty where none are needed."""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "does not hold", None: "holds in part"}[self.holds]


Check: TypeAlias = Callable[[Shelf, str], Claim | None]
"""A claim judged by the records of one protocol; None where they do not decide it."""


def judged(text: str, found: Found, numbers: str, starts: str = "") -> Claim | None:
    """The claim with its verdict; None if there are no answers. `numbers` says what the numbers are."""
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
    """The label that validation prefers, among those that were run."""
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


def settings_in_words(protocols: Iterable[str]) -> str:
    """What the names of protocols in the list of claims mean."""
    known = set(protocols)
    lines = [f"- `{name}`: {text}" for name, text in SETTINGS.items() if name in known]
    return "\n".join(["Each claim was checked under one or more protocols:\n", *lines]) if lines else ""
