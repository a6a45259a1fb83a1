"""The sums of a circuit as a drawing needs them: which is above which, the columns of each, the numbers of its
units."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circurve.curvature import Curvature, reversals
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.learning.mixing import members_of
from circurve.model import Model
from circurve.report.columns import column_name
from circurve.report.playground import whole
from circurve.report.record import Explorer, Part, ReversalInfo, SumInfo, Weights
from circurve.words import counted

__all__ = ["explorer", "node_labels", "sum_labels"]

REVERSALS = 10
TOP_CHILDREN = 8
"""How many children of each unit keep their weights, if not all do."""

MAX_BOTH_ESTIMATES = 50_000
"""Sum units up to which a page holds two estimates of t."""

MAX_SELECTED = 200_000
"""Entries of products' choices of units that a page keeps; without them, a child is named without its unit."""


@dataclass(frozen=True)
class SumGraph:
    """The sums, the top first, and what is directly below each."""

    sums: tuple[Sum, ...]
    parents: tuple[int, ...]
    below: tuple[tuple[int, ...], ...]
    own: tuple[tuple[int, ...], ...]


def sum_graph(circuit: Circuit) -> SumGraph:
    """Breadth first from the roots: the parent of a sum is the first that leads to it, by the fewest sums."""
    order: list[Sum] = []
    parents: list[int] = []
    place: dict[Sum, int] = {}
    waiting: deque[Sum] = deque()

    def meet(nodes: Sequence[Node], above: int) -> tuple[list[Sum], list[int]]:
        sums, columns = nearest(nodes)
        for node in sums:
            if node not in place:
                place[node] = len(order)
                order.append(node)
                parents.append(above)
                waiting.append(node)
        return sums, columns

    meet(circuit.roots, -1)
    below, own = [], []
    while waiting:
        node = waiting.popleft()
        sums, columns = meet(node.children, place[node])
        below.append(tuple(place[child] for child in sums))
        own.append(tuple(columns))
    return SumGraph(tuple(order), tuple(parents), tuple(below), tuple(own))


def nearest(nodes: Sequence[Node]) -> tuple[list[Sum], list[int]]:
    """The nearest sums below these nodes (or among them), and the columns of inputs without a sum above."""
    sums: dict[Sum, None] = {}
    columns: dict[int, None] = {}
    seen: set[Node] = set()
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Sum):
            sums[node] = None
        elif isinstance(node, Input):
            columns[node.variable] = None
        else:
            waiting += reversed(node.children)
    return list(sums), list(columns)


def node_labels(model: Model, graph: SumGraph) -> list[str]:
    """What each sum is about: `the root`, `the sum above 'age'`, `a sum above 12 columns`.

    In a mixture, sums below its root say of which member: `the root of model 0`, `the sum above 'age' of model 1`.
    """
    circuit, members = model.circuit, _member_numbers(model.circuit)
    roots = {*circuit.roots, *members_of(circuit)}
    sizes = dict(zip(circuit.nodes, circuit.scope_sizes, strict=True))
    labels = []
    for node, own in zip(graph.sums, graph.own, strict=True):
        if node in roots:
            label = "the root"
        elif len(own) == 1:
            label = f"the sum above {column_name(model.schema.columns[own[0]], own[0])!r}"
        else:
            label = f"a sum above {counted(sizes[node], 'column')}"
        labels.append(f"{label} of model {members[node]}" if node in members else label)
    return labels


def _member_numbers(circuit: Circuit) -> dict[Node, int]:
    """The number of the member of a mixture that each node is in, as the names of nodes have it."""
    found: dict[Node, int] = {}
    for number, root in enumerate(members_of(circuit)):
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found[node] = number
                waiting += node.children
    return found


def sum_labels(model: Model) -> dict[int, str]:
    """The label of each sum, by its place in `circuit.nodes`."""
    graph = sum_graph(model.circuit)
    place = {node: i for i, node in enumerate(model.circuit.nodes)}
    return {place[node]: label for node, label in zip(graph.sums, node_labels(model, graph), strict=True)}


def explorer(model: Model, curv: Curvature, estimator: str, max_weights: int) -> Explorer | None:
    """All sums of a measured model; None if it has none. `max_weights`: how many weights are kept at most."""
    if not len(curv):
        return None
    graph = sum_graph(model.circuit)
    place = {node: i for i, node in enumerate(model.circuit.nodes)}
    at = {place[node]: number for number, node in enumerate(graph.sums)}
    node = np.array([at[ref.node] for ref in curv.nodes])
    order = np.lexsort((np.array([ref.unit for ref in curv.nodes]), node))  # units node after node
    shown = curv.with_local(estimator)

    def vector(values: NDArray[np.float64]) -> NDArray[np.float32]:
        return np.clip(values[order], -3e38, 3e38).astype(np.float32)

    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    found = reversals(shown, REVERSALS)
    children = np.array([node.child_units for node in graph.sums])[node[order]]
    edges, floor = curv.edges[order], np.zeros(len(curv)) if curv.floor_edges is None else curv.floor_edges[order]
    pairs = tuple(
        ReversalInfo(int(position[p.i_index]), int(position[p.j_index]), p.usage_ratio, p.local_ratio)
        for p in found.extreme
    )
    important = np.argsort(-shown.total[order], kind="stable")
    named = [unit for pair in pairs for unit in (pair.used, pair.sharper)]
    return Explorer(
        nodes=_infos(model, graph, shown, order),
        flow_squared=vector(shown.flow_squared),
        local=vector(shown.local),
        total=vector(shown.total),
        mean_trace=vector(curv.local) if len(curv) <= MAX_BOTH_ESTIMATES else None,
        edges=None if np.array_equal(edges, children) else whole(edges.astype(np.int64)),
        floor_edges=whole(floor.astype(np.int64)) if floor.any() else None,
        estimator=estimator,
        trace=shown.trace,
        weights=_weights(model, graph, np.array(list(dict.fromkeys([*named, *important.tolist()]))), max_weights),
        reversals=pairs,
        reversed_share=found.share,
    )


def _infos(model: Model, graph: SumGraph, curv: Curvature, order: NDArray[np.int64]) -> tuple[SumInfo, ...]:
    circuit = model.circuit
    place = {node: i for i, node in enumerate(circuit.nodes)}
    number = {node: i for i, node in enumerate(graph.sums)}
    selects = sum(len(s) for n in circuit.nodes if isinstance(n, Product) for s in n.select if s is not None)
    depth, layer = curv.depth_mean[order], curv.layer[order]
    labels = node_labels(model, graph)
    infos, start = [], 0
    for i, node in enumerate(graph.sums):
        size = circuit.scope_sizes[place[node]]
        here = slice(start, start + node.units)
        start += node.units
        reached = depth[here][np.isfinite(depth[here])]
        infos.append(
            SumInfo(
                name=node.name or f"Sum #{place[node]}",
                label=labels[i],
                units=node.units,
                parent=graph.parents[i],
                below=graph.below[i],
                own=graph.own[i],
                scope_size=size,
                depth=float(reached.mean()) if reached.size else None,
                layer=int(layer[here][0]),
                children=tuple((c.units, _parts(c, number, selects <= MAX_SELECTED)) for c in node.children),
            )
        )
    return tuple(infos)


def _parts(child: Node, number: dict[Sum, int], with_units: bool) -> tuple[Part, ...]:
    """The sums and columns that a child unit multiplies; products inside products are followed."""
    found: list[Part] = []
    waiting: list[tuple[Node, NDArray[np.int64] | None]] = [(child, None)]
    while waiting:
        node, select = waiting.pop()
        if isinstance(node, Product):
            for part, chosen in zip(reversed(node.children), reversed(node.select), strict=True):
                both = chosen if select is None else select if chosen is None else chosen[select]
                waiting.append((part, both))
            continue
        kept = None if select is None or not with_units else whole(select)
        found.append(
            Part("sum", number[node], kept) if isinstance(node, Sum) else Part("column", _variable(node), kept)
        )
    return tuple(found)


def _variable(node: Node) -> int:
    assert isinstance(node, Input)
    return node.variable


def _weights(model: Model, graph: SumGraph, ranked: NDArray[np.int64], limit: int) -> Weights:
    """All weights where they are few; else the largest of the units that come first in `ranked`."""
    units = np.array([node.units for node in graph.sums])
    edges = np.array([node.child_units for node in graph.sums])
    complete = int((units * edges).sum()) <= limit
    starts = np.concatenate([[0], np.cumsum(units)])
    chosen = np.arange(starts[-1]) if complete else np.sort(ranked[: limit // TOP_CHILDREN])
    node = np.searchsorted(starts, chosen, side="right") - 1
    child, weight, counts = [], [], []
    for at in np.unique(node):
        rows = chosen[node == at] - starts[at]
        table = model.weights(graph.sums[at])[rows]
        most = table.shape[1] if complete else min(TOP_CHILDREN, table.shape[1])
        largest = np.argsort(-table, axis=1, kind="stable")[:, :most]
        child.append(largest.reshape(-1))
        weight.append(np.take_along_axis(table, largest, axis=1).reshape(-1))
        counts += [most] * len(rows)
    return Weights(
        chosen.astype(np.uint32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32),
        whole(np.concatenate(child).astype(np.int64)),
        np.concatenate(weight).astype(np.float32),
        complete,
    )
