"""The EM loop over a fleet: epochs, M-steps, scores, and who stops when. Orchestration only."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine import Engine, Params, Program, Request, Samples, Statistics, stack, statistics
from circurve.engine.memory import chunk_size
from circurve.errors import CircurveWarning
from circurve.learning.checks import check_at_least_zero
from circurve.learning.history import EpochRecord, FitResult, FleetResult
from circurve.learning.initialize import generator
from circurve.learning.methods import Grid, Vanilla
from circurve.learning.options import Run, Settings, as_schedule
from circurve.learning.plan import Plan
from circurve.learning.schedules import by_overfitting
from circurve.learning.score import chunks, mean_log_likelihood
from circurve.model import Model

__all__ = ["Callback", "EpochEnd", "Trainer"]


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

    def __init__(self, program: Program, runs: Sequence[Run], settings: Settings, data: dict[str, Samples]) -> None:
        self.program, self.runs, self.settings, self.data = program, tuple(runs), settings, data
        self.schedules = [as_schedule(settings.step if r.step_size is None else r.step_size) for r in runs]
        self.shuffles = [generator(run.seed, stream=1) for run in runs]
        self.select = settings.select or ("best" if "valid" in data else "last")
        self.history: list[list[EpochRecord]] = [[] for _ in runs]
        self.finished: dict[int, tuple[Params, int, str]] = {}
        self.warned = False

    def train(self, params: Params, callbacks: Sequence[Callback] = ()) -> FleetResult:
        """EM from the given parameters (R = number of runs) until every run has stopped."""
        self.started = time.perf_counter()
        self.active = list(range(len(self.runs)))
        self._take(params)
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

    def _take(self, params: Params) -> None:
        """Continue with these parameters and an engine of their number of runs."""
        self.params = params
        careful = self.program.masked or params.may_underflow()
        self.engine = Engine(self.program, params.runs, params.device, params.dtype, careful, tables=True)
        self.chunk = chunk_size(self.engine, backward=True, memory_budget=self.settings.memory_budget)
        methods = [self.runs[i].method for i in self.active]
        self.plan = Plan(self.program, methods, params.inputs[0], self.settings.track)

    def _epoch(self, epoch: int) -> None:
        train = self.data["train"]
        size = self.settings.batch_size
        steps = 1 if size is None else -(-len(train) // size)
        orders = None if size is None else self._orders(len(train))
        bounds = [len(train) * i // steps for i in range(steps + 1)]
        seen = _Totals(self.params)
        total = max(1, self.settings.epochs * steps - 1)
        alphas: list[float] = []
        mus: list[float] = []
        for i in range(steps):
            progress = ((epoch - 1) * steps + i) / total
            alphas = [self.schedules[run](progress) for run in self.active]
            mus = [self._mu(run, progress) for run in self.active]
            sums = self._e_step(train, None if orders is None else orders[:, bounds[i] : bounds[i + 1]])
            self.params = self.plan.maximize(self.params, sums, alphas, mus)
            seen.add(sums)
        self._warn(seen.impossible)
        self._record(epoch, seen, alphas, mus)

    def _mu(self, run: int, progress: float) -> float:
        """The strength of a run's penalty now."""
        method = self.runs[run].method
        if isinstance(method, Vanilla):
            return 0.0
        if isinstance(method.mu, by_overfitting):
            history = self.history[run]
            return method.mu.value(_overfitting(history[-1]) if history else None)
        if callable(method.mu):
            strength = method.mu(progress)
            check_at_least_zero("mu", strength)
            return strength
        assert not isinstance(method.mu, str | Grid), "a choice of mu is resolved before training"
        return method.mu

    def _orders(self, rows: int) -> Tensor:  # (R, N)
        orders = [torch.randperm(rows, generator=self.shuffles[run]) for run in self.active]
        return torch.stack(orders).to(self.params.device)

    def _e_step(self, train: Samples, index: Tensor | None) -> Statistics:
        if index is None:
            return statistics(self.engine, self.params, chunks(train, self.chunk), self.plan.request)
        parts = (train.pick(part) for part in torch.split(index, self.chunk, dim=1))
        return statistics(self.engine, self.params, parts, self.plan.request)

    def _score(self, name: str, params: Params, engine: Engine) -> list[float] | None:
        if name not in self.data:
            return None
        chunk = chunk_size(engine, backward=False, memory_budget=self.settings.memory_budget)
        values: list[float] = mean_log_likelihood(engine, params, self.data[name], chunk).tolist()
        return values

    def _record(self, epoch: int, seen: _Totals, alphas: list[float], mus: list[float]) -> None:
        train_ll, sharpness = seen.mean_log_likelihood().tolist(), seen.mean_trace().tolist()
        tracked = self.settings.track
        gates = self.plan.gate_summaries() if tracked else [None] * len(self.active)
        valid = self._score("valid", self.params, self.engine)
        test = self._score("test", self.params, self.engine)
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
        for place, run in enumerate(self.active):
            if better[place]:
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
        memory, params, bests, best_ll = self.plan, self.params.select(kept), self.best.select(kept), self.best_ll[kept]
        # all at once: an interruption must not find runs and parameters of different fleets
        self.active, self.params, self.best, self.best_ll = active, params, bests, best_ll
        self._take(params)
        self.plan.remember(memory, kept)

    def _tell(self, epoch: int, callbacks: Sequence[Callback]) -> bool:
        records = {run: self.history[run][-1] for run in self.active}

        def model(run: int) -> Model:
            return Model(self.program.circuit, self.params.select([self.active.index(run)]), self.program)

        event = EpochEnd(epoch, self.settings.epochs, records, model)
        answers = [callback(event) for callback in callbacks]
        return any(answers)

    def _warn(self, impossible: Tensor) -> None:
        if self.warned:
            return
        most = int(impossible.max())
        if most:
            self.warned = True
            warnings.warn(
                f"{most} training samples have probability zero under the present parameters; EM leaves them out",
                CircurveWarning,
                stacklevel=2,
            )

    def _sharpness(self, params: Params, engine: Engine) -> list[float | None]:
        """The mean trace over the training data, exactly, for the parameters to return."""
        chunk = chunk_size(engine, backward=True, memory_budget=self.settings.memory_budget)
        sums = statistics(engine, params, chunks(self.data["train"], chunk), Request(curvature=True))
        assert sums.curvature is not None
        values: list[float | None] = (sums.curvature.trace() / sums.weight).tolist()
        return values

    def _results(self) -> FleetResult:
        params = stack([self.finished[run][0] for run in range(len(self.runs))])
        careful = self.program.masked or params.may_underflow()
        engine = Engine(self.program, params.runs, params.device, params.dtype, careful, tables=True)
        train, valid, test = (self._score(name, params, engine) for name in ("train", "valid", "test"))
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


class _Totals:
    """Sums over the batches of an epoch, one for each run, kept on the device until the epoch ends."""

    def __init__(self, params: Params) -> None:
        self.log_likelihood = torch.zeros(params.runs, dtype=torch.float64, device=params.device)
        self.weight, self.trace = torch.zeros_like(self.log_likelihood), torch.zeros_like(self.log_likelihood)
        self.impossible = torch.zeros_like(self.log_likelihood)

    def add(self, sums: Statistics) -> None:
        """Another batch."""
        self.log_likelihood += sums.log_likelihood
        self.weight += sums.weight
        self.impossible += sums.impossible
        if sums.curvature is not None and sums.curvature.total is not None:
            self.trace += sums.curvature.trace()

    def mean_log_likelihood(self) -> Tensor:  # (R,)
        """-inf if a sample had probability zero."""
        return torch.where(self.impossible > 0, -torch.inf, self.log_likelihood / self.weight)

    def mean_trace(self) -> Tensor:  # (R,)
        """The mean trace of the Hessian, where it was asked for."""
        return self.trace / self.weight


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
