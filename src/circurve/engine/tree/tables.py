"""What a latent tree keeps by state: the joint tables of its factors, and the sums over samples that gather there.

Chunks with and without missing values have tables and sums of their own; in the end the sums come together, by the
state of each single factor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.states import StateTable
from circurve.engine.tree.factors import ByLayer, by_factor, factor_values, leaf_tables, write_joint
from circurve.engine.tree.joint import JointPlan, TableSpan
from circurve.engine.tree.layout import TreeLayout
from circurve.engine.tree.memory import LevelViews, Views

__all__ = ["JointSums", "JointTables"]


class JointSums:
    """Sums over samples of rows (G L, K, N), by the joint states of the tables."""

    def __init__(self, plan: JointPlan, runs: int, parts: int, units: int, dtype: torch.dtype) -> None:
        self.plan, self.runs, self.parts, self.units = plan, runs, parts, units
        run_parts = runs * parts
        self._sums = [torch.zeros(shape.count * run_parts, shape.states, units, dtype=dtype) for shape in plan.shapes]
        self.by_span = by_span(plan, self._sums, run_parts)
        """For each level and span (G L, S, K)."""

    def clear(self) -> None:
        """Start again from zero."""
        for sums in self._sums:
            sums.zero_()

    def add(self, number: int, level: LevelViews) -> None:
        """Another chunk's rows of level `number`, which are in its block `elements`."""
        for sums, place in zip(self.by_span[number], level.spans, strict=True):
            torch.baddbmm(sums, place.indicator, place.by_sample, out=sums)

    def add_weights(self, views: Views, weight: Tensor) -> None:
        """The weights (L, 1, N) of another chunk's samples, where these sums have a single unit."""
        for sums, indicator in zip(self._sums, views.indicators, strict=True):
            columns = weight.transpose(1, 2).repeat(len(indicator), 1, 1)  # (count L, N, 1)
            torch.baddbmm(sums, indicator.flatten(0, 1), columns, out=sums)

    def by_factor(self) -> ByLayer:
        """(R, G, K, states) for each layer of factors."""
        return by_factor(self.plan, self._joint())

    def by_product(self) -> Tensor:  # (products, R, K)
        """The total over all states for each product, level by level."""
        return torch.cat([sums.sum(1) for sums in self._joint()]).index_select(0, self.plan.first_tables)

    def _joint(self) -> list[Tensor]:
        """(count, S, R, K) for each shape."""
        by_part = (sums.view(-1, self.runs, self.parts, *sums.shape[1:]) for sums in self._sums)
        return [sums.sum(2).transpose(1, 2) for sums in by_part]


class JointTables:
    """Tables and sums for chunks of one kind: with missing values, or without."""

    def __init__(self, plan: JointPlan, runs: int, parts: int, units: int, dtype: torch.dtype) -> None:
        self.plan, self.runs, self.parts, self.run_parts = plan, runs, parts, runs * parts
        self._tables = [torch.empty(s.count, runs, parts, units, s.states, dtype=dtype) for s in plan.shapes]
        self.columns = by_span(plan, [table.flatten(0, 2) for table in self._tables], self.run_parts)
        """The tables: for each level and span (G L, K, S)."""

        self._logs: list[Tensor] = []
        """What the columns of each shape were divided by, (count, R, S), in logs."""

        self.in_logs: set[int] = set()
        """The levels whose messages left the range of floating numbers, with these parameters."""

        self.leaves: dict[int, StateTable] = {}
        """The tables of the leaves on each input layer."""

        self.flow, self.square = (JointSums(plan, runs, parts, units, dtype) for _ in range(2))
        self.weight = JointSums(plan, runs, parts, 1, dtype)
        """The samples' weights, where their flows at the root add up to less (in a mixture of trees)."""

    def start(self, program: Program, tree: TreeLayout, params: Params) -> None:
        """Tables for these parameters, and sums from zero."""
        missing = self.plan.missing is not None
        self.leaves = leaf_tables(program, tree, params, missing)
        self._logs = write_joint(self.plan, factor_values(program, self.leaves, params, missing), self._tables)
        self.in_logs = set()
        for sums in (self.flow, self.square, self.weight):
            sums.clear()

    def log_scale(self, views: Views) -> Tensor:  # (L, N), float64
        """What the columns were divided by, for each sample the sum over its columns."""
        total = torch.zeros(self.run_parts, views.width, dtype=torch.float64)
        for logs, indicator in zip(self._logs, views.indicators, strict=True):
            by_part = logs.repeat_interleave(self.parts, dim=1).flatten(0, 1)
            each = torch.bmm(by_part.unsqueeze(1), indicator.flatten(0, 1))  # (count L, 1, N)
            total += each.view(-1, self.run_parts, views.width).sum(0, dtype=torch.float64)
        return total

    def weight_by_span(self, whole: bool) -> list[list[Tensor]]:
        """The samples' weights by joint state: for each level and span (G L, 1, S).

        whole: the flows of all units of a product add up to the weight of the sample.
        """
        sums = self.flow if whole else self.weight
        return [[weight.sum(-1).unsqueeze(1) for weight in level] for level in sums.by_span]

    def weight_by_factor(self, flow: ByLayer, whole: bool) -> ByLayer:
        """The samples' weights by state, (R, G, 1, states) for each layer of factors; flow: `self.flow.by_factor()`."""
        return {n: each.sum(2, keepdim=True) for n, each in flow.items()} if whole else self.weight.by_factor()


def by_span(plan: JointPlan, tables: Sequence[Tensor], run_parts: int) -> list[list[Tensor]]:
    """Tensors (count L, ...) for each shape, cut into those of each span of each level."""

    def part(span: TableSpan) -> Tensor:
        there = span.segment.there
        return tables[span.shape][there.start * run_parts : there.stop * run_parts]

    return [[part(span) for span in level] for level in plan.spans]
