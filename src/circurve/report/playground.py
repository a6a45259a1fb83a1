"""What the page needs to compute conditional distributions by itself: the whole of a small circuit, by node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Family, Gaussian, Poisson
from circurve.model import Model
from circurve.queries.states import state_logs
from circurve.queries.target import Target
from circurve.report.marginals import GRID_POINTS, Marginals, mixture_of
from circurve.report.record import Floats, SmallCircuit, SmallNode, Whole

__all__ = ["small_circuit", "small_enough", "whole"]

MAX_GRID_COUNTS = 60
"""Whole numbers at which the distribution of a count is drawn."""


def small_enough(model: Model, target: Target, limit: int) -> bool:
    """Whether the page can compute with this circuit: few numbers, and supported inputs."""
    inputs = [(_kind(node.family), target.states[node.variable]) for node in model.circuit.inputs]
    known = all(kind is not None and (kind == "table") == (states is not None) for kind, states in inputs)
    return known and _numbers(model.circuit, target) <= limit


def _numbers(circuit: Circuit, target: Target) -> int:
    """Weights, entries of tables and parameters."""
    weights = sum(node.units * node.child_units for node in circuit.sums)
    inputs = sum(n.units * len(target.states[n.variable] or (0, 0)) for n in circuit.inputs)
    chosen = sum(len(s) for n in circuit.nodes if isinstance(n, Product) for s in n.select if s is not None)
    return weights + inputs + chosen


def _kind(family: Family) -> str | None:
    """How the page computes a family: from a table of its states, or by its formula."""
    if family.support() is not None:
        return "table"
    return "gaussian" if isinstance(family, Gaussian) else "poisson" if isinstance(family, Poisson) else None


def small_circuit(model: Model, found: Marginals) -> SmallCircuit:
    """All nodes with their parameters, in the precision of the model."""
    circuit, target = model.circuit, found.target
    place = {node: number for number, node in enumerate(circuit.nodes)}

    def numbers(values: NDArray[np.float64]) -> Floats:
        return values.astype(np.float32) if model.dtype == torch.float32 else values

    nodes = tuple(_node(model, target, node, place, numbers) for node in circuit.nodes)
    columns = range(circuit.variables)
    grids = tuple(None if target.states[v] is not None else _grid(found, v) for v in columns)
    starts = tuple(None if grid is None else grid[len(grid) // 2] for grid in grids)
    return SmallCircuit(nodes, grids, starts)


def _node(
    model: Model,
    target: Target,
    node: Node,
    place: dict[Node, int],
    numbers: Callable[[NDArray[np.float64]], Floats],
) -> SmallNode:
    if isinstance(node, Input):
        kind, parameters = _kind(node.family), model.input_parameters(node)
        if kind == "table":
            states = target.states[node.variable]
            assert states is not None
            parameters = state_logs(node.family, torch.from_numpy(parameters)[None, None], states)[0, 0].numpy()
        return SmallNode(kind, node.units, node.variable, (), None, numbers(parameters))  # type: ignore[arg-type]
    children = tuple(place[child] for child in node.children)
    if isinstance(node, Sum):
        return SmallNode("sum", node.units, -1, children, None, numbers(model.weights(node)))
    select = tuple(None if s is None else whole(s) for s in node.select)
    return SmallNode("product", node.units, -1, children, None if all(s is None for s in select) else select, None)


def whole(values: NDArray[np.int64]) -> Whole:
    """Whole numbers in the smallest type that the page can read."""
    largest = int(values.max(initial=0))
    if largest < 1 << 8:
        return values.astype(np.uint8)
    return values.astype(np.uint16) if largest < 1 << 16 else values.astype(np.uint32)


def _grid(found: Marginals, column: int) -> tuple[float, ...]:
    """Numbers at which a distribution is drawn: the middle 99.8 % of the column."""
    one = mixture_of(found.target, found.evidence, found.posterior, column)
    low, high = (float(one.quantile(level)[0, 0]) for level in (0.001, 0.999))
    if not one.discrete:
        return tuple(np.linspace(low, high if high > low else low + 1, GRID_POINTS).tolist())
    step = max(int(-(-(high - low + 1) // MAX_GRID_COUNTS)), 1)
    return tuple(float(value) for value in np.arange(low, high + 1, step))
