"""Users' data for training and scoring: rows with optional weights and labels, checked against the circuit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circurve.data import Table, as_matrix, encode
from circurve.data.convert import Names, column_label
from circurve.errors import DataError, OptionError, warn_user
from circurve.graph import Circuit
from circurve.inputs import Family

__all__ = ["Examples", "Prepared", "check_alike", "prepare", "warn_of_lost_digits"]

LARGEST_WEIGHT = 1e18
"""Weights, their squares and their inverses must be finite in float32; one this much smaller than the largest is 0."""

FARTHEST = {torch.float32: 1e5, torch.float64: 1e7}
"""So many spreads a column's mean may lie from zero before log-likelihoods lose their second digit; sums of squares set
the limit of float64."""

LOOKED_AT = 20_000
"""About so many rows are enough to see where a column lies."""


@dataclass(frozen=True)
class Examples:
    """Rows of data with what belongs to them; `fit` takes one wherever it takes plain data.

    weights: one number >= 0 for each row. labels: which output of a circuit with several roots each row belongs to.
    missing: a whole number that marks missing values in integer data, beside NaN in floating data.
    """

    data: Any
    weights: Any = None
    labels: Any = None
    missing: int | None = None

    @classmethod
    def of(cls, data: Any, weights: Any = None, labels: Any = None, missing: int | None = None) -> Examples:
        """Data as they were given to `fit`, plain or with what belongs to them, and what was said beside them."""
        if not isinstance(data, cls):
            return cls(data, weights, labels, missing)
        said = {"weights": weights, "labels": labels, "missing": missing}
        more = {name: value for name, value in said.items() if value is not None}
        for name in more:
            if getattr(data, name) is not None:
                raise OptionError(f"{name}= is given twice, to Examples and to fit")
        return replace(data, **more)


@dataclass(frozen=True)
class Prepared:
    """Examples in the form the engine takes."""

    columns: Names
    table: Table
    weights: Tensor | None  # (N,) float64
    labels: Tensor | None  # (N,) int64


def prepare(data: Any, circuit: Circuit, what: str) -> Prepared:
    """Check data against a circuit; `what` ("train", "valid", ...) opens every message."""
    examples = data if isinstance(data, Examples) else Examples(data)
    try:
        matrix = as_matrix(examples.data)
        table = encode(matrix, circuit.families, missing=examples.missing)
        rows = len(table.values)
        weights = None if examples.weights is None else _weights(examples.weights, rows)
        labels = _labels(examples.labels, rows, circuit.outputs)
    except DataError as error:
        raise DataError(f"{what} data: {error}") from error
    if table.empty_rows == rows:
        raise DataError(f"{what} data: every value is missing")
    if table.empty_rows:
        warn_user(f"{what} data: {table.empty_rows} of {rows} rows have no observed value and say nothing")
    return Prepared(matrix.columns, table, weights, labels)


def check_alike(parts: Mapping[str, Prepared]) -> None:
    """Refuse parts whose columns have other names than those of `train`, or the same in another order."""
    wanted = parts["train"].columns
    for what, part in parts.items():
        if wanted is None or part.columns is None:
            continue
        for number, (name, expected) in enumerate(zip(part.columns, wanted, strict=True)):
            if name != expected:
                raise DataError(f"{what} data: column {number} is {name!r}, but {expected!r} in the training data")


def warn_of_lost_digits(train: Prepared, families: Sequence[Family], dtype: torch.dtype) -> None:
    """Warn of a column whose values lie too far from zero, and too close together, for the precision."""
    continuous = [v for v, family in enumerate(families) if not family.discrete]
    if not continuous:
        return
    rows = train.table.values
    values = rows[:: 1 + len(rows) // LOOKED_AT, continuous].numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without a value has no mean
        mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    for number in np.flatnonzero((spread > 0) & (np.abs(mean) > FARTHEST[dtype] * spread)):
        label = column_label(train.columns, continuous[number])
        wider = abs(mean[number]) <= FARTHEST[torch.float64] * spread[number]
        cure = ", or use precision='float64'" if wider else ""
        warn_user(
            f"train data: {label} has a spread of {spread[number]:.2g} around {mean[number]:.6g}, more digits than "
            f"{str(dtype).removeprefix('torch.')} holds: subtract a constant from it{cure}"
        )
        return


def _vector(values: Any, rows: int, name: str) -> Tensor:  # (N,) float64
    try:
        vector = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except ValueError:
        raise DataError(f"{name} must be {rows} numbers, but form no row of them") from None
    if vector.shape != (rows,):
        raise DataError(f"{name} have shape {vector.shape}, expected ({rows},)")
    if vector.dtype.kind not in "biuf":
        raise DataError(f"{name} must be numbers, not {vector.tolist()[0]!r}")
    return torch.from_numpy(vector.astype(np.float64))


def _weights(values: Any, rows: int) -> Tensor:
    weights = _vector(values, rows, "weights")
    wrong = ~(weights.isfinite() & (weights >= 0))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(f"the weight of row {row} is {float(weights[row]):g}; weights are finite and >= 0")
    largest = float(weights.max())
    if largest == 0:
        raise DataError("all weights are zero")
    if not 1 / LARGEST_WEIGHT <= largest <= LARGEST_WEIGHT:
        raise DataError(f"the largest weight is {largest:g}; scale them so that it lies between 1e-18 and 1e18")
    return torch.where(weights < largest / LARGEST_WEIGHT, 0.0, weights)


def _labels(values: Any, rows: int, outputs: int) -> Tensor | None:
    if values is None:
        if outputs > 1:
            raise DataError(f"the circuit has {outputs} outputs: say with labels which one each row belongs to")
        return None
    labels = _vector(values, rows, "labels")
    if not bool((labels.isfinite() & (labels == labels.floor())).all()):
        raise DataError("labels must be whole numbers")
    labels = labels.long()
    if bool(((labels < 0) | (labels >= outputs)).any()):
        row = int(((labels < 0) | (labels >= outputs)).nonzero()[0])
        raise DataError(f"the label of row {row} is {int(labels[row])}; the circuit has outputs 0 to {outputs - 1}")
    return labels if outputs > 1 else None
