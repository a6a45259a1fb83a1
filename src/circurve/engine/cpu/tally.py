"""What a latent tree keeps by state: the joint tables of its factors, and the sums over samples that gather there.

Chunks with and without missing values have tables and sums of their own; in the end the sums come together, by the
state of each single factor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.engine.cpu.factors import ByLayer, by_factor, factor_values, leaf_tables, write_joint
from circurve.engine.cpu.joint import JointPlan, Spread
from circurve.engine.cpu.tree import LatentTree
from circurve.engine.cpu.views import LevelViews, Views
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.tables import StateTable

__all__ = ["JointSums", "Tally"]


class JointSums:
    """Sums over samples of rows (G L, K, N), by the joint states of the tables."""

    def __init__(self, plan: JointPlan, runs: int, parts: int, units: int, dtype: torch.dtype) -> None:
        self.plan, self.runs, self.parts, self.units = plan, runs, parts, units
        lanes = runs * parts
        self._sums = [torch.zeros(shape.count * lanes, shape.states, units, dtype=dtype) for shape in plan.shapes]
        self.by_spread = by_spread(plan, self._sums, lanes)
        """For each level and spread (G L, S, K)."""

    def clear(self) -> None:
        """Start again from zero."""
        for sums in self._sums:
            sums.zero_()

    def add(self, number: int, level: LevelViews) -> None:
        """Another chunk's rows of level `number`, in the place of its elements."""
        for sums, place in zip(self.by_spread[number], level.spreads, strict=True):
            torch.baddbmm(sums, place.indicator, place.by_sample, out=sums)

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


class Tally:
    """Tables and sums for chunks of one kind."""

    def __init__(self, plan: JointPlan, runs: int, parts: int, units: int, dtype: torch.dtype) -> None:
        self.plan, self.runs, self.parts, self.lanes = plan, runs, parts, runs * parts
        self._tables = [torch.empty(s.count, runs, parts, units, s.states, dtype=dtype) for s in plan.shapes]
        self.columns = by_spread(plan, [table.flatten(0, 2) for table in self._tables], self.lanes)
        """The tables: for each level and spread (G L, K, S)."""

        self.in_logs: set[int] = set()
        """The levels for which linear space has proved too narrow, with these parameters."""

        self.leaves: dict[int, StateTable] = {}
        self.flow, self.square = (JointSums(plan, runs, parts, units, dtype) for _ in range(2))

    def start(self, program: Program, tree: LatentTree, params: Params) -> None:
        """Tables for new parameters, and sums from zero."""
        missing = self.plan.missing is not None
        self.leaves = leaf_tables(program, tree, params, missing)
        self._logs = write_joint(self.plan, factor_values(program, self.leaves, params, missing), self._tables)
        self.in_logs = set()
        self.flow.clear()
        self.square.clear()

    def log_scale(self, views: Views) -> Tensor:  # (L, N), float64
        """What the columns were divided by, for each sample the sum over its columns."""
        total = torch.zeros(self.lanes, views.width, dtype=torch.float64)
        for logs, indicator in zip(self._logs, views.indicators, strict=True):
            by_lane = logs.repeat_interleave(self.parts, dim=1).flatten(0, 1)
            each = torch.bmm(by_lane.unsqueeze(1), indicator.flatten(0, 1))  # (count L, 1, N)
            total += each.view(-1, self.lanes, views.width).sum(0, dtype=torch.float64)
        return total

    def weight_by_spread(self) -> list[list[Tensor]]:
        """The samples' weights by joint state: for each level and spread (G L, 1, S).

        The flows of all units of a product add up to the weight of the sample.
        """
        return [[flow.sum(-1).unsqueeze(1) for flow in level] for level in self.flow.by_spread]


def by_spread(plan: JointPlan, tables: Sequence[Tensor], lanes: int) -> list[list[Tensor]]:
    """Tensors (count L, ...) for each shape, cut into those of each spread of each level."""

    def part(spread: Spread) -> Tensor:
        there = spread.stretch.there
        return tables[spread.shape][there.start * lanes : there.stop * lanes]

    return [[part(spread) for spread in level] for level in plan.spreads]
