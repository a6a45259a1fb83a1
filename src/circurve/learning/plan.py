"""The M-step of a whole fleet: runs of different methods, sorted once into a few vectorised updates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from circurve.engine import CurvatureSums, Params, Program, Statistics
from circurve.engine.numerics import LIMITS, effective_step
from circurve.learning import mstep
from circurve.learning.gates import NodeCurvature, apply_gate, is_ours
from circurve.learning.local_curvature import BY_FLOW, NodeSums, by_flow, clipped, request_for
from circurve.learning.methods import Gated, Global, Method, Vanilla, as_gate
from circurve.learning.mstep import LayerSums, Penalty, Target

__all__ = ["GateSummary", "Plan"]

Values = TypeVar("Values", Tensor, Tensor | None)


@dataclass(frozen=True)
class GateSummary:
    """How the gates of one run are spread over its sum nodes."""

    min: float
    median: float
    max: float
    above_half: float  # the share of nodes whose gate exceeds 0.5


class Plan:
    """One M-step for runs with the given methods; remembers the running curvature that `gate_memory` asks for."""

    def __init__(self, program: Program, methods: Sequence[Method], like: Tensor, track: bool = False) -> None:
        self.program, self.methods = program, tuple(methods)
        self.device, self.dtype = like.device, like.dtype
        gated = [m for m in methods if isinstance(m, Gated)]
        exact = any(m.penalty == "exact" for m in methods if not isinstance(m, Vanilla))
        self.request = request_for([m.estimator for m in gated], second_moment=exact, curvature=track)
        self.forms = self._forms()
        # of each run: 0 surrogate penalty and fixed multiplier, 1 exact simplex, 2 exact penalty, 3 both
        self.form_numbers = torch.tensor([2 * p + s for p, s in map(_form, methods)], dtype=torch.int32).to(self.device)
        self.pseudocount = self._column([m.pseudocount for m in methods], self.dtype)
        self.smoothing = self.pseudocount if any(m.pseudocount for m in methods) else None
        self.multiplier = self._column([1.0 if isinstance(m, Vanilla) else m.multiplier for m in methods])
        per_sample = [not isinstance(m, Vanilla) and m.mu_scale == "mean" for m in methods]
        self.per_sample = torch.tensor(per_sample, device=self.device) if any(per_sample) else None
        self.ones = torch.ones(len(methods), dtype=torch.float64, device=self.device)
        self.masks = [None if s.mask is None else torch.from_numpy(s.mask).to(self.device) for s in program.sums]
        self.units = program.units
        # (R, M): 1 for runs of `Global`, 0 for the others until their gates are known
        self.fixed = self._column([isinstance(m, Global) for m in methods])[..., 0, 0].repeat(1, self.units)
        self.gated = self._gated_runs()
        self.omega: Tensor | None = None  # (R, M), the gates of the last M-step

    def maximize(
        self, params: Params, sums: Statistics, step_size: Sequence[float] | Tensor, mu: Sequence[float] | Tensor
    ) -> Params:
        """theta <- (1 - alpha) theta + alpha theta~, for sums and inputs; the given parameters stay as they are."""
        alpha = effective_step(self._column(step_size)).to(self.dtype)
        targets = self._targets(params, sums, mu)
        layers = zip(self.program.inputs, params.inputs, sums.inputs, strict=True)
        return Params(
            tuple(mstep.moved_weights(old, new, alpha) for old, new in zip(params.weights, targets, strict=True)),
            tuple(mstep.moved_inputs(layer.family, old, s, self.pseudocount, alpha) for layer, old, s in layers),
        )

    def remember(self, earlier: Plan, kept: Sequence[int]) -> None:
        """Take over the running curvature of a plan of which only the runs `kept` go on."""
        for old in earlier.gated:
            for new in self.gated:
                if old.key == new.key:
                    new.past.copy_(old.past[:, [i for i, run in enumerate(old.runs) if run in kept]])
                    new.seen.copy_(old.seen)

    def running(self) -> list[Tensor]:
        """The running curvature of all runs, changed in place by every step."""
        return [tensor for gated in self.gated if gated.memory for tensor in (gated.past, gated.seen)]

    def memories(self) -> tuple[Tensor, ...]:
        """A copy of the running curvature, for `recall`."""
        return tuple(tensor.clone() for tensor in self.running())

    def recall(self, memories: Sequence[Tensor]) -> None:
        """Put back the running curvature as it was."""
        for tensor, earlier in zip(self.running(), memories, strict=True):
            tensor.copy_(earlier)

    def gate_summaries(self) -> list[GateSummary | None]:
        """The gates of the last M-step, for each run that has any. The median is the lower of the two in the middle."""
        summaries: list[GateSummary | None] = [None] * len(self.methods)
        gated = [run for run, method in enumerate(self.methods) if isinstance(method, Gated)]
        if gated and self.omega is not None and self.units:
            omega = self.omega[gated]
            parts = [omega.amin(1), omega.median(1).values, omega.amax(1), (omega > 0.5).double().mean(1)]
            for run, row in zip(gated, torch.stack(parts, dim=1).tolist(), strict=True):
                summaries[run] = GateSummary(*row)
        return summaries

    def scale(self, weight: Tensor) -> Tensor:  # (R,)
        """What counts are divided by first: the batch's weight (R,) where mu_scale is "mean"."""
        return self.ones if self.per_sample is None else torch.where(self.per_sample, weight, self.ones)

    def gates(self, measured: NodeSums, weight: Tensor) -> Tensor:  # (R, M)
        """The gates of all sum units, kept in `omega`. weight: of the samples, (R,)."""
        self.omega = self.fixed
        if self.units and self.gated:
            self.omega = self.fixed.clone()
            for gated in self.gated:
                curvature = gated.curvature(measured, weight)
                if not is_ours(gated.gate):  # a run that broke is reported as such, not as a fault of the user's gate
                    curvature = tuple(map(torch.nan_to_num, curvature))
                self.omega.index_copy_(0, gated.index, apply_gate(gated.gate, NodeCurvature(*curvature)))
        return self.omega

    def _targets(self, params: Params, sums: Statistics, mu: Sequence[float] | Tensor) -> list[Target]:
        measured = sums.curvature or CurvatureSums()
        moments = measured.second_moment or [None] * len(sums.counts)
        layers = [LayerSums(*layer) for layer in zip(sums.counts, moments, self.masks, strict=True)]
        if not layers or all(isinstance(m, Vanilla) for m in self.methods):
            return [mstep.normalized_counts(layer, self.smoothing) for layer in layers]
        strength = self._column(mu)[..., 0, 0] * self.gates(NodeSums.of(measured, params.weights), sums.weight)
        scale = None if self.per_sample is None else self.scale(sums.weight).view(-1, 1, 1, 1)
        shapes = [layer.shape[:2] for layer in self.program.sums]
        parts = torch.split(strength, [g * k for g, k in shapes], dim=1)
        return [
            self._layer_target(layer, part.view(-1, g, k, 1), scale)
            for layer, part, (g, k) in zip(layers, parts, shapes, strict=True)
        ]

    def _layer_target(self, sums: LayerSums, strength: Tensor, scale: Tensor | None) -> Target:
        """theta~ of one layer: runs with the same form of update are taken together."""
        result, used = None, None
        for (exact_penalty, exact_simplex), runs in self.forms.items():
            moments = sums.second_moment if exact_penalty else None
            part = LayerSums(_pick(sums.counts, runs), _pick(moments, runs), sums.mask)
            multiplier = None if exact_simplex else _pick(self.multiplier, runs)
            penalty = Penalty(_pick(strength, runs), multiplier, _pick(scale, runs))
            best = mstep.regularised_weights(part, _pick(self.smoothing, runs), penalty)
            if runs is None:
                return best
            result = torch.empty_like(sums.counts) if result is None else result
            result.index_copy_(0, runs, best.weights)
            if best.used is not None:
                used = best.used.new_ones((*sums.counts.shape[:-1], 1)) if used is None else used
                used.index_copy_(0, runs, best.used)
        assert result is not None
        return Target(result, used)

    def _forms(self) -> dict[tuple[bool, bool], Tensor | None]:
        """(exact penalty, exact simplex) -> the runs that use it, None for all. Vanilla fits the plainest form."""
        found: dict[tuple[bool, bool], list[int]] = {}
        for run, method in enumerate(self.methods):
            found.setdefault(_form(method), []).append(run)
        if len(found) == 1:
            return dict.fromkeys(found)
        return {form: torch.tensor(runs, device=self.device) for form, runs in found.items()}

    def _gated_runs(self) -> list[_GatedRuns]:
        """Runs with the same gate, estimator, floor and memory are taken together."""
        alike: dict[Hashable, list[tuple[int, Gated]]] = {}
        for run, method in enumerate(self.methods):
            if isinstance(method, Gated):
                same = method.gate if isinstance(method.gate, Hashable) else id(method.gate)
                key = (same, method.estimator, method.ratio_floor, method.gate_memory)
                alike.setdefault(key, []).append((run, method))
        least = LIMITS[self.dtype].least_flow
        return [
            _GatedRuns(key, [run for run, _ in members], members[0][1], self.fixed, least)
            for key, members in alike.items()
        ]

    def _column(self, values: Sequence[float] | Tensor, dtype: torch.dtype = torch.float64) -> Tensor:  # (R, 1, 1, 1)
        return torch.as_tensor(values, dtype=dtype, device=self.device).view(-1, 1, 1, 1)


class _GatedRuns:
    """Runs whose gates come from one call, and the running mean of their curvature where `gate_memory` asks for it.

    The mean is changed in place, so that a recorded step can be repeated. Of estimators that weigh samples by flow,
    F t (or F log t) and F have running means, and t^ is made from the two: as of all these samples together.
    """

    def __init__(self, key: Hashable, runs: list[int], method: Gated, like: Tensor, least_flow: float) -> None:
        self.key, self.runs, self.gate = key, runs, as_gate(method.gate)  # like: (R, M)
        self.estimator, self.floor, self.memory = method.estimator, method.ratio_floor, method.gate_memory
        self.by_flow, self.least_flow = self.estimator in BY_FLOW, least_flow
        self.index = torch.tensor(runs, device=like.device)
        # t (or its numerator), T and F^2, and then F
        self.past = like.new_zeros(3 + self.by_flow, len(runs), like.shape[1] if self.memory else 0)
        self.seen = like.new_zeros(())  # 0 until the first measurement, which counts in full

    def curvature(self, measured: NodeSums, weight: Tensor) -> tuple[Tensor, ...]:
        """Mean t, T and F^2 of these runs, (runs, M) each; the past has the weight `memory`, the present the rest."""
        weight = weight.index_select(0, self.index)[:, None, None].clamp_min(torch.finfo(torch.float64).tiny)
        means = self._means(measured, weight)
        if self.memory:
            self.past.copy_(torch.lerp(torch.stack(means), self.past, self.memory * self.seen))
            self.seen.fill_(1.0)
            means = self.past.clone().unbind()
        if not self.by_flow:
            return means
        weighted, total, flow_squared, flow = means
        return by_flow(self.estimator, weighted, flow, self.least_flow), total, flow_squared

    def _means(self, measured: NodeSums, weight: Tensor) -> tuple[Tensor, ...]:
        """t (or its numerator), T and F^2, and then F, (runs, M) each. weight: of these runs, (runs, 1, 1)."""
        assert measured.units is not None
        largest = torch.finfo(torch.float64).max  # an edge of weight zero can have infinite curvature
        means = (measured.units.index_select(0, self.index) / weight).clamp_max_(largest)  # (runs, 3 or 6, M)
        flow_squared, local, total, *weighted = means.unbind(1)
        if self.by_flow:
            flow_local, flow_log_local, flow = weighted
            return flow_log_local if self.estimator == "geometric" else flow_local, total, flow_squared, flow
        if self.estimator in ("mean_ratio", "clipped"):
            local = torch.cat(self._edge_means(measured, weight), dim=1).clamp_max(largest)
        return local, total, flow_squared

    def _edge_means(self, measured: NodeSums, weight: Tensor) -> list[Tensor]:  # (runs, G K) for each layer
        """t^ of the estimators that are made from sums of single edges."""
        if self.estimator == "mean_ratio":
            assert measured.ratios is not None
            chosen = (ratio.index_select(0, self.index).double() for ratio in measured.ratios)
            return [(ratio / weight[..., None]).square().sum(-1).flatten(1) for ratio in chosen]
        assert measured.squares is not None
        layers = [
            [part.index_select(0, self.index) for part in pair]
            for pair in zip(measured.squares, measured.weights, strict=True)
        ]
        return [(clipped(squares, theta, self.floor) / weight).flatten(1) for squares, theta in layers]


def _form(method: Method) -> tuple[bool, bool]:
    """Whether the penalty and the simplex are exact."""
    return (False, False) if isinstance(method, Vanilla) else (method.penalty == "exact", method.simplex == "exact")


def _pick(values: Values, runs: Tensor | None) -> Values:
    return values if values is None or runs is None else values.index_select(0, runs)
