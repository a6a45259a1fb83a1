"""Launches of the kernels: pointers, strides and block sizes, by the names that the kernels give them."""

from __future__ import annotations

from typing import Any
from weakref import proxy

import numpy as np
import torch
from torch import Tensor

from circurve.engine.cuda.blueprint import SumPlan
from circurve.engine.cuda.buffers import Buffers
from circurve.engine.cuda.compile_ahead import Kernels
from circurve.engine.cuda.edges import EdgeLauncher
from circurve.engine.cuda.sizes import (
    AT_ONCE,
    BUSY_SHARE,
    FUSED,
    PROGRAMS,
    SMALL_TILE,
    TILE,
    count_blocks,
    cut,
    element_blocks,
    flow_blocks,
    parts,
    power,
    sum_blocks,
)
from circurve.engine.cuda.table_launch import TableLauncher
from circurve.engine.cuda.wide import WideLauncher

__all__ = ["Launcher"]

PRECISIONS = {"float32": "tf32x3", "tf32": "tf32", "ieee": "ieee"}
"""What a product of matrices does on tensor cores: three products that restore float32, or a single one.

Off the GPU, in Triton's interpreter, products are exact to float32 in any case.
"""


class Launcher(TableLauncher):
    """The kernels on one engine's buffers, with index arrays on its device."""

    def __init__(self, buffers: Buffers, precision: str) -> None:
        from circurve.engine.cuda import chain_kernels, kernels  # noqa: PLC0415 - Triton is imported only when used

        super().__init__(proxy(buffers))  # the engine owns this; a cycle would keep its buffers
        self.large = Kernels(kernels)
        self.dot = PRECISIONS[precision] if buffers.device.type == "cuda" else "ieee"
        self.chains = chain_kernels.chains(buffers.device)
        """True if the kernel of a layer can begin before that of the last one has ended."""

        self._sums = {
            p.number: tuple(self._put(a) for a in (p.factors, p.kinds, p.factors[..., 0].copy(), p.readers))
            for p in buffers.blueprint.sums
        }
        self.units = [self._put(pack.units.astype(np.int32)) for pack in buffers.packing.packs]
        self._shapes = self._equal_shapes()
        self.edges = EdgeLauncher(self.buffers)
        self.wide = WideLauncher(self.buffers, self.dot)

    def fuses(self, plan: SumPlan) -> bool:
        """True if one kernel does the whole layer: narrow layers, as long as launches are what takes time.

        With much work for every launch, simpler kernels that fill the multiprocessors better are faster.
        """
        return max(plan.shape[1:]) <= FUSED and not self.busy and not plan.masked

    @property
    def busy(self) -> bool:
        """True if a typical layer has enough work for a good part of the multiprocessors."""
        b = self.buffers
        tiles = parts(b.width, TILE) * b.groups * b.runs
        return tiles >= BUSY_SHARE * PROGRAMS * max(1, len(b.blueprint.sums))

    def tile(self) -> int:
        """Samples in a tile, the same in all layers."""
        return TILE if self.busy else SMALL_TILE

    def forward(self, plan: SumPlan, group: int, states: Tensor, keep: bool, follows: bool) -> None:
        """Values of a sum layer; `keep` leaves E, m and q for the backward pass. `follows` another layer."""
        factors, kinds, bases, _ = self._sums[plan.number]
        if plan.masked:
            self.edges.forward(plan, (factors, kinds, bases), states, keep)
            return
        b, (g, k, c) = self.buffers, plan.shape
        read = {
            "values": b.values, "elements": b.elements, "largest": b.largest, "squares": b.squares, "tables": b.table,
            "states": states, "factors": factors, "kinds": kinds, "bases": bases,
            "table_stride": b.table.stride(0), "state_stride": states.stride(0) if states.shape[0] > 1 else 0,
            "first_element": plan.elements, "first_group": group, "N": b.width, "NS": b.stride, "C": c,
            "J": kinds.shape[1], "S": b.columns, "CONTIGUOUS": plan.contiguous, **self._row_strides(),
        }  # fmt: skip
        if self.fuses(plan):
            tile, block, count = self.tile(), min(64, power(k)), kinds.shape[1]
            self.large.forward[(parts(b.width, tile) * parts(k, block), g, b.runs)](
                **read, **self._weights(plan.number), first_row=plan.rows, K=k, **self._exact(),
                BK=block, C2=power(c), BN=tile, AT_ONCE=count if count <= AT_ONCE else 0, KEEP=int(keep),
                PRECISION=self.dot, num_warps=4, **self._chained(follows),
            )  # fmt: skip
            return
        wide = self.wide.takes(plan)
        block, tile, warps = element_blocks(c, self.tile())
        self.large.elements[(parts(b.width, tile), g, b.runs)](
            **read, BC=block, BN=tile, WHOLE=block >= c, ROUND=wide, num_warps=warps
        )
        if wide:
            self.wide.sums(plan, group, keep)
            return
        bk, bc, bn, warps = sum_blocks(k, c)
        self.large.sums[(parts(b.width, bn) * parts(k, bk), g, b.runs)](
            values=b.values, elements=b.elements, largest=b.largest, KEEP=int(keep), **self._exact(),
            **self._row_strides(), **self._weights(plan.number),
            first_row=plan.rows, first_element=plan.elements, first_group=group, N=b.width, NS=b.stride, K=k, C=c,
            BK=bk, BC=bc, BN=bn, PRECISION=self.dot, num_warps=warps,
        )  # fmt: skip

    def backward(self, plan: SumPlan, group: int, curvature: Tensor | None, follows: bool) -> None:
        """Ratios A of a sum layer and the flows of its elements; curvature: (R, tiles, kinds, M) or None."""
        readers, tile = self._sums[plan.number][3], self.tile()
        if plan.masked:
            self.edges.backward(plan, readers, curvature, tile)
            return
        b, (g, k, c) = self.buffers, plan.shape
        tiles = parts(b.width, tile)
        ratio = {
            "values": b.values, "largest": b.largest, "squares": b.squares, "ratios": b.ratios, "flows": b.flows,
            "readers": readers, "sample_weights": b.sample_weights,
            "partial": b.sample_weights if curvature is None else curvature,
            "first_row": plan.rows, "first_group": group, "first_unit": int(b.packing.starts[plan.number]),
            "N": b.width, "NS": b.stride, "K": k, "J": readers.shape[1], "M": b.packing.units, "tiles": tiles,
            "BN": tile, "CURVATURE": 0 if curvature is None else curvature.shape[2],
            **self._row_strides(), **self._exact(),
        }  # fmt: skip
        if self.fuses(plan):
            block = min(64, power(c))
            self.large.backward[(tiles * parts(c, block), g, b.runs)](
                **ratio, **self._weights(plan.number), elements=b.elements, first_element=plan.elements, C=c,
                K2=power(k), BC=block, PRECISION=self.dot, num_warps=4, **self._chained(follows),
            )  # fmt: skip
            return
        wide, block = self.wide.takes(plan), min(128, power(k))
        self.large.ratios[(tiles * parts(k, block), g, b.runs)](**ratio, BK=block, ROUND=wide, num_warps=8)
        if wide:
            self.wide.flows(plan)
            return
        bc, bk, bn, warps = flow_blocks(c, k)
        self.large.flows[(parts(b.width, bn) * parts(c, bc), g, b.runs)](
            elements=b.elements, ratios=b.ratios, flows=b.flows, **self._weights(plan.number),
            value_stride=b.values.stride(0), element_stride=b.elements.stride(0),
            first_row=plan.rows, first_element=plan.elements, N=b.width, NS=b.stride, K=k, C=c,
            BK=bk, BC=bc, BN=bn, PRECISION=self.dot, num_warps=warps,
        )  # fmt: skip

    def round_weights(self) -> None:
        """Rounded copies of the weights of wide layers, from the present parameters."""
        for k, c, pack, (*_, offsets) in self._shapes:
            if (k, c) in self.buffers.wide_groups:
                self.wide.round_weights((k, c), self.buffers.packed[pack], offsets)

    def _row_strides(self) -> dict[str, int]:
        b = self.buffers
        return {
            "value_stride": b.values.stride(0),
            "element_stride": b.elements.stride(0),
            "group_stride": b.largest.stride(0),
        }

    def _exact(self) -> dict[str, Any]:
        return {"scaled_sums": self.buffers.scaled_sums, "EXACT": self.buffers.exact}

    def _chained(self, follows: bool) -> dict[str, Any]:
        """What a kernel is told that follows that of another layer."""
        return {"EARLY": True, "launch_pdl": True} if self.chains and follows else {"EARLY": False}

    def _equal_shapes(self) -> list[tuple[int, int, int, tuple[Tensor, ...]]]:
        """(K, C, pack, arrays) for each shape of group without a mask: rows, elements, numbers, weights of all such."""
        found: dict[tuple[int, int], list[list[int]]] = {}
        group = 0
        packing = self.buffers.packing
        for plan in self.buffers.blueprint.sums:
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
        b = self.buffers
        for k, c, pack, (rows, elements, groups, offsets) in self._shapes:
            if mode == 0 and self.wide.takes_counts((k, c)):
                self.wide.counts((k, c), b.packed[pack], out[pack], (rows, elements, offsets), add)
                continue
            bk, bc, step, warps = count_blocks(k, c, many=mode == 0 and len(rows) * b.runs >= PROGRAMS)
            programs = parts(k, bk) * parts(c, bc) * len(rows) * b.runs
            splits, span = cut(b.width, programs)
            weights, target = b.packed[pack], out[pack]
            result = target if splits == 1 else torch.empty(splits, *target.shape, device=b.device, dtype=b.dtype)
            self.large.counts[(parts(k, bk) * parts(c, bc), len(rows), b.runs * splits)](
                values=b.values, elements=b.elements, largest=b.largest, ratios=b.ratios, weights=weights,
                sample_weights=b.sample_weights, out=result,
                group_rows=rows, group_elements=elements, groups=groups, group_weights=offsets,
                **self._row_strides(), weight_stride=weights.stride(0), split_stride=weights.numel(),
                N=b.width, NS=b.stride, K=k, C=c, CW=weights.shape[2], span=parts(span, step),
                **self._exact(), MODE=mode, ADD=add and splits == 1,
                BK=bk, BC=bc, BN=step, SPLITS=splits, PRECISION=self.dot,
                num_warps=warps,
            )  # fmt: skip
            if splits > 1:
                self._reduce(result, target, k, offsets, add)

    def _reduce(self, pieces: Tensor, target: Tensor, units: int, offsets: Tensor, add: bool) -> None:
        """Add up the pieces; rows of other shapes in the same pack are not touched: others may be writing them."""
        if len(offsets) * units == target.shape[1]:
            target.copy_(target + pieces.sum(0) if add else pieces.sum(0))
            return
        rows = (offsets[:, None] + torch.arange(units, device=self.buffers.device)).flatten()
        total = pieces.index_select(2, rows).sum(0)
        target.index_copy_(1, rows, target.index_select(1, rows) + total if add else total)
