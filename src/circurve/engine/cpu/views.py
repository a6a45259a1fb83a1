"""Memory for the messages of a chunk of samples, cut once into the views that the passes read and write.

The samples of a chunk are split into P parts, since threads share out a batch of matrix products one by one. A part of
one run is a *lane*; there are L = R P of them, and N counts the samples of a lane. Groups lie before lanes, in shapes
(G, L, K, N): then any stretch of places of a level is contiguous memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cpu.joint import JointPlan, Spread
from circurve.engine.cpu.tree import LatentTree

__all__ = ["BusyViews", "LevelViews", "MessageViews", "SpreadViews", "TreeMemory", "Views"]

MOST_VIEWS = 4
"""Sizes of chunks whose views are kept: a pass over data has two."""

ALIGNED, ALIASED, WASTE = 32, 1024, 1.05
"""Rows hold a multiple of ALIGNED samples where that costs little, but no multiple of ALIASED, for then equal places of
many rows would compete for the same lines of a cache. (Measured: either slows down small matrix products.)"""


@dataclass(frozen=True)
class SpreadViews:
    """The tables of a stretch of products."""

    spread: Spread
    indicator: Tensor  # which joint state a sample has, (G L, S, N)
    elements: Tensor  # (G L, K, N)
    spare: Tensor  # (G L, K, N)
    by_sample: Tensor  # elements, (G L, N, K)


@dataclass(frozen=True)
class MessageViews:
    """Messages to a stretch of products."""

    elements: Tensor  # (G, L, K, N)
    scaled: Tensor  # of the next level, (G, L, K, N)
    spare: Tensor  # (G, L, K, N)


@dataclass(frozen=True)
class BusyViews:
    """The part of a level that belongs to busy products, G of them."""

    rows: slice  # where these G L are in their level
    elements: Tensor  # (G, L, K, N)
    scaled: Tensor  # (G, L, K, N); at the root, the outputs for K
    spare: Tensor  # like `scaled`
    spare_elements: Tensor  # like `elements`, in the same memory as `spare`


@dataclass(frozen=True)
class LevelViews:
    """A level: E and S on the way up, which become F and A on the way down."""

    elements: Tensor  # (G L, K, N)
    by_sample: Tensor  # elements, (G L, N, K)
    scaled: Tensor  # (G L, K, N); at the root, the outputs for K
    spare: Tensor  # (G L, K, N)
    busy: BusyViews | None
    spreads: tuple[SpreadViews, ...]
    messages: tuple[MessageViews, ...]


@dataclass(frozen=True)
class Views:
    """All views for one number of samples. Axes N are `width` long; copies of the last sample fill the last lanes."""

    samples: int
    parts: int
    width: int
    present: Tensor  # one for a sample, zero for a copy, (L, 1, N)
    indicators: tuple[Tensor, ...]  # (tables, L, S, N) for each shape of tables
    levels: tuple[LevelViews, ...]

    @property
    def padded(self) -> bool:
        """Whether there are more columns than samples."""
        return self.parts * self.width > self.samples

    def to_lanes(self, rows: Tensor) -> Tensor:  # (R, C, all samples) -> (L, C, N), zero where there is no sample
        """Split the samples of each run into its lanes."""
        runs, columns, _ = rows.shape
        whole = torch.nn.functional.pad(rows, (0, self.parts * self.width - self.samples))
        return whole.view(runs, columns, self.parts, self.width).transpose(1, 2).reshape(-1, columns, self.width)

    def from_lanes(self, rows: Tensor) -> Tensor:  # (L, C, N) -> (R, C, all samples)
        """The samples of each run in their order again."""
        apart = rows.view(-1, self.parts, *rows.shape[1:]).transpose(1, 2)  # (R, C, P, N)
        return apart.flatten(2)[..., : self.samples]


class TreeMemory:
    """Buffers for one latent tree, R runs and P parts, used again by every chunk."""

    def __init__(self, tree: LatentTree, lanes: int, parts: int, dtype: torch.dtype) -> None:
        self.tree, self.parts, self.lanes, self.dtype = tree, parts, lanes, dtype
        self._views: dict[tuple[int, bool], Views] = {}
        self._capacity = 0
        self._indicator = torch.empty(0, dtype=dtype)
        self.marked: tuple[Views, object | None] | None = None
        """The key of the batch whose states the indicators show."""

    def holds(self, views: Views, batch: Batch) -> bool:
        """Whether the same samples are marked already, as in each step on a full batch but the first."""
        if self.marked is None or batch.key is None:
            return False
        return self.marked[0] is views and self.marked[1] is batch.key

    def views(self, samples: int, plan: JointPlan) -> Views:
        """Views for a chunk of so many samples, with tables laid out like this."""
        width, rows, key = (
            _width(-(-samples // self.parts)),
            plan.rows * self.lanes,
            (samples, plan.missing is not None),
        )
        if width > self._capacity:
            self._allocate(width)
        if rows * width > len(self._indicator):
            self._indicator = torch.empty(rows * self._capacity, dtype=self.dtype)
            self._views = {}
        if key not in self._views:
            if len(self._views) == MOST_VIEWS:
                self._views = {}
            indicators = self._cut_indicators(width, plan)
            levels = self._cut_levels(width, plan, indicators)
            self._views[key] = Views(samples, self.parts, width, self._present(samples, width), indicators, levels)
        return self._views[key]

    def _allocate(self, width: int) -> None:
        tree, self._capacity, self._views = self.tree, width, {}

        def buffer(rows: int) -> Tensor:
            return torch.empty(rows * self.lanes * width, dtype=self.dtype)

        self._elements = buffer(tree.size * tree.units)
        self._spare = buffer(max(tree.widest * tree.units, tree.outputs))
        self._root, self._scaled = buffer(tree.outputs), buffer((tree.size - 1) * tree.units)

    def _present(self, samples: int, width: int) -> Tensor:
        columns = torch.arange(self.parts * width).view(self.parts, 1, width) < samples
        return columns.to(self.dtype).repeat(self.lanes // self.parts, 1, 1)

    def _cut_indicators(self, width: int, plan: JointPlan) -> tuple[Tensor, ...]:
        found = []
        for shape in plan.shapes:
            start, size = (rows * self.lanes * width for rows in (shape.row, shape.count * shape.states))
            found.append(self._indicator[start : start + size].view(shape.count, self.lanes, shape.states, width))
        return tuple(found)

    def _cut_levels(self, width: int, plan: JointPlan, indicators: tuple[Tensor, ...]) -> tuple[LevelViews, ...]:
        def block(buffer: Tensor, start: int, groups: int, units: int) -> Tensor:  # (G, L, K, N)
            each = self.lanes * units * width
            return buffer[start * each : (start + groups) * each].view(groups, self.lanes, units, width)

        tree = self.tree
        scaled = [block(self._root, 0, 1, tree.outputs)]
        scaled += [block(self._scaled, level.start - 1, len(level.sums), tree.units) for level in tree.levels[1:]]
        found = []
        for number, level in enumerate(tree.levels):
            elements = block(self._elements, level.start, len(level.sums), tree.units)
            spare = block(self._spare, 0, len(level.sums), tree.units)
            rows = elements.flatten(0, 1)
            found.append(
                LevelViews(
                    rows,
                    rows.transpose(1, 2),
                    scaled[number].flatten(0, 1),
                    spare.flatten(0, 1),
                    _busy_views(level.busy, elements, scaled[number], self._spare) if level.busy else None,
                    tuple(_spread_views(s, indicators[s.shape], elements, spare) for s in plan.spreads[number]),
                    tuple(
                        MessageViews(elements[s.here], scaled[number + 1][s.there], spare[s.here])
                        for turn in level.messages
                        for s in turn
                    ),
                )
            )
        return tuple(found)


def _width(samples: int) -> int:
    rounded = -(-samples // ALIGNED) * ALIGNED
    rounded += ALIGNED if rounded % ALIASED == 0 else 0
    return rounded if rounded <= WASTE * samples else samples


def _busy_views(busy: int, elements: Tensor, scaled: Tensor, spare: Tensor) -> BusyViews:
    rows, sent = elements[:busy], scaled[:busy]
    spares = (spare[: each.numel()].view(each.shape) for each in (sent, rows))
    return BusyViews(slice(busy * elements.shape[1]), rows, sent, *spares)


def _spread_views(spread: Spread, indicator: Tensor, elements: Tensor, spare: Tensor) -> SpreadViews:
    here, there = spread.stretch.here, spread.stretch.there
    rows, spare_rows, chosen = (block.flatten(0, 1) for block in (elements[here], spare[here], indicator[there]))
    return SpreadViews(spread, chosen, rows, spare_rows, rows.transpose(1, 2))
