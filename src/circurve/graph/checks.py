"""The structural properties of a circuit, checked without recursion and in memory that follows the live scopes."""

from __future__ import annotations

from collections.abc import Sequence

from circurve.errors import StructureError
from circurve.graph.nodes import Input, Node, Product, Sum

__all__ = ["check_scopes", "name_of", "topological_order"]


def name_of(node: Node, nodes: Sequence[Node] = ()) -> str:
    """`Product 'p3'`; a node without a name is called by its position in topological order."""
    kind = type(node).__name__
    if node.name:
        return f"{kind} '{node.name}'"
    position = next((i for i, other in enumerate(nodes) if other is node), None)
    return kind if position is None else f"{kind} #{position}"


def topological_order(roots: Sequence[Node], nodes: Sequence[Node] | None = None) -> tuple[Node, ...]:
    """All nodes below `roots`, children before parents, by an iterative depth-first walk.

    Raises StructureError for no roots, things that are not nodes, cycles, and nodes in `nodes` that no root reaches.
    """
    if not roots:
        raise StructureError("a circuit needs at least one root")
    for root in roots:
        if not isinstance(root, Input | Product | Sum):
            raise StructureError(f"a root must be an Input, Product or Sum, not {root!r}")
    if len(set(roots)) != len(roots):
        raise StructureError("the same node is given twice as a root")
    order: dict[Node, None] = {}
    for root in roots:
        _walk(root, order)
    for node in nodes or ():
        if node not in order:
            raise StructureError(f"{name_of(node, nodes or ())}: it is not below any root")
    return tuple(order)


def _walk(root: Node, done: dict[Node, None]) -> None:
    if root in done:
        return
    path = {root: iter(root.children)}  # from the root to the node at hand, with the children not yet looked at
    while path:
        node, pending = next(reversed(path.items()))
        for child in pending:
            if child in done:
                continue
            if child in path:
                raise StructureError(f"{name_of(child)}: it is its own descendant (a cycle)")
            if child.children:
                path[child] = iter(child.children)
                break
            done[child] = None
        else:
            path.popitem()
            done[node] = None


def check_scopes(order: Sequence[Node], roots: Sequence[Node]) -> tuple[tuple[int, ...], int]:
    """Check smoothness, decomposability and one scope for all roots; return scope sizes and the variable count.

    A scope is a bit set. Each is dropped once the last parent has read it, so a chain over V variables needs
    memory for a few scopes, not for all of them.
    """
    readers: dict[Node, int] = dict.fromkeys(order, 0)
    for node in order:
        for child in node.children:
            readers[child] += 1
    for root in roots:
        readers[root] += 1
    scopes: dict[Node, int] = {}
    sizes: dict[Node, int] = {}
    for node in order:
        if isinstance(node, Input):
            scopes[node], sizes[node] = 1 << node.variable, 1
            continue
        scopes[node] = _scope(node, scopes, order)
        # Children of a product have no variable in common, those of a sum have the same ones.
        sizes[node] = sum(map(sizes.__getitem__, node.children[: 1 if isinstance(node, Sum) else None]))
        for child in node.children:
            readers[child] -= 1
            if not readers[child]:
                del scopes[child]
    first = scopes[roots[0]]
    for root in roots[1:]:
        if scopes[root] != first:
            raise StructureError(
                f"{name_of(root, order)} and {name_of(roots[0], order)} are both roots, but have different variables: "
                f"{_variables(scopes[root] ^ first)}"
            )
    variables = first.bit_length()
    if first.bit_count() != variables:
        absent = ~first & ((1 << variables) - 1)
        raise StructureError(f"no input has variables {_variables(absent)}: number the variables from 0 without gaps")
    return tuple(sizes.values()), variables


def _scope(node: Product | Sum, scopes: dict[Node, int], order: Sequence[Node]) -> int:
    scope = scopes[node.children[0]]
    if isinstance(node, Sum):
        for child in node.children[1:]:
            if scopes[child] != scope:
                raise StructureError(
                    f"{name_of(node, order)} is not smooth: children {name_of(node.children[0], order)} and "
                    f"{name_of(child, order)} have different variables: {_variables(scope ^ scopes[child])}"
                )
        return scope
    for child in node.children[1:]:
        other = scopes[child]
        if scope & other:
            raise _not_decomposable(node, child, scopes, order)
        scope |= other
    return scope


def _not_decomposable(node: Product, late: Node, scopes: dict[Node, int], order: Sequence[Node]) -> StructureError:
    for child in node.children:
        shared = scopes[child] & scopes[late]
        if shared:
            return StructureError(
                f"{name_of(node, order)}: children {name_of(child, order)} and {name_of(late, order)} share "
                f"variables {_variables(shared)}"
            )
    return StructureError(f"{name_of(node, order)}: children share variables")


def _variables(bits: int, most: int = 8) -> str:
    """The set bits as `{2, 5}`, cut after `most` of them."""
    listed: list[str] = []
    while bits and len(listed) < most:
        low = bits & -bits
        listed.append(str(low.bit_length() - 1))
        bits ^= low
    return "{" + ", ".join(listed + (["..."] if bits else [])) + "}"
