"""The forward pass once more, without buffers: a plain function that torch can differentiate as often as needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.program import Index, ProductLayer, Program, Space, SumLayer, Wiring
from circurve.engine.underflow import TOO_SMALL
from circurve.inputs import LOG_ZERO

__all__ = ["log_likelihood"]

LARGEST_EXPONENT = 700.0
"""exp of it is finite in float64, and its square is not: a curvature beyond the range becomes infinite, never NaN."""


def log_likelihood(program: Program, weights: Sequence[Tensor], inputs: Sequence[Tensor], batch: Batch) -> Tensor:
    """log p of each sample, (N,), for one run: a pure function of `weights`, each (1, G, K, C).

    Rows are kept in logs throughout. A sum unit of probability zero is a constant: it has no derivative.
    """
    blocks: dict[int, Tensor] = {}
    for layer, parameters in zip(program.inputs, inputs, strict=True):
        variables = torch.tensor([node.variable for node in layer.nodes])
        x = batch.x.index_select(1, variables)
        out = torch.empty(1, *layer.shape, batch.size, dtype=x.dtype)
        value = layer.family.log_prob(parameters, x, out)[0]
        if batch.observed is not None:
            value = value * batch.observed.index_select(1, variables)[0].unsqueeze(-2)
        blocks[layer.block] = value.reshape(-1, batch.size)
    block_weights = iter(weights)
    for step in program.layers:
        rows = _gather(step.children, program.values, blocks)
        if isinstance(step, ProductLayer):
            blocks[step.block] = rows
            continue
        g, k, c = step.shape
        log_value = _log_sums(step, next(block_weights)[0], rows.view(g, c, batch.size))
        blocks[step.block] = log_value.reshape(g * k, batch.size)
    outputs = _rows(program.roots, program.values, blocks)
    return outputs[0] if batch.labels is None else outputs.gather(0, batch.labels)[0]


def _log_sums(layer: SumLayer, weights: Tensor, children: Tensor) -> Tensor:  # (G, K, C), (G, C, N) -> (G, K, N)
    """log sum_c theta_kc p_cn. The largest child of a group is subtracted, a constant to the derivative; a unit that
    underflows beside it is computed again with the largest child of its own, as in `underflow.py`.
    """
    largest = children.amax(1, keepdim=True).detach()
    sums = torch.bmm(weights, (children - largest).exp())
    alive = torch.bmm((weights > 0).to(sums.dtype), (children > LOG_ZERO / 2).to(sums.dtype)) > 0
    weak = sums < TOO_SMALL[sums.dtype]
    log_value = torch.where(alive, torch.where(weak, 1.0, sums).log() + largest, LOG_ZERO)
    group, unit, sample = (weak & alive).nonzero(as_tuple=True)  # (P,)
    if not len(group):
        return log_value
    theta, terms = weights[group, unit], children[group, :, sample]  # (P, C)
    own = torch.where(theta > 0, terms, 10 * LOG_ZERO).amax(1, keepdim=True).detach()
    scaled = (terms - own).clamp(max=LARGEST_EXPONENT).exp()  # an edge of weight zero may lead to a larger child
    if layer.mask is not None:
        scaled = scaled * torch.from_numpy(layer.mask)[group, unit]
    repaired = (theta * scaled).sum(1).log() + own[:, 0]
    return log_value.index_put((group, unit, sample), repaired)


def _gather(wiring: Wiring, space: Space, blocks: dict[int, Tensor]) -> Tensor:
    total = _rows(wiring.columns[0].sources, space, blocks)
    for column in wiring.columns[1:]:
        more = _rows(column.sources, space, blocks)
        if column.targets is None:
            total = total + more
        else:
            targets = np.arange(column.targets) if isinstance(column.targets, int) else column.targets
            total = total.index_add(0, torch.from_numpy(targets), more)
    if wiring.tail is not None:
        sizes = np.diff(wiring.tail.offsets, append=len(wiring.tail.sources))
        targets = np.repeat(wiring.tail.targets, sizes)
        total = total.index_add(0, torch.from_numpy(targets), _rows(wiring.tail.sources, space, blocks))
    return total


def _rows(rows: Index, space: Space, blocks: dict[int, Tensor]) -> Tensor:
    """The given rows, from the few blocks that hold them."""
    owners = np.searchsorted(space.starts, rows, side="right") - 1
    needed = np.unique(owners)
    starts = np.cumsum(space.sizes[needed]) - space.sizes[needed]
    place = starts[np.searchsorted(needed, owners)] + rows - space.starts[owners]
    return torch.cat([blocks[int(block)] for block in needed]).index_select(0, torch.from_numpy(place))
