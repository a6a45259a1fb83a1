"""PyJuice circuits as Circurve models.

A PyJuice node is a vector of units in blocks, `num_node_blocks` x `block_size`, as ours is one without them:

- an input node becomes an `Input` (the families are in `pyjuice_families.py`);
- a product node becomes a `Product`; its `edge_ids` say which block (or, if sparse, which unit) of each child a block
  (or unit) takes, and become `select`. A product of one child that changes nothing is that child;
- a sum node becomes a `Sum`; a column (i, j) of its `edge_ids` is a full block of edges from block i of the sum to
  block j of all children, and its parameters (edges, block size, child block size) hold a weight for each. Blocks
  that are left out become the `mask`.

Nothing here imports PyJuice: its nodes are asked for what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circurve.bounds import cut
from circurve.errors import CircurveError, OptionError, ParameterError, StructureError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.interop.pyjuice_families import family_from
from circurve.model import Model
from circurve.words import counted

__all__ = ["from_pyjuice"]

Array = NDArray[np.float64]


def from_pyjuice(root: Any, untie: bool = False) -> Model:
    """Convert a PyJuice circuit into a model: structure, parameters and so likelihoods, in float64.

    PyJuice normalises the weights of each sum unit when it compiles, and so does this. The sums that it adds at
    compilation, which only pass one child on, are left out. O(size of the circuit), without recursion.

    Parameters
    ----------
    root : pyjuice.nodes.CircuitNodes or pyjuice.TensorCircuit
        The root nodes, or the compiled circuit, whose parameters are first copied back to its nodes. If you pass the
        nodes after you trained the compiled circuit, call its `update_parameters()` before.
    untie : bool, default False
        Give each node that shares its parameters with another a copy of them. The likelihoods are the same, but
        training then changes each copy for itself.

    Returns
    -------
    Model
        In float64.

    Raises
    ------
    StructureError
        If a node has no counterpart, or nodes share parameters and `untie` is False; the message names the node.
    OptionError
        If `root` is not from PyJuice.
    """
    if hasattr(root, "root_ns"):
        root.update_parameters()
        root = root.root_ns
    if not (hasattr(root, "chs") and hasattr(root, "is_sum")):
        raise OptionError(f"from_pyjuice takes the root nodes or the compiled circuit of PyJuice, not {root!r}")
    order = _children_first(root)
    try:
        return _Import(order, untie).model(root)
    except (IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, CircurveError):
            raise
        problem = f"{type(error).__name__}: {cut(str(error))}"
        raise StructureError(
            f"the PyJuice circuit is incomplete: its edges or parameters do not fit together ({problem})"
        ) from error


def _children_first(root: Any) -> list[Any]:
    done: dict[Any, None] = {}
    path: dict[Any, Iterator[Any]] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        child = None if node in done else next(path.setdefault(node, iter(node.chs)), None)
        if child in path:
            raise StructureError(f"{child!r}: it is its own descendant (a cycle)")
        if child is not None:
            stack.append(child)
            continue
        path.pop(node, None)
        done[stack.pop()] = None
    return list(done)


@dataclass(frozen=True)
class _Weights:
    """The weights of a sum node as one block."""

    values: Array  # (units, child units), rows on the simplex
    edges: NDArray[np.bool_]  # (units, child units)

    @property
    def passes_on(self) -> bool:
        """Whether unit k is just unit k of the children."""
        units, child_units = self.values.shape
        return units == child_units and bool((self.values.diagonal() == 1).all())


class _Import:
    """The nodes built so far, and their parameters."""

    def __init__(self, order: Sequence[Any], untie: bool) -> None:
        self.order, self.untie = order, untie
        self.parents: dict[Any, list[Any]] = {node: [] for node in order}
        for node in order:
            for child in node.chs:
                self.parents[child].append(node)
        self.nodes: dict[Any, Node] = {}
        self.weights: dict[Node, Array] = {}
        self.inputs: dict[Node, Array] = {}

    def model(self, root: Any) -> Model:
        for position, node in enumerate(self.order):
            label = f"{type(node).__name__} #{position}"
            if node.is_input():
                self.nodes[node] = self._input(node, label)
            elif node.is_prod():
                self.nodes[node] = _product(node, self.nodes, label)
            else:
                self.nodes[node] = self._sum(node, label)
        return Model.from_parameters(Circuit(self.nodes[root]), self.weights, self.inputs)

    def _input(self, node: Any, label: str) -> Input:
        variables = [int(variable) for variable in node.scope]
        if len(variables) != 1:
            raise StructureError(f"{label}: it has the variables {variables}; an input of Circurve has one")
        flat = _array(self._owner(node, label).get_params())
        family, parameters = family_from(node.dist, node.num_nodes, flat, label)
        made = Input(variables[0], family, node.num_nodes)
        self.inputs[made] = parameters
        return made

    def _sum(self, node: Any, label: str) -> Node:
        if hasattr(node, "external_params"):
            raise StructureError(
                f"{label}: its parameters are given from outside for each sample; Circurve has no such sum"
            )
        weights = _weights(node, self._owner(node, label), label)
        children = [self.nodes[child] for child in node.chs]
        if len(children) == 1 and weights.passes_on and self._only_carries(node):
            return children[0]
        made = Sum(children, node.num_nodes, None if weights.edges.all() else weights.edges)
        self.weights[made] = weights.values
        return made

    def _only_carries(self, node: Any) -> bool:
        """Whether a sum is in a place where PyJuice puts the sums it adds: below products of a single child."""
        parents = self.parents[node]
        return bool(parents) and all(parent.is_prod() and len(parent.chs) == 1 for parent in parents)

    def _owner(self, node: Any, label: str) -> Any:
        """The node that holds a node's parameters."""
        if node.is_tied() and not self.untie:
            raise StructureError(
                f"{label}: it shares its parameters with another node, which is not possible in Circurve; pass "
                f"untie=True to give each node a copy"
            )
        return node.get_source_ns()


def _product(node: Any, nodes: Mapping[Any, Node], label: str) -> Node:
    edges = node.edge_ids.cpu().numpy()
    select: list[NDArray[np.int64] | None] = []
    for place, child in enumerate(node.chs):
        chosen = edges[:, place]
        if len(edges) != node.num_nodes:  # whole blocks
            if child.block_size != node.block_size:
                sizes = f"{counted(node.block_size, 'unit')}, its child {place} of {child.block_size}"
                raise StructureError(f"{label}: it has blocks of {sizes}")
            chosen = (chosen[:, None] * node.block_size + np.arange(node.block_size)).reshape(-1)
        select.append(None if np.array_equal(chosen, np.arange(child.num_nodes)) else chosen)
    if len(node.chs) == 1 and select[0] is None:
        return nodes[node.chs[0]]
    return Product([nodes[child] for child in node.chs], select)


def _weights(node: Any, owner: Any, label: str) -> _Weights:
    """The parameters of a sum (edges, block, child block) put in their places."""
    values = _array(owner.get_params())
    if values is None:
        raise ParameterError(f"{label}: no parameters yet; call init_parameters on the root, or compile the circuit")
    expected = (node.edge_ids.shape[1], node.block_size, node.ch_block_size)
    if values.shape != expected:
        raise ParameterError(f"{label}: parameters of shape {values.shape}, expected {expected}")
    if not bool((np.isfinite(values) & (values >= 0)).all()):
        raise ParameterError(f"{label}: a weight is negative or not finite")
    exists = np.ones(values.shape, dtype=bool)
    zeros = owner.get_zero_param_mask()
    if zeros is not None:
        exists &= ~zeros.cpu().numpy() | (values > 0)
    block, edges = _in_place(node, values), _in_place(node, exists) > 0
    total = block.sum(axis=1, keepdims=True)
    if not bool((total > 0).all()):
        raise ParameterError(f"{label}: all weights of unit {int(total.argmin())} are zero")
    return _Weights(block / total, edges)


def _in_place(node: Any, values: NDArray[Any]) -> Array:  # (edges, block, child block) -> (units, child units)
    """Blocks of values put where the edges of a sum are, and added up where an edge is given twice."""
    parent, child = node.edge_ids.cpu().numpy()
    blocks = np.zeros((node.num_node_blocks, node.num_ch_node_blocks, *values.shape[1:]))
    _, first = np.unique(parent * node.num_ch_node_blocks + child, return_index=True)
    blocks[parent[first], child[first]] = values[first]
    again = np.delete(np.arange(len(parent)), first)
    np.add.at(blocks, (parent[again], child[again]), values[again])
    return blocks.transpose(0, 2, 1, 3).reshape(node.num_nodes, node.num_ch_nodes)


def _array(values: Any) -> Array | None:
    return None if values is None else values.detach().cpu().double().numpy()
