"""The E-step of a latent tree: chunk by chunk, into the same sums as the reference backend."""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cpu.curvature import TreeCurvature
from circurve.engine.cpu.engine import BoundTree
from circurve.engine.cpu.messages import flows
from circurve.engine.cpu.tally import Tally
from circurve.engine.cpu.views import Views
from circurve.engine.reference import root_flow
from circurve.engine.state_sums import StateSums, add_input_statistics
from circurve.engine.sums import Sums

__all__ = ["TreeSums"]


class TreeSums:
    """Adds up an E-step in `Sums`, chunk by chunk; `close` must follow the last one."""

    def __init__(self, tree: BoundTree, sums: Sums) -> None:
        self.tree, self.sums = tree, sums
        tree.load(sums.params)
        self.counts = [torch.zeros_like(w) for w in tree.weights]  # without theta, (G L, K, K) for each level
        self.curvature = TreeCurvature(sums.request, tree.memory.lanes, tree.weights) if sums.request.any else None
        self.root_square = torch.zeros(tree.runs, tree.layout.outputs, dtype=torch.float64)

    def observe(self, batch: Batch) -> bool:
        """Add a chunk. False: a sample is impossible, nothing was added."""
        curvature = self.curvature
        if curvature is not None:
            curvature.start(batch.weights)
        risen = self.tree.rise(batch, None if curvature is None else curvature.sent)
        if risen is None:
            return False
        flow, views = root_flow(batch, risen.outputs, self.sums), risen.views
        if curvature is not None:
            self._turn(curvature, views, flow, weighted=batch.weights is not None)
        self._downward(views, risen.tally, views.to_lanes(flow))
        if curvature is not None:
            curvature.finish()
        return True

    def _turn(self, curvature: TreeCurvature, views: Views, flow: Tensor, weighted: bool) -> None:
        inverse = self.sums.inverse_weight[:, None]
        self.root_square += (flow.square() * inverse).sum(-1, dtype=torch.float64)
        weight = views.to_lanes(self.sums.sample_weight[:, None])
        curvature.turn(weight, views.to_lanes(inverse) if weighted else None)

    def _downward(self, views: Views, tally: Tally, flow: Tensor) -> None:
        curvature, levels = self.curvature, views.levels
        if curvature is not None:
            curvature.leaving(0, levels[0])
        torch.div(flow, levels[0].scaled, out=levels[0].scaled)
        for number, (level, weight, counts) in enumerate(zip(levels, self.tree.weights, self.counts, strict=True)):
            if curvature is not None:
                curvature.received(number, level)
            torch.baddbmm(counts, level.scaled, level.by_sample, out=counts)
            flows(level, weight)
            tally.flow.add(number, level)
            if curvature is not None and level.messages:
                curvature.leaving(number + 1, levels[number + 1])
            for message in level.messages:
                torch.div(message.elements, message.scaled, out=message.scaled)
            if curvature is not None:
                curvature.passed(number, level, tally.square)

    def close(self) -> None:
        """Put everything where `Sums` has it."""
        if self.curvature is not None:
            for tally in self.tree.tallies:
                self.curvature.close(self.tree.weights, tally)
        for number, level in enumerate(self.tree.layout.levels):
            for total, parts in self._edge_sums(number):
                for (layer, position), part in zip(level.sums, self._by_run(parts).unbind(), strict=True):
                    total[layer].select(1, position).add_(part)
        for tally in self.tree.tallies:
            self._close_states(tally)
        if self.curvature is not None and self.sums.request.curvature:
            self._close_curvature(self.curvature)

    def _by_run(self, lanes: Tensor) -> Tensor:  # (G L, ...) -> (G, R, ...)
        """The total over the lanes of each run."""
        return lanes.view(-1, self.tree.runs, self.tree.memory.parts, *lanes.shape[1:]).sum(2)

    def _edge_sums(self, number: int) -> list[tuple[list[Tensor], Tensor]]:
        pairs = [(self.sums.counts, self.counts)]
        if self.curvature is not None:
            pairs += [(self.sums.ratio, self.curvature.ratio), (self.sums.second, self.curvature.second)]
        return [(total, parts[number]) for total, parts in pairs if parts]

    def _close_states(self, tally: Tally) -> None:
        """Flows by state: inputs' statistics at once, leaves as tabulated sums that `Sums` closes."""
        sums, leaves = self.sums, self.tree.layout.leaves
        if self.curvature is not None:
            square = tally.square.by_factor()
        for number, values in tally.flow.by_factor().items():
            if number not in leaves:
                add_input_statistics(sums.inputs, number, self.tree.program.inputs[number].family, values)
                continue
            positions = leaves[number].positions
            groups = positions if isinstance(positions, slice) else torch.tensor(positions)
            states = sums.states.setdefault(number, StateSums(leaves[number].layer, groups))
            states.keep(tally.leaves[number])
            states.add_flow(values)
            if self.curvature is not None:
                states.add_square(square[number])
                states.add_weight(values.sum(2, keepdim=True))  # the flow of all units is the sample's weight

    def _close_curvature(self, curvature: TreeCurvature) -> None:
        """Sums of F^2, t and T of each unit. The flow of a product is that of each of its messages."""
        tree = self.tree
        root, others = curvature.totals(tree.runs, tree.layout.outputs, tree.layout.units)
        passed = [tally.square.by_product().index_select(0, tree.senders).double() for tally in tree.tallies]
        square = torch.stack(passed).sum(0)  # (sums, R, K)
        inner = torch.cat([square[None], others]).transpose(1, 2).flatten(2)
        every = torch.cat([torch.cat([self.root_square[None], root]), inner], dim=2)  # (3, R, units)
        self.sums.units[:, :, tree.places] += every
