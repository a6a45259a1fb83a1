"""Runs whose gates come from one call: what they measure in each batch, and what they remember beyond it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.learning.gates import NodeCurvature, apply_gate, is_ours
from circurve.learning.local_curvature import BY_FLOW, NodeSums, by_flow, clipped
from circurve.learning.methods import Gated, as_gate

__all__ = ["GateShape", "GatedRuns"]


@dataclass(frozen=True)
class GateShape:
    """What gates must know of the circuit."""

    least_flow: float
    """Units that received less count as unused."""

    edges: Sequence[tuple[int, ...]]
    """(G, K, C) of each sum layer."""


class GatedRuns:
    """Runs with the same gate and the same options of it.

    With `gates_from` "batch", gates are those of the batch, or of a running mean of the curvature where `gate_memory`
    asks for it. Of estimators that weigh samples by flow, F t (or F log t) and F have running means, and t^ is made
    from the two: as of all these samples together. With "epoch" and "first", the sums of all batches of an epoch are
    collected, and the gates of its end are held.

    All that is remembered is changed in place, so that a recorded step can be repeated.
    """

    def __init__(self, key: Hashable, runs: list[int], method: Gated, like: Tensor, shape: GateShape) -> None:
        self.key, self.runs, self.gate = key, runs, as_gate(method.gate)  # like: (R, M)
        self.estimator, self.floor, self.memory = method.estimator, method.ratio_floor, method.gate_memory
        self.source, self.by_flow, self.least_flow = method.gates_from, self.estimator in BY_FLOW, shape.least_flow
        self.index = torch.tensor(runs, device=like.device)
        count, units, kinds = len(runs), like.shape[1], 3 + self.by_flow
        held = self.source != "batch"
        # t (or its numerator), T and F^2, and then F: a running mean, or the sums of this epoch
        self.past = like.new_zeros(count, kinds, units if held or self.memory else 0)
        self.seen = like.new_zeros(count, 1, 1)  # 0 until the first measurement, which counts in full
        self.weight = like.new_zeros(count)  # of the samples of this epoch
        self.held = like.new_zeros(count, units if held else 0)
        edges = shape.edges if held and self.estimator == "mean_ratio" else ()
        self.ratios = [like.new_zeros(count, *layer) for layer in edges]  # sums of rho of this epoch
        remembered = [self.past, self.seen] if held or self.memory else []
        self.state = [*remembered, *([self.weight, self.held, *self.ratios] if held else [])]
        """All that is remembered, runs first."""

    def gates(self, measured: NodeSums, weight: Tensor) -> Tensor:  # (runs, M)
        """The gates of this M-step. weight: of the batch's samples, (R,); if it is 0, the past stays as it is."""
        weight = weight.index_select(0, self.index)[:, None, None]
        has_samples = weight > 0
        weight = weight.clamp_min(torch.finfo(torch.float64).tiny)
        means = self._means(measured, weight)
        if self.source != "batch":
            self.past += torch.stack(means, dim=1) * weight
            self.weight += weight[:, 0, 0]
            for total, ratio in zip(self.ratios, measured.ratios or (), strict=False):
                total.add_(ratio.index_select(0, self.index))
            return self.held
        if self.memory:
            share_of_past = torch.where(has_samples, self.memory * self.seen, 1.0)
            self.past.copy_(torch.lerp(torch.stack(means, dim=1), self.past, share_of_past))
            self.seen.clamp_min_(has_samples)
            means = self.past.clone().unbind(1)
        return self._gates_of(means)

    def end_epoch(self) -> None:
        """Hold the gates of this epoch's samples; with "first", those of the first epoch stay."""
        if self.source == "batch" or not bool((self.weight > 0).any()):
            return
        if self.source == "epoch" or not bool(self.seen.any()):
            weight = self.weight[:, None, None].clamp_min(torch.finfo(torch.float64).tiny)
            means = self.past / weight
            if self.ratios:
                means[:, 0] = torch.cat(_mean_ratios(self.ratios, weight), dim=1)
            self.held.copy_(self._gates_of(means.unbind(1)))
        self.seen.fill_(1.0)
        for tensor in (self.past, self.weight, *self.ratios):
            tensor.zero_()

    def _gates_of(self, means: Sequence[Tensor]) -> Tensor:  # (runs, M) each -> (runs, M)
        local, total, flow_squared, *flow = means
        if self.by_flow:
            local = by_flow(self.estimator, local, flow[0], self.least_flow)
        curvature = (local, total, flow_squared)
        if not is_ours(self.gate):  # a run that failed is reported as failed, not as an error of the user's gate
            curvature = (local.nan_to_num(), total.nan_to_num(), flow_squared.nan_to_num())
        return apply_gate(self.gate, NodeCurvature(*curvature))

    def _means(self, measured: NodeSums, weight: Tensor) -> tuple[Tensor, ...]:
        """t (or its numerator), T and F^2, and then F, (runs, M) each. weight: of these runs, (runs, 1, 1)."""
        assert measured.units is not None
        largest = torch.finfo(torch.float64).max  # an edge of weight zero can have infinite curvature
        means = (measured.units.index_select(0, self.index) / weight).clamp_max_(largest)  # (runs, 3 or 6, M)
        flow_squared, local, total, *weighted = means.unbind(1)
        if self.by_flow:
            flow_local, flow_log_local, flow = weighted
            numerator = flow_log_local if self.estimator == "geometric" else flow_local
            return numerator, total, flow_squared, flow
        if self.estimator in ("mean_ratio", "clipped") and not self.ratios:
            local = torch.cat(self._edge_means(measured, weight), dim=1).clamp_max(largest)
        return local, total, flow_squared

    def _edge_means(self, measured: NodeSums, weight: Tensor) -> list[Tensor]:  # (runs, G K) for each layer
        """t^ of the estimators that are made from sums of single edges."""
        if self.estimator == "mean_ratio":
            assert measured.ratios is not None
            return _mean_ratios([ratio.index_select(0, self.index).double() for ratio in measured.ratios], weight)
        assert measured.squares is not None
        layers = [
            [part.index_select(0, self.index) for part in pair]
            for pair in zip(measured.squares, measured.weights, strict=True)
        ]
        return [(clipped(squares, theta, self.floor) / weight).flatten(1) for squares, theta in layers]


def _mean_ratios(ratios: Sequence[Tensor], weight: Tensor) -> list[Tensor]:  # (runs, G, K, C) -> (runs, G K)
    """The sum over edges of the squared mean ratio; weight: (runs, 1, 1)."""
    return [(ratio / weight[..., None]).square().sum(-1).flatten(1) for ratio in ratios]
