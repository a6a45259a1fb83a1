"""Launches of the kernels of wide sum layers in tf32."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from circurve.engine.cuda.blueprint import SumPlan
from circurve.engine.cuda.buffers import Buffers
from circurve.engine.cuda.compile_ahead import Kernels
from circurve.engine.cuda.sizes import PROGRAMS, Blocks, wide_count_blocks, wide_flow_blocks, wide_sum_blocks

__all__ = ["WideLauncher"]

Shape = tuple[int, int]
"""K, C"""


class WideLauncher:
    """The counterpart of `Launcher` for layers of the shapes in `Buffers.wide_groups`."""

    def __init__(self, buffers: Buffers, precision: str) -> None:
        from circurve.engine.cuda import wide_kernels  # noqa: PLC0415 - Triton is imported only when used

        self.buffers, self.precision, self.kernels = buffers, precision, Kernels(wide_kernels)
        self._first: dict[int, int] = {}
        """For each layer, the number of its first group among all groups of its shape."""

        seen: dict[Shape, int] = {}
        for plan in buffers.blueprint.sums:
            if not plan.masked:
                g, k, c = plan.shape
                self._first[plan.number] = seen.get((k, c), 0)
                seen[k, c] = self._first[plan.number] + g

    def takes(self, plan: SumPlan) -> bool:
        """True if these kernels compute a layer."""
        return self.buffers.wide and not plan.masked and plan.shape[1:] in self.buffers.wide_groups

    def takes_counts(self, shape: Shape) -> bool:
        """True if `counts` computes the counts of this shape: it does not cut the samples into parts."""
        b = self.buffers
        if not b.wide or shape not in b.wide_groups:
            return False
        blocks = wide_count_blocks(shape[1])
        return (shape[0] // blocks.units) * (shape[1] // blocks.children) * b.wide_groups[shape] * b.runs >= PROGRAMS

    def round_weights(self, shape: Shape, weights: Tensor, offsets: Tensor) -> None:
        """Rounded copies of the weights of a shape. offsets: the first unit of each group among the packed weights."""
        b, (k, c) = self.buffers, shape
        copies = b.copies[shape]
        block = 64
        self.kernels.round_weights[(k // block * (c // block), len(offsets), b.runs)](
            weights=weights, copies=copies[0], transposed=copies[-1], group_weights=offsets,
            weight_stride=weights.stride(0), K=k, C=c, BK=block, BC=block, TRANSPOSE=len(copies) > 1,
        )  # fmt: skip

    def sums(self, plan: SumPlan, group: int, keep: bool) -> None:
        """Values of a layer, whose elements have been written."""
        b, (g, k, c) = self.buffers, plan.shape
        blocks = wide_sum_blocks(k)
        copies = b.copies[k, c][0]
        self.kernels.wide_sums[(b.width // blocks.samples * (k // blocks.units), g, b.runs)](
            values=b.values, scaled_sums=b.scaled_sums, elements=b.elements, largest=b.largest, copies=copies,
            value_stride=b.values.stride(0), element_stride=b.elements.stride(0), group_stride=b.largest.stride(0),
            copy_stride=copies.stride(0), first_group=group, KEEP=int(keep), EXACT=b.exact,
            **self._layer(plan, blocks), PRECISION=self.precision,
        )  # fmt: skip

    def flows(self, plan: SumPlan) -> None:
        """Flows of a layer's elements, whose ratios have been written."""
        b, (g, k, c) = self.buffers, plan.shape
        blocks = wide_flow_blocks()
        transposed = b.copies[k, c][1]
        self.kernels.wide_flows[(b.width // blocks.samples * (c // blocks.children), g, b.runs)](
            elements=b.elements, ratios=b.ratios, flows=b.flows, transposed=transposed,
            value_stride=b.values.stride(0), element_stride=b.elements.stride(0), copy_stride=transposed.stride(0),
            **self._layer(plan, blocks), PRECISION=self.precision,
        )  # fmt: skip

    def counts(self, shape: Shape, weights: Tensor, out: Tensor, arrays: tuple[Tensor, ...], add: bool) -> None:
        """Counts of all groups of a shape. arrays: their first rows, elements and packed units."""
        b, (k, c) = self.buffers, shape
        rows, elements, offsets = arrays
        blocks = wide_count_blocks(c)
        self.kernels.wide_counts[(k // blocks.units * (c // blocks.children), len(rows), b.runs)](
            elements=b.elements, ratios=b.ratios, weights=weights, out=out,
            group_rows=rows, group_elements=elements, group_weights=offsets,
            value_stride=b.values.stride(0), element_stride=b.elements.stride(0), weight_stride=weights.stride(0),
            N=b.width, NS=b.stride, K=k, C=c, ADD=add, PRECISION=self.precision, **blocks.options(),
        )  # fmt: skip

    def _layer(self, plan: SumPlan, blocks: Blocks) -> dict[str, Any]:
        _, k, c = plan.shape
        return {
            "first_row": plan.rows, "first_element": plan.elements, "first_copy": self._first[plan.number],
            "NS": self.buffers.stride, "K": k, "C": c, **blocks.options(),
        }  # fmt: skip
