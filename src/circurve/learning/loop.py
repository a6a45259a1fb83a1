"""The EM loop over a fleet: epochs, M-steps, scores, and when each run stops. Orchestration only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from circurve.data import RowSource, Stream
from circurve.engine import Backend, BackendName, Params, Program, Request, choose_backend, chunks, stack
from circurve.engine.memory import chunk_size, within_memory
from circurve.errors import ParameterError, warn_user
from circurve.host_memory import give_back
from circurve.learning.checkpoints import Checkpoints
from circurve.learning.finite import broken_parameter, broken_scores, broken_steps, finite_runs
from circurve.learning.fleet import Finished, Fleet
from circurve.learning.history import Callback, EpochEnd, EpochRecord, Failure, FitResult, FleetResult
from circurve.learning.initialize import generator
from circurve.learning.keeping import Keeper
from circurve.learning.options import Run, Settings
from circurve.learning.plan import Plan
from circurve.learning.rates import step_sizes, strengths
from circurve.learning.state import Sizes, TrainerState
from circurve.learning.steps import Batches, Begun, EpochSums, Pause, Steps
from circurve.learning.steps_choice import scorer_for, steps_for
from circurve.model import Model, as_device
from circurve.words import counted

__all__ = ["Trainer"]

Scores = Mapping[str, Sequence[float]]
"""Mean log-likelihoods of all active runs, by the name of the data."""


class Trainer:
    """Trains a fleet. Runs that have stopped leave the fleet, so that the others continue faster.

    A run that breaks (a parameter, a statistic or a log-likelihood is not finite) leaves it too, with the parameters of
    its last whole epoch. The others repeat that epoch without it: a chunk with NaN can take another path through the
    engine, and a run must not depend, not even in its last digit, on the other runs.
    """

    fleet: Fleet

    def __init__(
        self, program: Program, runs: Sequence[Run], settings: Settings, data: Mapping[str, RowSource]
    ) -> None:
        self.program, self.runs, self.settings, self.data = program, tuple(runs), settings, data
        self.shuffles = {run.seed: generator(run.seed, stream=1) for run in runs}
        self.select = settings.select or ("best" if "valid" in data else "last")
        self.warned = False
        self.started = time.perf_counter()
        self.begun: Begun | None = None  # the epoch to go on with

    def train(
        self,
        start: Callable[[], Params],
        callbacks: Sequence[Callback] = (),
        checkpoints: Checkpoints | None = None,
    ) -> FleetResult:
        """EM from the parameters that `start` makes (R = number of runs) until every run has stopped.

        With checkpoints, it starts from the newest one, in the middle of an epoch if that was written there. If it is
        interrupted, it writes one of the last complete epoch.
        An interrupt of the final scores only leaves them out.
        """
        state = None if checkpoints is None else checkpoints.load(as_device(self.settings.device))
        self._begin(start()) if state is None else self._resume(state)
        self._give_back()
        keep = Keeper(checkpoints, state)
        pause = self._pause(keep)
        if state is None:
            keep.before(self._state)
        epoch = done = 0 if state is None else state.epoch
        try:
            for epoch in range(done + 1, self.settings.epochs + 1):
                if not self.fleet.active:
                    break
                orders = self._orders()
                while not self._epoch(epoch, orders, pause):
                    keep.again(epoch - 1, self._state)
                orders.clear()  # as long as the data: gone before the next ones are made
                if self.fleet.active and self._tell(epoch, callbacks):
                    self._stop(dict.fromkeys(self.fleet.active, "callback"), epoch)
                self._stop(self._reasons(epoch), epoch)
                if epoch == self.settings.epochs:
                    self._stop(dict.fromkeys(self.fleet.active, "epochs"), epoch)
                keep.after(epoch, self._state)
            self._stop(dict.fromkeys(self.fleet.active, "epochs"), self.settings.epochs)
        except KeyboardInterrupt:
            self._end_early(keep, epoch)
        except BaseException:
            with suppress(Exception):  # the first error counts
                keep.last()
            raise
        return self._results()

    def _begin(self, params: Params) -> None:
        for place, finite in enumerate(finite_runs(params).tolist()):
            if not finite:
                raise ParameterError(f"the start of training: {broken_parameter(self.program, params, place)}")
        self.fleet = Fleet.start(params, self._bind(params, range(len(self.runs))))

    def _resume(self, state: TrainerState) -> None:
        """Continue from a state: with the same kind of backend, chunks, shuffles, gates and clock."""
        self.warned, self.started = state.warned, time.perf_counter() - state.seconds
        for seed, known in state.shuffles.items():
            self.shuffles[seed].set_state(known)
        if state.kept is None:
            params = stack([state.finished[run].params for run in sorted(state.finished)])
            self.fleet = replace(state.fleet(self._bind(params, sorted(state.finished))), active=())
            return
        steps = self._bind(state.kept, state.active, state.backend)
        steps.plan.recall(state.memories)
        state.sizes.restore(steps)
        self.fleet, self.begun = state.fleet(steps), state.begun

    def _state(self, epoch: int) -> TrainerState:
        """Everything that determines how the training continues after this epoch."""
        return TrainerState.of(epoch, self.fleet, self.shuffles, time.perf_counter() - self.started, self.warned)

    def _pause(self, keep: Keeper) -> Pause | None:
        """Called between two steps; not where batches may come in another order when they come again."""
        train = self.data["train"]
        if isinstance(train, Stream) and train.reader.access == "sequence":
            return None

        def renewed(state: TrainerState) -> TrainerState:
            return replace(state, seconds=time.perf_counter() - self.started, sizes=Sizes.of(self.fleet.steps))

        return partial(keep.within, renewed)

    def _bind(self, params: Params, active: Sequence[int], backend: BackendName | None = None) -> Steps:
        """The steps that continue with these parameters; backend: the one to take, None as the settings say."""
        train, methods = self.data["train"], [self.runs[i].method for i in active]
        weight = float(len(train) if train.weights is None else train.weights.sum())
        plan = Plan(self.program, methods, params.inputs[0], self.settings.track, weight)
        chosen, budget = self._backend(params, backend), self.settings.memory_budget
        return steps_for(chosen, plan, train, params, budget, self.data.values())

    def _backend(self, params: Params, backend: BackendName | None = None) -> Backend:
        return choose_backend(self.program, params, backend or self.settings.backend, self.settings.precision)

    def _orders(self) -> dict[int, Tensor]:
        """The order of the rows in this epoch, (N,) for each seed of an active run; empty for full batches."""
        if self.settings.batch_size is None:
            return {}
        seeds = dict.fromkeys(self.runs[run].seed for run in self.fleet.active)
        return {seed: self.data["train"].order(self.shuffles[seed]) for seed in seeds}

    def _batches(self, runs: Sequence[Run], orders: dict[int, Tensor]) -> Batches:
        rows, device = len(self.data["train"]), self.fleet.kept.device
        if not orders:
            return Batches.even(None, rows, None)
        different = list(dict.fromkeys(run.seed for run in runs))
        if len(different) == 1:  # of many rows, an order for each run would take much memory
            same = orders[different[0]].to(device).expand(len(runs), -1)
            return Batches.even(same, rows, self.settings.batch_size)
        drawn = torch.stack([orders[seed] for seed in different]).to(device)
        of_run = torch.tensor([different.index(run.seed) for run in runs], device=device)
        return Batches.even(drawn.index_select(0, of_run), rows, self.settings.batch_size)  # (R, N)

    def _epoch(self, epoch: int, orders: dict[int, Tensor], pause: Pause | None) -> bool:
        """One epoch of all active runs, or the rest of one. False if runs broke: they have left, and the others are as
        they were."""
        fleet, steps = self.fleet, self.fleet.steps
        runs = [self.runs[run] for run in fleet.active]
        batches = self._batches(runs, orders)
        total = max(1, self.settings.epochs * len(batches) - 1)
        progress = [((epoch - 1) * len(batches) + i) / total for i in range(len(batches))]
        alphas = step_sizes(runs, self.settings, progress)
        mus = strengths(runs, fleet.last(), progress)
        begun, self.begun = self.begun, None
        totals = steps.run(batches, alphas, mus, begun, pause)
        sums = totals.fetch(finite_runs(steps.params))
        broken = broken_steps(self.program, steps.params, sums, steps.plan.methods)
        scores: Scores = {}
        if not broken:
            self._warn(int(max(sums.impossible)))
            held_out = [name for name in ("valid", "test") if name in self.data]
            scores = {name: steps.scorer.score(steps.params, self.data[name]) for name in held_out}
            broken = broken_scores(scores)
        if broken:
            self._fail(broken, epoch)
            return not self.fleet.active
        records = self._records(epoch, sums, scores, list(zip(alphas[-1], mus[-1], strict=True)))
        steps.plan.end_epoch()
        self.fleet = fleet.after_epoch(records, self.select == "best")
        return True

    def _records(
        self, epoch: int, sums: EpochSums, scores: Scores, rates: Sequence[tuple[float, float]]
    ) -> list[EpochRecord]:
        """The records of an epoch, one for each active run; rates: its step size and mu."""
        tracked, none = self.settings.track, [None] * len(rates)
        gates = self.fleet.steps.plan.gate_summaries() if tracked else none
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

    def _reasons(self, epoch: int) -> dict[int, str]:
        """Which runs stop after this epoch, and why."""
        reasons: dict[int, str] = {}
        tolerance, patience = self.settings.tolerance, self.settings.patience
        for run, best_epoch in zip(self.fleet.active, self.fleet.best_epoch, strict=True):
            history = self.fleet.history[run]
            if tolerance is not None and epoch > 1 and history[-1].train_ll - history[-2].train_ll < tolerance:
                reasons[run] = "tolerance"
            if patience is not None and "valid" in self.data and epoch - best_epoch >= patience:
                reasons[run] = "patience"
        return reasons

    def _stop(self, reasons: Mapping[int, str | Failure], epoch: int) -> None:
        """Stop runs, with the parameters of their best epoch or of the given one; the others continue."""
        if not reasons:
            return
        fleet, steps = self.fleet, None
        finished: dict[int, Finished] = {}
        for run, why in reasons.items():
            place = fleet.active.index(run)
            best = self.select == "best" and fleet.best_epoch[place] > 0
            source, at = (fleet.best, fleet.best_epoch[place]) if best else (fleet.kept, epoch)
            stopped, failure = ("failed", why) if isinstance(why, Failure) else (why, None)
            finished[run] = Finished(_own(source, place), at, stopped, failure)
        places = [place for place, run in enumerate(fleet.active) if run not in finished]
        fleet.steps.release()  # before the steps of the others take memory
        self._give_back()
        if places:
            steps = self._bind(fleet.kept.select(places), [fleet.active[place] for place in places])
            steps.plan.remember(fleet.steps.plan, places)
        self.fleet = fleet.without(finished, steps)

    def _fail(self, broken: Mapping[int, str], epoch: int) -> None:
        """Stop failed runs (place -> reason); the others go back to the state before this epoch."""
        failures = {self.fleet.active[place]: Failure(epoch, reason) for place, reason in broken.items()}
        self.fleet.steps.plan.recall(self.fleet.memories)
        self._stop(failures, epoch - 1)
        for run, failure in failures.items():
            if len(self.runs) > 1:  # for a single run, the caller raises an error
                at = self.fleet.finished[run].epoch
                source = "its initial parameters" if at == 0 else f"the parameters of epoch {at}"
                warn_user(
                    f"{self.runs[run].name(run)} failed in epoch {epoch}: {failure.reason}; the run keeps {source}"
                )

    def _end_early(self, keep: Keeper, epoch: int) -> None:
        """End an interrupted training. Another interrupt only stops the writing of the checkpoint."""
        with suppress(KeyboardInterrupt):
            keep.last()
        if not self.fleet.active:  # all runs have just ended
            finished = {run: _interrupted(end) for run, end in self.fleet.finished.items()}
            self.fleet = replace(self.fleet, finished=finished)
        reached: int | None = None
        while self.fleet.active:
            with suppress(KeyboardInterrupt):
                reached = self._reached() if reached is None else reached
                self._interrupt(epoch, reached)

    def _reached(self) -> int:
        """The epoch of the present parameters: the one that has begun if a step has moved them, else the last whole
        one."""
        whole = len(self.fleet.history[self.fleet.active[0]])
        return whole if _same(self.fleet.steps.params, self.fleet.kept) else whole + 1

    def _interrupt(self, epoch: int, reached: int) -> None:
        """All active runs end with the parameters of the moment, in the middle of an epoch or not."""
        params = self.fleet.steps.snapshot()
        finite = finite_runs(params).tolist()
        broken = [place for place, is_finite in enumerate(finite) if not is_finite]
        if broken:
            self._fail({place: broken_parameter(self.program, params, place) for place in broken}, epoch)
            params = params.select([place for place, is_finite in enumerate(finite) if is_finite])
        self.fleet = replace(self.fleet, kept=params)
        self._stop(dict.fromkeys(self.fleet.active, "interrupted"), reached)

    def _tell(self, epoch: int, callbacks: Sequence[Callback]) -> bool:
        fleet, schema = self.fleet, self.data["train"].schema

        def model(run: int) -> Model:
            return Model(self.program.circuit, fleet.kept.select([fleet.active.index(run)]), self.program, schema)

        records = {run: fleet.history[run][-1] for run in fleet.active}
        names = {run: self.runs[run].name(run) for run in fleet.active}
        event = EpochEnd(epoch, self.settings.epochs, records, model, names)
        return any([callback(event) for callback in callbacks])  # noqa: C419 - every callback is told

    def _warn(self, most: int) -> None:
        if most and not self.warned:
            self.warned = True
            rows = counted(most, "training row has", "training rows have")
            warn_user(f"{rows} probability zero under the current parameters; EM ignores such rows")

    def _give_back(self) -> None:
        """Return freed memory to the system between two phases of a training that has a budget."""
        if self.settings.memory_budget is not None:
            give_back()

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

    def _results(self) -> FleetResult:
        """The results of all runs, with the scores of the very parameters that they return.

        An interrupt leaves the scores out that are not known yet.
        """
        history = self.fleet.history
        ended = [self.fleet.finished[run] for run in range(len(self.runs))]
        known: dict[str, Sequence[float]] = {}
        none = [None] * len(ended)
        sharpness: list[float | None] = [*none]
        try:
            del self.fleet  # the memory of its parameters
            self._give_back()
            params = ended[0].params if len(ended) == 1 else stack([run.params for run in ended])
            backend = self._backend(params)
            # an interrupt or a callback may have stopped this worker and not the others, which would not take part
            alone = any(end.stopped in ("interrupted", "callback") for end in ended)
            scorer = scorer_for(backend, self.settings.memory_budget, alone)
            for name, samples in self.data.items():
                known[name] = scorer.score(params, samples)
            if self.settings.track:
                sharpness = self._sharpness(params, backend)
        except KeyboardInterrupt:
            ended = [_interrupted(end) for end in ended]
        scores = {name: known.get(name) or _recorded(name, ended, history) for name in self.data}
        seconds = time.perf_counter() - self.started
        results = (
            FitResult(
                model=Model(self.program.circuit, end.params, self.program, self.data["train"].schema),
                history=history[i],
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
        return FleetResult(tuple(results))


def _interrupted(end: Finished) -> Finished:
    """The run as one that an interrupt ended, unless it failed."""
    return end if end.failure is not None else replace(end, stopped="interrupted")


def _recorded(name: str, ended: Sequence[Finished], history: Sequence[Sequence[EpochRecord]]) -> list[float]:
    """The scores of held-out rows that the records of the epochs have of these parameters; NaN for all others."""
    found = []
    for end, records in zip(ended, history, strict=True):
        record = next((record for record in records if record.epoch == end.epoch), None)
        score = None if record is None or name == "train" else getattr(record, f"{name}_ll")
        found.append(math.nan if score is None else score)
    return found


def _same(one: Params, other: Params) -> bool:
    """Whether all parameters are equal."""
    pairs = zip((*one.weights, *one.inputs), (*other.weights, *other.inputs), strict=True)
    return all(torch.equal(mine, its) for mine, its in pairs)


def _own(params: Params, place: int) -> Params:
    """The parameters of one run of a fleet; those of a single run are not copied."""
    return params.map(torch.Tensor.contiguous) if params.runs == 1 else params.select([place])
