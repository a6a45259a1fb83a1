"""Curvature sums of the sums of a latent tree that are no leaves.

With q_n = sum_j E_jn^2 (see `engine/sums.py`), t_kn = q_n / S_kn^2 is seen while S is there, and T_kn = A_kn^2 q_n once
A has taken its place. For quiet products E, S and q are functions of the joint state: t comes from the states in the
end. The squares of flows are summed by joint state, for the leaves' sake; their total is the sum of F^2 of a message.
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
    """Sums over samples for each level: local and total (G R, K) in float64, ratio and second moment (G R, K, K)."""

    def __init__(self, request: Request, runs: int, weights: Sequence[Tensor]) -> None:
        self.request, self.runs = request, runs
        sizes = [w.shape[0] * w.shape[1] for w in weights]
        self._norms = weights[0].new_zeros(2, sum(sizes))  # of t and T over the samples of a chunk
        self._sums = torch.zeros_like(self._norms, dtype=torch.float64)

        def by_level(units: Tensor) -> list[Tensor]:
            return [part.view(w.shape[:2]) for part, w in zip(torch.split(units, sizes), weights, strict=True)]

        (self._local, self._total), (self.local, self.total) = map(by_level, self._norms), map(by_level, self._sums)
        self.root_square = torch.zeros_like(self.local[0])
        self.ratio = [torch.zeros_like(w) for w in weights] if request.mean_ratio else []
        self.second = [torch.zeros_like(w) for w in weights] if request.second_moment else []
        self._scratch = weights[0].new_empty(0)

    def start(self, views: Views, weight: Tensor, inverse: Tensor | None, root_flow: Tensor) -> None:
        """A new chunk: its weights (R, N), their inverses (None if all are 1) and the outputs' flow (R, outputs, N)."""
        squares = root_flow.square() if inverse is None else root_flow.square() * inverse[:, None]
        self.root_square += squares.sum(-1, dtype=torch.float64)
        self.end, padding = slice(views.samples, None), (0, views.width - views.samples)
        self.weight = torch.nn.functional.pad(weight[:, None], padding)  # (R, 1, N)
        self.inverse = None if inverse is None else torch.nn.functional.pad(inverse[:, None], padding)

    def sent(self, number: int, level: LevelViews, tally: Tally) -> None:
        """S of a level is in `scaled`, E in `elements`. Overwrites `spare`."""
        busy = level.busy
        if self.request.mean_ratio and busy is not None:
            per_unit = (self.weight / busy.scaled).flatten(0, 1)
            self.ratio[number][busy.rows].baddbmm_(per_unit, level.by_sample[busy.rows])
        if not self.request.curvature:
            return
        self.norm = level.elements.new_empty(len(level.elements), 1, level.elements.shape[-1])  # sqrt(q), (G R, 1, N)
        for place, columns in zip(level.spreads, tally.column_norms()[number], strict=True):
            if place.spread.quiet:
                torch.bmm(columns, place.indicator, out=self.norm[place.rows])
        if busy is not None:
            squares = torch.square(level.elements[busy.rows], out=level.spare[busy.rows])
            norm = torch.sum(squares, -2, keepdim=True, out=self.norm[busy.rows]).sqrt_()
            norm[..., self.end] = 0
            scale = self._by_run(norm)
            scale = scale if self.inverse is None else scale * self.weight.sqrt()
            ratio = torch.div(scale, busy.scaled, out=busy.spare)
            torch.linalg.vector_norm(ratio.flatten(0, 1), dim=-1, out=self._local[number][busy.rows])

    def received(self, number: int, level: LevelViews) -> None:
        """A of the same level is in `scaled` now. Overwrites `spare`."""
        if self.request.second_moment:
            if level.scaled.numel() > len(self._scratch):
                self._scratch = level.scaled.new_empty(level.scaled.numel())
            squares = torch.square(level.scaled, out=self._scratch[: level.scaled.numel()].view(level.scaled.shape))
            if self.inverse is not None:
                self._by_run(squares).mul_(self.inverse)
            self.second[number].baddbmm_(squares, torch.square(level.elements, out=level.spare).transpose(1, 2))

    def used(self, number: int, level: LevelViews) -> None:
        """A has served: it is overwritten."""
        if self.request.curvature:
            if self.inverse is not None:
                self._by_run(self.norm).mul_(self.inverse.sqrt())
            torch.linalg.vector_norm(level.scaled.mul_(self.norm), dim=-1, out=self._total[number])

    def passed(self, number: int, level: LevelViews, squares: JointSums) -> None:
        """F, in the place of E, has served: it is overwritten."""
        level.elements.square_()
        if self.inverse is not None:
            self._by_run(level.elements).mul_(self.inverse)
        squares.add(number, level)

    def finish(self) -> None:
        """The chunk has been seen: add the squares of its norms."""
        self._sums += self._norms.double().square_()

    def close(self, weights: Sequence[Tensor], tally: Tally) -> None:
        """What the quiet products of each level amount to, by joint state: t_k = sum_s w_s q_s / S_ks^2."""
        by_level = zip(tally.plan.spreads, tally.columns, tally.column_norms(), tally.weight_by_spread(), strict=True)
        for number, level in enumerate(by_level):
            for spread, columns, norms, weight in zip(*level, strict=True):
                if not spread.quiet:
                    continue
                rows = spread.stretch.rows(self.runs)
                seen = weight > 0  # a state without samples may be impossible, with S = 0
                inverse = torch.where(seen, torch.bmm(weights[number][rows], columns).reciprocal(), 0.0)  # (G R, K, S)
                if self.request.mean_ratio:
                    self.ratio[number][rows].baddbmm_(weight * inverse, columns.transpose(1, 2))
                if self.request.curvature:
                    self.local[number][rows] += (weight * (norms * inverse).square()).sum(-1, dtype=torch.float64)

    def _by_run(self, rows: Tensor) -> Tensor:  # (G R, ...) -> (G, R, ...)
        return rows.view(-1, self.runs, *rows.shape[1:])
