"""Triton kernels of masked sum layers, edge by edge in logs.

Units of one group then have different children, and so a largest child each: there is no common scale that a product of
matrices could work with. With l_c the logs of the elements and v_k = log p_k,

    v_k = log sum_c W_kc exp(l_c)      rho_kc = exp(l_c - v_k)      flow_c = sum_k F_k W_kc rho_kc,

over the edges that exist, which are those with a positive weight. `ratios` holds F here, and `elements` the logs. Where
log-values can be very large (EXACT), l_c - v_k is taken as (l_c - m_k) - log S_k, with m_k the largest log of the
unit's own children (`tops`) and S_k their sum over exp(m_k) (`scaled_sums`): then no digits are lost.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine.cuda.element_kernels import log_elements, received
from circurve.engine.cuda.kernels import IMPOSSIBLE, MAX_TERM, VARIES, per_weight

__all__ = ["edge_counts", "edge_flows", "edge_logs", "edge_ratios", "edge_sums"]


@triton.jit
def _exp(x, there):
    """exp(x), and 0 where there is nothing."""
    return tl.exp(tl.where(there, x, -float("inf")))


@triton.jit
def _unit_log(values, tops, scaled_sums, place, mask, EXACT: tl.constexpr):
    """Two numbers whose sum is v of units: m and log S, or v and 0."""
    if EXACT:
        high = tl.load(tops + place, mask=mask, other=0.0)
        low = tl.log(tl.load(scaled_sums + place, mask=mask, other=1.0))
    else:
        high = tl.load(values + place, mask=mask, other=0.0)
        low = tl.zeros_like(high)
    return high, low


@triton.jit(do_not_specialize=VARIES)
def edge_logs(
    values, elements, tables, states, factors, kinds, bases,
    value_stride, element_stride, table_stride, state_stride, first_element, N, NS, C, J,
    S: tl.constexpr, BC: tl.constexpr, BN: tl.constexpr, CONTIGUOUS: tl.constexpr,
):  # fmt: skip
    """l of a layer; program (tile of samples x block of elements, group, run)."""
    blocks = tl.cdiv(C, BC)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    n, c = tile * BN + tl.arange(0, BN), block * BC + tl.arange(0, BC)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    logs = log_elements(
        values + r * value_stride, tables + r * table_stride, states + r * state_stride, factors, kinds, bases,
        g, c, n, C, J, N, NS, S, CONTIGUOUS, 0, (BC, BN),
    )  # fmt: skip
    at = elements + r * element_stride + (first_element + g.to(tl.int64) * C + c)[:, None] * NS + n[None, :]
    tl.store(at, logs, mask=(c < C)[:, None] & (n < N)[None, :])


@triton.jit(do_not_specialize=VARIES)
def edge_sums(
    values, elements, weights, tops, scaled_sums, value_stride, element_stride, weight_stride,
    first_row, first_element, first_pack, N, NS, K, C, CW, KEEP,
    BK: tl.constexpr, BN: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """v of a layer; program (tile of samples x block of units, group, run)."""
    blocks = tl.cdiv(K, BK)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    n, k = tile * BN + tl.arange(0, BN), block * BK + tl.arange(0, BK)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    w_rows = weights + r * weight_stride + (first_pack + g.to(tl.int64) * K + k) * CW
    logs = elements + r * element_stride + (first_element + g.to(tl.int64) * C) * NS + n
    top = tl.full((BK, BN), -float("inf"), dtype=tl.float32)
    for c in range(C):
        w = tl.load(w_rows + c, mask=k < K, other=0.0)
        log = tl.load(logs + c * NS, mask=n < N, other=0.0)
        top = tl.where((w > 0)[:, None], tl.maximum(top, log[None, :]), top)
    top = tl.where(top > -float("inf"), top, 0.0)  # units beyond the last have no children
    total = tl.zeros((BK, BN), dtype=tl.float32)
    for c in range(C):
        w = tl.load(w_rows + c, mask=k < K, other=0.0)
        log = tl.load(logs + c * NS, mask=n < N, other=0.0)
        total += w[:, None] * _exp(log[None, :] - top, (w > 0)[:, None])
    place = r * value_stride + (first_row + g.to(tl.int64) * K + k)[:, None] * NS + n[None, :]
    inside = (k < K)[:, None] & (n < N)[None, :]
    tl.store(values + place, tl.log(total) + top, mask=inside)
    if EXACT:
        tl.store(tops + place, top, mask=inside & (KEEP > 0))
        tl.store(scaled_sums + place, total, mask=inside & (KEEP > 0))


@triton.jit(do_not_specialize=VARIES)
def edge_ratios(
    values, elements, weights, tops, scaled_sums, ratios, flows, readers, sample_weights, partial,
    value_stride, element_stride, weight_stride,
    first_row, first_element, first_pack, first_unit, N, NS, K, C, CW, J, M, tiles,
    BK: tl.constexpr, BN: tl.constexpr, CURVATURE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """F of a layer, kept in `ratios`, and its curvature sums; program (tile of samples x block of units, group, run).

    t_k is the sum of rho_kc^2; a unit of probability zero has neither t nor T.
    """
    blocks = tl.cdiv(K, BK)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    n, k = tile * BN + tl.arange(0, BN), block * BK + tl.arange(0, BK)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    inside = (k < K)[:, None] & (n < N)[None, :]
    flow = received(flows + r * element_stride, readers, g, k, n, K, J, N, NS)
    at = r * value_stride + (first_row + g.to(tl.int64) * K + k)[:, None] * NS + n[None, :]
    tl.store(ratios + at, flow, mask=inside)
    if CURVATURE:
        possible = inside & (tl.load(values + at, mask=inside, other=0.0) > IMPOSSIBLE)
        high, low = _unit_log(values, tops, scaled_sums, at, inside, EXACT)
        w_rows = weights + r * weight_stride + (first_pack + g.to(tl.int64) * K + k) * CW
        logs = elements + r * element_stride + (first_element + g.to(tl.int64) * C) * NS + n
        local = tl.zeros((BK, BN), dtype=tl.float32)
        for c in range(C):
            w = tl.load(w_rows + c, mask=k < K, other=0.0)
            log = tl.load(logs + c * NS, mask=n < N, other=0.0)
            local += _exp(2 * ((log[None, :] - high) - low), possible & (w > 0)[:, None])
        weight = tl.load(sample_weights + r * NS + n, mask=n < N, other=0.0)
        square = tl.where(inside, flow * per_weight(weight)[None, :] * flow, 0.0)
        out = partial + (r * tiles + tile) * CURVATURE * M + first_unit + g * K + k
        tl.store(out, tl.sum(square, axis=1), mask=k < K)
        tl.store(out + M, tl.sum(tl.minimum(local * weight[None, :], MAX_TERM), axis=1), mask=k < K)
        tl.store(out + 2 * M, tl.sum(tl.minimum(local * square, MAX_TERM), axis=1), mask=k < K)
        if CURVATURE > 3:
            used = inside & (flow > 0)
            weighted = tl.where(used, tl.minimum(flow * local, MAX_TERM), 0.0)
            log_local = tl.log(tl.where(used, local, 1.0))
            tl.store(out + 3 * M, tl.sum(weighted, axis=1), mask=k < K)
            tl.store(out + 4 * M, tl.sum(tl.where(used, flow * log_local, 0.0), axis=1), mask=k < K)
            tl.store(out + 5 * M, tl.sum(tl.where(inside, flow, 0.0), axis=1), mask=k < K)


@triton.jit(do_not_specialize=VARIES)
def edge_flows(
    values, elements, weights, tops, scaled_sums, ratios, flows, value_stride, element_stride, weight_stride,
    first_row, first_element, first_pack, N, NS, K, C, CW, BC: tl.constexpr, BN: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The flow of a layer's elements; program (tile of samples x block of elements, group, run)."""
    blocks = tl.cdiv(C, BC)
    tile, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    n, c = tile * BN + tl.arange(0, BN), block * BC + tl.arange(0, BC)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    inside = (c < C)[:, None] & (n < N)[None, :]
    place = r * element_stride + (first_element + g.to(tl.int64) * C + c)[:, None] * NS + n[None, :]
    log = tl.load(elements + place, mask=inside, other=0.0)
    w_columns = weights + r * weight_stride + (first_pack + g.to(tl.int64) * K) * CW + c
    unit_rows = r * value_stride + (first_row + g.to(tl.int64) * K) * NS + n
    down = tl.zeros((BC, BN), dtype=tl.float32)
    for k in range(K):
        w = tl.load(w_columns + k * CW, mask=c < C, other=0.0)
        value = tl.load(values + unit_rows + k * NS, mask=n < N, other=0.0)
        high, low = _unit_log(values, tops, scaled_sums, unit_rows + k * NS, n < N, EXACT)
        flow = tl.load(ratios + unit_rows + k * NS, mask=n < N, other=0.0)
        edge = (w > 0)[:, None] & (value > IMPOSSIBLE)[None, :]
        down += (w[:, None] * flow[None, :]) * _exp((log - high[None, :]) - low[None, :], edge)
    tl.store(flows + place, down, mask=inside)


@triton.jit(do_not_specialize=VARIES)
def edge_counts(
    values, elements, weights, tops, scaled_sums, ratios, sample_weights, out,
    value_stride, element_stride, weight_stride, first_row, first_element, first_pack, N, NS, K, C, CW,
    MODE: tl.constexpr, ADD: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Sums over samples for each edge of a layer; program (block of edges, group, run). MODE as in `counts`."""
    blocks = tl.cdiv(CW, BC)
    k = tl.program_id(0) // blocks * BK + tl.arange(0, BK)
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    edge = (first_pack + g.to(tl.int64) * K + k)[:, None] * CW + c[None, :]
    written = (k < K)[:, None] & (c < CW)[None, :]
    w = tl.load(weights + r * weight_stride + edge, mask=written, other=0.0)
    unit_rows = r * value_stride + (first_row + g.to(tl.int64) * K + k) * NS
    logs = elements + r * element_stride + (first_element + g.to(tl.int64) * C + c) * NS
    total = tl.zeros((BK, BC), dtype=tl.float32)
    for n in range(N):
        value = tl.load(values + unit_rows + n, mask=k < K, other=0.0)
        flow = tl.load(ratios + unit_rows + n, mask=k < K, other=0.0)
        log = tl.load(logs + n, mask=c < C, other=0.0)
        weight = tl.load(sample_weights + r * NS + n)
        there = (w > 0) & (value > IMPOSSIBLE)[:, None]
        high, low = _unit_log(values, tops, scaled_sums, unit_rows + n, k < K, EXACT)
        ratio = _exp((log[None, :] - high[:, None]) - low[:, None], there)
        if MODE == 0:
            total += flow[:, None] * ratio
        elif MODE == 1:
            total += weight * ratio
        elif MODE == 3:
            total += tl.minimum(weight * ratio * ratio, MAX_TERM)
        else:
            scaled = flow[:, None] * ratio
            total += tl.minimum(scaled * per_weight(weight) * scaled, MAX_TERM)
    if MODE % 2 == 0:
        total *= w
        if MODE == 2:
            total *= w
    at = out + r * weight_stride + edge
    if ADD:
        total += tl.load(at, mask=written, other=0.0)
    tl.store(at, total, mask=written)
