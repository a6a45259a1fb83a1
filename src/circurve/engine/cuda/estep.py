"""The sums of an E-step on the fused kernels, for all layers in a few launches."""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cuda.blueprint import TablePlan
from circurve.engine.cuda.fused import FusedEngine
from circurve.engine.states import StateSums, padded_sum
from circurve.engine.statistics import CurvatureSums, EdgeSums, Request, Statistics

__all__ = ["FusedSums"]

UNITS = 1
"""The branch for the curvature sums of units; the counts, which take longer, have the other one."""


class FusedSums:
    """Sums over batches, in tensors of their own: results stay when the next E-step begins."""

    def __init__(self, engine: FusedEngine, request: Request, running: Tensor | None = None) -> None:
        self.engine, self.request, self.running = engine, request, running
        runs, device = engine.runs, engine.device
        self.totals = torch.empty(4, runs, dtype=torch.float64, device=device)
        """Log-likelihood, weight, samples of probability zero and samples that give NaN; `running` adds them up over
        many E-steps."""

        self.counts = engine.packing.empty(runs, device, engine.dtype)
        self.ratio = engine.packing.empty(runs, device, engine.dtype) if request.mean_ratio else []
        self.second = engine.packing.empty(runs, device, engine.dtype) if request.second_moment else []
        self.squared = engine.packing.empty(runs, device, engine.dtype) if request.squared_ratio else []
        self.inputs: dict[int, Tensor] = {}
        self.units: Tensor | None = None  # (R, kinds, M), as `Request.unit_kinds` has them
        self.by_state: dict[int, Tensor] = {}
        """Flow of each tabulated input layer's units by state, (R, G x K, S)."""

        self.seen = False

    def add(self, states: Tensor, labels: Tensor | None, batch: Batch | None) -> None:
        """One batch, forward and backward. states: (R or 1, V, NS), weights in the engine's `sample_weights`."""
        engine, asked = self.engine, self.request
        engine.forward(states, batch, keep=True)
        engine.finish(labels, self.totals, self.seen, self.running)
        partial = engine.partial_sums(engine.launch.tile(), asked.unit_kinds) if asked.unit_kinds else None
        engine.backward(partial)
        with engine.aside():
            for mode, sums in enumerate((self.counts, self.ratio, self.second, self.squared)):
                if sums:
                    engine.launch.counts(mode, sums, add=self.seen)
        units: Tensor | None = None
        if partial is not None:
            with engine.aside(UNITS):
                units = engine.launch.unit_sums(partial)
        self._tables(states, units)
        engine.join()
        self._written(batch)
        if units is not None:
            self.units = units if self.units is None else self.units + units
        self.seen = True

    def _tables(self, states: Tensor, units: Tensor | None) -> None:
        """What the flows by state amount to, for inputs and for tabulated sums."""
        engine = self.engine
        plans = engine.blueprint.tables
        if not plans:
            return
        flow = torch.empty(
            (engine.launch.state_splits(), *engine.table.shape), device=engine.device, dtype=engine.dtype
        )
        square, weight = None, flow
        if self.request.any and engine.leaves:
            square, weight = torch.empty_like(flow), torch.empty_like(flow)
        for plan in plans:
            engine.launch.states(plan, states, flow, square if plan.sums is not None else None, weight)
        flow = _total(flow)
        if square is not None:
            square, weight = _total(square), _total(weight)
        for plan in plans:
            rows = slice(plan.rows, plan.rows + plan.groups * plan.units)
            reached = flow[:, rows]  # (R, units, S)
            if plan.sums is not None:
                if square is not None:
                    self._leaf_curvature(plan, StateSums(flow, square, weight), units)
                reached = engine.launch.leaf_counts(plan, flow, self.counts, self.seen)
            total = self.by_state.get(plan.inputs)
            # a batch with missing values has one column more than one without
            self.by_state[plan.inputs] = reached if total is None else padded_sum(total, reached)

    def _leaf_curvature(self, plan: TablePlan, by_state: StateSums, units: Tensor | None) -> None:
        """by_state: sums over samples of all tables' rows, (R, rows, S)."""
        engine, number, asked = self.engine, plan.sums, self.request
        assert number is not None
        if units is not None:
            with engine.aside(UNITS):
                engine.launch.leaf_units(plan, by_state, units)
        if not (asked.mean_ratio or asked.second_moment or asked.squared_ratio):
            return
        engine.join()  # these sums also contain rows of other layers
        rows = slice(plan.rows, plan.rows + plan.groups * plan.units)
        shape = (engine.runs, plan.groups, plan.units, engine.columns)
        leaves = engine.leaves[plan.inputs]
        assert by_state.square is not None
        assert by_state.weight is not None
        weight = by_state.weight[:, rows].reshape(shape)[:, :, :1]
        if asked.mean_ratio:
            self._put(self.ratio, number, leaves.ratios(weight))
        if asked.squared_ratio:
            self._put(self.squared, number, leaves.squared_ratios(weight))
        if asked.second_moment:
            weights = engine.packing.layers(engine.packed)[number]
            moments = leaves.second_moments(by_state.square[:, rows].reshape(shape))
            self._put(self.second, number, moments * weights.square())

    def _put(self, sums: list[Tensor], number: int, more: Tensor) -> None:
        view = self.engine.packing.layers(sums)[number]
        view.copy_(view + more if self.seen else more)

    def _written(self, batch: Batch | None) -> None:
        """Sufficient statistics of inputs that are no tables: flow @ features^T."""
        engine = self.engine
        for plan in engine.blueprint.written:
            assert batch is not None
            layer = engine.program.inputs[plan.inputs]
            variables = engine.input_variables[plan.inputs]
            observed = None if batch.observed is None else batch.observed.index_select(1, variables)
            features = layer.family.features(batch.x.index_select(1, variables), observed)  # (R or 1, G, S, N)
            flow = engine.launch.received(plan.inputs).to(features.dtype)
            more = torch.matmul(flow, features.expand(engine.runs, -1, -1, -1).transpose(-1, -2))
            total = self.inputs.get(plan.inputs)
            self.inputs[plan.inputs] = more if total is None else total + more

    def input_sums(self) -> tuple[Tensor, ...]:
        """Sufficient statistics of all input layers, (R, G, K, features)."""
        assert self.seen, "statistics need at least one batch"
        found = dict(self.inputs)
        for plan in self.engine.blueprint.tables:
            features = self.engine.features(plan)  # (1, G, S, features)
            flow = self.by_state[plan.inputs].reshape(self.engine.runs, plan.groups, -1, self.engine.columns)
            found[plan.inputs] = torch.matmul(flow[..., : features.shape[2]], features)
        return tuple(found[number] for number in range(len(found)))

    def tensors(self) -> list[Tensor]:
        """All sums in a fixed order, as views to add to and to write to: parts of a batch add up entry by entry."""
        packs = self.engine.packing.packs
        edges = [sums for sums in (self.counts, self.ratio, self.second, self.squared) if sums]
        weights = [values[..., : pack.children] for sums in edges for pack, values in zip(packs, sums, strict=True)]
        by_layer = [sums[number] for sums in (self.inputs, self.by_state) for number in sorted(sums)]
        return [self.totals, *weights, *([] if self.units is None else [self.units]), *by_layer]

    def curvature(self) -> CurvatureSums | None:
        """The curvature sums so far, as views."""
        if not self.request.any:
            return None
        packing, units = self.engine.packing, self.units
        parts = [] if units is None else [packing.unit_layers(kind) for kind in units.unbind(1)]
        edges = (packing.layers(sums) if sums else None for sums in (self.ratio, self.second, self.squared))
        return CurvatureSums.collect(self.request, parts, EdgeSums(*edges))

    def result(self) -> Statistics:
        """The sums so far, as views of these tensors."""
        likelihood, weight, impossible, broken = self.totals
        counts = self.engine.packing.layers(self.counts)
        return Statistics(
            counts, self.input_sums(), likelihood, weight, impossible.long(), broken.long(), self.curvature()
        )


def _total(parts: Tensor) -> Tensor:
    """The sum over the first axis, which often has one entry."""
    return parts[0] if parts.shape[0] == 1 else parts.sum(0)
