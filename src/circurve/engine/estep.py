"""The E-step: forward, backward, and the sums over samples, chunk by chunk in one set of buffers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from circurve.engine.backends import AnyEngine
from circurve.engine.batch import Batch
from circurve.engine.bound import Engine
from circurve.engine.cpu.estep import TreeSums
from circurve.engine.cuda import FusedEngine
from circurve.engine.cuda import estep as fused
from circurve.engine.params import Params
from circurve.engine.reference import Observer, backward, forward, root_flow
from circurve.engine.statistics import Request, Statistics
from circurve.engine.sums import Sums
from circurve.inputs import LOG_ZERO

__all__ = ["log_prob", "observe", "statistics"]


def log_prob(engine: AnyEngine, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
    """Log-probabilities of all outputs; -inf for probability zero, NaN where parameters or data are broken."""
    if isinstance(engine, FusedEngine):
        return fused.log_prob(engine, params, batch)
    if engine.tree is not None:
        tree = engine.tree.bind(batch.size)
        tree.load(params)
        risen = tree.rise(batch)
        if risen is not None:
            return risen.outputs
    parts = []
    for part in _fitting(engine, batch, backward=False):
        engine.reserve(part.size, backward=False)
        parts.append(forward(engine, params, part.x, part.observed))
    value = torch.cat(parts, dim=-1)
    return torch.where(value <= LOG_ZERO / 2, -torch.inf, value)


def statistics(
    engine: AnyEngine, params: Params, batches: Iterable[Batch], request: Request | None = None
) -> Statistics:
    """The sums of an E-step over all batches: the time of two passes, the memory of one batch."""
    if isinstance(engine, FusedEngine):
        return fused.statistics(engine, params, batches, request or Request())
    sums = Sums(engine, params, request or Request())
    tree = None
    for batch in batches:
        if engine.tree is not None and tree is None:
            tree = TreeSums(engine.tree.bind(batch.size), sums)
        if tree is None or not tree.observe(batch):
            for part in _fitting(engine, batch, backward=True):
                observe(engine, params, part, sums)
    if tree is not None:
        tree.close()
    return sums.result()


def observe(engine: Engine, params: Params, batch: Batch, observer: Observer) -> None:
    """One batch forward and backward, shown to the observer. The output's flow is the sample's weight."""
    engine.reserve(batch.size, backward=True)
    outputs = forward(engine, params, batch.x, batch.observed)
    backward(engine, params, root_flow(batch, outputs, observer), observer)


def _fitting(engine: Engine, batch: Batch, backward: bool) -> Iterable[Batch]:
    """A batch in parts for which the reference backend needs no more memory than the tree would."""
    if engine.tree is None:
        return (batch,)
    memory = engine.bytes_per_sample(backward) * batch.size
    return batch.parts(max(1, memory // engine.reference_bytes_per_sample(backward)))
