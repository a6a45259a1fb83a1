"""A Triton kernel for the exact forms of the M-step: `learning/simplex.py` with the row of a node in registers."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine.cuda.mstep_kernels import between

__all__ = ["maximize_exactly"]

NEWTON_STEPS = tl.constexpr(8)
FAR = tl.constexpr(1e40)
TINY = tl.constexpr(1e-300)


@triton.jit
def _cube_root(x):
    return tl.where(x > 0, tl.exp(tl.log(tl.maximum(x, TINY)) / 3), 0.0)


@triton.jit
def _root(n, s, m, multiplier, cubic):
    """theta and -d theta / d log lambda: of the quadratic (surrogate penalty) or of the cubic (exact penalty)."""
    if cubic:
        moment_root = _cube_root(2 * m * s / multiplier)
        count_root = n / multiplier
        relative = moment_root / tl.maximum(count_root, TINY)
        capped = tl.minimum(relative, FAR)
        half = capped * capped * capped / 2
        a = _cube_root(1 / 27 + half + tl.sqrt(half * (half + 2 / 27)))
        theta = tl.where(relative < FAR, count_root * (1 / 3 + a + 1 / (9 * a)), moment_root + count_root / 3)
        falls = theta / (3 - 2 * tl.where(theta > 0, count_root / tl.maximum(theta, TINY), 0.0))
    else:
        root = tl.sqrt(n * n + 4 * multiplier * m * n)
        theta = (n + root) / (2 * multiplier)
        falls = theta - tl.where(root > 0, m * n / tl.maximum(root, TINY), 0.0)
    return theta, falls


@triton.jit
def _lower_bound(n, s, m, cubic):
    """A multiplier at which the roots sum to at least one, less than 3.2 times below the solution; (rows, 1)."""
    total = tl.sum(n, axis=1)[:, None]
    if cubic:
        roots = tl.sum(_cube_root(s), axis=1)[:, None]
        bound = 2 * m * roots * roots * roots
    else:
        roots = tl.sum(tl.sqrt(n), axis=1)[:, None]
        bound = m * roots * roots
    return tl.maximum(total, bound)


@triton.jit(do_not_specialize=["rows", "R"])
def maximize_exactly(
    weights, counts, moments, gates, units, alphas, mus, number, forms, multiplier, scale, pseudocount,
    weight_stride, gate_stride, rows, R, C, CW,
    FLOOR: tl.constexpr, C2: tl.constexpr, BR: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The M-step of runs with an exact form, for all sums with C children, in float64; the weights are moved in place.

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
        children = tl.zeros((BR,), dtype=tl.float64) + C
        if MASKED:
            beyond = (row >= rows)[:, None]  # such rows are filled in below, with a mask as without one
            there = there & ((old > 0) | beyond)
            children = tl.maximum(tl.sum(there.to(tl.float64), axis=1), 1.0)
        per = 1.0 / tl.load(scale + r)
        found = tl.load(counts + at, mask=inside, other=0.0).to(tl.float64)
        used = tl.sum(found, axis=1) > 0
        n = (found + (tl.load(pseudocount + r).to(tl.float64) / children)[:, None]) * per
        n = tl.where(there, tl.where(used[:, None], n, 1.0), 0.0)
        cubic = form > 1
        s = tl.zeros((BR, C2), dtype=tl.float64)
        if cubic:
            s = tl.load(moments + at, mask=inside, other=0.0).to(tl.float64) * per
        place = tl.load(number) * R + r
        unit = tl.load(units + row, mask=row < rows, other=0)
        m = (tl.load(mus + place) * tl.load(gates + r * gate_stride + unit, mask=row < rows, other=0.0))[:, None]
        at_one = tl.zeros((BR, 1), dtype=tl.float64) + tl.load(multiplier + r)
        if form != 2:
            log_multiplier = tl.log(_lower_bound(n, s, m, cubic))
            for _ in range(NEWTON_STEPS):
                theta, falls = _root(n, s, m, tl.exp(log_multiplier), cubic)
                total = tl.sum(theta, axis=1)[:, None]
                log_multiplier += tl.log(total) * total / tl.sum(falls, axis=1)[:, None]
            at_one = tl.exp(log_multiplier)
        theta, falls = _root(n, s, m, at_one, cubic)
        theta = theta / tl.sum(theta, axis=1)[:, None]
        theta = tl.where(there, tl.maximum(theta, FLOOR), 0.0)
        best = (theta / tl.sum(theta, axis=1)[:, None]).to(tl.float32)
        step = tl.load(alphas + place).to(tl.float32)
        tl.store(weights + at, tl.where(used[:, None], between(old, best, step), old), mask=inside)
