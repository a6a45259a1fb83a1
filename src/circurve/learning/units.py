"""units="auto": how many states the latents have, chosen by validation likelihood.

Circuits of 4, 8, 16, ..., 256 units are trained one size after the other, from the smallest on. After two larger sizes
in a row that are worse than the best so far, no larger ones are tried: beyond the best size, likelihoods of held-out
rows fall steadily. The size of the best validation likelihood is taken, not the smallest within a standard error of it:
`units` is chosen for likelihood; the path shows all sizes, for users who prefer a smaller circuit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, Literal, TypeAlias, Unpack

from circurve.data import align, as_table, infer_schema
from circurve.data.need import check_data
from circurve.errors import OptionError, TrainingError
from circurve.learning.checkpoints import claim
from circurve.learning.checks import check_count
from circurve.learning.fingerprint import describe_value
from circurve.learning.history import Callback, FitResult, FleetResult
from circurve.learning.initialize import Initialization
from circurve.learning.members import Rows, best_settings, held_out, train_fleet
from circurve.learning.methods import Vanilla
from circurve.learning.option_texts import refuse_unknown, show_records
from circurve.learning.options import Run, Settings, TrainingOptions
from circurve.learning.progress import note
from circurve.learning.recipe import SMOOTHING, UNITS_GRID
from circurve.learning.validation import say
from circurve.model import Model
from circurve.schema import Schema
from circurve.structures import chow_liu_tree, hclt
from circurve.words import counted

__all__ = ["Tried", "Units", "UnitsChoice", "choose_units", "fit_units", "train_units", "units_grid"]

Units: TypeAlias = int | Sequence[int] | Literal["auto"]
"""A number of units, those to choose from, or "auto" for `UNITS_GRID`."""

MAX_WORSE_SIZES = 2
"""The search ends after this many sizes that are worse than the best one."""


@dataclass(frozen=True)
class Tried:
    """All runs of one size."""

    units: int
    results: tuple[FitResult, ...] = field(repr=False)

    @property
    def best(self) -> FitResult | None:
        """The best run by validation likelihood; None if all of them failed."""
        whole = tuple(result for result in self.results if not result.failed)
        return FleetResult(whole).best(by="valid_ll") if whole else None

    @property
    def valid_ll(self) -> float:
        """That of the best run; -inf if all of them failed, or an interrupt left it out."""
        score = -math.inf if self.best is None or self.best.valid_ll is None else self.best.valid_ll
        return -math.inf if math.isnan(score) else score


@dataclass(frozen=True)
class UnitsChoice:
    """The best circuit by validation likelihood, and all that were tried, from the smallest on."""

    units: int
    result: FitResult
    path: tuple[Tried, ...] = field(repr=False)

    @property
    def model(self) -> Model:
        """The model of the best circuit."""
        return self.result.model


def units_grid(units: Units) -> tuple[int, ...]:
    """The sizes to try, from the smallest on."""
    if isinstance(units, str):
        if units != "auto":
            raise OptionError(f"units must be a number, several, or 'auto', not {units!r}")
        return UNITS_GRID
    listed = sorted(set(units)) if isinstance(units, Iterable) else [units]
    if not listed:
        raise OptionError(f"units must list at least one number, not {units!r}")
    for number in listed:
        check_count("units", number, at_least=1)
    return tuple(listed)


def choose_units(grid: Sequence[int], train: Callable[[int], Sequence[FitResult]]) -> UnitsChoice:
    """Train sizes from the smallest on until two in a row are worse than the best by validation likelihood.

    train: all runs of a size. A size whose runs all fail counts as worse; TrainingError if that is all of them. After
    Ctrl-C the best so far is taken.
    """
    path: list[Tried] = []
    failure: TrainingError | None = None
    interrupted = False
    for units in grid:
        try:
            path.append(Tried(units, tuple(train(units))))
        except KeyboardInterrupt:  # before the training of this size
            if not any(tried.results for tried in path):
                raise
            interrupted = True
            break
        except TrainingError as error:
            failure = error
            path.append(Tried(units, ()))
        values = [tried.valid_ll for tried in path]
        worse = len(path) - 1 - values.index(max(values))
        interrupted = any(result.stopped == "interrupted" for result in path[-1].results)
        if worse >= MAX_WORSE_SIZES or interrupted:
            break
    chosen = max(path, key=lambda tried: (tried.best is not None, tried.valid_ll))  # the smallest of equals
    if chosen.best is None:
        raise failure or TrainingError("all runs failed, for every number of units")
    result = chosen.best
    if interrupted and result.stopped != "interrupted":
        result = replace(result, stopped="interrupted")
    return UnitsChoice(chosen.units, result, tuple(path))


def train_units(
    grid: Sequence[int], rows: Rows, pseudocounts: Sequence[float], seed: int = 0, init: Initialization = "prototypes"
) -> UnitsChoice:
    """Hidden Chow-Liu trees of these sizes, one fleet for each, with a run for each pseudocount."""
    tree = chow_liu_tree(rows.train, rows.schema.families, memory_budget=rows.settings.memory_budget)
    runs = [
        Run(Vanilla(pseudocount), seed, init=init, label=f"pseudocount {pseudocount:g}") for pseudocount in pseudocounts
    ]

    def train(units: int) -> list[FitResult]:
        note(f"{counted(units, 'unit')}, {counted(len(runs), 'run')}", rows.progress)
        circuit = hclt(rows.train, units, schema=rows.schema, tree=tree)
        return list(train_fleet(circuit, runs, rows.part(f"units-{units}")).values())

    return choose_units(grid, train)


def fit_units(  # noqa: PLR0913 - the data and what belongs to them; all other options go into records at once
    train: Any,
    units: Units = "auto",
    *,
    valid: Any = None,
    test: Any = None,
    weights: Any = None,
    missing: int | None = None,
    schema: Schema | None = None,
    pseudocounts: Sequence[float] = SMOOTHING,
    init: Initialization = "prototypes",
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **options: Unpack[TrainingOptions],
) -> UnitsChoice:
    """Train hidden Chow-Liu trees of several numbers of units, and take the best by validation likelihood (`.model`).

    Each size is trained as a fleet with one run for each pseudocount, from the smallest on, until two sizes in a row
    are worse than the best so far. The defaults of the options of `fit` are those of `fit_ensemble`. Ctrl-C ends the
    search with the best circuit so far (`.result.stopped == "interrupted"`).

    Parameters
    ----------
    train : array, tensor, list, data frame or Table
        As `fit` takes it.
    units : "auto", int or sequence of int, default "auto"
        "auto" is 4, 8, 16, 32, 64, 128, 256; or the numbers to choose from.
    valid : array, data frame or float, optional
        Held-out rows, or the share of the training rows to hold out; None is 10 %.
    test : array or data frame, optional
        Rows to score only.
    weights, missing, schema : as in `fit`
        Weights of the training rows, for the tree and the starts too; a mark for missing values; what the columns mean
        (None infers it).
    pseudocounts : sequence of float, default (0.003, 0.01, 0.03)
        Added to each sum's counts in every step, to choose from.
    init : {{"prototypes", "random"}}, default "prototypes"
        Start around rows of the training data, or at random.
    seed : int, default 0
        Seed of all random numbers.
    callbacks, progress : as in `fit`
        What happens around the training.
    {settings}

    Returns
    -------
    UnitsChoice
        `.units` is the number that was chosen, `.model` and `.result` its training, `.path` all of them.

    Raises
    ------
    OptionError
        With `valid=False`: the choice needs validation rows.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> choice = cc.fit_units(data.train, units=(2, 8), valid=data.valid, pseudocounts=(0.01,), epochs=4)
    >>> choice.units, [tried.units for tried in choice.path]
    (8, [2, 8])
    """
    refuse_unknown(options, signature(fit_units).parameters, "fit_units")
    grid = units_grid(units)
    if valid is False:
        raise OptionError("fit_units needs validation rows: leave valid=False out, and some rows are held out")
    check_data("fit_units", options.get("memory_budget"), train)
    table = as_table(train, weights=weights, missing=missing)
    schema = schema or infer_schema(table, memory_budget=options.get("memory_budget"))
    held = held_out(align(table, schema, unseen="error"), valid, schema, missing)
    if "valid" in held.rows and progress is not False:
        say(held, table)
    scored = None if test is None else align(as_table(test, missing=missing), schema, unseen="missing")
    kept = held.parts["train"]
    rows = Rows(kept, held.parts["valid"], schema, best_settings(options, kept), callbacks, progress, scored)
    asked = {"units": grid, "pseudocounts": tuple(pseudocounts), "seed": seed, "init": init}
    claim(
        rows.settings.checkpoint,
        "fit_units",
        lambda: {**rows.facts(), **{name: describe_value(value) for name, value in asked.items()}},
    )
    return train_units(grid, rows, pseudocounts, seed, init)


show_records(fit_units, settings=Settings)
