"""Triton kernels of wide sum layers in tf32: large blocks, of numbers that have been rounded where they were computed.

Letters as in `kernels.py`. There every program rounds what it reads, on the way to the tensor cores. Here E and A come
rounded from `elements` and `ratios`, and the weights are rounded once for a step. Blocks divide layers and samples
without a remainder, so nothing is masked.

Tensor cores read tf32 from shared memory only along the summed axis. Weights are in that order (those of the backward
pass are copied transposed), and so are the samples of `wide_counts`. E and A of the other two products are not; as the
first operand they may come from registers, where any order will do.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine.cuda.product_kernels import rounded

__all__ = ["round_weights", "wide_counts", "wide_flows", "wide_sums"]

VARIES = ["first_row", "first_element", "first_group", "first_copy", "KEEP"]
"""Numbers that differ from layer to layer: no kernel is compiled again for 1 or a multiple of 16 among them."""


@triton.jit
def round_weights(
    weights, copies, transposed, group_weights, weight_stride, K, C,
    BK: tl.constexpr, BC: tl.constexpr, TRANSPOSE: tl.constexpr,
):  # fmt: skip
    """Weights (K, C) of all groups of one shape, rounded, and again as (C, K); program (block of edges, group, run)."""
    blocks = C // BC
    k = tl.program_id(0) // blocks * BK + tl.arange(0, BK)
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    unit = (tl.load(group_weights + g) + k)[:, None]
    w = rounded(tl.load(weights + r * weight_stride + unit * C + c[None, :]))
    first = (r * tl.num_programs(1) + g) * K * C
    tl.store(copies + first + k[:, None] * C + c[None, :], w)
    if TRANSPOSE:
        tl.store(transposed + first + c[:, None] * K + k[None, :], tl.trans(w))


@triton.jit
def _product(x, w, NS, X, BX: tl.constexpr, SHAPE: tl.constexpr, PRECISION: tl.constexpr):
    """x^T w^T for pointers to the first BX of X rows of x, and to the first BX of X columns of w.

    x is rounded already. To round it again changes nothing, but takes it through registers.
    """
    total = tl.zeros(SHAPE, dtype=tl.float32)
    for _ in range(0, X, BX):
        total = tl.dot(rounded(tl.load(x)), tl.load(w), total, input_precision=PRECISION)
        x += BX * NS
        w += BX
    return total


@triton.jit(do_not_specialize=VARIES)
def wide_sums(
    values, scaled_sums, elements, largest, copies,
    value_stride, element_stride, group_stride, copy_stride,
    first_row, first_element, first_group, first_copy, NS, K, C, KEEP,
    BK: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """log p = log(W E) + m; program (tile of samples x block of units, group, run)."""
    blocks = K // BK
    n = tl.program_id(0) // blocks * BN + tl.arange(0, BN)
    k = tl.program_id(0) % blocks * BK + tl.arange(0, BK)
    c = tl.arange(0, BC)
    g, r = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    e = elements + r * element_stride + (first_element + g * C + c)[None, :] * NS + n[:, None]
    w = copies + r * copy_stride + ((first_copy + g) * K + k)[None, :] * C + c[:, None]
    total = _product(e, w, NS, C, BC, (BN, BK), PRECISION)
    top = tl.load(largest + r * group_stride + (first_group + g) * NS + n)
    place = r * value_stride + (first_row + g * K + k)[None, :] * NS + n[:, None]
    tl.store(values + place, tl.log(total) + top[:, None])
    if EXACT:
        tl.store(scaled_sums + place, total, mask=KEEP > 0)


@triton.jit(do_not_specialize=VARIES)
def wide_flows(
    elements, ratios, flows, transposed,
    value_stride, element_stride, copy_stride, first_row, first_element, first_copy, NS, K, C,
    BK: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The flow E (W^T A) of the elements; program (tile of samples x block of elements, group, run)."""
    blocks = C // BC
    n = tl.program_id(0) // blocks * BN + tl.arange(0, BN)
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    k = tl.arange(0, BK)
    g, r = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    a = ratios + r * value_stride + (first_row + g * K + k)[None, :] * NS + n[:, None]
    w = transposed + r * copy_stride + ((first_copy + g) * C + c)[None, :] * K + k[:, None]
    down = _product(a, w, NS, K, BK, (BN, BC), PRECISION)
    place = r * element_stride + (first_element + g * C + c)[None, :] * NS + n[:, None]
    tl.store(flows + place, down * tl.load(elements + place))


@triton.jit
def wide_counts(
    elements, ratios, weights, out, group_rows, group_elements, group_weights,
    value_stride, element_stride, weight_stride, N, NS, K, C,
    ADD: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Counts W (A E^T) of all groups of one shape; program (block of edges, group, run)."""
    blocks = C // BC
    k = tl.program_id(0) // blocks * BK + tl.arange(0, BK)
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    n = tl.arange(0, BN)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    a = ratios + r * value_stride + (tl.load(group_rows + g) + k)[:, None] * NS + n[None, :]
    e = elements + r * element_stride + (tl.load(group_elements + g) + c)[None, :] * NS + n[:, None]
    total = tl.zeros((BK, BC), dtype=tl.float32)
    for _ in range(0, N, BN):
        total = tl.dot(tl.load(a), tl.load(e), total, input_precision=PRECISION)
        a += BN
        e += BN
    edge = r * weight_stride + (tl.load(group_weights + g) + k)[:, None] * C + c[None, :]
    total *= tl.load(weights + edge)
    if ADD:
        total += tl.load(out + edge)
    tl.store(out + edge, total)
