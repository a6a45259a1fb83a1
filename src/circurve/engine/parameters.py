"""Parameters by node, as people and files see them, and by layer, as the engine does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.errors import ParameterError
from circurve.graph import Circuit, Input, Node, Sum

__all__ = ["by_node", "check_parameters", "from_nodes"]

SIMPLEX_TOLERANCE = 1e-4
"""How far a row of given weights may be from summing to one; float32 files need some room."""


def by_node(program: Program, params: Params, run: int = 0) -> dict[Node, Tensor]:
    """Views of one run's parameters: (units, child units) for each sum, (units, parameters) for each input."""
    found: dict[Node, Tensor] = {}
    for layer, weights in zip(program.sums, params.weights, strict=True):
        found.update(zip(layer.nodes, weights[run], strict=True))
    for inputs, values in zip(program.inputs, params.inputs, strict=True):
        found.update(zip(inputs.nodes, values[run], strict=True))
    return {node: found[node] for node in program.circuit.nodes if node in found}


def from_nodes(program: Program, weights: Mapping[Node, Any], inputs: Mapping[Node, Any]) -> Params:
    """Parameters of one run, float64, from arrays by node; each is checked. A sum without weights gets uniform ones."""
    circuit = program.circuit
    known = set(circuit.nodes)
    for node in (*weights, *inputs):
        if node not in known:
            raise ParameterError(f"{node!r} is not a node of this circuit")
    return Params(
        tuple(torch.stack([_weights(n, weights.get(n), circuit) for n in s.nodes])[None] for s in program.sums),
        tuple(torch.stack([_inputs(n, inputs.get(n), circuit) for n in i.nodes])[None] for i in program.inputs),
    )


def check_parameters(circuit: Circuit, parameters: Mapping[Node, Any]) -> None:
    """Raise ParameterError, with the node's name, for parameters that `from_nodes` would refuse."""
    for node, given in parameters.items():
        if isinstance(node, Sum):
            _weights(node, given, circuit)
        elif isinstance(node, Input):
            _inputs(node, given, circuit)


def _weights(node: Sum, given: Any, circuit: Circuit) -> Tensor:
    shape = (node.units, node.child_units)
    mask = torch.ones(shape, dtype=torch.bool) if node.mask is None else torch.from_numpy(node.mask.copy())
    if given is None:
        return mask.double() / mask.sum(-1, keepdim=True)
    block = _array(node, given, shape, circuit)
    if bool((block < 0).any()):
        raise ParameterError(f"{circuit.name_of(node)}: a weight is negative")
    if bool((block[~mask] != 0).any()):
        raise ParameterError(f"{circuit.name_of(node)}: a weight is given where the mask has no edge")
    excess = block.sum(-1) - 1
    if bool((excess.abs() > SIMPLEX_TOLERANCE).any()):
        unit = int(excess.abs().argmax())
        total = 1 + float(excess[unit])
        raise ParameterError(f"{circuit.name_of(node)}: the weights of unit {unit} sum to {total:.6g}, not to 1")
    return block


def _inputs(node: Input, given: Any, circuit: Circuit) -> Tensor:
    shape = (node.units, len(node.family.parameter_names))
    if given is None:
        if shape[1] == 0:
            return torch.zeros(shape, dtype=torch.float64)
        raise ParameterError(f"{circuit.name_of(node)}: no parameters given for {node.family!r}")
    block = _array(node, given, shape, circuit)
    problem = node.family.check_parameters(block)
    if problem is not None:
        raise ParameterError(f"{circuit.name_of(node)}: {problem}")
    return block


def _array(node: Node, given: Any, shape: tuple[int, int], circuit: Circuit) -> Tensor:
    try:
        array = given.detach().cpu().double() if isinstance(given, Tensor) else torch.tensor(np.asarray(given, float))
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{circuit.name_of(node)}: parameters must be numbers of shape {shape}") from error
    if array.ndim == 1 and shape[0] == 1:
        array = array.unsqueeze(0)
    if tuple(array.shape) != shape:
        raise ParameterError(f"{circuit.name_of(node)}: parameters have shape {tuple(array.shape)}, expected {shape}")
    if not bool(array.isfinite().all()):
        raise ParameterError(f"{circuit.name_of(node)}: a parameter is not finite")
    return array
