"""Blocks of a stream in memory: the latest ones stay, in one array from which any of their rows can be picked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data.reading import Reader
from circurve.data.table import Table
from circurve.schema import Schema

__all__ = ["Binding", "Slots", "slot_shape"]


@dataclass(frozen=True, eq=False)
class Binding:
    """A stream's meaning: its schema, and what a pass over all its rows found."""

    schema: Schema
    encode: Callable[[Table], Table]
    """A table as it was read -> a checked table in the schema."""

    missing: bool
    """Some value is missing."""

    impossible: bool
    """Some value is one that was not seen in training."""

    known_values: int
    dtype: torch.dtype
    """What holds all checked values."""

    slots: dict[tuple[Reader, int], Slots] = field(default_factory=dict, init=False, repr=False)
    """The blocks in memory, by reader and window: one for all choices of rows."""


class Slots:
    """As many places for blocks as two windows of `block_order` may touch.

    What it returns does not depend on earlier calls; only the time does. A new block replaces the one that was not used
    for the longest time. All choices of rows of a stream share one.
    """

    def __init__(self, starts: NDArray[np.int64], window: int, binding: Binding) -> None:
        """starts: of the blocks, and the number of all rows. The binding is not kept: it holds these slots."""
        self.starts, self.dtype = starts, binding.dtype
        self.missing, self.impossible = binding.missing, binding.impossible
        self.count, self.height = slot_shape(np.diff(starts), window)
        self.slot_of: OrderedDict[int, int] = OrderedDict()
        self.place_of = np.zeros(len(starts), dtype=np.int64)  # add a row's number: its place in the table
        self.table: Table | None = None

    def clear(self) -> None:
        """Forget all blocks."""
        self.slot_of.clear()

    def take(self, rows: Tensor, read: Callable[[int], Table]) -> tuple[Table, Tensor]:
        """A table that holds these rows, and their places in it. The table changes with the next call.

        read: a checked block by its number.
        """
        numbers = rows.numpy()
        blocks = np.searchsorted(self.starts, numbers, side="right") - 1
        needed: list[int] = np.unique(blocks).tolist()
        if len(needed) > self.count:
            if numbers.ndim < 2 or len(numbers) == 1:
                return self._collected(numbers, blocks, needed, read)
            self._grow(len(needed))
        for block in needed:
            if block in self.slot_of:
                self.slot_of.move_to_end(block)
        for block in needed:
            if block not in self.slot_of:
                self._load(block, read(block))
        assert self.table is not None
        return self.table, torch.from_numpy(numbers + self.place_of[blocks])

    def _load(self, block: int, read: Table) -> None:
        """Put a block into a free slot, or into the one that was not used for the longest time."""
        if len(self.slot_of) < self.count:
            slot = len(self.slot_of)
        else:
            _, slot = self.slot_of.popitem(last=False)
        if self.table is None:
            self.table = self._empty(self.count * self.height, read)
        _fill(self.table, slot * self.height, read)
        self.slot_of[block] = slot
        self.place_of[block] = slot * self.height - self.starts[block]

    def _empty(self, rows: int, like: Table) -> Table:
        shape = (rows, like.shape[1])
        return replace(
            like,
            values=torch.zeros(shape, dtype=self.dtype),
            observed=torch.ones(shape, dtype=torch.bool) if self.missing else None,
            impossible=torch.zeros(shape, dtype=torch.bool) if self.impossible else None,
            places=None,
        )

    def _grow(self, count: int) -> None:
        """More slots: runs with different shuffles read different blocks at the same time."""
        self.count, self.table = count, None
        self.slot_of.clear()

    def _collected(
        self, numbers: NDArray[np.int64], blocks: NDArray[np.int64], needed: list[int], read: Callable[[int], Table]
    ) -> tuple[Table, Tensor]:
        """Rows from more blocks than there are slots: each block is read once and let go."""
        flat, of_block = numbers.ravel(), blocks.ravel()
        order = np.argsort(of_block, kind="stable")
        cuts = np.searchsorted(of_block[order], needed)
        parts = np.split(order, cuts[1:])
        joined, filled = None, 0
        for block, mine in zip(needed, parts, strict=True):
            part = read(block).rows(flat[mine] - self.starts[block])
            joined = self._empty(len(flat), part) if joined is None else joined
            _fill(joined, filled, part)
            filled += len(mine)
        assert joined is not None
        places = np.empty(len(flat), dtype=np.int64)
        places[order] = np.arange(len(flat))
        return joined, torch.from_numpy(places.reshape(numbers.shape))


def slot_shape(sizes: NDArray[np.int64], window: int) -> tuple[int, int]:
    """How many blocks two windows touch at most, and the rows of the largest block."""
    if not len(sizes):
        return 1, 1
    in_window = int(np.searchsorted(np.cumsum(np.sort(sizes)), window)) + 1
    return min(len(sizes), 2 * in_window), int(sizes.max())


def _fill(table: Table, start: int, part: Table) -> None:
    """Write rows into a table from row `start` on."""
    place = slice(start, start + len(part))
    table.values[place] = part.values
    if table.observed is not None:
        table.observed[place] = True if part.observed is None else part.observed
    if table.impossible is not None:
        table.impossible[place] = False if part.impossible is None else part.impossible
