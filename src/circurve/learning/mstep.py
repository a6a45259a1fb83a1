"""The M-step: from statistics to the next parameters, for all runs and all nodes at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.learning.simplex import target_weights

__all__ = ["FLOOR", "LayerSums", "Penalty", "normalized_counts", "regularised_weights"]

FLOOR = 1e-12
"""The smallest weight the M-step gives to an edge. A weight of exactly zero would stay zero for ever."""


@dataclass(frozen=True)
class LayerSums:
    """What the M-step of one sum layer reads."""

    counts: Tensor  # N, (R, G, K, C)
    second_moment: Tensor | None  # S, (R, G, K, C), for the exact penalty
    mask: Tensor | None  # (G, K, C) boolean


@dataclass(frozen=True)
class Penalty:
    """The numbers of a regularised M-step: one for each run, (R, 1, 1, 1), or each node, (R, G, K, 1); float64."""

    strength: Tensor  # mu * omega_n, (R, G, K, 1)
    multiplier: Tensor | None  # lambda, (R, 1, 1, 1); None solves for it
    scale: Tensor  # what counts are divided by first, (R, 1, 1, 1)


def normalized_counts(sums: LayerSums, weights: Tensor, pseudocount: Tensor | None) -> Tensor:
    """theta~_nc = (N_nc + pseudocount / children) / sum_c, at least FLOOR; a sum that was not used keeps its weights.

    weights: (R, G, K, C); pseudocount: (R, 1, 1, 1), None if all are zero.
    """
    counts, total = _smoothed(sums, pseudocount)
    best = torch.maximum(counts, FLOOR * total)
    if sums.mask is not None:
        best *= sums.mask
    best /= best.sum(-1, keepdim=True)
    if best.device.type == "cpu" and bool((total > 0).all()):
        return best  # a pass less; on other devices the question would be the longer wait
    return torch.where(total > 0, best, weights)


def regularised_weights(sums: LayerSums, weights: Tensor, pseudocount: Tensor | None, penalty: Penalty) -> Tensor:
    """theta~ of `Global` and `Gated` (see simplex.py), at least FLOOR; a sum that was not used keeps its weights.

    The exact penalty is in force if the sums have second moments. Works in float64, answers in the weights' precision.
    """
    counts, total = _smoothed(sums, pseudocount)
    counts = torch.where(total > 0, counts.double() / penalty.scale, 1.0)
    moments = None if sums.second_moment is None else sums.second_moment.double() / penalty.scale
    best = target_weights(counts, penalty.strength, moments, penalty.multiplier)
    best = best.clamp_min(FLOOR)
    if sums.mask is not None:
        best = best * sums.mask
    best = best / best.sum(-1, keepdim=True)
    return torch.where(total > 0, best.to(weights.dtype), weights)


def _smoothed(sums: LayerSums, pseudocount: Tensor | None) -> tuple[Tensor, Tensor]:
    """Counts with the pseudocount shared out among existing edges, and their totals (R, G, K, 1)."""
    used = sums.counts.sum(-1, keepdim=True)
    if pseudocount is None:
        return sums.counts, used
    if sums.mask is None:
        counts = sums.counts + pseudocount / sums.counts.shape[-1]
    else:
        counts = sums.counts + pseudocount / sums.mask.sum(-1, keepdim=True) * sums.mask
    return counts, torch.where(used > 0, counts.sum(-1, keepdim=True), 0.0)
