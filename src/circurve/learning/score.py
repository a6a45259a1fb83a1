"""Mean log-likelihoods of a fleet on a data set, in chunks that fit the memory budget."""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.data import Table
from circurve.engine import AnyEngine, Params, chunks, log_prob
from circurve.engine.memory import within_memory

__all__ = ["mean_log_likelihood"]


def mean_log_likelihood(engine: AnyEngine, params: Params, table: Table, chunk: int) -> Tensor:  # (R,) float64
    """The weighted mean of log p over all rows; -inf if one with positive weight has probability zero."""
    return within_memory(engine, min(chunk, len(table)), lambda size: _mean(engine, params, table, size))


def _mean(engine: AnyEngine, params: Params, table: Table, chunk: int) -> Tensor:
    total = torch.zeros(params.runs, dtype=torch.float64, device=params.device)
    weight = torch.zeros_like(total)
    for batch in chunks(table, chunk, params.dtype):
        values = log_prob(engine, params, batch)  # (R, outputs, N)
        if batch.labels is None:
            score = values[:, 0]
        else:
            score = values.gather(1, batch.labels.expand(params.runs, -1).unsqueeze(1)).squeeze(1)
        if batch.weights is None:
            total += score.sum(-1, dtype=torch.float64)
            weight += batch.size
        else:
            total += torch.where(batch.weights > 0, score * batch.weights, 0.0).sum(-1, dtype=torch.float64)
            weight += batch.weights.sum(-1, dtype=torch.float64)
    return total / weight
