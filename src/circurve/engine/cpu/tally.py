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
    """Sums over samples of rows (G R, K, N), by the joint states of the tables."""

    def __init__(self, plan: JointPlan, runs: int, units: int, dtype: torch.dtype) -> None:
        self.plan, self.runs, self.units = plan, runs, units
        self._sums = [torch.zeros(shape.count * runs, shape.states, units, dtype=dtype) for shape in plan.shapes]
        self._by_spread = by_spread(plan, self._sums, runs)

    def clear(self) -> None:
        """Start again from zero."""
        for sums in self._sums:
            sums.zero_()

    def add(self, number: int, level: LevelViews) -> None:
        """Another chunk's rows of level `number`, in the place of its elements."""
        for sums, place in zip(self._by_spread[number], level.spreads, strict=True):
            torch.baddbmm(sums, place.indicator, place.by_sample, out=sums)

    def by_factor(self) -> ByLayer:
        """(R, G, K, states) for each layer of factors."""
        return by_factor(self.plan, self._joint())

    def by_place(self, groups: Sequence[int]) -> list[Tensor]:
        """The total over all states for each product: (G, R, K) for each level; groups: their G."""
        joint, found = self._joint(), []
        for count, level in zip(groups, self.plan.spreads, strict=True):
            totals = joint[0].new_empty(count, self.runs, self.units)
            for spread in level:
                if spread.turn == 0:
                    totals[spread.stretch.here] = joint[spread.shape][spread.stretch.there].sum(1)
            found.append(totals)
        return found

    def _joint(self) -> list[Tensor]:
        """(count, S, R, K) for each shape."""
        return [sums.view(-1, self.runs, *sums.shape[1:]).transpose(1, 2) for sums in self._sums]


class Tally:
    """Tables and sums for chunks of one kind."""

    def __init__(self, plan: JointPlan, runs: int, units: int, dtype: torch.dtype) -> None:
        self.plan, self.runs, self.units = plan, runs, units
        self._tables = [torch.empty(shape.count, runs, units, shape.states, dtype=dtype) for shape in plan.shapes]
        self.columns = by_spread(plan, [table.flatten(0, 1) for table in self._tables], runs)
        """The tables: for each level and spread (G R, K, S)."""

        self.in_logs: set[int] = set()
        """The levels for which linear space has proved too narrow, with these parameters."""

        self.leaves: dict[int, StateTable] = {}
        self.flow, self.square = (JointSums(plan, runs, units, dtype) for _ in range(2))
        self.weight = [torch.zeros(shape.count, shape.states, runs, 1, dtype=dtype) for shape in plan.shapes]

    def start(self, program: Program, tree: LatentTree, params: Params) -> None:
        """Tables for new parameters, and sums from zero."""
        missing = self.plan.missing is not None
        self.leaves = leaf_tables(program, tree, params, missing)
        self._norms: list[list[Tensor]] | None = None
        self._logs = write_joint(self.plan, factor_values(program, self.leaves, params, missing), self._tables)
        self.in_logs = set()
        self.flow.clear()
        self.square.clear()
        for weight in self.weight:
            weight.zero_()

    def log_scale(self, views: Views) -> Tensor:  # (R, N), float64
        """What the columns were divided by, for each sample the sum over its columns."""
        total = torch.zeros(self.runs, views.width, dtype=torch.float64)
        for logs, indicator in zip(self._logs, views.indicators, strict=True):
            each = torch.bmm(logs.flatten(0, 1).unsqueeze(1), indicator.flatten(0, 1))  # (count R, 1, N)
            total += each.view(-1, self.runs, views.width).sum(0, dtype=torch.float64)
        return total

    def add_weight(self, views: Views, weight: Tensor, ones: bool) -> None:
        """The samples' weights (R, N) of a chunk by joint state; `ones` says that all of them are 1."""
        for total, indicator in zip(self.weight, views.indicators, strict=True):
            chosen = indicator[..., : views.samples]
            chosen = chosen if ones else chosen * weight[:, None]
            total.add_(chosen.sum(-1).transpose(1, 2).unsqueeze(-1))  # (count, S, R, 1)

    def column_norms(self) -> list[list[Tensor]]:
        """The square root of q, the sum of the squares of each column: for each level and spread (G R, 1, S)."""
        if self._norms is None:
            norms = [torch.linalg.vector_norm(table, dim=2).flatten(0, 1).unsqueeze(1) for table in self._tables]
            self._norms = by_spread(self.plan, norms, self.runs)
        return self._norms

    def weight_by_spread(self) -> list[list[Tensor]]:
        """The samples' weights by joint state: for each level and spread (G R, 1, S)."""
        by_run = [weight.permute(0, 2, 3, 1).flatten(0, 1) for weight in self.weight]
        return by_spread(self.plan, by_run, self.runs)

    def weight_by_factor(self) -> ByLayer:
        """The samples' weights by the state of each factor: (R, G, 1, states) for each layer."""
        return by_factor(self.plan, self.weight)


def by_spread(plan: JointPlan, tables: Sequence[Tensor], runs: int) -> list[list[Tensor]]:
    """Tensors (count R, ...) for each shape, cut into those of each spread of each level."""

    def part(spread: Spread) -> Tensor:
        there = spread.stretch.there
        return tables[spread.shape][there.start * runs : there.stop * runs]

    return [[part(spread) for spread in level] for level in plan.spreads]
