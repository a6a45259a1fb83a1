"""The steps of an epoch: E-step and M-step, batch after batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from circurve.data import RowSource
from circurve.engine import Backend, Batch, Params, Statistics, chunks
from circurve.engine.memory import chunk_size, within_memory
from circurve.learning.plan import Plan
from circurve.learning.score import Scorer

__all__ = ["Batches", "Begun", "EpochSums", "Pause", "PlainSteps", "Rates", "Steps", "Totals"]

Rates: TypeAlias = Sequence[Sequence[float]]
"""For each batch a number for each run."""


@dataclass(frozen=True)
class Totals:
    """Sums over the batches of an epoch, one for each run, kept on the device until the epoch ends."""

    values: Tensor  # (ROWS, R) float64

    ROWS = 5
    """Log-likelihood, weight, samples of probability zero, samples that give NaN, trace."""

    def add(self, sums: Statistics) -> None:
        """Another batch."""
        self.values[:4] += torch.stack([sums.log_likelihood, sums.weight, sums.impossible, sums.broken])
        if sums.curvature is not None and sums.curvature.total is not None:
            self.values[4] += sums.curvature.trace()

    def fetch(self, finite: Tensor) -> EpochSums:
        """The totals on the host, with whether a run's parameters are finite, (R,): one synchronisation for all."""
        rows = torch.cat([self.values, finite[None].double()]).tolist()
        return EpochSums(*(tuple(row) for row in rows))


@dataclass(frozen=True)
class EpochSums:
    """The totals of an epoch as plain numbers, one for each run."""

    log_likelihood: tuple[float, ...]
    weight: tuple[float, ...]
    impossible: tuple[float, ...]  # how many samples have probability zero
    broken: tuple[float, ...]  # how many samples have a log-probability of NaN
    trace: tuple[float, ...]
    finite: tuple[float, ...]  # 1 if all parameters are finite after the epoch, else 0

    def train_ll(self, place: int) -> float:
        """The mean over samples: NaN if one of them is NaN, else -inf if one has probability zero."""
        if self.broken[place] or not self.weight[place]:
            return math.nan if self.broken[place] else -math.inf
        return -math.inf if self.impossible[place] else self.log_likelihood[place] / self.weight[place]

    def sharpness(self, place: int) -> float:
        """The mean trace of the Hessian, where it was asked for."""
        return self.trace[place] / self.weight[place] if self.weight[place] else math.nan


@dataclass(frozen=True)
class Batches:
    """An epoch cut into batches: samples bounds[i] to bounds[i + 1] of each run's order, (R, N).

    Without an order there is one batch of all rows.
    """

    orders: Tensor | None
    bounds: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @classmethod
    def even(cls, orders: Tensor | None, rows: int, size: int | None) -> Batches:
        """Batches of at most `size` samples (None: one of all rows), as even as can be."""
        steps = 1 if size is None else -(-rows // size)
        return cls(orders, tuple(rows * i // steps for i in range(steps + 1)))

    def __iter__(self) -> Iterator[Tensor | None]:
        """The rows of each batch, (R, samples); None for all of them."""
        for start, stop in pairwise(self.bounds):
            yield None if self.orders is None else self.orders[:, start:stop]


@dataclass(frozen=True)
class Begun:
    """An epoch that has begun: what its steps so far have left behind. Nothing in it is changed by later steps."""

    steps: int
    params: Params
    memories: tuple[Tensor, ...]
    """The state of the gates."""

    totals: Tensor  # as in `Totals`


Pause: TypeAlias = Callable[[Callable[[], Begun]], None]
"""Called between two steps with what makes a record of the epoch so far."""


class Steps(Protocol):
    """Runs the batches of an epoch and keeps the fleet's parameters."""

    plan: Plan
    scorer: Scorer
    """For scores between epochs, which do not disturb the steps."""

    chunk: int
    """The largest number of samples computed at once."""

    @property
    def backend(self) -> Backend:
        """What computes the E-steps."""

    @property
    def params(self) -> Params:
        """The present parameters."""

    def snapshot(self) -> Params:
        """The present parameters, in memory that no later step changes."""

    def run(
        self, batches: Batches, step_sizes: Rates, mus: Rates, begun: Begun | None = None, pause: Pause | None = None
    ) -> Totals:
        """One EM step for each batch, with each run's step size and mu; begun: go on from there.

        Steps that are recorded know no pause, and begin an epoch again.
        """

    def release(self) -> None:
        """Give back the memory of the steps: none follows. Snapshots stay."""


class PlainSteps:
    """Step by step, on any backend."""

    def __init__(
        self, backend: Backend, plan: Plan, train: RowSource, params: Params, memory_budget: int | None
    ) -> None:
        self.backend, self.plan, self.train = backend, plan, train
        self.params = params
        self.scorer = Scorer(backend, memory_budget)
        self._whole: Batch | None = None
        self.chunk = chunk_size(backend, backward=True, memory_budget=memory_budget)

    def snapshot(self) -> Params:
        """The parameters themselves: each M-step makes new ones."""
        return self.params

    def run(
        self, batches: Batches, step_sizes: Rates, mus: Rates, begun: Begun | None = None, pause: Pause | None = None
    ) -> Totals:
        shape, device = (Totals.ROWS, self.params.runs), self.params.device
        totals, done = Totals(torch.zeros(shape, dtype=torch.float64, device=device)), 0
        if begun is not None:
            self.params, done = begun.params, begun.steps
            self.plan.recall(begun.memories)
            totals.values.copy_(begun.totals)
        steps = enumerate(zip(batches, step_sizes, mus, strict=True), 1)
        for step, (rows, alpha, mu) in islice(steps, done, None):
            sums = self._e_step(rows)
            self.params = self.plan.maximize(self.params, sums, alpha, mu)
            totals.add(sums)
            if pause is not None and step < len(batches):
                pause(partial(self._begun, step, totals))
        return totals

    def _begun(self, steps: int, totals: Totals) -> Begun:
        return Begun(steps, self.params, self.plan.memories(), totals.values.clone())

    def _e_step(self, rows: Tensor | None) -> Statistics:
        size = len(self.train) if rows is None else rows.shape[1]
        return within_memory(self.backend, min(self.chunk, size), lambda chunk: self._sums(rows, chunk))

    def _sums(self, rows: Tensor | None, chunk: int) -> Statistics:
        parts: Iterable[Batch]
        if rows is not None:
            parts = (Batch.pick(self.train, part, self.params.dtype) for part in torch.split(rows, chunk, dim=1))
        elif chunk < len(self.train):
            parts = chunks(self.train, chunk, self.params.dtype)
        else:  # a single chunk is made once and kept for the next step
            self._whole = self._whole or Batch.rows(self.train, 0, len(self.train), self.params.dtype)
            parts = [self._whole]
        return self.backend.statistics(self.params, parts, self.plan.request)

    def release(self) -> None:
        self._whole = None
        self.backend.release()
