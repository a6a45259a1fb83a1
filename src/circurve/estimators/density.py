"""The density of a table, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from circurve.data import decode, make_frame
from circurve.estimators.base import CircuitEstimator
from circurve.estimators.training import build, learn, learn_more
from circurve.learning.checks import check_count
from circurve.queries import Target, no_evidence, sample

__all__ = ["DensityEstimator"]

Floats = NDArray[np.float64]


class DensityEstimator(DensityMixin, CircuitEstimator):  # type: ignore[misc]
    """A probabilistic circuit as a density estimator for scikit-learn.

    X is an array of numbers, NaN for missing, or a data frame, which may hold text, booleans and dates too.

    Parameters
    ----------
    n_units : int, sequence of int or "auto", default 32
        States of each latent variable. Of several, such as (8, 16, 32), the best by held-out likelihood; "auto" is
        4, 8, 16, ... to 256, until two in a row are worse. With `ensemble`, members take several in turn.
    n_estimators : int, default 4
        How many circuits, from different seeds, are mixed.
    ensemble : int, optional
        Instead of n_estimators, mix this many circuits by `fit_ensemble`: on the tree of all rows and on trees of
        resampled rows (how many: see `trees` there), weights by EM on the rows that validation_fraction holds out
        (None: by cross-validation), batches of 200 and its falling step unless batch_size and step_size are given. For
        structure="hclt" and method="vanilla". Fewer than 10 rows are trained in the usual way.
    structure : str, Circuit or function, default "hclt"
        "hclt" (a hidden Chow-Liu tree of the data), "chow_liu" (a Chow-Liu tree without hidden states),
        "mixture" or "independent"; also a Circuit, or a function of (table, n_units, schema) that returns one.
    method : {"vanilla", "global", "gated"} or a method, default "vanilla"
        How sum weights are estimated; also `Vanilla()`, `Global(mu)` or `Gated(mu)` with options of their own.
    mu : float or "auto", default "auto"
        The strength of the penalty of "global" and "gated"; "auto" chooses it by held-out likelihood.
    init : {"auto", "random", "prototypes"}, default "auto"
        Start at random or around rows of the data; "auto" chooses by held-out likelihood.
    max_epochs : int, default 100
        Passes over the data.
    batch_size : int, optional
        Rows in each step; None takes all rows.
    step_size : float or schedule, optional
        As in `fit`.
    pseudocount : float or "auto", default "auto"
        Added to each sum's counts; "auto" is 0.1 for tables of discrete columns alone, else 0.
    validation_fraction : float or None, default 0.2
        The share of the rows that decide about the number of epochs, init and mu; None trains for `max_epochs`. All
        rows train the final model.
    patience : int, default 10
        Stop after this many epochs without a better held-out likelihood.
    types : mapping or list, optional
        Families by column, as in `infer_schema`, or a list of one for each column.
    schema : Schema, optional
        A whole schema in place of `types`.
    unseen : {"impossible", "missing", "error"}, default "impossible"
        A value that was not seen in training makes a row impossible, counts as missing, or is an error.
    random_state : int, RandomState or None, default None
        Seed of all random numbers.
    device : str or torch.device, default "auto"
        Where to compute; "auto" is CUDA if there is one.
    verbose : int, default 0
        Above 0, show the progress.
    checkpoint : str or path, optional
        A folder for checkpoints: the same `fit` again continues from there. It needs a number as random_state.
    memory_budget : int, optional
        Memory limit for data, parameters and buffers, in bytes; checked before memory is allocated.

    Attributes
    ----------
    model_ : Model
        One model, in the units of the data: every question can be asked of it.
    ensemble_ : Ensemble or None
        The report of its members, with `ensemble`.
    schema_ : Schema
        What the columns mean.
    n_iter_ : int
        Epochs of the training.
    n_units_ : int
        The units that were chosen.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : array
        Their names, if X is a data frame.

    Examples
    --------
    >>> import circurve as cc
    >>> from sklearn.datasets import load_iris
    >>> x = load_iris().data
    >>> density = cc.DensityEstimator(n_units=4, max_epochs=10, random_state=0).fit(x)
    >>> round(density.score(x), 1)
    -2.0
    >>> density.sample(3).shape
    (3, 4)
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DensityEstimator:  # noqa: N803
        """Learn structure and parameters.

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
        DensityEstimator
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
        recipe = self._recipe()
        table, _ = self._training_rows(X, sample_weight, reset=True)
        learned = learn(recipe, table, self.schema_, self._seed())
        self.model_, self.n_iter_, self.ensemble_ = learned.model, learned.epochs, learned.ensemble
        self.n_units_ = learned.units
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DensityEstimator:  # noqa: N803
        """One EM step on these rows, the next ones of a stream; the first call also fixes structure and families.

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
        DensityEstimator
            The estimator itself.

        Raises
        ------
        OptionError, DataError, MemoryLimitError, TrainingError
            As in `fit`; also an OptionError if several numbers of units are to choose from.

        Examples
        --------
        >>> stream = cc.DensityEstimator(n_units=4, random_state=0)
        >>> for start in range(0, 150, 50):
        ...     stream = stream.partial_fit(x[start : start + 50])
        >>> stream.n_iter_
        3
        """
        recipe, first = self._recipe(), not hasattr(self, "model_")
        table, _ = self._training_rows(X, sample_weight, reset=first)
        start = build(recipe, table, self.schema_) if first else self.model_
        self.n_iter_, self.ensemble_ = 0 if first else self.n_iter_, None
        self.model_ = learn_more(recipe, start, table, self._seed(), self.n_iter_)
        self.n_iter_ += 1
        return self

    def score_samples(self, X: Any) -> Floats:  # noqa: N803
        """The log-likelihood of each row; missing values are integrated out.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N,), in nats; -inf for a row of probability zero.

        Raises
        ------
        DataError
            If a value does not fit its column; with unseen="error" also if it was not seen in training.
        MemoryLimitError
            If `memory_budget` is too small.

        Examples
        --------
        >>> density.score_samples(x).shape
        (150,)
        """
        rows = self._rows(X)
        scores: Floats = self.model_.log_prob(rows, memory_budget=self.memory_budget)
        return scores

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """The mean log-likelihood of the rows.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.
        y : None
            Ignored.

        Returns
        -------
        float
            In nats.

        Raises
        ------
        DataError, MemoryLimitError
            As in `score_samples`.
        """
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Rows drawn from the density.

        Parameters
        ----------
        n_samples : int, default 1
            How many rows.
        random_state : int, RandomState or None, default None
            An integer gives the same rows at every call; None takes that of the estimator.

        Returns
        -------
        array or DataFrame
            (n_samples, V): numbers, or a data frame where a column holds text or dates.

        Raises
        ------
        OptionError
            If `n_samples` is not a whole number above 0.
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples, at_least=1)
        seed = self._seed(random_state)
        target = Target.of(self.model_.program, self.model_.params)
        drawn = sample(target, no_evidence(target), draws=n_samples, seed=seed)[0, :, 0].double().cpu().numpy()
        columns = decode(drawn, self.schema_)
        if all(column.dtype.kind in "biuf" for column in columns.values()):
            return np.stack(list(columns.values()), axis=1, dtype=np.float64)
        return make_frame(columns)

    def bic(self, X: Any) -> float:  # noqa: N803
        """The Bayesian information criterion on X, f log N - 2 log p(X) with f free parameters.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        float
            Lower is better.

        Raises
        ------
        DataError, MemoryLimitError
            As in `score_samples`.

        Examples
        --------
        >>> density.aic(x) < density.bic(x)
        True
        """
        scores = self.score_samples(X)
        return float(self.model_.circuit.free_parameters * np.log(len(scores)) - 2 * scores.sum())

    def aic(self, X: Any) -> float:  # noqa: N803
        """The Akaike information criterion on X, 2 f - 2 log p(X) with f free parameters.

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        float
            Lower is better.

        Raises
        ------
        DataError, MemoryLimitError
            As in `score_samples`.
        """
        return float(2 * self.model_.circuit.free_parameters - 2 * self.score_samples(X).sum())
