"""A latent tree with memory for R runs and P parts of their samples, and the parameters of the moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.tree.factors import mark_states
from circurve.engine.tree.joint import JointPlans
from circurve.engine.tree.layout import TreeLayout
from circurve.engine.tree.memory import Pool, TreeMemory, Views
from circurve.engine.tree.messages import OnLevel, upward
from circurve.engine.tree.tables import JointTables

__all__ = ["BoundTree", "UpwardPass", "versions_of"]


@dataclass(frozen=True)
class UpwardPass:
    """A chunk whose messages have reached the root."""

    outputs: Tensor  # log p, (R, outputs, N), float64
    views: Views
    tables: JointTables


class BoundTree:
    """Chunks of about one size are computed in the same memory."""

    def __init__(
        self,
        program: Program,
        layout: TreeLayout,
        plans: JointPlans,
        like: Tensor,
        parts: int,
        pool: Pool | None = None,
    ) -> None:
        """like: a tensor (R, ...) in the precision to compute in; pool: of buffers that other trees use too."""
        self.program, self.layout, self.plans, self.runs = program, layout, plans, int(like.shape[0])
        self.memory = TreeMemory(layout, self.runs, parts, like.dtype, pool)
        rows = [layout.outputs, *[layout.units] * (len(layout.levels) - 1)]
        levels = zip(layout.levels, rows, strict=True)
        shapes = [(len(level.sums), self.runs, parts, k, layout.units) for level, k in levels]
        self._stacked = [torch.empty(shape, dtype=like.dtype) for shape in shapes]
        self.weights = [stacked.flatten(0, 2) for stacked in self._stacked]
        """For each level, (G L, K, K)."""

        self.places = self._places(rows)
        """The places of the units of all levels among all sum units of the circuit."""

        self.senders = self._senders()
        """For each sum but the root, level by level, the product that it is a message to, among those of all levels."""

        self._params: Params | None = None
        self._versions: tuple[int, ...] = ()
        self._kinds: dict[bool, JointTables] = {}
        self._started: dict[bool, JointTables] = {}

    def _places(self, units: Sequence[int]) -> Tensor:
        """units: of a sum in each level."""
        starts = self.program.unit_starts
        spans = [
            torch.arange(k) + int(starts[layer]) + position * k
            for level, k in zip(self.layout.levels, units, strict=True)
            for layer, position in level.sums
        ]
        return torch.cat(spans)

    def _senders(self) -> Tensor:
        found = torch.zeros(self.layout.size - 1, dtype=torch.int64)
        for level, following in pairwise(self.layout.levels):
            for segment in (segment for segments in level.messages for segment in segments):
                first = following.start - 1 + segment.other  # the root is not among them
                found[first : first + segment.length] = torch.arange(segment.length) + level.start + segment.first
        return found

    @property
    def started(self) -> list[JointTables]:
        """The tables that chunks were added to since `load`."""
        return list(self._started.values())

    def load(self, params: Params) -> None:
        """Work with these parameters from now on; all sums start from zero."""
        self._params, self._versions = params, versions_of(params)
        for level, stacked in zip(self.layout.levels, self._stacked, strict=True):
            weights = [params.weights[layer].select(1, position) for layer, position in level.sums]  # (R, K, K) each
            stacked.copy_(torch.stack(weights).unsqueeze(2))
        self._started = {}

    def load_values(self, params: Params) -> None:
        """Load parameters for an upward pass only: nothing is done if these parameters are loaded and did not
        change."""
        if params is not self._params or versions_of(params) != self._versions:
            self.load(params)

    def upward(self, batch: Batch, on_level: OnLevel | None = None) -> UpwardPass | None:
        """Send messages up, with elements of length 1 if `on_level` is given; None if a sample is impossible."""
        tables, memory = self._tables(batch.observed is not None), self.memory
        views = memory.views(batch.size, tables.plan)
        if not memory.is_marked(views, batch.key):
            memory.mark(None, None)
            mark_states(tables.plan, views, batch)
            memory.mark(views, batch.key)
        outputs = upward(views, self.weights, tables, on_level)
        return None if outputs is None else UpwardPass(outputs, views, tables)

    def _tables(self, missing: bool) -> JointTables:
        """The tables for chunks with or without missing values, made for the present parameters."""
        assert self._params is not None, "load comes first"
        if missing not in self._kinds:
            memory = self.memory
            self._kinds[missing] = JointTables(
                self.plans[missing], self.runs, memory.parts, self.layout.units, memory.dtype
            )
        if missing not in self._started:
            self._kinds[missing].start(self.program, self.layout, self._params)
            self._started[missing] = self._kinds[missing]
        return self._started[missing]


def versions_of(params: Params) -> tuple[int, ...]:
    """How often each tensor was changed in place; tensors made in inference mode do not count it."""
    tensors = (*params.weights, *params.inputs)
    return tuple(0 if tensor.is_inference() else tensor._version for tensor in tensors)
