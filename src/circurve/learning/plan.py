"""The M-step of a whole fleet: runs of different methods, sorted once into a few vectorised updates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine import Params, Program, Request, Statistics
from circurve.learning.gates import NodeCurvature, apply_gate
from circurve.learning.methods import Gated, Global, Method, Vanilla, as_gate
from circurve.learning.mstep import LayerSums, Penalty, normalized_counts, regularised_weights

__all__ = ["GateSummary", "Plan"]


@dataclass(frozen=True)
class GateSummary:
    """How the gates of one run are spread over its sum nodes."""

    min: float
    median: float
    max: float
    above_half: float
    """The share of nodes whose gate exceeds 0.5."""


class Plan:
    """One M-step for runs with the given methods; remembers the running curvature that `gate_memory` asks for."""

    def __init__(self, program: Program, methods: Sequence[Method], like: Tensor, track: bool = False) -> None:
        self.program, self.methods = program, tuple(methods)
        self.device, self.dtype = like.device, like.dtype
        gated = [m for m in methods if isinstance(m, Gated)]
        self.request = Request(
            curvature=track or bool(gated),
            mean_ratio=any(m.estimator == "mean_ratio" for m in gated),
            second_moment=any(m.penalty == "exact" for m in methods if not isinstance(m, Vanilla)),
        )
        self.forms = self._forms()
        self.pseudocount = self._column([m.pseudocount for m in methods], self.dtype)
        self.multiplier = self._column([1.0 if isinstance(m, Vanilla) else m.multiplier for m in methods])
        self.per_sample = torch.tensor(
            [not isinstance(m, Vanilla) and m.mu_scale == "mean" for m in methods], device=self.device
        )
        self.masks = [None if s.mask is None else torch.from_numpy(s.mask).to(self.device) for s in program.sums]
        self.memory: dict[tuple[int, ...], NodeCurvature] = {}
        self.omega: Tensor | None = None  # (R, M), the gates of the last M-step

    def maximize(self, params: Params, sums: Statistics, step_size: Sequence[float], mu: Sequence[float]) -> Params:
        """theta <- (1 - alpha) theta + alpha theta~, for sums and inputs; the given parameters stay as they are."""
        alpha = self._column(step_size, self.dtype)
        targets = self._targets(params, sums, mu)
        weights = tuple(torch.lerp(old, new, alpha) for old, new in zip(params.weights, targets, strict=True))
        inputs = tuple(
            layer.family.maximize(values, statistics, self.pseudocount, alpha)
            for layer, values, statistics in zip(self.program.inputs, params.inputs, sums.inputs, strict=True)
        )
        return Params(weights, inputs)

    def remember(self, earlier: Plan, kept: Sequence[int]) -> None:
        """Take over the running curvature of a plan of which only the runs `kept` go on."""
        place = {old: new for new, old in enumerate(kept)}
        for runs, curvature in earlier.memory.items():
            rows = [i for i, run in enumerate(runs) if run in place]
            if rows:
                values = (curvature.local, curvature.total, curvature.flow_squared)
                self.memory[tuple(place[runs[i]] for i in rows)] = NodeCurvature(*(value[rows] for value in values))

    def gate_summaries(self) -> list[GateSummary | None]:
        """The gates of the last M-step, for each run that has any."""
        if self.omega is None or not self.omega.shape[1]:
            return [None] * len(self.methods)
        gated = [isinstance(m, Gated) for m in self.methods]
        return [_summary(omega) if has else None for omega, has in zip(self.omega, gated, strict=True)]

    def _targets(self, params: Params, sums: Statistics, mu: Sequence[float]) -> list[Tensor]:
        moments = sums.curvature.second_moment if sums.curvature is not None else None
        layers = [
            LayerSums(counts, None if moments is None else moments[i], self.masks[i])
            for i, counts in enumerate(sums.counts)
        ]
        if not layers or all(isinstance(m, Vanilla) for m in self.methods):
            pairs = zip(layers, params.weights, strict=True)
            return [normalized_counts(layer, old, self.pseudocount) for layer, old in pairs]
        self.omega = self._gates(sums)
        strength = self._column(mu)[..., 0, 0] * self.omega  # (R, M)
        sizes = [s.shape[0] * s.shape[1] for s in self.program.sums]
        scale = torch.where(self.per_sample, sums.weight, 1.0).view(-1, 1, 1, 1)
        targets = []
        for i, part in enumerate(torch.split(strength, sizes, dim=1)):
            g, k, _ = self.program.sums[i].shape
            targets.append(self._layer(layers[i], params.weights[i], part.view(-1, g, k, 1), scale))
        return targets

    def _layer(self, sums: LayerSums, weights: Tensor, strength: Tensor, scale: Tensor) -> Tensor:
        """theta~ of one layer: runs with the same form of update are taken together."""
        result = None
        for (exact_penalty, exact_simplex), runs in self.forms.items():
            moments = sums.second_moment if exact_penalty else None
            part = LayerSums(_pick(sums.counts, runs), None if moments is None else _pick(moments, runs), sums.mask)
            multiplier = None if exact_simplex else _pick(self.multiplier, runs)
            penalty = Penalty(_pick(strength, runs), multiplier, _pick(scale, runs))
            best = regularised_weights(part, _pick(weights, runs), _pick(self.pseudocount, runs), penalty)
            if runs is None:
                return best
            result = torch.empty_like(weights) if result is None else result
            result.index_copy_(0, runs, best)
        assert result is not None
        return result

    def _forms(self) -> dict[tuple[bool, bool], Tensor | None]:
        """(exact penalty, exact simplex) -> the runs that use it, None for all. Vanilla fits the plainest form."""
        found: dict[tuple[bool, bool], list[int]] = {}
        for run, method in enumerate(self.methods):
            form = (False, False)
            if not isinstance(method, Vanilla):
                form = (method.penalty == "exact", method.simplex == "exact")
            found.setdefault(form, []).append(run)
        if len(found) == 1:
            return dict.fromkeys(found)
        return {form: torch.tensor(runs, device=self.device) for form, runs in found.items()}

    def _gates(self, sums: Statistics) -> Tensor:  # (R, M)
        units = sum(s.shape[0] * s.shape[1] for s in self.program.sums)
        omega = torch.zeros(len(self.methods), units, dtype=torch.float64, device=self.device)
        if not units:
            return omega
        alike: dict[tuple[object, str, float], list[int]] = {}
        for run, method in enumerate(self.methods):
            if isinstance(method, Global):
                omega[run] = 1.0
            elif isinstance(method, Gated):
                same = method.gate if isinstance(method.gate, Hashable) else id(method.gate)
                alike.setdefault((same, method.estimator, method.gate_memory), []).append(run)
        for (_, estimator, memory), runs in alike.items():
            first = self.methods[runs[0]]
            assert isinstance(first, Gated)
            omega[runs] = apply_gate(as_gate(first.gate), self._curvature(sums, runs, estimator, memory))
        return omega

    def _curvature(self, sums: Statistics, runs: list[int], estimator: str, memory: float) -> NodeCurvature:
        """Mean curvature of the chosen runs, (runs, M), mixed with what was seen before."""
        measured = sums.curvature
        assert measured is not None
        assert measured.total is not None
        assert measured.flow_squared is not None
        weight = sums.weight[runs, None].clamp_min(torch.finfo(torch.float64).tiny)
        if estimator == "mean_ratio":
            assert measured.ratio is not None
            local = [
                (ratio[runs].double() / weight[..., None, None]).square().sum(-1).flatten(1) for ratio in measured.ratio
            ]
        else:
            assert measured.local is not None
            local = [layer[runs].flatten(1) / weight for layer in measured.local]
        total = torch.cat([layer[runs].flatten(1) for layer in measured.total], dim=1) / weight
        flow = torch.cat([layer[runs].flatten(1) for layer in measured.flow_squared], dim=1) / weight
        largest = torch.finfo(torch.float64).max  # an edge of weight zero can have infinite curvature
        now = NodeCurvature(torch.cat(local, dim=1).clamp_max(largest), total.clamp_max(largest), flow)
        before = self.memory.get(tuple(runs)) if memory else None
        if before is not None:
            pairs = ((before.local, now.local), (before.total, now.total), (before.flow_squared, now.flow_squared))
            now = NodeCurvature(*(torch.lerp(new, old, memory) for old, new in pairs))
        if memory:
            self.memory[tuple(runs)] = now
        return now

    def _column(self, values: Sequence[float], dtype: torch.dtype = torch.float64) -> Tensor:  # (R, 1, 1, 1)
        return torch.tensor(values, dtype=dtype, device=self.device).view(-1, 1, 1, 1)


def _pick(values: Tensor, runs: Tensor | None) -> Tensor:
    return values if runs is None else values.index_select(0, runs)


def _summary(omega: Tensor) -> GateSummary:
    return GateSummary(
        min=float(omega.min()),
        median=float(omega.median()),
        max=float(omega.max()),
        above_half=float((omega > 0.5).double().mean()),
    )
