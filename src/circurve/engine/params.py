"""The parameters of a fleet of runs: by layer, as the engine computes; by node, as people and files see them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from circurve.engine.numerics import SAFE_WEIGHT
from circurve.engine.program import Folds, Program
from circurve.errors import ParameterError
from circurve.graph import Circuit, Input, Node, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson

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

GIVEN_TOLERANCE = 1e-4
"""How far a row of weights that people give may be from summing to one: they round, and the rest is divided out."""

SAVED_TOLERANCE = 1e-5
"""The tolerance for rows in model files, which are not normalised: ten times what float32 loses in a training."""

ROUNDING = 1e-12
"""Sums of float64 weights closer to one are left alone."""

CHECKED_BY_KIND = frozenset({Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson})
"""Families whose parameters of one shape are checked alike, whatever their hyperparameters."""

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
    program: Program | Folds,
    weights: Mapping[Node, Any],
    inputs: Mapping[Node, Any],
    tolerance: float = GIVEN_TOLERANCE,
    dtype: torch.dtype = torch.float64,
) -> Params:
    """Parameters of one run from arrays by node; each is checked. A sum without weights gets uniform ones.

    program: or the folds of a circuit, which is not compiled yet. tolerance: how far rows may be from summing to one.
    """
    circuit = program.circuit
    unknown = (weights.keys() | inputs.keys()).difference(circuit.nodes)
    if unknown:
        raise ParameterError(f"{next(iter(unknown))!r} is not a node of this circuit")

    def weights_of(node: Sum) -> Tensor:
        return _weights(node, weights.get(node), circuit, tolerance)

    def inputs_of(node: Input) -> Tensor:
        return _inputs(node, inputs.get(node), circuit, tolerance)

    def is_sound(nodes: Sequence[Sum | Input], blocks: Tensor) -> bool:
        return _are_sound(nodes, blocks, tolerance)

    return Params(
        _by_layer(program.sum_nodes, _Given(weights, weights_of, is_sound, dtype)),
        _by_layer(program.input_nodes, _Given(inputs, inputs_of, is_sound, dtype)),
    )


@dataclass(frozen=True)
class _Given(Generic[Block]):
    """Blocks of nodes of one kind, as they were given, and the checks they have to pass."""

    blocks: Mapping[Node, Any]
    one: Callable[[Block], Tensor]
    """The checked block of a single node, (K, C) float64; ParameterError names it if it is wrong."""

    are_sound: Callable[[Sequence[Block], Tensor], bool]
    """Whether all of the blocks (nodes, K, C) of these nodes pass."""

    dtype: torch.dtype


def _by_layer(layers: Sequence[tuple[Block, ...]], given: _Given[Block]) -> tuple[Tensor, ...]:
    """(1, G, K, C) for each layer. All layers of one shape are checked together: there may be thousands of them."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, nodes in enumerate(layers):
        places[_shape_key(nodes[0])].append(place)
    found: dict[int, Tensor] = {}
    for group in places.values():
        members = [node for place in group for node in layers[place]]
        blocks = _checked(members, given).to(given.dtype)[None]
        if len(group) == 1:
            found[group[0]] = blocks
            continue
        sizes = [len(layers[place]) for place in group]
        # pieces of one size are cut several times faster than pieces of listed sizes
        pieces = torch.split(blocks, sizes[0] if len(set(sizes)) == 1 else sizes, dim=1)
        found.update(zip(group, map(torch.clone, pieces), strict=True))
    return tuple(found[place] for place in range(len(layers)))


def _shape_key(node: Sum | Input) -> Hashable:
    """Equal for nodes whose blocks have one shape, and masks or none."""
    if isinstance(node, Sum):
        return node.units, node.child_units, node.mask is None
    return node.units, node.family.parameter_count


def _checked(nodes: Sequence[Block], given: _Given[Block]) -> Tensor:
    """The blocks of nodes of one shape, (nodes, K, C)."""
    blocks = _stacked(nodes, given.blocks)
    if blocks is not None:
        if given.are_sound(nodes, blocks):
            return blocks
        sound, wrong = 0, len(nodes)  # the first `sound` nodes pass, the first `wrong` do not
        while wrong - sound > 1:
            middle = (sound + wrong) // 2
            sound, wrong = (middle, wrong) if given.are_sound(nodes[:middle], blocks[:middle]) else (sound, middle)
        given.one(nodes[sound])
    return torch.stack([given.one(node) for node in nodes])


def _stacked(nodes: Sequence[Sum | Input], given: Mapping[Node, Any]) -> Tensor | None:
    """(nodes, K, C) in float64; None if they are not all arrays, or all tensors of one dtype on the CPU."""
    shape = _block_shape(nodes[0])
    blocks: list[Any] = [given.get(node) for node in nodes]
    kinds = set(map(type, blocks))
    if kinds == {np.ndarray} and all(block.shape == shape and block.dtype.kind == "f" for block in blocks):
        return torch.from_numpy(np.concatenate(blocks, dtype=np.float64).reshape(len(nodes), *shape))
    if not all(isinstance(b, Tensor) and b.shape == shape and b.device.type == "cpu" for b in blocks):
        return None
    return torch.stack(blocks).detach().double() if len({block.dtype for block in blocks}) == 1 else None


def _block_shape(node: Sum | Input) -> tuple[int, int]:
    return node.units, node.child_units if isinstance(node, Sum) else node.family.parameter_count


def _are_sound(nodes: Sequence[Sum | Input], blocks: Tensor, tolerance: float) -> bool:
    """Whether blocks (nodes, K, C) of nodes of one kind pass all checks."""
    low, high = map(float, blocks.aminmax()) if blocks.numel() else (0.0, 0.0)  # NaN if one is; no copy is made
    if not (math.isfinite(low) and math.isfinite(high)):
        return False
    kinds: dict[Hashable, list[int]] = defaultdict(list)
    masks = []
    for place, node in enumerate(nodes):
        if isinstance(node, Input):
            kinds[type(node.family) if type(node.family) in CHECKED_BY_KIND else node.family].append(place)
        elif node.mask is not None:
            masks.append(node.mask)
    if masks and bool(blocks[torch.from_numpy(~np.concatenate(masks).reshape(blocks.shape))].any()):
        return False
    if not kinds:
        return low >= 0 and _sum_to_one(blocks, tolerance)
    for places in kinds.values():
        family = cast("Input", nodes[places[0]]).family
        chosen = blocks if len(places) == len(nodes) else blocks[places]
        if family.check_parameters(chosen) is not None:
            return False
        if isinstance(family, Categorical) and not _sum_to_one(chosen, tolerance):
            return False
    return True


def _sum_to_one(blocks: Tensor, tolerance: float) -> bool:
    return bool(((blocks.sum(-1) - 1).abs() <= tolerance).all())


def on_the_simplex(weights: Tensor) -> Tensor:  # (..., C) -> (..., C)
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
