"""The parts of scikit-learn whose names changed between the versions that the package supports (1.4 and later)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_feature_names_in, check_X_y

try:
    from sklearn.utils.validation import validate_data as _validate_data

    FINITE = "ensure_all_finite"
except ImportError:  # before 1.6 it was a method of every estimator

    def _validate_data(estimator: Any, skip_check_array: bool = False, **options: Any) -> Any:
        if not skip_check_array:
            return estimator._validate_data(**options)
        estimator._check_feature_names(options["X"], reset=options["reset"])
        return estimator._check_n_features(options["X"], reset=options["reset"])

    FINITE = "force_all_finite"

__all__ = ["check_columns", "check_numbers", "check_target", "input_names"]


def check_numbers(estimator: Any, x: Any, *, reset: bool) -> Any:
    """X as an array of numbers, (N, V), in which NaN is missing.

    `reset` notes the number and the names of the columns in the estimator; otherwise they are compared.
    """
    return _validate_data(estimator, X=x, reset=reset, dtype="numeric", **{FINITE: "allow-nan"})


def check_columns(estimator: Any, frame: Any, *, reset: bool) -> None:
    """Note, or compare, the number and the names of a frame's columns; values are not looked at."""
    _validate_data(estimator, X=frame, reset=reset, skip_check_array=True)


def check_target(y: Any, rows: int) -> Any:
    """y as an array of one label for each of the `rows` rows, (N,)."""
    return check_X_y(np.zeros((rows, 1)), y)[1]


def input_names(estimator: Any, input_features: Any) -> list[str]:
    """The names of the columns that a fitted estimator was given; x0, x1, ... where they have none."""
    return [str(name) for name in _check_feature_names_in(estimator, input_features)]
