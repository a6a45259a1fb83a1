"""What `fit` and `sweep` have in common: options into records, data and circuit, one fleet, fields of reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import circurve.learning
from circurve.cli.loading import HeldOut, Source, SplitRecord, load_in_parts, parts_of, rows_of
from circurve.cli.measures import sharpness
from circurve.cli.methods import describe_method
from circurve.cli.models import Shape, build_circuit
from circurve.cli.option_records import TrainingOptions
from circurve.cli.show import NOTES, progress, sizes
from circurve.cli.signals import release_signals
from circurve.data import Dataset
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.learning import FitResult, FleetResult, Run
from circurve.learning.auto import needs_choice
from circurve.learning.checkpoints import claim
from circurve.learning.fingerprint import option_facts
from circurve.learning.options import Settings
from circurve.learning.ray_engine import Engine
from circurve.learning.units import Tried, choose_units
from circurve.words import counted

__all__ = [
    "STOPPED",
    "Job",
    "Sized",
    "describe_job",
    "describe_run",
    "describe_runs",
    "known",
    "learned",
    "load_for",
    "missing_scores",
    "train",
    "train_fleet",
    "train_sizes",
]

SCORES = ("train_ll", "valid_ll", "test_ll")

STOPPED = {
    "epochs": "all epochs done",
    "tolerance": "the gain fell below the tolerance",
    "patience": "the validation score stopped improving",
    "callback": "stopped by a callback",
    "interrupted": "interrupted",
    "failed": "a number was not finite",
}


@dataclass(frozen=True)
class Job:
    """A training with all its options checked; all runs share the circuit, which the first run's seed makes."""

    shape: Shape
    runs: tuple[Run, ...]
    settings: Settings
    step_size: str | float
    """As it was typed, where it was."""

    @classmethod
    def of(cls, shape: Shape, runs: Sequence[Run], typed: TrainingOptions, track: bool = False) -> Job:
        """Check what was typed."""
        settings = typed.settings(track)
        return cls(shape, tuple(runs), settings, typed.step_size or cast("float", settings.step))


def load_for(job: Job, source: Source, held: HeldOut, sizes: int = 1) -> tuple[Dataset, SplitRecord | None]:
    """The data in parts and how they were split; options that need validation rows are refused if there are none.

    sizes: how many numbers of units there are to choose from.
    """
    data, split = load_in_parts(source, held, job.runs[0].seed)
    if data.valid is None:
        cure = "need validation rows: pass --valid FILE or a share in --split"
        if sizes > 1:
            raise OptionError(f"several --units {cure}; or pass one number, --units N")
        if job.settings.patience is not None or job.settings.select == "best":
            raise OptionError(f"--patience and --select best {cure}")
        if any(needs_choice(run) for run in job.runs):
            raise OptionError(f"several --mu or --gate, and auto, {cure}; or pass one number, --mu F")
    return data, split


def train(job: Job, data: Dataset, engine: Engine = "local") -> FleetResult:
    """Build the circuit and train all runs side by side."""
    circuit = build_circuit(job.shape, data, job.runs[0].seed, job.settings.memory_budget)
    settings = job.settings
    progress(
        f"{sizes(data)}\n{counted(circuit.describe().parameters, 'parameter')}, {settings.device}, {settings.precision}"
    )
    return train_fleet(circuit, data, job.runs, settings, engine)


@dataclass(frozen=True)
class Sized:
    """The best of several numbers of units: a job of that size, its result, and all sizes that were tried."""

    job: Job
    result: FitResult
    path: tuple[Tried, ...]


def train_sizes(job: Job, sizes: Sequence[int], data: Dataset) -> Sized:
    """Train the job's run with each number of units, from the smallest on, and take the best by validation."""
    settings, asked = job.settings, {"units": str(list(sizes))}
    claim(settings.checkpoint, "circurve fit --units", lambda: {**asked, **option_facts(settings)})
    choice = choose_units(sizes, lambda units: train(_of_size(job, units, settings.part(f"units-{units}")), data))
    return Sized(_of_size(job, choice.units, settings), choice.result, choice.path)


def _of_size(job: Job, units: int, settings: Settings) -> Job:
    return replace(job, shape=replace(job.shape, units=units), settings=settings)


def train_fleet(
    circuit: Circuit, data: Dataset, runs: Sequence[Run], settings: Settings, engine: Engine = "local"
) -> FleetResult:
    """`circurve.fit_fleet` on the parts of a data set."""
    return circurve.learning.fit_fleet(
        circuit,
        data.train,
        runs,
        valid=False if data.valid is None else data.valid,
        test=data.test,
        engine=engine,
        **settings.options(),
    )


def describe_job(job: Job, data: Dataset, split: SplitRecord | None = None) -> dict[str, Any]:
    """The fields of a report that all runs share."""
    return {
        "dataset": data.name,
        "rows": rows_of(parts_of(data)),
        "variables": data.train.shape[1],
        "columns": data.columns,
        "structure": job.shape.structure.value,
        "leaves": job.shape.shown_leaves,
        "units": job.shape.units,
        "batch_size": job.settings.batch_size or "full",
        "step_size": job.step_size,
        "precision": job.settings.precision,
        "split": split,
    }


def describe_runs(
    results: Sequence[FitResult], data: Dataset, memory_budget: int | None = None
) -> list[dict[str, Any]]:
    """`describe_run` of each; after a signal, the sharpness of the others is not measured."""
    described: list[dict[str, Any]] = []
    for result in results:
        stop = any(NOTES in record for record in described)
        described.append(describe_run(result, data, memory_budget, measure=not stop))
    return described


def describe_run(
    result: FitResult, data: Dataset, memory_budget: int | None = None, measure: bool = True
) -> dict[str, Any]:
    """The fields of a report about one run: its method, how far it got, its scores; those of a failed run are None.

    A signal leaves out the scores that are not known yet, and `notes` says so. memory_budget: bytes to measure the
    sharpness; measure: False leaves it out too.
    """
    failure, stopped, trace = result.failure, result.stopped, None
    scores = {name: getattr(result, name) for name in SCORES}
    missing = [name for name, score in scores.items() if score is not None and known(score) is None]
    if not result.failed:
        try:
            if missing or not measure:
                raise KeyboardInterrupt
            with release_signals():
                trace = sharpness(result.model, data.train, memory_budget)
        except KeyboardInterrupt:
            stopped, missing = "interrupted", [*missing, "sharpness"]
    scores = {**{name: known(score) for name, score in scores.items()}, "sharpness": trace, "dof": result.dof}
    return {
        **describe_method(result.run.method),
        "seed": result.run.seed,
        "init": result.run.init,
        "epochs": len(result.history),
        "epoch": result.epoch,
        "stopped": stopped,
        **(dict.fromkeys(scores) if result.failed else scores),
        "failure": None if failure is None else f"in epoch {failure.epoch}: {failure.reason}",
        **({NOTES: [missing_scores(missing)]} if missing and not result.failed else {}),
    }


def learned(result: FitResult) -> bool:
    """Whether a model is worth a file: an interrupt before the first step leaves the initial parameters."""
    return not result.failed and (result.stopped != "interrupted" or result.epoch > 0)


def known(score: float | None) -> float | None:
    """A score; None for NaN, which stands for a score that an interrupt left out."""
    return None if score is None or math.isnan(score) else score


def missing_scores(names: Sequence[str]) -> str:
    """Which scores a report does not have, and why."""
    return f"{', '.join(names)}: not computed, because the command was interrupted"
