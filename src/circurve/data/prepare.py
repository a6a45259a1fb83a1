"""Users' data for training and scoring, checked against a circuit; messages say which part of the data is meant."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from circurve.data.check import check
from circurve.data.convert import about, column_label
from circurve.data.entry import as_table
from circurve.data.table import Table
from circurve.errors import DataError, warn_user
from circurve.graph import Circuit
from circurve.inputs import Family

__all__ = ["check_alike", "prepare", "warn_of_lost_digits"]

FARTHEST = {torch.float32: 1e5, torch.float64: 1e7}
"""So many spreads a column's mean may lie from zero before log-likelihoods lose their second digit; sums of squares set
the limit of float64."""

LOOKED_AT = 20_000
"""About so many rows are enough to see where a column lies."""


def prepare(
    data: Any, circuit: Circuit, what: str, *, weights: Any = None, labels: Any = None, missing: int | None = None
) -> Table:
    """Check data against a circuit; `what` ("train", "valid", ...) opens every message."""
    with about(f"{what} data"):
        table = as_table(data, weights=weights, labels=labels, missing=missing)
        table = check(table, circuit.families, circuit.outputs)
    empty, rows = table.empty_rows, len(table)
    if empty == rows:
        raise DataError(f"{what} data: every value is missing")
    if empty:
        warn_user(f"{what} data: {empty} of {rows} rows have no observed value and say nothing")
    return table


def check_alike(parts: Mapping[str, Table]) -> None:
    """Refuse parts whose columns have other names than those of `train`, or the same in another order."""
    wanted = parts["train"].columns
    for what, part in parts.items():
        if wanted is None or part.columns is None:
            continue
        for number, (name, expected) in enumerate(zip(part.columns, wanted, strict=True)):
            if name != expected:
                raise DataError(f"{what} data: column {number} is {name!r}, but {expected!r} in the training data")


def warn_of_lost_digits(train: Table, families: Sequence[Family], dtype: torch.dtype) -> None:
    """Warn of a column whose values lie too far from zero, and too close together, for the precision."""
    continuous = [v for v, family in enumerate(families) if not family.discrete]
    if not continuous:
        return
    values = train[:: 1 + len(train) // LOOKED_AT, continuous]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without a value has no mean
        mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    for number in np.flatnonzero((spread > 0) & (np.abs(mean) > FARTHEST[dtype] * spread)):
        label, far = column_label(train.columns, continuous[number]), abs(mean[number]) / spread[number]
        cure = ", or use precision='float64'" if far <= FARTHEST[torch.float64] else ""
        return warn_user(
            f"train data: {label} has a spread of {spread[number]:.2g} around {mean[number]:.6g}, more digits than "
            f"{str(dtype).removeprefix('torch.')} holds: subtract a constant from it{cure}"
        )
