"""Users' data for training and scoring: rows with optional weights and labels, checked against the circuit."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circurve.data import Table, as_matrix, encode
from circurve.errors import CircurveWarning, DataError
from circurve.graph import Circuit

__all__ = ["Examples", "Prepared", "prepare"]

LARGEST_WEIGHT = 1e18
"""Weights, their squares and their inverses must be finite in float32; one this much smaller than the largest is 0."""


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


@dataclass(frozen=True)
class Prepared:
    """Examples in the form the engine takes."""

    table: Table
    weights: Tensor | None  # (N,) float64
    labels: Tensor | None  # (N,) int64


def prepare(data: Any, circuit: Circuit, what: str) -> Prepared:
    """Check data against a circuit; `what` ("train", "valid", ...) opens every message."""
    examples = data if isinstance(data, Examples) else Examples(data)
    try:
        table = encode(as_matrix(examples.data), circuit.families, missing=examples.missing)
        rows = len(table.values)
        weights = None if examples.weights is None else _weights(examples.weights, rows)
        labels = _labels(examples.labels, rows, circuit.outputs)
    except DataError as error:
        raise DataError(f"{what} data: {error}") from error
    if table.empty_rows == rows:
        raise DataError(f"{what} data: every value is missing")
    if table.empty_rows:
        warnings.warn(
            f"{what} data: {table.empty_rows} of {rows} rows have no observed value and say nothing",
            CircurveWarning,
            stacklevel=4,
        )
    return Prepared(table, weights, labels)


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
