"""The forward pass once more, without buffers: a plain function that torch can differentiate as often as needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.program import Index, ProductLayer, Program, Space, Wiring

__all__ = ["log_likelihood"]


def log_likelihood(program: Program, weights: Sequence[Tensor], inputs: Sequence[Tensor], batch: Batch) -> Tensor:
    """log p of each sample, (N,), for one run: a pure function of `weights`, each (1, G, K, C).

    Rows are kept in logs throughout and each sum subtracts its own maximum, a constant to the derivative.
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
        elements = rows.view(g, c, batch.size)
        largest = elements.amax(1, keepdim=True).detach()
        sums = torch.bmm(next(block_weights)[0], (elements - largest).exp())
        blocks[step.block] = (sums.log() + largest).reshape(g * k, batch.size)
    outputs = _rows(program.roots, program.values, blocks)
    return outputs[0] if batch.labels is None else outputs.gather(0, batch.labels)[0]


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
