"""The leaderboard: on each data set a Chow-Liu tree, the best single circuit, and ensembles, all chosen by validation.

Each data set and seed is recorded as soon as it is done, so that a run can be stopped at any moment and resumed. All
numbers of the recipe are in `learning.recipe.RECORD`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from circurve.data import Dataset, Table
from circurve.data.catalogue import check_folder, find_datasets
from circurve.engine.memory import ran_out
from circurve.errors import CircurveError, MemoryLimitError, OptionError, TrainingError
from circurve.learning import Ensemble
from circurve.learning.ensemble import Candidate
from circurve.learning.ensemble_options import EnsembleOptions
from circurve.learning.fitting_ensembles import train_ensemble, train_jointly
from circurve.learning.members import Rows, best_settings
from circurve.learning.options import TrainingOptions
from circurve.learning.recipe import QUICK_RECORD, RECORD, RecordRecipe
from circurve.learning.schedules import cosine
from circurve.learning.units import UnitsChoice, train_units
from circurve.model import Model
from circurve.reproduction.comparisons import Parts, chow_liu_scores, rounded
from circurve.reproduction.plan import describe_data, describe_environment, digest, load_study_data
from circurve.reproduction.records import Record, RecordFile, identify
from circurve.reproduction.runner import CHECKPOINTS, remove_checkpoints
from circurve.reproduction.spec import RECORD_PROTOCOL, ReproduceOptions, chosen_datasets

__all__ = ["FILE", "KINDS", "LEADERBOARD", "check_options", "leaderboard_records", "recipe_for", "seeds_for"]

LEADERBOARD = "leaderboard"
FILE = "leaderboard.jsonl"

CHECKPOINT_EVERY = "1min"
"""Finished trainings of a job are written too: the next ones need them."""

KINDS = ("single", "ensemble", "joint")
"""What competes for the record: the best single circuit, the ensemble, the ensemble after joint training."""

SEEDS, QUICK_SEEDS = (0, 1, 2), (0,)

SEED_STRIDE = 1000
"""The runs of seed s have the seeds from s times this on, so that no two seeds share a run."""

RESULTS_VERSION = 2
"""Raised with every change of the package that changes results: older records then no longer count as known."""

Progress = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One data set and seed."""

    id: str
    data: Dataset
    data_hash: str
    seed: int
    recipe: RecordRecipe
    device: str
    memory_budget: int | None = None


def recipe_for(options: ReproduceOptions) -> RecordRecipe:
    """The recipe with the changes that the options ask for."""
    recipe = QUICK_RECORD if options.quick else RECORD
    recipe = recipe if options.epochs is None else replace(recipe, epochs=options.epochs)
    return recipe if options.units is None else replace(recipe, units=(options.units,))


def seeds_for(options: ReproduceOptions) -> tuple[int, ...]:
    """Three seeds, or those that the options name."""
    return options.seeds or (QUICK_SEEDS if options.quick else SEEDS)


def leaderboard_records(
    options: ReproduceOptions, file: RecordFile, *, command: str | None = None, progress: Progress = lambda _: None
) -> list[Record]:
    """Train what is not recorded yet, and return all records, by data set and seed.

    A data set that cannot be trained does not stop the others: the error names it when all others are recorded.
    """
    check_options(options)
    jobs = _jobs(options)
    environment = describe_environment(command, options.device)
    left, failed = [job for job in jobs if job.id not in file.by_id], list[tuple[Job, str]]()
    for number, job in enumerate(left, 1):
        progress(f"{number} of {len(left)}: {job.data.name}, seed {job.seed}")
        try:
            folder = file.folder / CHECKPOINTS / job.id
            file.append([_measure(job, environment, progress, folder)])
            remove_checkpoints(folder)
        except Exception as error:
            if not isinstance(error, CircurveError) and not ran_out(error):
                raise
            failed.append((job, str(error)))  # the error itself would hold on to tensors
            progress(f"  failed: {error}")
    if failed:
        raise _failure(failed)
    return [file.by_id[job.id] for job in jobs]


def _failure(failed: Sequence[tuple[Job, str]]) -> TrainingError:
    """One error for all jobs that failed: the first reason of each data set."""
    reasons = dict[str, str]()
    for job, error in failed:
        reasons.setdefault(job.data.name, f"{job.data.name}, seed {job.seed}: {error}")
    listed = "\n".join(reasons.values())
    advice = "all others are recorded; leave these data sets out and resume, to see the leaderboard of the others"
    return TrainingError(f"{listed}\n{advice}")


def check_options(options: ReproduceOptions) -> None:
    """Refuse what has no effect here."""
    if options.protocol != RECORD_PROTOCOL:
        raise OptionError(f"{LEADERBOARD} has its own protocol, {RECORD_PROTOCOL}; leave out {options.protocol!r}")
    plain = ReproduceOptions()
    for name in ("mu", "gate", "max_runs"):
        if getattr(options, name) != getattr(plain, name):
            option = f"--{name.replace('_', '-')}"
            raise OptionError(f"{option} has no effect on {LEADERBOARD}, which trains by plain EM; leave it out")


def _jobs(options: ReproduceOptions) -> list[Job]:
    """All data sets with all seeds; all data are loaded first, so that gaps show at once."""
    recipe, jobs = recipe_for(options), list[Job]()
    for name in _datasets(options):
        data = load_study_data(name, options.data_dir, options.memory_budget)
        if any(job.data.name == data.name for job in jobs):
            raise OptionError(
                f"datasets: two of them have the name '{data.name}', and records are stored by name; rename one of them"
            )
        known = digest(data)
        for seed in seeds_for(options):
            facts = {"results": RESULTS_VERSION, "data": known, "recipe": describe_recipe(recipe), "seed": seed}
            jobs.append(Job(identify(facts), data, known, seed, recipe, options.device, options.memory_budget))
    return jobs


def _datasets(options: ReproduceOptions) -> tuple[str, ...]:
    """As for the tables; of a folder, all sets that it holds."""
    chosen = chosen_datasets(options)
    if options.datasets is not None or options.data_dir is None:
        return chosen
    return tuple(dict.fromkeys((*chosen, *sorted(find_datasets(check_folder(options.data_dir))))))


def describe_recipe(recipe: RecordRecipe) -> Record:
    """The recipe as plain values."""
    step = recipe.joint.step
    named = f"cosine:{step.start:g}:{step.end:g}" if isinstance(step, cosine) else step
    listed = asdict(replace(recipe, joint=replace(recipe.joint, step=None)))
    plain: Record = {name: list(value) if isinstance(value, tuple) else value for name, value in listed.items()}
    return {**plain, "joint": {**plain["joint"], "step": named}}


def _measure(job: Job, environment: Record, progress: Progress, checkpoint: Path) -> Record:
    """The record of one data set and seed. KeyboardInterrupt if a training was interrupted.

    checkpoint: a folder for the states of its trainings. If there are some, the job goes on from there, and how long
    it took is not known.
    """
    recipe, rows, continued = job.recipe, _rows(job, checkpoint), checkpoint.exists()
    started = time.perf_counter()
    first = SEED_STRIDE * job.seed
    scores: dict[str, Record | None] = {"chow_liu": chow_liu_scores(Parts.of(job.data), job.device, job.memory_budget)}
    single, seconds = _timed(lambda: train_units(recipe.units, rows.part("single"), recipe.pseudocounts, first))
    _check_interrupted(single.result.stopped)
    scores["single"] = {**_describe_single(single), "seconds": None if continued else seconds}
    progress(f"  single: {single.units} units, valid {single.result.valid_ll:.3f}, {seconds:.0f} s")
    options = _ensemble_options(recipe, single, first + 1)
    pool = _pool(single, options.members) if recipe.pool_singles else []
    made, seconds = _timed(lambda: train_ensemble(rows.part("ensemble"), options, pool))
    _check_interrupted(made.stopped)
    scores["ensemble"] = {**_describe_ensemble(made, rows), "seconds": None if continued else seconds}
    progress(f"  ensemble: {len(made.members)} members, valid {made.valid_ll:.3f}, {seconds:.0f} s")
    try:
        joint, seconds = _timed(lambda: train_jointly(made, rows, recipe.joint, options))
        _check_interrupted(joint.stopped)
        scores["joint"] = {**_describe_ensemble(joint, rows), "seconds": None if continued else seconds}
        progress(f"  joint training: valid {joint.valid_ll:.3f}, {seconds:.0f} s")
    except Exception as error:  # it trains all members at once
        if not isinstance(error, MemoryLimitError) and not ran_out(error):
            raise
        scores["joint"] = None
        progress(f"  joint training needs more memory and is left out: {error}")
    return {
        "id": job.id,
        "study": LEADERBOARD,
        "dataset": job.data.name,
        "seed": job.seed,
        "recipe": describe_recipe(recipe),
        "shape": {"rows": len(rows.train), "variables": rows.train.shape[1], "epochs": rows.settings.epochs},
        "environment": {**environment, **describe_data(job.data, job.data_hash)},
        "scores": scores,
        "record": best_kind(scores),
        "seconds": None if continued else round(time.perf_counter() - started, 3),
    }


def best_kind(scores: dict[str, Record | None]) -> str:
    """Which of single, ensemble and joint has the best validation likelihood; the simplest of equals."""

    def valid(kind: str) -> float:
        found = scores[kind]
        return -math.inf if found is None or found["valid_ll"] is None else float(found["valid_ll"])

    return max(KINDS, key=valid)


def _rows(job: Job, checkpoint: Path) -> Rows:
    """The rows in a schema that takes the values of all parts."""
    parts = Parts.of(job.data)
    given: TrainingOptions = {"device": job.device, "patience": job.recipe.patience}
    given |= {"memory_budget": job.memory_budget, "checkpoint": checkpoint, "checkpoint_every": CHECKPOINT_EVERY}
    if job.recipe.epochs is not None:
        given["epochs"] = job.recipe.epochs
    settings = best_settings(given, parts.train)
    return Rows(parts.train, parts.valid, parts.schema, settings, progress=False, test=parts.test)


def _ensemble_options(recipe: RecordRecipe, single: UnitsChoice, seed: int) -> EnsembleOptions:
    return EnsembleOptions(
        members=recipe.members,
        units=recipe.units_of_members(single.units),
        pseudocounts=recipe.member_pseudocounts,
        boosted=recipe.boosted,
        seed=seed,
    )


def _pool(single: UnitsChoice, first: int) -> list[Candidate]:
    """All single circuits that were tried, numbered after the members."""
    listed = [(tried.units, r) for tried in single.path for r in tried.results if not r.failed]
    return [
        Candidate(
            r.model, f"{units} units, {r.run.label}", first + place, r.train_ll, r.epoch, r.train_rows, len(r.history)
        )
        for place, (units, r) in enumerate(listed)
    ]


def _describe_single(single: UnitsChoice) -> Record:
    result = single.result
    return {
        "units": single.units,
        "pseudocount": result.run.method.pseudocount,
        "epoch": result.epoch,
        **{name: rounded(getattr(result, name)) for name in ("train_ll", "valid_ll", "test_ll")},
        "parameters": result.model.circuit.describe().parameters,
        "path": [
            {
                "units": tried.units,
                "pseudocount": tried.best.run.method.pseudocount,
                "valid_ll": rounded(tried.best.valid_ll),
                "test_ll": rounded(tried.best.test_ll),
            }
            for tried in single.path
            if tried.best is not None
        ],
    }


def _describe_ensemble(made: Ensemble, rows: Rows) -> Record:
    assert rows.test is not None
    return {
        "members": len(made.members),
        "left_out": len(made.left_out),
        "weights": {member.name: round(member.weight, 4) for member in made.members},
        "train_ll": rounded(_mean(made.model, rows.train, rows.settings.memory_budget)),
        "valid_ll": rounded(made.valid_ll),
        "test_ll": rounded(_mean(made.model, rows.test, rows.settings.memory_budget)),
        "parameters": made.model.circuit.describe().parameters,
    }


def _mean(model: Model, table: Table, memory_budget: int | None) -> float:
    return float(model.log_prob(table, memory_budget=memory_budget).mean())


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.perf_counter()
    result = work()
    return result, round(time.perf_counter() - started, 3)


def _check_interrupted(stopped: str) -> None:
    if stopped == "interrupted":
        raise KeyboardInterrupt
