"""Launches of the kernels for masked sum layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from circurve.engine.cuda.blueprint import SumPlan
from circurve.engine.cuda.sizes import parts, power

if TYPE_CHECKING:
    from circurve.engine.cuda.fused import FusedEngine

__all__ = ["EdgeLauncher"]

BLOCK, SAMPLES = 32, 32
"""Units (or elements) and samples of a program."""


class EdgeLauncher:
    """Stands beside `Launcher`; layers that have no mask never come here."""

    def __init__(self, engine: FusedEngine) -> None:
        from circurve.engine.cuda import edge_kernels  # noqa: PLC0415 - Triton is imported only when used

        self.engine, self.kernels = engine, edge_kernels

    def forward(self, plan: SumPlan, factors: Tensor, kinds: Tensor, bases: Tensor, states: Tensor) -> None:
        """Values of a layer; the logs of its elements stay."""
        e, (g, k, c) = self.engine, plan.shape
        weights, unit = self._weights(plan)
        n, tiles = e.width, parts(e.width, SAMPLES)
        strides = (e.values.stride(0), e.elements.stride(0))
        state_stride = states.stride(0) if states.shape[0] > 1 else 0
        block = min(BLOCK, power(c))
        self.kernels.edge_logs[(tiles * parts(c, block), g, e.runs)](
            e.values, e.elements, e.table, states, factors, kinds, bases,
            *strides, e.table.stride(0), state_stride, plan.elements, n, e.stride, c, kinds.shape[1],
            S=e.columns, BC=block, BN=SAMPLES, CONTIGUOUS=plan.contiguous,
        )  # fmt: skip
        block = min(BLOCK, power(k))
        self.kernels.edge_sums[(tiles * parts(k, block), g, e.runs)](
            e.values, e.elements, weights, *strides, weights.stride(0),
            plan.rows, plan.elements, unit, n, e.stride, k, c, weights.shape[2], BK=block, BN=SAMPLES,
        )  # fmt: skip

    def backward(self, plan: SumPlan, readers: Tensor, curvature: Tensor | None, tile: int) -> None:
        """Flows of a layer's units and elements; curvature: (R, tiles of so many samples, 3, M) or None."""
        e, (g, k, c) = self.engine, plan.shape
        weights, unit = self._weights(plan)
        n, width, tiles = e.width, weights.shape[2], parts(e.width, tile)
        strides = (e.values.stride(0), e.elements.stride(0), weights.stride(0))
        block = min(BLOCK, power(k))
        self.kernels.edge_ratios[(tiles * parts(k, block), g, e.runs)](
            e.values, e.elements, e.ratios, e.flows, weights, readers, e.sample_weights,
            e.sample_weights if curvature is None else curvature, *strides,
            plan.rows, plan.elements, unit, int(e.packing.starts[plan.number]),
            n, e.stride, k, c, width, readers.shape[1], e.packing.units, tiles,
            BK=block, BN=tile, CURVATURE=curvature is not None,
        )  # fmt: skip
        block = min(BLOCK, power(c))
        self.kernels.edge_flows[(parts(n, SAMPLES) * parts(c, block), g, e.runs)](
            e.values, e.elements, e.ratios, e.flows, weights, *strides,
            plan.rows, plan.elements, unit, n, e.stride, k, c, width, BC=block, BN=SAMPLES,
        )  # fmt: skip

    def counts(self, mode: int, out: list[Tensor], add: bool) -> None:
        """Edge sums of all masked layers into `out`; see the kernel `counts` for `mode`."""
        e = self.engine
        for plan in (plan for plan in e.blueprint.sums if plan.masked):
            g, k, c = plan.shape
            weights, unit = self._weights(plan)
            bk, bc = min(BLOCK, power(k)), min(BLOCK, power(c))
            self.kernels.edge_counts[(parts(k, bk) * parts(weights.shape[2], bc), g, e.runs)](
                e.values, e.elements, e.ratios, weights, e.sample_weights, out[e.packing.place[plan.number][0]],
                e.values.stride(0), e.elements.stride(0), weights.stride(0),
                plan.rows, plan.elements, unit, e.width, e.stride, k, c, weights.shape[2],
                MODE=mode, ADD=add, BK=bk, BC=bc,
            )  # fmt: skip

    def _weights(self, plan: SumPlan) -> tuple[Tensor, int]:
        at, unit = self.engine.packing.place[plan.number]
        return self.engine.packed[at], unit
