"""A Triton kernel for the exact forms of the M-step: `learning/simplex.py` with the row of a node in registers."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine.cuda.mstep_kernels import STRONGEST, between

__all__ = ["maximize_exactly"]

NEWTON_STEPS = tl.constexpr(4)
"""From a start within a factor of 3.2 the fourth step is at the rounding of float64, let alone float32."""

FAR = tl.constexpr(1e6)
"""From here on kappa^(1/3) is so large that the cubic's root is its leading terms to rounding."""

TINY = tl.constexpr(1e-37)


@triton.jit
def _cube_root(x):
    """Good to rounding: a step of Newton's iteration after the hardware's logarithm and exponential."""
    y = tl.exp2(tl.log2(tl.maximum(x, TINY)) * (1 / 3))
    return tl.where(x > TINY, y * (2 / 3) + x / (3 * y * y), 0.0)


@triton.jit
def _root(n, part, m, log_multiplier, cubic):
    """theta of the quadratic (surrogate penalty) or of the cubic (exact penalty).

    part: what does not depend on lambda, sqrt(N) or (2 m S)^(1/3).
    """
    multiplier = tl.exp(log_multiplier)
    if cubic:
        moment_root = part * tl.exp(log_multiplier * (-1 / 3))
        count_root = n / multiplier
        relative = moment_root / tl.maximum(count_root, TINY)
        capped = tl.minimum(relative, FAR)
        half = capped * capped * capped / 2
        a = _cube_root(1 / 27 + half + tl.sqrt(half * (half + 2 / 27)))
        theta = tl.where(relative < FAR, count_root * (1 / 3 + a + 1 / (9 * a)), moment_root + count_root / 3)
    else:
        wide = tl.sqrt(n + 4 * multiplier * m)
        theta = part * (part + wide) / (2 * multiplier)
    return theta


@triton.jit
def _log_lower_bound(n, part, m, cubic):
    """log lambda where the roots sum to at least one, lambda less than 3.2 times below the solution; (rows, 1)."""
    total = tl.log(tl.maximum(tl.sum(n, axis=1), TINY))[:, None]
    roots = tl.log(tl.maximum(tl.sum(part, axis=1), TINY))[:, None]
    bound = 3 * roots if cubic else 2 * roots + tl.log(tl.maximum(m, TINY))
    return tl.maximum(total, bound)


@triton.jit(do_not_specialize=["rows", "R"])
def maximize_exactly(
    weights, counts, moments, gates, units, alphas, mus, number, forms, multiplier, scale, pseudocount,
    weight_stride, gate_stride, rows, R, C, CW,
    FLOOR: tl.constexpr, C2: tl.constexpr, BR: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The M-step of runs with an exact form, for all sums with C children; the weights are moved in place.

    All terms are positive, so float32 loses nothing but its rounding.

    forms[r]: 1 solves for the multiplier of each node, 2 has the true trace as penalty, 3 both; runs of form 0 are left
    to the plain kernel. MASKED: some edges do not exist, those of weight zero. Program (block of sums, run).
    """
    r = tl.program_id(1).to(tl.int64)
    form = tl.load(forms + r)
    if form > 0:
        row = tl.program_id(0) * BR + tl.arange(0, BR)
        c = tl.arange(0, C2)
        at = r * weight_stride + row.to(tl.int64)[:, None] * CW + c[None, :]
        inside = (row < rows)[:, None] & (c < C)[None, :]
        old = tl.load(weights + at, mask=inside, other=0.0)
        there = tl.broadcast_to((c < C)[None, :], (BR, C2))
        children = tl.zeros((BR,), dtype=tl.float32) + C
        if MASKED:
            beyond = (row >= rows)[:, None]  # such rows are filled in below, with a mask as without one
            there = there & ((old > 0) | beyond)
            children = tl.maximum(tl.sum(there.to(tl.float32), axis=1), 1.0)
        per = (1.0 / tl.load(scale + r)).to(tl.float32)
        found = tl.load(counts + at, mask=inside, other=0.0)
        used = tl.sum(found, axis=1) > 0
        n = (found + (tl.load(pseudocount + r).to(tl.float32) / children)[:, None]) * per
        n = tl.where(there, tl.where(used[:, None], n, 1.0), 0.0)
        place = tl.load(number) * R + r
        unit = tl.load(units + row, mask=row < rows, other=0)
        strength = tl.load(mus + place) * tl.load(gates + r * gate_stride + unit, mask=row < rows, other=0.0)
        m = tl.minimum(strength, STRONGEST).to(tl.float32)[:, None]
        cubic = form > 1
        part = tl.sqrt(n)
        if cubic:
            part = _cube_root(2 * m) * _cube_root(tl.load(moments + at, mask=inside, other=0.0) * per)
        log_multiplier = tl.zeros((BR, 1), dtype=tl.float32) + tl.log(tl.load(multiplier + r).to(tl.float32))
        if form != 2:
            log_multiplier = _log_lower_bound(n, part, m, cubic)
            lower = tl.where(cubic, 2.0, 1.0)  # the degree, less one
            for _ in range(NEWTON_STEPS):
                theta = _root(n, part, m, log_multiplier, cubic)
                total = tl.sum(theta, axis=1)[:, None]
                scaled = tl.exp(log_multiplier) * theta
                falls = scaled * theta / tl.maximum((lower + 1) * scaled - lower * n, TINY)
                log_multiplier += tl.log(total) * total / tl.sum(falls, axis=1)[:, None]
        theta = _root(n, part, m, log_multiplier, cubic)
        theta = theta / tl.sum(theta, axis=1)[:, None]
        theta = tl.where(there, tl.maximum(theta, FLOOR), 0.0)
        best = theta / tl.sum(theta, axis=1)[:, None]
        step = tl.load(alphas + place).to(tl.float32)
        tl.store(weights + at, tl.where(used[:, None], between(old, best, step), old), mask=inside)
