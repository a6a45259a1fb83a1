"""The observer that adds up an E-step's statistics while flows go down.

With sample weights w_n the flow of the whole circuit is scaled: F' = w F and A' = F' / S. Counts are linear in it; what
is quadratic is divided by w again. With q_n = sum_c E_cn^2,

    t_kn = q_n / S_kn^2        T_kn = A_kn^2 q_n        F_nc^2 = theta_kc^2 A_kn^2 E_cn^2

so the curvature sums are matrix-vector products over samples, and the second moments one more matrix product. Where
p_n = 0, the ratios p_c / p_n have no meaning: such a sample is left out of the sums of t and rho of that unit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.bound import Engine
from circurve.engine.params import Params
from circurve.engine.reference import SumPass
from circurve.engine.statistics import CurvatureSums, Request, Statistics
from circurve.engine.underflow import Repaired
from circurve.inputs import LOG_ZERO

__all__ = ["Sums"]


class Sums:
    """Sums of one E-step; `result` gives them once all batches were seen."""

    def __init__(self, engine: Engine, params: Params, request: Request) -> None:
        self.engine, self.params, self.request = engine, params, request
        self.counts = [torch.zeros_like(w) for w in params.weights]
        self.repaired_counts: dict[int, Tensor] = {}
        self.repaired_second: dict[int, Tensor] = {}
        self.inputs: list[Tensor | None] = [None] * len(params.inputs)
        self.weight = torch.zeros(engine.runs, dtype=torch.float64, device=engine.device)
        self.log_likelihood = torch.zeros_like(self.weight)
        self.impossible = torch.zeros(engine.runs, dtype=torch.int64, device=engine.device)
        units = [torch.zeros(w.shape[:3], dtype=torch.float64, device=w.device) for w in params.weights]
        asked = units if request.curvature else []
        self.flow_squared, self.local, self.total = ([u.clone() for u in asked] for _ in range(3))
        self.ratio = [torch.zeros_like(w) for w in params.weights] if request.mean_ratio else []
        self.second = [torch.zeros_like(w) for w in params.weights] if request.second_moment else []

    def on_start(self, batch: Batch, log_value: Tensor, weight: Tensor, possible: Tensor) -> None:
        """A batch with its log-likelihoods, weights (zero for impossible samples) and possible samples, all (R, N)."""
        self.batch, self.sample_weight = batch, weight
        self.weight += weight.sum(-1, dtype=torch.float64)
        self.log_likelihood += torch.where(possible, log_value * weight, 0.0).sum(-1, dtype=torch.float64)
        wanted = ~possible if batch.weights is None else ~possible & (batch.weights > 0)
        self.impossible += wanted.sum(-1)
        self.inverse_weight = torch.where(weight > 0, 1 / weight, 0.0)

    def on_sum(self, step: SumPass) -> None:
        """Counts, and the curvature sums that were asked for. Overwrites `step.ratio` and `step.scaled`."""
        _, k, c = step.layer.shape
        n = self.engine.samples
        elements = step.elements.view(-1, c, n)
        counts = self.counts[step.number].view(-1, k, c)
        torch.baddbmm(counts, step.ratio.view(-1, k, n), elements.transpose(1, 2), out=counts)
        if self.request.mean_ratio:
            per_unit = (self._weight_where_possible(step) / step.scaled).view(-1, k, n)
            self.ratio[step.number].view(-1, k, c).baddbmm_(per_unit, elements.transpose(1, 2))
        if not (self.request.curvature or self.request.second_moment):
            return
        inverse = self.inverse_weight[:, None, None]
        if self.request.curvature:
            self.flow_squared[step.number] += _over_samples(step.flow.square(), inverse[:, :, 0])
        ratio_squared = step.ratio.square_()
        if self.request.second_moment:
            per_unit = (ratio_squared * inverse).view(-1, k, n)
            self.second[step.number].view(-1, k, c).baddbmm_(per_unit, elements.square().transpose(1, 2))
        if self.request.curvature:
            self._curvature(step, ratio_squared)

    def _curvature(self, step: SumPass, ratio_squared: Tensor) -> None:
        weight, inverse = self._weight_where_possible(step).squeeze(2), self.inverse_weight[:, None]
        local = step.scaled.reciprocal_().square_()
        mask = self.engine.masks[step.number]
        if mask is None:
            norm = torch.linalg.vector_norm(step.elements, dim=-2).square_()  # q, (R, G, N)
            self.total[step.number] += _over_samples(ratio_squared, norm * inverse)
            self.local[step.number] += _over_samples(local, norm * weight)
        else:
            norms = torch.matmul(mask, step.elements.square())  # (R, G, K, N): a unit sees only its own edges
            self.total[step.number] += _over_samples(ratio_squared * norms, inverse)
            self.local[step.number] += _over_samples(local * norms, weight)

    def _weight_where_possible(self, step: SumPass) -> Tensor:  # (R, G, 1, N)
        """The samples' weights, zero where all children of a group have probability zero."""
        return self.sample_weight[:, None, None] * (step.log_largest > LOG_ZERO / 2)

    def on_repaired(self, number: int, entries: Repaired) -> None:
        """Entries that were computed in logs: added one by one, in float64."""
        at = (entries.run, entries.group, entries.unit)
        weight = self.sample_weight[entries.run, entries.sample].double()
        inverse = self.inverse_weight[entries.run, entries.sample].double()  # (P,)
        edge_flow = (entries.flow[:, None] * entries.responsibility).double()  # (P, C)
        self._extra(self.repaired_counts, number).index_put_(at, edge_flow, accumulate=True)
        if self.request.second_moment:
            moment = edge_flow.square() * inverse[:, None]
            self._extra(self.repaired_second, number).index_put_(at, moment, accumulate=True)
        log_ratio = entries.log_ratio.double().masked_fill(weight[:, None] == 0, -torch.inf)  # (P, C)
        mask = self.engine.masks[number]
        if mask is not None:
            log_ratio = log_ratio.masked_fill(mask[entries.group, entries.unit] == 0, -torch.inf)
        ratio = log_ratio.exp()  # infinite beyond exp(709), and then it must not meet a zero
        if self.request.mean_ratio:
            self.ratio[number].index_put_(at, (ratio * weight[:, None]).to(self.engine.dtype), accumulate=True)
        if self.request.curvature:
            self.local[number].index_put_(at, ratio.square().sum(-1) * weight, accumulate=True)
            gradient = (log_ratio + entries.flow.double().log()[:, None]).exp()  # F_nc / theta_nc
            self.total[number].index_put_(at, gradient.square().sum(-1) * inverse, accumulate=True)

    def _extra(self, sums: dict[int, Tensor], number: int) -> Tensor:
        if number not in sums:
            sums[number] = torch.zeros_like(self.counts[number], dtype=torch.float64)
        return sums[number]

    def on_input(self, number: int, flow: Tensor) -> None:
        """Sufficient statistics of an input layer: flow @ features^T."""
        layer, variables = self.engine.program.inputs[number], self.engine.variables[number]
        observed = self.batch.observed
        features = layer.family.features(
            self.batch.x.index_select(1, variables), None if observed is None else observed.index_select(1, variables)
        )  # (R or 1, G, S, N)
        features = features.expand(flow.shape[0], -1, -1, -1)
        sums = torch.matmul(flow.to(features.dtype), features.transpose(-1, -2))
        total = self.inputs[number]
        self.inputs[number] = sums if total is None else total.add_(sums)

    def result(self) -> Statistics:
        """The sums so far. Edge sums were kept without their weights theta, which are constant: they come in here."""
        weights = self.params.weights
        counts = [count * weight for count, weight in zip(self.counts, weights, strict=True)]
        for number, extra in self.repaired_counts.items():
            counts[number] += extra.to(self.engine.dtype)
        curvature = self._curvature_sums(counts) if self.request.any else None
        assert all(total is not None for total in self.inputs), "statistics need at least one batch"
        inputs = tuple(total for total in self.inputs if total is not None)
        return Statistics(tuple(counts), inputs, self.log_likelihood, self.weight, self.impossible, curvature)

    def _curvature_sums(self, counts: list[Tensor]) -> CurvatureSums:
        asked = self.request
        flow = tuple(count.sum(-1, dtype=torch.float64) for count in counts)
        second = [moment * w.square() for moment, w in zip(self.second, self.params.weights, strict=False)]
        for number, extra in self.repaired_second.items():
            second[number] += extra.to(self.engine.dtype)
        ratio = [
            sums if mask is None else sums * mask for sums, mask in zip(self.ratio, self.engine.masks, strict=False)
        ]
        return CurvatureSums(
            flow=flow,
            flow_squared=tuple(self.flow_squared) if asked.curvature else None,
            local=tuple(self.local) if asked.curvature else None,
            total=tuple(self.total) if asked.curvature else None,
            ratio=tuple(ratio) if asked.mean_ratio else None,
            second_moment=tuple(second) if asked.second_moment else None,
        )


def _over_samples(values: Tensor, weight: Tensor) -> Tensor:
    """Sum over samples of (R, G, K, N) times (R, G or 1, N): (R, G, K)."""
    r, g, k, n = values.shape
    column = weight.expand(r, g, n).reshape(r * g, n, 1)
    return torch.bmm(values.reshape(r * g, k, n), column).view(r, g, k)
