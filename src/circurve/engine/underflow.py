"""Sums whose own children all underflow beside a larger sibling's: computed again, entry by entry, in logs.

The elements of a group share one maximum. A unit with zero weight (or no edge) for the largest child, whose own
children are smaller than it by more than the floating range, would come out as zero, though it is not. Such entries are
rare: they need exact zeros among the weights. They are found by their scaled sum, told apart from true zeros (no child
with positive weight is possible), and repaired with the logarithm of a sum of exponentials of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.bound import Engine
from circurve.engine.program import SumLayer
from circurve.inputs import LOG_ZERO

__all__ = ["Repaired", "repair_values", "repaired_flows"]

TOO_SMALL = {torch.float32: 1e-16, torch.float64: 1e-140}
"""Scaled sums below this may have lost precision to flushed elements, or overflow once their inverse is squared."""

ENTRIES_AT_ONCE = 1 << 22
"""Entries x children looked at in one go: bounds the memory of a repair."""


@dataclass(frozen=True)
class Repaired:
    """P entries (run, group, unit, sample) of a sum layer with their flow, computed in logs."""

    run: Tensor  # (P,)
    group: Tensor  # (P,)
    unit: Tensor  # (P,)
    sample: Tensor  # (P,)
    flow: Tensor  # (P,)
    log_ratio: Tensor  # (P, C), log of rho = p_c / p_n
    responsibility: Tensor  # (P, C)


def repair_values(engine: Engine, layer: SumLayer, weights: Tensor) -> None:
    """Put the exact log-value where the scaled sum is too small to trust; true zeros become LOG_ZERO.

    Both get an infinite scaled sum, so that the matrix products of the backward pass leave them out.
    """
    g, k, _ = layer.shape
    scaled, log_value = engine.scaled(layer), engine.values.block(layer.block, g, k)
    rows = _element_rows(engine, layer)
    # NaN counts as alive: it must stay NaN up to the root, where it is noticed
    possible = (~(engine.values.matrix[rows] <= LOG_ZERO / 2)).to(engine.dtype)  # (R, G, C, N)
    alive = torch.matmul((weights != 0).to(engine.dtype), possible) > 0  # (R, G, K, N)
    suspect = alive & (scaled < TOO_SMALL[engine.dtype])
    entries = suspect.nonzero()  # (P, 4)
    log_value.masked_fill_(~alive, LOG_ZERO)
    for part in torch.split(entries, max(1, ENTRIES_AT_ONCE // layer.child_units)):
        r, group, unit, n = part.unbind(1)
        terms = engine.values.matrix[rows[r, group], n[:, None]] + weights[r, group, unit].log()
        log_value[r, group, unit, n] = terms.logsumexp(-1)
    scaled.masked_fill_(suspect | ~alive, torch.inf)
    engine.repairs[layer.block] = entries


def repaired_flows(engine: Engine, layer: SumLayer, weights: Tensor, flow: Tensor) -> Iterator[Repaired]:
    """The repaired entries of a layer with their share of its flow (R, G, K, N), a bounded number at a time."""
    g, k, _ = layer.shape
    entries = engine.repairs[layer.block]
    if not len(entries):
        return
    rows, log_value = _element_rows(engine, layer), engine.values.block(layer.block, g, k)
    for part in torch.split(entries, max(1, ENTRIES_AT_ONCE // layer.child_units)):
        r, group, unit, n = part.unbind(1)
        children = engine.values.matrix[rows[r, group], n[:, None]]  # (P, C)
        log_ratio = children - log_value[r, group, unit, n, None]
        responsibility = (log_ratio + weights[r, group, unit].log()).exp()
        yield Repaired(r, group, unit, n, flow[r, group, unit, n], log_ratio, responsibility)


def _element_rows(engine: Engine, layer: SumLayer) -> Tensor:  # (R, G, C)
    """The value row of each element."""
    g, _, c = layer.shape
    return engine.children[layer.block].columns[0][0].view(engine.runs, g, c)
