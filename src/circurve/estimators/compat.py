"""The parts of scikit-learn whose names changed between the versions that the package supports (1.4 and later)."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import _check_feature_names_in

try:
    from sklearn.utils.validation import validate_data as _validate_data

    FINITE = "ensure_all_finite"
except ImportError:  # before 1.6 it was a method of every estimator

    def _validate_data(estimator: Any, **options: Any) -> Any:
        return estimator._validate_data(**options)

    FINITE = "force_all_finite"

__all__ = ["input_names", "validate_data"]


def validate_data(estimator: Any, x: Any, y: Any = None, *, reset: bool) -> Any:
    """X as an array of numbers in which NaN is missing, (N, V), and y if it is given.

    `reset` notes the number and the names of the columns in the estimator; otherwise they are compared.
    """
    labels = {} if y is None else {"y": y}
    return _validate_data(estimator, X=x, reset=reset, dtype="numeric", **labels, **{FINITE: "allow-nan"})


def input_names(estimator: Any, input_features: Any) -> list[str]:
    """The names of the columns that a fitted estimator was given; x0, x1, ... where they have none."""
    return [str(name) for name in _check_feature_names_in(estimator, input_features)]
