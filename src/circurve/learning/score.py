"""Mean log-likelihoods of a fleet on a data set, in chunks that fit the memory budget."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import torch
from torch import Tensor

from circurve.data import RowSource, log_unseen_rows
from circurve.engine import Backend, Batch, Params, chunks
from circurve.engine.memory import chunk_size, within_memory

__all__ = ["ScoreSums", "Scorer", "log_likelihood_sums", "mean_log_likelihood"]

ScoreSums: TypeAlias = Callable[[Backend, Params, RowSource, int], Tensor]
"""(backend, parameters, rows, samples at once) -> the (2, R) sums of `log_likelihood_sums` over all rows."""

MAX_REHEARSED = 8192
"""Rows that are scored to compile kernels: more rows would need no other kernels."""


def log_likelihood_sums(
    backend: Backend, params: Params, table: RowSource, chunk: int, rows: range | None = None
) -> Tensor:  # (2, R) float64
    """Sums over rows of weight * log p, and of the weight; rows: consecutive ones, None is all of them.

    The first is -inf if a row with positive weight has probability zero.
    """
    unseen = log_unseen_rows(table)
    chosen = range(len(table)) if rows is None else rows

    def sums(size: int) -> Tensor:
        total = torch.zeros(params.runs, dtype=torch.float64, device=params.device)
        weight = torch.zeros_like(total)
        for batch in chunks(table, size, params.dtype, chosen):
            values = backend.log_prob(params, batch)  # (R, outputs, N)
            labels = batch.labels
            score = values[:, 0] if labels is None else values.gather(1, labels.expand(params.runs, -1)[:, None])[:, 0]
            if batch.weights is None:
                total += score.sum(-1, dtype=torch.float64)
                weight += batch.size
            else:
                total += torch.where(batch.weights > 0, score * batch.weights, 0.0).sum(-1, dtype=torch.float64)
                weight += batch.weights.sum(-1, dtype=torch.float64)
        if unseen is not None:
            part = slice(chosen.start, chosen.stop)
            found = unseen[part]
            if table.weights is not None:
                found = torch.where(table.weights[part] > 0, found * table.weights[part], 0.0)
            total += found.sum()
        return torch.stack([total, weight])

    return within_memory(backend, max(1, min(chunk, len(chosen))), sums)


def mean_log_likelihood(backend: Backend, params: Params, table: RowSource, chunk: int) -> Tensor:  # (R,) float64
    """The weighted mean of log p over all rows; -inf if one with positive weight has probability zero."""
    sums = log_likelihood_sums(backend, params, table, chunk)
    return sums[0] / sums[1]


class Scorer:
    """Scores a fleet with a backend. The size of its chunks follows the memory that is free at the first score."""

    def __init__(self, backend: Backend, memory_budget: int | None, sums: ScoreSums = log_likelihood_sums) -> None:
        """sums: what adds up the log-likelihoods, by this process or by several."""
        self.backend, self.memory_budget, self.sums = backend, memory_budget, sums
        self.chunk: int | None = None

    def score(self, params: Params, table: RowSource) -> list[float]:
        """The mean log-likelihood of each run."""
        if self.chunk is None:
            self.chunk = self._chunk_size()
        sums = self.sums(self.backend, params, table, self.chunk)
        values: list[float] = (sums[0] / sums[1]).tolist()
        return values

    def rehearse(self, params: Params, table: RowSource) -> None:
        """Score a few rows and give the memory back, so that the kernels of a score can be compiled."""
        size = min(self.chunk or self._chunk_size(), len(table), MAX_REHEARSED)
        with suppress(torch.OutOfMemoryError):  # a score goes on with fewer samples, and compiles what that needs
            self.backend.log_prob(params, Batch.rows(table, 0, size, params.dtype))
        self.backend.release()

    def _chunk_size(self) -> int:
        return chunk_size(self.backend, backward=False, memory_budget=self.memory_budget)
