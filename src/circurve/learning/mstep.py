"""The M-step: from statistics to the next parameters, for all runs and all nodes at once.

A row that received too little flow keeps its parameters; the rule and its numbers are in engine/numerics.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.numerics import LIMITS, WEIGHT_FLOOR
from circurve.inputs import Family
from circurve.learning.simplex import target_weights

__all__ = [
    "LayerSums",
    "Penalty",
    "Target",
    "moved_inputs",
    "moved_weights",
    "normalized_counts",
    "regularised_weights",
]

BLOCK = 1 << 18
"""How many edges are updated at a time, so that what a CPU writes between two passes is still in its cache."""


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


@dataclass(frozen=True)
class Target:
    """Where the weights of one sum layer move to."""

    weights: Tensor  # theta~, (R, G, K, C); finite, positive where an edge exists, rows sum to one
    used: Tensor | None
    """(R, G, K, 1) boolean: which sums received enough flow to move at all; None if all did."""


def moved_weights(old: Tensor, target: Target, step: Tensor) -> Tensor:  # (R, G, K, C)
    """(1 - step) old + step theta~, step: (R, 1, 1, 1) from `effective_step`; a sum that was not used stays as it is.

    At a step below one half this is old + step (theta~ - old), else theta~ - (1 - step) (theta~ - old): never below
    the smaller of old / 2 and theta~ / 2, and exactly theta~ at step 1. (For unused sums a step of 0 would not do:
    where subnormals are flushed, old + 0 is not old.)
    """
    moved = torch.lerp(old, target.weights, step)
    return moved if target.used is None else torch.where(target.used, moved, old)


def moved_inputs(family: Family, old: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
    """The M-step of one input layer, (R, G, K, P): a unit that received too little flow stays as it is.

    statistics: (R, G, K, S); pseudocount and step: (R, 1, 1, 1).
    """
    used = ~(family.received(statistics) < LIMITS[old.dtype].least_flow)  # NaN must not be lost here
    return torch.where(used, family.maximize(old, statistics, pseudocount, step), old)


def normalized_counts(sums: LayerSums, pseudocount: Tensor | None) -> Target:
    """theta~_nc = (N_nc + pseudocount / children) / sum_c, at least WEIGHT_FLOOR.

    pseudocount: (R, 1, 1, 1), None if all are zero.
    """
    flow = sums.counts.sum(-1, keepdim=True)
    counts, total = sums.counts, flow
    if pseudocount is not None:
        counts = _smoothed(counts, sums.mask, pseudocount)
        total = counts.sum(-1, keepdim=True)
    used = _used(flow)
    if used is not None:
        total = total.clamp_min(LIMITS[flow.dtype].least_flow)
    best = torch.maximum(counts, WEIGHT_FLOOR * total)
    if sums.mask is not None:
        best *= sums.mask
    best /= best.sum(-1, keepdim=True)
    return Target(best, used)


def regularised_weights(sums: LayerSums, pseudocount: Tensor | None, penalty: Penalty) -> Target:
    """theta~ of `Global` and `Gated` (see simplex.py), at least WEIGHT_FLOOR.

    The exact penalty is in force if the sums have second moments. Works in the precision of the counts: all terms of
    the formulas are positive, so the only error is rounding.
    """
    used = _used(sums.counts.sum(-1, keepdim=True))
    multiplier = penalty.multiplier
    if multiplier is not None and penalty.scale is not None:
        largest = torch.finfo(torch.float64).max  # finite, so that times 0 is 0
        multiplier = (multiplier * penalty.scale).clamp_max(largest)
    result = torch.empty_like(sums.counts)
    for runs, groups in _blocks(sums.counts):
        counts = sums.counts[runs, groups]
        if used is not None:
            counts = torch.where(used[runs, groups], counts, 1.0)
        mask = None if sums.mask is None else sums.mask[groups]
        if pseudocount is not None:
            counts = _smoothed(counts, mask, pseudocount[runs])
        moments = None if sums.second_moment is None else sums.second_moment[runs, groups]
        fixed = None if multiplier is None else multiplier[runs]
        best = target_weights(counts, penalty.strength[runs, groups], moments, fixed).clamp_min_(WEIGHT_FLOOR)
        if mask is not None:
            best *= mask
        torch.div(best, best.sum(-1, keepdim=True), out=result[runs, groups])
    return Target(result, used)


def _blocks(weights: Tensor) -> Iterator[tuple[slice, slice]]:
    """Which runs and groups are updated together: at most BLOCK edges, but at least one group of one run."""
    runs, groups, units, children = weights.shape
    most = max(1, BLOCK // (units * children))
    runs_at_once, groups_at_once = max(1, most // groups), min(most, groups)
    for first in range(0, runs, runs_at_once):
        for group in range(0, groups, groups_at_once):
            yield slice(first, first + runs_at_once), slice(group, group + groups_at_once)


def _used(flow: Tensor) -> Tensor | None:  # (R, G, K, 1)
    """Which rows received enough flow to move; None if all did."""
    least = LIMITS[flow.dtype].least_flow
    if bool(flow.amin() >= least):  # False for NaN
        return None
    return ~(flow < least)  # NaN must not be lost here: it is noticed in the parameters


def _smoothed(counts: Tensor, mask: Tensor | None, pseudocount: Tensor) -> Tensor:  # (R, G, K, C)
    """Counts with the pseudocount divided among existing edges."""
    pseudocount = pseudocount.to(counts.dtype)
    if mask is None:
        return counts + pseudocount / counts.shape[-1]
    return counts + pseudocount / mask.sum(-1, keepdim=True) * mask
