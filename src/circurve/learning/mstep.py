"""The M-step: from statistics to the next parameters, for all runs and all nodes at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine import Params, Program, Statistics

__all__ = ["FLOOR", "Step", "maximize", "normalized_counts"]

FLOOR = 1e-12
"""The smallest weight the M-step gives to an edge. A weight of exactly zero would stay zero for ever."""


@dataclass(frozen=True)
class Step:
    """The numbers of one M-step, one for each run: (R, 1, 1, 1)."""

    step_size: Tensor
    pseudocount: Tensor


def maximize(program: Program, params: Params, statistics: Statistics, step: Step) -> Params:
    """theta <- (1 - alpha) theta + alpha theta~, for sums and inputs; the given parameters stay as they are."""
    weights = []
    for number, layer in enumerate(program.sums):
        mask = None if layer.mask is None else torch.from_numpy(layer.mask).to(params.device)
        best = normalized_counts(statistics.counts[number], params.weights[number], step.pseudocount, mask)
        weights.append(torch.lerp(params.weights[number], best, step.step_size))
    inputs = [
        layer.family.maximize(values, sums, step.pseudocount, step.step_size)
        for layer, values, sums in zip(program.inputs, params.inputs, statistics.inputs, strict=True)
    ]
    return Params(tuple(weights), tuple(inputs))


def normalized_counts(counts: Tensor, weights: Tensor, pseudocount: Tensor, mask: Tensor | None) -> Tensor:
    """theta~_nc = (N_nc + pseudocount / children) / sum_c, at least FLOOR; a sum that was not used keeps its weights.

    counts, weights: (R, G, K, C); pseudocount: (R, 1, 1, 1); mask: (G, K, C) or None.
    """
    children = counts.shape[-1] if mask is None else mask.sum(-1, keepdim=True)
    smoothed = counts + pseudocount / children
    total = smoothed.sum(-1, keepdim=True) if mask is None else (smoothed * mask).sum(-1, keepdim=True)
    smoothed = torch.maximum(smoothed, FLOOR * total)
    if mask is not None:
        smoothed = smoothed * mask
    best = smoothed / smoothed.sum(-1, keepdim=True)
    return torch.where(total > 0, best, weights)
