"""What a circuit in a model file takes in memory and time, before it is checked and compiled.

A product without weights has a hundred bytes in a file, whatever the number of its units: a chain of such products over
one wide child grows a thousandfold. The counts here cost O(nodes + children), and nothing of the size that they count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from circurve.bounds import SECONDS_PER_BYTE, TRUST_HINT, allowed_bytes, check_expansion, check_seconds
from circurve.budget import Need
from circurve.errors import FileFormatError
from circurve.graph import Input, Node, Product, Sum
from circurve.words import counted

__all__ = ["StructureCost", "check_cost", "check_memory", "check_parts", "structure_cost"]

COPIES = 5
"""How many bytes each byte of a tensor takes while it is checked and laid out: as it is, in float64, and stacked."""

BYTES_PER_NODE = 2_600
"""A node, its record in the file, its places in dictionaries, and its layer where it has one of its own."""

BYTES_PER_UNIT = 24
"""A row of the program: its number, its readers and its flow, in index arrays of 8 bytes."""

BYTES_PER_EDGE = 80
"""An edge of the program between two rows, and its copies while edges are put in order."""

SCOPE_BYTES_PER_SECOND = 2e9
"""How fast sets of variables are joined."""

NODE_SECONDS, TENSOR_SECONDS, FAMILY_SECONDS, COLUMN_SECONDS = 8.5e-6, 9e-6, 9e-6, 7.5e-6
"""What each node, tensor, different family and column of a schema takes to read: a fifth more than measured."""


BYTES_PER_CATEGORY = 120
"""A text, its places in a list, a tuple and a set."""

TEXT_COPIES = 5
"""How many times the texts of a file are in memory while they are parsed."""


def check_parts(structure: dict[str, Any], tensors: int, size: int, trust: bool) -> None:
    """Refuse a file of very many small parts, which would take more time or memory than a file of its size may take."""
    records, schema = structure["nodes"], structure.get("schema")
    listed = schema.get("columns") if isinstance(schema, dict) else None
    columns = [column for column in listed if isinstance(column, dict)] if isinstance(listed, list) else []
    categories = sum(len(c["categories"]) for c in columns if isinstance(c.get("categories"), list))
    check_expansion(BYTES_PER_CATEGORY * categories + TEXT_COPIES * size, size, trust, FileFormatError)
    seconds = NODE_SECONDS * len(records) + TENSOR_SECONDS * tensors + COLUMN_SECONDS * len(columns)
    if seconds > 0.5:  # counting families takes time, too
        seconds += FAMILY_SECONDS * len({str(record.get("family")) for record in records})
    check_seconds(seconds, counted(len(records), "node"), size, trust, FileFormatError)


def check_cost(nodes: Sequence[Node], tensor_bytes: int, size: int, trust: bool) -> None:
    """Refuse a structure that takes far more memory or time than its file is large; nothing is allocated yet."""
    cost = _upper_bound(nodes)
    if cost.bytes + COPIES * tensor_bytes > allowed_bytes(size) or cost.seconds > 1.0:
        cost = structure_cost(nodes)
    check_expansion(cost.bytes + COPIES * tensor_bytes, size, trust, FileFormatError)
    if not trust and cost.seconds > max(1.0, size * SECONDS_PER_BYTE):
        raise FileFormatError(f"its scopes take {cost.seconds:,.0f} seconds to check", *TRUST_HINT)


def check_memory(path: str | PathLike[str], size: int, nodes: Sequence[Node], memory_budget: int | None) -> None:
    """Refuse a file of `size` bytes that takes more than a budget; before its tensors are read there are no nodes."""
    if memory_budget is not None:
        parts = {"file": COPIES * size, "structure": structure_cost(nodes).bytes if nodes else 0}
        Need(f"loading {fspath(path)}", parts, "choose a model with fewer units").left(memory_budget)


@dataclass(frozen=True)
class StructureCost:
    """An upper bound of what checking and compiling take, without the parameters."""

    bytes: int
    seconds: float
    """The time of the part that grows faster than the file: joining sets of variables."""


def structure_cost(nodes: Sequence[Node]) -> StructureCost:
    """The cost of a circuit of these nodes, children before parents."""
    return _cost(nodes, *_scope_bytes(nodes))


def _upper_bound(nodes: Sequence[Node]) -> StructureCost:
    """No less than `structure_cost`, in half of the time: as if no scope were dropped."""
    size: dict[Node, int] = {}
    joined = 0
    for node in nodes:
        if isinstance(node, Input):
            size[node] = node.variable // 8
        else:
            own = size[node] = max(map(size.__getitem__, node.children))
            joined += own * len(node.children)
    return _cost(nodes, sum(size.values()), joined)


def _cost(nodes: Sequence[Node], live: int, joined: int) -> StructureCost:
    """live: bytes that all scopes take at one time; joined: how many are read to join them."""
    units = sum([node.units for node in nodes])
    # One edge for each child of each unit of a product, and for each child unit of a sum.
    edges = sum([node.units * len(node.children) for node in nodes if isinstance(node, Product)])
    edges += sum([node.child_units for node in nodes if isinstance(node, Sum)])
    fixed = BYTES_PER_NODE * len(nodes) + BYTES_PER_UNIT * units + BYTES_PER_EDGE * edges
    return StructureCost(fixed + live, joined / SCOPE_BYTES_PER_SECOND)


def _scope_bytes(nodes: Sequence[Node]) -> tuple[int, int]:
    """The most that all scopes take at one time, and how much is read to join them, as `check_scopes` does it.

    A scope is a bit set, as long as its largest variable; it is dropped when the last parent has read it.
    """
    readers = dict.fromkeys(nodes, 0)
    for node in nodes:
        for child in node.children:
            readers[child] += 1
    size: dict[Node, int] = {}
    now = most = joined = 0
    for node in nodes:
        if isinstance(node, Input):
            size[node] = node.variable // 8
            now += size[node]
            continue
        own = size[node] = max(map(size.__getitem__, node.children))
        now += own
        most = max(most, now)
        joined += own * len(node.children)
        for child in node.children:
            readers[child] -= 1
            if not readers[child]:
                now -= size[child]
    return max(most, now), joined
