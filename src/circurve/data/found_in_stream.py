"""One column of a stream that a schema is inferred from: what the rules ask for, from some rows at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeAlias

import numpy as np

from circurve.data.convert import Array, Names, column_label
from circurve.data.found import Distinct, Facts, Found, facts_of
from circurve.data.recode import joint_coding, recoded
from circurve.data.table import Table
from circurve.schema import Coding, Value

__all__ = ["FoundInStream", "find_in_stream"]

MAX_DISTINCT = 1 << 16
"""Different values of a column that are counted, unless all of them are wanted; no rule asks for more."""

Pieces: TypeAlias = Callable[[], Iterator[Table]]
"""Makes a pass over tables that have one column."""


class FoundInStream(Found):
    """One column, after a pass over its rows; another one gives the sample for its spread."""

    def __init__(self, pieces: Pieces, columns: Names, number: int, seen: _Seen) -> None:
        self._pieces, self._seen = pieces, seen
        self.number, self.columns, self.coding = number, columns, seen.coding or Coding()

    @property
    def facts(self) -> Facts:
        return self._seen.facts

    @property
    def distinct(self) -> Distinct:
        pairs = sorted((self._number(value), count) for value, count in self._seen.counts.items())
        values, counts = (np.array([pair[at] for pair in pairs]) for at in (0, 1))
        return Distinct(values, counts, self._seen.complete)

    @property
    def first(self) -> float:
        return self._number(self._seen.first)

    def _number(self, value: Value) -> float:
        """A value in the coding of the whole column."""
        return float(value) if self.coding.categories is None else float(self._codes[value])

    @cached_property
    def _codes(self) -> dict[Value, int]:
        return {value: code for code, value in enumerate(self.coding.categories or ())}

    def sample(self, step: int) -> Array:
        found, start = [np.empty(0)], 0
        for piece in self._pieces():
            values = _observed(recoded(piece, [_coding(piece)], [self.coding])[0])
            found.append(values[-start % step :: step].copy())  # a view would keep the whole piece
            start += len(values)
        return np.concatenate(found)


class _Seen:
    """What was seen of a column so far."""

    def __init__(self, every_value: bool) -> None:
        self.coding: Coding | None = None
        self.facts = facts_of(np.empty(0))
        self.counts: dict[Value, int] = {}
        """Of each value, of text itself in place of its code; none of real numbers and dates."""

        self.complete = True
        self.first: Value = math.nan
        self._most = math.inf if every_value else MAX_DISTINCT

    def add(self, values: Array, coding: Coding, label: str) -> None:
        """More observed values, in a coding of their own."""
        if not values.size and not coding.categories:
            self.coding = self.coding or coding  # rows without values do not show what a column holds
            return
        unknown = self.coding is None or not (self.facts.size or self.coding.categories)
        self.coding = coding if unknown or self.coding is None else joint_coding([self.coding, coding], label)
        if values.size and not self.facts.size:
            self.first = _original(coding, values[0])
        self.facts = _together(self.facts, facts_of(values))
        if coding.kind == "date" or not self.facts.whole:
            self.counts = {}
        elif self.complete:
            for value, count in zip(*np.unique(values, return_counts=True), strict=True):
                key = _original(coding, value)
                self.counts[key] = self.counts.get(key, 0) + int(count)
            self.complete = len(self.counts) <= self._most

    @property
    def names_rows(self) -> bool:
        """Whether this is text with more different values than are counted, so that the rest is not read."""
        return not self.complete and self.coding is not None and self.coding.kind == "category"


def find_in_stream(pieces: Pieces, columns: Names, number: int, every_value: bool) -> FoundInStream:
    """A column after a pass over it: the one of this number among all columns of the stream.

    every_value: whether more than MAX_DISTINCT different values are counted.
    """
    seen = _Seen(every_value)
    for piece in pieces():
        seen.add(_observed(piece), _coding(piece), column_label(columns, number))
        if seen.names_rows:
            break
    return FoundInStream(pieces, columns, number, seen)


def _coding(piece: Table) -> Coding:
    return Coding() if piece.codings is None else piece.codings[0]


def _observed(piece: Table) -> Array:  # (n,)
    values = np.asarray(piece[:, 0], dtype=np.float64)
    return values[~np.isnan(values)]


def _original(coding: Coding, value: float) -> Value:
    return float(value) if coding.categories is None else coding.categories[int(value)]


def _together(a: Facts, b: Facts) -> Facts:
    """The facts of two lots of values: M2 = M2_a + M2_b + (mean_b - mean_a)^2 n_a n_b / n (Chan et al., 1983)."""
    if not a.size or not b.size:
        return a if a.size else b
    size = a.size + b.size
    low, high, whole = min(a.low, b.low), max(a.high, b.high), a.whole and b.whole
    if not whole:
        return Facts(size, low, high, whole, math.nan, math.nan)
    shift, share = b.mean - a.mean, b.size / size
    with np.errstate(over="ignore", invalid="ignore"):
        square = float(np.square(np.float64(shift)))
        variance = (1 - share) * a.variance + share * b.variance + square * share * (1 - share)
    return Facts(size, low, high, whole, a.mean + share * shift, variance)
