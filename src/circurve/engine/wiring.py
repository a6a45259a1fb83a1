"""Edges as index arrays: children of layers, and the flow slots each row receives its flow from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from circurve.engine.program import Column, Index, Space, Tail, Wiring, is_range
from circurve.graph import Node, Product, Sum

__all__ = ["MAX_COLUMNS", "FlowWirer", "wire_products", "wire_sums"]

MAX_COLUMNS = 8
"""Sources of a target beyond this many go to the tail, so that one busy node does not pad all others."""


def wire_sums(fold: Sequence[Sum], rows: Mapping[Node, Index]) -> Wiring:
    """One source row for each element of each sum: the units of its children, concatenated."""
    sources = np.concatenate([rows[child] for node in fold for child in node.children])
    return Wiring(len(sources), (Column(sources, None),))


def wire_products(fold: Sequence[Product], rows: Mapping[Node, Index]) -> Wiring:
    """For each unit of each product, one source row for each of its children."""
    if len(fold) == 1 and len(fold[0].children) <= MAX_COLUMNS:
        alone = (Column(_child_rows(fold[0], j, rows), None) for j in range(len(fold[0].children)))
        return Wiring(fold[0].units, tuple(alone))
    ends = np.cumsum([node.units for node in fold])
    widest = max(len(node.children) for node in fold)
    columns = []
    for j in range(min(widest, MAX_COLUMNS)):
        members = [i for i, node in enumerate(fold) if len(node.children) > j]
        sources = np.concatenate([_child_rows(fold[i], j, rows) for i in members])
        targets = np.concatenate([np.arange(ends[i] - fold[i].units, ends[i]) for i in members])
        columns.append(Column(sources, _as_targets(targets, int(ends[-1]))))
    tail = None
    if widest > MAX_COLUMNS:
        long = [i for i, node in enumerate(fold) if len(node.children) > MAX_COLUMNS]
        bags = [
            np.stack([_child_rows(fold[i], j, rows) for j in range(MAX_COLUMNS, len(fold[i].children))], axis=1)
            for i in long
        ]  # (units, children beyond the columns) for each long product
        sizes = np.concatenate([np.full(len(bag), bag.shape[1]) for bag in bags])
        targets = np.concatenate([np.arange(ends[i] - fold[i].units, ends[i]) for i in long])
        tail = Tail(targets, np.concatenate([bag.ravel() for bag in bags]), _offsets(sizes))
    return Wiring(int(ends[-1]), tuple(columns), tail)


class FlowWirer:
    """Walks the blocks from the roots down and remembers, for each row, the slots that carry flow to it.

    Slot 0 is a constant zero; the next ones are the outputs. Every element of a sum layer gets a slot of its own. A
    product row passes its flow undivided, so one with a single parent needs no slot: its children read the parent's.
    """

    def __init__(self, values: Space, roots: Index) -> None:
        self._values = values
        self._block_of = np.repeat(np.arange(len(values.sizes)), values.sizes)  # (rows,)
        self._sizes = [1]
        self._rows = 1
        self._incoming: dict[int, list[tuple[Index, Index]]] = defaultdict(list)
        _, slots = self._new_block(len(roots))
        self._connect(roots, slots)

    def space(self) -> Space:
        """The flow space as wired so far."""
        sizes = np.array(self._sizes, dtype=np.int64)
        return Space(_offsets(sizes), sizes)

    def receive(self, block: int) -> Wiring:
        """The slots whose sum is the flow of each row of a block."""
        counts, slots = self._sorted(block)
        return _wiring(counts, slots)

    def spread(self, children: Wiring) -> int:
        """Give each element of a sum layer a slot that its child row receives from; returns the new flow block."""
        block, slots = self._new_block(children.targets)
        self._connect(children.columns[0].sources, slots)
        return block

    def pass_through(self, block: int, children: Wiring) -> tuple[Index, int | None, Wiring | None]:
        """Hand a product block's flow to its children; rows with several parents are gathered into a new flow block.

        Returns the slot of each row, the new flow block and its wiring (None if no row has several parents).
        """
        counts, slots = self._sorted(block)
        made, wiring = None, None
        if (counts == 1).all():
            slot_of, shared = slots, counts[:0]
        else:
            first = _offsets(counts)
            slot_of = np.zeros(len(counts), dtype=np.int64)
            slot_of[counts > 0] = slots[first[counts > 0]]
            shared = np.flatnonzero(counts > 1)
        if shared.size:
            made, slot_of[shared] = self._new_block(shared.size)
            kept = np.repeat(counts > 1, counts)
            wiring = _wiring(counts[shared], slots[kept])
        targets, sources = children.edges()
        self._connect(sources, slot_of[targets])
        return slot_of, made, wiring

    def _new_block(self, size: int) -> tuple[int, Index]:
        start = self._rows
        self._sizes.append(size)
        self._rows += size
        return len(self._sizes) - 1, np.arange(start, start + size, dtype=np.int64)

    def _connect(self, rows: Index, slots: Index) -> None:
        blocks = self._block_of[rows]
        if (blocks == blocks[0]).all():
            self._incoming[int(blocks[0])].append((rows, slots))
            return
        for block in np.unique(blocks):
            here = blocks == block
            self._incoming[int(block)].append((rows[here], slots[here]))

    def _sorted(self, block: int) -> tuple[Index, Index]:
        """How many slots each row of the block has, and the slots, row after row."""
        start, size = self._values.starts[block], int(self._values.sizes[block])
        pairs = self._incoming.pop(block, [])
        if not pairs:
            return np.zeros(size, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if len(pairs) == 1 and len(pairs[0][0]) == size and pairs[0][0][0] == start and is_range(pairs[0][0]):
            return np.ones(size, dtype=np.int64), pairs[0][1]
        rows = np.concatenate([r for r, _ in pairs]) - start
        slots = np.concatenate([s for _, s in pairs])
        order = np.argsort(rows, kind="stable")
        return np.bincount(rows, minlength=size).astype(np.int64), slots[order]


def _wiring(counts: Index, sources: Index) -> Wiring:
    """A wiring from lists of sources, one after the other, with `counts` of them for each target; none means slot 0."""
    if (counts == 1).all():
        return Wiring(len(counts), (Column(sources, None),))
    first = _offsets(counts)
    columns = [Column(np.where(counts > 0, _take(sources, first), 0), None)]
    for j in range(1, min(int(counts.max(initial=0)), MAX_COLUMNS)):
        targets = np.flatnonzero(counts > j)
        columns.append(Column(sources[first[targets] + j], _as_targets(targets, len(counts))))
    long = np.flatnonzero(counts > MAX_COLUMNS)
    if not long.size:
        return Wiring(len(counts), tuple(columns))
    spans = [np.arange(first[i] + MAX_COLUMNS, first[i] + counts[i]) for i in long]
    tail = Tail(long, sources[np.concatenate(spans)], _offsets(counts[long] - MAX_COLUMNS))
    return Wiring(len(counts), tuple(columns), tail)


def _take(sources: Index, positions: Index) -> Index:
    """sources[positions], with positions past the end allowed (their rows have no source at all)."""
    return sources[np.minimum(positions, len(sources) - 1)] if len(sources) else np.zeros_like(positions)


def _child_rows(node: Product, j: int, rows: Mapping[Node, Index]) -> Index:
    select = node.select[j]
    child = rows[node.children[j]]
    return child if select is None else child[select]


def _as_targets(targets: Index, total: int) -> int | Index | None:
    """None for all targets, a count for a prefix, else the list itself."""
    if len(targets) == total:
        return None
    return len(targets) if int(targets[-1]) == len(targets) - 1 else targets


def _offsets(sizes: Index) -> Index:
    """Where each of the consecutive pieces starts."""
    ends: Index = np.cumsum(sizes, dtype=np.int64)
    return ends - sizes
