"""The members of an ensemble: which circuits they have, and their training as fleets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from circurve.data import Table, align, as_table
from circurve.errors import TrainingError
from circurve.graph import Circuit
from circurve.learning.ensemble import Candidate
from circurve.learning.ensemble_options import EnsembleOptions
from circurve.learning.fingerprint import Facts, option_facts, table_facts, text_digest
from circurve.learning.fitting import fit_fleet
from circurve.learning.fleet_size import runs_at_once
from circurve.learning.history import Callback, FitResult
from circurve.learning.methods import Vanilla
from circurve.learning.options import Run, Settings, TrainingOptions
from circurve.learning.progress import note
from circurve.learning.recipe import BEST_STEP, best_epochs
from circurve.learning.validation import HeldOut, set_aside
from circurve.schema import Schema
from circurve.structures import Tree, chow_liu_tree, hclt
from circurve.words import counted

__all__ = [
    "Plan",
    "Rows",
    "Trained",
    "best_settings",
    "held_out",
    "plan_members",
    "resampled_tree",
    "train_fleet",
    "train_members",
]


@dataclass(frozen=True)
class Plan:
    """One member to train."""

    number: int
    tree: int
    units: int
    run: Run


@dataclass(frozen=True)
class Rows:
    """The rows of a training, and how to train on them."""

    train: Table
    valid: Table | None
    schema: Schema
    settings: Settings
    callbacks: Sequence[Callback] = ()
    progress: bool | None = None
    test: Table | None = None

    def part(self, name: str) -> Rows:
        """The rows for one of several trainings, with its own folder of checkpoints."""
        return replace(self, settings=self.settings.part(name))

    def facts(self) -> Facts:
        """What a training on these rows depends on."""
        tables = {"train": self.train, "valid": self.valid, "test": self.test}
        return {**table_facts(tables), "schema": text_digest(self.schema), **option_facts(self.settings)}


def held_out(table: Table, valid: Any, schema: Schema, missing: int | None) -> HeldOut[Table]:
    """The training rows and the validation rows: those given, or a share of the training rows (None is 10 %)."""
    if valid is None:
        return set_aside(table)
    if isinstance(valid, float | bool):
        return set_aside(table, valid)
    part = align(as_table(valid, missing=missing), schema, unseen="missing")
    return HeldOut({"train": table, "valid": part}, {"train": np.arange(len(table))})


def best_settings(training: TrainingOptions, table: Table) -> Settings:
    """The options of training with the defaults of protocol `best`."""
    best: TrainingOptions = {"step_size": BEST_STEP, "epochs": best_epochs(len(table))}
    return Settings.of({**best, **training})


@dataclass(frozen=True)
class Trained:
    """The results of members, by their numbers; those that failed are left out."""

    results: dict[int, FitResult] = field(default_factory=dict)
    interrupted: bool = False

    def candidates(self) -> list[Candidate]:
        """The members in the order of their numbers, as candidates of an ensemble."""
        listed = sorted(self.results.items())
        return [
            Candidate(r.model, r.run.name(number), number, r.train_ll, r.epoch, r.train_rows, len(r.history))
            for number, r in listed
        ]


def plan_members(options: EnsembleOptions) -> list[Plan]:
    """All members: units change fastest, then pseudocounts, then trees; the seed is another one each time.

    M members that are trained at once, U numbers of units and P pseudocounts make max(1, M // (U P)) trees. With
    trees="bootstrap" and M < 2 U P there is one tree only, that of all rows.

    Those that are grown one by one come last; their trees are found when their turn comes.
    """
    units, pseudocounts = options.all_units, options.all_pseudocounts
    of_tree, at_once = len(units) * len(pseudocounts), options.members - options.boosted
    trees = max(1, at_once // of_tree) if options.trees == "bootstrap" else 1
    plans = []
    for number in range(options.members):
        states = units[number % len(units)]
        pseudocount = pseudocounts[number // len(units) % len(pseudocounts)]
        tree = number // of_tree % trees
        kind = f"tree {tree}" if number < at_once else "grown"
        label = f"{kind}, {counted(states, 'unit')}, pseudocount {pseudocount:g}"
        run = Run(Vanilla(pseudocount), options.seed + number, label=label, init=options.init)
        plans.append(Plan(number, tree, states, run))
    return plans


def train_members(plans: Sequence[Plan], rows: Rows, options: EnsembleOptions) -> Trained:
    """Train members as fleets, one for each tree and number of units. Ctrl-C ends all of it with what is there."""
    groups: dict[tuple[int, int], list[Plan]] = {}
    for plan in plans:
        groups.setdefault((plan.tree, plan.units), []).append(plan)
    trees = {tree: _tree(rows, tree, options.seed) for tree, _ in groups}
    done = Trained()
    for place, ((tree, units), group) in enumerate(groups.items()):
        note(
            f"fleet {place + 1} of {len(groups)}: tree {tree}, {counted(units, 'unit')}, {counted(len(group), 'run')}",
            rows.progress,
        )
        try:
            circuit = hclt(rows.train, units, schema=rows.schema, tree=trees[tree])
            results = train_fleet(circuit, [plan.run for plan in group], rows.part(f"tree-{tree}-units-{units}"))
        except KeyboardInterrupt:  # before the training of this fleet
            if not done.results:
                raise
            return replace(done, interrupted=True)
        kept = {group[place].number: result for place, result in results.items() if not result.failed}
        interrupted = any(result.stopped == "interrupted" for result in results.values())
        if interrupted and done.results:  # a run without a complete epoch is untrained
            kept = {number: result for number, result in kept.items() if result.history}
        done = Trained({**done.results, **kept}, interrupted)
        if interrupted:
            break
    return done


def train_fleet(circuit: Circuit, runs: Sequence[Run], rows: Rows) -> dict[int, FitResult]:
    """`fit_fleet` on these rows, in fleets of bounded size: the results by the places of their runs.

    Those of a fleet in which all runs failed are missing, and after Ctrl-C those of all later fleets. TrainingError if
    there are none.
    """
    most, results, failure = (
        runs_at_once(circuit.describe().parameters, rows.settings.memory_budget),
        dict[int, FitResult](),
        None,
    )
    for start in range(0, len(runs), most):
        settings = rows.settings if len(runs) <= most else rows.settings.part(f"fleet-{start // most}")
        try:
            fleet = fit_fleet(
                circuit,
                rows.train,
                runs[start : start + most],
                valid=False if rows.valid is None else rows.valid,
                test=rows.test,
                callbacks=rows.callbacks,
                progress=rows.progress,
                **settings.options(),
            )
        except TrainingError as error:
            failure = error
            continue
        except KeyboardInterrupt:  # before the training of this fleet
            if not results:
                raise
            return {place: replace(result, stopped="interrupted") for place, result in results.items()}
        results |= dict(enumerate(fleet, start))
        if any(result.stopped == "interrupted" for result in fleet):
            break
    if failure is not None and not results:
        raise failure
    return results


def _tree(rows: Rows, number: int, seed: int) -> Tree:
    """Tree 0 is that of all rows by their weights, the others are of as many rows drawn with replacement."""
    if number == 0:
        return chow_liu_tree(rows.train, rows.schema.families, memory_budget=rows.settings.memory_budget)
    return resampled_tree(rows, None, np.random.default_rng([seed, number]))


def resampled_tree(rows: Rows, weights: np.ndarray | None, rng: np.random.Generator) -> Tree:
    """The Chow-Liu tree of rows drawn with replacement, in proportion to their weights (N,)."""
    count = len(rows.train)
    if weights is None and rows.train.weights is not None:
        weights = rows.train.weights.cpu().numpy()
    shares = None if weights is None else weights / weights.sum()
    drawn = rows.train.bare().rows(rng.choice(count, count, p=shares))  # the draw has used the weights
    return chow_liu_tree(drawn, rows.schema.families, memory_budget=rows.settings.memory_budget)
