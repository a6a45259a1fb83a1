"""Small whole-number codes for the columns of a data matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circurve.data.scan import Columns

__all__ = ["Codes", "discretize"]


@dataclass(frozen=True, eq=False)
class Codes:
    """Each value as a code from 0 to `states - 1` of its column; a missing value has code `states`."""

    values: NDArray[np.int16]  # (N, V)
    states: NDArray[np.int64]  # (V,)


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
