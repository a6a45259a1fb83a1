"""What the columns of a data matrix hold: their range, their families, and small whole-number codes for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circurve.data import as_table
from circurve.data.convert import Array, column_label
from circurve.errors import DataError, warn_user
from circurve.inputs import Bernoulli, Categorical, Family, Gaussian

__all__ = ["MAX_STATES", "Codes", "Columns", "discretize", "infer_families", "row_chunks", "scan_columns"]

MAX_STATES = 256
"""Whole numbers below this count as the states of a categorical variable."""

CHUNK = 2**22
"""How many numbers of a matrix are worked on at once; a few temporaries of this size bound the extra memory."""

LOOKED_AT = 2**14
"""About so many rows, evenly taken from all tables, show where a column lies and how far it spreads."""

RESOLVED = 1e-5
"""float32 tells values apart whose spread is at least this share of their size."""


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
    """What the standard deviation would be without outliers (see `_centre`); NaN where the median is."""

    @property
    def binary(self) -> NDArray[np.bool_]:
        """Nothing but zeros and ones was observed."""
        return self.whole & ~(self.low < 0) & ~(self.high > 1)

    @property
    def countable(self) -> NDArray[np.bool_]:
        """Nothing but whole numbers from 0 to MAX_STATES - 1 was observed."""
        return self.whole & ~(self.low < 0) & ~(self.high >= MAX_STATES)


@dataclass(frozen=True, eq=False)
class Codes:
    """Each value as a code from 0 to `states - 1` of its column; a missing value has code `states`."""

    values: NDArray[np.int16]  # (N, V)
    states: NDArray[np.int64]  # (V,)


def row_chunks(rows: int, width: int) -> Iterator[slice]:
    """Slices of rows such that a chunk of `width` columns holds at most CHUNK numbers (but at least one row)."""
    step = max(1, CHUNK // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def scan_columns(*sources: ArrayLike) -> Columns:  # each (N, V)
    """Range, wholeness, missing values, median and spread of each column over all tables.

    Values are finite or NaN. Cost O(N V).
    """
    tables: list[Array] = [np.asarray(source) for source in sources]
    widths = {table.shape[1] for table in tables}
    if len(widths) != 1:
        raise DataError(f"the tables differ in their number of columns: {', '.join(str(w) for w in sorted(widths))}")
    low = np.fmin.reduce([np.fmin.reduce(table, axis=0).astype(np.float64) for table in tables])
    high = np.fmax.reduce([np.fmax.reduce(table, axis=0).astype(np.float64) for table in tables])
    whole, missing = np.ones(len(low), dtype=bool), np.zeros(len(low), dtype=bool)
    for part in (table[rows] for table in tables if table.dtype.kind == "f" for rows in row_chunks(*table.shape)):
        absent = np.isnan(part)
        missing |= absent.any(axis=0)
        whole &= ((part == np.trunc(part)) | absent).all(axis=0)
    unknown = np.full(len(low), np.nan)
    columns = Columns(low, high, whole, missing, unknown, unknown)
    median, spread = _centres(tables, ~columns.countable & (low < high))
    return replace(columns, median=median, spread=spread)


def _centres(tables: Sequence[np.ndarray], wanted: NDArray[np.bool_]) -> NDArray[np.float64]:  # (V,) -> (2, V)
    """Median and spread of the wanted columns, by LOOKED_AT rows; by all rows where those show a single value."""
    step = -(-sum(len(table) for table in tables) // LOOKED_AT)
    found = np.full((2, len(wanted)), np.nan)
    places = np.flatnonzero(wanted)
    for block in (places[some] for some in row_chunks(len(places), LOOKED_AT)):
        sample = np.concatenate([table[::step, block] for table in tables], dtype=np.float64)
        for v, column in zip(block, sample.T, strict=True):
            found[:, v] = _centre(column)
            if step > 1 and not found[1, v] > 0:
                found[:, v] = _centre(np.concatenate([table[:, v] for table in tables], dtype=np.float64))
    return found


def _centre(column: NDArray[np.float64]) -> tuple[float, float]:
    """Median and spread of the observed values; NaN if there are none.

    The spread is the standard deviation or the range between the quartiles / 1.349, whichever is smaller; for a
    Gaussian they are equal. A range of 0 says nothing.
    """
    observed = column[~np.isnan(column)]
    if not observed.size:
        return math.nan, math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        first, median, third = np.quantile(observed, [0.25, 0.5, 0.75])
        deviation, robust = observed.std(), (third - first) / 1.349
    return median, np.fmin(deviation, robust) if robust > 0 else deviation


def infer_families(*tables: object, missing: int | None = None) -> tuple[Family, ...]:
    """One input family for each column of data (N, V), from the values observed in it in all tables.

    Only 0 and 1 (or nothing at all): `Bernoulli`. Whole numbers from 0 to 255: `Categorical(largest + 1)`, so a
    value above the largest one seen here is impossible later; give training, validation and test data together, or
    name the families, where that may occur. Anything else: `Gaussian`, with a warning where -1 is the only thing
    against a discrete family, because it often marks what is missing. `missing` is the number that does.

    The `min_variance` of a Gaussian goes with the units of its column: 1e-4 s^2, where s is the spread of the values,
    outliers left aside, rounded to a power of ten: 1e-4 for a spread of about 1, and for a constant. It does not
    follow a spread that float32 cannot tell from rounding beside the median. Cost O(N V).
    """
    if not tables:
        raise DataError("infer_families needs at least one table")
    checked = [as_table(table, missing=missing) for table in tables]
    columns = scan_columns(*checked)
    suspects = np.flatnonzero(columns.whole & (columns.low == -1) & (columns.high < MAX_STATES))
    if suspects.size:
        more = f" and {suspects.size - 1} more" if suspects.size > 1 else ""
        where = column_label(checked[0].columns, int(suspects[0])) + more
        warn_user(f"{where}: whole numbers from -1 on, taken as Gaussian; if -1 marks missing values, say missing=-1")
    return families_of(columns)


def families_of(columns: Columns) -> tuple[Family, ...]:
    """The families that `infer_families` chooses, from facts already gathered."""
    families: list[Family] = []
    for v, high in enumerate(columns.high):
        if columns.binary[v]:
            families.append(Bernoulli())
        elif columns.countable[v]:
            families.append(Categorical(int(high) + 1))
        else:
            families.append(_gaussian(float(columns.median[v]), float(columns.spread[v])))
    return tuple(families)


def _gaussian(median: float, spread: float) -> Gaussian:
    """A Gaussian with min_variance 1e-4 s^2, s a power of ten: equal families share a layer of the engine.

    A spread too small beside the median is mostly rounding, which should not be fitted: there the floor goes down only
    as far as float32 sees.
    """
    if not spread > 0:
        return Gaussian()
    visible = max(spread, min(RESOLVED * abs(median), 1.0))
    power = round(math.log10(min(max(visible, 1e-13), 1e16)))
    return Gaussian(min_variance=float(f"1e{2 * power - 4}"))


def discretize(matrix: np.ndarray, columns: Columns, discrete: Sequence[bool], bins: int) -> Codes:
    """Codes of all columns: values themselves where `discrete` and small, bins between quantiles elsewhere.

    Cost O(N V), memory two bytes for each value.
    """
    direct = columns.countable & np.asarray(discrete)
    values = np.empty(matrix.shape, dtype=np.int16)
    states = np.ones(matrix.shape[1], dtype=np.int64)
    for v in range(matrix.shape[1]):
        column = matrix[:, v]
        present = ~np.isnan(column) if columns.missing[v] else np.ones(len(column), dtype=bool)
        observed = column[present]
        codes = observed if direct[v] else _quantile_bins(observed, bins)
        states[v] = 1 + int(codes.max(initial=0))
        values[:, v] = states[v]
        values[present, v] = codes
    return Codes(values, states)


def _quantile_bins(observed: np.ndarray, bins: int) -> NDArray[np.int64]:
    """The number of inner quantiles below each value: about `bins` bins of equal weight, fewer where values repeat.

    The quantiles are kept below the largest value, so that a column of two different values or more has two bins or
    more, however unequal their weights.
    """
    below = observed[observed < observed.max()] if observed.size else observed
    if not below.size:
        return np.zeros(len(observed), dtype=np.int64)
    edges = np.quantile(observed, np.arange(1, bins) / bins)
    return np.searchsorted(np.unique(np.minimum(edges, below.max())), observed, side="left")
