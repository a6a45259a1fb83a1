"""The options of `fit_ensemble`, as a record that is checked when it is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal

from circurve.errors import OptionError
from circurve.learning.checks import check_at_least_zero, check_choice, check_count
from circurve.learning.initialize import INITIALIZATIONS
from circurve.learning.mixture_weights import WEIGHTINGS, Weighting
from circurve.learning.option_texts import option
from circurve.learning.options import TrainingOptions
from circurve.learning.recipe import SMOOTHING

__all__ = ["EnsembleKeywords", "EnsembleOptions", "split_options"]


@dataclass(frozen=True)
class EnsembleOptions:
    """Which members an ensemble has, and how they are mixed."""

    members: int = option(8, "How many circuits to train.")
    units: int | tuple[int, ...] = option(
        (32, 100), "Number of states of each hidden variable; members use several numbers in turn."
    )
    trees: Literal["bootstrap", "same"] = option(
        "bootstrap",
        "bootstrap: the Chow-Liu tree of all rows, then trees of rows drawn with replacement; same: only the first.",
        python='With "bootstrap" each tree has a member for every pair of a number of units and a pseudocount: M '
        "members, without boosted ones, U numbers of units and P pseudocounts make max(1, M // (U P)) trees. The first "
        "is that of all rows. Members are trained on all rows whatever their tree; boosted ones have a tree each.",
    )
    weighting: Weighting = option("em", 'How weights are found: "em", "stacked" or "uniform" (`FleetResult.ensemble`).')
    size: int | None = option(None, "Keep at most this many members, chosen by the likelihood of the held-out rows.")
    boosted: int = option(
        0,
        "This many members are trained one after another, on rows weighted by how badly the mixture so far fits them.",
    )
    joint_epochs: int = option(
        0,
        "Then train the whole mixture as one circuit for at most this many epochs; its members before and after "
        "that are mixed.",
    )
    pseudocounts: float | tuple[float, ...] = option(
        (SMOOTHING[0], SMOOTHING[-1]), "Count added to each sum in every step; members use several numbers in turn."
    )
    init: Literal["random", "prototypes"] = option(
        "prototypes", "prototypes: place units around rows of the training data; random: start with random parameters."
    )
    folds: int = option(5, "With valid=False, the number of parts of the training rows; each part is held out once.")
    seed: int = option(0, "Seed of all random numbers; member i has the seed `seed` + i.")

    def __post_init__(self) -> None:
        check_count("members", self.members, at_least=1)
        for name, kind in (("units", int), ("pseudocounts", float)):
            given: Any = getattr(self, name)
            listed = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
            if not listed:
                raise OptionError(f"{name} must list at least one, not {given!r}")
            for value in listed:
                check_count(name, value, at_least=1) if kind is int else check_at_least_zero(name, value)
            object.__setattr__(self, name, listed)
        check_choice("trees", self.trees, ("bootstrap", "same"))
        check_choice("weighting", self.weighting, WEIGHTINGS)
        check_choice("init", self.init, INITIALIZATIONS)
        if self.size is not None:
            check_count("size", self.size, at_least=1)
        for name, least in (("boosted", 0), ("joint_epochs", 0), ("folds", 2), ("seed", 0)):
            check_count(name, getattr(self, name), at_least=least)
        if self.boosted >= self.members:
            raise OptionError(f"boosted={self.boosted} must be less than members={self.members}")

    @property
    def all_units(self) -> tuple[int, ...]:
        """`units` as a tuple."""
        return self.units if isinstance(self.units, tuple) else (self.units,)

    @property
    def all_pseudocounts(self) -> tuple[float, ...]:
        """`pseudocounts` as a tuple."""
        return self.pseudocounts if isinstance(self.pseudocounts, tuple) else (self.pseudocounts,)


class EnsembleKeywords(TrainingOptions, total=False):
    """The fields of `EnsembleOptions` and `Settings` as keywords."""

    members: int
    units: int | tuple[int, ...]
    trees: Literal["bootstrap", "same"]
    weighting: Weighting
    size: int | None
    boosted: int
    joint_epochs: int
    pseudocounts: float | tuple[float, ...]
    init: Literal["random", "prototypes"]
    folds: int
    seed: int


def split_options(options: EnsembleKeywords) -> tuple[EnsembleOptions, TrainingOptions]:
    """The options of the ensemble as a record, and those of training."""
    own = {given.name for given in fields(EnsembleOptions)}
    ensemble: Any = {name: value for name, value in options.items() if name in own}
    training: Any = {name: value for name, value in options.items() if name not in own}
    return EnsembleOptions(**ensemble), training
