"""The E-step of a latent tree: chunk by chunk, into the same sums as the reference backend."""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cpu.curvature import TreeCurvature
from circurve.engine.cpu.engine import TreeEngine
from circurve.engine.cpu.messages import flows
from circurve.engine.cpu.tally import Tally
from circurve.engine.cpu.views import Views
from circurve.engine.reference import root_flow
from circurve.engine.state_sums import StateSums, add_input_statistics
from circurve.engine.sums import Sums

__all__ = ["TreeSums"]


class TreeSums:
    """Adds up an E-step in `Sums`, chunk by chunk; `close` must follow the last one."""

    def __init__(self, engine: TreeEngine, sums: Sums) -> None:
        self.engine, self.sums, self.runs = engine, sums, sums.params.runs
        engine.load(sums.params)
        self.counts = [torch.zeros_like(w) for w in engine.weights]  # without theta, (G R, K, K) for each level
        self.curvature = TreeCurvature(sums.request, self.runs, engine.weights) if sums.request.any else None

    def observe(self, batch: Batch) -> bool:
        """Add a chunk. False: a sample is impossible, nothing was added."""
        risen = self.engine.rise(batch)
        if risen is None:
            return False
        flow, tally, views = root_flow(batch, risen.outputs, self.sums), risen.tally, risen.views
        if self.curvature is not None:
            weighted = batch.weights is not None
            self.curvature.start(views, self.sums.sample_weight, self.sums.inverse_weight if weighted else None, flow)
            tally.add_weight(views, self.sums.sample_weight, ones=not weighted)
        self._downward(views, tally, flow)
        if self.curvature is not None:
            self.curvature.finish()
        return True

    def _downward(self, views: Views, tally: Tally, flow: Tensor) -> None:
        curvature, levels = self.curvature, views.levels
        if curvature is not None:
            curvature.sent(0, levels[0], tally)
        root = levels[0].scaled[..., : views.samples]
        torch.div(flow, root, out=root)
        levels[0].scaled[..., views.samples :] = 0
        for number, (level, weight, counts) in enumerate(zip(levels, self.engine.weights, self.counts, strict=True)):
            if curvature is not None:
                curvature.received(number, level)
            torch.baddbmm(counts, level.scaled, level.by_sample, out=counts)
            flows(level, weight)
            tally.flow.add(number, level)
            if curvature is not None:
                curvature.used(number, level)
                if level.messages:
                    curvature.sent(number + 1, levels[number + 1], tally)
            for message in level.messages:
                torch.div(message.elements, message.scaled, out=message.scaled)
            if curvature is not None:
                curvature.passed(number, level, tally.square)

    def close(self) -> None:
        """Put everything where `Sums` has it."""
        sums, tree, runs = self.sums, self.engine.tree, self.runs
        if self.curvature is not None:
            for tally in self.engine.tallies:
                self.curvature.close(self.engine.weights, tally)
        for number, level in enumerate(tree.levels):
            for total, parts in self._edge_sums(number):
                by_place = parts.view(len(level.sums), runs, *parts.shape[1:])
                for (layer, position), part in zip(level.sums, by_place.unbind(), strict=True):
                    total[layer].select(1, position).add_(part)
        for tally in self.engine.tallies:
            self._close_states(tally)
        if self.curvature is not None and sums.request.curvature:
            self._close_curvature(self.curvature)

    def _edge_sums(self, number: int) -> list[tuple[list[Tensor], Tensor]]:
        pairs = [(self.sums.counts, self.counts)]
        if self.curvature is not None:
            pairs += [(self.sums.ratio, self.curvature.ratio), (self.sums.second, self.curvature.second)]
        return [(total, parts[number]) for total, parts in pairs if parts]

    def _close_states(self, tally: Tally) -> None:
        """Flows by state: inputs' statistics at once, leaves as tabulated sums that `Sums` closes."""
        sums, leaves = self.sums, self.engine.tree.leaves
        if self.curvature is not None:
            square, weight = tally.square.by_factor(), tally.weight_by_factor()
        for number, values in tally.flow.by_factor().items():
            if number not in leaves:
                add_input_statistics(sums.inputs, number, self.engine.program.inputs[number].family, values)
                continue
            groups = torch.tensor(leaves[number].positions)
            states = sums.states.setdefault(number, StateSums(leaves[number].layer, groups))
            states.keep(tally.leaves[number])
            states.add_flow(values)
            if self.curvature is not None:
                states.add_square(square[number])
                states.add_weight(weight[number])

    def _close_curvature(self, curvature: TreeCurvature) -> None:
        """Sums of F^2, t and T of each unit."""
        sums, levels, runs = self.sums, self.engine.tree.levels, self.runs
        squares = [torch.zeros_like(local).view(-1, runs, local.shape[1]) for local in curvature.local]
        squares[0] += curvature.root_square
        for tally in self.engine.tallies:
            passed = tally.square.by_place([len(level.sums) for level in levels])  # (G, R, K) for each level
            for number, level in enumerate(levels):
                for stretch in (stretch for turn in level.messages for stretch in turn):
                    squares[number + 1][stretch.there] += passed[number][stretch.here]
        for number, level in enumerate(levels):
            units = curvature.local[number].shape[1]
            first = torch.tensor([sums.starts[layer] + position * units for layer, position in level.sums])
            index = (first[:, None] + torch.arange(units)).flatten()
            for total, part in (
                (sums.flow_squared, squares[number]),
                (sums.local, curvature.local[number]),
                (sums.total, curvature.total[number]),
            ):
                total[:, index] += part.view(-1, runs, units).transpose(0, 1).flatten(1)
