"""Triton kernels of the M-step: sum weights in the paper's form, and the parameters of discrete inputs.

The rule for rows with little flow, and all limits, are those of engine/numerics.py for float32.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine import limits

__all__ = ["at_least", "between", "effective_step", "maximize", "maximize_inputs"]

LEAST_FLOW = tl.constexpr(limits.FLOAT32.least_flow)
MAX_STRENGTH = tl.constexpr(limits.FLOAT32.max_strength)
MIN_STEP = tl.constexpr(limits.MIN_STEP)
WEIGHT_FLOOR = tl.constexpr(limits.WEIGHT_FLOOR)
INPUT_FLOOR = tl.constexpr(limits.INPUT_FLOOR)

VARIES = ["rows", "units", "R", "flows", "flow_stride"]
"""Arguments that differ from layer to layer: no kernel is compiled again where one is 1 or a multiple of 16."""


@triton.jit
def between(old, best, step):
    """(1 - step) old + step best, and exactly `best` at step 1: never below the smaller of old / 2 and best / 2."""
    return tl.where(step < 0.5, old + step * (best - old), best - (best - old) * (1.0 - step))


@triton.jit
def effective_step(alpha):
    """The step size in float32, at least MIN_STEP if it is positive at all."""
    return tl.where(alpha > 0, tl.maximum(alpha, MIN_STEP), 0.0).to(tl.float32)


@triton.jit
def at_least(x, least):
    """max(x, least), but NaN stays NaN: a row with NaN must become NaN, because only parameters are checked for it."""
    return tl.where(x < least, least, x)


@triton.jit
def _inverse(total):
    """One over the sum of a row; 1 for a row that does not exist."""
    return 1.0 / tl.where(total > 0, total, 1.0)


@triton.jit(do_not_specialize=VARIES)
def maximize(
    weights, counts, gates, units, alphas, mus, number, forms, multiplier, scale, pseudocount,
    weight_stride, gate_stride, rows, R, C, CW,
    C2: tl.constexpr, BR: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The M-step of all sums with C children: the root of the surrogate penalty at a fixed multiplier, normalised.

    With n = N / T the counts of a row divided by their sum, m' = mu gate lambda scale / T in float64, and m = 0 for
    plain EM, theta ~ n + sqrt(n) sqrt(n + 4 m'). All terms are positive, so the only error is the rounding of float32.

    Runs whose form is not 0 are left to `maximize_exactly`. MASKED: some edges do not exist, those of weight zero.
    Step size and mu of batch `number` are alphas[number, r] and mus[number, r]; the gate of unit u is gates[r, u].
    The weights are moved in place.
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
    stays = (tl.sum(n, axis=1) < LEAST_FLOW) | (tl.load(forms + r) != 0)  # what is computed below is then left out
    extra = tl.load(pseudocount + r).to(tl.float32) / children
    n = tl.where(inside, n + extra[:, None], 0.0)
    total = tl.sum(n, axis=1)
    theta = n * _inverse(total)[:, None]
    mu = tl.load(mus + place)
    if mu > 0:
        unit = tl.load(units + row, mask=row < rows, other=0)
        gate = tl.load(gates + r * gate_stride + unit, mask=row < rows, other=0.0)
        per_count = tl.load(scale + r) / tl.where(total > 0, total, 1.0).to(tl.float64)
        m = tl.minimum(mu * gate * tl.load(multiplier + r) * per_count, MAX_STRENGTH).to(tl.float32)
        theta += tl.sqrt(theta) * tl.sqrt(theta + 4 * m[:, None])  # a product of roots: it cannot underflow
        theta = theta * _inverse(tl.sum(theta, axis=1))[:, None]
    theta = tl.where(inside, at_least(theta, WEIGHT_FLOOR), 0.0)
    best = theta * _inverse(tl.sum(theta, axis=1))[:, None]
    step = effective_step(tl.load(alphas + place))
    tl.store(weights + at, tl.where(stays[:, None], old, between(old, best, step)), mask=padded)


@triton.jit(do_not_specialize=VARIES)
def maximize_inputs(
    parameters, flows, flow_stride, alphas, number, pseudocount, units, R,
    P: tl.constexpr, BERNOULLI: tl.constexpr, S: tl.constexpr, BU: tl.constexpr,
):  # fmt: skip
    """The M-step of Bernoulli and categorical inputs from their flow by state, (R, units, S); in place."""
    unit = tl.program_id(0) * BU + tl.arange(0, BU)
    r = tl.program_id(1).to(tl.int64)
    live = unit < units
    flows += r * flow_stride
    step = effective_step(tl.load(alphas + tl.load(number) * R + r))
    extra = tl.load(pseudocount + r).to(tl.float32)
    flow = tl.zeros((BU,), dtype=tl.float32)
    STATES: tl.constexpr = 2 if BERNOULLI else P
    for s in tl.static_range(STATES):
        flow += tl.load(flows + unit.to(tl.int64) * S + s, mask=live, other=0.0)
    stays = flow < LEAST_FLOW
    inverse = 1.0 / tl.where(stays, 1.0, flow + extra)
    if BERNOULLI:
        ones = tl.load(flows + unit.to(tl.int64) * S + 1, mask=live, other=0.0)
        share = at_least((ones + extra * 0.5) * inverse, INPUT_FLOOR)
        best = tl.where(share > 1.0 - INPUT_FLOOR, 1.0 - INPUT_FLOOR, share)
        at = parameters + r * units + unit
        old = tl.load(at, mask=live, other=0.0)
        tl.store(at, tl.where(stays, old, between(old, best, step)), mask=live)
    else:
        total = tl.zeros((BU,), dtype=tl.float32)
        for s in tl.static_range(P):
            count = tl.load(flows + unit.to(tl.int64) * S + s, mask=live, other=0.0)
            total += tl.maximum((count + extra * (1.0 / P)) * inverse, INPUT_FLOOR)
        for s in tl.static_range(P):
            count = tl.load(flows + unit.to(tl.int64) * S + s, mask=live, other=0.0)
            best = tl.maximum((count + extra * (1.0 / P)) * inverse, INPUT_FLOOR) / total
            at = parameters + (r * units + unit) * P + s
            old = tl.load(at, mask=live, other=0.0)
            tl.store(at, tl.where(stays, old, between(old, best, step)), mask=live)
