"""Classification by one density for each class: exact for rows with any values missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from circurve.data import Table
from circurve.data.convert import about
from circurve.errors import DataError
from circurve.estimators.base import CircuitEstimator
from circurve.estimators.compat import check_target
from circurve.estimators.training import build, learn, learn_more
from circurve.graph import Circuit
from circurve.learning.checkpoints import claim
from circurve.model import Model

__all__ = ["CircuitClassifier"]

Floats = NDArray[np.float64]


class CircuitClassifier(ClassifierMixin, CircuitEstimator):  # type: ignore[misc]
    """p(class | x) from one circuit for each class and the classes' shares, by Bayes' rule, for scikit-learn.

    Missing values are integrated out, so `predict_proba` is the exact posterior given the observed values. Each
    class has a structure of its own and stops by rows of its own.

    Parameters
    ----------
    n_units : int, sequence of int or "auto", default 32
        States of each latent variable, as in `DensityEstimator`.
    n_estimators, ensemble, structure, method, mu, init : as in `DensityEstimator`
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
    classes_ : array
        The classes.
    class_count_, class_prior_ : array
        The weight of each class, and its share.
    models_ : list of Model
        One for each class.
    ensembles_ : list or None
        The reports of their members, with `ensemble`.
    n_iter_ : int
        The most epochs of any class.
    n_features_in_, feature_names_in_ : int, array
        The columns of X.

    Examples
    --------
    >>> import circurve as cc
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> classifier = cc.CircuitClassifier(n_units=2, max_epochs=10, random_state=0).fit(x, y)
    >>> nan = float("nan")
    >>> classifier.predict([[nan, nan, 1.4, nan], [nan, nan, 5.8, nan]])  # petal length alone
    array([0, 2])
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CircuitClassifier:  # noqa: N803
        """Learn a circuit for each class.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.
        y : array
            (N,): the class of each row.
        sample_weight : array, optional
            (N,): how much each row counts, for the tree too.

        Returns
        -------
        CircuitClassifier
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
        recipe, seed = self._recipe(), self._seed()
        table, y = self._rows_and_classes(X, y, sample_weight, reset=True)
        self.classes_ = np.unique(y)
        parts = [table.rows(y == label) for label in self.classes_]
        claim(
            recipe.checkpoint, type(self).__name__, lambda: {"classes": str(self.classes_.tolist()), **recipe.facts()}
        )
        results = []
        for number, (label, part) in enumerate(zip(self.classes_.tolist(), parts, strict=True)):
            with about(f"class {label!r}"):
                results.append(learn(recipe.part(f"class-{number}"), part, self.schema_, seed))
        self.models_: list[Model | Circuit] = [result.model for result in results]
        self.ensembles_ = [result.ensemble for result in results]
        self.n_units_ = [result.units for result in results]
        self.n_iter_ = max(result.epochs for result in results)
        self.class_count_ = _weights(parts)
        self.class_prior_ = self.class_count_ / self.class_count_.sum()
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
    ) -> CircuitClassifier:
        """One EM step on these rows, the next ones of a stream, for each class that occurs in them.

        The first call fixes the families, and one structure for all classes. A class without rows so far has
        probability zero.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.
        y : array
            (N,): the class of each row.
        classes : array, optional
            All classes that will ever occur; the first call needs them.
        sample_weight : array, optional
            (N,): how much each row counts, for the tree too.

        Returns
        -------
        CircuitClassifier
            The estimator itself.

        Raises
        ------
        DataError
            If `y` has a class that is not in `classes`, and as in `fit`.
        OptionError, MemoryLimitError, TrainingError
            As in `fit`; also an OptionError if several numbers of units are to choose from.
        """
        recipe, seed, first = self._recipe(), self._seed(), not hasattr(self, "models_")
        table, y = self._rows_and_classes(X, y, sample_weight, reset=first)
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self.classes_ = np.unique(classes)
            self.models_ = [build(recipe, table, self.schema_) for _ in self.classes_]
            self.n_iter_, self.class_count_ = 0, np.zeros(len(self.classes_))
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise DataError(
                f"y has the class {unknown.tolist()[0]!r}, which is not in classes={self.classes_.tolist()}"
            )
        parts = [table.rows(y == label) for label in self.classes_]
        for number, part in enumerate(parts):
            if len(part):
                self.models_[number] = learn_more(recipe, self.models_[number], part, seed, self.n_iter_)
        self.class_count_ = self.class_count_ + _weights(parts)
        self.class_prior_ = self.class_count_ / self.class_count_.sum()
        self.n_iter_ += 1
        return self

    def _rows_and_classes(self, x: Any, y: Any, sample_weight: Any, *, reset: bool) -> tuple[Table, NDArray[Any]]:
        """The rows of weight above zero, and their classes."""
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None: {type(self).__name__} needs classes")
        table, used = self._training_rows(x, sample_weight, reset=reset)
        y = check_target(y, len(used))
        check_classification_targets(y)
        return table, y[used]

    def _log_joint(self, X: Any) -> Floats:  # noqa: N803
        """log p(x, class), (N, classes)."""
        rows = self._rows(X)
        columns = [
            model.log_prob(rows, memory_budget=self.memory_budget) + np.log(share)
            if isinstance(model, Model)
            else np.full(len(rows), -np.inf)
            for model, share in zip(self.models_, self.class_prior_, strict=True)
        ]
        return np.stack(columns, axis=1)

    def predict_log_proba(self, X: Any) -> Floats:  # noqa: N803
        """log p(class | x), given the observed values of each row.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N, classes); the classes' shares for a row that no class can explain.

        Raises
        ------
        DataError
            If a value does not fit its column; with unseen="error" also if it was not seen in training.
        MemoryLimitError
            If `memory_budget` is too small.
        """
        joint = self._log_joint(X)
        impossible = np.isneginf(joint).all(axis=1)
        with np.errstate(divide="ignore"):
            joint[impossible] = np.log(self.class_prior_)
        log_proba: Floats = joint - logsumexp(joint, axis=1, keepdims=True)
        return log_proba

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """p(class | x), given the observed values of each row.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N, classes), with rows that sum to one.

        Raises
        ------
        DataError, MemoryLimitError
            As in `predict_log_proba`.

        Examples
        --------
        >>> classifier.predict_proba([[nan, nan, 1.4, nan]]).round(2)
        array([[1., 0., 0.]])
        """
        return np.exp(self.predict_log_proba(X))

    def decision_function(self, X: Any) -> Floats:  # noqa: N803
        """A score of each class for each row: the larger, the more probable.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            For two classes the log-odds of the second, (N,); for more, log p(class | x), (N, classes).

        Raises
        ------
        DataError, MemoryLimitError
            As in `predict_log_proba`.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if len(self.classes_) == 2 else log_proba

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each row.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N,): classes.

        Raises
        ------
        DataError, MemoryLimitError
            As in `predict_log_proba`.
        """
        most = self.predict_log_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[most]
        return labels


def _weights(parts: Sequence[Table]) -> Floats:
    """The total weight of the rows of each class."""
    return np.array([len(part) if part.weights is None else float(part.weights.sum()) for part in parts])
