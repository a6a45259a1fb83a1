"""The steps of an epoch: E-step and M-step, batch after batch, on the backend that serves the circuit best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from circurve.data import Table
from circurve.engine import Batch, Engine, Params, Statistics, chunks, statistics
from circurve.engine.memory import chunk_size, within_memory
from circurve.learning.plan import Plan

__all__ = ["Batches", "ReferenceSteps", "Steps", "Totals"]


@dataclass(frozen=True)
class Totals:
    """Sums over the batches of an epoch, one for each run, kept on the device until the epoch ends."""

    values: Tensor  # (4, R) float64: log-likelihood, weight, impossible samples, trace

    @classmethod
    def zero(cls, runs: int, device: torch.device) -> Totals:
        """Before the first batch."""
        return cls(torch.zeros(4, runs, dtype=torch.float64, device=device))

    def add(self, sums: Statistics) -> None:
        """Another batch."""
        self.values[0] += sums.log_likelihood
        self.values[1] += sums.weight
        self.values[2] += sums.impossible
        if sums.curvature is not None and sums.curvature.total is not None:
            self.values[3] += sums.curvature.trace()

    def impossible(self) -> int:
        """The most samples of probability zero that any run met."""
        return int(self.values[2].max())

    def mean_log_likelihood(self) -> Tensor:  # (R,)
        """-inf if a sample had probability zero."""
        return torch.where(self.values[2] > 0, -torch.inf, self.values[0] / self.values[1])

    def mean_trace(self) -> Tensor:  # (R,)
        """The mean trace of the Hessian, where it was asked for."""
        return self.values[3] / self.values[1]


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


class Steps(Protocol):
    """Runs the batches of an epoch and keeps the fleet's parameters."""

    @property
    def params(self) -> Params:
        """The present parameters."""

    def run(self, batches: Batches, step_sizes: Sequence[Sequence[float]], mus: Sequence[Sequence[float]]) -> Totals:
        """One EM step for each batch, with each run's step size and mu."""


class ReferenceSteps:
    """Step by step, on any device."""

    def __init__(self, engine: Engine, plan: Plan, train: Table, params: Params, memory_budget: int | None) -> None:
        self.engine, self.plan, self.train = engine, plan, train
        self.params = params
        self.chunk = chunk_size(engine, backward=True, memory_budget=memory_budget)
        self.whole: Batch | None = None
        """All rows as one batch, kept for the next epoch of full-batch EM on a CPU."""

    def run(self, batches: Batches, step_sizes: Sequence[Sequence[float]], mus: Sequence[Sequence[float]]) -> Totals:
        totals = Totals.zero(self.engine.runs, self.engine.device)
        for rows, alpha, mu in zip(batches, step_sizes, mus, strict=True):
            sums = self._e_step(rows)
            self.params = self.plan.maximize(self.params, sums, alpha, mu)
            totals.add(sums)
        return totals

    def _e_step(self, rows: Tensor | None) -> Statistics:
        size = len(self.train) if rows is None else rows.shape[1]
        return within_memory(self.engine, min(self.chunk, size), lambda chunk: self._sums(rows, chunk))

    def _sums(self, rows: Tensor | None, chunk: int) -> Statistics:
        if rows is None:
            return statistics(self.engine, self.params, self._all_rows(chunk), self.plan.request)
        parts = (Batch.pick(self.train, part, self.engine.dtype) for part in torch.split(rows, chunk, dim=1))
        return statistics(self.engine, self.params, parts, self.plan.request)

    def _all_rows(self, chunk: int) -> Iterable[Batch]:
        if chunk < len(self.train) or self.engine.device.type != "cpu":
            return chunks(self.train, chunk, self.engine.dtype)
        if self.whole is None:
            self.whole = Batch.rows(self.train, 0, len(self.train), self.engine.dtype)
        return [self.whole]
