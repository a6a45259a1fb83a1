"""A Triton kernel for the exact forms of the M-step: `learning/simplex.py` with the row of a node in registers."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine import limits
from circurve.learning.cuda.mstep_kernels import (
    LEAST_FLOW,
    MAX_STRENGTH,
    WEIGHT_FLOOR,
    at_least,
    between,
    effective_step,
)

__all__ = ["maximize_exactly"]

TINY = tl.constexpr(limits.FLOAT32.smallest_normal)
TINY_ROOT = tl.constexpr(limits.FLOAT32.smallest_normal ** (1 / 3))
MAX_MOMENT_ROOT = tl.constexpr(limits.FLOAT32.max_moment_root)
MAX_CARDANO = tl.constexpr(limits.FLOAT32.max_cardano)

NEWTON_STEPS = tl.constexpr(4)
"""From a start within a factor of 3.2, four steps reach the rounding of float64, and so that of float32."""

LEAST_DOUBLE = tl.constexpr(1e-300)
"""Float64 numbers below it have the cube root 1e-100, far below what float32 can tell from zero."""


LARGEST_DOUBLE = tl.constexpr(1e300)

ORDINARY = tl.constexpr(1e-15)
"""Strengths and multipliers between this and its inverse, with totals of 1e-20 to 1e30, do not need float64."""


@triton.jit
def _cube_root(x):
    """The cube root of a float32 number, up to rounding: one Newton iteration, after the hardware's logarithm and
    exponential.

    Subnormal numbers count as zero.
    """
    y = tl.exp2(tl.log2(tl.maximum(x, TINY)) * (1 / 3))
    return tl.where(x >= TINY, y * (2 / 3) + x / (3 * y * y), 0.0)


@triton.jit
def _double_cube_root(x):
    """The cube root of a float64 number; called once or a few times for each row."""
    return tl.where(x > 0, tl.exp(tl.log(tl.maximum(x, LEAST_DOUBLE)) / 3), 0.0)


@triton.jit
def _moment_roots(moments, strength, multiplier, total, fixed, ordinary):
    """w = (2 m S / T)^(1/3) (lambda / T)^(2/3), the last factor at a fixed lambda only; (rows, C).

    lambda includes what counts are divided by. Cut off so that a row sums to MAX_MOMENT_ROOT at most. Computed in
    float64 but for S^(1/3), unless the numbers are `ordinary`: then float32 holds them all, and is faster.
    """
    edge = _cube_root(moments)
    edges = tl.maximum(tl.sum(edge, axis=1), TINY_ROOT)
    if ordinary:
        per_edge = _cube_root((2 * strength).to(tl.float32))
        if fixed:
            root = _cube_root(multiplier.to(tl.float32))
            per_edge = per_edge * (root * root) / total
        else:
            per_edge = per_edge / _cube_root(total)
        per_edge = tl.minimum(per_edge * edges, MAX_MOMENT_ROOT) / edges
    else:
        wide = _double_cube_root(2 * strength)
        if fixed:
            root = _double_cube_root(multiplier)
            wide = wide * (root * (root / total))
        else:
            wide = wide / _double_cube_root(total.to(tl.float64))
        per_edge = (tl.minimum(wide * edges, MAX_MOMENT_ROOT) / edges).to(tl.float32)
    return edge * per_edge[:, None]


@triton.jit
def _root(n, part, m, log_multiplier, cubic):
    """theta of the quadratic (surrogate penalty) or of the cubic (exact penalty).

    part: what does not depend on lambda, sqrt(n) or w = (2 m S / T)^(1/3).
    """
    multiplier = tl.exp(log_multiplier)
    if cubic:
        moment_root = part * tl.exp(log_multiplier * (-1 / 3))
        count_root = n / multiplier
        relative = moment_root / tl.maximum(count_root, TINY)
        capped = tl.minimum(relative, MAX_CARDANO)
        half = capped * capped * capped * 0.5
        a = _cube_root(1 / 27 + half + tl.sqrt(half * (half + 2 / 27)))
        theta = tl.where(
            relative < MAX_CARDANO, count_root * (1 / 3 + a + 1 / (9 * a)), moment_root + count_root * (1 / 3)
        )
    else:
        wide = tl.sqrt(n + 4 * multiplier * m)
        theta = part * (part + wide) / (2 * multiplier)
    return theta


@triton.jit
def _log_lower_bound(part, m, cubic):
    """log lambda where the roots sum to at least one, lambda less than 3.2 times below the solution; (rows, 1).

    Of rows that sum to one, where lambda is at least 1.
    """
    roots = tl.log(tl.maximum(tl.sum(part, axis=1), TINY))[:, None]
    bound = 3 * roots if cubic else 2 * roots + tl.log(tl.maximum(m, TINY))
    return tl.maximum(bound, 0.0)


@triton.jit(do_not_specialize=["rows", "R"])
def maximize_exactly(
    weights, counts, moments, gates, units, alphas, mus, number, forms, multiplier, scale, pseudocount,
    weight_stride, gate_stride, rows, R, C, CW,
    C2: tl.constexpr, BR: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The M-step of runs with an exact form, for all sums with C children; the weights are moved in place.

    All terms are positive, so the only error is the rounding of float32.

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
        n = tl.load(counts + at, mask=inside, other=0.0)
        stays = tl.sum(n, axis=1) < LEAST_FLOW
        n = n + (tl.load(pseudocount + r).to(tl.float32) / children)[:, None]
        n = tl.where(there, tl.where(stays[:, None], 1.0, n), 0.0)
        total = tl.sum(n, axis=1)
        n = n * (1.0 / total)[:, None]
        place = tl.load(number) * R + r
        unit = tl.load(units + row, mask=row < rows, other=0)
        strength = tl.load(mus + place) * tl.load(gates + r * gate_stride + unit, mask=row < rows, other=0.0)
        m = tl.minimum(strength, MAX_STRENGTH).to(tl.float32)[:, None]
        cubic = form > 1
        part = tl.sqrt(n)
        if cubic:
            second = tl.load(moments + at, mask=inside, other=0.0)
            fixed = tl.minimum(tl.load(multiplier + r) * tl.load(scale + r), LARGEST_DOUBLE)
            ordinary = (tl.load(mus + place) <= 1 / ORDINARY) & (fixed <= 1 / ORDINARY) & (fixed >= ORDINARY)
            part = _moment_roots(second, strength, fixed, total, form == 2, ordinary)
        log_multiplier = tl.zeros((BR, 1), dtype=tl.float32)
        if form != 2:
            log_multiplier = _log_lower_bound(part, m, cubic)
            lower = tl.where(cubic, 2.0, 1.0)  # the degree, less one
            for _ in range(NEWTON_STEPS):
                theta = _root(n, part, m, log_multiplier, cubic)
                sums = tl.sum(theta, axis=1)[:, None]
                scaled = tl.exp(log_multiplier) * theta
                falls = scaled * theta / tl.maximum((lower + 1) * scaled - lower * n, TINY)
                log_multiplier += tl.log(sums) * sums / tl.sum(falls, axis=1)[:, None]
        theta = _root(n, part, m, log_multiplier, cubic)
        theta = theta / tl.sum(theta, axis=1)[:, None]
        theta = tl.where(there, at_least(theta, WEIGHT_FLOOR), 0.0)
        best = theta / tl.sum(theta, axis=1)[:, None]
        step = effective_step(tl.load(alphas + place))
        tl.store(weights + at, tl.where(stays[:, None], old, between(old, best, step)), mask=inside)
