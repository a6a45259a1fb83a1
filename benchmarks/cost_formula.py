"""The cost of data-parallel EM as formulas: seconds and memory of a step, bytes and seconds of the network.

    seconds = latency + per_level L + per_level_row L N + per_weight R V K^2
              + per_cell R V N + per_value R I N K' + per_edge R I N K K'

for a step of R runs of a hidden Chow-Liu tree over V columns with K states, on N rows. I of the columns have children;
the others are computed once for each value of the column and not for each row. L is the number of sum layers, one after
the other; the rows of a layer that does not fill the device still take their time. K' is K rounded up to a multiple of
16, the smallest tile that a matrix unit multiplies. Memory is

    bytes = weight_bytes R V K^2 + column_bytes R V N K + inner_bytes R I N K

Constants are at least 0 and have the least sum of squared relative errors over the sizes of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

TILE = 16
"""K is rounded up to a multiple of this."""

TERMS = ("latency", "per_level", "per_level_row", "per_weight", "per_cell", "per_value", "per_edge")
MEMORY_TERMS = ("weight_bytes", "column_bytes", "inner_bytes")

STATISTIC_BYTES = 8
"""Statistics travel between workers as float64."""

NUMBERS_PER_RUN = 4
"""Log-likelihood, weight, impossible and broken samples of a run travel with its counts."""

TOLERANCE = 0.2
"""The largest relative error of a good prediction."""


@dataclass(frozen=True)
class Size:
    """One step: rows in a batch, columns, states of a latent, runs side by side; and the shape of the tree."""

    rows: int
    columns: int
    units: int
    runs: int
    inner: int
    """Columns that have children in the tree."""

    levels: int
    """Sum layers, one after the other."""

    @property
    def weights(self) -> int:
        """R V K^2: all weights but for the root's."""
        return self.runs * self.columns * self.units**2

    @property
    def cells(self) -> int:
        """R V N."""
        return self.runs * self.columns * self.rows

    @property
    def inner_cells(self) -> int:
        """R I N."""
        return self.runs * self.inner * self.rows


def balanced(rows: int, columns: int, units: int, runs: int = 1) -> Size:
    """A step of the tree in which column v has the children 2 v + 1 and 2 v + 2."""
    return Size(rows, columns, units, runs, columns // 2, max(1, math.ceil(math.log2(columns + 1))))


def terms(size: Size) -> list[float]:
    """What each constant of TERMS is multiplied with."""
    values = size.inner_cells * TILE * math.ceil(size.units / TILE)
    layers = (size.levels, size.levels * size.rows)
    return [float(value) for value in (1, *layers, size.weights, size.cells, values, values * size.units)]


def memory_terms(size: Size) -> list[float]:
    """What each constant of MEMORY_TERMS is multiplied with."""
    return [float(value) for value in (size.weights, size.cells * size.units, size.inner_cells * size.units)]


def fit(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> list[float]:
    """The constants c >= 0 with the least sum of ((c . row) / measured - 1)^2."""
    matrix = np.array(rows) / np.array(measured)[:, None]
    scale = matrix.max(0)
    scale[scale == 0] = 1.0
    found, _ = nnls(matrix / scale, np.ones(len(measured)))
    return [float(value) for value in found / scale]


def predict(constants: Sequence[float], row: Sequence[float]) -> float:
    """The sum of constants times terms."""
    return float(np.dot(constants, row))


def parts(count: int) -> list[str]:
    """Of sizes in a fixed order, every third is held out of the fit."""
    return ["check" if place % 3 == 2 else "fit" for place in range(count)]


def error_summary(errors: Sequence[float]) -> dict[str, float]:
    """Of relative errors: how many, the median, the largest, and the share within TOLERANCE."""
    sizes = np.abs(errors)
    return {
        "sizes": len(sizes),
        "median": float(np.median(sizes)),
        "largest": float(sizes.max()),
        "within_20_percent": float(np.mean(sizes <= TOLERANCE)),
    }


def statistics_bytes(size: Size, input_statistics: int = 2) -> int:
    """Bytes that a worker hands to the all-reduce of a step.

    Counts of all weights (K^2 for each column but the root's, which has K), `input_statistics` numbers for each input
    unit (of a binary column: the flow, and the flow of ones), and NUMBERS_PER_RUN.
    """
    weights = (size.columns - 1) * size.units**2 + size.units
    inputs = size.columns * size.units * input_statistics
    return STATISTIC_BYTES * size.runs * (weights + inputs + NUMBERS_PER_RUN)


def all_reduce_seconds(message: float, workers: int, bytes_per_second: float, hop_seconds: float) -> float:
    """Seconds of a ring all-reduce: 2 (M - 1) messages of 1/M of the bytes, one after the other, for M workers."""
    hops = 2 * (workers - 1)
    return hops * (message / workers / bytes_per_second + hop_seconds)
