"""The numbers that `fit` and `evaluate` report."""

from __future__ import annotations

import numpy as np

from circurve.data.convert import Array
from circurve.errors import DataError, OptionError
from circurve.model import Model

__all__ = ["degree_of_overfitting", "mean_log_likelihood", "sharpness"]


def mean_log_likelihood(model: Model, values: Array, what: str) -> float:
    """The mean of log p over rows, in nats; -inf if a row has probability zero. `what` opens messages."""
    if model.circuit.outputs != 1:
        raise OptionError(f"the model has {model.circuit.outputs} outputs; only models with one can be evaluated")
    try:
        return float(np.mean(model.log_prob(values)))
    except DataError as error:
        raise DataError(f"{what}: {error}") from error


def degree_of_overfitting(train_ll: float | None, valid_ll: float | None) -> float | None:
    """|L_valid - L_train| / |L_valid|, where both are known and it is a number."""
    if train_ll is None or valid_ll is None or not np.isfinite([train_ll, valid_ll]).all() or valid_ll == 0:
        return None
    return abs(valid_ll - train_ll) / abs(valid_ll)


def sharpness(model: Model, train: Array | None) -> float | None:
    """The mean over training samples of the trace of the Hessian; not measured yet."""
    return None
