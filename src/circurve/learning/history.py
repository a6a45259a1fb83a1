"""What is known after each epoch, what callbacks are told, and what training returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from circurve.cards import card, facts_table, rows_table
from circurve.errors import OptionError, TrainingError, needs
from circurve.learning.ensemble import Candidate, Ensemble, ensemble_of
from circurve.learning.gates import gate_name
from circurve.learning.methods import Gated, Strength, Vanilla, describe
from circurve.learning.mixture_weights import Weighting
from circurve.learning.options import Run
from circurve.learning.plan import GateSummary
from circurve.model import Model
from circurve.models import Models
from circurve.words import counted

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Callback", "EpochEnd", "EpochRecord", "Failure", "FitResult", "FleetResult"]

SHOWN_RUNS = 20
"""How many runs a notebook lists."""

SCORES = ("train_ll", "valid_ll", "test_ll", "dof", "sharpness", "seconds", "stopped", "failure")
"""The columns of a fleet's frame that hold what came out."""

NUMBERS = ("valid_ll", "test_ll", "dof", "sharpness")
"""Columns that are NaN where there is no number, whatever the other rows have."""


class _Scored:
    train_ll: float
    valid_ll: float | None

    @property
    def dof(self) -> float | None:
        """Degree of overfitting abs(L_valid - L_train) / abs(L_valid), or None if it is not defined."""
        if not self.valid_ll or not math.isfinite(self.valid_ll) or not math.isfinite(self.train_ll):
            return None
        return abs(self.valid_ll - self.train_ll) / abs(self.valid_ll)


@dataclass(frozen=True)
class EpochRecord(_Scored):
    """One epoch of one run. Log-likelihoods are means over samples, in nats."""

    epoch: int  # counted from 1
    # over the epoch's batches, each scored just before its M-step: it costs nothing, and is slightly behind
    train_ll: float
    valid_ll: float | None
    test_ll: float | None
    step_size: float
    mu: float  # the strength in force at the end of the epoch; 0 for `Vanilla`
    seconds: float  # since the start of the training, of the whole fleet
    # mean trace of the Hessian over the epoch's batches, like `train_ll`; None unless `track=True`
    sharpness: float | None = None
    # the gates of the epoch's last M-step; None unless `track=True` and the method is `Gated`
    gates: GateSummary | None = None


@dataclass(frozen=True)
class EpochEnd:
    """What a callback is told after each epoch."""

    epoch: int
    epochs: int
    records: dict[int, EpochRecord]  # the epoch's record of each run that is still training, by the run's number
    model: Callable[[int], Model]  # the current model of a run, by the run's number
    # what messages call each run that is still training: its label, or its number
    names: Mapping[int, str] = field(default_factory=dict)


Callback = Callable[[EpochEnd], bool | None]
"""Called after each epoch; returning True ends the training of the whole fleet."""


@dataclass(frozen=True)
class Failure:
    """Why a run could not continue."""

    epoch: int  # the epoch in which it broke
    reason: str  # what failed first, such as "Sum 'root': a parameter is not finite"


@dataclass(frozen=True)
class FitResult(_Scored):
    """A trained model with its history; the scores are those of this very model, computed exactly.

    If an interrupt stopped the computation of the scores, those that were not known yet are NaN.

    Examples
    --------
    >>> import circurve as cc
    >>> rows = [[0, 1, 1], [1, 0, 0]] * 5
    >>> result = cc.fit(cc.mixture(3, components=2), rows, epochs=3)
    >>> result.epoch, result.stopped
    (3, 'epochs')
    """

    model: Model
    history: tuple[EpochRecord, ...] = field(repr=False)
    run: Run
    # the epoch whose parameters the model has; 0 for the initial ones. After an interrupt it can be one more than the
    # history has: some of its steps are made
    epoch: int
    train_ll: float
    valid_ll: float | None
    test_ll: float | None
    seconds: float  # of the whole fleet that the run was trained in
    sharpness: float | None  # mean trace of the Hessian over the training data; None unless `track=True`
    stopped: str  # why training ended: "epochs", "tolerance", "patience", "callback", "interrupted" or "failed"
    # with mu="auto" or gate="auto": the results of all candidates, from which this one was chosen
    path: tuple[FitResult, ...] = field(default=(), repr=False)
    # the numbers of the rows of the training table by what they were used for: "train" and, if held out, "valid"
    rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, repr=False, compare=False)
    # what failed, if `stopped` is "failed"; model and scores are then those of the last finite parameters
    failure: Failure | None = None

    @property
    def train_rows(self) -> int | None:
        """How many rows the model was trained on; None if that is not known."""
        return len(self.rows["train"]) if "train" in self.rows else None

    @property
    def failed(self) -> bool:
        """Whether the run broke in training and was stopped."""
        return self.failure is not None

    def _repr_html_(self) -> str:
        scores = {"training rows": self.train_ll, "validation rows": self.valid_ll, "test rows": self.test_ll}
        facts = {
            "method": f"{describe(self.run.method)}, seed {self.run.seed}",
            "epochs": f"{len(self.history):,}, parameters of epoch {self.epoch:,}; ended by: {self.stopped}",
            **{name: None if score is None else f"{score:,.4f} nats" for name, score in scores.items()},
            "degree of overfitting": None if self.dof is None else f"{self.dof:.2%}",
            "sharpness": None if self.sharpness is None else f"{self.sharpness:,.4g}",
            "failed": None if self.failure is None else f"epoch {self.failure.epoch}: {self.failure.reason}",
        }
        return card("FitResult", facts_table(facts))

    def to_frame(self) -> DataFrame:
        """The history as a pandas data frame; log-likelihoods are means over samples.

        Returns
        -------
        DataFrame
            One row for each epoch. With `track=True` it has the sharpness, and for `Gated` a column for each field of
            the gates' summary.

        Raises
        ------
        MissingPackageError
            If pandas is not installed.

        Examples
        --------
        >>> result.to_frame()["epoch"].tolist()
        [1, 2, 3]
        """
        rows = []
        for record in self.history:
            row = {name: value for name, value in vars(record).items() if name != "gates"} | {"dof": record.dof}
            if record.gates is not None:
                row |= {f"gates_{name}": value for name, value in vars(record.gates).items()}
            rows.append(row)
        names = [field.name for field in fields(EpochRecord) if field.name != "gates"]
        return _frame(rows, [*names, "dof"])


@dataclass(frozen=True, repr=False)
class FleetResult(Sequence[FitResult]):
    """The results of all runs of a fleet, in the order in which they were given.

    Examples
    --------
    >>> import circurve as cc
    >>> rows = [[0, 1, 1], [1, 0, 0]] * 5
    >>> runs = [cc.Run(seed=seed) for seed in range(2)]
    >>> fleet = cc.fit_fleet(cc.mixture(3, components=2), rows, runs, valid=rows, epochs=3)
    >>> len(fleet), fleet.failed
    (2, ())
    """

    results: tuple[FitResult, ...]

    @overload
    def __getitem__(self, index: int) -> FitResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[FitResult, ...]: ...
    def __getitem__(self, index: int | slice) -> FitResult | tuple[FitResult, ...]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def best(self, by: str = "valid_ll") -> FitResult:
        """The result with the highest log-likelihood; runs that failed do not count.

        Parameters
        ----------
        by : {"valid_ll", "train_ll", "test_ll"}, default "valid_ll"
            Which rows decide.

        Returns
        -------
        FitResult
            That of the best run.

        Raises
        ------
        OptionError
            If the fleet was trained without these rows.
        TrainingError
            If all runs failed.
        """
        if by not in ("train_ll", "valid_ll", "test_ll"):
            raise OptionError(f"by must be 'train_ll', 'valid_ll' or 'test_ll', not {by!r}")
        if any(getattr(result, by) is None for result in self.results):
            raise OptionError(f"by={by!r}, but the fleet was trained without these rows")
        self.check_any_left()
        whole = [result for result in self.results if not result.failed]
        scores = [float(getattr(result, by)) for result in whole]  # NaN where an interrupt left them out
        return whole[max(range(len(whole)), key=lambda place: (not math.isnan(scores[place]), scores[place]))]

    def ensemble(
        self, valid: Any = None, weights: Weighting = "em", size: int | None = None, missing: int | None = None
    ) -> Ensemble:
        """The mixture of the runs as one model (`.model`), with a report of what each member adds.

        A member whose weight is below 0.001 is dropped, and the others are weighted again. Failed runs are left out.

        Parameters
        ----------
        valid : array, data frame or Table, optional
            Rows that no run was trained on, as `fit_fleet` takes them. The validation rows of the runs can be used; the
            training rows are refused.
        weights : {"em", "stacked", "uniform"}, default "em"
            "em" gives the largest likelihood of these rows (a convex problem); "stacked" the same shrunk towards equal
            weights by as much as 5-fold cross-validation of these rows prefers, for when they are few; "uniform" gives
            all members the same weight, and needs no rows.
        size : int, optional
            The largest number of members, chosen one after the other by the likelihood of these rows.
        missing : int, optional
            A number that marks missing values in `valid`.

        Returns
        -------
        Ensemble
            The model, and its members with their weights.

        Raises
        ------
        OptionError
            If `valid` is needed and not given, or holds the training rows.
        TrainingError
            If all runs failed.
        """
        self.check_any_left()
        whole = [(number, result) for number, result in enumerate(self.results) if not result.failed]
        candidates = [
            Candidate(r.model, self.name(number), number, r.train_ll, r.epoch, r.train_rows, len(r.history))
            for number, r in whole
        ]
        return ensemble_of(candidates, valid, weights, size, missing)

    @cached_property
    def models(self) -> Models:
        """The models of all runs, which can be asked together: `fleet.models.conditional(...)`; see `Models`.

        Answers call the runs by their labels where all have different ones, else by their numbers.
        """
        labels = [result.run.label for result in self.results]
        named = [label for label in labels if label is not None]
        unique = len(set(named)) == len(self.results)
        return Models([result.model for result in self.results], named if unique else None)

    def to_frame(self) -> DataFrame:
        """A pandas data frame with the settings and scores of all runs.

        Returns
        -------
        DataFrame
            One row for each run, in the order of the runs.

        Raises
        ------
        MissingPackageError
            If pandas is not installed.

        Examples
        --------
        >>> fleet.to_frame()["seed"].tolist()
        [0, 1]
        """
        columns = ("run", "label", "method", "mu", "gate", "seed", "init", "step_size", "epoch", "epochs", *SCORES)
        return _frame([_row(number, result) for number, result in enumerate(self.results)], columns)

    @property
    def failed(self) -> tuple[int, ...]:
        """The numbers of the runs that broke in training."""
        return tuple(number for number, result in enumerate(self.results) if result.failed)

    def name(self, number: int) -> str:
        """What messages call a run.

        Parameters
        ----------
        number : int
            The number of the run, from 0.

        Returns
        -------
        str
            Its label or its number, with its method and seed.

        Examples
        --------
        >>> fleet.name(1)
        'run 1 (vanilla, seed 1)'
        """
        return self.results[number].run.name(number)

    def check_any_left(self) -> None:
        """Refuse a fleet in which no run is left.

        Raises
        ------
        TrainingError
            If every run failed; it names the first failure.
        """
        failures = [(number, r.failure) for number, r in enumerate(self.results) if r.failure is not None]
        if len(failures) < len(self.results):
            return
        number, first = min(failures, key=lambda numbered: numbered[1].epoch)
        lead = "" if len(failures) == 1 else f"all {len(failures)} runs failed; the first: "
        every = tuple((failure.epoch, failure.reason) for _, failure in failures)
        raise TrainingError(f"{lead}{self.name(number)} failed in epoch {first.epoch}: {first.reason}", every)

    def _repr_html_(self) -> str:
        scored = [split for split in ("train_ll", "valid_ll", "test_ll") if getattr(self.results[0], split) is not None]
        rows = [
            (
                self.name(number),
                *(("failed",) * len(scored) if r.failed else [f"{getattr(r, split):,.4f}" for split in scored]),
                f"{r.epoch:,}",
            )
            for number, r in enumerate(self.results[:SHOWN_RUNS])
        ]
        more = len(self.results) - len(rows)
        heads = ("run", *(split.removesuffix("_ll") for split in scored), "epoch")
        title = f"FleetResult: {counted(len(self.results), 'run')}, {len(self.failed):,} failed"
        return card(title, rows_table(heads, rows), f"<p>and {more:,} more: to_frame()</p>" if more else "")

    def __repr__(self) -> str:
        lines = [f"  {self.name(number)}: {result!r}" for number, result in enumerate(self.results)]
        return "\n".join([f"<FleetResult: {counted(len(self.results), 'run')}, {len(self.failed)} failed>", *lines])


def _row(number: int, result: FitResult) -> dict[str, Any]:
    """One run of a fleet's frame."""
    run, method = result.run, result.run.method
    row = {
        "run": number,
        "label": run.label,
        "method": type(method).__name__.lower(),
        "mu": 0.0 if isinstance(method, Vanilla) else _plain(method.mu),
        "gate": gate_name(method.gate) if isinstance(method, Gated) else None,
        "seed": run.seed,
        "init": run.init,
        "step_size": _plain(run.step_size),
        "epoch": result.epoch,
        "epochs": len(result.history),
    }
    row |= {name: getattr(result, name) for name in SCORES}
    return row | {"failure": None if result.failure is None else result.failure.reason}


def _plain(value: Strength | None) -> float | str | None:
    """A number as it is; a schedule or a rule as text."""
    return value if value is None or isinstance(value, int | float | str) else repr(value)


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> DataFrame:
    """A data frame with these columns first."""
    with needs("pandas", "to_frame"):
        import pandas as pd  # noqa: PLC0415 - it is not needed for anything else
    more = list(dict.fromkeys(name for row in rows for name in row if name not in columns))
    frame = pd.DataFrame(rows, columns=[*columns, *more])
    return frame.astype(dict.fromkeys(NUMBERS, "float64"))
