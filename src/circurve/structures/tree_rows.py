"""The rows that a tree is found from, and how much each of them counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from circurve.data import Stream
from circurve.data.check import check_weights
from circurve.data.chosen_rows import ChosenRows
from circurve.data.convert import Array

__all__ = ["ROW_WEIGHT_BYTES", "Matrix", "TreeRows", "weighted_rows"]

Matrix = Array | ChosenRows | Stream
"""Rows x columns of numbers, read as `matrix[:1000, 2:5]`."""

ROW_WEIGHT_BYTES = 56
"""Bytes for each row of a table with weights: its number and its weight, and both in the order of a column's values."""


@dataclass(frozen=True, eq=False)
class TreeRows:
    """Rows of positive weight."""

    matrix: Matrix  # (N, V)
    weights: NDArray[np.float64] | None = None  # (N,)
    """None: each row counts once, and counts are exact."""

    weighed: bool = False
    """The table has weights; they take memory even if they leave rows out and do nothing else."""


def weighted_rows(array: Array, weights: Tensor | None) -> TreeRows:
    """The rows (N, V) with their weights w; those of weight 0 are left out.

    A pseudocount is a number of samples of weight 1. It would outweigh weights that sum to 1, so weights are divided by
    their weighted mean, sum w^2 / sum w, if it is below 1. It is at least 1 if all weights are whole numbers: a row of
    weight 2 counts as two rows.
    """
    if weights is None:
        return TreeRows(array)
    checked = check_weights(weights.cpu()).numpy()
    numbers = np.flatnonzero(checked)
    matrix = array if len(numbers) == len(checked) else ChosenRows(array, numbers)
    positive = checked[numbers]
    if positive[0] <= 1 and (positive == positive[0]).all():
        return TreeRows(matrix, weighed=True)
    mean = float(positive @ positive) / float(positive.sum())
    return TreeRows(matrix, positive / min(1.0, mean), weighed=True)
