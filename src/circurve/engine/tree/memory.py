"""Memory for the messages of a chunk of samples, cut once into the views that the passes read and write.

The samples of a chunk are split into P parts, since threads divide a batch of matrix products among themselves. There
are L = R P such *run parts*, and N counts the samples of one. Groups come before run parts, in shapes (G, L, K, N):
then any segment of places of a level is contiguous memory.

Each level has two large blocks, and each block holds two quantities one after the other:

    block       upward pass     downward pass
    elements    E               F, the flow of the level's products (then F^2, if curvature is asked for)
    sums        S               A = F / S

`estep.py` is the only place where one becomes the other, and gives each quantity its own name.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.tree.joint import JointPlan, TableSpan
from circurve.engine.tree.layout import TreeLayout

__all__ = ["InnerViews", "LevelViews", "MessageViews", "Pool", "SpanViews", "TreeMemory", "Views"]

MAX_VIEWS = 4
"""Sizes of chunks whose views are kept: a pass over data has two."""

ALIGNED, ALIASED, MAX_PADDING = 32, 1024, 1.05
"""Rows hold a multiple of ALIGNED samples if that adds at most 5 %, but no multiple of ALIASED: then equal places of
many rows would compete for the same lines of a cache. (Measured: either slows down small matrix products.)"""


@dataclass(frozen=True)
class SpanViews:
    """The tables of a segment of products."""

    span: TableSpan
    indicator: Tensor  # which joint state a sample has, (G L, S, N)
    elements: Tensor  # (G L, K, N)
    spare: Tensor  # (G L, K, N)
    by_sample: Tensor  # elements, (G L, N, K)


@dataclass(frozen=True)
class MessageViews:
    """Messages to a segment of products."""

    elements: Tensor  # (G, L, K, N)
    sums: Tensor  # of the next level, (G, L, K, N)
    spare: Tensor  # (G, L, K, N)


@dataclass(frozen=True)
class InnerViews:
    """The part of a level that belongs to inner products, G of them."""

    rows: slice  # where these G L are in their level
    elements: Tensor  # (G, L, K, N)
    sums: Tensor  # (G, L, K, N); at the root, the outputs for K
    spare: Tensor  # like `sums`
    spare_elements: Tensor  # like `elements`, in the same memory as `spare`


@dataclass(frozen=True)
class LevelViews:
    """The blocks of a level, and the places of its tables, messages and inner products in them."""

    elements: Tensor  # (G L, K, N)
    by_sample: Tensor  # elements, (G L, N, K)
    sums: Tensor  # (G L, K, N); at the root, the outputs for K
    spare: Tensor  # (G L, K, N)
    inner: InnerViews | None
    spans: tuple[SpanViews, ...]
    messages: tuple[MessageViews, ...]


@dataclass(frozen=True)
class Views:
    """All views for one number of samples. Axes N are `width` long; copies of the last sample fill the last parts."""

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

    def split(self, rows: Tensor) -> Tensor:  # (R, C, all samples) -> (L, C, N), zero where there is no sample
        """The samples of each run in its parts."""
        runs, columns, _ = rows.shape
        whole = torch.nn.functional.pad(rows, (0, self.parts * self.width - self.samples))
        return whole.view(runs, columns, self.parts, self.width).transpose(1, 2).reshape(-1, columns, self.width)

    def joined(self, rows: Tensor) -> Tensor:  # (L, C, N) -> (R, C, all samples)
        """The samples of each run in their order."""
        apart = rows.view(-1, self.parts, *rows.shape[1:]).transpose(1, 2)  # (R, C, P, N)
        return apart.flatten(2)[..., : self.samples]


class Pool:
    """Buffers that several trees use, one tree after the other, each for an upward pass alone."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """The buffer of this name, enlarged if necessary. Code that holds a smaller one keeps it."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < size:
            kept = self._kept[name] = torch.empty(size, dtype=dtype)
        return kept[:size]


class TreeMemory:
    """Buffers for one latent tree, R runs and P parts, used again by every chunk."""

    def __init__(self, tree: TreeLayout, runs: int, parts: int, dtype: torch.dtype, pool: Pool | None = None) -> None:
        """pool: where the buffers come from if other trees use them too."""
        self.tree, self.parts, self.run_parts, self.dtype, self.pool = tree, parts, runs * parts, dtype, pool
        self._views: dict[tuple[int, bool], Views] = {}
        self._capacity = 0
        self._indicator = torch.empty(0, dtype=dtype)
        self._marked: tuple[Views, object] | None = None

    def is_marked(self, views: Views, key: object | None) -> bool:
        """True if the indicators show the states of the batch with this key, as in full-batch EM after one step."""
        return key is not None and self._marked is not None and self._marked[0] is views and self._marked[1] is key

    def mark(self, views: Views | None, key: object | None) -> None:
        """Say which batch the indicators show; None while they are written, and where other trees write them too."""
        self._marked = None if views is None or key is None or self.pool is not None else (views, key)

    def views(self, samples: int, plan: JointPlan) -> Views:
        """Views for a chunk of this many samples, with tables of this layout."""
        width, rows, key = (
            _width(-(-samples // self.parts)),
            plan.rows * self.run_parts,
            (samples, plan.missing is not None),
        )
        if width > self._capacity:
            self._allocate(width)
        if rows * width > len(self._indicator):
            self._indicator = self._buffer("indicator", rows * self._capacity)
            self._views = {}
        if key not in self._views:
            if len(self._views) == MAX_VIEWS:
                self._views = {}
            indicators = self._cut_indicators(width, plan)
            levels = self._cut_levels(width, plan, indicators)
            self._views[key] = Views(samples, self.parts, width, self._present(samples, width), indicators, levels)
        return self._views[key]

    def _allocate(self, width: int) -> None:
        tree, self._capacity, self._views = self.tree, width, {}

        def buffer(name: str, rows: int) -> Tensor:
            return self._buffer(name, rows * self.run_parts * width)

        self._elements = buffer("elements", tree.size * tree.units)
        self._spare = buffer("spare", max(tree.widest * tree.units, tree.outputs))
        self._root, self._sums = buffer("root", tree.outputs), buffer("sums", (tree.size - 1) * tree.units)

    def _buffer(self, name: str, size: int) -> Tensor:
        return torch.empty(size, dtype=self.dtype) if self.pool is None else self.pool.take(name, size, self.dtype)

    def _present(self, samples: int, width: int) -> Tensor:
        columns = torch.arange(self.parts * width).view(self.parts, 1, width) < samples
        return columns.to(self.dtype).repeat(self.run_parts // self.parts, 1, 1)

    def _cut_indicators(self, width: int, plan: JointPlan) -> tuple[Tensor, ...]:
        found = []
        for shape in plan.shapes:
            start, size = (rows * self.run_parts * width for rows in (shape.row, shape.count * shape.states))
            found.append(self._indicator[start : start + size].view(shape.count, self.run_parts, shape.states, width))
        return tuple(found)

    def _cut_levels(self, width: int, plan: JointPlan, indicators: tuple[Tensor, ...]) -> tuple[LevelViews, ...]:
        def block(buffer: Tensor, start: int, groups: int, units: int) -> Tensor:  # (G, L, K, N)
            each = self.run_parts * units * width
            return buffer[start * each : (start + groups) * each].view(groups, self.run_parts, units, width)

        tree = self.tree
        sums = [block(self._root, 0, 1, tree.outputs)]
        sums += [block(self._sums, level.start - 1, len(level.sums), tree.units) for level in tree.levels[1:]]
        found = []
        for number, level in enumerate(tree.levels):
            elements = block(self._elements, level.start, len(level.sums), tree.units)
            spare = block(self._spare, 0, len(level.sums), tree.units)
            rows = elements.flatten(0, 1)
            found.append(
                LevelViews(
                    rows,
                    rows.transpose(1, 2),
                    sums[number].flatten(0, 1),
                    spare.flatten(0, 1),
                    _inner_views(level.inner, elements, sums[number], self._spare) if level.inner else None,
                    tuple(_span_views(s, indicators[s.shape], elements, spare) for s in plan.spans[number]),
                    tuple(
                        MessageViews(elements[s.here], sums[number + 1][s.there], spare[s.here])
                        for segments in level.messages
                        for s in segments
                    ),
                )
            )
        return tuple(found)


def _width(samples: int) -> int:
    rounded = -(-samples // ALIGNED) * ALIGNED
    rounded += ALIGNED if rounded % ALIASED == 0 else 0
    return rounded if rounded <= MAX_PADDING * samples else samples


def _inner_views(inner: int, elements: Tensor, sums: Tensor, spare: Tensor) -> InnerViews:
    rows, sent = elements[:inner], sums[:inner]
    spares = (spare[: each.numel()].view(each.shape) for each in (sent, rows))
    return InnerViews(slice(inner * elements.shape[1]), rows, sent, *spares)


def _span_views(span: TableSpan, indicator: Tensor, elements: Tensor, spare: Tensor) -> SpanViews:
    here, there = span.segment.here, span.segment.there
    rows, spare_rows, chosen = (block.flatten(0, 1) for block in (elements[here], spare[here], indicator[there]))
    return SpanViews(span, chosen, rows, spare_rows, rows.transpose(1, 2))
