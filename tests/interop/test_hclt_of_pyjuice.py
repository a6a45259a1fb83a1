"""Hidden Chow-Liu trees with shared leaves compared with PyJuice's builder, given the same tree. Needs PyJuice."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

import circurve as cc
from circurve.interop import from_pyjuice
from circurve.structures.tree import root_at_centre

juice = pytest.importorskip("pyjuice")

TREES = {"two": 2, "star": 7, "chain": 6, "any": 12, "large": 30}


def links_of(kind: str, rng: np.random.Generator) -> list[tuple[int, int]]:
    above = {"star": lambda v: 0, "chain": lambda v: v - 1}.get(kind, lambda v: int(rng.integers(0, v)))
    names = rng.permutation(TREES[kind]).tolist()
    return [(names[above(v)], names[v]) for v in range(1, len(names))]


def by_scope(circuit: cc.Circuit) -> dict[tuple[type, frozenset[int]], cc.Node]:
    """A tree has one node of each kind for a scope."""
    scopes: dict[cc.Node, frozenset[int]] = {}
    for node in circuit.nodes:
        own = [frozenset([node.variable])] if isinstance(node, cc.Input) else [scopes[c] for c in node.children]
        scopes[node] = frozenset().union(*own)
    found = {(type(node), scope): node for node, scope in scopes.items()}
    assert len(found) == len(circuit.nodes)
    return found


@pytest.mark.parametrize("kind", TREES)
def test_pyjuice_builds_the_same_circuit_from_the_same_tree(kind: str) -> None:
    rng = np.random.default_rng(0)
    links = links_of(kind, rng)
    graph = nx.Graph()
    graph.add_nodes_from(range(TREES[kind]))
    graph.add_edges_from(links)
    parents = root_at_centre(links)
    root = nx.center(graph)[0]
    assert parents[root] == -1
    build = juice.structures.compilation.BayesianTreeToHiddenRegionGraph
    nodes = build(graph, root, 4, juice.distributions.Bernoulli, {})
    nodes.init_parameters()
    theirs = from_pyjuice(nodes)
    circuit = cc.hclt(np.zeros((1, len(parents))), 4, cc.Bernoulli(), tree=parents, leaves="shared")
    assert circuit.describe() == theirs.circuit.describe()
    ours, others = by_scope(circuit), by_scope(theirs.circuit)
    assert ours.keys() == others.keys()
    weights = {ours[key]: theirs.weights(node) for key, node in others.items() if isinstance(node, cc.Sum)}
    inputs = {ours[key]: theirs.input_parameters(node) for key, node in others.items() if isinstance(node, cc.Input)}
    model = cc.Model.from_parameters(circuit, weights, inputs, dtype=torch.float64)
    x = rng.integers(0, 2, (50, len(parents)))
    np.testing.assert_allclose(model.log_prob(x), theirs.log_prob(x), rtol=1e-10)
