"""Improbable rows, as a scikit-learn outlier detector."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import OutlierMixin

from circurve.errors import OptionError
from circurve.estimators.base import CircuitEstimator
from circurve.estimators.training import learn
from circurve.schema import Schema

__all__ = ["OutlierDetector"]

Floats = NDArray[np.float64]

AUTO_SHARE = 0.01
"""contamination="auto" takes this share of the training rows as outliers."""


class OutlierDetector(OutlierMixin, CircuitEstimator):  # type: ignore[misc]
    """Finds rows whose observed values are improbable, for scikit-learn: those with a log-likelihood below `offset_`.

    Rows with many missing values are rarely outliers, because few of their values can be improbable.

    Parameters
    ----------
    n_units : int, sequence of int or "auto", default 32
        States of each latent variable, as in `DensityEstimator`.
    n_estimators, ensemble : as in `DensityEstimator`
        How many circuits are mixed.
    contamination : float or "auto", default "auto"
        The share of outliers among the training rows, in (0, 0.5]; "auto" is 0.01. It fixes `offset_`.
    structure, method, mu, init : as in `DensityEstimator`
        What is trained, and how.
    max_epochs, batch_size, step_size, pseudocount : as in `DensityEstimator`
        Steps of the training.
    validation_fraction, patience : as in `DensityEstimator`
        When it stops.
    types, schema, unseen : as in `DensityEstimator`
        What the columns mean.
    random_state, device, verbose, checkpoint, memory_budget : as in `DensityEstimator`
        Randomness, device, progress, a folder for checkpoints, and a memory limit.

    Attributes
    ----------
    model_ : Model
        One model, in the units of the data.
    offset_ : float
        The threshold.
    n_iter_ : int
        Epochs of the training.
    n_features_in_, feature_names_in_ : int, array
        The columns of X.

    Examples
    --------
    >>> import circurve as cc
    >>> from sklearn.datasets import load_iris
    >>> x = load_iris().data
    >>> detector = cc.OutlierDetector(n_units=4, max_epochs=10, random_state=0).fit(x)
    >>> detector.predict([[5.1, 3.5, 1.4, 0.2], [5.1, 3.5, 6.0, 0.2]])
    array([ 1, -1])
    """

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters from this signature
        self,
        n_units: Any = 32,
        *,
        n_estimators: int = 4,
        ensemble: int | None = None,
        contamination: Any = "auto",
        structure: Any = "hclt",
        method: Any = "vanilla",
        mu: Any = "auto",
        init: Any = "auto",
        max_epochs: int = 100,
        batch_size: int | None = None,
        step_size: Any = None,
        pseudocount: Any = "auto",
        validation_fraction: float | None = 0.2,
        patience: int = 10,
        types: Any = None,
        schema: Schema | None = None,
        unseen: Any = "impossible",
        random_state: Any = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
        checkpoint: Any = None,
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(
            n_units,
            n_estimators=n_estimators,
            ensemble=ensemble,
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
            checkpoint=checkpoint,
            memory_budget=memory_budget,
        )
        self.contamination = contamination

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OutlierDetector:  # noqa: N803
        """Learn the density of the rows and the threshold.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.
        y : None
            Ignored.
        sample_weight : array, optional
            (N,): how much each row counts, for the tree too.

        Returns
        -------
        OutlierDetector
            The estimator itself.

        Raises
        ------
        OptionError
            If a parameter of the estimator is wrong.
        DataError
            If a value does not fit its column, or a weight is negative.
        MemoryLimitError
            If `memory_budget` is too small.
        TrainingError
            If in every run parameters, statistics or likelihoods become infinite or NaN.
        """
        share, recipe = self._share(), self._recipe()
        table, _ = self._training_rows(X, sample_weight, reset=True)
        learned = learn(recipe, table, self.schema_, self._seed())
        self.model_, self.n_iter_, self.ensemble_ = learned.model, learned.epochs, learned.ensemble
        self.n_units_ = learned.units
        weights = np.ones(len(table)) if table.weights is None else table.weights.numpy()
        self.offset_ = _least_inlier(self.model_.log_prob(table, memory_budget=self.memory_budget), weights, share)
        return self

    def _share(self) -> float:
        share = self.contamination
        if isinstance(share, str) and share == "auto":
            return AUTO_SHARE
        if isinstance(share, int | float | np.number) and 0 < share <= 0.5:
            return float(share)
        raise OptionError(f"contamination must be 'auto' or a number above 0 and up to 0.5, not {share!r}")

    def score_samples(self, X: Any) -> Floats:  # noqa: N803
        """The log-likelihood of each row.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N,), in nats; lower for outliers.

        Raises
        ------
        DataError
            If a value does not fit its column; with unseen="error" also if it was not seen in training.
        MemoryLimitError
            If `memory_budget` is too small.
        """
        rows = self._rows(X)
        scores: Floats = self.model_.log_prob(rows, memory_budget=self.memory_budget)
        return scores

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """How far each row is above the threshold: `score_samples(X) - offset_`.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N,): negative for outliers.

        Raises
        ------
        DataError, MemoryLimitError
            As in `score_samples`.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """Which rows are outliers.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N,): -1 for outliers, 1 for the others.

        Raises
        ------
        DataError, MemoryLimitError
            As in `score_samples`.
        """
        return np.where(self.decision_function(X) < 0, -1, 1)


def _least_inlier(scores: Floats, weights: Floats, share: float) -> float:
    """The score that `share` of the weight is below."""
    order = np.argsort(scores)
    below = np.cumsum(weights[order]) / weights.sum()
    first = int(np.searchsorted(below, share, side="right"))
    return float(scores[order[min(first, len(order) - 1)]])
