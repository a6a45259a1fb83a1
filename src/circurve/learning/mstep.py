"""The M-step: from statistics to the next parameters, for all runs and all nodes at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from circurve.learning.simplex import target_weights

__all__ = ["FLOOR", "LayerSums", "Penalty", "normalized_counts", "regularised_weights"]

FLOOR = 1e-12
"""The smallest weight the M-step gives to an edge. A weight of exactly zero would stay zero for ever."""

BLOCK = 1 << 18
"""On a CPU so many edges are updated at a time: what is written between two passes is still in the cache."""

Block: TypeAlias = tuple[slice, slice]
"""Which runs and which groups."""


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
    scale: Tensor | None  # what counts are divided by first, (R, 1, 1, 1); None for one


def normalized_counts(sums: LayerSums, weights: Tensor, pseudocount: Tensor | None) -> Tensor:
    """theta~_nc = (N_nc + pseudocount / children) / sum_c, at least FLOOR; a sum that was not used keeps its weights.

    weights: (R, G, K, C); pseudocount: (R, 1, 1, 1), None if all are zero.
    """
    counts, total = _smoothed(sums, pseudocount)
    best = torch.maximum(counts, FLOOR * total)
    if sums.mask is not None:
        best *= sums.mask
    best /= best.sum(-1, keepdim=True)
    return best if _all_used(total) else torch.where(total > 0, best, weights)


def regularised_weights(sums: LayerSums, weights: Tensor, pseudocount: Tensor | None, penalty: Penalty) -> Tensor:
    """theta~ of `Global` and `Gated` (see simplex.py), at least FLOOR; a sum that was not used keeps its weights.

    The exact penalty is in force if the sums have second moments. Works in the weights' precision: all terms of the
    formulas are positive, so that nothing but rounding is lost.
    """
    result = torch.empty_like(weights)
    strongest = torch.finfo(weights.dtype).max ** (1 / 3)  # its square, times counts, is finite
    for runs, groups in _blocks(weights):
        part = LayerSums(
            sums.counts[runs, groups],
            None if sums.second_moment is None else sums.second_moment[runs, groups],
            None if sums.mask is None else sums.mask[groups],
        )
        strength = penalty.strength[runs, groups].clamp_max(strongest).to(weights.dtype)
        multiplier, scale, smoothing = (
            None if column is None else column[runs].to(weights.dtype)
            for column in (penalty.multiplier, penalty.scale, pseudocount)
        )
        result[runs, groups] = _regularised(
            part, weights[runs, groups], smoothing, Penalty(strength, multiplier, scale)
        )
    return result


def _regularised(sums: LayerSums, weights: Tensor, pseudocount: Tensor | None, penalty: Penalty) -> Tensor:
    counts, total = _smoothed(sums, pseudocount)
    moments = sums.second_moment
    if penalty.scale is not None:
        counts = counts / penalty.scale
        moments = None if moments is None else moments / penalty.scale
    best = target_weights(counts, penalty.strength, moments, penalty.multiplier).clamp_min_(FLOOR)
    if sums.mask is not None:
        best *= sums.mask
    best /= best.sum(-1, keepdim=True)
    return best if _all_used(total) else torch.where(total > 0, best, weights)


def _blocks(weights: Tensor) -> Iterator[Block]:
    """All runs and groups at once on a GPU; on a CPU some of them."""
    runs, groups, units, children = weights.shape
    most = runs * groups if weights.device.type != "cpu" else max(1, BLOCK // (units * children))
    runs_at_once, groups_at_once = max(1, most // groups), min(most, groups)
    for first in range(0, runs, runs_at_once):
        for group in range(0, groups, groups_at_once):
            yield slice(first, first + runs_at_once), slice(group, group + groups_at_once)


def _all_used(total: Tensor) -> bool:
    """Whether all sums were used, where that is soon known: another device would have to be waited for."""
    return total.device.type == "cpu" and bool((total > 0).all())


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
