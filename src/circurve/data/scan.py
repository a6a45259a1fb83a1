"""Facts of the columns of a table: their range, whether they are whole, what is missing, their centre and spread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circurve.data.chosen_rows import ChosenRows
from circurve.data.convert import Array
from circurve.data.stream import Stream
from circurve.errors import DataError

__all__ = ["MAX_STATES", "SAMPLED_ROWS", "Columns", "centre", "row_chunks", "scan_columns"]

MAX_STATES = 256
"""Whole numbers below this count as the states of a categorical variable."""

CHUNK = 2**22
"""How many numbers of a matrix are worked on at once; a few temporaries of this size bound the extra memory."""

BYTES_PER_NUMBER = 32
"""What a number takes while its chunk is looked at: itself, cut to a whole one, and whether it is there and whole."""

SAMPLED_ROWS = 2**14
"""About this many evenly spaced rows of all tables are used to estimate the centre and the spread of a column."""


Source: TypeAlias = Array | ChosenRows | Stream
"""Rows x columns of numbers, read as `source[:1000, 2:5]`."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Facts of each column, missing values left aside; all arrays are (V,). A column never observed has range NaN."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    whole: NDArray[np.bool_]
    """All observed values are whole numbers."""

    missing: NDArray[np.bool_]
    """Some value is missing."""

    median: NDArray[np.float64]
    """The middle value; NaN for a column that is countable or constant."""

    spread: NDArray[np.float64]
    """What the standard deviation would be without outliers (see `centre`); NaN where the median is."""

    @cached_property
    def binary(self) -> NDArray[np.bool_]:
        """Only zeros and ones were observed."""
        return self.whole & ~(self.low < 0) & ~(self.high > 1)

    @cached_property
    def empty(self) -> NDArray[np.bool_]:
        """Nothing was observed."""
        return np.isnan(self.low)

    @cached_property
    def countable(self) -> NDArray[np.bool_]:
        """Only whole numbers from 0 to MAX_STATES - 1 were observed."""
        return self.whole & ~(self.low < 0) & ~(self.high >= MAX_STATES)


def row_chunks(rows: int, width: int, most: int = CHUNK) -> Iterator[slice]:
    """Slices of rows such that a chunk of `width` columns holds at most `most` numbers (but at least one row)."""
    step = max(1, most // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def scan_columns(*sources: ArrayLike | Source, memory_budget: int | None = None) -> Columns:  # each (N, V)
    """Range, wholeness, missing values, median and spread of each column over all tables.

    Values are finite or NaN. Cost O(N V). memory_budget: bytes for what is computed; fewer numbers at once fit less.
    """
    most = CHUNK if memory_budget is None else min(CHUNK, memory_budget // BYTES_PER_NUMBER)
    tables: list[Source] = [
        source if isinstance(source, Stream | ChosenRows) else np.asarray(source) for source in sources
    ]
    widths = {table.shape[1] for table in tables}
    if len(widths) != 1:
        raise DataError(f"the tables differ in their number of columns: {', '.join(str(w) for w in sorted(widths))}")
    low, high = (np.full(tables[0].shape[1], np.nan) for _ in range(2))
    whole, missing = np.ones(len(low), dtype=bool), np.zeros(len(low), dtype=bool)
    for part in (part for table in tables for part in _parts(table, most)):
        low = np.fmin(low, np.fmin.reduce(part, axis=0))
        high = np.fmax(high, np.fmax.reduce(part, axis=0))
        if part.dtype.kind == "f":
            absent = np.isnan(part)
            missing |= absent.any(axis=0)
            whole &= ((part == np.trunc(part)) | absent).all(axis=0)
    unknown = np.full(len(low), np.nan)
    columns = Columns(low, high, whole, missing, unknown, unknown)
    median, spread = _centres(tables, ~columns.countable & (low < high), most)
    return replace(columns, median=median, spread=spread)


def _parts(table: Source, most: int) -> Iterator[Array]:
    """All rows, some at a time."""
    if isinstance(table, Stream):
        return (np.asarray(piece) for piece in table.pieces(max(1, most // max(1, table.shape[1]))))
    return (table[rows] for rows in row_chunks(len(table), table.shape[1], most))


def _centres(tables: Sequence[Source], wanted: NDArray[np.bool_], most: int) -> NDArray[np.float64]:  # (V,) -> (2, V)
    """Median and spread of the wanted columns, by SAMPLED_ROWS rows; by all rows where those show a single value."""
    step = -(-sum(len(table) for table in tables) // SAMPLED_ROWS)
    found = np.full((2, len(wanted)), np.nan)
    places = np.flatnonzero(wanted)
    for block in (places[some] for some in row_chunks(len(places), SAMPLED_ROWS, most)):
        sample = np.concatenate([table[::step, block] for table in tables], dtype=np.float64)
        for v, column in zip(block, sample.T, strict=True):
            found[:, v] = centre(column)
            if step > 1 and not found[1, v] > 0:
                found[:, v] = centre(np.concatenate([table[:, v] for table in tables], dtype=np.float64))
    return found


def centre(column: NDArray[np.float64]) -> tuple[float, float]:
    """Median and spread of the observed values; NaN if there are none.

    The spread is the standard deviation or the range between the quartiles / 1.349, whichever is smaller; for a
    Gaussian they are equal. A range of 0 gives no information.
    """
    observed = column[~np.isnan(column)]
    if not observed.size:
        return math.nan, math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        first, median, third = np.quantile(observed, [0.25, 0.5, 0.75])
        deviation, robust = observed.std(), (third - first) / 1.349
    return median, np.fmin(deviation, robust) if robust > 0 else deviation
