"""Launches of the kernels for masked sum layers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from circurve.engine.cuda.blueprint import SumPlan
from circurve.engine.cuda.buffers import Buffers
from circurve.engine.cuda.compile_ahead import Kernels
from circurve.engine.cuda.sizes import parts, power

__all__ = ["EdgeLauncher"]

BLOCK, SAMPLES = 32, 32
"""Units (or elements) and samples of a program."""


class EdgeLauncher:
    """The counterpart of `Launcher` for layers with a mask."""

    def __init__(self, buffers: Buffers) -> None:
        from circurve.engine.cuda import edge_kernels  # noqa: PLC0415 - Triton is imported only when used

        self.buffers, self.kernels = buffers, Kernels(edge_kernels)

    def forward(self, plan: SumPlan, indices: tuple[Tensor, Tensor, Tensor], states: Tensor, keep: bool) -> None:
        """Values of a layer; the logs of its elements stay. indices: factors, kinds and bases."""
        b, (g, k, c) = self.buffers, plan.shape
        factors, kinds, bases = indices
        tiles = parts(b.width, SAMPLES)
        block = min(BLOCK, power(c))
        self.kernels.edge_logs[(tiles * parts(c, block), g, b.runs)](
            values=b.values, elements=b.elements, tables=b.table, states=states,
            factors=factors, kinds=kinds, bases=bases,
            value_stride=b.values.stride(0), element_stride=b.elements.stride(0), table_stride=b.table.stride(0),
            state_stride=states.stride(0) if states.shape[0] > 1 else 0,
            first_element=plan.elements, N=b.width, NS=b.stride, C=c, J=kinds.shape[1],
            S=b.columns, BC=block, BN=SAMPLES, CONTIGUOUS=plan.contiguous,
        )  # fmt: skip
        block = min(BLOCK, power(k))
        self.kernels.edge_sums[(tiles * parts(k, block), g, b.runs)](
            **self._layer(plan), BK=block, BN=SAMPLES, KEEP=int(keep)
        )

    def backward(self, plan: SumPlan, readers: Tensor, curvature: Tensor | None, tile: int) -> None:
        """Flows of a layer's units and elements; curvature: (R, tiles of samples, kinds, M) or None."""
        b, (g, k, c) = self.buffers, plan.shape
        tiles = parts(b.width, tile)
        block = min(BLOCK, power(k))
        self.kernels.edge_ratios[(tiles * parts(k, block), g, b.runs)](
            **self._layer(plan), ratios=b.ratios, flows=b.flows, readers=readers, sample_weights=b.sample_weights,
            partial=b.sample_weights if curvature is None else curvature,
            first_unit=int(b.packing.starts[plan.number]), J=readers.shape[1], M=b.packing.units, tiles=tiles,
            BK=block, BN=tile, CURVATURE=0 if curvature is None else curvature.shape[2],
        )  # fmt: skip
        block = min(BLOCK, power(c))
        self.kernels.edge_flows[(parts(b.width, SAMPLES) * parts(c, block), g, b.runs)](
            **self._layer(plan), ratios=b.ratios, flows=b.flows, BC=block, BN=SAMPLES
        )

    def counts(self, mode: int, out: list[Tensor], add: bool) -> None:
        """Edge sums of all masked layers into `out`; see the kernel `counts` for `mode`."""
        b = self.buffers
        for plan in (plan for plan in b.blueprint.sums if plan.masked):
            g, k, c = plan.shape
            layer = self._layer(plan)
            bk, bc = min(BLOCK, power(k)), min(BLOCK, power(c))
            self.kernels.edge_counts[(parts(k, bk) * parts(layer["CW"], bc), g, b.runs)](
                **layer, ratios=b.ratios, sample_weights=b.sample_weights,
                out=out[b.packing.place[plan.number][0]], MODE=mode, ADD=add, BK=bk, BC=bc,
            )  # fmt: skip

    def _layer(self, plan: SumPlan) -> dict[str, Any]:
        """What all kernels read of a layer."""
        b, (_, k, c) = self.buffers, plan.shape
        at, unit = b.packing.place[plan.number]
        weights = b.packed[at]
        return {
            "values": b.values, "elements": b.elements, "weights": weights, "tops": b.tops,
            "scaled_sums": b.scaled_sums, "EXACT": b.exact,
            "value_stride": b.values.stride(0), "element_stride": b.elements.stride(0),
            "weight_stride": weights.stride(0), "first_row": plan.rows, "first_element": plan.elements,
            "first_pack": unit, "N": b.width, "NS": b.stride, "K": k, "C": c, "CW": weights.shape[2],
        }  # fmt: skip
