"""The EM loop over a fleet: epochs, M-steps, scores, and who stops when. Orchestration only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from circurve.data import Table
from circurve.engine import Backend, Params, Program, Request, choose_backend, chunks, stack
from circurve.engine.memory import chunk_size, within_memory
from circurve.errors import ParameterError, warn_user
from circurve.learning.events import Callback, EpochEnd
from circurve.learning.finite import finite_runs
from circurve.learning.fleet import Finished, Fleet, Workers
from circurve.learning.history import EpochRecord, Failure, FitResult, FleetResult
from circurve.learning.initialize import generator
from circurve.learning.options import Run, Settings
from circurve.learning.plan import Plan
from circurve.learning.rates import Rates
from circurve.learning.score import Scorer
from circurve.learning.steps import Batches, EpochSums
from circurve.learning.steps_choice import steps_for
from circurve.learning.watch import broken_parameter, broken_scores, broken_steps, describe_failure
from circurve.model import Model

__all__ = ["Trainer"]

Scores = Mapping[str, Sequence[float]]
"""Mean log-likelihoods of all active runs, by the name of the data."""


class Trainer:
    """Trains a fleet. Runs that have stopped leave the fleet, so that the others go on faster.

    A run that breaks (a parameter, a statistic or a log-likelihood is not finite) leaves it too, with the parameters of
    its last whole epoch. The others repeat that epoch without it: a chunk with NaN can take another path through the
    engine, and a run must not depend, not even in its last digit, on the runs beside it.
    """

    def __init__(self, program: Program, runs: Sequence[Run], settings: Settings, data: dict[str, Table]) -> None:
        self.program, self.runs, self.settings, self.data = program, tuple(runs), settings, data
        self.rates = Rates(runs, settings)
        self.shuffles = {run.seed: generator(run.seed, stream=1) for run in runs}
        self.select = settings.select or ("best" if "valid" in data else "last")
        self.warned = False
        self.started = time.perf_counter()

    def train(self, params: Params, callbacks: Sequence[Callback] = ()) -> FleetResult:
        """EM from the given parameters (R = number of runs) until every run has stopped."""
        self._check_start(params)
        fleet = Fleet.start(params, self._bind(params, range(len(self.runs))))
        epoch = 0
        try:
            for epoch in range(1, self.settings.epochs + 1):
                orders = self._orders(fleet)
                fleet, done = self._epoch(fleet, epoch, orders)
                while not done:
                    fleet, done = self._epoch(fleet, epoch, orders)
                if fleet.active and self._tell(fleet, epoch, callbacks):
                    fleet = self._stop(fleet, dict.fromkeys(fleet.active, "callback"), epoch)
                fleet = self._stop(fleet, self._reasons(fleet, epoch), epoch)
                if not fleet.active:
                    break
            fleet = self._stop(fleet, dict.fromkeys(fleet.active, "epochs"), self.settings.epochs)
        except KeyboardInterrupt:
            fleet = self._interrupt(fleet, epoch)
        return self._results(fleet)

    def _check_start(self, params: Params) -> None:
        for place, finite in enumerate(finite_runs(params).tolist()):
            if not finite:
                raise ParameterError(f"the start of training: {broken_parameter(self.program, params, place)}")

    def _bind(self, params: Params, active: Sequence[int]) -> Workers:
        """What continues with these parameters: M-step, steps and a backend for scores."""
        methods = [self.runs[i].method for i in active]
        plan = Plan(self.program, methods, params.inputs[0], self.settings.track)
        steps = steps_for(self._backend(params), plan, self.data["train"], params, self.settings.memory_budget)
        return Workers(plan, steps, self._scorer(steps.scorer))

    def _backend(self, params: Params) -> Backend:
        return choose_backend(self.program, params, self.settings.backend, self.settings.precision)

    def _scorer(self, backend: Backend) -> Scorer:
        return Scorer(backend, self.settings.memory_budget)

    def _orders(self, fleet: Fleet) -> dict[int, Tensor] | None:
        """The order of the rows in this epoch, (N,) for each seed of an active run; None for full batches."""
        if self.settings.batch_size is None:
            return None
        seeds = dict.fromkeys(self.runs[run].seed for run in fleet.active)
        rows = len(self.data["train"])
        return {seed: torch.randperm(rows, generator=self.shuffles[seed]) for seed in seeds}

    def _batches(self, fleet: Fleet, orders: dict[int, Tensor] | None) -> Batches:
        rows, device = len(self.data["train"]), fleet.kept.device
        if orders is None:
            return Batches.even(None, rows, None)
        seeds = [self.runs[run].seed for run in fleet.active]
        different = list(dict.fromkeys(seeds))
        drawn = torch.stack([orders[seed] for seed in different]).to(device)
        of_run = torch.tensor([different.index(seed) for seed in seeds], device=device)
        return Batches.even(drawn.index_select(0, of_run), rows, self.settings.batch_size)  # (R, N)

    def _epoch(self, fleet: Fleet, epoch: int, orders: dict[int, Tensor] | None) -> tuple[Fleet, bool]:
        """One epoch of all active runs, and whether it counts; if runs broke, the fleet without them, as it was."""
        batches = self._batches(fleet, orders)
        steps = len(batches)
        total = max(1, self.settings.epochs * steps - 1)
        progress = [((epoch - 1) * steps + i) / total for i in range(steps)]
        alphas = self.rates.step_sizes_at(fleet.active, progress)
        mus = self.rates.strengths_at(fleet.active, progress, fleet.last())
        workers = fleet.workers
        sums = workers.steps.run(batches, alphas, mus).fetch(workers.steps.params)
        broken = broken_steps(self.program, workers.steps.params, sums, workers.plan.methods)
        scores: Scores = {}
        if not broken:
            self._warn(int(max(sums.impossible)))
            held_out = [name for name in ("valid", "test") if name in self.data]
            scores = {name: workers.scorer.score(workers.steps.params, self.data[name]) for name in held_out}
            broken = broken_scores(scores)
        if broken:
            failures = {fleet.active[place]: Failure(epoch, reason) for place, reason in broken.items()}
            rest = self._fail(fleet, failures)
            return rest, not rest.active
        rates = list(zip(alphas[-1], mus[-1], strict=True))
        return fleet.after_epoch(self._records(fleet, epoch, (sums, scores), rates), self.select == "best"), True

    def _records(
        self, fleet: Fleet, epoch: int, seen: tuple[EpochSums, Scores], rates: Sequence[tuple[float, float]]
    ) -> list[EpochRecord]:
        """The records of an epoch, one for each active run; rates: its step size and mu."""
        sums, scores = seen
        tracked, none = self.settings.track, [None] * len(fleet.active)
        gates = fleet.workers.plan.gate_summaries() if tracked else none
        seconds = time.perf_counter() - self.started
        return [
            EpochRecord(
                epoch=epoch,
                train_ll=sums.train_ll(place),
                valid_ll=scores.get("valid", none)[place],
                test_ll=scores.get("test", none)[place],
                step_size=step_size,
                mu=mu,
                seconds=seconds,
                sharpness=sums.sharpness(place) if tracked else None,
                gates=gates[place],
            )
            for place, (step_size, mu) in enumerate(rates)
        ]

    def _reasons(self, fleet: Fleet, epoch: int) -> dict[int, str]:
        """Which runs stop after this epoch, and why."""
        reasons: dict[int, str] = {}
        tolerance, patience = self.settings.tolerance, self.settings.patience
        for run, best_epoch in zip(fleet.active, fleet.best_epoch, strict=True):
            history = fleet.history[run]
            if tolerance is not None and epoch > 1 and history[-1].train_ll - history[-2].train_ll < tolerance:
                reasons[run] = "tolerance"
            if patience is not None and "valid" in self.data and epoch - best_epoch >= patience:
                reasons[run] = "patience"
        return reasons

    def _stop(self, fleet: Fleet, reasons: Mapping[int, str], epoch: int) -> Fleet:
        """Put the runs named in `reasons` aside with the parameters to return, and go on with the others."""
        if not reasons:
            return fleet
        return self._put_aside(fleet, {run: self._finished(fleet, run, epoch, why) for run, why in reasons.items()})

    def _fail(self, fleet: Fleet, failures: Mapping[int, Failure]) -> Fleet:
        """Put broken runs aside; the others go back to the state before this epoch."""
        finished: dict[int, Finished] = {}
        for run, failure in failures.items():
            kept = self._finished(fleet, run, failure.epoch - 1, "failed")
            finished[run] = replace(kept, failure=failure)
            if len(self.runs) > 1:  # of a single run, the caller says it with an error
                warn_user(describe_failure(self.runs[run].name(run), failure, kept.epoch))
        fleet.workers.plan.recall(fleet.memories)
        return self._put_aside(fleet, finished)

    def _interrupt(self, fleet: Fleet, epoch: int) -> Fleet:
        """All active runs end with the parameters of the moment, in the middle of an epoch or not."""
        params = fleet.workers.steps.snapshot()
        finite = finite_runs(params).tolist()
        broken = [run for place, run in enumerate(fleet.active) if not finite[place]]
        reasons = {run: broken_parameter(self.program, params, fleet.active.index(run)) for run in broken}
        if broken:
            fleet = self._fail(fleet, {run: Failure(epoch, reason) for run, reason in reasons.items()})
            params = params.select([place for place, is_finite in enumerate(finite) if is_finite])
        return self._stop(replace(fleet, kept=params), dict.fromkeys(fleet.active, "interrupted"), epoch)

    def _finished(self, fleet: Fleet, run: int, epoch: int, stopped: str) -> Finished:
        """The parameters that a run returns: those of its best epoch, or those after the given one."""
        place = fleet.active.index(run)
        if self.select == "best" and fleet.best_epoch[place] > 0:
            return Finished(fleet.best.select([place]), fleet.best_epoch[place], stopped)
        return Finished(fleet.kept.select([place]), epoch, stopped)

    def _put_aside(self, fleet: Fleet, finished: Mapping[int, Finished]) -> Fleet:
        places = [place for place, run in enumerate(fleet.active) if run not in finished]
        if not places:
            return fleet.without(finished, None)
        workers = self._bind(fleet.kept.select(places), [fleet.active[place] for place in places])
        workers.plan.remember(fleet.workers.plan, places)
        return fleet.without(finished, workers)

    def _tell(self, fleet: Fleet, epoch: int, callbacks: Sequence[Callback]) -> bool:
        def model(run: int) -> Model:
            return Model(self.program.circuit, fleet.kept.select([fleet.active.index(run)]), self.program)

        records = {run: fleet.history[run][-1] for run in fleet.active}
        names = {run: self.runs[run].name(run) for run in fleet.active}
        event = EpochEnd(epoch, self.settings.epochs, records, model, names)
        answers = [callback(event) for callback in callbacks]
        return any(answers)

    def _warn(self, most: int) -> None:
        if most and not self.warned:
            self.warned = True
            warn_user(f"{most} training samples have probability zero under the present parameters; EM leaves them out")

    def _sharpness(self, params: Params, backend: Backend) -> list[float | None]:
        """The mean trace over the training data, exactly, for the parameters to return."""
        train, request = self.data["train"], Request(curvature=True)
        most = chunk_size(backend, backward=True, memory_budget=self.settings.memory_budget)
        sums = within_memory(
            backend,
            min(most, len(train)),
            lambda chunk: backend.statistics(params, chunks(train, chunk, params.dtype), request),
        )
        assert sums.curvature is not None
        values: list[float | None] = (sums.curvature.trace() / sums.weight).tolist()
        return values

    def _results(self, fleet: Fleet) -> FleetResult:
        """The results of all runs, with the scores of the very parameters that they return."""
        ended = [fleet.finished[run] for run in range(len(self.runs))]
        params = stack([run.params for run in ended])
        backend = self._backend(params)
        scorer = self._scorer(backend)
        scores = {name: scorer.score(params, samples) for name, samples in self.data.items()}
        none = [None] * params.runs
        sharpness = self._sharpness(params, backend) if self.settings.track else none
        seconds = time.perf_counter() - self.started
        return FleetResult(
            tuple(
                FitResult(
                    model=Model(self.program.circuit, end.params, self.program),
                    history=fleet.history[i],
                    run=self.runs[i],
                    epoch=end.epoch,
                    train_ll=scores["train"][i],
                    valid_ll=scores.get("valid", none)[i],
                    test_ll=scores.get("test", none)[i],
                    seconds=seconds,
                    sharpness=sharpness[i],
                    stopped=end.stopped,
                    failure=end.failure,
                )
                for i, end in enumerate(ended)
            )
        )
