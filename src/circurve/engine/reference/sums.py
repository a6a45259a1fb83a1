"""The statistics of an E-step, added up from the passes of the reference backend.

With sample weights w_n the flow of the whole circuit is scaled: F' = w F and A' = F' / S. Counts are linear in it; what
is quadratic is divided by w again. With q_n = sum_c E_cn^2,

    t_kn = q_n / S_kn^2     T_kn = A_kn^2 q_n     F_nc^2 = theta_kc^2 A_kn^2 E_cn^2     rho_nc^2 = E_cn^2 / S_kn^2.

Where p_n = 0, the ratios p_c / p_n have no meaning: such a sample is left out of the sums of t and rho of that unit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import IMPOSSIBLE, MAX_TERM
from circurve.engine.params import Params
from circurve.engine.program import InputLayer, Program
from circurve.engine.reference.downward import RootFlow, SumPass
from circurve.engine.reference.workspace import Memory
from circurve.engine.statistics import CurvatureSums, EdgeSums, Request, Statistics
from circurve.inputs import Categorical

__all__ = ["MAX_ONE_HOT", "Sums", "decomposition", "flow_by_state", "input_statistics", "weak_decomposition"]


MAX_ONE_HOT = 256
"""The largest number of states for which one-hot columns are made, (states, N) for each input."""


def edge_norm(step: SumPass) -> Tensor:  # (R, G, 1, N), or (R, G, K, N) with a mask
    """q, the sum of E^2 over the edges of a unit."""
    squares = step.values.elements.square()
    return squares.sum(-2, keepdim=True) if step.mask is None else torch.matmul(step.mask, squares)


def decomposition(step: SumPass) -> tuple[Tensor, Tensor]:
    """T = A^2 q and t = q / S^2 of each unit and sample, (R, G, K, N), weak entries left out."""
    norm = edge_norm(step)
    local = torch.where(step.values.log_largest > IMPOSSIBLE, norm / step.values.sums.square(), 0.0)
    return step.ratio.square() * norm, local


def weak_decomposition(log_ratio: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:  # (P, C), (P,) -> (P,), (P,)
    """T and t of weak entries, float64. In logs a flow of zero never meets an infinite ratio."""
    exact = log_ratio.double()
    return (2 * (exact + flow.double().log()[:, None])).exp().sum(-1), (2 * exact).exp().sum(-1)


def weak_flow_weighted(log_ratio: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:  # (P, C), (P,) -> (P,), (P,)
    """F t and F log t of weak entries, float64; zero without flow."""
    weight = flow.double()
    log_local = torch.where(weight > 0, (2 * log_ratio.double()).logsumexp(-1), 0.0)
    return (log_local + weight.log()).exp(), weight * log_local


def input_statistics(
    layer: InputLayer, variables: Tensor, batch: Batch, flow: Tensor, memory: Memory
) -> Tensor:  # (R, G, K, S)
    """Sufficient statistics of an input layer: flow @ features^T, in the precision of the features."""
    observed = None if batch.observed is None else batch.observed.index_select(1, variables)
    x = batch.x.index_select(1, variables)
    if isinstance(layer.family, Categorical) and layer.family.states > MAX_ONE_HOT and not x.is_cuda:
        return flow_by_state(flow.to(x.dtype), x, observed, layer.family.states)
    features = layer.family.features(x, observed)  # (R or 1, G, S, N)
    if flow.dtype != features.dtype:
        place = memory.take("exact flow", *flow.shape, dtype=features.dtype)
        flow = flow.to(features.dtype) if place is None else place.copy_(flow)
    return torch.matmul(flow, features.transpose(-1, -2))


def flow_by_state(
    flow: Tensor, x: Tensor, observed: Tensor | None, states: int
) -> Tensor:  # (R, G, K, N), (R or 1, G, N), (R or 1, G, N) -> (R, G, K, states)
    """The sum of flow over the samples in each state, O(R G K (N + states)): one-hot columns take O(R G K N states).

    On a CPU, samples are added in their order; on a GPU, the order would differ from call to call.
    """
    if observed is not None:
        present = observed.bool()
        x, flow = torch.where(present, x, 0.0), flow * present.unsqueeze(-2)
    places = x.long().unsqueeze(-2).expand(flow.shape)
    return flow.new_zeros(*flow.shape[:3], states).scatter_add_(-1, places, flow)


class Sums:
    """Sums of one E-step; `result` gives them once all batches were seen."""

    def __init__(self, program: Program, params: Params, request: Request) -> None:
        self.program, self.params, self.request = program, params, request
        none = torch.zeros(params.runs, dtype=torch.float64, device=params.device)
        self.scaled_counts = [torch.zeros_like(weights) for weights in params.weights]
        """N / theta of each sum layer, without weak entries."""

        self.weak_counts: dict[int, Tensor] = {}
        """N of weak entries, for the sum layers that have any."""

        self.inputs: list[Tensor | None] = [None] * len(params.inputs)
        self.log_likelihood, self.weight = none.clone(), none.clone()
        self.impossible, self.broken = none.long(), none.long()
        self.units = [none.new_zeros(request.unit_kinds, *weights.shape[:3]) for weights in params.weights]
        """F^2, t, T, and then F t, F log t, F of each sum layer, (0, 3 or 6, R, G, K)."""

        self.ratio = [torch.zeros_like(weights) for weights in params.weights] if request.mean_ratio else []
        self.second = [torch.zeros_like(weights) for weights in params.weights] if request.second_moment else []
        self.squared = [torch.zeros_like(weights) for weights in params.weights] if request.squared_ratio else []

    def add_root(self, root: RootFlow) -> None:
        """Log-likelihood and weights of a batch."""
        self.weight += root.weight.sum(-1, dtype=torch.float64)
        self.log_likelihood += torch.where(root.possible, root.log_value * root.weight, 0.0).sum(
            -1, dtype=torch.float64
        )
        self.impossible += root.impossible.sum(-1)
        self.broken += root.broken.sum(-1)

    def add_sum(self, step: SumPass, root: RootFlow) -> None:
        """Counts, and the curvature sums that were asked for."""
        number, values = step.number, step.values
        by_sample = values.elements.transpose(-1, -2)
        self.scaled_counts[number].flatten(0, 1).baddbmm_(step.ratio.flatten(0, 1), by_sample.flatten(0, 1))
        if self.request.mean_ratio:
            per_unit = self._weight_where_possible(step, root) / values.sums
            rho = torch.matmul(per_unit, by_sample)
            self.ratio[number] += rho if step.mask is None else rho * step.mask
        if self.request.second_moment:
            per_unit = (step.ratio * root.inverse[:, None, None].sqrt()).square_()
            per_unit.clamp_max_(MAX_TERM[per_unit.dtype])  # infinity times an element of zero would be NaN
            moments = torch.matmul(per_unit, values.elements.square().transpose(-1, -2))
            self.second[number] += moments * step.weights.square()
        if self.request.squared_ratio:
            per_unit = self._weight_where_possible(step, root) / values.sums.square()
            squares = torch.matmul(per_unit.clamp_max_(MAX_TERM[per_unit.dtype]), by_sample.square())
            self.squared[number] += squares if step.mask is None else squares * step.mask
        if self.request.unit_kinds:
            self._add_units(step, root)
        self._add_weak(step, root)

    def _add_units(self, step: SumPass, root: RootFlow) -> None:
        """Sums of F^2, t and T over samples: squared norms, in float64, of rows whose squares may exceed float32."""
        inverse, weight = (w.sqrt() for w in (root.inverse[:, None, None], self._weight_where_possible(step, root)))
        norm = edge_norm(step).sqrt_()  # sqrt(q), (R, G, 1 or K, N)
        kinds = (step.flow * inverse, norm * weight / step.values.sums, step.ratio * (norm * inverse))
        for place, rows in enumerate(kinds):
            self.units[step.number][place] += _squared_norm(rows)
        if self.request.flow_weighted:
            root_local = norm / step.values.sums  # sqrt(t), 0 at weak entries
            self.units[step.number][3] += _squared_norm(step.flow.sqrt() * root_local)
            self.units[step.number][4] += 2 * _weighted_logs(step.flow, root_local)
            self.units[step.number][5] += step.flow.sum(-1, dtype=torch.float64)

    def _weight_where_possible(self, step: SumPass, root: RootFlow) -> Tensor:  # (R, G, 1, N)
        """The samples' weights, zero where all children of a group have probability zero."""
        return root.weight[:, None, None] * (step.values.log_largest > IMPOSSIBLE)

    def _add_weak(self, step: SumPass, root: RootFlow) -> None:
        """Entries that were computed in logs, one by one."""
        number, dtype = step.number, self.params.dtype
        for entries in step.weak():
            run, group, unit, sample = entries.at
            at = (run, group, unit)
            weight, inverse = (column[run, sample].double() for column in (root.weight, root.inverse))  # (P,)
            edge_flow = (entries.flow[:, None] * entries.responsibility).double()  # (P, C)
            counts = self.weak_counts.setdefault(number, torch.zeros_like(step.weights))
            counts.index_put_(at, edge_flow.to(dtype), accumulate=True)
            if self.request.second_moment:
                moments = edge_flow.square() * inverse[:, None]
                self.second[number].index_put_(at, moments.to(dtype), accumulate=True)
            # infinite beyond exp(709), and then it must not meet a weight of zero
            log_ratio = entries.log_ratio.double().masked_fill(weight[:, None] == 0, -torch.inf)
            if self.request.mean_ratio:
                rho = log_ratio.exp() * weight[:, None]
                self.ratio[number].index_put_(at, rho.to(dtype), accumulate=True)
            if self.request.squared_ratio:
                squares = ((2 * log_ratio).exp() * weight[:, None]).clamp_max(MAX_TERM[dtype])
                self.squared[number].index_put_(at, squares.to(dtype), accumulate=True)
            if self.request.unit_kinds:
                total, local = weak_decomposition(log_ratio, entries.flow)
                kinds = [local * weight, total * inverse]
                if self.request.flow_weighted:
                    kinds += weak_flow_weighted(log_ratio, entries.flow)
                for place, kind in enumerate(kinds, start=1):
                    self.units[number][place].index_put_(at, kind, accumulate=True)

    def add_input(self, number: int, sums: Tensor) -> None:
        """Sufficient statistics of input layer `number`."""
        total = self.inputs[number]
        self.inputs[number] = sums if total is None else total + sums

    def result(self) -> Statistics:
        """The sums so far."""
        assert all(total is not None for total in self.inputs), "statistics need at least one batch"
        inputs = tuple(total for total in self.inputs if total is not None)
        curvature = self._curvature() if self.request.any else None
        counts = [scaled * weights for scaled, weights in zip(self.scaled_counts, self.params.weights, strict=True)]
        for number, weak in self.weak_counts.items():
            counts[number] += weak
        return Statistics(
            tuple(counts), inputs, self.log_likelihood, self.weight, self.impossible, self.broken, curvature
        )

    def _curvature(self) -> CurvatureSums:
        request = self.request
        edges = EdgeSums(
            tuple(self.ratio) if request.mean_ratio else None,
            tuple(self.second) if request.second_moment else None,
            tuple(self.squared) if request.squared_ratio else None,
        )
        units = [tuple(layer[i] for layer in self.units) for i in range(request.unit_kinds)]
        return CurvatureSums.collect(request, units, edges)


def _squared_norm(rows: Tensor) -> Tensor:  # (R, G, K, N) -> (R, G, K)
    """The sum of squares over samples, in float64."""
    norm: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
    return norm.square_()


def _weighted_logs(flow: Tensor, values: Tensor) -> Tensor:  # (R, G, K, N) both -> (R, G, K)
    """The sum over samples of flow * log(values), where values are positive."""
    return torch.where(values == 0, 1.0, values).log_().mul_(flow).sum(-1, dtype=torch.float64)
