"""From the outputs down to one unit of each active input, for many rows at once.

A circuit that is smooth and decomposable has, in each row, at most one active unit in each node: a sum passes on to one
of its child units, a product to one unit of each of its children. So a row's choices are one number for each node:

    sum      which of its C child units it passes on to, -1 if the sum is not active
    product  which of its units is active, -1 if none
    input    which of its units is active, -1 if none.

A node's own number follows from those of its parents. Most nodes have one parent that always passes on to them, and
read its number as it is; the others take the largest of what their parents say, since at most one of them is not -1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circurve.engine.program import InputLayer, ProductLayer, Program, SumLayer
from circurve.graph import Node, Product, Sum

__all__ = ["Choose", "Descent"]

Choose = Callable[[int, Tensor], Tensor]
"""(number of the sum layer, its active units (R, G, N)) -> the child unit that each passes on to, (R, G, N), >= 0.

The choice of a sum that is not active (-1) may be anything: it is set to -1."""


@dataclass(frozen=True)
class _Round:
    """One parent of each of some nodes of a layer."""

    sources: Tensor  # whose number is read, (n,)
    targets: Tensor | None  # positions in the layer, (n,); None: all of them in order
    offsets: Tensor | None  # where the node's units begin among all child units of a sum, else 0, (n, 1)
    table: Tensor | None  # number of the parent less the offset -> unit of the node, (n, U + 1), the last entry -1
    """`offsets` and `table` are None where the node's number is its parent's, as it is."""


@dataclass(frozen=True)
class _Step:
    """How the nodes of one layer get their numbers."""

    rounds: tuple[_Round, ...]
    size: int


class Descent:
    """The order of a walk down, made once for a program and a device."""

    def __init__(self, program: Program, device: torch.device) -> None:
        self.program, self.device = program, device
        circuit = program.circuit
        self._parents: dict[Node, list[tuple[Node, int]]] = {node: [] for node in circuit.nodes}
        for node in circuit.nodes:
            for position, child in enumerate(node.children):
                self._parents[child].append((node, position))
        self._outputs = _outputs(program)
        layers = (*program.inputs, *program.layers)
        self._passed_on = {layer.block for layer in program.layers if self._only_passes_on(layer)}
        self._number = self._numbers()
        certain = self._certain_nodes()
        self.certain = {layer.block: all(node in certain for node in layer.nodes) for layer in layers}
        """By block, whether every node of a layer is active in every row."""

        self._steps = {layer.block: self._step(layer) for layer in layers if layer.block not in self._passed_on}

    def walk(self, labels: Tensor | None, shape: tuple[int, int], choose: Choose) -> Callable[[int], Tensor]:
        """The active unit of each input, as a function: number of the input layer -> (R, G, N), -1 where none is.

        labels: the output of each row, (N,); None: the only one. shape: (R, N).
        """
        runs, rows = shape
        state = torch.empty((runs, 1 + max(self._number.values()), rows), dtype=torch.int64, device=self.device)
        number = len(self.program.sums)
        for layer in reversed(self.program.layers):
            if layer.block in self._passed_on:
                continue
            active = self._active(layer, state, labels)
            if isinstance(layer, SumLayer):
                number -= 1
                choice = choose(number, active)
                active = choice if self.certain[layer.block] else choice.masked_fill_(active < 0, -1)
            first = self._number[layer.nodes[0]]
            state[:, first : first + len(layer.nodes)] = active
        return lambda number: self._active(self.program.inputs[number], state, labels)

    def _certain_nodes(self) -> set[Node]:
        """The nodes that are active in every row: the only root, and what certain nodes always pass on to."""
        roots = self.program.circuit.roots
        found: set[Node] = set(roots) if self.program.circuit.outputs == 1 else set()
        for node in reversed(self.program.circuit.nodes):
            if node in found and (isinstance(node, Product) or len(node.children) == 1):
                found.update(node.children)
        return found

    def _active(self, layer: InputLayer | ProductLayer | SumLayer, state: Tensor, labels: Tensor | None) -> Tensor:
        """The active unit of each node of a layer, (R, G, N)."""
        step = self._steps[layer.block]
        found: Tensor | None = None
        for turn in step.rounds:
            read = _read(turn, state)
            if found is None and turn.targets is None:
                found = read
                continue
            if found is None:
                found = state.new_full((state.shape[0], step.size, state.shape[-1]), -1)
            at = slice(None) if turn.targets is None else turn.targets
            found[:, at] = torch.maximum(found[:, at], read)
        if found is None:
            found = state.new_full((state.shape[0], step.size, state.shape[-1]), -1)
        return self._with_outputs(layer, found, labels)

    def _with_outputs(
        self, layer: InputLayer | ProductLayer | SumLayer, found: Tensor, labels: Tensor | None
    ) -> Tensor:
        """Rows enter the circuit at the node of their output."""
        for position, first, units in self._outputs.get(layer.block, ()):
            if labels is None:
                found[:, position] = 0
                continue
            own = (labels >= first) & (labels < first + units)
            found[:, position] = torch.where(own, labels - first, found[:, position])
        return found

    def _only_passes_on(self, layer: ProductLayer | SumLayer) -> bool:
        """Whether the number of each node of a layer is that of its only parent: nothing needs to be computed."""
        if isinstance(layer, SumLayer) or layer.block in self._outputs:
            return False
        return all(len(self._parents[node]) == 1 and self._is_plain(node, 0) for node in layer.nodes)

    def _numbers(self) -> dict[Node, int]:
        """Where the number of each node is kept: consecutive places for a layer, or the place of the only parent."""
        found: dict[Node, int] = {}
        layers: tuple[InputLayer | ProductLayer | SumLayer, ...] = (*self.program.inputs, *self.program.layers)
        for layer in reversed(layers):
            nodes: tuple[Node, ...] = layer.nodes
            if layer.block in self._passed_on:
                found |= {node: found[self._parents[node][0][0]] for node in nodes}
            else:
                first = 1 + max(found.values(), default=-1)
                found |= {node: first + at for at, node in enumerate(nodes)}
        return found

    def _step(self, layer: InputLayer | ProductLayer | SumLayer) -> _Step:
        nodes: tuple[Node, ...] = layer.nodes
        most = max(len(self._parents[node]) for node in nodes)
        rounds = []
        for turn in range(most):
            targets = [at for at, node in enumerate(nodes) if len(self._parents[node]) > turn]
            plain = [at for at in targets if self._is_plain(nodes[at], turn)]
            for members in (plain, sorted({*targets} - {*plain})):
                if members:
                    rounds.append(self._round(nodes, members, turn, members is plain))
        return _Step(tuple(rounds), len(nodes))

    def _is_plain(self, node: Node, turn: int) -> bool:
        """Whether the node's number is its parent's, as it is."""
        parent, position = self._parents[node][turn]
        if isinstance(parent, Sum):
            return len(parent.children) == 1
        return isinstance(parent, Product) and parent.select[position] is None

    def _round(self, nodes: tuple[Node, ...], members: list[int], turn: int, plain: bool) -> _Round:
        parents = [self._parents[nodes[at]][turn] for at in members]
        sources = self._tensor([self._number[parent] for parent, _ in parents])
        targets = None if len(members) == len(nodes) else self._tensor(members)
        if plain:
            return _Round(sources, targets, None, None)
        offsets = [_offset(parent, position) for parent, position in parents]
        widest = max(_width(parent) for parent, _ in parents)
        table = np.full((len(members), widest + 1), -1, dtype=np.int64)
        for row, (parent, position) in enumerate(parents):
            selected = parent.select[position] if isinstance(parent, Product) else None
            kept = np.arange(nodes[members[row]].units) if selected is None else selected
            table[row, : len(kept)] = kept
        return _Round(sources, targets, self._tensor(offsets)[:, None], torch.from_numpy(table).to(self.device))

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def _read(turn: _Round, state: Tensor) -> Tensor:  # (R, n, N)
    """What one parent of each node says."""
    value = state.index_select(1, turn.sources)
    if turn.offsets is None:
        return value
    assert turn.table is not None
    inside = value - turn.offsets
    last = turn.table.shape[1] - 1
    inside = torch.where((value < 0) | (inside < 0) | (inside > last), last, inside)
    return turn.table.expand(len(value), -1, -1).gather(2, inside)


def _offset(parent: Node, position: int) -> int:
    """The first of a child's units among all child units of a sum; 0 for a product."""
    if not isinstance(parent, Sum):
        return 0
    return sum(child.units for child in parent.children[:position])


def _width(parent: Node) -> int:
    """How many different numbers a parent's child can be told: units of a product, of a sum's child at most all."""
    return parent.units if isinstance(parent, Product) else max(child.units for child in parent.children)


def _outputs(program: Program) -> dict[int, list[tuple[int, int, int]]]:
    """By block: (position in the layer, number of the first output, units) of each root."""
    place = {
        node: (layer.block, at) for layer in (*program.inputs, *program.layers) for at, node in enumerate(layer.nodes)
    }
    found: dict[int, list[tuple[int, int, int]]] = {}
    first = 0
    for root in program.circuit.roots:
        block, position = place[root]
        found.setdefault(block, []).append((position, first, root.units))
        first += root.units
    return found
