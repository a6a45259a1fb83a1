"""Launches of the kernels: pointers, strides and block sizes, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import proxy

import numpy as np
import torch
from torch import Tensor

from circurve.engine.cuda.blueprint import SumPlan, TablePlan
from circurve.engine.cuda.edges import EdgeLauncher
from circurve.engine.cuda.sizes import (
    AT_ONCE,
    FUSED,
    MUCH,
    PROGRAMS,
    SMALL_TILE,
    TILE,
    count_blocks,
    cut,
    flow_blocks,
    part_size,
    parts,
    power,
    sum_blocks,
)
from circurve.inputs import Bernoulli, Categorical

if TYPE_CHECKING:
    from circurve.engine.cuda.fused import FusedEngine

__all__ = ["Launcher", "PickFrom"]

PRECISIONS = {"float32": "tf32x3", "tf32": "tf32", "ieee": "ieee"}
"""What a product of matrices does on tensor cores: three products that restore float32, or a single one.

Off the GPU, in Triton's interpreter, products are exact to float32 in any case.
"""


class Launcher:
    """The kernels of one engine, with index arrays on its device."""

    def __init__(self, engine: FusedEngine) -> None:
        from circurve.engine.cuda import chain_kernels, kernels, small_kernels  # noqa: PLC0415 - imported only when used

        self.engine: FusedEngine = proxy(engine)  # the engine owns this; a cycle would keep its buffers
        self.large, self.small = kernels, small_kernels
        self.dot = PRECISIONS[engine.precision] if engine.device.type == "cuda" else "ieee"
        self.chains = chain_kernels.chains(engine.device)
        """Whether the kernel of a layer can begin before that of the last one has ended."""

        plan = engine.blueprint
        self._sums = {
            p.number: tuple(self._put(a) for a in (p.factors, p.kinds, p.factors[..., 0].copy(), p.readers))
            for p in plan.sums
        }
        self._tables = {t.inputs: (self._put(t.readers), self._put(t.variables)) for t in plan.tables}
        self._written = {w.inputs: self._put(w.readers) for w in plan.written}
        self._outputs = self._put(plan.outputs)
        self.units = [self._put(pack.units.astype(np.int32)) for pack in engine.packing.packs]
        self._shapes = self._equal_shapes()
        self.edges = EdgeLauncher(self.engine)

    def _put(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.engine.device)

    def fuses(self, plan: SumPlan) -> bool:
        """Whether one kernel does the whole layer: narrow ones, and only as long as launches are what takes time.

        With much work for every launch, simpler kernels that fill the multiprocessors better are faster.
        """
        return max(plan.shape[1:]) <= FUSED and not self.busy and not plan.masked

    @property
    def busy(self) -> bool:
        """Whether a typical layer has enough work for a good part of the multiprocessors."""
        engine = self.engine
        tiles = parts(engine.width, TILE) * engine.groups * engine.runs
        return tiles >= MUCH * PROGRAMS * max(1, len(engine.blueprint.sums))

    def tile(self) -> int:
        """Samples in a tile, the same in all layers."""
        return TILE if self.busy else SMALL_TILE

    def forward(self, plan: SumPlan, group: int, states: Tensor, keep: bool, follows: bool) -> None:
        """Values of a sum layer; `keep` leaves E, m and q for the backward pass. `follows` another layer."""
        e, (g, k, c) = self.engine, plan.shape
        factors, kinds, bases, _ = self._sums[plan.number]
        if plan.masked:
            self.edges.forward(plan, factors, kinds, bases, states)
            return
        count = kinds.shape[1]
        at, unit = e.packing.place[plan.number]
        weights = e.packed[at]
        tile, n, width = self.tile(), e.width, weights.shape[2]
        state_stride = states.stride(0) if states.shape[0] > 1 else 0
        common = (e.values.stride(0), e.elements.stride(0), e.largest.stride(0))
        if self.fuses(plan):
            block = min(64, power(k))
            self.large.forward[(parts(n, tile) * parts(k, block), g, e.runs)](
                e.values, e.elements, e.largest, e.squares, weights, e.table, states, factors, kinds, bases,
                *common, weights.stride(0), e.table.stride(0), state_stride,
                plan.rows, plan.elements, group, unit, n, e.stride, k, c, width, count,
                S=e.columns, BK=block, C2=power(c), BN=tile,
                CONTIGUOUS=plan.contiguous, AT_ONCE=count if count <= AT_ONCE else 0, KEEP=keep, PRECISION=self.dot,
                num_warps=4, **self._chained(follows),
            )  # fmt: skip
            return
        block = min(128, power(c))
        self.large.elements[(parts(n, SMALL_TILE), g, e.runs)](
            e.values, e.elements, e.largest, e.squares, e.table, states, factors, kinds, bases,
            *common, e.table.stride(0), state_stride, plan.elements, group, n, e.stride, c, count,
            S=e.columns, BC=block, BN=SMALL_TILE, CONTIGUOUS=plan.contiguous, WHOLE=block >= c, num_warps=4,
        )  # fmt: skip
        bk, bc, bn, warps = sum_blocks(k, c)
        self.large.sums[(parts(n, bn) * parts(k, bk), g, e.runs)](
            e.values, e.elements, e.largest, weights, *common, weights.stride(0),
            plan.rows, plan.elements, group, unit, n, e.stride, k, c, width,
            BK=bk, BC=bc, BN=bn, PRECISION=self.dot, num_warps=warps,
        )  # fmt: skip

    def backward(self, plan: SumPlan, group: int, curvature: Tensor | None, follows: bool) -> None:
        """Ratios A of a sum layer and the flows of its elements; curvature: (R, tiles, 3, M) or None."""
        e, (g, k, c) = self.engine, plan.shape
        readers = self._sums[plan.number][3]
        if plan.masked:
            self.edges.backward(plan, readers, curvature, self.tile())
            return
        at, unit = e.packing.place[plan.number]
        weights = e.packed[at]
        tile, n, width = self.tile(), e.width, weights.shape[2]
        tiles = parts(n, tile)
        partial = e.sample_weights if curvature is None else curvature
        first_unit = int(e.packing.starts[plan.number])
        if self.fuses(plan):
            block = min(64, power(c))
            self.large.backward[(tiles * parts(c, block), g, e.runs)](
                e.values, e.elements, e.largest, e.squares, e.ratios, e.flows, weights, readers,
                e.sample_weights, partial,
                e.values.stride(0), e.elements.stride(0), e.largest.stride(0), weights.stride(0),
                plan.rows, plan.elements, group, unit, first_unit,
                n, e.stride, k, c, width, readers.shape[1], e.packing.units, tiles,
                K2=power(k), BC=block, BN=tile, CURVATURE=curvature is not None, PRECISION=self.dot,
                num_warps=4, **self._chained(follows),
            )  # fmt: skip
            return
        block = min(128, power(k))
        self.large.ratios[(tiles * parts(k, block), g, e.runs)](
            e.values, e.largest, e.squares, e.ratios, e.flows, readers, e.sample_weights, partial,
            e.values.stride(0), e.elements.stride(0), e.largest.stride(0),
            plan.rows, group, first_unit, n, e.stride, k, readers.shape[1], e.packing.units, tiles,
            BK=block, BN=tile, CURVATURE=curvature is not None, num_warps=8,
        )  # fmt: skip
        bc, bk, bn, warps = flow_blocks(c, k)
        self.large.flows[(parts(n, bn) * parts(c, bc), g, e.runs)](
            e.elements, e.ratios, e.flows, weights,
            e.values.stride(0), e.elements.stride(0), weights.stride(0),
            plan.rows, plan.elements, unit, n, e.stride, k, c, width,
            BK=bk, BC=bc, BN=bn, PRECISION=self.dot, num_warps=warps,
        )  # fmt: skip

    def _chained(self, follows: bool) -> dict[str, Any]:
        """What a kernel is told that follows that of another layer."""
        return {"EARLY": True, "launch_pdl": True} if self.chains and follows else {"EARLY": False}

    def _equal_shapes(self) -> list[tuple[int, int, int, tuple[Tensor, ...]]]:
        """(K, C, pack, arrays) for each shape of group without a mask: rows, elements, numbers, weights of all such."""
        found: dict[tuple[int, int], list[list[int]]] = {}
        group = 0
        packing = self.engine.packing
        for plan in self.engine.blueprint.sums:
            g, k, c = plan.shape
            _, unit = packing.place[plan.number]
            if not plan.masked:
                lists = found.setdefault((k, c), [[], [], [], []])
                for i in range(g):
                    lists[0].append(plan.rows + i * k)
                    lists[1].append(plan.elements + i * c)
                    lists[2].append(group + i)
                    lists[3].append(unit + i * k)
            group += g
        packs = {pack.children: at for at, pack in enumerate(packing.packs)}
        return [
            (k, c, packs[c], tuple(self._put(np.array(values, dtype=np.int64)) for values in lists))
            for (k, c), lists in found.items()
        ]

    def counts(self, mode: int, out: list[Tensor], add: bool) -> None:
        """Edge sums of all groups into `out`, packed (R, M, C); see the kernel for `mode`."""
        self.edges.counts(mode, out, add)
        e = self.engine
        for k, c, pack, (rows, elements, groups, offsets) in self._shapes:
            bk, bc, step, warps = count_blocks(k, c, many=mode == 0 and len(rows) * e.runs >= PROGRAMS)
            programs = parts(k, bk) * parts(c, bc) * len(rows) * e.runs
            splits, span = cut(e.width, programs)
            weights, target = e.packed[pack], out[pack]
            result = target if splits == 1 else torch.empty(splits, *target.shape, device=e.device, dtype=e.dtype)
            self.large.counts[(parts(k, bk) * parts(c, bc), len(rows), e.runs * splits)](
                e.values, e.elements, e.largest, e.ratios, weights, e.sample_weights, result,
                rows, elements, groups, offsets,
                e.values.stride(0), e.elements.stride(0), e.largest.stride(0), weights.stride(0),
                weights.numel(), e.width, e.stride, k, c, weights.shape[2], parts(span, step),
                MODE=mode, ADD=add and splits == 1, BK=bk, BC=bc, BN=step, SPLITS=splits, PRECISION=self.dot,
                num_warps=warps,
            )  # fmt: skip
            if splits > 1:
                self._reduce(result, target, k, offsets, add)

    def _reduce(self, pieces: Tensor, target: Tensor, units: int, offsets: Tensor, add: bool) -> None:
        """Add up the pieces; rows of other shapes in the same pack are not touched: others may be writing them."""
        if len(offsets) * units == target.shape[1]:
            target.copy_(target + pieces.sum(0) if add else pieces.sum(0))
            return
        rows = (offsets[:, None] + torch.arange(units, device=self.engine.device)).flatten()
        total = pieces.index_select(2, rows).sum(0)
        target.index_copy_(1, rows, target.index_select(1, rows) + total if add else total)

    def states(self, plan: TablePlan, states: Tensor, sums: Tensor, squares: Tensor | None, weights: Tensor) -> None:
        """Flow of a table's units by state, into (parts, R, rows, S)."""
        e = self.engine
        readers, variables = self._tables[plan.inputs]
        block, step = min(32, power(plan.units)), 64
        splits = sums.shape[0]
        span = parts(part_size(e.width, splits), step)
        self.small.by_state[(parts(plan.units, block), plan.groups, e.runs * splits)](
            e.flows, states, e.sample_weights, readers, variables, sums, sums if squares is None else squares, weights,
            e.flows.stride(0), states.stride(0) if states.shape[0] > 1 else 0, sums.stride(1),
            plan.rows, e.width, e.stride, plan.units, readers.shape[1], span, sums.stride(0),
            S=e.columns, S2=power(e.columns, 1), BK=block, BN=step, SPLITS=splits, SQUARES=squares is not None,
        )  # fmt: skip

    def state_splits(self) -> int:
        """Into how many parts the samples are cut when flows are added up by state."""
        e = self.engine
        groups = sum(plan.groups for plan in e.blueprint.tables)
        return cut(e.width, max(1, groups * e.runs // 2))[0]

    def outputs(self, labels: Tensor | None, totals: Tensor, add: bool, running: Tensor | None) -> None:
        """The end of the forward pass; its sums replace `totals` or are added to them, and to `running`."""
        e = self.engine
        self.small.outputs[(e.runs,)](
            e.values, e.flows, e.sample_weights, e.sample_weights if labels is None else labels, self._outputs,
            totals, totals if running is None else running, e.log_values,
            e.values.stride(0), e.flows.stride(0), e.width, e.stride, len(self._outputs),
            LABELS=labels is not None, ADD=add, RUNNING=running is not None, BN=256,
        )  # fmt: skip

    def received(self, inputs: int) -> Tensor:  # (R, G, K, N)
        """The flow of an input layer that is no table."""
        e = self.engine
        readers = self._written[inputs].long()  # (G, J, K)
        g, j, k = readers.shape
        flow = e.flows.index_select(1, readers.flatten()).view(e.runs, g, j, k, e.stride)
        return flow.sum(2)[..., : e.samples]

    def pick(self, batch: PickFrom, start: int, states: Tensor) -> None:
        """States (R or 1, V, NS) and weights of `engine.samples` samples of a batch, from number `start` on."""
        e = self.engine
        lists, width = batch.rows.shape[1:]
        weights = e.sample_weights if batch.weights is None else batch.weights
        self.small.pick[(parts(e.width, 32), parts(e.variables, 32), lists)](
            batch.states, batch.rows, batch.number, weights, states, e.sample_weights,
            e.variables, e.samples, e.stride, e.runs, states.stride(0), width, start,
            WEIGHTED=batch.weights is not None, BV=32, BN=32,
        )  # fmt: skip

    def knows(self, plan: TablePlan) -> bool:
        """Whether the kernels know the family of a table."""
        return isinstance(self.engine.program.inputs[plan.inputs].family, Bernoulli | Categorical)

    def family(self, plan: TablePlan) -> dict[str, Any]:
        """What the kernels are told of a table's family."""
        family = self.engine.program.inputs[plan.inputs].family
        return {"P": len(family.parameter_names), "BERNOULLI": isinstance(family, Bernoulli), "S": self.engine.columns}

    def tabulate(self, plan: TablePlan) -> None:
        """Columns by state of an input layer, or of the sums on top of it."""
        e = self.engine
        parameters = e.inputs[plan.inputs]
        if plan.sums is None:
            units = plan.groups * plan.units
            self.small.input_table[(parts(units, 256), e.runs)](
                parameters, e.table, e.table.stride(0), plan.rows, units, BU=256, **self.family(plan)
            )
            return
        g, k, c = e.program.sums[plan.sums].shape
        at, unit = e.packing.place[plan.sums]
        weights, leaves = e.packed[at], e.leaves[plan.inputs]
        block = max(1, min(power(k), 4096 // power(c)))
        self.small.leaf_table[(parts(k, block), g, e.runs)](
            parameters, weights, e.table, leaves.elements, leaves.scaled, leaves.log_largest,
            weights.stride(0), e.table.stride(0), plan.rows, unit, g, k, c, weights.shape[2],
            BK=block, C2=power(c), **self.family(plan),
        )  # fmt: skip

    def leaf_counts(self, plan: TablePlan, flows: Tensor, counts: list[Tensor], add: bool) -> Tensor:  # (R, G x C, S)
        """Counts of a tabulated sum layer, from flows by state (R, rows, S); returns its inputs' flow by state."""
        e = self.engine
        assert plan.sums is not None
        g, k, c = e.program.sums[plan.sums].shape
        at, unit = e.packing.place[plan.sums]
        weights, leaves = e.packed[at], e.leaves[plan.inputs]
        down = torch.empty(e.runs, g * c, e.columns, device=e.device, dtype=e.dtype)
        self.small.leaf_counts[(parts(c, 32), g, e.runs)](
            flows, weights, leaves.elements, leaves.scaled, counts[at], down,
            flows.stride(0), weights.stride(0), plan.rows, unit, g, k, c, weights.shape[2],
            S=e.columns, S2=power(e.columns, 2), BK=min(64, power(k)), BC=32, ADD=add,
        )  # fmt: skip
        return down

    def unit_sums(self, partial: Tensor) -> Tensor:  # (R, tiles, 3, M) -> (R, 3, M)
        """F^2, t and T of all units, in float64."""
        runs, tiles, kinds, units = partial.shape
        out = torch.empty(runs, kinds, units, device=partial.device, dtype=torch.float64)
        self.small.unit_sums[(parts(kinds * units, 128), runs)](partial, out, tiles, kinds * units, BT=8, BM=128)
        return out

    def leaf_units(self, plan: TablePlan, squares: Tensor, weights: Tensor, out: Tensor) -> None:
        """F^2, t and T of a tabulated sum layer into out (R, 3, M), from sums by state (R, rows, S)."""
        e = self.engine
        assert plan.sums is not None
        g, k, c = e.program.sums[plan.sums].shape
        leaves = e.leaves[plan.inputs]
        self.small.leaf_units[(parts(k, 64), g, e.runs)](
            squares, weights, leaves.elements, leaves.scaled, leaves.log_largest, out,
            squares.stride(0), plan.rows, int(e.packing.starts[plan.sums]), e.packing.units, g, k, c,
            S=e.columns, BK=64, C2=power(c),
        )  # fmt: skip


@dataclass(frozen=True)
class PickFrom:
    """Where a batch's samples come from."""

    states: Tensor  # (rows, V) int8
    rows: Tensor  # (steps, R or 1, N), -1 for padding
    number: Tensor  # (1,), which step
    weights: Tensor | None  # (rows,)
