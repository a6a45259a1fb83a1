"""The runner: trains the fleets of a study one after the other and records each run as soon as it is known.

It can be stopped in any way at any moment: started again, it trains the fleets that are not recorded, the one that was
being trained from its last checkpoint. A fleet that is recorded in part is trained again whole and only its missing
runs are recorded, so that rounding, which may depend on the size of a fleet, is the same as in an undisturbed study.
"""

from __future__ import annotations

import math
import shutil
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

import circurve.learning
from circurve.curvature import Curvature, concentration, curvature, depth_profile, reversals
from circurve.curvature.record import By
from circurve.data import Dataset, Table
from circurve.errors import CircurveWarning, DataError, TrainingError
from circurve.graph import Circuit
from circurve.learning import Failure, FitResult, Run
from circurve.learning.history import EpochRecord
from circurve.learning.local_curvature import ESTIMATORS
from circurve.learning.ray_engine import Engine, require_ray, run_on_ray
from circurve.reproduction.display import Display
from circurve.reproduction.plan import (
    MEASURED_SETTINGS,
    Fleet,
    PlannedRun,
    circuit_for,
    describe_data,
    describe_environment,
    describe_settings,
    plan_study,
    training_rows,
)
from circurve.reproduction.records import Record, RecordFile, RunRecord, as_run, identify, significant
from circurve.reproduction.spec import Study, describe_setting, describe_use

__all__ = ["run_study"]

CHECKPOINTS = "checkpoints"
"""The folder, next to the records, of the states of fleets that are being trained."""

CHECKPOINT_EVERY = "5min, unfinished"


DIGITS = 5
"""Digits after the point of log-likelihoods in nats."""

LIKELIHOODS = ("train_ll", "valid_ll", "test_ll")
SHARES = (0.9, 0.99, 0.9999)
POINTS = 60
DEPTH_BINS = 10


@dataclass(frozen=True)
class _Work:
    """What a fleet still needs: the runs to train, and those of them to record."""

    fleet: Fleet
    train: tuple[PlannedRun, ...]
    missing: tuple[PlannedRun, ...]
    checkpoint: Path | None = None
    """The folder of its checkpoints; None writes none."""


@dataclass(frozen=True)
class _Task:
    """A fleet to train elsewhere."""

    study: Study
    work: _Work
    command: str | None


def _train_task(task: _Task) -> list[RunRecord]:
    """The records of a fleet, with the hardware and software of where it was trained."""
    environment = describe_environment(task.command, task.study.device)
    return _train(task.study, task.work, environment, Display(task.study.name, [1.0], 0, shown=False))


def run_study(
    study: Study,
    file: RecordFile,
    *,
    command: str | None = None,
    data: Mapping[str, Dataset] | None = None,
    shown: bool | None = None,
    engine: Engine = "local",
) -> list[RunRecord]:
    """Train what is not recorded yet, and return the records of all runs of the study, in its own order.

    data: data sets that are loaded already, by the study's names for them. shown: the live display on standard error;
    None shows it on a terminal and writes lines elsewhere. On Ctrl-C the state of the current fleet is written and
    KeyboardInterrupt is raised; the same call goes on from there. engine: "ray" trains fleets as tasks of a Ray
    cluster, as many at once as it holds; each is recorded when it is known, and one whose worker is lost is trained
    again.
    """
    fleets = plan_study(study, data)
    work = [item for fleet in fleets if (item := _work(fleet, file)).missing]
    known = sum(len(fleet.runs) for fleet in fleets) - sum(len(item.missing) for item in work)
    environment = describe_environment(command, study.device)
    with Display(study.name, [item.fleet.cost(len(item.train)) for item in work], known, shown) as display:
        if engine == "ray":
            require_ray()
            tasks = [_Task(study, item, command) for item in work]
            for _, records in run_on_ray(_train_task, tasks, study.device):
                file.append(records)
        else:
            for item in work:
                folder = file.folder / CHECKPOINTS / identify([run.id for run in item.train])
                file.append(_train(study, replace(item, checkpoint=folder), environment, display))
                remove_checkpoints(folder)
    return [
        as_run({**file.by_id[run.id], **describe_use(study, label), "dataset": fleet.data.name})
        for fleet in fleets
        for run in fleet.runs
        for label in run.labels
    ]


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of what is recorded now, and the folder around them if it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.parent.rmdir()


def _work(fleet: Fleet, file: RecordFile) -> _Work:
    """Runs recorded by another fleet are known; those of this one are trained together or not at all."""
    train = tuple(
        run for run in fleet.runs if run.id not in file.by_id or file.by_id[run.id]["fleet"]["key"] == fleet.key
    )
    return _Work(fleet, train, tuple(run for run in train if run.id not in file.by_id))


def _train(study: Study, work: _Work, environment: Record, display: Display) -> list[RunRecord]:
    fleet = work.fleet
    display.start(fleet.name, len(work.train), fleet.epochs)
    train = training_rows(fleet.data, fleet.fraction, fleet.rows_seed)
    circuit = circuit_for(fleet.data, train, study.protocol.units, study.protocol.leaves, study.memory_budget)
    started = time.perf_counter()
    outcomes = _outcomes(circuit, train, study, work, display)
    elapsed = time.perf_counter() - started  # of a fleet without results, which know their own time
    seconds = round(next((outcome.seconds for outcome in outcomes if isinstance(outcome, FitResult)), elapsed), 3)
    probed: list[Record] = [{}] * len(outcomes)
    if study.probe is not None:
        probed = study.probe.measure(outcomes, work.train, fleet.data, study.memory_budget)
    found = [one for one in zip(work.train, outcomes, probed, strict=True) if one[0] in work.missing]
    environment = {**environment, **describe_data(fleet.data, fleet.digest)}
    shape = (len(train), train.shape[1], circuit.describe().parameters)
    settings = describe_settings(study, fleet.epochs) | dict(zip(MEASURED_SETTINGS, shape, strict=True))
    costs = {
        "seconds": round(seconds / len(outcomes), 3),
        "fleet": {"key": fleet.key, "runs": len(outcomes), "seconds": seconds},
    }
    records: list[RunRecord] = []
    for number, (run, outcome, more) in enumerate(found, 1):
        display.measure(number, len(found))
        anatomy, budget = train if study.anatomy else None, study.memory_budget
        measured = describe_failed(outcome) if isinstance(outcome, Failure) else measure_run(outcome, anatomy, budget)
        what = {"dataset": fleet.data.name, "fraction": fleet.fraction, "seed": run.seed}
        what |= {"method": describe_setting(run.setting), "settings": settings, "environment": environment}
        use = describe_use(study, run.labels[0])
        records.append(as_run({"id": run.id, **use, **what, **measured, **more, **costs}))
    display.finish()
    return records


def _outcomes(circuit: Circuit, train: Table, study: Study, work: _Work, display: Display) -> list[FitResult | Failure]:
    """The result of each run, or why it failed."""
    data = work.fleet.data
    runs = [Run(run.setting.method, run.seed, init=run.setting.init) for run in work.train]
    try:
        results = circurve.learning.fit_fleet(
            circuit,
            train,
            runs,
            valid=data.valid,
            test=data.test,
            epochs=work.fleet.epochs,
            batch_size=study.protocol.batch_size,
            step_size=study.protocol.step,
            select="last" if study.probe is None else "best",
            device=study.device,
            memory_budget=study.memory_budget,
            track=True,
            callbacks=[display.epoch],
            progress=False,
            checkpoint=work.checkpoint,
            checkpoint_every=CHECKPOINT_EVERY,
        )
    except TrainingError as error:
        return [Failure(epoch, reason) for epoch, reason in error.failures]
    if any(result.stopped == "interrupted" for result in results):
        raise KeyboardInterrupt
    return [result if result.failure is None else result.failure for result in results]


def measure_run(result: FitResult, train: Table | None, memory_budget: int | None = None) -> Record:
    """Scores of the epoch whose model was kept and of the best one, the history, and the curvature of that model.

    `train_ll` and `sharpness` of an epoch before the last are those of the history: means over the epoch's batches,
    each taken just before its M-step. All others are those of the very parameters. Without training rows the curvature
    is not measured.
    """
    curv = None if train is None else _curvature(result, train, memory_budget)
    final = _scores(result, result.sharpness if train is None else None if curv is None else curv.trace)
    chosen = max(result.history, key=_validation)  # the first of equals
    best = final if chosen.epoch == result.epoch else _scores(chosen, chosen.sharpness)
    return {
        "final": final,
        "best": best,
        "history": {
            **{name: [_ll(getattr(epoch, name)) for epoch in result.history] for name in LIKELIHOODS},
            "sharpness": [significant(epoch.sharpness) for epoch in result.history],
        },
        "curvature": None if curv is None else describe_curvature(curv),
        "gates": _gates(result),
    }


def _gates(result: FitResult) -> Record | None:
    """How the gates of the last M-step are spread over nodes; None without gates."""
    last = result.history[-1].gates if result.history else None
    return None if last is None else {name: significant(value) for name, value in vars(last).items()}


def describe_failed(failure: Failure) -> Record:
    """The part of a record that says that a run failed: in which epoch, and why. It has no scores."""
    return {"status": "failed", "failure": {"epoch": failure.epoch, "reason": failure.reason}}


def _curvature(result: FitResult, train: Table, memory_budget: int | None) -> Curvature | None:
    """None if every training row has probability zero; single rows of that kind were warned of in training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CircurveWarning)
        try:
            return curvature(result.model, train, memory_budget=memory_budget)
        except DataError:
            return None


def _scores(source: FitResult | EpochRecord, sharpness: float | None) -> Record:
    return {
        "epoch": source.epoch,
        **{name: _ll(getattr(source, name)) for name in LIKELIHOODS},
        "dof": None if source.dof is None else round(source.dof, 7),
        "sharpness": significant(sharpness),
    }


def describe_curvature(curv: Curvature) -> Record:
    """Where the trace is: concentration of T^ and t^, profile over depth, and how often T^ and t^ disagree."""
    profile = depth_profile(curv, "total", DEPTH_BINS)
    return {
        "trace": significant(curv.trace),
        "sum_nodes": len(curv),
        "total": _concentration(curv, "total"),
        "local": _concentration(curv, "local"),
        "depth": [significant(float(share)) for share in profile.share],
        "reversals": significant(reversals(curv, most=0).share),
        "estimates": {name: _estimate(curv, name) for name in ESTIMATORS},
        "floor": {
            "edges": None if curv.floor_edges is None else int(curv.floor_edges.sum()),
            "share": significant(curv.floor_share),
        },
    }


def _estimate(curv: Curvature, estimator: str) -> Record:
    """How one estimate of local curvature is spread over nodes, and the gates t / max t that it gives."""
    by = cast("By", estimator)
    values, found = curv.by(by), concentration(curv, by)
    largest = float(values.max(initial=0.0))
    gates = values / largest if 0 < largest < math.inf else np.zeros_like(values)
    facts = {"median_local": values, "gates_median": gates}
    return {
        "fractions": {f"{share:g}": significant(found.fraction_for(share)) for share in SHARES},
        "largest_local": significant(largest),
        **{name: significant(float(np.median(column))) if len(curv) else None for name, column in facts.items()},
        "gates_above_half": significant(float((gates > 0.5).mean())) if len(curv) else None,
    }


def _concentration(curv: Curvature, by: By) -> Record:
    found = concentration(curv, by)
    units = len(curv)  # numbers of units from 1 to all, in even ratios: few, and dense where the curve bends
    at = np.unique(np.geomspace(1, units, POINTS).round().astype(int)).tolist() if units else [0]
    return {
        "fractions": {f"{share:g}": significant(found.fraction_for(share)) for share in SHARES},
        "curve": [[significant(float(found.curve_nodes[k])), round(float(found.curve_share[k]), 7)] for k in at],
    }


def _validation(epoch: EpochRecord) -> float:
    return -math.inf if epoch.valid_ll is None or math.isnan(epoch.valid_ll) else epoch.valid_ll


def _ll(value: float | None) -> float | None:
    """Rounded; None for minus infinity: some row has probability zero."""
    return None if value is None or not math.isfinite(value) else round(value, DIGITS)
