"""The parameters of a fleet of runs: by layer, as the engine computes; by node, as people and files see them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from circurve.engine.numerics import SAFE_WEIGHT
from circurve.engine.program import Program
from circurve.errors import ParameterError
from circurve.graph import Circuit, Input, Node, Sum
from circurve.inputs import Categorical

__all__ = [
    "SAVED_TOLERANCE",
    "Params",
    "by_node",
    "check_parameters",
    "from_nodes",
    "on_the_simplex",
    "random_weights",
    "stack",
]

ROUNDING = 1e-12
"""Sums of float64 weights closer to one are left alone."""

GIVEN_TOLERANCE = 1e-4
"""How far a row of weights that people give may be from summing to one: they round, and the rest is divided out."""

SAVED_TOLERANCE = 1e-5
"""The tolerance for rows in model files, which are not normalised: ten times what float32 loses in a training."""

Block = TypeVar("Block", Sum, Input)
"""A node with parameters of its own."""


@dataclass(frozen=True)
class Params:
    """Weights of the sum layers and parameters of the input layers, in the order of `Program`.

    weights: one (R, G, K, C) for each sum layer, each row of C on the simplex, zero where masked.
    inputs: one (R, G, K, P) for each input layer.
    """

    weights: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    @property
    def runs(self) -> int:
        """R, the number of runs side by side."""
        return len(self._any)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self._any.device

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of the parameters."""
        return self._any.dtype

    @property
    def _any(self) -> Tensor:
        """A circuit has inputs; its root alone, as part of a mixture, has weights only."""
        return self.inputs[0] if self.inputs else self.weights[0]

    def map(self, function: Callable[[Tensor], Tensor]) -> Params:
        """New parameters, with a function applied to every tensor."""
        return Params(tuple(function(w) for w in self.weights), tuple(function(p) for p in self.inputs))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Params:
        """A copy of the parameters on another device or in another precision."""
        return self.map(lambda t: t.to(device=device, dtype=dtype))

    def clone(self) -> Params:
        """A copy that shares no memory."""
        return self.map(torch.clone)

    def select(self, runs: Sequence[int]) -> Params:
        """The chosen runs, copied."""
        index = torch.as_tensor(list(runs), device=self.device)
        return self.map(lambda t: t.index_select(0, index))

    def may_underflow(self, program: Program | None = None) -> bool:
        """Whether some weight is so small, or zero, that a sum could lose all its children to rounding.

        With the program, edges that its masks leave out do not count.
        """
        masks = [None] * len(self.weights) if program is None else [layer.mask for layer in program.sums]
        return any(
            bool((w < SAFE_WEIGHT if mask is None else w[:, torch.from_numpy(mask)] < SAFE_WEIGHT).any())
            for w, mask in zip(self.weights, masks, strict=True)
        )


def stack(parts: Iterable[Params]) -> Params:
    """Several fleets as one, along the run axis."""
    listed = list(parts)
    weights = zip(*(p.weights for p in listed), strict=True)
    inputs = zip(*(p.inputs for p in listed), strict=True)
    return Params(tuple(torch.cat(w) for w in weights), tuple(torch.cat(p) for p in inputs))


def random_weights(program: Program, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Positive random weights on the simplex for one run, float64, (1, G, K, C) for each sum layer.

    theta ~ exp(u) with u uniform in [0, 1), normalised: the inputs break the symmetry between units, and a narrow
    spread of weights gave the most even results over seeds.
    """
    weights = []
    for layer in program.sums:
        draw = torch.rand(1, *layer.shape, generator=generator, dtype=torch.float64)
        weight = draw.exp_()
        if layer.mask is not None:
            weight *= torch.from_numpy(layer.mask)
        weights.append(weight / weight.sum(-1, keepdim=True))
    return tuple(weights)


def by_node(program: Program, params: Params, run: int = 0) -> dict[Node, Tensor]:
    """Views of one run's parameters: (units, child units) for each sum, (units, parameters) for each input."""
    found: dict[Node, Tensor] = {}
    for layer, weights in zip(program.sums, params.weights, strict=True):
        found.update(zip(layer.nodes, weights[run], strict=True))
    for inputs, values in zip(program.inputs, params.inputs, strict=True):
        found.update(zip(inputs.nodes, values[run], strict=True))
    return {node: found[node] for node in program.circuit.nodes if node in found}


def from_nodes(
    program: Program, weights: Mapping[Node, Any], inputs: Mapping[Node, Any], tolerance: float = GIVEN_TOLERANCE
) -> Params:
    """Parameters of one run, float64, from arrays by node; each is checked. A sum without weights gets uniform ones.

    tolerance: how far rows may be from summing to one.
    """
    circuit = program.circuit
    known = set(circuit.nodes)
    for node in (*weights, *inputs):
        if node not in known:
            raise ParameterError(f"{node!r} is not a node of this circuit")

    def weights_of(node: Sum) -> Tensor:
        return _weights(node, weights.get(node), circuit, tolerance)

    def inputs_of(node: Input) -> Tensor:
        return _inputs(node, inputs.get(node), circuit, tolerance)

    return Params(
        _by_layer([layer.nodes for layer in program.sums], weights, weights_of, tolerance),
        _by_layer([layer.nodes for layer in program.inputs], inputs, inputs_of, tolerance),
    )


def _by_layer(
    layers: Sequence[tuple[Block, ...]], given: Mapping[Node, Any], one: Callable[[Block], Tensor], tolerance: float
) -> tuple[Tensor, ...]:
    """(1, G, K, C) for each layer. All layers of one shape are checked together: a deep circuit has thousands of them.

    one: the checked block of a single node. It is called where nodes have to be looked at one by one, also to find out
    which of them is wrong.
    """
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, nodes in enumerate(layers):
        places[_shape_key(nodes)].append(place)
    found: dict[int, Tensor] = {}
    for group in places.values():
        members = [node for place in group for node in layers[place]]
        blocks = _stacked(members, given)
        if blocks is None or not _are_sound(members[0], blocks, tolerance):
            blocks = torch.stack([one(node) for node in members])
        if len(group) == 1:
            found[group[0]] = blocks[None]
            continue
        pieces = torch.split(blocks, [len(layers[place]) for place in group])
        found.update((place, piece[None].clone()) for place, piece in zip(group, pieces, strict=True))
    return tuple(found[place] for place in range(len(layers)))


def _shape_key(nodes: Sequence[Sum | Input]) -> Hashable:
    """Equal for layers whose blocks have one shape and one check."""
    first = nodes[0]
    if isinstance(first, Sum):
        return first.units, first.child_units, first.mask is None
    family = first.family if all(node.family == first.family for node in cast("Sequence[Input]", nodes)) else None
    return first.units, first.family.parameter_count, family


def _stacked(nodes: Sequence[Sum | Input], given: Mapping[Node, Any]) -> Tensor | None:
    """(nodes, K, C) in float64; None if they are not all tensors of the right shape and one dtype on the CPU."""
    first = nodes[0]
    shape = (first.units, first.child_units if isinstance(first, Sum) else first.family.parameter_count)
    blocks: list[Tensor] = []
    for node in nodes:
        block = given.get(node)
        if not isinstance(block, Tensor) or block.shape != shape or block.device.type != "cpu":
            return None
        blocks.append(block)
    if len({block.dtype for block in blocks}) > 1:
        return None
    return torch.stack(blocks).detach().double()


def _are_sound(first: Sum | Input, blocks: Tensor, tolerance: float) -> bool:
    """Whether blocks (nodes, K, C) of nodes like the first one pass all checks; False where each has a mask."""
    low, high = map(float, blocks.aminmax()) if blocks.numel() else (0.0, 0.0)  # NaN if one is; no copy is made
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    sums_to_one = bool(((blocks.sum(-1) - 1).abs() <= tolerance).all())
    if isinstance(first, Sum):
        return first.mask is None and sums_to_one and low >= 0
    simplex = isinstance(first.family, Categorical)
    return (sums_to_one or not simplex) and first.family.check_parameters(blocks) is None


def on_the_simplex(weights: Tensor) -> Tensor:
    """Rows divided by their sums, where these are not one to rounding."""
    total = weights.sum(-1, keepdim=True)
    return torch.where((total - 1).abs() > ROUNDING, weights / total, weights)


def check_parameters(circuit: Circuit, parameters: Mapping[Node, Any], tolerance: float = GIVEN_TOLERANCE) -> None:
    """Raise ParameterError, with the node's name, for parameters that `from_nodes` would refuse."""
    for node, given in parameters.items():
        if isinstance(node, Sum):
            _weights(node, given, circuit, tolerance)
        elif isinstance(node, Input):
            _inputs(node, given, circuit, tolerance)


def _weights(node: Sum, given: Any, circuit: Circuit, tolerance: float) -> Tensor:
    shape = (node.units, node.child_units)
    mask = torch.ones(shape, dtype=torch.bool) if node.mask is None else torch.from_numpy(node.mask.copy())
    if given is None:
        return mask.double() / mask.sum(-1, keepdim=True)
    block = _array(node, given, shape, circuit)
    if bool((block < 0).any()):
        raise ParameterError(f"{circuit.name_of(node)}: a weight is negative")
    if bool((block[~mask] != 0).any()):
        raise ParameterError(f"{circuit.name_of(node)}: a weight is given where the mask has no edge")
    _check_simplex(node, block, circuit, tolerance)
    return block


def _check_simplex(node: Node, block: Tensor, circuit: Circuit, tolerance: float) -> None:
    excess = block.sum(-1) - 1
    if bool((excess.abs() > tolerance).any()):
        unit, what = int(excess.abs().argmax()), "weights" if isinstance(node, Sum) else "probabilities"
        total = 1 + float(excess[unit])
        raise ParameterError(f"{circuit.name_of(node)}: the {what} of unit {unit} sum to {total:.6g}, not to 1")


def _inputs(node: Input, given: Any, circuit: Circuit, tolerance: float) -> Tensor:
    shape = (node.units, node.family.parameter_count)
    if given is None:
        if shape[1] == 0:
            return torch.zeros(shape, dtype=torch.float64)
        raise ParameterError(f"{circuit.name_of(node)}: no parameters given for {node.family!r}")
    block = _array(node, given, shape, circuit)
    problem = node.family.check_parameters(block)
    if problem is not None:
        raise ParameterError(f"{circuit.name_of(node)}: {problem}")
    if isinstance(node.family, Categorical):
        _check_simplex(node, block, circuit, tolerance)
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
