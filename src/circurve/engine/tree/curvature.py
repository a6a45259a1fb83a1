"""Curvature sums of the sums of a latent tree that are no leaves.

Elements have length 1 here, so that q = 1: t_kn = 1 / S_kn^2, added up on the way up, while S is in the caches, and
T_kn = A_kn^2, on the way down, together with F_kn t_kn = A_kn / S_kn. For tabulated products S is a function of the
joint state: t comes from the states in the end. Flows and their squares are summed by joint state, because the leaves
need them by state; their totals are the sums of F and F^2 of a message.

Every method is given the quantities that it reads; none of them keeps a tensor of a chunk beyond the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.numerics import MAX_TERM
from circurve.engine.statistics import Request
from circurve.engine.tree.memory import LevelViews, Views
from circurve.engine.tree.messages import OnLevel
from circurve.engine.tree.tables import JointTables

__all__ = ["SampleWeights", "TreeCurvature"]


@dataclass(frozen=True)
class SampleWeights:
    """The weights of a chunk's samples."""

    weight: Tensor  # zero for samples that are impossible, (L, 1, N)
    inverse: Tensor | None  # 1 / weight or 0, (L, 1, N); None if all weights are 1

    def for_rows(self, factor: Tensor, rows: int) -> Tensor:  # (L, 1, N) -> (G L, 1, N)
        """A factor of each sample, for all rows of a level."""
        return factor.repeat(rows // len(factor), 1, 1)


class TreeCurvature:
    """Sums over samples for each level: of units (2 or 4, G L, K) in float64, of edges (G L, K, K)."""

    def __init__(self, request: Request, run_parts: int, weights: Sequence[Tensor]) -> None:
        self.request, self.run_parts = request, run_parts
        sizes = [w.shape[0] * w.shape[1] for w in weights]
        # of a chunk: the lengths of 1 / S and A over samples, and the sums of A / S and F log S
        self._chunk = weights[0].new_zeros(4 if request.flow_weighted else 2, sum(sizes))
        self._sums = torch.zeros_like(self._chunk, dtype=torch.float64)

        def by_level(units: Tensor) -> list[Tensor]:  # (2 or 4, G L, K) for each level
            parts = torch.split(units, sizes, dim=1)
            return [part.view(len(units), *w.shape[:2]) for part, w in zip(parts, weights, strict=True)]

        self._by_level, self.units = by_level(self._chunk), by_level(self._sums)
        """t, T, and then F t and F log t of each level, (2 or 4, G L, K)."""

        self.ratio = [torch.zeros_like(w) for w in weights] if request.mean_ratio else []
        self.second = [torch.zeros_like(w) for w in weights] if request.second_moment else []
        self.squared = [torch.zeros_like(w) for w in weights] if request.squared_ratio else []
        self._scratch = [weights[0].new_empty(0) for _ in range(2)]

    def on_level(self, weights: Tensor | None) -> OnLevel:
        """What the upward pass of a chunk calls for each level; weights: of the samples (R or 1, N)."""
        roots = None if weights is None else weights.sqrt().unsqueeze(1)  # (R or 1, 1, N)
        return lambda views, number: self.add_local(number, views, roots)

    def add_local(self, number: int, views: Views, root_weights: Tensor | None) -> None:
        """t = 1 / S^2 of the inner products of a level. Overwrites `spare`.

        root_weights: the square roots of the samples' weights, (R or 1, 1, N); None if all are 1.
        """
        inner = views.levels[number].inner
        if inner is None or not self.request.unit_kinds:
            return
        inverse = torch.div(views.present, inner.sums, out=inner.spare)
        if root_weights is not None:
            inverse.mul_(views.split(root_weights.expand(self.run_parts // views.parts, -1, -1)))
        torch.linalg.vector_norm(inverse.flatten(0, 1), dim=-1, out=self._by_level[number][0, inner.rows])

    def add_ratios(self, number: int, level: LevelViews, samples: SampleWeights) -> None:
        """rho = E / S and rho^2 of the inner products of a level that holds E and S. Overwrites `spare`."""
        inner = level.inner
        if inner is None:
            return
        if self.request.mean_ratio:
            per_unit = torch.div(samples.weight, inner.sums, out=inner.spare).flatten(0, 1)
            self.ratio[number][inner.rows].baddbmm_(per_unit, level.by_sample[inner.rows])
        if self.request.squared_ratio:
            per_unit = torch.square(inner.sums, out=self._like(inner.sums)).reciprocal_().mul_(samples.weight)
            per_unit.clamp_max_(MAX_TERM[per_unit.dtype])  # infinity times an element of zero would be NaN
            squares = torch.square(inner.elements, out=inner.spare_elements)
            self.squared[number][inner.rows].baddbmm_(per_unit.flatten(0, 1), squares.flatten(0, 1).transpose(1, 2))

    def factors(self, sums: Tensor) -> tuple[Tensor, Tensor] | None:
        """1 / S and S log S of a level (G L, K, N), for `add_flow_weighted`, before A takes the place of S."""
        if not self.request.flow_weighted:
            return None
        return torch.reciprocal(sums, out=self._like(sums)), torch.log(sums, out=self._like(sums, 1)).mul_(sums)

    def add_flow_weighted(self, number: int, ratio: Tensor, factors: tuple[Tensor, Tensor] | None) -> None:
        """F t = A (1 / S) and -F log t / 2 = A (S log S) of a level, from A (G L, K, N).

        Flows hold the samples' weights, so that nothing else has to be weighted. A / S is at most w / S^2: finite in
        float32, since S is at least SAFE_WEIGHT over the root of K.
        """
        if factors is not None:
            for place, factor in enumerate(factors, start=2):
                torch.linalg.vecdot(ratio, factor, out=self._by_level[number][place])

    def _like(self, rows: Tensor, place: int = 0) -> Tensor:
        """Memory of the shape of `rows`, valid until the next call for the same place."""
        if rows.numel() > len(self._scratch[place]):
            self._scratch[place] = rows.new_empty(rows.numel())
        return self._scratch[place][: rows.numel()].view(rows.shape)

    def add_total(self, number: int, ratio: Tensor, samples: SampleWeights) -> None:
        """T = A^2 of a level, from its ratios A (G L, K, N)."""
        if not self.request.unit_kinds:
            return
        if samples.inverse is not None:
            ratio = ratio * samples.for_rows(samples.inverse.sqrt(), len(ratio))
        torch.linalg.vector_norm(ratio, dim=-1, out=self._by_level[number][1])

    def add_second(self, number: int, ratio: Tensor, level: LevelViews, samples: SampleWeights) -> None:
        """A^2 E^2 of each edge of a level that holds E. Overwrites `spare`."""
        if not self.request.second_moment:
            return
        squares = torch.square(ratio, out=self._like(ratio))
        if samples.inverse is not None:
            squares.mul_(samples.for_rows(samples.inverse, len(squares)))
        self.second[number].baddbmm_(squares, torch.square(level.elements, out=level.spare).transpose(1, 2))

    def finish_chunk(self) -> None:
        """Add the sums of a chunk that was accepted as a whole: squares of lengths, F t and F log t = -2 F log S."""
        self._sums[:2] += self._chunk[:2].double().square_()
        self._sums[2:3] += self._chunk[2:3]
        self._sums[3:] -= self._chunk[3:].double().mul_(2)

    def add_tabulated(self, weights: Sequence[Tensor], tables: JointTables, whole: bool) -> None:
        """What the tabulated products of each level amount to, by joint state: t_k = sum_s w_s / S_ks^2.

        whole: the flow of each sample at the root is its weight.
        """
        by_level = zip(tables.plan.spans, tables.columns, tables.weight_by_span(whole), strict=True)
        for number, level in enumerate(by_level):
            for span, columns, weight in zip(*level, strict=True):
                if not span.whole:
                    continue
                rows = span.segment.rows(self.run_parts)
                seen = weight > 0  # a state without samples may be impossible, with S = 0
                inverse = torch.where(seen, torch.bmm(weights[number][rows], columns).reciprocal(), 0.0)  # (G L, K, S)
                if self.request.mean_ratio:
                    self.ratio[number][rows].baddbmm_(weight * inverse, columns.transpose(1, 2))
                if self.request.squared_ratio:
                    self.squared[number][rows].baddbmm_(weight * inverse.square(), columns.square().transpose(1, 2))
                if self.request.unit_kinds:
                    self.units[number][0, rows] += (weight * inverse.square()).sum(-1, dtype=torch.float64)

    def totals(self, runs: int, outputs: int, units: int) -> tuple[Tensor, Tensor]:
        """Sums of the root, (2 or 4, R, outputs), and of all other sums, level by level, (2 or 4, sums, R, units)."""
        first, kinds = self.run_parts * outputs, len(self._sums)
        root, others = torch.split(self._sums, [first, self._sums.shape[1] - first], dim=1)
        parts = self.run_parts // runs
        return root.view(kinds, runs, parts, outputs).sum(2), others.view(kinds, -1, runs, parts, units).sum(3)
