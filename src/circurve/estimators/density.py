"""The density of a table, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import DensityMixin

from circurve.estimators.base import CircuitEstimator, weighted
from circurve.estimators.training import build, learn, learn_more

__all__ = ["DensityEstimator"]

Floats = NDArray[np.float64]


class DensityEstimator(DensityMixin, CircuitEstimator):  # type: ignore[misc]
    """A probabilistic circuit as a density estimator.

    Attributes: `model_` (the `Model`), `n_iter_` (epochs of its training), `n_features_in_`, `feature_names_in_`.
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DensityEstimator:  # noqa: N803
        """Learn structure and parameters from X (N, V), NaN for missing; y is ignored."""
        recipe = self._recipe()
        table, _ = weighted(self._training_rows(X, reset=True), sample_weight)
        learned = learn(recipe, build(recipe, table, self.schema_), table, self._seed())
        self.model_, self.n_iter_ = learned.model, learned.epochs
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DensityEstimator:  # noqa: N803
        """One EM step on these rows, the next ones of a stream; the first call also fixes structure and families."""
        recipe, first = self._recipe(), not hasattr(self, "model_")
        table, _ = weighted(self._training_rows(X, reset=first), sample_weight)
        start = build(recipe, table, self.schema_) if first else self.model_
        self.n_iter_ = 0 if first else self.n_iter_
        self.model_ = learn_more(recipe, start, table, self._seed(), self.n_iter_)
        self.n_iter_ += 1
        return self

    def score_samples(self, X: Any) -> Floats:  # noqa: N803
        """The log-likelihood of each row, (N,); missing values are integrated out."""
        rows = self._rows(X)
        scores: Floats = self.model_.log_prob(rows)
        return scores

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The mean log-likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def bic(self, X: Any) -> float:  # noqa: N803
        """The Bayesian information criterion on X, f log N - 2 log p(X) with f free parameters: lower is better."""
        scores = self.score_samples(X)
        return float(self.model_.circuit.free_parameters * np.log(len(scores)) - 2 * scores.sum())

    def aic(self, X: Any) -> float:  # noqa: N803
        """The Akaike information criterion on X, 2 f - 2 log p(X) with f free parameters: lower is better."""
        return float(2 * self.model_.circuit.free_parameters - 2 * self.score_samples(X).sum())
