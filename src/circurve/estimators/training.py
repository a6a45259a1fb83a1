"""From a table to a model: structure, early stopping on a share of the rows, a last fit on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from circurve.budget import check_budget
from circurve.data import Table
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.learning import Ensemble, FitResult, Gated, Global, Run, Vanilla, fit, fit_ensemble, fit_fleet
from circurve.learning.checkpoints import claim
from circurve.learning.checks import check_choice, check_count
from circurve.learning.fingerprint import Facts, option_facts, table_facts, text_digest
from circurve.learning.initialize import INITIALIZATIONS, Initialization
from circurve.learning.methods import Method, Strength
from circurve.learning.mixing import mix
from circurve.learning.schedules import Schedule
from circurve.learning.units import Units, choose_units, units_grid
from circurve.learning.validation import FEWEST_ROWS
from circurve.model import Model
from circurve.schema import Schema
from circurve.structures import chow_liu, fully_factorized, hclt, mixture

__all__ = ["Recipe", "build", "learn", "learn_more"]

Build: TypeAlias = Callable[[Table, int, Schema], Circuit]
"""(rows, units, schema) -> Circuit."""

BuildWithin: TypeAlias = Callable[[Table, int, Schema, int | None], Circuit]
"""(rows, units, schema, memory budget) -> Circuit."""

STRUCTURES: Mapping[str, BuildWithin] = {
    "hclt": lambda table, units, schema, budget: hclt(table, units, schema=schema, memory_budget=budget),
    "chow_liu": lambda table, units, schema, budget: chow_liu(table, schema=schema, memory_budget=budget),
    "mixture": lambda table, units, schema, budget: mixture(schema, units),
    "independent": lambda table, units, schema, budget: fully_factorized(schema),
}

METHODS = ("vanilla", "global", "gated")

DISCRETE_PSEUDOCOUNT = 0.1
"""pseudocount="auto" for tables of discrete columns alone; 0 for others, whose units keep a least variance anyway."""

STEP_EXPONENT = 0.6
"""Step t of a stream goes (t + 1)^-0.6 of the way; the steps converge for an exponent above 1/2 and up to 1 (Cappe and
Moulines, 2009)."""


@dataclass(frozen=True)
class Recipe:
    """How an estimator trains: its parameters, under the names that users give them."""

    n_units: Units
    n_estimators: int
    ensemble: int | None
    structure: str | Circuit | Build
    method: str | Method
    mu: Strength
    init: Initialization | Literal["auto"]
    max_epochs: int
    batch_size: int | None
    step_size: float | Schedule | None
    pseudocount: float | Literal["auto"]
    validation_fraction: float | None
    patience: int
    device: str | torch.device
    verbose: int
    checkpoint: str | PathLike[str] | None
    memory_budget: int | None

    def __post_init__(self) -> None:
        check_count("n_estimators", self.n_estimators, at_least=1)
        check_budget(self.memory_budget)
        if isinstance(self.n_units, str) and self.ensemble is not None:
            raise OptionError("n_units='auto' is for one circuit; with ensemble list the numbers: n_units=(32, 100)")
        if len(self.all_units) > 1 and self.ensemble is None and not self.validation_fraction:
            raise OptionError("several n_units need a validation_fraction; or pass one number")
        if self.method == "gated" and isinstance(self.mu, str) and not self.validation_fraction:
            raise OptionError("mu='auto' needs a validation_fraction; or pass a number")
        if self.ensemble is not None:
            check_count("ensemble", self.ensemble, at_least=1)
            if self.structure != "hclt" or self.method != "vanilla":
                raise OptionError(
                    "ensemble needs structure='hclt' and method='vanilla': leave ensemble out, or both of these"
                )
        check_choice("init", self.init, ("auto", *INITIALIZATIONS))
        share: object = self.validation_fraction
        if share is not None and not (isinstance(share, int | float) and 0 <= share < 1):
            raise OptionError(f"validation_fraction must be None or a number from 0 to below 1, not {share!r}")
        if isinstance(self.pseudocount, str) and self.pseudocount != "auto":
            raise OptionError(f"pseudocount must be 'auto' or a number >= 0, not {self.pseudocount!r}")

    @property
    def all_units(self) -> tuple[int, ...]:
        """The numbers of units to choose from."""
        return units_grid(self.n_units)

    def method_for(self, circuit: Circuit) -> Method:
        """The M-step, by its name or as a record."""
        if isinstance(self.method, Vanilla | Global | Gated):
            return self.method
        pseudocount: Any = self.pseudocount
        if isinstance(pseudocount, str):
            pseudocount = DISCRETE_PSEUDOCOUNT if all(family.discrete for family in circuit.families) else 0.0
        if self.method == "vanilla":
            return Vanilla(pseudocount)
        if self.method == "global":
            return Global(self.mu, pseudocount=pseudocount)
        if self.method == "gated":
            return Gated(self.mu, pseudocount=pseudocount)
        known = ", ".join(repr(name) for name in METHODS)
        raise OptionError(f"method must be {known}, Vanilla(), Global(mu) or Gated(mu), not {self.method!r}")

    @property
    def options(self) -> dict[str, Any]:
        """What every call of `fit` is given. In small tables float64 is as fast as float32, and it scores columns far
        from zero."""
        return {
            "batch_size": self.batch_size,
            "step_size": self.step_size,
            "device": self.device,
            "checkpoint": self.checkpoint,
            "memory_budget": self.memory_budget,
            "precision": "float64",
            "progress": bool(self.verbose),
        }

    def part(self, name: str) -> Recipe:
        """The recipe for one of several trainings, with its own folder of checkpoints."""
        return self if self.checkpoint is None else replace(self, checkpoint=Path(self.checkpoint) / name)

    def facts(self) -> Facts:
        """What of the recipe decides about a training."""
        return {name: fact for name, fact in option_facts(self).items() if name not in ("verbose", "memory_budget")}


def build(recipe: Recipe, table: Table, schema: Schema) -> Circuit:
    """The circuit of an estimator for these rows."""
    structure = recipe.structure
    if isinstance(structure, Circuit):
        return structure
    units, *more = recipe.all_units
    if more:
        raise OptionError(f"n_units={recipe.n_units!r} is chosen by fit; partial_fit needs one number")
    if callable(structure):
        return structure(table, units, schema)
    if structure not in STRUCTURES:
        known = ", ".join(repr(name) for name in STRUCTURES)
        raise OptionError(f"structure must be {known}, a Circuit or a function, not {structure!r}")
    return STRUCTURES[structure](table, units, schema, recipe.memory_budget)


@dataclass(frozen=True)
class Learned:
    """What training gives an estimator."""

    model: Model
    epochs: int
    units: int | tuple[int, ...]
    ensemble: Ensemble | None = None


def learn(recipe: Recipe, table: Table, schema: Schema, seed: int) -> Learned:
    """Train the members of an estimator on the rows of a table; the model is their mixture.

    A share of the rows decides, by their likelihood, when to stop, where to start and which mu is best. Then all rows
    train the chosen members for as many epochs: in a small table, the held-out rows are worth more than the time.
    """
    table = _observed_rows(table)
    claim(
        recipe.checkpoint,
        "estimator",
        lambda: {**table_facts({"train": table}), "schema": text_digest(schema), "seed": str(seed), **recipe.facts()},
    )
    if recipe.ensemble is not None and len(table) >= FEWEST_ROWS:
        return _learn_ensemble(recipe, table, schema, seed)
    units = recipe.all_units[0]
    circuit = build(replace(recipe, n_units=units), table, schema)
    method = recipe.method_for(circuit)
    inits: list[Initialization] = ["random", "prototypes"] if recipe.init == "auto" else [recipe.init]
    trials = [Run(method, seed, init=init) for init in inits]
    share, best, epochs = recipe.validation_fraction, trials[-1], recipe.max_epochs
    if share and len(table) > 1:
        train, valid = _split(table, share, seed)
        given: dict[str, Any] = {"valid": valid, "patience": recipe.patience, "epochs": recipe.max_epochs}
        circuits = {units: circuit}

        def try_size(size: int) -> Sequence[FitResult]:
            if size not in circuits:
                circuits[size] = build(replace(recipe, n_units=size), table, schema)
            return fit_fleet(circuits[size], train, trials, **given, **recipe.part(f"units-{size}").options)

        choice = choose_units(recipe.all_units, try_size)
        units, circuit = choice.units, circuits[choice.units]
        best, epochs = choice.result.run, max(1, choice.result.epoch)
    members = [replace(best, seed=seed + number) for number in range(recipe.ensemble or recipe.n_estimators)]
    enough = [lambda event: event.epoch >= epochs]
    options = {**recipe.part("members").options, "epochs": recipe.max_epochs, "callbacks": enough}
    results = fit_fleet(circuit, table, members, valid=False, **options)
    return Learned(
        mix([result.model for result in results if not result.failed], memory_budget=recipe.memory_budget),
        epochs,
        units,
    )


def _learn_ensemble(recipe: Recipe, table: Table, schema: Schema, seed: int) -> Learned:
    """`fit_ensemble` with the parameters of an estimator; what they leave open is as it says there."""
    given: dict[str, Any] = {"batch_size": recipe.batch_size, "step_size": recipe.step_size}
    given |= {"checkpoint": recipe.part("ensemble").checkpoint, "memory_budget": recipe.memory_budget}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if recipe.pseudocount != "auto":
        options["pseudocounts"] = recipe.pseudocount
    if recipe.init != "auto":
        options["init"] = recipe.init
    share = recipe.validation_fraction
    made = fit_ensemble(
        table,
        valid=float(share) if share else False,
        schema=schema,
        members=recipe.ensemble or 1,
        units=recipe.all_units,
        epochs=recipe.max_epochs,
        patience=recipe.patience,
        seed=seed,
        device=recipe.device,
        precision="float64",
        progress=bool(recipe.verbose),
        **options,
    )
    return Learned(made.model, max(member.epoch or 0 for member in made.members), recipe.all_units, made)


def _observed_rows(table: Table) -> Table:
    """The rows with at least one value, or all rows if no row has one. EM learns nothing from the others."""
    if table.observed is None:
        return table
    some = table.observed.any(1)
    return table.rows(some) if bool(some.any()) and not bool(some.all()) else table


def _split(table: Table, share: float, seed: int) -> tuple[Table, Table]:
    """The rows to train on and those to validate by, at least one; drawn by the seed, in their order."""
    held = max(1, round(share * len(table)))
    order = np.random.default_rng(seed).permutation(len(table))
    return table.rows(np.sort(order[held:])), table.rows(np.sort(order[:held]))


def learn_more(recipe: Recipe, start: Model | Circuit, table: Table, seed: int, steps: int) -> Model:
    """One EM step on all rows of a table, after `steps` earlier ones; a circuit is given starting parameters first."""
    options: dict[str, Any] = {**recipe.options, "batch_size": None, "seed": seed, "checkpoint": None}
    if recipe.step_size is None:
        options["step_size"] = (steps + 1) ** -STEP_EXPONENT
    circuit = start if isinstance(start, Circuit) else start.circuit
    options["method"] = recipe.method_for(circuit)
    if isinstance(start, Circuit):
        options["init"] = "prototypes" if recipe.init == "auto" else recipe.init
        return fit(circuit, table, epochs=1, **options).model
    return fit(circuit, table, start=start, epochs=1, **options).model
