"""Memory for the messages of a chunk of samples, cut once into the views that the passes read and write.

Groups lie before runs here, (G, R, K, N): then any stretch of places of a level is contiguous memory, for any R.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.cpu.joint import JointPlan, Spread, plan_tables
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
    rows: slice  # where these G R are in their level
    indicator: Tensor  # which joint state a sample has, (G R, S, N)
    elements: Tensor  # (G R, K, N)
    spare: Tensor  # (G R, K, N)
    by_sample: Tensor  # elements, (G R, N, K)


@dataclass(frozen=True)
class MessageViews:
    """Messages to a stretch of products."""

    elements: Tensor  # (G, R, K, N)
    scaled: Tensor  # of the next level, (G, R, K, N)
    spare: Tensor  # (G, R, K, N)


@dataclass(frozen=True)
class BusyViews:
    """The part of a level that belongs to busy products, G of them."""

    rows: slice  # where these G R are in their level
    elements: Tensor  # (G, R, K, N)
    scaled: Tensor  # (G, R, K, N); at the root, the outputs for K
    spare: Tensor  # like `scaled`


@dataclass(frozen=True)
class LevelViews:
    """A level: E and S on the way up, which become F and A on the way down."""

    elements: Tensor  # (G R, K, N)
    by_sample: Tensor  # elements, (G R, N, K)
    scaled: Tensor  # (G R, K, N); at the root, the outputs for K
    spare: Tensor  # (G R, K, N)
    busy: BusyViews | None
    spreads: tuple[SpreadViews, ...]
    messages: tuple[MessageViews, ...]


@dataclass(frozen=True)
class Views:
    """All views for one number of samples. Axes N are `width` long; copies of the last sample fill the end."""

    samples: int
    width: int
    indicators: tuple[Tensor, ...]  # (tables, R, S, N) for each shape of tables
    levels: tuple[LevelViews, ...]


class TreeMemory:
    """Buffers for one latent tree and R runs, used again by every chunk."""

    def __init__(self, tree: LatentTree, runs: int, dtype: torch.dtype) -> None:
        self.tree, self.runs, self.dtype = tree, runs, dtype
        self._plans: dict[bool, JointPlan] = {}
        self._views: dict[tuple[int, bool], Views] = {}
        self._capacity = 0
        self._indicator = torch.empty(0, dtype=dtype)

    def plan(self, missing: bool) -> JointPlan:
        """The layout of the tables, for data with or without missing values."""
        if missing not in self._plans:
            self._plans[missing] = plan_tables(self.tree, missing)
        return self._plans[missing]

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs."""
        tree = self.tree
        rows = 2 * tree.size * tree.units + tree.outputs + self.plan(missing=True).rows
        rows += max(tree.widest * tree.units, tree.outputs) if backward else 0
        return rows * self.runs * torch.finfo(self.dtype).bits // 8

    def views(self, samples: int, missing: bool) -> Views:
        """Views for a chunk of so many samples."""
        width, rows = _width(samples), self.plan(missing).rows * self.runs
        if width > self._capacity:
            self._allocate(width)
        if rows * width > len(self._indicator):
            self._indicator = torch.empty(rows * self._capacity, dtype=self.dtype)
            self._views = {}
        if (samples, missing) not in self._views:
            if len(self._views) == MOST_VIEWS:
                self._views = {}
            indicators = self._cut_indicators(width, self.plan(missing))
            levels = self._cut_levels(width, self.plan(missing), indicators)
            self._views[samples, missing] = Views(samples, width, indicators, levels)
        return self._views[samples, missing]

    def _allocate(self, width: int) -> None:
        tree, self._capacity, self._views = self.tree, width, {}

        def buffer(rows: int) -> Tensor:
            return torch.empty(rows * self.runs * width, dtype=self.dtype)

        self._elements = buffer(tree.size * tree.units)
        self._spare = buffer(max(tree.widest * tree.units, tree.outputs))
        self._root, self._scaled = buffer(tree.outputs), buffer((tree.size - 1) * tree.units)

    def _cut_indicators(self, width: int, plan: JointPlan) -> tuple[Tensor, ...]:
        found = []
        for shape in plan.shapes:
            start, size = (rows * self.runs * width for rows in (shape.row, shape.count * shape.states))
            found.append(self._indicator[start : start + size].view(shape.count, self.runs, shape.states, width))
        return tuple(found)

    def _cut_levels(self, width: int, plan: JointPlan, indicators: tuple[Tensor, ...]) -> tuple[LevelViews, ...]:
        def block(buffer: Tensor, start: int, groups: int, units: int) -> Tensor:  # (G, R, K, N)
            each = self.runs * units * width
            return buffer[start * each : (start + groups) * each].view(groups, self.runs, units, width)

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
    sent = scaled[:busy]
    return BusyViews(slice(busy * elements.shape[1]), elements[:busy], sent, spare[: sent.numel()].view(sent.shape))


def _spread_views(spread: Spread, indicator: Tensor, elements: Tensor, spare: Tensor) -> SpreadViews:
    stretch, runs = spread.stretch, indicator.shape[1]
    rows = elements[stretch.here].flatten(0, 1)
    return SpreadViews(
        spread,
        stretch.rows(runs),
        indicator[stretch.there].flatten(0, 1),
        rows,
        spare[stretch.here].flatten(0, 1),
        rows.transpose(1, 2),
    )
