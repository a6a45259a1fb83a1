"""Circuit -> Program: sort nodes into layers, fold equal shapes, and turn edges into index arrays.

Nothing here recurses and nothing is quadratic: a node is touched a few times, and an edge between two units of a
product, or from a sum to a child unit, is one entry of one array.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import cast

import numpy as np

from circurve.engine.program import Folds, Index, InputLayer, Layer, ProductLayer, Program, Space, SumLayer, Wiring
from circurve.engine.wiring import FlowWirer, wire_products, wire_sums
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.host_memory import without_collector

__all__ = ["compile", "fold"]

Fold = tuple[Node, ...]

INPUT, PRODUCT, SUM = range(3)
"""Kinds of nodes in the order of computation within a depth."""


@without_collector()
def compile(circuit: Circuit) -> Program:
    """Lay a circuit out in blocks of rows and index arrays; time and memory are linear in nodes plus edges."""
    folds = fold(circuit).nodes
    values, rows = _place(folds)
    roots = np.concatenate([rows[root] for root in circuit.roots])
    children = [_wire(members, rows) for members in folds]
    owners = _owned_blocks(children, folds, values, roots)
    wirer = FlowWirer(values, roots)
    inputs: list[InputLayer] = []
    layers: list[Layer] = []
    for block in reversed(range(len(folds))):
        members, wiring = folds[block], children[block]
        first = members[0]
        if isinstance(first, Input):
            nodes = cast("tuple[Input, ...]", members)
            family = first.family.merged([node.family for node in nodes])
            inputs.append(InputLayer(family, nodes, first.units, block, wirer.receive(block)))
        elif isinstance(first, Product):
            assert wiring is not None
            products = cast("tuple[Product, ...]", members)
            layers.append(ProductLayer(products, block, wiring, *wirer.pass_through(block, wiring)))
        else:
            assert wiring is not None
            layers.append(_sum_layer(cast("tuple[Sum, ...]", members), block, wiring, wirer, block in owners))
    return Program(circuit, tuple(reversed(inputs)), tuple(reversed(layers)), values, wirer.space(), roots)


def _sum_layer(nodes: tuple[Sum, ...], block: int, children: Wiring, wirer: FlowWirer, owns: bool) -> SumLayer:
    flow = wirer.receive(block)
    mask = None
    if nodes[0].mask is not None:
        mask = np.stack([node.mask for node in nodes if node.mask is not None])
    first = nodes[0]
    return SumLayer(
        nodes=nodes,
        units=first.units,
        child_units=first.child_units,
        block=block,
        children=children,
        owns_children=owns,
        flow_block=wirer.spread(children),
        flow=flow,
        mask=mask,
    )


def fold(circuit: Circuit) -> Folds:
    """Nodes that are computed together, in the order of computation.

    Sums fold by depth and shape. Products and inputs fold with those that feed the same fold of sums, in the order
    in which the sums read them: then the sums' elements are one contiguous block.
    """
    level: dict[Node, int] = {}
    reader: dict[Node, Node] = {}
    for node in circuit.nodes:
        children = node.children
        level[node] = 1 + max(map(level.__getitem__, children)) if children else 0
        for child in children:
            if child not in reader:
                reader[child] = node
    folds: dict[tuple[int, int, Hashable], list[Node]] = {}
    for node in circuit.nodes:
        folds.setdefault(_fold_key(node, level, reader), []).append(node)
    place: dict[Node, tuple[int, int]] = {}
    for (_, kind, _), members in folds.items():
        if kind == SUM:
            members.sort(key=_breadth, reverse=True)
            for position, node in enumerate(members):
                for j, child in enumerate(node.children):
                    if reader[child] is node and child not in place:
                        place[child] = (position, j)
    for (_, kind, _), members in folds.items():
        if kind != SUM and len(members) > 1:
            members.sort(key=lambda node: place.get(node, (len(place), 0)))
    return Folds(circuit, tuple(tuple(folds[key]) for key in sorted(folds, key=lambda key: key[:2])))


def _fold_key(node: Node, level: Mapping[Node, int], reader: Mapping[Node, Node]) -> tuple[int, int, Hashable]:
    """Depth and kind, by which folds are sorted, and what else nodes of one fold have in common."""
    depth = level[node]
    if isinstance(node, Sum):
        return depth, SUM, (node.units, node.child_units, node.mask is not None)
    parent = reader.get(node)
    feeds = _fold_key(parent, level, reader) if isinstance(parent, Sum) else None
    if isinstance(node, Input):
        return depth, INPUT, (node.family.layer_key, node.units, feeds)
    return depth, PRODUCT, feeds


def _breadth(node: Node) -> int:
    """How many rows are added up for a sum's first child: equal ones side by side make short index lists."""
    first = node.children[0]
    return len(first.children) if isinstance(first, Product) else 1


def _place(folds: Sequence[Fold]) -> tuple[Space, dict[Node, Index]]:
    sizes = np.array([sum(node.units for node in members) for members in folds], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    rows: dict[Node, Index] = {}
    next_row = 0
    for members in folds:
        for node in members:
            rows[node] = np.arange(next_row, next_row + node.units, dtype=np.int64)
            next_row += node.units
    return Space(starts, sizes), rows


def _wire(members: Fold, rows: dict[Node, Index]) -> Wiring | None:
    first = members[0]
    if isinstance(first, Sum):
        return wire_sums(cast("tuple[Sum, ...]", members), rows)
    if isinstance(first, Product):
        return wire_products(cast("tuple[Product, ...]", members), rows)
    return None


def _owned_blocks(children: Sequence[Wiring | None], folds: Sequence[Fold], values: Space, roots: Index) -> set[int]:
    """The sum blocks whose elements are exactly one whole block that nothing else reads."""
    read = [roots]
    for wiring in children:
        if wiring is not None:
            read += [column.sources for column in wiring.columns]
            read += [] if wiring.tail is None else [wiring.tail.sources]
    reads = np.bincount(np.concatenate(read), minlength=values.rows)
    owned = set()
    for block, (wiring, members) in enumerate(zip(children, folds, strict=True)):
        if wiring is None or not isinstance(members[0], Sum):
            continue
        sources = wiring.columns[0].sources
        if values.whole_block(sources) is not None and (reads[sources] == 1).all():
            owned.add(block)
    return owned
