"""What the estimators share: their parameters, the check of X, and training."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from circurve.data import Table, as_table
from circurve.errors import DataError
from circurve.estimators.compat import validate_data
from circurve.estimators.training import Recipe
from circurve.inputs import Family
from circurve.structures import infer_families

__all__ = ["CircuitEstimator", "checked_weights"]

Array = NDArray[Any]


class CircuitEstimator(BaseEstimator):  # type: ignore[misc]
    """The parameters of every estimator. A subclass with more of them repeats the list, as scikit-learn requires."""

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters from this signature
        self,
        n_units: int = 32,
        *,
        n_estimators: int = 4,
        structure: Any = "hclt",
        method: Any = "vanilla",
        mu: Any = "auto",
        init: Any = "auto",
        max_epochs: int = 100,
        batch_size: int | None = None,
        step_size: Any = None,
        pseudocount: float = 0.0,
        validation_fraction: float | None = 0.2,
        patience: int = 10,
        types: Any = None,
        random_state: Any = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_units = n_units
        self.n_estimators = n_estimators
        self.structure = structure
        self.method = method
        self.mu = mu
        self.init = init
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.step_size = step_size
        self.pseudocount = pseudocount
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.types = types
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _recipe(self) -> Recipe:
        return Recipe(**{name: getattr(self, name) for name in (f.name for f in fields(Recipe))})

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _training_table(self, x: Any, sample_weight: Any, *, reset: bool) -> Table:
        """X as a table with weights; rows of weight zero are left out."""
        array = validate_data(self, x, reset=reset)
        weights = checked_weights(sample_weight, array)
        return as_table(array) if weights is None else as_table(array[weights > 0], weights=weights[weights > 0])

    def _rows(self, x: Any) -> Array:
        """X for a fitted estimator, (N, V)."""
        check_is_fitted(self)
        array: Array = validate_data(self, x, reset=False)
        return array

    def _families(self, table: Table) -> tuple[Family, ...]:
        return infer_families(table) if self.types is None else self.types

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        return {"allow_nan": True}


def checked_weights(sample_weight: Any, x: Array) -> Array | None:
    """The weights of the rows of x, (N,) float64, at least one of them positive; None where none are given."""
    if sample_weight is None:
        return None
    weights: Array = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if (weights < 0).any():
        raise DataError(f"sample_weight: the weight of row {int((weights < 0).argmax())} is negative")
    if not weights.any():
        raise DataError("sample_weight: all weights are zero")
    return weights
