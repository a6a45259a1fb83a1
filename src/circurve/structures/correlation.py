"""Correlation of two columns of real numbers, whatever their units."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from circurve.data.scan import Columns

__all__ = ["centre_and_scale", "correlation"]

Array = NDArray[np.float64]

WIDEST, HUGE = 1e60, 1e150
"""A column wider than this many spreads, or with larger numbers, is scaled by its range: moments stay within
float64."""


def centre_and_scale(columns: Columns) -> tuple[Array, Array]:  # (V,) each
    """A centre and a scale for each column: median and spread, or middle and half of the range if they are safer."""
    middle = np.nan_to_num(columns.low / 2 + columns.high / 2)
    half = np.nan_to_num(columns.high / 2 - columns.low / 2)
    robust = (columns.spread > half / WIDEST) & (half < HUGE)
    scale = np.where(robust, columns.spread, np.where(half > 0, half, 1.0))
    return np.where(robust, columns.median, middle), scale


def correlation(u: np.ndarray, v: np.ndarray, weights: Array | None = None) -> float:  # (N,) each
    """Pearson's correlation over the rows where both are present, 0 if one is constant there: O(N)."""
    present = ~(np.isnan(u) | np.isnan(v))
    if weights is None:
        u, v = _deviations(u[present]), _deviations(v[present])
    else:
        kept = weights[present] / weights[present].sum()
        u, v = (_deviations(values[present], kept) * np.sqrt(kept) for values in (u, v))
    return float(np.clip(u @ v / (np.sqrt(u @ u) * np.sqrt(v @ v) or 1.0), -1, 1))


def _deviations(values: np.ndarray, shares: Array | None = None) -> Array:
    """Differences from the mean, of size 1 at most, and exactly 0 if all values are equal."""
    halves = values / 2  # whose differences are finite
    moved = halves - halves[:1]
    largest = np.abs(moved).max(initial=0.0)
    moved = moved / largest if largest > 0 else moved
    mean = moved.mean() if shares is None and moved.size else 0.0 if shares is None else moved @ shares
    return np.asarray(moved - mean)
