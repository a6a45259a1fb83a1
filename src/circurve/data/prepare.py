"""Data and a circuit -> a table that the engine takes; and a warning about columns far from zero."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from circurve.data.align import align
from circurve.data.check import check
from circurve.data.convert import about, column_label
from circurve.data.entry import as_table
from circurve.data.table import Table
from circurve.data.unseen import Unseen
from circurve.errors import DataError, warn_user
from circurve.graph import Circuit
from circurve.inputs import Family
from circurve.schema import Schema

__all__ = ["prepare", "warn_of_lost_digits"]

FARTHEST = {torch.float32: 1e5, torch.float64: 1e7}
"""So many spreads a column's mean may lie from zero before log-likelihoods lose their second digit; sums of squares set
the limit of float64."""

LOOKED_AT = 20_000
"""About so many rows are enough to see where a column lies."""


def prepare(  # noqa: PLR0913 - what comes with rows, and what to do with them
    data: Any,
    circuit: Circuit,
    what: str,
    *,
    schema: Schema | None = None,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    unseen: Unseen = "error",
) -> Table:
    """Align data to the schema, by default that of the circuit, and check them; `what` ("train") opens every message.

    Without a schema, the data's own names and codings make one, with the families of the circuit.
    """
    with about(f"{what} data"):
        table = as_table(data, weights=weights, labels=labels, missing=missing)
        schema = schema or circuit.schema
        if schema is not None:
            table = align(table, schema, unseen=unseen)
        table = check(table, circuit.families, circuit.outputs)
    empty, rows = table.empty_rows, len(table)
    if empty == rows:
        raise DataError(f"{what} data: every value is missing")
    if empty:
        warn_user(f"{what} data: {empty} of {rows} rows have no observed value and say nothing")
    return table


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
        label = column_label(train.columns, continuous[number])
        cure = ", or use precision='float64'" if abs(mean[number]) <= FARTHEST[torch.float64] * spread[number] else ""
        return warn_user(
            f"train data: {label} has a spread of {spread[number]:.2g} around {mean[number]:.6g}, more digits than "
            f"{str(dtype).removeprefix('torch.')} holds: subtract a constant from it{cure}"
        )
