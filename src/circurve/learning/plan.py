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
from circurve.learning.gated_runs import GatedRuns, GateShape
from circurve.learning.local_curvature import NodeSums, request_for
from circurve.learning.methods import Gated, Global, Method, Vanilla
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
    """One M-step for runs with the given methods; remembers curvature that gates need beyond one batch.

    data_weight: of all training rows together, for mu_scale="data".
    """

    def __init__(
        self,
        program: Program,
        methods: Sequence[Method],
        like: Tensor,
        track: bool = False,
        data_weight: float = 1.0,
    ) -> None:
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
        self.scales = self._scales(data_weight)
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
        """Take over the running curvature of another plan; only the runs `kept` continue."""
        for old in earlier.gated:
            for new in self.gated:
                if old.key == new.key:
                    places = [place for place, run in enumerate(old.runs) if run in kept]
                    for after, before in zip(new.state, old.state, strict=True):
                        after.copy_(before[places])

    def running(self) -> list[Tensor]:
        """The running curvature of all runs, changed in place by every step."""
        return [tensor for gated in self.gated for tensor in gated.state]

    def end_epoch(self) -> None:
        """Gates that are held during an epoch are computed from what this one has measured."""
        for gated in self.gated:
            gated.end_epoch()

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
        """What counts are divided by first, by `mu_scale`; weight: of the batch's samples, (R,)."""
        return self.ones if self.scales is None else self.scales[0] + self.scales[1] * weight

    def gates(self, measured: NodeSums, weight: Tensor) -> Tensor:  # (R, M)
        """The gates of all sum units, kept in `omega`. weight: of the samples, (R,)."""
        self.omega = self.fixed
        if self.units and self.gated:
            self.omega = self.fixed.clone()
            for gated in self.gated:
                self.omega.index_copy_(0, gated.index, gated.gates(measured, weight))
        return self.omega

    def _targets(self, params: Params, sums: Statistics, mu: Sequence[float] | Tensor) -> list[Target]:
        measured = sums.curvature or CurvatureSums()
        moments = measured.second_moment or [None] * len(sums.counts)
        layers = [LayerSums(*layer) for layer in zip(sums.counts, moments, self.masks, strict=True)]
        if not layers or all(isinstance(m, Vanilla) for m in self.methods):
            return [mstep.normalized_counts(layer, self.smoothing) for layer in layers]
        strength = self._column(mu)[..., 0, 0] * self.gates(NodeSums.of(measured, params.weights), sums.weight)
        scale = None if self.scales is None else self.scale(sums.weight).view(-1, 1, 1, 1)
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

    def _scales(self, data_weight: float) -> tuple[Tensor, Tensor] | None:  # (R,), (R,)
        """The constant and the factor of the batch's weight in `scale`; None if no run scales its counts."""
        scales = ["count" if isinstance(method, Vanilla) else method.mu_scale for method in self.methods]
        if set(scales) == {"count"}:
            return None
        factors = {"count": (1.0, 0.0), "mean": (0.0, 1.0), "data": (0.0, 1 / data_weight)}
        constant, factor = torch.tensor([factors[scale] for scale in scales], dtype=torch.float64).to(self.device).T
        return constant, factor

    def _gated_runs(self) -> list[GatedRuns]:
        """Runs with the same options of their gates are taken together."""
        alike: dict[Hashable, list[tuple[int, Gated]]] = {}
        for run, method in enumerate(self.methods):
            if isinstance(method, Gated):
                same = method.gate if isinstance(method.gate, Hashable) else id(method.gate)
                key = (same, method.estimator, method.ratio_floor, method.gate_memory, method.gates_from)
                alike.setdefault(key, []).append((run, method))
        least, edges = LIMITS[self.dtype].least_flow, [layer.shape for layer in self.program.sums]
        return [
            GatedRuns(key, [run for run, _ in members], members[0][1], self.fixed, GateShape(least, edges))
            for key, members in alike.items()
        ]

    def _column(self, values: Sequence[float] | Tensor, dtype: torch.dtype = torch.float64) -> Tensor:  # (R, 1, 1, 1)
        return torch.as_tensor(values, dtype=dtype, device=self.device).view(-1, 1, 1, 1)


def _form(method: Method) -> tuple[bool, bool]:
    """Whether the penalty and the simplex are exact."""
    return (False, False) if isinstance(method, Vanilla) else (method.penalty == "exact", method.simplex == "exact")


def _pick(values: Values, runs: Tensor | None) -> Values:
    return values if values is None or runs is None else values.index_select(0, runs)
