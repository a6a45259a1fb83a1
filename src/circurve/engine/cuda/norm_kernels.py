"""Triton kernels for the curvature sums of the reference backend: several reductions in one pass over the data."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["row_sums", "state_sums"]

LOG_ZERO_HALF = tl.constexpr(-5e29)

VARIES = ["first_unit", "M"]
"""Numbers that differ from layer to layer: kernels are not compiled anew for lucky values of them."""


@triton.jit(do_not_specialize=VARIES)
def row_sums(
    flows, scaled, norms, largest, weights, inverse_weights, out, G, K, N, first_unit, M, kind_stride,
    BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add sums over samples of F^2 / w, w q / S^2 and F^2 q / (S^2 w) to out; program (block of units, group, run)."""
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    group = r * G + g
    rows = (group * K + k)[:, None] * N
    flow_squared = tl.zeros((BK, BN), dtype=tl.float32)
    local = tl.zeros((BK, BN), dtype=tl.float32)
    total = tl.zeros((BK, BN), dtype=tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        inside = (k < K)[:, None] & (n < N)[None, :]
        flow = tl.load(flows + rows + n[None, :], mask=inside, other=0.0)
        norm = tl.load(norms + group * N + n, mask=n < N, other=0.0)
        ratio = norm[None, :] / tl.load(scaled + rows + n[None, :], mask=inside, other=1.0)
        weight = tl.load(weights + r * N + n, mask=n < N, other=0.0)
        weight = tl.where(tl.load(largest + group * N + n, mask=n < N, other=0.0) > LOG_ZERO_HALF, weight, 0.0)
        inverse = tl.load(inverse_weights + r * N + n, mask=n < N, other=0.0)
        used = flow * flow * inverse[None, :]
        sharp = ratio * ratio
        flow_squared += used
        local += sharp * weight[None, :]
        total += used * sharp
    at = out + r * M + first_unit + g * K + k
    tl.store(at, tl.load(at, mask=k < K) + tl.sum(flow_squared, axis=1), mask=k < K)
    at += kind_stride
    tl.store(at, tl.load(at, mask=k < K) + tl.sum(local, axis=1), mask=k < K)
    at += kind_stride
    tl.store(at, tl.load(at, mask=k < K) + tl.sum(total, axis=1), mask=k < K)


@triton.jit
def state_sums(
    flows, indicators, inverse_weights, out, G, K, N, indicator_stride, kind_stride,
    S: tl.constexpr, S2: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Sums over samples of F and F^2 / w by state, both (R, G, K, S); program (block of units, group, run)."""
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    group = r * G + g
    states = indicators + r * indicator_stride + g.to(tl.int64) * S * N
    column = tl.arange(0, S2)
    total = tl.zeros((BK, S2), dtype=tl.float32)
    squared = tl.zeros((BK, S2), dtype=tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        inside = (k < K)[:, None] & (n < N)[None, :]
        flow = tl.load(flows + (group * K + k)[:, None] * N + n[None, :], mask=inside, other=0.0)
        square = flow * flow * tl.load(inverse_weights + r * N + n, mask=n < N, other=0.0)[None, :]
        for s in tl.static_range(S):
            here = tl.load(states + s * N + n, mask=n < N, other=0.0)[None, :]
            one = (column == s)[None, :]
            total += tl.where(one, tl.sum(flow * here, axis=1)[:, None], 0.0)
            squared += tl.where(one, tl.sum(square * here, axis=1)[:, None], 0.0)
    at = out + (group * K + k)[:, None] * S + column[None, :]
    inside = (k < K)[:, None] & (column < S)[None, :]
    tl.store(at, total, mask=inside)
    tl.store(at + kind_stride, squared, mask=inside)
