"""Circurve models as PyJuice circuits.

PyJuice needs sums and products in turn, and units in blocks whose size is a power of two. So

- products of products become one product of all their factors;
- a sum of sums gets a product of one factor in between, and a root that is not a sum a sum that passes it on;
- all blocks have one size, the largest that the units of all nodes but the root allow. (PyJuice takes others, but its
  version 2.6 then loses flows in the backward pass: it takes the first nodes below a product layer for padding, as
  many as the larger blocks have units.) Where sums have masks, blocks are so small that each block of edges is there
  or not as a whole: PyJuice gets exactly the edges of the circuit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.engine.params import by_node
from circurve.errors import CircurveError, StructureError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.interop.pyjuice_families import family_to
from circurve.model import Model
from circurve.words import counted

__all__ = ["to_pyjuice"]

Array = NDArray[np.float64]
LARGEST_BLOCK = 1024
"""PyJuice's own structures use no larger blocks."""


@dataclass(frozen=True)
class _Factor:
    """One factor of a product: a node that is no product, and which of its units are taken (None: all in order)."""

    node: Input | Sum
    select: NDArray[np.int64] | None = None


def to_pyjuice(model: Model) -> Any:
    """Convert a model into PyJuice nodes, with its parameters in float32.

    `pyjuice.compile` makes them ready to run. Names of nodes are lost. O(size of the circuit), without recursion. Needs
    PyJuice (`pip install pyjuice`).

    Parameters
    ----------
    model : Model
        With one root, which may have several units.

    Returns
    -------
    pyjuice.nodes.CircuitNodes
        The root nodes.

    Raises
    ------
    StructureError
        If a node has no counterpart: Binomial and Poisson inputs, an Indicator whose units name different values,
        several roots. The message names the node.
    CircurveError
        If PyJuice is not installed.
    """
    circuit = model.circuit
    if len(circuit.roots) != 1:
        raise StructureError(f"the circuit has {counted(len(circuit.roots), 'root')}; a PyJuice circuit has one")
    parameters = {node: values.double().cpu().numpy() for node, values in by_node(model.program, model.params).items()}
    return _Export(_pyjuice(), circuit, parameters).root()


def _pyjuice() -> Any:
    try:
        import_module("pyjuice.distributions")
        return import_module("pyjuice")
    except ImportError as error:
        raise CircurveError(f"to_pyjuice needs PyJuice (pip install pyjuice): {error}") from error


class _Export:
    """The PyJuice nodes built so far."""

    def __init__(self, juice: Any, circuit: Circuit, parameters: dict[Node, Array]) -> None:
        self.juice, self.circuit, self.parameters = juice, circuit, parameters
        self.factors = _factors(circuit)
        self.size = _block_size(circuit)
        self.made: dict[Node, Any] = {}  # inputs and sums
        self.products: dict[Node, Any] = {}  # what represents a node below a sum

    def root(self) -> Any:
        for node in self.circuit.nodes:
            if isinstance(node, Input):
                self.made[node] = self._input(node)
            elif isinstance(node, Sum):
                self.made[node] = self._sum(node)
        root = self.circuit.roots[0]
        if isinstance(root, Sum):
            return self.made[root]
        passing = np.eye(root.units)  # in whole blocks, as PyJuice's own passing sums
        return self._summate([self._product(root)], passing, passing > 0)

    def _input(self, node: Input) -> Any:
        label = self.circuit.name_of(node)
        distribution, values = family_to(node.family, self.parameters[node], self.juice.distributions, label)
        blocks = node.units // self.size
        made = self.juice.inputs(node.variable, num_node_blocks=blocks, dist=distribution, block_size=self.size)
        if values.size:
            made.set_params(_tensor(values).reshape(-1), normalize=False)
        return made

    def _sum(self, node: Sum) -> Any:
        children = []
        for place, child in enumerate(node.children):
            again = child in node.children[:place]  # PyJuice distinguishes the children of a sum by identity
            children.append(self._multiply(child) if again else self._product(child))
        edges = np.ones((node.units, node.child_units), dtype=bool) if node.mask is None else node.mask
        return self._summate(children, self.parameters[node], edges)

    def _product(self, node: Node) -> Any:
        if node not in self.products:
            self.products[node] = self._multiply(node)
        return self.products[node]

    def _multiply(self, node: Node) -> Any:
        factors, size = self.factors[node], self.size
        children = [self.made[factor.node] for factor in factors]
        if all(factor.select is None for factor in factors):
            return self.juice.multiply(*children)
        chosen = np.stack([np.arange(node.units) if f.select is None else f.select for f in factors], axis=1)
        first = chosen[::size]  # (blocks, factors)
        blocks = (first[:, None] + np.arange(size)[:, None]).reshape(chosen.shape)
        if bool((first % size == 0).all()) and np.array_equal(blocks, chosen):
            return self.juice.multiply(*children, edge_ids=torch.from_numpy(first // size))
        return self.juice.multiply(*children, edge_ids=torch.from_numpy(chosen), sparse_edges=True)

    def _summate(self, children: Sequence[Any], weights: Array, edges: NDArray[np.bool_]) -> Any:
        """A sum with the given weights and edges, (units, child units) each; the blocks of a root may be smaller."""
        units, child_units = weights.shape
        size = math.gcd(units, self.size)
        shape = (units // size, size, child_units // self.size, self.size)
        blocks, exists = (part.reshape(shape).transpose(0, 2, 1, 3) for part in (weights, edges))
        parent, child = np.nonzero(exists.any(axis=(2, 3)))
        made = self.juice.summate(
            *children,
            num_node_blocks=units // size,
            block_size=size,
            edge_ids=torch.from_numpy(np.stack([parent, child])),
        )
        made.set_params(_tensor(blocks[parent, child]), normalize=False)
        return made


def _factors(circuit: Circuit) -> dict[Node, list[_Factor]]:
    """For each node the factors of the product that represents it below a sum: itself, unless it is a product."""
    found: dict[Node, list[_Factor]] = {}
    for node in circuit.nodes:
        if not isinstance(node, Product):
            found[node] = [_Factor(node)]
            continue
        pairs = zip(node.children, node.select, strict=True)
        found[node] = [_Factor(f.node, _chosen(f.select, take)) for child, take in pairs for f in found[child]]
    return found


def _chosen(inner: NDArray[np.int64] | None, outer: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Units chosen by `outer` from those that `inner` chose."""
    return inner if outer is None else outer if inner is None else inner[outer]


def _block_size(circuit: Circuit) -> int:
    """The largest power of two that divides the units of all nodes below the root and fits the masks of all sums."""
    common = 0
    for node in circuit.nodes:
        if isinstance(node, Sum) and node.mask is not None:
            common = math.gcd(common, *_changes(node.mask), *_changes(node.mask.T))
        if node is not circuit.roots[0] or not isinstance(node, Sum):
            common = math.gcd(common, node.units)
    return min(common & -common, LARGEST_BLOCK)


def _changes(mask: NDArray[np.bool_]) -> list[int]:
    """The rows that differ from the one before."""
    differs = (mask[1:] != mask[:-1]).any(axis=1)
    return [int(row) + 1 for row in np.flatnonzero(differs)]


def _tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
