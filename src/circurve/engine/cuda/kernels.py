"""Triton kernels of the sum layers: forward, backward, and the sums over samples.

Letters as in `reference/`: E elements, S scaled sums, m the largest log among the children of a group, F flow,
A = F / S (`ratios`). All arrays are (run, row, sample) with a stride of NS samples, so every kernel computes all runs
of a fleet: program (tile of samples, group, run). Where a group's elements fit into registers (up to `FUSED` units),
one kernel does a whole layer; wider ones first write E (or A) and then multiply block by block.

Backwards, 1 / S is exp(m - log p). Where log-values can be very large (EXACT: some inputs have no table), that
difference would lose its digits, and S itself is kept in `scaled_sums`.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine import limits
from circurve.engine.cuda.chain_kernels import let_next_begin, wait_for_last
from circurve.engine.cuda.element_kernels import log_elements, received
from circurve.engine.cuda.product_kernels import product, rounded

__all__ = [
    "backward",
    "counts",
    "elements",
    "flows",
    "forward",
    "per_weight",
    "ratios",
    "sums",
]

IMPOSSIBLE = tl.constexpr(limits.IMPOSSIBLE)
MIN_SAMPLE_WEIGHT = tl.constexpr(limits.MIN_SAMPLE_WEIGHT)
MAX_TERM = tl.constexpr(limits.FLOAT32_MAX_TERM)

VARIES = [
    *("first_row", "first_element", "first_group", "first_pack", "first_unit", "table_stride"),
    *("tiles", "span", "J", "M", "KEEP"),
]
"""Numbers that differ from layer to layer: no kernel is compiled again for 1 or a multiple of 16 among them."""


@triton.jit(do_not_specialize=VARIES)
def forward(
    values, elements, largest, squares, scaled_sums, weights, tables, states, factors, kinds, bases,
    value_stride, element_stride, group_stride, weight_stride, table_stride, state_stride,
    first_row, first_element, first_group, first_pack, N, NS, K, C, CW, J, KEEP,
    S: tl.constexpr, BK: tl.constexpr, C2: tl.constexpr, BN: tl.constexpr,
    CONTIGUOUS: tl.constexpr, AT_ONCE: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A whole sum layer: E, S = W E, log p = log S + m; program (tiles of samples x block of units, group, run)."""
    let_next_begin(EARLY)
    blocks = tl.cdiv(K, BK)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    k, c = block * BK + tl.arange(0, BK), tl.arange(0, C2)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    w = tl.load(
        weights + r * weight_stride + (first_pack + g.to(tl.int64) * K + k)[:, None] * CW + c[None, :],
        mask=(k < K)[:, None] & (c < CW)[None, :], other=0.0,
    )  # fmt: skip
    wait_for_last(EARLY)
    values += r * value_stride
    n = tile * BN + tl.arange(0, BN)
    logs = log_elements(
        values, tables + r * table_stride, states + r * state_stride, factors, kinds, bases, g, c, n, C, J, N, NS,
        S, CONTIGUOUS, AT_ONCE, (C2, BN),
    )  # fmt: skip
    top = tl.max(logs, axis=0)
    scaled = tl.exp(logs - top[None, :])
    total = tl.dot(w, scaled, input_precision=PRECISION)
    place = (first_row + g.to(tl.int64) * K + k)[:, None] * NS + n[None, :]
    tl.store(values + place, tl.log(total) + top[None, :], mask=(k < K)[:, None] & (n < N)[None, :])
    if KEEP > 0:
        if EXACT:
            tl.store(scaled_sums + r * value_stride + place, total, mask=(k < K)[:, None] & (n < N)[None, :])
        if block == 0:
            at = elements + r * element_stride + (first_element + g.to(tl.int64) * C + c)[:, None] * NS + n[None, :]
            tl.store(at, scaled, mask=(c < C)[:, None] & (n < N)[None, :])
            group = r * group_stride + (first_group + g).to(tl.int64) * NS + n
            tl.store(largest + group, top, mask=n < N)
            tl.store(squares + group, tl.sum(scaled * scaled, axis=0), mask=n < N)


@triton.jit(do_not_specialize=VARIES)
def elements(
    values, elements, largest, squares, tables, states, factors, kinds, bases,
    value_stride, element_stride, group_stride, table_stride, state_stride,
    first_element, first_group, N, NS, C, J,
    S: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr,
    CONTIGUOUS: tl.constexpr, WHOLE: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """E of a layer, with m and the sum of its squares: at once, or in two passes over the factors block by block.

    ROUND: E is rounded for the kernels of wide layers.
    """
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    values += r * value_stride
    tables += r * table_stride
    states += r * state_stride
    if WHOLE:
        c = tl.arange(0, BC)
        logs = log_elements(
            values, tables, states, factors, kinds, bases, g, c, n, C, J, N, NS, S, CONTIGUOUS, 0, (BC, BN)
        )  # fmt: skip
        top = tl.max(logs, axis=0)
        scaled = tl.exp(logs - top[None, :])
        square = tl.sum(scaled * scaled, axis=0)
        at = elements + r * element_stride + (first_element + g.to(tl.int64) * C + c)[:, None] * NS + n[None, :]
        tl.store(at, rounded(scaled) if ROUND else scaled, mask=(c < C)[:, None] & (n < N)[None, :])
    else:
        top = tl.full((BN,), -float("inf"), dtype=tl.float32)
        for start in range(0, C, BC):
            c = start + tl.arange(0, BC)
            logs = log_elements(
                values, tables, states, factors, kinds, bases, g, c, n, C, J, N, NS, S, CONTIGUOUS, 0, (BC, BN)
            )  # fmt: skip
            top = tl.maximum(top, tl.max(logs, axis=0))
        square = tl.zeros((BN,), dtype=tl.float32)
        for start in range(0, C, BC):
            c = start + tl.arange(0, BC)
            logs = log_elements(
                values, tables, states, factors, kinds, bases, g, c, n, C, J, N, NS, S, CONTIGUOUS, 0, (BC, BN)
            )  # fmt: skip
            scaled = tl.exp(logs - top[None, :])
            square += tl.sum(scaled * scaled, axis=0)
            at = elements + r * element_stride + (first_element + g.to(tl.int64) * C + c)[:, None] * NS + n[None, :]
            tl.store(at, rounded(scaled) if ROUND else scaled, mask=(c < C)[:, None] & (n < N)[None, :])
    group = r * group_stride + (first_group + g).to(tl.int64) * NS + n
    tl.store(largest + group, top, mask=n < N)
    tl.store(squares + group, square, mask=n < N)


@triton.jit(do_not_specialize=VARIES)
def sums(
    values, elements, largest, scaled_sums, weights,
    value_stride, element_stride, group_stride, weight_stride,
    first_row, first_element, first_group, first_pack, N, NS, K, C, CW, KEEP,
    BK: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """log p = log(W E) + m of a wide layer; program (tile of samples x block of units, group, run).

    The product is done as E^T W^T: weights are then in memory in the order in which tensor cores read their second
    operand.
    """
    blocks = tl.cdiv(K, BK)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    n, k = tile * BN + tl.arange(0, BN), block * BK + tl.arange(0, BK)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    w_rows = weights + r * weight_stride + (first_pack + g.to(tl.int64) * K + k)[None, :] * CW
    e_rows = elements + r * element_stride + (first_element + g.to(tl.int64) * C) * NS + n[:, None]
    total = tl.zeros((BN, BK), dtype=tl.float32)
    for start in range(0, C, BC):
        c = start + tl.arange(0, BC)
        w = tl.load(w_rows + c[:, None], mask=(k < K)[None, :] & (c < CW)[:, None], other=0.0)
        e = tl.load(e_rows + c[None, :] * NS, mask=(n < N)[:, None] & (c < C)[None, :], other=0.0)
        total = product(e, w, total, PRECISION)
    top = tl.load(largest + r * group_stride + (first_group + g).to(tl.int64) * NS + n, mask=n < N, other=0.0)
    place = r * value_stride + (first_row + g.to(tl.int64) * K + k)[None, :] * NS + n[:, None]
    tl.store(values + place, tl.log(total) + top[:, None], mask=(k < K)[None, :] & (n < N)[:, None])
    if EXACT:
        tl.store(scaled_sums + place, total, mask=(k < K)[None, :] & (n < N)[:, None] & (KEEP > 0))


@triton.jit
def _inverse_sum(values, scaled_sums, place, top, inside, EXACT: tl.constexpr):
    """1 / S of a tile of units; `place`: the place of the units among all rows of the run."""
    if EXACT:
        inverse = 1.0 / tl.load(scaled_sums + place, mask=inside, other=1.0)
    else:
        inverse = tl.exp(top[None, :] - tl.load(values + place, mask=inside, other=0.0))
    return inverse


@triton.jit
def per_weight(weight):
    """1 / w; 0 for a sample of (nearly) no weight."""
    return tl.where(weight >= MIN_SAMPLE_WEIGHT, 1.0 / weight, 0.0)


@triton.jit
def _ratio(
    values, scaled_sums, largest, squares, flows, readers, sample_weights, partial,
    r, g, tile, tiles, k, n, first_row, first_group, first_unit, M, group_stride, K, J, N, NS, own,
    CURVATURE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A = F / S for a tile; if it is this program's `own`, its CURVATURE kinds of sums go to `partial`.

    They are F^2, t and T, and then F t, F log t and F.
    """
    flow = received(flows, readers, g, k, n, K, J, N, NS)
    inside = (k < K)[:, None] & (n < N)[None, :]
    group = r * group_stride + (first_group + g).to(tl.int64) * NS + n
    top = tl.load(largest + group, mask=n < N, other=0.0)
    place = (first_row + g.to(tl.int64) * K + k)[:, None] * NS + n[None, :]
    inverse = _inverse_sum(values, scaled_sums, place, top, inside, EXACT)
    ratio = tl.where(inside, flow * inverse, 0.0)
    if CURVATURE:
        square = tl.load(squares + group, mask=n < N, other=0.0)
        weight = tl.load(sample_weights + r * NS + n, mask=n < N, other=0.0)
        share = per_weight(weight)[None, :]
        weight = tl.where(top > IMPOSSIBLE, weight, 0.0)
        sharp = tl.minimum(inverse * inverse * (square * weight)[None, :], MAX_TERM)
        local = tl.sum(tl.where(inside, sharp, 0.0), axis=1)
        total = tl.sum(tl.minimum(ratio * share * ratio * square[None, :], MAX_TERM), axis=1)
        flow_squared = tl.sum(flow * share * flow, axis=1)
        out = partial + (r * tiles + tile) * CURVATURE * M + first_unit + g * K + k
        tl.store(out, flow_squared, mask=(k < K) & own)
        tl.store(out + M, local, mask=(k < K) & own)
        tl.store(out + 2 * M, total, mask=(k < K) & own)
        if CURVATURE > 3:
            weighted = tl.minimum(ratio * inverse * square[None, :], MAX_TERM)
            # t >= 1; where there is no flow, it may be anything
            log_local = tl.log(tl.where(flow > 0, inverse * inverse * square[None, :], 1.0))
            tl.store(out + 3 * M, tl.sum(tl.where(inside, weighted, 0.0), axis=1), mask=(k < K) & own)
            tl.store(out + 4 * M, tl.sum(tl.where(inside, flow * log_local, 0.0), axis=1), mask=(k < K) & own)
            tl.store(out + 5 * M, tl.sum(tl.where(inside, flow, 0.0), axis=1), mask=(k < K) & own)
    return ratio


@triton.jit(do_not_specialize=VARIES)
def backward(
    values, scaled_sums, elements, largest, squares, ratios, flows, weights, readers, sample_weights, partial,
    value_stride, element_stride, group_stride, weight_stride,
    first_row, first_element, first_group, first_pack, first_unit, N, NS, K, C, CW, J, M, tiles,
    K2: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, CURVATURE: tl.constexpr, EXACT: tl.constexpr,
    PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A whole sum layer backwards: A, and the flow E (W^T A) of its elements.

    Program (tile of samples x block of elements, group, run); the first block of a tile keeps A and the sums.
    """
    let_next_begin(EARLY)
    blocks = tl.cdiv(C, BC)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    k, c = tl.arange(0, K2), block * BC + tl.arange(0, BC)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    w = tl.load(
        weights + r * weight_stride + (first_pack + g.to(tl.int64) * K + k)[None, :] * CW + c[:, None],
        mask=(k < K)[None, :] & (c < CW)[:, None], other=0.0,
    )  # fmt: skip
    wait_for_last(EARLY)
    flows += r * element_stride
    n = tile * BN + tl.arange(0, BN)
    inside = (c < C)[:, None] & (n < N)[None, :]
    place = (first_element + g.to(tl.int64) * C + c)[:, None] * NS + n[None, :]
    scaled = tl.load(elements + r * element_stride + place, mask=inside, other=0.0)
    ratio = _ratio(
        values + r * value_stride, scaled_sums + r * value_stride, largest, squares, flows, readers,
        sample_weights, partial,
        r, g, tile, tiles, k, n, first_row, first_group, first_unit, M, group_stride, K, J, N, NS,
        block == 0, CURVATURE, EXACT,
    )  # fmt: skip
    at = ratios + r * value_stride + (first_row + g.to(tl.int64) * K + k)[:, None] * NS + n[None, :]
    tl.store(at, ratio, mask=(k < K)[:, None] & (n < N)[None, :] & (block == 0))
    down = tl.dot(w, ratio, input_precision=PRECISION)
    tl.store(flows + place, down * scaled, mask=inside)


@triton.jit(do_not_specialize=VARIES)
def ratios(
    values, scaled_sums, largest, squares, ratios, flows, readers, sample_weights, partial,
    value_stride, element_stride, group_stride,
    first_row, first_group, first_unit, N, NS, K, J, M, tiles,
    BK: tl.constexpr, BN: tl.constexpr, CURVATURE: tl.constexpr, EXACT: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """A of a wide layer, and its curvature sums; program (tile of samples x block of units, group, run).

    ROUND: A is rounded for the kernels of wide layers.
    """
    blocks = tl.cdiv(K, BK)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    n, k = tile * BN + tl.arange(0, BN), block * BK + tl.arange(0, BK)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    ratio = _ratio(
        values + r * value_stride, scaled_sums + r * value_stride, largest, squares, flows + r * element_stride,
        readers, sample_weights, partial,
        r, g, tile, tiles, k, n, first_row, first_group, first_unit, M, group_stride, K, J, N, NS, True,
        CURVATURE, EXACT,
    )  # fmt: skip
    at = ratios + r * value_stride + (first_row + g.to(tl.int64) * K + k)[:, None] * NS + n[None, :]
    tl.store(at, rounded(ratio) if ROUND else ratio, mask=(k < K)[:, None] & (n < N)[None, :])


@triton.jit(do_not_specialize=VARIES)
def flows(
    elements, ratios, flows, weights,
    value_stride, element_stride, weight_stride, first_row, first_element, first_pack, N, NS, K, C, CW,
    BK: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The flow E (W^T A) of a wide layer's elements; program (tile of samples x block of elements, group, run)."""
    blocks = tl.cdiv(C, BC)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    n, c = tile * BN + tl.arange(0, BN), block * BC + tl.arange(0, BC)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    w_columns = weights + r * weight_stride + (first_pack + g.to(tl.int64) * K) * CW + c[:, None]
    a_rows = ratios + r * value_stride + (first_row + g.to(tl.int64) * K) * NS + n[None, :]
    down = tl.zeros((BC, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        w = tl.load(w_columns + k[None, :] * CW, mask=(k < K)[None, :] & (c < CW)[:, None], other=0.0)
        a = tl.load(a_rows + k[:, None] * NS, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        if PRECISION == "tf32x3":  # in `product`, one of the operands would have to be transposed
            down = tl.dot(w, a, down, input_precision="tf32x3")
        else:
            down = product(w, a, down, PRECISION)
    inside = (c < C)[:, None] & (n < N)[None, :]
    place = r * element_stride + (first_element + g.to(tl.int64) * C + c)[:, None] * NS + n[None, :]
    scaled = tl.load(elements + place, mask=inside, other=0.0)
    tl.store(flows + place, down * scaled, mask=inside)


@triton.jit(do_not_specialize=VARIES)
def counts(
    values, scaled_sums, elements, largest, ratios, weights, sample_weights, out,
    group_rows, group_elements, groups, group_weights,
    value_stride, element_stride, group_stride, weight_stride, split_stride, N, NS, K, C, CW, span,
    MODE: tl.constexpr, ADD: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr,
    SPLITS: tl.constexpr, EXACT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums over samples for each edge, of all groups of one shape at once; program (block of edges, group, run x part).

    A part is `span` tiles of samples. Tiles are counted, not samples: then each of them is known to start at a multiple
    of 16 bytes, and is read in pieces of that size.
    MODE 0: counts W (A E^T). 1: the sum of rho = E / S. 2: second moments W^2 (A^2 E^2^T). 3: the sum of rho^2.
    """
    blocks = tl.cdiv(C, BC)
    k = tl.program_id(0) // blocks * BK + tl.arange(0, BK)
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    g, r, part = tl.program_id(1), (tl.program_id(2) // SPLITS).to(tl.int64), tl.program_id(2) % SPLITS
    row = tl.load(group_rows + g).to(tl.int64)
    a_rows = r * value_stride + (row + k)[:, None] * NS
    e_rows = elements + r * element_stride + (tl.load(group_elements + g).to(tl.int64) + c)[None, :] * NS
    total = tl.zeros((BK, BC), dtype=tl.float32)
    for tile in range(part * span, tl.minimum(part * span + span, tl.cdiv(N, BN))):
        n = tile * BN + tl.arange(0, BN)
        live = n < N
        inside = (k < K)[:, None] & live[None, :]
        e = tl.load(e_rows + n[:, None], mask=live[:, None] & (c < C)[None, :], other=0.0)
        if MODE == 0:
            a = tl.load(ratios + a_rows + n[None, :], mask=inside, other=0.0)
        elif MODE % 2 == 1:
            group = r * group_stride + tl.load(groups + g).to(tl.int64) * NS + n
            top = tl.load(largest + group, mask=live, other=0.0)
            w = tl.where(top > IMPOSSIBLE, tl.load(sample_weights + r * NS + n, mask=live, other=0.0), 0.0)
            inverse = _inverse_sum(values, scaled_sums, a_rows + n[None, :], top, inside, EXACT)
            a = tl.where(inside, inverse * w[None, :], 0.0)
            if MODE == 3:
                a = tl.minimum(a * inverse, MAX_TERM)  # infinity times an element of 0 would be NaN
                e = e * e
        else:
            w = tl.load(sample_weights + r * NS + n, mask=live, other=0.0)
            a = tl.load(ratios + a_rows + n[None, :], mask=inside, other=0.0)
            a = tl.minimum(a * per_weight(w)[None, :] * a, MAX_TERM)  # infinity times an element of 0 would be NaN
            e = e * e
        total = product(a, e, total, PRECISION)
    edge = (tl.load(group_weights + g) + k)[:, None] * CW + c[None, :]
    inside = (k < K)[:, None] & (c < CW)[None, :]
    if MODE % 2 == 0:
        w = tl.load(weights + r * weight_stride + edge, mask=inside, other=0.0)
        total *= w
        if MODE == 2:
            total *= w
    at = out + part.to(tl.int64) * split_stride + r * weight_stride + edge
    if ADD:
        total += tl.load(at, mask=inside, other=0.0)
    tl.store(at, total, mask=inside)
