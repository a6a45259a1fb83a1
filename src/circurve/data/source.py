"""Where rows come from, as training, scores and structures see it: a table in memory, or a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from circurve.data.convert import Names
from circurve.schema import Schema

if TYPE_CHECKING:
    from circurve.data.table import Table

__all__ = ["RowSource", "block_order"]


class RowSource(Protocol):
    """Rows of a table, by number. `Table` has them in memory; `Stream` fetches those that are asked for."""

    @property
    def schema(self) -> Schema | None:
        """The families that the values were checked against; None before the check."""

    @property
    def columns(self) -> Names:
        """The names of the columns; None if they have none."""

    @property
    def weights(self) -> Tensor | None:  # (N,)
        """How much each row counts; None: each row once."""

    @property
    def labels(self) -> Tensor | None:  # (N,)
        """Which output of a circuit with several each row belongs to."""

    @property
    def shape(self) -> tuple[int, int]:
        """(N, V)."""

    @property
    def nbytes(self) -> int:
        """The largest number of bytes in memory."""

    @property
    def known_values(self) -> int:
        """How many values are not missing."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> Any:
        """Cells as a numpy array, NaN where one is missing: `source[:100, 3]`."""

    def order(self, generator: torch.Generator) -> Tensor:  # (N,)
        """The rows in random order, for one epoch; the generator alone decides which."""

    def take(self, index: Tensor) -> tuple[Table, Tensor]:
        """A table in memory that holds these rows, and their places in it, in the shape of the index."""

    def span(self, start: int, stop: int) -> tuple[Table, slice]:
        """A table in memory that holds these consecutive rows, and where."""

    def rows(self, index: Any) -> RowSource:
        """A choice of rows: a slice, a list of row numbers or a mask."""

    def to(self, device: str | torch.device) -> RowSource:
        """A source of the same rows, whose `take` returns tables on this device."""


def block_order(
    sizes: Sequence[int], window: int, generator: torch.Generator, joined: Sequence[int] | None = None
) -> Tensor:  # (N,)
    """Rows in an order that can be read block by block: blocks in random order, then rows mixed within windows.

    sizes: rows of each block, one block after the other. A window is the next blocks with at least `window` rows in
    all. Rows of different windows never mix, so two windows are all that has to be in memory at a time.
    joined: a number for each block; blocks of one number stay together, in their own order.
    """
    starts = torch.tensor([0, *sizes]).cumsum(0)
    order = torch.empty(int(starts[-1]), dtype=torch.int64)  # as long as the data: it is filled, not joined from parts
    parts: list[Tensor] = []
    filled = waiting = 0
    for block in _block_numbers(len(sizes), generator, joined):
        parts.append(torch.arange(int(starts[block]), int(starts[block + 1])))
        waiting += len(parts[-1])
        if waiting >= window:
            order[filled : filled + waiting] = _mixed(parts, generator)
            filled, waiting, parts = filled + waiting, 0, []
    order[filled:] = _mixed(parts, generator)
    return order


def _block_numbers(count: int, generator: torch.Generator, joined: Sequence[int] | None) -> list[int]:
    if joined is None:
        return torch.randperm(count, generator=generator).tolist()
    groups: dict[int, list[int]] = {}
    for block, group in enumerate(joined):
        groups.setdefault(group, []).append(block)
    listed = list(groups.values())
    order = torch.randperm(len(listed), generator=generator).tolist()
    return [block for place in order for block in listed[place]]


def _mixed(parts: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    rows = torch.cat([torch.zeros(0, dtype=torch.int64), *parts])
    return rows[torch.randperm(len(rows), generator=generator)]
