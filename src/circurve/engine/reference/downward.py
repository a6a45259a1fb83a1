"""The downward pass of the reference backend: flows, layer by layer from the outputs to the inputs.

With F_kn the flow of unit k of a sum layer and E, S as in `upward.py`,

    A_kn  = F_kn / S_kn
    F_cn += E_cn sum_k theta_kc A_kn            flow to the child
    N_kc  = theta_kc sum_n A_kn E_cn            counts, since r_kc = theta_kc E_c / S_k

so every sum over edges is a matrix product, and no array has samples x edges entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import IMPOSSIBLE, MIN_SAMPLE_WEIGHT
from circurve.engine.program import SumLayer
from circurve.engine.reference.upward import Entries, SumValues, flushed, matrix_products

__all__ = ["RootFlow", "SumPass", "WeakEntries", "child_flow", "root_flow"]


@dataclass(frozen=True)
class RootFlow:
    """Where flow enters: each sample's weight, at its own output."""

    log_value: Tensor  # log p of each sample's own output, (R, N)
    weight: Tensor  # the samples' weights; zero where the probability is zero or NaN, (R, N)
    possible: Tensor  # boolean, (R, N)
    impossible: Tensor  # boolean: probability zero, though the sample has weight, (R, N)
    broken: Tensor  # boolean: log p is NaN, though the sample has weight, (R, N)
    flow: Tensor  # (R, outputs, N)

    @property
    def inverse(self) -> Tensor:  # (R, N)
        """1 / weight, and 0 for a sample of (nearly) no weight."""
        return torch.where(self.weight >= MIN_SAMPLE_WEIGHT, 1 / self.weight, 0.0)


def root_flow(batch: Batch, outputs: Tensor) -> RootFlow:
    """The flow to send down, given log p of the outputs (R, outputs, N)."""
    runs = outputs.shape[0]
    chosen = None if batch.labels is None else batch.labels.expand(runs, -1).unsqueeze(1)  # (R, 1, N)
    log_value = outputs[:, 0] if chosen is None else outputs.gather(1, chosen).squeeze(1)
    possible, broken = log_value > IMPOSSIBLE, log_value.isnan()
    counted = torch.ones_like(possible) if batch.weights is None else (batch.weights > 0).expand_as(possible)
    weight = possible.to(outputs.dtype) if batch.weights is None else torch.where(possible, batch.weights, 0.0)
    flow = weight.unsqueeze(1)
    if chosen is not None:
        flow = torch.zeros_like(outputs).scatter_(1, chosen, flow)
    return RootFlow(log_value, weight, possible, counted & ~possible & ~broken, counted & broken, flow)


@dataclass(frozen=True)
class WeakEntries:
    """P entries of a sum layer that were computed in logs, with their flow."""

    at: Entries
    flow: Tensor  # F, (P,)
    log_ratio: Tensor  # log of rho = p_c / p_n, (P, C); minus infinity where the mask has no edge
    responsibility: Tensor  # (P, C)


@dataclass(frozen=True)
class SumPass:
    """What the passes leave of one sum layer."""

    number: int
    """The position of the layer among the sum layers."""

    layer: SumLayer
    values: SumValues
    weights: Tensor  # theta, (R, G, K, C)
    mask: Tensor | None  # 1 where an edge exists, (G, K, C)
    flow: Tensor  # F, (R, G, K, N)
    ratio: Tensor  # A = F / S, (R, G, K, N); zero at weak entries

    def weak(self) -> Iterator[WeakEntries]:
        """The entries that `ratio` leaves out, a bounded number at a time."""
        for at in self.values.weak_entries():
            run, group, unit, sample = at
            assert self.values.children is not None
            children = self.values.children[run, group, :, sample]  # (P, C)
            log_ratio = children - self.values.log_value[at][:, None]
            responsibility = (log_ratio + self.weights[run, group, unit].log()).exp()
            if self.mask is not None:
                log_ratio = log_ratio.masked_fill(self.mask[group, unit] == 0, -torch.inf)
            yield WeakEntries(at, self.flow[at], log_ratio, responsibility)


def child_flow(step: SumPass, out: Tensor | None = None) -> Tensor:  # (R, G, C, N)
    """The flow that a sum layer sends to its children."""
    down = matrix_products(step.weights.transpose(-1, -2), step.ratio, out).mul_(step.values.elements)
    for entries in step.weak():
        run, group, _, sample = entries.at
        child = torch.arange(down.shape[2], device=down.device)
        at = (run[:, None], group[:, None], child, sample[:, None])
        down.index_put_(at, entries.flow[:, None] * entries.responsibility, accumulate=True)
    return flushed(down)
