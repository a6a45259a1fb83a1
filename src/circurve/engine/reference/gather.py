"""Wirings bound to a number of runs: for each target row the sum of its source rows, gathered from blocks of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circurve.engine.program import Column, Index, Space, Wiring

__all__ = ["Blocks", "Gather"]

Blocks = Mapping[int, Tensor]
"""Rows of all runs by block number, (R, rows, N) each."""


@dataclass(frozen=True)
class _Column:
    """One source row for each of some targets, as consecutive pieces that each lie in one block."""

    pieces: tuple[tuple[int, Tensor], ...]  # block, rows of all runs (R x n,)
    targets: int | Tensor | None  # all of them, the first ones, or a list


class Gather:
    """A wiring for R runs on a device. Source rows are never changed."""

    def __init__(self, wiring: Wiring, space: Space, runs: int, device: torch.device) -> None:
        self.runs, self.targets = runs, wiring.targets
        single = wiring.single
        self.whole = None if single is None else space.whole_block(single)
        """The block that is exactly the targets: it is returned as it is."""

        columns = list(wiring.columns)
        if wiring.tail is not None:
            sizes = np.diff(wiring.tail.offsets, append=len(wiring.tail.sources))
            columns.append(Column(wiring.tail.sources, np.repeat(wiring.tail.targets, sizes)))
        self._columns = [self._bind(column, space, device) for column in columns] if self.whole is None else []

    def _bind(self, column: Column, space: Space, device: torch.device) -> _Column:
        blocks = space.block_of(column.sources)
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        pieces = []
        for rows in np.split(column.sources, cuts):
            block = int(space.block_of(rows[:1])[0])
            pieces.append((block, self._all_runs(rows - space.starts[block], int(space.sizes[block]), device)))
        at = column.targets
        return _Column(tuple(pieces), at if at is None or isinstance(at, int) else torch.from_numpy(at).to(device))

    def _all_runs(self, rows: Index, size: int, device: torch.device) -> Tensor:  # (n,) -> (R x n,)
        shifts = np.arange(self.runs, dtype=np.int64)[:, None] * size
        return torch.from_numpy((shifts + rows).reshape(-1)).to(device)

    def __call__(self, blocks: Blocks) -> Tensor:  # (R, targets, N)
        """The sum of each target's rows."""
        if self.whole is not None:
            return blocks[self.whole]
        total = self._rows(self._columns[0], blocks)
        for column in self._columns[1:]:
            total = _added(total, column.targets, self._rows(column, blocks))
        return total

    def _rows(self, column: _Column, blocks: Blocks) -> Tensor:  # (R, n, N)
        picked = (blocks[block].flatten(0, 1).index_select(0, rows) for block, rows in column.pieces)
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
