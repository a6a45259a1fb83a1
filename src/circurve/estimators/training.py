"""From a table to a model: structure, early stopping on a share of the rows, a last fit on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from circurve.data import Table
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.inputs import Family
from circurve.learning import Gated, Global, Vanilla, fit
from circurve.learning.history import FitResult
from circurve.learning.initialize import Initialization
from circurve.learning.methods import Method, Strength
from circurve.learning.schedules import Schedule
from circurve.model import Model
from circurve.structures import fully_factorized, hclt, mixture

__all__ = ["Recipe", "build", "learn", "learn_more"]

Build: TypeAlias = Callable[[Table, int, Sequence[Family]], Circuit]
"""(rows, units, one family for each column) -> Circuit."""

STRUCTURES: Mapping[str, Build] = {
    "hclt": lambda table, units, families: hclt(table, units, families),
    "mixture": lambda table, units, families: mixture(families, units),
    "independent": lambda table, units, families: fully_factorized(families),
}

METHODS = ("vanilla", "global", "gated")

FORGETTING = 0.6
"""Step t of a stream goes (t + 1)^-0.6 of the way; the steps converge for an exponent above 1/2 and up to 1 (Cappe and
Moulines, 2009)."""


@dataclass(frozen=True)
class Recipe:
    """How an estimator trains: its parameters, under the names that users give them."""

    n_units: int
    structure: str | Circuit | Build
    method: str | Method
    mu: Strength
    init: Initialization
    max_epochs: int
    batch_size: int | None
    step_size: float | Schedule | None
    pseudocount: float
    validation_fraction: float | None
    patience: int
    device: str | torch.device
    verbose: int

    def __post_init__(self) -> None:
        share: object = self.validation_fraction
        if share is not None and not (isinstance(share, int | float) and 0 <= share < 1):
            raise OptionError(f"validation_fraction must be None or a number from 0 to below 1, not {share!r}")

    @property
    def chosen_method(self) -> Method:
        """The M-step, by its name or as a record."""
        if isinstance(self.method, Vanilla | Global | Gated):
            return self.method
        if self.method == "vanilla":
            return Vanilla(self.pseudocount)
        if self.method == "global":
            return Global(self.mu, pseudocount=self.pseudocount)
        if self.method == "gated":
            return Gated(self.mu, pseudocount=self.pseudocount)
        known = ", ".join(repr(name) for name in METHODS)
        raise OptionError(f"method must be {known}, Vanilla(), Global(mu) or Gated(mu), not {self.method!r}")

    @property
    def options(self) -> dict[str, Any]:
        """What every call of `fit` is given. In small tables float64 is as fast as float32, and it scores columns far
        from zero."""
        return {
            "init": self.init,
            "batch_size": self.batch_size,
            "step_size": self.step_size,
            "device": self.device,
            "precision": "float64",
            "progress": bool(self.verbose),
        }


def build(recipe: Recipe, table: Table, families: Sequence[Family]) -> Circuit:
    """The circuit of an estimator for these rows."""
    structure = recipe.structure
    if isinstance(structure, Circuit):
        return structure
    if callable(structure):
        return structure(table, recipe.n_units, families)
    if structure not in STRUCTURES:
        known = ", ".join(repr(name) for name in STRUCTURES)
        raise OptionError(f"structure must be {known}, a Circuit or a function, not {structure!r}")
    return STRUCTURES[structure](table, recipe.n_units, families)


def learn(recipe: Recipe, circuit: Circuit, table: Table, seed: int) -> FitResult:
    """Train a circuit on the rows of a table.

    A share of the rows decides when to stop (and which mu is best). Then all rows train the same start for as many
    epochs: in a small table, the rows set aside are worth more than the time.
    """
    method = recipe.chosen_method
    options: dict[str, Any] = {"seed": seed, "epochs": recipe.max_epochs, **recipe.options}
    share = recipe.validation_fraction
    if not share or len(table) == 1:
        return fit(circuit, table, method=method, **options)
    held = max(1, round(share * len(table)))
    order = np.random.default_rng(seed).permutation(len(table))
    train, valid = table.rows(np.sort(order[held:])), table.rows(np.sort(order[:held]))
    first = fit(circuit, train, valid=valid, method=method, patience=recipe.patience, **options)
    return fit(
        circuit, table, method=first.run.method, callbacks=[lambda event: event.epoch >= first.epoch], **options
    )


def learn_more(recipe: Recipe, start: Model | Circuit, table: Table, seed: int, steps: int) -> Model:
    """One EM step on all rows of a table, after `steps` earlier ones; a circuit is given starting parameters first."""
    options = {**recipe.options, "batch_size": None}
    if recipe.step_size is None:
        options["step_size"] = (steps + 1) ** -FORGETTING
    if isinstance(start, Circuit):
        return fit(start, table, method=recipe.chosen_method, seed=seed, epochs=1, **options).model
    return fit(start.circuit, table, start=start, method=recipe.chosen_method, seed=seed, epochs=1, **options).model
