"""The EM loop over a fleet: epochs, M-steps, scores, and who stops when. Orchestration only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor

from circurve.data import Table
from circurve.engine import AnyEngine, Params, Program, Request, bind_engine, chunks, stack, statistics
from circurve.engine.cuda import FusedEngine
from circurve.engine.memory import chunk_size, within_memory
from circurve.errors import warn_user
from circurve.learning.checks import check_at_least_zero
from circurve.learning.graph_steps import GraphSteps
from circurve.learning.history import EpochRecord, FitResult, FleetResult
from circurve.learning.initialize import generator
from circurve.learning.methods import Grid, Strength, Vanilla
from circurve.learning.options import Run, Settings, as_schedule
from circurve.learning.plan import Plan
from circurve.learning.schedules import Schedule, by_overfitting
from circurve.learning.score import mean_log_likelihood
from circurve.learning.steps import Batches, ReferenceSteps, Steps, Totals
from circurve.model import Model

__all__ = ["Callback", "EpochEnd", "Trainer"]

T = TypeVar("T")
"""A number, a schedule, or what else says how strong or how long a step is."""


@dataclass(frozen=True)
class EpochEnd:
    """What a callback is told after each epoch."""

    epoch: int
    epochs: int
    records: dict[int, EpochRecord]
    """The epoch's record of each run that is still training, by the run's number."""

    model: Callable[[int], Model]
    """The present model of a run, by the run's number."""


Callback = Callable[[EpochEnd], bool | None]
"""Called after each epoch; returning True ends the training of the whole fleet."""


class Trainer:
    """Trains a fleet. Runs that have stopped leave the fleet, so that the others go on faster."""

    def __init__(self, program: Program, runs: Sequence[Run], settings: Settings, data: dict[str, Table]) -> None:
        self.program, self.runs, self.settings, self.data = program, tuple(runs), settings, data
        steps: list[float | Schedule] = [settings.step if run.step_size is None else run.step_size for run in runs]
        self.step_sizes = _checked(steps, as_schedule)
        mus: list[Strength] = [0.0 if isinstance(run.method, Vanilla) else run.method.mu for run in runs]
        self.strengths = _checked(mus, _as_strength)
        self.shuffles = {run.seed: generator(run.seed, stream=1) for run in runs}
        self.select = settings.select or ("best" if "valid" in data else "last")
        self.history: list[list[EpochRecord]] = [[] for _ in runs]
        self.finished: dict[int, tuple[Params, int, str]] = {}
        self.warned = False

    def train(self, params: Params, callbacks: Sequence[Callback] = ()) -> FleetResult:
        """EM from the given parameters (R = number of runs) until every run has stopped."""
        self.started = time.perf_counter()
        self.active = list(range(len(self.runs)))
        self.plan, self.steps, self.scorer = self._bind(params, self.active)
        self.chunk: int | None = None
        self.best, self.best_ll = params, torch.full((params.runs,), -torch.inf, dtype=torch.float64)
        self.best_epoch = [0] * len(self.runs)
        epoch = 0
        try:
            for epoch in range(1, self.settings.epochs + 1):
                self._epoch(epoch)
                if self._tell(epoch, callbacks):
                    self._stop(dict.fromkeys(self.active, "callback"), epoch)
                self._stop(self._reasons(epoch), epoch)
                if not self.active:
                    break
            self._stop(dict.fromkeys(self.active, "epochs"), self.settings.epochs)
        except KeyboardInterrupt:
            self._stop(dict.fromkeys(self.active, "interrupted"), epoch)
        return self._results()

    def _bind(self, params: Params, active: Sequence[int]) -> tuple[Plan, Steps, AnyEngine]:
        """What continues with these parameters: M-step, steps and an engine for scores."""
        methods = [self.runs[i].method for i in active]
        plan = Plan(self.program, methods, params.inputs[0], self.settings.track)
        engine = self._engine(params)
        train, budget = self.data["train"], self.settings.memory_budget
        if isinstance(engine, FusedEngine):
            # scores need an engine of their own: a recorded step must find its memory where it was
            return plan, GraphSteps(engine, plan, train, params, budget), self._engine(params)
        return plan, ReferenceSteps(engine, plan, train, params, budget), engine

    def _engine(self, params: Params) -> AnyEngine:
        return bind_engine(self.program, params, self.settings.backend, self.settings.precision)

    @property
    def params(self) -> Params:
        """The present parameters of the runs that are still training."""
        return self.steps.params

    def _epoch(self, epoch: int) -> None:
        train = self.data["train"]
        size = self.settings.batch_size
        batches = Batches.even(None if size is None else self._orders(len(train)), len(train), size)
        steps = len(batches)
        total = max(1, self.settings.epochs * steps - 1)
        progress = [((epoch - 1) * steps + i) / total for i in range(steps)]
        alphas = _over_epoch([self.step_sizes[run] for run in self.active], progress)
        mus = _over_epoch([self._mu(run) for run in self.active], progress)
        seen = self.steps.run(batches, alphas, mus)
        self._warn(seen.impossible())
        self._record(epoch, seen, alphas[-1], mus[-1])

    def _mu(self, run: int) -> float | Schedule:
        """The strength of a run's penalty in this epoch."""
        strength = self.strengths[run]
        if isinstance(strength, by_overfitting):
            history = self.history[run]
            return strength.value(_overfitting(history[-1]) if history else None)
        assert not isinstance(strength, str | Grid), "a choice of mu is resolved before training"
        return strength

    def _orders(self, rows: int) -> Tensor:  # (R, N)
        """The rows in the order of each run's seed, drawn once for all of its runs that are still training."""
        seeds = [self.runs[run].seed for run in self.active]
        different = list(dict.fromkeys(seeds))
        orders = torch.stack([torch.randperm(rows, generator=self.shuffles[seed]) for seed in different])
        of_run = torch.tensor([different.index(seed) for seed in seeds], device=self.params.device)
        return orders.to(self.params.device).index_select(0, of_run)

    def _score(self, name: str, params: Params, engine: AnyEngine, chunk: int) -> list[float] | None:
        if name not in self.data:
            return None
        values: list[float] = mean_log_likelihood(engine, params, self.data[name], chunk).tolist()
        return values

    def _record(self, epoch: int, seen: Totals, alphas: Sequence[float], mus: Sequence[float]) -> None:
        train_ll, sharpness = seen.mean_log_likelihood().tolist(), seen.mean_trace().tolist()
        tracked = self.settings.track
        gates = self.plan.gate_summaries() if tracked else [None] * len(self.active)
        if self.chunk is None:  # only now: the steps have taken what they need
            self.chunk = chunk_size(self.scorer, backward=False, memory_budget=self.settings.memory_budget)
        valid = self._score("valid", self.params, self.scorer, self.chunk)
        test = self._score("test", self.params, self.scorer, self.chunk)
        seconds = time.perf_counter() - self.started
        for place, run in enumerate(self.active):
            self.history[run].append(
                EpochRecord(
                    epoch=epoch,
                    train_ll=train_ll[place],
                    valid_ll=None if valid is None else valid[place],
                    test_ll=None if test is None else test[place],
                    step_size=alphas[place],
                    mu=mus[place],
                    seconds=seconds,
                    sharpness=sharpness[place] if tracked else None,
                    gates=gates[place],
                )
            )
        if valid is not None:
            self._keep_best(torch.tensor(valid, dtype=torch.float64), epoch)

    def _keep_best(self, valid: Tensor, epoch: int) -> None:
        better = valid > self.best_ll
        for run, has_risen in zip(self.active, better.tolist(), strict=True):
            if has_risen:
                self.best_epoch[run] = epoch
        self.best_ll = torch.where(better, valid, self.best_ll)
        if self.select == "best":
            chosen = better.to(self.params.device).view(-1, 1, 1, 1)
            self.best = _where(chosen, self.params, self.best)

    def _reasons(self, epoch: int) -> dict[int, str]:
        """Which runs stop after this epoch, and why."""
        reasons: dict[int, str] = {}
        for run in self.active:
            history, patience = self.history[run], self.settings.patience
            tolerance = self.settings.tolerance
            if tolerance is not None and epoch > 1 and history[-1].train_ll - history[-2].train_ll < tolerance:
                reasons[run] = "tolerance"
            if patience is not None and "valid" in self.data and epoch - self.best_epoch[run] >= patience:
                reasons[run] = "patience"
        return reasons

    def _stop(self, reasons: dict[int, str], epoch: int) -> None:
        """Put the runs named in `reasons` aside with the parameters to return, and go on with the others."""
        if not reasons:
            return
        kept = [place for place, run in enumerate(self.active) if run not in reasons]
        for place, run in enumerate(self.active):
            if run in reasons:
                best = self.select == "best" and self.best_epoch[run] > 0
                source, at = (self.best, self.best_epoch[run]) if best else (self.params, epoch)
                self.finished[run] = (source.select([place]), at, reasons[run])
        active = [self.active[place] for place in kept]
        if not kept:
            self.active = active
            return
        params, bests, best_ll = self.params.select(kept), self.best.select(kept), self.best_ll[kept]
        plan, steps, scorer = self._bind(params, active)
        plan.remember(self.plan, kept)
        # all at once: an interruption must not find runs and parameters of different fleets
        self.plan, self.steps, self.scorer, self.chunk, self.active, self.best, self.best_ll = (
            plan, steps, scorer, None, active, bests, best_ll
        )  # fmt: skip

    def _tell(self, epoch: int, callbacks: Sequence[Callback]) -> bool:
        records = {run: self.history[run][-1] for run in self.active}

        def model(run: int) -> Model:
            return Model(self.program.circuit, self.params.select([self.active.index(run)]), self.program)

        event = EpochEnd(epoch, self.settings.epochs, records, model)
        answers = [callback(event) for callback in callbacks]
        return any(answers)

    def _warn(self, most: int) -> None:
        if most and not self.warned:
            self.warned = True
            warn_user(f"{most} training samples have probability zero under the present parameters; EM leaves them out")

    def _sharpness(self, params: Params, engine: AnyEngine) -> list[float | None]:
        """The mean trace over the training data, exactly, for the parameters to return."""
        train, request = self.data["train"], Request(curvature=True)
        most = chunk_size(engine, backward=True, memory_budget=self.settings.memory_budget)
        sums = within_memory(
            engine,
            min(most, len(train)),
            lambda chunk: statistics(engine, params, chunks(train, chunk, params.dtype), request),
        )
        assert sums.curvature is not None
        values: list[float | None] = (sums.curvature.trace() / sums.weight).tolist()
        return values

    def _results(self) -> FleetResult:
        params = stack([self.finished[run][0] for run in range(len(self.runs))])
        engine = self._engine(params)
        chunk = chunk_size(engine, backward=False, memory_budget=self.settings.memory_budget)
        train, valid, test = (self._score(name, params, engine, chunk) for name in ("train", "valid", "test"))
        assert train is not None
        sharpness = self._sharpness(params, engine) if self.settings.track else [None] * params.runs
        seconds = time.perf_counter() - self.started
        return FleetResult(
            tuple(
                FitResult(
                    model=Model(self.program.circuit, self.finished[i][0], self.program),
                    history=tuple(self.history[i]),
                    run=run,
                    epoch=self.finished[i][1],
                    train_ll=train[i],
                    valid_ll=None if valid is None else valid[i],
                    test_ll=None if test is None else test[i],
                    seconds=seconds,
                    sharpness=sharpness[i],
                    stopped=self.finished[i][2],
                )
                for i, run in enumerate(self.runs)
            )
        )


def _checked(given: Sequence[T], check: Callable[[Schedule], Schedule]) -> list[T]:
    """Schedules with a check of their values, one for all runs that share a schedule; all else as it is."""
    checked = {id(value): cast("T", check(value)) for value in given if callable(value)}
    return [checked.get(id(value), value) for value in given]


def _as_strength(mu: Schedule) -> Schedule:
    def checked(progress: float) -> float:
        strength = mu(progress)
        check_at_least_zero("mu", strength)
        return strength

    return checked


def _over_epoch(given: Sequence[float | Schedule], progress: Sequence[float]) -> list[tuple[float, ...]]:
    """Each run's number or schedule at every step, (steps, runs); a schedule that runs share is asked once a step."""
    schedules = dict.fromkeys(value for value in given if callable(value))
    values = {schedule: [schedule(at) for at in progress] for schedule in schedules}
    columns = [values[value] if callable(value) else [value] * len(progress) for value in given]
    return list(zip(*columns, strict=True))


def _overfitting(record: EpochRecord) -> float | None:
    """The degree of overfitting, zero where validation data fit better than training data."""
    if record.valid_ll is None or record.valid_ll >= record.train_ll:
        return None if record.valid_ll is None else 0.0
    return record.dof


def _where(chosen: Tensor, new: Params, old: Params) -> Params:
    """For each run the new parameters where chosen (R, 1, 1, 1), else the old ones."""
    weights = zip(new.weights, old.weights, strict=True)
    inputs = zip(new.inputs, old.inputs, strict=True)
    return Params(
        tuple(torch.where(chosen, a, b) for a, b in weights), tuple(torch.where(chosen, a, b) for a, b in inputs)
    )
