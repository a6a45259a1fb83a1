"""The members of a mixture weighted by held-out rows, and a report of what each of them adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from circurve.data import Table, align, as_table
from circurve.errors import DataError, OptionError, needs
from circurve.learning.checks import check_choice, check_count
from circurve.learning.mixing import mix
from circurve.learning.mixture_weights import (
    WEIGHTINGS,
    Scores,
    Weighting,
    find_weights,
    forward_selection,
    without_negligible,
)
from circurve.model import Model
from circurve.schema import Schema
from circurve.words import counted

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Candidate",
    "Ensemble",
    "Member",
    "ensemble_of",
    "held_out_scores",
    "refuse_training_rows",
    "unscored",
    "weigh",
]

Floats = NDArray[np.float64]

SAME_ROWS_TOLERANCE = 1e-6
"""Two mean log-likelihoods of one model that are relatively this close are those of the same rows."""

ADVICE = "pass valid= with rows that no member was trained on, or weights='uniform'"


@dataclass(frozen=True)
class Candidate:
    """A model that may become a member."""

    model: Model
    name: str
    number: int
    train_ll: float | None = None
    """The mean log-likelihood on the rows that the model was trained on, by which these rows are recognised."""

    epoch: int | None = None
    """The epoch of its training whose parameters it has."""

    train_rows: int | None = None
    """How many rows the model was trained on."""

    epochs: int | None = None
    """How many epochs it was trained for."""


@dataclass(frozen=True)
class Member:
    """One member of an ensemble. Log-likelihoods are means over the held-out rows, in nats."""

    run: int  # its number among the candidates: in `fleet.ensemble`, the number of the run
    name: str
    weight: float
    valid_ll: float | None  # its own
    # that of the ensemble minus that of the others, weighted again without it; None for a single member
    adds: float | None
    epoch: int | None = None  # whose parameters it has, of its own training
    epochs: int | None = None  # how many it was trained for


@dataclass(frozen=True, repr=False)
class Ensemble:
    """A mixture of models as one model, with a report of its members.

    `fit_ensemble` and `FleetResult.ensemble` make one.

    Parameters
    ----------
    model : Model
        The mixture.
    members : tuple of Member
        Name, weight, validation likelihood and what each adds.
    weighting : str
        How the weights were found.
    valid_ll : float or None
        The mean validation log-likelihood of the mixture, in nats.
    left_out : tuple of str, default ()
        Candidates with too little weight, or not selected.
    stopped : str, default "epochs"
        "interrupted" if Ctrl-C ended the training.
    rows : mapping, optional
        The numbers of the training and validation rows, if `fit_ensemble` split the table.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> runs = [cc.Run(seed=seed, label=f"seed {seed}", init="prototypes") for seed in range(3)]
    >>> fleet = cc.fit_fleet(cc.hclt(data.train, units=4), data.train, runs, valid=data.valid, epochs=3)
    >>> ensemble = fleet.ensemble(data.valid)
    >>> ensemble.valid_ll > fleet.best().valid_ll
    True
    >>> list(ensemble.to_frame().columns)
    ['run', 'name', 'weight', 'valid_ll', 'adds', 'epoch', 'epochs']
    """

    model: Model
    members: tuple[Member, ...]
    weighting: str  # how the weights were found
    valid_ll: float | None  # of the mixture
    left_out: tuple[str, ...] = ()  # candidates that got no weight worth keeping, or were not selected
    stopped: str = "epochs"  # "interrupted" if Ctrl-C ended the training
    # the numbers of the rows of the training table by what they were used for, where `fit_ensemble` split it
    rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, compare=False)

    @property
    def weights(self) -> Floats:  # (M,)
        """The weights of the members, in their order."""
        return np.array([member.weight for member in self.members])

    def to_frame(self) -> DataFrame:
        """A pandas data frame of the members.

        Returns
        -------
        DataFrame
            One row for each member, in the order of the candidates.

        Raises
        ------
        MissingPackageError
            If pandas is not installed.

        Examples
        --------
        >>> float(ensemble.to_frame()["weight"].sum().round(6))
        1.0
        """
        with needs("pandas", "to_frame"):
            import pandas as pd  # noqa: PLC0415 - it is not needed for anything else
        frame = pd.DataFrame(
            [asdict(member) for member in self.members], columns=["run", "name", "weight", *SCORES, "epoch", "epochs"]
        )
        return frame.astype(dict.fromkeys(SCORES, "float64"))

    def __repr__(self) -> str:
        score = "" if self.valid_ll is None else f", valid_ll {self.valid_ll:.4f}"
        lines = [f"<Ensemble: {counted(len(self.members), 'member')}, weights {self.weighting}{score}>"]
        for member in self.members:
            own = "" if member.valid_ll is None else f", valid_ll {member.valid_ll:.4f}"
            adds = "" if member.adds is None else f", adds {member.adds:.4f}"
            lines.append(f"  {member.weight:.3f}  {member.name}{own}{adds}")
        return "\n".join([*lines, *([f"  left out: {len(self.left_out)}"] if self.left_out else [])])


SCORES = ("valid_ll", "adds")


def ensemble_of(
    candidates: Sequence[Candidate],
    valid: Any = None,
    weighting: Weighting = "em",
    size: int | None = None,
    missing: int | None = None,
) -> Ensemble:
    """The mixture of models with weights found on held-out rows (`FleetResult.ensemble`)."""
    check_choice("weights", weighting, WEIGHTINGS)
    if size is not None:
        check_count("size", size, at_least=1)
    if valid is None:
        if weighting != "uniform":
            raise OptionError(f"weights={weighting!r} must be found on held-out rows: {ADVICE}")
        if size is not None and size < len(candidates):
            raise OptionError(f"size={size} needs held-out rows to choose members: {ADVICE.partition(',')[0]}")
        return unscored(candidates)
    scores = held_out_scores([candidate.model for candidate in candidates], valid, missing)
    refuse_training_rows(scores, candidates)
    return weigh(candidates, scores, weighting, size)


def weigh(candidates: Sequence[Candidate], scores: Scores, weighting: Weighting, size: int | None = None) -> Ensemble:
    """The mixture with weights from the members' log-likelihoods on held-out rows."""
    members = list(range(len(candidates)))
    if size is not None and size < len(candidates):
        members = sorted(forward_selection(scores, size, weighting))
    kept, weights = without_negligible(scores, weighting, members)
    chosen = scores.pick(kept)
    reached, own = chosen.mean_mixed(weights), scores.mean(scores.log_prob)
    listed = [_member(candidates[m], float(weights[place]), float(own[m])) for place, m in enumerate(kept)]
    if len(kept) > 1:
        rest = [_without(chosen, place, weights, weighting) for place in range(len(kept))]
        # both are -inf where a row is impossible for all members
        adds = [reached - other if math.isfinite(reached) else math.inf if other != reached else 0.0 for other in rest]
        listed = [replace(m, adds=gain) for m, gain in zip(listed, adds, strict=True)]
    return Ensemble(
        mix([candidates[m].model for m in kept], weights),
        tuple(listed),
        weighting,
        reached,
        tuple(candidate.name for m, candidate in enumerate(candidates) if m not in kept),
    )


def _without(scores: Scores, place: int, weights: Floats, weighting: Weighting) -> float:
    """The likelihood of all members but one, weighted again. "stacked" weights are found by plain EM here."""
    others = [m for m in range(scores.members) if m != place]
    start = weights[others] / weights[others].sum()
    rest = scores.pick(others)
    return rest.mean_mixed(find_weights(rest, "uniform" if weighting == "uniform" else "em", start))


def _member(candidate: Candidate, weight: float, valid_ll: float | None) -> Member:
    return Member(candidate.number, candidate.name, weight, valid_ll, None, candidate.epoch, candidate.epochs)


def unscored(candidates: Sequence[Candidate]) -> Ensemble:
    """Uniform weights, without held-out rows."""
    share = 1 / len(candidates)
    members = tuple(_member(one, share, None) for one in candidates)
    return Ensemble(mix([one.model for one in candidates]), members, "uniform", None)


def held_out_scores(models: Sequence[Model], valid: Any, missing: int | None = None) -> Scores:  # (M, N)
    """Log-likelihoods of held-out rows; a value that was not seen in training counts as missing, with a warning."""
    given = as_table(valid, missing=missing)
    tables: list[tuple[Schema, Table]] = []
    rows = []
    for model in models:
        table = next((known for schema, known in tables if schema == model.schema), None)
        if table is None:
            table = align(given.bare(), model.schema, unseen="missing")
            tables.append((model.schema, table))
        rows.append(model.log_prob(table))
    weights = np.ones(len(given)) if given.weights is None else given.weights.cpu().numpy().astype(np.float64)
    if not weights.sum() > 0:
        raise DataError("valid data: all weights are zero")
    return Scores(np.stack(rows), weights)


def refuse_training_rows(scores: Scores, candidates: Sequence[Candidate]) -> None:
    """An error if every member scores these rows as it scores the rows that it was trained on, and they are as many.

    Rows that are all alike for every member prove nothing: other rows of the same kind have the same mean.
    """
    if bool((scores.log_prob == scores.log_prob[:, :1]).all()):
        return
    own = scores.mean(scores.log_prob).tolist()
    if all(_same_rows(scores, found, candidate) for found, candidate in zip(own, candidates, strict=True)):
        raise OptionError(f"valid: these are the rows that the members were trained on; {ADVICE}")


def _same_rows(scores: Scores, found: float, candidate: Candidate) -> bool:
    known, rows = candidate.train_ll, scores.log_prob.shape[1]
    if known is None or not math.isfinite(known) or candidate.train_rows not in (None, rows):
        return False
    return abs(found - known) <= SAME_ROWS_TOLERANCE * (1 + abs(known))
