"""The E-step of a latent tree, chunk by chunk.

Down from the root, with F the flow of a product, which is the flow of each of its messages and factors too,

    A_c = F / S_c        F_cj = E_cj sum_k theta_kj A_ck        N_ckj = theta_kj sum_n A_ckn E_cjn.

A level's two blocks of memory change their content once on the way down (see `memory.py`): A takes the place of S, and
F the place of E. In `_downward` each has its own name from that line on.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import MESSAGES
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.reference.downward import RootFlow, root_flow
from circurve.engine.states import StateSums, StateTable, state_statistics
from circurve.engine.statistics import CurvatureSums, EdgeSums, Request, Statistics
from circurve.engine.tree.bound import BoundTree, UpwardPass
from circurve.engine.tree.curvature import SampleWeights, TreeCurvature
from circurve.engine.tree.memory import LevelViews, Views
from circurve.engine.tree.tables import JointSums, JointTables

__all__ = ["TreeSums"]


class TreeSums:
    """Adds up an E-step chunk by chunk; `result` follows the last one.

    A tree that is a member of a mixture goes through a chunk in two steps: `rise`, and, when the likelihood of the
    mixture is known, `descend`.
    """

    def __init__(self, tree: BoundTree, params: Params, request: Request, whole: bool = True) -> None:
        """whole: the flow of each sample at the root is its weight; False in a mixture."""
        self.tree, self.params, self.request, self.whole = tree, params, request, whole
        tree.load(params)
        self.counts = [torch.zeros_like(w) for w in tree.weights]  # without theta, (G L, K, K) for each level
        run_parts = tree.memory.run_parts
        self.curvature = TreeCurvature(request, run_parts, tree.weights) if request.any else None
        self.root_square, self.root_flow = (
            torch.zeros(tree.runs, tree.layout.outputs, dtype=torch.float64) for _ in range(2)
        )
        self.log_likelihood, self.weight = (torch.zeros(tree.runs, dtype=torch.float64) for _ in range(2))

    def add(self, batch: Batch) -> bool:
        """Add a chunk. False: a sample is impossible or NaN, and nothing was added."""
        up = self.rise(batch)
        if up is None:
            return False
        root = root_flow(batch, up.outputs.to(self.tree.memory.dtype))
        self.weight += root.weight.sum(-1, dtype=torch.float64)
        self.log_likelihood += (root.log_value * root.weight).sum(-1, dtype=torch.float64)
        self.descend(up, root, batch.weights is not None)
        return True

    def rise(self, batch: Batch) -> UpwardPass | None:
        """The upward pass of a chunk; None if a sample is impossible or NaN. Nothing is added yet."""
        curvature = self.curvature
        return self.tree.upward(batch, None if curvature is None else curvature.on_level(batch.weights))

    def descend(self, up: UpwardPass, root: RootFlow, weighted: bool) -> None:
        """The downward pass of a chunk from its flow at the root; weighted: some sample's weight is not 1."""
        curvature = self.curvature
        samples = None if curvature is None else self._sample_weights(up, root, weighted)
        self._downward(up.views, up.tables, up.views.split(root.flow), samples)
        if curvature is not None:
            curvature.finish_chunk()

    def _sample_weights(self, up: UpwardPass, root: RootFlow, weighted: bool) -> SampleWeights:
        views, inverse = up.views, root.inverse[:, None]
        self.root_square += (root.flow.square() * inverse).sum(-1, dtype=torch.float64)
        self.root_flow += root.flow.sum(-1, dtype=torch.float64)
        weight = views.split(root.weight[:, None])
        if not self.whole:
            up.tables.weight.add_weights(views, weight)
        return SampleWeights(weight, views.split(inverse) if weighted else None)

    def _downward(self, views: Views, tables: JointTables, flow: Tensor, samples: SampleWeights | None) -> None:
        """flow: of the root, (L, outputs, N)."""
        curvature, levels, factors = self.curvature, views.levels, None
        if curvature is not None and samples is not None:
            curvature.add_ratios(0, levels[0], samples)
            factors = curvature.factors(levels[0].sums)
        ratio = torch.div(flow, levels[0].sums, out=levels[0].sums)
        for number, (level, weight, counts) in enumerate(zip(levels, self.tree.weights, self.counts, strict=True)):
            if curvature is not None and samples is not None:
                curvature.add_total(number, ratio, samples)
                curvature.add_flow_weighted(number, ratio, factors)
                curvature.add_second(number, ratio, level, samples)
            torch.baddbmm(counts, ratio, level.by_sample, out=counts)
            flow = _product_flow(level, weight, ratio)
            tables.flow.add(number, level)
            if level.messages:
                if curvature is not None and samples is not None:
                    curvature.add_ratios(number + 1, levels[number + 1], samples)
                    factors = curvature.factors(levels[number + 1].sums)
                ratio = _message_ratios(level, levels[number + 1])
            if samples is not None:
                square = flow.square_()  # F^2 takes the place of F
                if samples.inverse is not None:
                    square.mul_(samples.for_rows(samples.inverse, len(square)))
                tables.square.add(number, level)

    def result(self, program: Program) -> Statistics:
        """The sums of all chunks that were added."""
        closing = _Closing(self, program)
        none = torch.zeros(self.tree.runs, dtype=torch.int64)
        return Statistics(
            closing.counts(),
            closing.inputs,
            self.log_likelihood,
            self.weight,
            none,
            none.clone(),
            closing.curvature() if self.request.any else None,
        )


def _product_flow(level: LevelViews, weight: Tensor, ratio: Tensor) -> Tensor:  # (G L, K, N)
    """F = E (theta^T A) of a level's products, in the place of E. Overwrites `spare`."""
    torch.bmm(weight.transpose(1, 2), ratio, out=level.spare)
    flow = level.elements.mul_(level.spare)
    return torch.threshold_(flow, MESSAGES[weight.dtype].flush, 0.0)


def _message_ratios(level: LevelViews, below: LevelViews) -> Tensor:  # (G L, K, N)
    """A = F / S of the next level, in the place of its S; `level` holds F."""
    for message in level.messages:
        torch.div(message.elements, message.sums, out=message.sums)
    return below.sums


class _Closing:
    """Sums by level and by state -> sums by layer of the program, with theta where it belongs."""

    def __init__(self, sums: TreeSums, program: Program) -> None:
        self.sums, self.tree, self.program, self.params = sums, sums.tree, program, sums.params
        if sums.curvature is not None:
            for tables in self.tree.started:
                sums.curvature.add_tabulated(self.tree.weights, tables, sums.whole)
        self.leaves: dict[int, StateSums] = {}
        inputs: list[Tensor | None] = [None] * len(program.inputs)
        for tables in self.tree.started:
            self._add_states(tables, inputs)
        self.tables = self._widest_tables()
        self.leaf_counts: dict[int, Tensor] = {}
        for number, states in self.leaves.items():
            weights = self._leaf_weights(number)
            self.leaf_counts[number], down = self.tables[number].counts(states.flow, weights)
            inputs[number] = state_statistics(program.inputs[number].family, down)
        assert all(total is not None for total in inputs), "statistics need at least one batch"
        self.inputs = tuple(total for total in inputs if total is not None)

    def _add_states(self, tables: JointTables, inputs: list[Tensor | None]) -> None:
        """Flows by state: statistics of inputs at once, those of leaves when all chunks are together."""
        squares = tables.square.by_factor() if self.sums.curvature is not None else {}
        flows = tables.flow.by_factor()
        weights = tables.weight_by_factor(flows, self.sums.whole) if squares else {}
        for number, flow in flows.items():
            if number not in self.tree.layout.leaves:
                more = state_statistics(self.program.inputs[number].family, flow)
                total = inputs[number]
                inputs[number] = more if total is None else total + more
                continue
            found = StateSums(flow, squares.get(number), weights.get(number))
            self.leaves[number] = self.leaves[number] + found if number in self.leaves else found

    def _widest_tables(self) -> dict[int, StateTable]:
        """The tables of the leaves; those with a column for missing values are used for both kinds of chunks."""
        widest = max(self.tree.started, key=lambda tables: tables.plan.missing is not None)
        return widest.leaves

    def _leaf_weights(self, number: int) -> Tensor:
        leaves = self.tree.layout.leaves[number]
        return self.params.weights[leaves.layer][:, leaves.positions]

    def counts(self) -> tuple[Tensor, ...]:
        """N_nc = theta_nc sum_n A E."""
        found = self._by_layer(self.sums.counts, self.leaf_counts)
        return tuple(part.mul_(weights) for part, weights in zip(found, self.params.weights, strict=True))

    def curvature(self) -> CurvatureSums:
        """The curvature sums that were asked for."""
        measured, request = self.sums.curvature, self.sums.request
        assert measured is not None
        tables, states = self.tables, self.leaves.items()
        ratio, second, squared = None, None, None
        if request.mean_ratio:
            leaf_ratios = {n: tables[n].ratios(s.weight) for n, s in states if s.weight is not None}
            ratio = tuple(self._by_layer(measured.ratio, leaf_ratios))
        if request.second_moment:
            leaf_second = {n: tables[n].second_moments(s.square) for n, s in states if s.square is not None}
            found = self._by_layer(measured.second, leaf_second)
            second = tuple(part.mul_(w).mul_(w) for part, w in zip(found, self.params.weights, strict=True))
        if request.squared_ratio:
            leaf_squares = {n: tables[n].squared_ratios(s.weight) for n, s in states if s.weight is not None}
            squared = tuple(self._by_layer(measured.squared, leaf_squares))
        layers = self._units(measured) if request.unit_kinds else []
        units = [tuple(layer[i] for layer in layers) for i in range(request.unit_kinds)]
        return CurvatureSums.collect(request, units, EdgeSums(ratio, second, squared))

    def _by_layer(self, levels: list[Tensor], leaves: dict[int, Tensor]) -> list[Tensor]:
        """Edge sums (G L, K, K) of each level and (R, G, K, C) of the leaves on each input layer, layer by layer."""
        found = [torch.empty_like(weights) for weights in self.params.weights]
        for level, parts in zip(self.tree.layout.levels, levels, strict=True):
            by_run = parts.view(-1, self.tree.runs, self.tree.memory.parts, *parts.shape[1:]).sum(2)  # (G, R, K, K)
            for (layer, position), part in zip(level.sums, by_run.unbind(), strict=True):
                found[layer].select(1, position).copy_(part)
        for number, part in leaves.items():
            place = self.tree.layout.leaves[number]
            found[place.layer][:, place.positions] = part
        return found

    def _units(self, measured: TreeCurvature) -> list[Tensor]:  # (3 or 6, R, G, K) for each layer
        """Sums of F^2, t and T, then F t, F log t and F of each unit, as `Request.unit_kinds` has them."""
        tree, runs, sums = self.tree, self.tree.runs, self.sums
        kinds, weighted = sums.request.unit_kinds, sums.request.flow_weighted
        root, others = measured.totals(runs, tree.layout.outputs, tree.layout.units)
        flow = [self._passed([t.flow for t in tree.started])] if weighted else []
        inner = torch.cat([self._passed([t.square for t in tree.started]), others, *flow]).transpose(1, 2).flatten(2)
        first = torch.cat([sums.root_square[None], root, *([sums.root_flow[None]] if weighted else [])])
        units = torch.zeros(kinds, runs, self.program.units, dtype=torch.float64)
        units[:, :, tree.places] = torch.cat([first, inner], dim=2)
        sizes = torch.diff(torch.from_numpy(self.program.unit_starts)).tolist()
        layers = zip(torch.split(units, sizes, dim=2), self.program.sums, strict=True)
        found = [part.reshape(kinds, runs, *layer.shape[:2]) for part, layer in layers]
        for number, states in self.leaves.items():
            place = tree.layout.leaves[number]
            found[place.layer][:, :, place.positions] = self.tables[number].units(states, weighted)
        return found

    def _passed(self, sums: Sequence[JointSums]) -> Tensor:  # (1, sums, R, K)
        """What products pass on, for each message that they send: their flow is that of each of their messages."""
        parts = [part.by_product().index_select(0, self.tree.senders).double() for part in sums]
        return torch.stack(parts).sum(0)[None]
