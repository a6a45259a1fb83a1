"""Log-probabilities of all rows of a checked table, in chunks that memory holds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from circurve.data import Table
from circurve.engine import Backend, Batch, Params
from circurve.engine.memory import chunk_size, release_large, within_memory

__all__ = ["finish_scores", "score_rows"]


def score_rows(backend: Backend, params: Params, table: Table, memory_budget: int | None) -> Tensor:  # (R, outputs, N)
    """log p of the rows of a checked table, as many at once as memory holds.

    Buffers of a few rows stay with the backend for the next call; large ones go, since a person may hold many models.
    """
    rows = len(table)
    chunk = chunk_size(backend, backward=False, memory_budget=memory_budget, samples=rows)

    def score(size: int) -> Tensor:  # (R, outputs, N)
        parts = (Batch.rows(table, start, min(start + size, rows), params.dtype) for start in range(0, rows, size))
        return torch.cat([backend.log_prob(params, part) for part in parts], dim=2)

    found = within_memory(backend, max(1, min(chunk, rows)), score)
    release_large(backend, rows, backward=False)
    return found


def finish_scores(values: Tensor, extra: Tensor | None, x: Any) -> Any:  # (..., N, outputs), (N,)
    """Log-probabilities as a user gets them: `extra` added to each row, and no axis for a single output.

    A torch tensor, on the device of x, if x is one; else a numpy array.
    """
    if extra is not None:
        values = values + extra[:, None].to(values)
    values = values[..., 0] if values.shape[-1] == 1 else values
    return values.to(x.device) if isinstance(x, Tensor) else values.double().cpu().numpy()
