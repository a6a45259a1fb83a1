"""Triton kernels of the M-step: sum weights in the paper's form, and the parameters of discrete inputs."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["STRONGEST", "between", "maximize", "maximize_inputs"]

STRONGEST = tl.constexpr(7e12)
"""No penalty is stronger: the square of this, times counts, is finite."""

VARIES = ["rows", "units", "R"]
"""Numbers that differ from circuit to circuit: kernels are not compiled anew for lucky values of them."""


@triton.jit
def between(old, best, step):
    """(1 - step) old + step best, and exactly `best` at step 1: a tiny weight must not become zero."""
    return tl.where(step < 0.5, old + step * (best - old), best - (best - old) * (1.0 - step))


@triton.jit(do_not_specialize=VARIES)
def maximize(
    weights, counts, gates, units, alphas, mus, number, forms, multiplier, scale, pseudocount,
    weight_stride, gate_stride, rows, R, C, CW,
    FLOOR: tl.constexpr, C2: tl.constexpr, BR: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The M-step of all sums with C children: the root of the surrogate penalty at a fixed multiplier, normalised.

    Runs whose form is not 0 are left to `maximize_exactly`. MASKED: some edges do not exist, those of weight zero.

    Step size and mu of batch `number` are alphas[number, r] and mus[number, r]; the strength of unit u is mu times
    gates[r, u], and 0 is plain EM. All terms are positive, so float32 loses nothing; the weights are moved in place.
    """
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    r = tl.program_id(1).to(tl.int64)
    c = tl.arange(0, C2)
    at = r * weight_stride + row.to(tl.int64)[:, None] * CW + c[None, :]
    padded = (row < rows)[:, None] & (c < CW)[None, :]
    inside = (row < rows)[:, None] & (c < C)[None, :]
    old = tl.load(weights + at, mask=padded, other=0.0)
    children = tl.zeros((BR,), dtype=tl.float32) + C
    if MASKED:
        inside = inside & (old > 0)
        children = tl.maximum(tl.sum(inside.to(tl.float32), axis=1), 1.0)
    n = tl.load(counts + at, mask=padded, other=0.0)
    place = tl.load(number) * R + r
    used = tl.where(tl.load(forms + r) == 0, tl.sum(n, axis=1), 0.0)  # a sum that was not used stays as it is
    extra = tl.load(pseudocount + r).to(tl.float32) / children
    n = tl.where(inside, n + extra[:, None], 0.0)
    mu = tl.load(mus + place)
    theta = n
    if mu > 0:
        n = n * (1.0 / tl.load(scale + r)).to(tl.float32)
        unit = tl.load(units + row, mask=row < rows, other=0)
        m = mu * tl.load(gates + r * gate_stride + unit, mask=row < rows, other=0.0) * 4.0 * tl.load(multiplier + r)
        m = tl.minimum(m, STRONGEST).to(tl.float32)
        theta = n + tl.sqrt(n) * tl.sqrt(n + m[:, None])  # their product might underflow
    total = tl.sum(theta, axis=1)
    theta = theta * (1.0 / tl.where(total > 0, total, 1.0))[:, None]
    theta = tl.where(inside, tl.maximum(theta, FLOOR), 0.0)
    total = tl.sum(theta, axis=1)
    best = theta * (1.0 / tl.where(total > 0, total, 1.0))[:, None]
    step = tl.load(alphas + place).to(tl.float32)
    moved = tl.where((used > 0)[:, None], between(old, best, step), old)
    tl.store(weights + at, moved, mask=padded)


@triton.jit(do_not_specialize=VARIES)
def maximize_inputs(
    parameters, flows, flow_stride, alphas, number, pseudocount, units, R, FLOOR: tl.constexpr,
    P: tl.constexpr, BERNOULLI: tl.constexpr, S: tl.constexpr, BU: tl.constexpr,
):  # fmt: skip
    """The M-step of Bernoulli and categorical inputs from their flow by state, (R, units, S); in place."""
    unit = tl.program_id(0) * BU + tl.arange(0, BU)
    r = tl.program_id(1).to(tl.int64)
    live = unit < units
    flows += r * flow_stride
    step = tl.load(alphas + tl.load(number) * R + r).to(tl.float32)
    extra = tl.load(pseudocount + r).to(tl.float32)
    uses = tl.zeros((BU,), dtype=tl.float32)
    STATES: tl.constexpr = 2 if BERNOULLI else P
    for s in tl.static_range(STATES):
        uses += tl.load(flows + unit.to(tl.int64) * S + s, mask=live, other=0.0)
    inverse = 1.0 / tl.where(uses > 0, uses + extra, 1.0)
    if BERNOULLI:
        ones = tl.load(flows + unit.to(tl.int64) * S + 1, mask=live, other=0.0)
        best = tl.minimum(tl.maximum((ones + extra / 2) * inverse, FLOOR), 1.0 - FLOOR)
        at = parameters + r * units + unit
        old = tl.load(at, mask=live, other=0.0)
        tl.store(at, tl.where(uses > 0, between(old, best, step), old), mask=live)
    else:
        total = tl.zeros((BU,), dtype=tl.float32)
        for s in tl.static_range(P):
            flow = tl.load(flows + unit.to(tl.int64) * S + s, mask=live, other=0.0)
            total += tl.maximum((flow + extra / P) * inverse, FLOOR)
        for s in tl.static_range(P):
            flow = tl.load(flows + unit.to(tl.int64) * S + s, mask=live, other=0.0)
            best = tl.maximum((flow + extra / P) * inverse, FLOOR) / total
            at = parameters + (r * units + unit) * P + s
            old = tl.load(at, mask=live, other=0.0)
            tl.store(at, tl.where(uses > 0, between(old, best, step), old), mask=live)
