"""Missing values filled in from the joint distribution, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from circurve.errors import DataError, OptionError
from circurve.estimators.base import CircuitEstimator, weighted
from circurve.estimators.compat import input_names
from circurve.estimators.training import build, learn
from circurve.learning.checks import check_choice
from circurve.schema import Schema

__all__ = ["CircuitImputer"]

Floats = NDArray[np.float64]

STRATEGIES = ("mean", "mode", "sample")


class CircuitImputer(TransformerMixin, CircuitEstimator):  # type: ignore[misc]
    """Fills each hole given all observed values of its row; values that are there stay as they are.

    strategy: "mean" is the conditional mean of numbers and the most probable category, the best guess of each cell by
    itself; "mode" is the most probable completion of the whole row; "sample" is a draw from the joint distribution of
    all holes of a row, the same one at every call. add_indicator: append a column of zeros and ones for each column
    that had missing values in training. The other parameters are those of `DensityEstimator`.

    Attributes: `model_`, `n_iter_`, `indicator_features_` (the numbers of the columns with an indicator),
    `n_features_in_`, `feature_names_in_`.
    """

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters from this signature
        self,
        n_units: int = 32,
        *,
        strategy: str = "mean",
        add_indicator: bool = False,
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
        schema: Schema | None = None,
        unseen: Any = "impossible",
        random_state: Any = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_units,
            n_estimators=n_estimators,
            structure=structure,
            method=method,
            mu=mu,
            init=init,
            max_epochs=max_epochs,
            batch_size=batch_size,
            step_size=step_size,
            pseudocount=pseudocount,
            validation_fraction=validation_fraction,
            patience=patience,
            types=types,
            schema=schema,
            unseen=unseen,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.strategy = strategy
        self.add_indicator = add_indicator

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CircuitImputer:  # noqa: N803
        """Learn the joint distribution of X (N, V), NaN for missing; y is ignored."""
        check_choice("strategy", self.strategy, STRATEGIES)
        recipe, seed = self._recipe(), self._seed()
        table, _ = weighted(self._training_rows(X, reset=True), sample_weight)
        learned = learn(recipe, build(recipe, table, self.schema_), table, seed)
        self.model_, self.n_iter_, self._draw = learned.model, learned.epochs, seed
        missing = np.zeros(table.shape[1], bool) if table.observed is None else ~table.observed.numpy().all(axis=0)
        self.indicator_features_ = np.flatnonzero(missing) if self.add_indicator else np.array([], dtype=np.int64)
        return self

    def transform(self, X: Any) -> Floats:  # noqa: N803
        """X with its holes filled, (N, V), and indicators after it where `add_indicator` asks for them."""
        rows = np.asarray(self._rows(X), dtype=np.float64)
        holes = np.isnan(rows)
        filled = rows.copy()
        some = holes.any(axis=1)
        if some.any():
            filled[some] = np.where(holes[some], self._completed(rows[some]), rows[some])
        return np.hstack([filled, holes[:, self.indicator_features_].astype(np.float64)])

    def inverse_transform(self, X: Any) -> Floats:  # noqa: N803
        """X as it was before `transform`: NaN where an indicator says so. Needs `add_indicator=True`."""
        check_is_fitted(self)
        if not self.add_indicator:
            raise OptionError("inverse_transform needs add_indicator=True: without indicators the holes are not known")
        rows, width = np.array(X, dtype=np.float64), self.n_features_in_
        expected = width + len(self.indicator_features_)
        if rows.ndim != 2 or rows.shape[1] != expected:
            raise DataError(f"X has shape {rows.shape}, expected {expected} columns: {width} and the indicators")
        values, marks = rows[:, :width], rows[:, width:]
        values[:, self.indicator_features_] = np.where(marks > 0, np.nan, values[:, self.indicator_features_])
        return values

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The names of the columns of X, and `missingindicator_NAME` for indicators."""
        check_is_fitted(self)
        names = input_names(self, input_features)
        return np.array([*names, *(f"missingindicator_{names[v]}" for v in self.indicator_features_)], dtype=object)
