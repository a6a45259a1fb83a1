"""The sum units of a program, in the order of all curvature vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from circurve.curvature.record import NodeRef
from circurve.engine import Program
from circurve.errors import OptionError
from circurve.graph import Sum
from circurve.model import Model

__all__ = ["ProgramUnits", "flat", "label", "node_refs", "unit_facts", "wanted_units"]

Array = NDArray[np.float64]


def node_refs(model: Model) -> tuple[NodeRef, ...]:
    """The sum units in the order of all curvature vectors: layer after layer, node after node, unit after unit."""
    return unit_facts(model.program).refs


@dataclass(frozen=True)
class ProgramUnits:
    """What is known of the sum units without parameters or data."""

    refs: tuple[NodeRef, ...]
    layer: Array
    scope_size: Array
    edges: Array


_UNITS: WeakKeyDictionary[Program, ProgramUnits] = WeakKeyDictionary()
"""Units by program, shared by all of its models: a circuit can have 100,000 units, and a fleet many models."""


def unit_facts(program: Program) -> ProgramUnits:
    """What is known of the sum units of a program; found once."""
    if program not in _UNITS:
        _UNITS[program] = _find_units(program)
    return _UNITS[program]


def _find_units(program: Program) -> ProgramUnits:
    circuit = program.circuit
    position = {node: i for i, node in enumerate(circuit.nodes)}
    nodes = [(number, node) for number, layer in enumerate(program.sums) for node in layer.nodes]
    counts = [node.units for _, node in nodes]
    return ProgramUnits(
        refs=tuple(
            NodeRef(position[node], label(node, position[node]), unit)
            for _, node in nodes
            for unit in range(node.units)
        ),
        layer=np.repeat(np.array([number for number, _ in nodes], dtype=np.float64), counts),
        scope_size=np.repeat(
            np.array([circuit.scope_sizes[position[node]] for _, node in nodes], dtype=np.float64), counts
        ),
        edges=flat([_edges(node) for _, node in nodes]),
    )


def label(node: Sum, position: int) -> str:
    """A node's own name, or one made from its position in `circuit.nodes`."""
    return node.name or f"Sum #{position}"


def wanted_units(model: Model, nodes: Sequence[Sum | str] | Sum | str | None) -> list[int]:
    """The unit numbers of the chosen nodes."""
    refs = node_refs(model)
    if nodes is None:
        return list(range(len(refs)))
    position = {node: i for i, node in enumerate(model.circuit.nodes)}
    chosen = []
    for node in (nodes,) if isinstance(nodes, Sum | str) else nodes:
        found = [
            i
            for i, ref in enumerate(refs)
            if (ref.name == node if isinstance(node, str) else ref.node == position.get(node))
        ]
        if not found:
            raise OptionError(f"nodes: no Sum {node!r} in this circuit")
        chosen += found
    return chosen


def flat(layers: Sequence[Array]) -> Array:
    """All layers in one vector."""
    return np.concatenate([np.zeros(0), *(layer.reshape(-1) for layer in layers)])


def _edges(node: Sum) -> Array:
    """How many children each unit of a sum mixes."""
    return np.full(node.units, node.child_units, float) if node.mask is None else node.mask.sum(1).astype(float)
