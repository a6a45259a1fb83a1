"""Values and flows of every node, for looking into a circuit: one pass of the reference backend, all of it kept."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.params import Params
from circurve.engine.program import Column, ProductLayer, Program, Wiring
from circurve.engine.reference import Reference
from circurve.engine.reference.gather import Gather
from circurve.engine.reference.workspace import FRESH
from circurve.graph import Node

__all__ = ["flows", "values"]


@torch.no_grad()
def values(program: Program, params: Params, batch: Batch) -> dict[Node, Tensor]:  # (R, units, N) each
    """log p_n of every node; -inf for probability zero."""
    blocks = Reference.of(program, params).upward(params, batch).values.blocks
    found: dict[Node, Tensor] = {}
    for layer in (*program.inputs, *program.layers):
        rows = blocks[layer.block]
        found |= _split(torch.where(rows <= IMPOSSIBLE, -torch.inf, rows), layer.nodes)
    return {node: found[node] for node in program.circuit.nodes}


@torch.no_grad()
def flows(program: Program, params: Params, batch: Batch) -> dict[Node, Tensor]:  # (R, units, N) each
    """F_n of every node, times the sample's weight; zero for samples of probability zero."""
    down = Reference.of(program, params).passes(params, batch)
    found: dict[Node, Tensor] = {}
    for step in down.sums():
        found |= _split(step.flow.flatten(1, 2), step.layer.nodes)
    for number, flow in down.inputs():
        found |= _split(flow.flatten(1, 2), program.inputs[number].nodes)
    for layer in program.layers:
        if isinstance(layer, ProductLayer):
            slots = Wiring(len(layer.slots), (Column(layer.slots, None),))
            gather = Gather(slots, program.flows, params.runs, params.device)
            found |= _split(gather(down.flows, FRESH), layer.nodes)
    return {node: found[node] for node in program.circuit.nodes}


def _split(rows: Tensor, nodes: Iterable[Node]) -> dict[Node, Tensor]:  # (R, rows, N)
    """Rows of consecutive nodes, one tensor for each."""
    listed = list(nodes)
    parts = torch.split(rows, [node.units for node in listed], dim=1)
    return dict(zip(listed, parts, strict=True))
