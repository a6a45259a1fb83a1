"""Data sets that are changed on purpose: noise in their cells, rows that are missing for a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from circurve.data import Dataset, Table

__all__ = ["Variant", "corrupted", "noisy_cells", "selected"]

RARE_KEPT = 10
"""Of the rows with the rarer value, `selected` keeps one in so many."""


@dataclass(frozen=True)
class Variant:
    """A change of a data set. Its name is a part of the ids of runs, and so says all that matters."""

    name: str
    change: Callable[[Dataset], Dataset]


def noisy_cells(table: Table, rows: float, cells: float, seed: int) -> Table:
    """A share of the rows, and in these a share of the cells, get the value of another row in the same column.

    Each column keeps its own distribution, about; what is lost is how columns belong together.
    """
    random = np.random.default_rng(seed)
    count, columns = table.shape
    hit = (random.random((count, 1)) < rows) & (random.random((count, columns)) < cells)
    donors = random.integers(0, max(1, count), (count, columns))
    place = torch.from_numpy(np.where(hit, donors, np.arange(count)[:, None])).to(table.values.device)
    observed = None if table.observed is None else table.observed.gather(0, place)
    return replace(table, values=table.values.gather(0, place), observed=observed)


def corrupted(rows: float, cells: float) -> Variant:
    """Noise in a share of the training and validation rows; test rows stay clean."""

    def change(data: Dataset) -> Dataset:
        valid = None if data.valid is None else noisy_cells(data.valid, rows, cells, seed=1)
        return replace(data, train=noisy_cells(data.train, rows, cells, seed=0), valid=valid)

    return Variant(f"corrupted {rows:g} {cells:g}", change)


def selected() -> Variant:
    """Training and validation lack most rows with the rarer value of one column; test rows are as they were.

    The column is the one whose most frequent value has the smallest share, so that the shift is large.
    """

    def change(data: Dataset) -> Dataset:
        values = np.asarray(data.train)
        common = [_most_frequent(values[:, column]) for column in range(values.shape[1])]
        shares = [float((values[:, column] == value).mean()) for column, value in enumerate(common)]
        column = int(np.argmin(shares))
        valid = None if data.valid is None else _thinned(data.valid, column, common[column])
        return replace(data, train=_thinned(data.train, column, common[column]), valid=valid)

    return Variant(f"selected 1/{RARE_KEPT}", change)


def _most_frequent(values: np.ndarray) -> float:  # (N,)
    found, counts = np.unique(values, return_counts=True)
    return float(found[counts.argmax()])


def _thinned(table: Table, column: int, common: float) -> Table:
    """All rows with the common value of a column, and one in RARE_KEPT of the others."""
    other = np.asarray(table)[:, column] != common
    rank = np.cumsum(other) - 1
    return table.rows(np.flatnonzero(~other | (rank % RARE_KEPT == 0)))
