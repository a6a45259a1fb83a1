"""Wirings bound to a number of runs: for each target row the sum of its source rows (or product), from blocks of rows.

Blocks in one matrix need one `index_select` for each column of a wiring; separate blocks need one for each piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circurve.engine.program import Column, Index, Space, Tail, Wiring
from circurve.engine.reference.workspace import Memory, Rows

__all__ = ["Gather"]


@dataclass(frozen=True, eq=False)
class _Column:
    """One source row for each of some targets."""

    rows: Tensor  # of all runs in the matrix of all blocks, (R x n,)
    targets: int | Tensor | None  # all of them, the first ones, or a list
    blocks: Index  # of each source row, (n,)
    pieces: list[tuple[int, Tensor]]
    """The source rows as consecutive pieces, each inside one block: the block, and (R x n,) rows of it. Made at
    once: a tensor that is made within a torch.func transform must not be kept."""


@dataclass(frozen=True, eq=False)
class _Tail:
    """The last column, where its targets occur more than once: each of them, and how often."""

    targets: Tensor  # (T,)
    sizes: Index  # (T,)

    @classmethod
    def of(cls, tail: Tail, device: torch.device) -> _Tail:
        sizes = np.diff(tail.offsets, append=len(tail.sources))
        return cls(torch.from_numpy(tail.targets).to(device), sizes)


def _pieces(blocks: Index, inside: Index, device: torch.device) -> list[tuple[int, Tensor]]:  # (n,), (R, n)
    cuts = np.flatnonzero(np.diff(blocks)) + 1
    first = blocks[np.concatenate([[0], cuts])].tolist()
    parts = (torch.from_numpy(part.reshape(-1)) for part in np.split(inside, cuts, axis=1))
    return [(block, part.to(device)) for block, part in zip(first, parts, strict=True)]


class Gather:
    """A wiring for R runs on a device. Source rows are never changed."""

    def __init__(self, wiring: Wiring, space: Space, runs: int, device: torch.device) -> None:
        self.runs, self.targets = runs, wiring.targets
        single = wiring.single
        self.whole = None if single is None else space.whole_block(single)
        """The block that is exactly the targets."""

        columns = list(wiring.columns)
        self._tail = None if wiring.tail is None else _Tail.of(wiring.tail, device)
        if wiring.tail is not None and self._tail is not None:
            columns.append(Column(wiring.tail.sources, np.repeat(wiring.tail.targets, self._tail.sizes)))
        self._columns = [self._bind(column, space, device) for column in columns]
        self._end = self.runs * int(max((space.starts + space.sizes)[column.blocks].max() for column in self._columns))
        """The end in the matrix of the last block that is read."""

    def _bind(self, column: Column, space: Space, device: torch.device) -> _Column:
        blocks = space.block_of(column.sources)
        starts, sizes = space.starts[blocks], space.sizes[blocks]
        inside = np.arange(self.runs, dtype=np.int64)[:, None] * sizes + (column.sources - starts)  # (R, n)
        rows = torch.from_numpy((self.runs * starts + inside).reshape(-1)).to(device)
        at = column.targets
        targets = at if at is None or isinstance(at, int) else torch.from_numpy(at).to(device)
        return _Column(rows, targets, blocks, _pieces(blocks, inside, device))

    def __call__(self, rows: Rows, memory: Memory, place: Tensor | None = None) -> Tensor:  # (R, targets, N)
        """The sum of each target's rows, written to `place` (R, targets, N) if it is given.

        Without it the result is the block itself where one is exactly the targets, or is in the memory "gathered".
        """
        if self.whole is not None and place is None:
            return rows.blocks[self.whole]
        if rows.matrix is not None:
            samples = rows.matrix.shape[-1]
            total = place if place is not None else memory.take("gathered", self.runs, self.targets, samples)
            assert total is not None, "rows in a matrix need the workspace that contains them"
            return self._from_matrix(rows.matrix[: self._end], memory, total)
        joined = self._joined(self._columns[0], rows)
        for column in self._columns[1:]:
            joined = _added(joined, column.targets, self._joined(column, rows))
        return joined

    def product(self, rows: Rows) -> Tensor:  # (R, targets, N)
        """The product of each target's rows instead of their sum, for rows in separate blocks.

        Two factors are multiplied at a time: second derivatives of `torch.prod` contain divisions and differences.
        """
        if self.whole is not None:
            return rows.blocks[self.whole]
        factors = [(column.targets, self._joined(column, rows)) for column in self._columns]
        if self._tail is not None:
            factors[-1] = (self._tail.targets, _segment_products(factors[-1][1], self._tail.sizes))
        total = factors[0][1]
        for targets, more in factors[1:]:
            total = _multiplied(total, targets, more)
        return total

    def _from_matrix(self, source: Tensor, memory: Memory, total: Tensor) -> Tensor:
        """The sums, written to `total`. `source`: only rows before `total`, since torch forbids an overlap."""
        samples = source.shape[-1]
        torch.index_select(source, 0, self._columns[0].rows, out=total.view(-1, samples))
        for column in self._columns[1:]:
            more = torch.index_select(source, 0, column.rows, out=memory.take("more", *column.rows.shape, samples))
            _added(total, column.targets, more.view(self.runs, -1, samples))
        return total

    def _joined(self, column: _Column, source: Rows) -> Tensor:  # (R, n, N)
        picked = (source.blocks[block].flatten(0, 1).index_select(0, rows) for block, rows in column.pieces)
        parts = [rows.reshape(self.runs, -1, rows.shape[-1]) for rows in picked]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _added(total: Tensor, targets: int | Tensor | None, more: Tensor) -> Tensor:
    """`total` with `more` added at the targets; in place where nothing is differentiated."""
    if torch.is_grad_enabled():
        if targets is None:
            return total + more
        at = torch.arange(targets, device=total.device) if isinstance(targets, int) else targets
        return total.index_add(1, at, more)
    if targets is None:
        return total.add_(more)
    if isinstance(targets, int):
        total[:, :targets] += more
        return total
    return total.index_add_(1, targets, more)


def _multiplied(total: Tensor, targets: int | Tensor | None, more: Tensor) -> Tensor:
    """`total` with the targets multiplied by `more`; no target twice."""
    if targets is None:
        return total * more
    if isinstance(targets, int):
        return torch.cat([total[:, :targets] * more, total[:, targets:]], dim=1)
    return total.index_copy(1, targets, total.index_select(1, targets) * more)


def _segment_products(rows: Tensor, sizes: Index) -> Tensor:  # (R, sum of sizes, N) -> (R, segments, N)
    """The product of the rows of each segment, by halving: the first times the second, the third times the fourth."""
    while sizes.max() > 1:
        rank = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of each row in its segment
        left = np.flatnonzero(rank % 2 == 0)
        alone = (rank + 1 == np.repeat(sizes, sizes))[left]
        right = np.where(alone, len(rank), left + 1)  # a row of ones if there is no other
        ones = torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1)
        first, second = (torch.from_numpy(index).to(rows.device) for index in (left, right))
        rows = rows.index_select(1, first) * ones.index_select(1, second)
        sizes = (sizes + 1) // 2
    return rows
