"""The E-step: forward, backward, and the sums over samples, chunk by chunk in one set of buffers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.bound import Engine
from circurve.engine.params import Params
from circurve.engine.reference import Observer, backward, forward
from circurve.engine.statistics import Request, Statistics
from circurve.engine.sums import Sums
from circurve.inputs import LOG_ZERO

__all__ = ["log_prob", "observe", "statistics"]


def log_prob(engine: Engine, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
    """Log-probabilities of all outputs; -inf for probability zero."""
    engine.reserve(batch.size, backward=False)
    value = forward(engine, params, batch.x, batch.observed)
    return torch.where(value > LOG_ZERO / 2, value, -torch.inf)


def statistics(engine: Engine, params: Params, batches: Iterable[Batch], request: Request | None = None) -> Statistics:
    """The sums of an E-step over all batches: the time of two passes, the memory of one batch."""
    sums = Sums(engine, params, request or Request())
    for batch in batches:
        observe(engine, params, batch, sums)
    return sums.result()


def observe(engine: Engine, params: Params, batch: Batch, observer: Observer) -> None:
    """One batch forward and backward, shown to the observer. The output's flow is the sample's weight."""
    engine.reserve(batch.size, backward=True)
    outputs = forward(engine, params, batch.x, batch.observed)  # (R, outputs, N)
    chosen = None if batch.labels is None else batch.labels.expand(engine.runs, -1).unsqueeze(1)  # (R, 1, N)
    log_value = outputs[:, 0] if chosen is None else outputs.gather(1, chosen).squeeze(1)
    possible = log_value > LOG_ZERO / 2
    weight = possible.to(engine.dtype) if batch.weights is None else batch.weights * possible
    root_flow = weight.unsqueeze(1)
    if chosen is not None:
        root_flow = torch.zeros_like(outputs).scatter_(1, chosen, root_flow)
    observer.on_start(batch, log_value, weight, possible)
    backward(engine, params, root_flow, observer)
