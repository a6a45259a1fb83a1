"""Missing values filled in from the joint distribution, as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from circurve.data import Table, align, decode, make_frame
from circurve.data.convert import is_missing
from circurve.data.frames import as_narwhals
from circurve.data.recode import decode_column
from circurve.errors import DataError, OptionError
from circurve.estimators.base import CircuitEstimator
from circurve.estimators.compat import input_names
from circurve.estimators.training import learn
from circurve.learning.checks import check_choice
from circurve.model import Model
from circurve.queries import IMPUTATIONS, Imputation, Target, impute, make_evidence
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["CircuitImputer"]

Array = NDArray[Any]
Floats = NDArray[np.float64]


class CircuitImputer(TransformerMixin, CircuitEstimator):  # type: ignore[misc]
    """Fills each hole given all observed values of its row, for scikit-learn; known values do not change.

    Parameters
    ----------
    n_units : int, sequence of int or "auto", default 32
        States of each latent variable, as in `DensityEstimator`.
    strategy : {"mean", "mode", "most_probable", "sample"}, default "mean"
        "mean" is the conditional mean of numbers and the most probable category, the best guess of each cell by
        itself; "mode" is the most probable value of each cell; "most_probable" completes the whole row at once;
        "sample" is a draw from the joint distribution of all holes of a row, the same one at every call.
    add_indicator : bool, default False
        Append a column of zeros and ones for each column that had missing values in training.
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
    model_ : Model
        One model, in the units of the data.
    n_iter_ : int
        Epochs of the training.
    indicator_features_ : array
        The numbers of the columns with an indicator.
    n_features_in_, feature_names_in_ : int, array
        The columns of X.

    Examples
    --------
    >>> import circurve as cc
    >>> from sklearn.datasets import load_iris
    >>> x = load_iris().data
    >>> imputer = cc.CircuitImputer(n_units=4, max_epochs=10, random_state=0).fit(x)
    >>> nan = float("nan")
    >>> imputer.transform([[5.1, nan, 1.4, nan]]).round(1)
    array([[5.1, 3.4, 1.4, 0.3]])
    """

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters from this signature
        self,
        n_units: Any = 32,
        *,
        strategy: Imputation = "mean",
        add_indicator: bool = False,
        n_estimators: int = 4,
        ensemble: int | None = None,
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
        self.strategy = strategy
        self.add_indicator = add_indicator

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CircuitImputer:  # noqa: N803
        """Learn the joint distribution of the columns.

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
        CircuitImputer
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
        check_choice("strategy", self.strategy, IMPUTATIONS)
        recipe, seed = self._recipe(), self._seed()
        table, _ = self._training_rows(X, sample_weight, reset=True)
        learned = learn(recipe, table, self.schema_, seed)
        self.model_, self.n_iter_, self.ensemble_ = learned.model, learned.epochs, learned.ensemble
        self.n_units_ = learned.units
        self._draw = seed
        missing = np.zeros(table.shape[1], bool) if table.observed is None else ~table.observed.numpy().all(axis=0)
        self.indicator_features_ = np.flatnonzero(missing) if self.add_indicator else np.array([], dtype=np.int64)
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """X with its holes filled, and indicators after it where `add_indicator` asks for them.

        A value that was not seen in training stays as it is; the others of its row are filled as if it were missing
        (unseen="error" refuses it).

        Parameters
        ----------
        X : array or data frame
            (N, V), NaN for missing.

        Returns
        -------
        array
            (N, V + indicators): numbers, or objects where a column holds text or dates.

        Raises
        ------
        DataError
            If a value does not fit its column; with unseen="error" also if it was not seen in training.
        MemoryLimitError
            If `memory_budget` is too small for X.
        """
        check_is_fitted(self)
        raw = self._raw(X, reset=False)
        known = align(raw, self.schema_, unseen="error" if self.unseen == "error" else "missing")
        filled = fill(self.model_, known, self.strategy, self._draw)
        originals = _originals(X, raw, self.schema_.names or ())
        holes = np.stack([_missing(column) for column in originals], axis=1)
        columns = _like_originals(X, raw, decode(filled, self.schema_))
        pairs = zip(originals, columns, holes.T, strict=True)
        complete = [np.where(hole, new.astype(old.dtype), old) for old, new, hole in pairs]
        numeric = all(column.dtype.kind == "f" for column in complete)
        result = np.stack(complete, axis=1, dtype=np.float64 if numeric else object, casting="unsafe")
        return np.hstack([result, holes[:, self.indicator_features_].astype(result.dtype)])

    def inverse_transform(self, X: Any) -> Array:  # noqa: N803
        """X as it was before `transform`: NaN where an indicator says so.

        Parameters
        ----------
        X : array
            (N, V + indicators): what `transform` returned.

        Returns
        -------
        array
            (N, V).

        Raises
        ------
        OptionError
            If `add_indicator` is False: the missing cells are then not known.
        DataError
            If X does not have the columns of what `transform` returns.

        Examples
        --------
        >>> holes = x.copy()
        >>> holes[0, 1] = nan
        >>> marked = cc.CircuitImputer(n_units=4, max_epochs=5, add_indicator=True, random_state=0).fit(holes)
        >>> marked.inverse_transform(marked.transform(holes))[0]
        array([5.1, nan, 1.4, 0.2])
        """
        check_is_fitted(self)
        if not self.add_indicator:
            raise OptionError(
                "inverse_transform needs add_indicator=True: without indicators the missing cells are not known"
            )
        rows, width = np.array(X), len(self.schema_)
        if rows.dtype.kind not in "fO":
            rows = rows.astype(np.float64 if rows.dtype.kind in "biu" else object)
        expected = width + len(self.indicator_features_)
        if rows.ndim != 2 or rows.shape[1] != expected:
            raise DataError(
                f"X has shape {rows.shape}, expected {expected} columns: {counted(width, 'column')} and the indicators"
            )
        values, marks = rows[:, :width], rows[:, width:].astype(np.float64)
        values[:, self.indicator_features_] = np.where(marks > 0, np.nan, values[:, self.indicator_features_])
        return values

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """The names of the columns that `transform` returns.

        Parameters
        ----------
        input_features : sequence of str, optional
            The names of the columns of X, to be compared with those in training.

        Returns
        -------
        array
            The names of the columns of X, and `missingindicator_NAME` for indicators.

        Examples
        --------
        >>> imputer.get_feature_names_out().tolist()
        ['x0', 'x1', 'x2', 'x3']
        """
        check_is_fitted(self)
        input_names(self, input_features)  # refuses other names than those in training
        names = list(self.schema_.names or ())
        return np.array([*names, *(f"missingindicator_{names[v]}" for v in self.indicator_features_)], dtype=object)


def fill(model: Model, table: Table, strategy: Imputation, seed: int) -> Floats:  # (N, V)
    """The coded values of an aligned table, with the holes filled; rows without holes are not looked at."""
    values = np.array(table, dtype=np.float64)
    holes = np.isnan(values)
    rows = np.flatnonzero(holes.any(axis=1))
    if not rows.size:
        return values
    target = Target.of(model.program, model.params)
    evidence = make_evidence(target, table.rows(rows))
    found = impute(target, evidence, how=strategy, seed=seed)[0, 0].double().cpu().numpy()  # (n, V)
    named = [v for v, column in enumerate(model.schema.columns) if column.kind in ("category", "boolean")]
    if strategy == "mean" and holes[:, named].any():
        found[:, named] = impute(target, evidence, how="mode")[0, 0][:, named].double().cpu().numpy()
    values[rows] = np.where(holes[rows], found, values[rows])
    return values


def _originals(x: Any, raw: Table, names: Sequence[str]) -> list[Array]:
    """The columns as they were given, (N,) each: float64, or objects for text and dates."""
    frame, kept = as_narwhals(x), []
    for name in names:
        number = (raw.columns or ()).index(name)
        if raw.codings is None or raw.codings[number].kind in ("number", "boolean"):
            kept.append(np.asarray(raw[:, number], dtype=np.float64))
        elif frame is None:
            kept.append(decode_column(np.asarray(raw[:, number]), raw.codings[number]).astype(object))
        else:
            kept.append(np.array(frame.get_column(frame.columns[number]).to_list(), dtype=object))
    return kept


def _like_originals(x: Any, raw: Table, columns: Mapping[str, Array]) -> list[Array]:
    """Decoded columns, with times as objects of the kind and in the time zone that the frame has there."""
    frame, found = as_narwhals(x), []
    for name, values in columns.items():
        if frame is None or values.dtype.kind != "M":
            found.append(values)
            continue
        own = frame.columns[(raw.columns or ()).index(name)]
        made = as_narwhals(make_frame({own: values}, like=x))
        found.append(np.array(made.get_column(own).to_list(), dtype=object))
    return found


def _missing(column: Array) -> NDArray[np.bool_]:
    """Where a column of numbers or objects has no value."""
    if column.dtype != object:
        return np.isnan(column)
    return np.array([is_missing(value) for value in column])
