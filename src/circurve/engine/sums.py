"""The observer that adds up an E-step's statistics while flows go down.

With sample weights w_n the flow of the whole circuit is scaled: F' = w F and A' = F' / S. Counts are linear in it; what
is quadratic is divided by w again. With q_n = sum_c E_cn^2,

    t_kn = q_n / S_kn^2        T_kn = A_kn^2 q_n        F_nc^2 = theta_kc^2 A_kn^2 E_cn^2

so the sums of t, T and F^2 over samples are squared norms of rows of S^-1, A and F, scaled by sqrt(q_n): a few passes
over arrays of samples x units. The second moments are one more matrix product. Where p_n = 0, the ratios p_c / p_n have
no meaning: such a sample is left out of the sums of t and rho of that unit.
"""

from __future__ import annotations

from itertools import accumulate

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.bound import Engine
from circurve.engine.cuda import norms
from circurve.engine.params import Params
from circurve.engine.reference import SumPass
from circurve.engine.state_sums import StateSums, close_table
from circurve.engine.statistics import CurvatureSums, Request, Statistics
from circurve.engine.tables import Lookup, by_state, squares_by_state
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
        self.broken = torch.zeros_like(self.impossible)
        self.sizes = [layer.shape[0] * layer.shape[1] for layer in engine.program.sums]
        self.starts = list(accumulate(self.sizes, initial=0))
        units = sum(self.sizes) if request.curvature else 0
        self.units = torch.zeros(3, engine.runs, units, dtype=torch.float64, device=engine.device)
        self.flow_squared, self.local, self.total = self.units  # (R, M) for all M sum units
        self.norms: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.states: dict[int, StateSums] = {}  # by input layer
        self.ratio = [torch.zeros_like(w) for w in params.weights] if request.mean_ratio else []
        self.second = [torch.zeros_like(w) for w in params.weights] if request.second_moment else []

    def on_start(self, batch: Batch, log_value: Tensor, weight: Tensor, possible: Tensor) -> None:
        """A batch with its log-likelihoods, weights (zero unless possible) and possible samples, all (R, N)."""
        self._flush()
        self.batch, self.sample_weight = batch, weight
        self.weight += weight.sum(-1, dtype=torch.float64)
        self.log_likelihood += torch.where(possible, log_value * weight, 0.0).sum(-1, dtype=torch.float64)
        left_out = ~possible if batch.weights is None else ~possible & (batch.weights > 0)
        broken = log_value.isnan()
        self.impossible += (left_out & ~broken).sum(-1)
        self.broken += (left_out & broken).sum(-1)
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
        squares = None
        if self._needs_squares(step.number):
            squares = torch.square(step.elements, out=self.engine.scratch(2, *step.elements.shape[1:3]))
        if self.request.second_moment:
            assert squares is not None
            per_unit = (step.ratio.square() * self.inverse_weight[:, None, None]).view(-1, k, n)
            self.second[step.number].view(-1, k, c).baddbmm_(per_unit, squares.view(-1, c, n).transpose(1, 2))
        if self.request.curvature:
            self._curvature(step, squares)

    def _needs_squares(self, number: int) -> bool:
        """Whether E^2 is wanted as such; a GPU takes the norms of columns without it, a CPU is faster with it."""
        return self.request.second_moment or self.engine.masks[number] is not None or self.engine.device.type == "cpu"

    def _curvature(self, step: SumPass, squares: Tensor | None) -> None:
        """Norms over samples of F, A sqrt(q) and S^-1 sqrt(q), kept until `_flush` squares them all at once."""
        mask = self.engine.masks[step.number]
        if squares is None:
            norm = torch.linalg.vector_norm(step.elements, dim=-2, keepdim=True)  # sqrt(q), (R, G, 1, N)
        elif mask is None:
            norm = squares.sum(-2, keepdim=True).sqrt_()
        else:
            norm = torch.matmul(mask, squares).sqrt_()  # (R, G, K, N): a unit sees only its own edges
        if mask is None and norms.serves(step.flow):
            weights = (self.sample_weight, self.inverse_weight)
            norms.add_row_sums(self.units, self.starts[step.number], step, norm, weights)
            return
        flow, scale = step.flow, norm
        if self.batch.weights is not None:
            inverse = self.inverse_weight[:, None, None].sqrt()
            flow, scale = flow * inverse, norm * inverse
        total = torch.linalg.vector_norm(step.ratio.mul_(scale), dim=-1)  # (R, G, K)
        scale = norm * self._weight_where_possible(step).sqrt()
        local = torch.linalg.vector_norm(torch.div(scale, step.scaled, out=step.scaled), dim=-1)
        self.norms[step.number] = (torch.linalg.vector_norm(flow, dim=-1), local, total)

    def _flush(self) -> None:
        """Add the squared norms of the batch that was just seen to the sums."""
        if not self.norms:
            return
        runs = self.engine.runs
        for i, sums in enumerate((self.flow_squared, self.local, self.total)):
            parts = [
                self.norms[number][i].flatten(1) if number in self.norms else sums.new_zeros(runs, size)
                for number, size in enumerate(self.sizes)
            ]
            sums.add_(torch.cat(parts, dim=1).double().square_())
        self.norms = {}

    def _weight_where_possible(self, step: SumPass) -> Tensor:  # (R, G, 1, N)
        """The samples' weights, zero where all children of a group have probability zero."""
        return self.sample_weight[:, None, None] * (step.log_largest > LOG_ZERO / 2)

    def on_table(self, number: int, flow: Tensor, lookup: Lookup) -> None:
        """Flow, its square and the samples' weights by state; everything else comes from the table in the end."""
        _, g, k, _ = flow.shape
        spare, indicator = self.engine.scratch(1, g, k), lookup.indicator
        place = self.engine.tabulated[self.engine.program.sums[number].block]
        sums = self.states.setdefault(place, StateSums(number, slice(None)))
        sums.keep(lookup.table)
        if not self.request.any:
            sums.add_flow(by_state(flow, indicator, spare))
            return
        sums.add_weight((self.sample_weight[:, None, None] * indicator).sum(-1).unsqueeze(-2))
        if norms.serves(flow):
            flows, squares = norms.state_sums(flow, indicator, self.inverse_weight)
        elif self.batch.weights is None:
            flows, squares = squares_by_state(flow, indicator, spare)
        else:
            flows = by_state(flow, indicator, spare)
            scaled = flow * self.inverse_weight[:, None, None].sqrt()
            squares = by_state(scaled.square_(), indicator, spare)
        sums.add_flow(flows)
        sums.add_square(squares)

    def _close_tables(self) -> None:
        """Turn the sums by state of tabulated sums into the sums that all have."""
        for place, sums in self.states.items():
            close_table(self, place, sums)
        self.states = {}

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
            unit = self.starts[number] + entries.group * self.params.weights[number].shape[2] + entries.unit
            self.local.index_put_((entries.run, unit), ratio.square().sum(-1) * weight, accumulate=True)
            gradient = (log_ratio + entries.flow.double().log()[:, None]).exp()  # F_nc / theta_nc
            self.total.index_put_((entries.run, unit), gradient.square().sum(-1) * inverse, accumulate=True)

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
        sums = by_state(flow, features, self.engine.scratch(1, flow.shape[1], flow.shape[2]))
        total = self.inputs[number]
        self.inputs[number] = sums if total is None else total.add_(sums)

    def result(self) -> Statistics:
        """The sums so far. Edge sums were kept without their weights theta, which are constant: they come in here."""
        self._flush()
        self._close_tables()
        weights = self.params.weights
        counts = [count * weight for count, weight in zip(self.counts, weights, strict=True)]
        for number, extra in self.repaired_counts.items():
            counts[number] += extra.to(self.engine.dtype)
        curvature = self._curvature_sums() if self.request.any else None
        assert all(total is not None for total in self.inputs), "statistics need at least one batch"
        inputs = tuple(total for total in self.inputs if total is not None)
        samples = (self.log_likelihood, self.weight, self.impossible, self.broken)
        return Statistics(tuple(counts), inputs, *samples, curvature)

    def _curvature_sums(self) -> CurvatureSums:
        asked = self.request
        second = [moment * w.square() for moment, w in zip(self.second, self.params.weights, strict=False)]
        for number, extra in self.repaired_second.items():
            second[number] += extra.to(self.engine.dtype)
        ratio = [
            sums if mask is None else sums * mask for sums, mask in zip(self.ratio, self.engine.masks, strict=False)
        ]
        return CurvatureSums(
            flow_squared=self._by_layer(self.flow_squared) if asked.curvature else None,
            local=self._by_layer(self.local) if asked.curvature else None,
            total=self._by_layer(self.total) if asked.curvature else None,
            ratio=tuple(ratio) if asked.mean_ratio else None,
            second_moment=tuple(second) if asked.second_moment else None,
        )

    def _by_layer(self, units: Tensor) -> tuple[Tensor, ...]:  # (R, M) -> (R, G, K) for each layer
        parts = torch.split(units, self.sizes, dim=1)
        return tuple(part.view(w.shape[:3]) for part, w in zip(parts, self.params.weights, strict=True))
