"""Small whole-number codes for the columns of a data matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circurve.data import Stream
from circurve.data.chosen_rows import ChosenRows
from circurve.data.scan import SAMPLED_ROWS, Columns

__all__ = ["Codes", "discretize"]


@dataclass(frozen=True, eq=False)
class LazyCodes:
    """The codes of a stream, made from its rows whenever they are asked for: `codes[:1000, 2:5]`."""

    stream: Stream
    edges: Sequence[NDArray[np.float64] | None]
    """Between the bins of each column; None where values are their own codes."""

    states: NDArray[np.int64]  # (V,)

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[np.int16]:
        rows, block = key
        cells = self.stream[rows, block]
        result = np.empty(cells.shape, dtype=np.int16)
        for at, (edges, states) in enumerate(zip(self.edges[block], self.states[block], strict=True)):
            column = cells[:, at]
            absent = np.isnan(column)
            codes = np.where(absent, 0, column) if edges is None else np.searchsorted(edges, column, side="left")
            result[:, at] = np.where(absent, states, codes)
        return result


@dataclass(frozen=True, eq=False)
class Codes:
    """Each value as a code from 0 to `states - 1` of its column; a missing value has code `states`."""

    values: NDArray[np.int16] | LazyCodes  # (N, V)
    states: NDArray[np.int64]  # (V,)


def discretize(
    matrix: np.ndarray | ChosenRows,
    columns: Columns,
    discrete: Sequence[bool],
    bins: int,
    weights: NDArray[np.float64] | None = None,
) -> Codes:
    """Codes of all columns: values themselves where `discrete` and small, bins between quantiles elsewhere.

    weights: (N,), above 0; quantiles are then those of a table in which rows are repeated so often.

    Cost O(N V), memory two bytes for each value.
    """
    direct = columns.countable & np.asarray(discrete)
    values = np.empty(matrix.shape, dtype=np.int16)
    states = np.ones(matrix.shape[1], dtype=np.int64)
    for v in range(matrix.shape[1]):
        column = matrix[:, v]
        present = ~np.isnan(column) if columns.missing[v] else np.ones(len(column), dtype=bool)
        observed = column[present]
        kept = None if weights is None or direct[v] else weights[present]
        codes = observed if direct[v] else _quantile_bins(observed, bins, kept)
        states[v] = 1 + int(codes.max(initial=0))
        values[:, v] = states[v]
        values[present, v] = codes
    return Codes(values, states)


def discretize_lazily(stream: Stream, columns: Columns, discrete: Sequence[bool], bins: int) -> Codes:
    """The columns of a stream, with quantiles from evenly spaced rows. Only the edges of the bins are kept."""
    direct = columns.countable & np.asarray(discrete)
    binned = np.flatnonzero(~direct)
    edges: list[NDArray[np.float64] | None] = [None] * len(direct)
    if binned.size:
        sample = stream[:: 1 + len(stream) // SAMPLED_ROWS, binned]
        for v, column in zip(binned, sample.T, strict=True):
            edges[v] = _edges(column[~np.isnan(column)], bins)
    highest = np.nan_to_num(columns.high).astype(np.int64)
    states = np.array([highest[v] + 1 if bounds is None else len(bounds) + 1 for v, bounds in enumerate(edges)])
    return Codes(LazyCodes(stream, edges, states), states)


def _quantile_bins(
    observed: np.ndarray, bins: int, weights: NDArray[np.float64] | None
) -> NDArray[np.int64]:  # (n,) -> (n,)
    """The number of inner quantiles below each value: about `bins` bins of equal weight, fewer where values repeat.

    The quantiles are kept below the largest value, so that a column of two different values or more has two bins or
    more, however unequal their weights.
    """
    return np.searchsorted(_edges(observed, bins, weights), observed, side="left")


def _edges(observed: np.ndarray, bins: int, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """The different inner quantiles, none for a column with a single value.

    With weights that sum to W, the q-quantile is the smallest value such that it and those below weigh more than
    (W - 1) q: the one that `np.quantile` starts from in a table of repeated rows, which has the same values below it.
    """
    below = observed[observed < observed.max()] if observed.size else observed
    if not below.size:
        return np.zeros(0)
    quantiles = np.arange(1, bins) / bins
    if weights is None:
        edges = np.quantile(observed, quantiles)
    else:
        order = np.argsort(observed)
        below_or_at = np.cumsum(weights[order])
        edges = observed[order[np.searchsorted(below_or_at, (below_or_at[-1] - 1) * quantiles, side="right")]]
    return np.unique(np.minimum(edges, below.max()))
