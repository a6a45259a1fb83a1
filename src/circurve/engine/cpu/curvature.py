"""Curvature sums of the sums of a latent tree that are no leaves.

Elements have length 1 here, so that q = 1 in the formulas of `engine/sums.py`: t_kn = 1 / S_kn^2, which is seen on the
way up, while S is still in the caches, and T_kn = A_kn^2, on the way down. For quiet products S is a function of the
joint state: t comes from the states in the end. The squares of flows are summed by joint state, for the leaves' sake;
their total is the sum of F^2 of a message.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.engine.cpu.tally import JointSums, Tally
from circurve.engine.cpu.views import LevelViews, Views
from circurve.engine.statistics import Request

__all__ = ["TreeCurvature"]


class TreeCurvature:
    """Sums over samples for each level: t and T (2, G L, K) in float64, ratio and second moment (G L, K, K)."""

    def __init__(self, request: Request, lanes: int, weights: Sequence[Tensor]) -> None:
        self.request, self.lanes = request, lanes
        sizes = [w.shape[0] * w.shape[1] for w in weights]
        self._norms = weights[0].new_zeros(2, sum(sizes))  # of t and T over the samples of a chunk
        self._sums = torch.zeros_like(self._norms, dtype=torch.float64)

        def by_level(units: Tensor) -> list[Tensor]:  # (2, G L, K) for each level
            parts = torch.split(units, sizes, dim=1)
            return [part.view(2, *w.shape[:2]) for part, w in zip(parts, weights, strict=True)]

        self._by_level, self.units = by_level(self._norms), by_level(self._sums)
        """t and T of each level, (2, G L, K)."""

        self.ratio = [torch.zeros_like(w) for w in weights] if request.mean_ratio else []
        self.second = [torch.zeros_like(w) for w in weights] if request.second_moment else []
        self._scratch = weights[0].new_empty(0)

    def start(self, weights: Tensor | None) -> None:
        """A new chunk with these weights (R or 1, N), None if all are 1."""
        self._root_weights = None if weights is None else weights.sqrt().unsqueeze(1)  # square roots, (R or 1, 1, N)

    def sent(self, views: Views, number: int) -> None:
        """On the way up S of a level is in `scaled`. Overwrites `spare`."""
        busy = views.levels[number].busy
        if busy is None or not self.request.curvature:
            return
        ratio = torch.div(views.present, busy.scaled, out=busy.spare)
        if self._root_weights is not None:
            ratio.mul_(views.to_lanes(self._root_weights.expand(self.lanes // views.parts, -1, -1)))
        torch.linalg.vector_norm(ratio.flatten(0, 1), dim=-1, out=self._by_level[number][0, busy.rows])

    def turn(self, weight: Tensor, inverse: Tensor | None) -> None:
        """At the root: the weights (L, 1, N) of samples that are possible, and their inverses, None if all are 1."""
        self.weight, self.inverse = weight, inverse

    def leaving(self, number: int, level: LevelViews) -> None:
        """On the way down, the last moment that S is in `scaled` and E in `elements`. Overwrites `spare`."""
        busy = level.busy
        if busy is not None and self.request.mean_ratio:
            per_unit = torch.div(self.weight, busy.scaled, out=busy.spare).flatten(0, 1)
            self.ratio[number][busy.rows].baddbmm_(per_unit, level.by_sample[busy.rows])

    def received(self, number: int, level: LevelViews) -> None:
        """A of a level is in `scaled` now. Overwrites `spare`."""
        if self.request.curvature:
            ratio = level.scaled
            if self.inverse is not None:
                ratio = ratio * self._for_rows(self.inverse.sqrt(), len(ratio))
            torch.linalg.vector_norm(ratio, dim=-1, out=self._by_level[number][1])
        if self.request.second_moment:
            if level.scaled.numel() > len(self._scratch):
                self._scratch = level.scaled.new_empty(level.scaled.numel())
            squares = torch.square(level.scaled, out=self._scratch[: level.scaled.numel()].view(level.scaled.shape))
            if self.inverse is not None:
                squares.mul_(self._for_rows(self.inverse, len(squares)))
            self.second[number].baddbmm_(squares, torch.square(level.elements, out=level.spare).transpose(1, 2))

    def passed(self, number: int, level: LevelViews, squares: JointSums) -> None:
        """F, in the place of E, has served: it is overwritten."""
        level.elements.square_()
        if self.inverse is not None:
            level.elements.mul_(self._for_rows(self.inverse, len(level.elements)))
        squares.add(number, level)

    def finish(self) -> None:
        """The chunk has been seen: add the squares of its norms."""
        self._sums += self._norms.double().square_()

    def close(self, weights: Sequence[Tensor], tally: Tally) -> None:
        """What the quiet products of each level amount to, by joint state: t_k = sum_s w_s / S_ks^2."""
        by_level = zip(tally.plan.spreads, tally.columns, tally.weight_by_spread(), strict=True)
        for number, level in enumerate(by_level):
            for spread, columns, weight in zip(*level, strict=True):
                if not spread.quiet:
                    continue
                rows = spread.stretch.rows(self.lanes)
                seen = weight > 0  # a state without samples may be impossible, with S = 0
                inverse = torch.where(seen, torch.bmm(weights[number][rows], columns).reciprocal(), 0.0)  # (G L, K, S)
                if self.request.mean_ratio:
                    self.ratio[number][rows].baddbmm_(weight * inverse, columns.transpose(1, 2))
                if self.request.curvature:
                    self.units[number][0, rows] += (weight * inverse.square()).sum(-1, dtype=torch.float64)

    def totals(self, runs: int, outputs: int, units: int) -> tuple[Tensor, Tensor]:
        """t and T of the root, (2, R, outputs), and of all other sums, level by level, (2, sums, R, units)."""
        root, others = torch.split(
            self._sums, [self.lanes * outputs, self._sums.shape[1] - self.lanes * outputs], dim=1
        )
        parts = self.lanes // runs
        return root.view(2, runs, parts, outputs).sum(2), others.view(2, -1, runs, parts, units).sum(3)

    def _for_rows(self, factor: Tensor, rows: int) -> Tensor:  # (L, 1, N) -> (G L, 1, N)
        return factor.repeat(rows // self.lanes, 1, 1)
