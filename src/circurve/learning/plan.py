"""The M-step of a whole fleet: runs of different methods, sorted once into a few vectorised updates."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine import CurvatureSums, Params, Program, Request, Statistics
from circurve.engine.numerics import effective_step
from circurve.learning.gates import Gate, NodeCurvature, apply_gate, is_ours
from circurve.learning.methods import Gated, Global, Method, Vanilla, as_gate
from circurve.learning.mstep import (
    LayerSums,
    Penalty,
    Target,
    moved_inputs,
    moved_weights,
    normalized_counts,
    regularised_weights,
)

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
        self.form_numbers = torch.tensor([2 * p + s for p, s in map(_form, methods)], dtype=torch.int32).to(self.device)
        """Of each run: 0 surrogate penalty and fixed multiplier, 1 exact simplex, 2 exact penalty, 3 both."""

        self.pseudocount = self._column([m.pseudocount for m in methods], self.dtype)
        self.smoothing = self.pseudocount if any(m.pseudocount for m in methods) else None
        self.multiplier = self._column([1.0 if isinstance(m, Vanilla) else m.multiplier for m in methods])
        per_sample = [not isinstance(m, Vanilla) and m.mu_scale == "mean" for m in methods]
        self.per_sample = torch.tensor(per_sample, device=self.device) if any(per_sample) else None
        self.ones = torch.ones(len(methods), dtype=torch.float64, device=self.device)
        self.masks = [None if s.mask is None else torch.from_numpy(s.mask).to(self.device) for s in program.sums]
        self.units = program.units
        self.fixed = self._fixed_gates()
        self.gated = self._gated_runs()
        self.omega: Tensor | None = None  # (R, M), the gates of the last M-step

    def maximize(
        self, params: Params, sums: Statistics, step_size: Sequence[float] | Tensor, mu: Sequence[float] | Tensor
    ) -> Params:
        """theta <- (1 - alpha) theta + alpha theta~, for sums and inputs; the given parameters stay as they are."""
        alpha = effective_step(self._column(step_size)).to(self.dtype)
        targets = self._targets(sums, mu)
        weights = tuple(moved_weights(old, new, alpha) for old, new in zip(params.weights, targets, strict=True))
        return Params(weights, self.maximize_inputs(params.inputs, sums.inputs, alpha))

    def maximize_inputs(self, inputs: Sequence[Tensor], sums: Sequence[Tensor], alpha: Tensor) -> tuple[Tensor, ...]:
        """The M-step of the input layers; alpha: (R, 1, 1, 1)."""
        return tuple(
            moved_inputs(layer.family, values, statistics, self.pseudocount, alpha)
            for layer, values, statistics in zip(self.program.inputs, inputs, sums, strict=True)
        )

    def remember(self, earlier: Plan, kept: Sequence[int]) -> None:
        """Take over the running curvature of a plan of which only the runs `kept` go on."""
        place = {old: new for new, old in enumerate(kept)}
        for old in earlier.gated:
            for new in self.gated:
                if old.key == new.key and new.memory is not None and old.memory is not None:
                    rows = [i for i, run in enumerate(old.runs) if run in place]
                    new.memory.take(old.memory, rows)

    def memories(self) -> tuple[Tensor, ...]:
        """A copy of the running curvature of all runs, for `recall`."""
        return tuple(tensor.clone() for tensor in self._running())

    def recall(self, memories: Sequence[Tensor]) -> None:
        """Put back the running curvature as it was."""
        for tensor, earlier in zip(self._running(), memories, strict=True):
            tensor.copy_(earlier)

    def _running(self) -> list[Tensor]:
        return [tensor for gated in self.gated if gated.memory for tensor in (gated.memory.values, gated.memory.seen)]

    def gate_summaries(self) -> list[GateSummary | None]:
        """The gates of the last M-step, for each run that has any."""
        if self.omega is None or not self.omega.shape[1]:
            return [None] * len(self.methods)
        summaries: list[GateSummary | None] = [None] * len(self.methods)
        gated = [run for run, method in enumerate(self.methods) if isinstance(method, Gated)]
        if gated:
            for run, summary in zip(gated, _summaries(self.omega[gated]), strict=True):
                summaries[run] = summary
        return summaries

    def strengths(self, sums: Statistics, mu: Sequence[float] | Tensor) -> Tensor:  # (R, M)
        """mu * omega of every sum unit."""
        return self._column(mu)[..., 0, 0] * self.gates(
            _unit_sums(sums.curvature), _ratios(sums.curvature), sums.weight
        )

    def scale(self, weight: Tensor) -> Tensor:  # (R,)
        """What counts are divided by first: the batch's weight (R,) where mu_scale is "mean"."""
        return self.ones if self.per_sample is None else torch.where(self.per_sample, weight, self.ones)

    def _targets(self, sums: Statistics, mu: Sequence[float] | Tensor) -> list[Target]:
        moments = sums.curvature.second_moment if sums.curvature is not None else None
        layers = [
            LayerSums(counts, None if moments is None else moments[i], self.masks[i])
            for i, counts in enumerate(sums.counts)
        ]
        if not layers or all(isinstance(m, Vanilla) for m in self.methods):
            return [normalized_counts(layer, self.smoothing) for layer in layers]
        strength = self.strengths(sums, mu)
        sizes = [s.shape[0] * s.shape[1] for s in self.program.sums]
        scale = None if self.per_sample is None else self.scale(sums.weight).view(-1, 1, 1, 1)
        targets = []
        for i, part in enumerate(torch.split(strength, sizes, dim=1)):
            g, k, _ = self.program.sums[i].shape
            targets.append(self.layer_target(layers[i], part.view(-1, g, k, 1), scale))
        return targets

    def layer_target(self, sums: LayerSums, strength: Tensor, scale: Tensor | None) -> Target:
        """theta~ of one layer: runs with the same form of update are taken together."""
        result, used = None, None
        for (exact_penalty, exact_simplex), runs in self.forms.items():
            moments = sums.second_moment if exact_penalty else None
            part = LayerSums(_pick(sums.counts, runs), None if moments is None else _pick(moments, runs), sums.mask)
            multiplier = None if exact_simplex else _pick(self.multiplier, runs)
            penalty = Penalty(_pick(strength, runs), multiplier, None if scale is None else _pick(scale, runs))
            smoothing = None if self.smoothing is None else _pick(self.smoothing, runs)
            best = regularised_weights(part, smoothing, penalty)
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

    def _fixed_gates(self) -> Tensor:  # (R, M)
        """1 for runs of `Global`, 0 for the others until their gates are known."""
        fixed = torch.zeros(len(self.methods), self.units, dtype=torch.float64, device=self.device)
        for run, method in enumerate(self.methods):
            if isinstance(method, Global):
                fixed[run] = 1.0
        return fixed

    def _gated_runs(self) -> list[_GatedRuns]:
        """Runs with the same gate, estimator and memory are taken together."""
        alike: dict[Hashable, list[int]] = {}
        for run, method in enumerate(self.methods):
            if isinstance(method, Gated):
                same = method.gate if isinstance(method.gate, Hashable) else id(method.gate)
                alike.setdefault((same, method.estimator, method.gate_memory), []).append(run)
        found = []
        for key, runs in alike.items():
            first = self.methods[runs[0]]
            assert isinstance(first, Gated)
            memory = None
            if first.gate_memory:
                memory = _Memory(first.gate_memory, len(runs), self.units, self.device)
            index = torch.tensor(runs, device=self.device)
            found.append(_GatedRuns(key, runs, index, as_gate(first.gate), first.estimator, memory))
        return found

    def gates(self, units: Tensor | None, ratios: Sequence[Tensor] | None, weight: Tensor) -> Tensor:  # (R, M)
        """The gates of all sum units, kept in `omega`.

        units: sums over samples of F^2, t and T, (R, 3, M); ratios: sums of rho, (R, G, K, C) for each sum layer, where
        a method asks for them; weight: of the samples, (R,).
        """
        self.omega = self.fixed
        if self.units and self.gated:
            assert units is not None
            self.omega = self.fixed.clone()
            for gated in self.gated:
                curvature = self._curvature(units, ratios, weight, gated)
                if not is_ours(gated.gate):  # a run that broke is reported as such, not as a fault of the user's gate
                    curvature = _without_nan(curvature)
                self.omega.index_copy_(0, gated.index, apply_gate(gated.gate, curvature))
        return self.omega

    def _curvature(
        self, units: Tensor, ratios: Sequence[Tensor] | None, weight: Tensor, gated: _GatedRuns
    ) -> NodeCurvature:
        """Mean curvature of the chosen runs, (runs, M), mixed with what was seen before."""
        weight = weight.index_select(0, gated.index)[:, None, None].clamp_min(torch.finfo(torch.float64).tiny)
        largest = torch.finfo(torch.float64).max  # an edge of weight zero can have infinite curvature
        means = (units.index_select(0, gated.index) / weight).clamp_max_(largest)  # (runs, 3, M)
        flow_squared, local, total = means.unbind(1)
        if gated.estimator == "mean_ratio":
            assert ratios is not None
            chosen = (ratio.index_select(0, gated.index).double() for ratio in ratios)
            parts = [(ratio / weight[..., None]).square().sum(-1).flatten(1) for ratio in chosen]
            local = torch.cat(parts, dim=1).clamp_max(largest)
        now = NodeCurvature(local, total, flow_squared)
        return now if gated.memory is None else gated.memory.mix(now)

    def _column(self, values: Sequence[float] | Tensor, dtype: torch.dtype = torch.float64) -> Tensor:  # (R, 1, 1, 1)
        return torch.as_tensor(values, dtype=dtype, device=self.device).view(-1, 1, 1, 1)


class _Memory:
    """A running mean of the curvature, (runs, M): changed in place, so that a recorded step can be repeated."""

    def __init__(self, share: float, runs: int, units: int, device: torch.device) -> None:
        self.share = share
        self.values = torch.zeros(3, runs, units, dtype=torch.float64, device=device)
        self.seen = torch.zeros((), dtype=torch.float64, device=device)
        """0 until the first measurement, which counts in full."""

    def mix(self, now: NodeCurvature) -> NodeCurvature:
        """The past with weight `share`, the present with the rest."""
        fresh = torch.stack([now.local, now.total, now.flow_squared])
        self.values.copy_(torch.lerp(fresh, self.values, self.share * self.seen))
        self.seen.fill_(1.0)
        return NodeCurvature(*self.values.clone().unbind())

    def take(self, other: _Memory, rows: Sequence[int]) -> None:
        """The past of other runs."""
        self.values.copy_(other.values[:, list(rows)])
        self.seen.copy_(other.seen)


@dataclass(frozen=True)
class _GatedRuns:
    """Runs whose gates come from one call."""

    key: Hashable
    runs: list[int]
    index: Tensor
    gate: Gate
    estimator: str
    memory: _Memory | None


def _unit_sums(measured: CurvatureSums | None) -> Tensor | None:  # (R, 3, M)
    """Sums of F^2, t and T of all units, layer after layer."""
    if measured is None or measured.local is None:
        return None
    assert measured.flow_squared is not None
    assert measured.total is not None
    kinds = (measured.flow_squared, measured.local, measured.total)
    return torch.stack([torch.cat([layer.flatten(1) for layer in kind], dim=1) for kind in kinds], dim=1)


def _ratios(measured: CurvatureSums | None) -> tuple[Tensor, ...] | None:
    return None if measured is None else measured.ratio


def _form(method: Method) -> tuple[bool, bool]:
    """Whether the penalty and the simplex are exact."""
    return (False, False) if isinstance(method, Vanilla) else (method.penalty == "exact", method.simplex == "exact")


def _without_nan(curvature: NodeCurvature) -> NodeCurvature:
    parts = (curvature.local, curvature.total, curvature.flow_squared)
    return NodeCurvature(*(torch.nan_to_num(part) for part in parts))


def _pick(values: Tensor, runs: Tensor | None) -> Tensor:
    return values if runs is None else values.index_select(0, runs)


def _summaries(omega: Tensor) -> list[GateSummary]:  # (runs, M)
    """One for each run, fetched from the device all at once. The median is the lower of the two in the middle."""
    above_half = (omega > 0.5).double().mean(1)
    values = torch.stack([omega.amin(1), omega.median(1).values, omega.amax(1), above_half], dim=1)
    return [GateSummary(*row) for row in values.tolist()]
