"""Values and flows of every node, for looking into a circuit: one pass, with nothing thrown away."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.bound import Engine
from circurve.engine.estep import observe
from circurve.engine.params import Params
from circurve.engine.program import ProductLayer, Program
from circurve.engine.reference import BySample, SumPass, forward
from circurve.engine.underflow import Repaired
from circurve.graph import Node
from circurve.inputs import LOG_ZERO

__all__ = ["flows", "values"]


def values(program: Program, params: Params, batch: Batch) -> dict[Node, Tensor]:  # (R, units, N) each
    """log p_n of every node; -inf for probability zero."""
    engine = Engine(program, params.runs, params.device, params.dtype, careful=True)
    engine.reserve(batch.size, backward=False)
    forward(engine, params, batch.x, batch.observed)
    found: dict[Node, Tensor] = {}
    for layer in (*program.inputs, *program.layers):
        rows = engine.values.block(layer.block, int(program.values.sizes[layer.block]))
        found |= _split(torch.where(rows > LOG_ZERO / 2, rows, -torch.inf), layer.nodes)
    return {node: found[node] for node in program.circuit.nodes}


def flows(program: Program, params: Params, batch: Batch) -> dict[Node, Tensor]:  # (R, units, N) each
    """F_n of every node, times the sample's weight; zero for samples of probability zero."""
    engine = Engine(program, params.runs, params.device, params.dtype, careful=True)
    found = _Flows(program)
    observe(engine, params, batch, found)
    for layer in program.layers:
        if isinstance(layer, ProductLayer):
            slots = torch.from_numpy(program.flows.bind(layer.slots, engine.runs)).to(engine.device)
            found.by_node |= _split(engine.flows.matrix[slots], layer.nodes)
    return {node: found.by_node[node] for node in program.circuit.nodes}


class _Flows(BySample):
    """Keeps the flows of sums and inputs as they pass by."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.by_node: dict[Node, Tensor] = {}

    def on_start(self, batch: Batch, log_value: Tensor, weight: Tensor, possible: Tensor) -> None:
        """Nothing to prepare."""

    def on_sum(self, step: SumPass) -> None:
        self.by_node |= _split(step.flow.flatten(1, 2).clone(), step.layer.nodes)

    def on_repaired(self, number: int, entries: Repaired) -> None:
        """Repaired entries have their flow in `on_sum` like all others."""

    def on_input(self, number: int, flow: Tensor) -> None:
        self.by_node |= _split(flow.flatten(1, 2).clone(), self.program.inputs[number].nodes)


def _split(rows: Tensor, nodes: Iterable[Node]) -> dict[Node, Tensor]:  # (R, rows, N)
    """Rows of consecutive nodes, one tensor for each."""
    listed = list(nodes)
    parts = torch.split(rows, [node.units for node in listed], dim=1)
    return dict(zip(listed, parts, strict=True))
