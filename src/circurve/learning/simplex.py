"""The four forms of the regularised M-step for sum weights, for all nodes of all runs at once, in any precision.

For one sum node with counts N_c >= 0, second moments S_c >= 0 and strength m = mu * omega >= 0:

    surrogate penalty   maximise  sum_c N_c log theta_c - m sum_c N_c / theta_c
    exact penalty       maximise  sum_c N_c log theta_c - m sum_c S_c / theta_c^2

both subject to sum_c theta_c = 1. With the multiplier lambda of that constraint the stationary points are

    lambda theta^2 - N theta - m N   = 0      (a quadratic for each child)
    lambda theta^3 - N theta^2 - 2 m S = 0    (a cubic for each child)

For lambda > 0 each has exactly one positive root: its coefficients change sign once (Descartes). "normalize" takes the
root at a fixed lambda and divides by the sum; "exact" finds the lambda of each node at which the roots sum to one.

Rows are normalised first: with T = sum_c N_c and n = N / T, dividing an equation by T (and, at a fixed lambda, writing
theta = phi T / lambda, whose factor the division by the sum takes out again) leaves

    surrogate, normalize   phi^2 - n phi - m' n = 0,            m' = m lambda / T
    surrogate, exact       lambda theta^2 - n theta - m n = 0,  another lambda: the solution does not depend on T
    exact, normalize       phi^3 - n phi^2 - w^3 = 0,           w^3 = 2 m S lambda^2 / T^3
    exact, exact           lambda theta^3 - n theta^2 - w^3 = 0,  w^3 = 2 m S / T

The numbers of a row, m' and the factor of S^(1/3) in w, are computed in float64 and cut off at the limits of
engine/numerics.py, so that every term is finite in the precision of the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.numerics import LIMITS

__all__ = ["Roots", "cubic", "quadratic", "solve_multiplier", "target_weights"]

NEWTON_STEPS = 4
"""The start is within a factor of 3.2 of the solution and convergence is quadratic: see `solve_multiplier`."""


@dataclass(frozen=True)
class Roots:
    """The positive roots of all children of all nodes, as functions of lambda (..., 1)."""

    at: Callable[[Tensor], Tensor]  # -> theta, (..., C)
    start: Tensor  # (..., 1), a lambda at which they sum to at least one, less than 3.2 times below the solution
    counts: Tensor
    degree: int

    def slope(self, multiplier: Tensor, theta: Tensor) -> Tensor:
        """-d theta / d log lambda: of lambda theta^d = N theta^(d-1) + a constant, so lambda theta >= N."""
        scaled = multiplier * theta
        steepness = (self.degree * scaled).sub_(self.counts, alpha=self.degree - 1)
        return scaled.mul_(theta).div_(steepness.clamp_min_(LIMITS[theta.dtype].smallest_normal))


def quadratic(counts: Tensor, strength: Tensor) -> Roots:
    """theta = [N + sqrt(N^2 + 4 lambda m N)] / (2 lambda); counts: (..., C), strength m: (..., 1).

    Sums of positive terms only: no cancellation. The root of a product is taken as a product of roots: no underflow.
    Each theta is at least N / lambda and at least sqrt(m N / lambda), and at most their sum; the start follows from
    this.
    """
    part = counts.sqrt()

    def at(multiplier: Tensor) -> Tensor:
        wide = (counts + 4 * multiplier * strength).sqrt_()
        return wide.add_(part).mul_(part).div_(2 * multiplier)

    start = torch.maximum(counts.sum(-1, keepdim=True), strength * part.sum(-1, keepdim=True).square())
    return Roots(at, start, counts, degree=2)


def cubic(counts: Tensor, part: Tensor) -> Roots:
    """The positive root of lambda theta^3 - N theta^2 - w^3 = 0; counts N and part w = (2 m S)^(1/3): (..., C).

    With theta = (N / lambda) y the equation is y^2 (y - 1) = kappa, kappa = w^3 lambda^2 / N^3 >= 0. Its left side
    grows strictly from 0 at y = 1 to infinity, so there is exactly one root y >= 1; Cardano's formula gives it as
    y = 1/3 + a + 1/(9 a), a^3 = 1/27 + kappa/2 + sqrt(kappa/2 (kappa/2 + 2/27)), again without cancellation.
    If the count vanishes next to the moment, theta = w / lambda^(1/3) + N / (3 lambda) to rounding.
    Each theta is at least N / lambda and at least w / lambda^(1/3), and at most their sum; the start follows from this.
    """
    limits = LIMITS[counts.dtype]
    per_count = part / counts.clamp_min(limits.smallest_normal)

    def at(multiplier: Tensor) -> Tensor:
        relative = per_count * multiplier ** (2 / 3)  # kappa^(1/3)
        near = relative < limits.max_cardano
        half = relative.clamp_max_(limits.max_cardano).pow_(3).div_(2)
        a = (half + 2 / 27).mul_(half).sqrt_().add_(half).add_(1 / 27).pow_(1 / 3)
        y = (9 * a).reciprocal_().add_(a).add_(1 / 3)
        count_root = counts / multiplier
        return torch.where(near, y.mul_(count_root), part * multiplier ** (-1 / 3) + count_root / 3)

    start = torch.maximum(counts.sum(-1, keepdim=True), part.sum(-1, keepdim=True) ** 3)
    return Roots(at, start, counts, degree=3)


def solve_multiplier(roots: Roots) -> Tensor:  # (..., 1)
    """The lambda of each node at which its roots sum to one.

    G(u) = log sum_c theta_c(e^u) is decreasing with slope between -1 and -1/3, and convex (each log theta_c is, and so
    is the logarithm of a sum of their exponentials). Newton's iteration from the left therefore never overshoots. From
    an error of at most log 3.2 it is at rounding after four steps; the number of steps is fixed, so that nothing waits
    for a GPU.
    """
    log_multiplier = roots.start.log()
    for _ in range(NEWTON_STEPS):
        multiplier = log_multiplier.exp()
        theta = roots.at(multiplier)
        total = theta.sum(-1, keepdim=True)
        falls = roots.slope(multiplier, theta).sum(-1, keepdim=True)
        log_multiplier = log_multiplier + total.log() * total / falls
    return log_multiplier.exp()


def target_weights(
    counts: Tensor, strength: Tensor, moments: Tensor | None, multiplier: Tensor | None
) -> Tensor:  # (..., C)
    """theta~ of each node: rows that sum to one.

    counts: (..., C), each row with a sum of at least `least_flow`; strength m: (..., 1); moments S: like counts for the
    exact penalty, None for the surrogate; multiplier: a fixed lambda (..., 1) for "normalize", None for the exact
    simplex. Counts divided by a number s at a fixed lambda are the same as these counts at lambda s.
    """
    total = counts.sum(-1, keepdim=True)
    shares = counts / total
    if moments is None:  # m' = m lambda / T at a fixed lambda, m' = m for the exact simplex; at most `max_strength`
        row = strength.double() if multiplier is None else strength.double() * multiplier.double() / total.double()
        roots = quadratic(shares, row.clamp_max(LIMITS[total.dtype].max_strength).to(total.dtype))
    else:
        roots = cubic(shares, _moment_roots(moments, strength, multiplier, total))
    theta = roots.at(solve_multiplier(roots) if multiplier is None else torch.ones_like(total))
    return theta.div_(theta.sum(-1, keepdim=True))


def _moment_roots(moments: Tensor, strength: Tensor, multiplier: Tensor | None, total: Tensor) -> Tensor:  # (..., C)
    """w = (2 m S / T)^(1/3) (lambda / T)^(2/3), the last factor at a fixed lambda only; sums to <= `max_moment_root`.

    The cube root of S is taken first: it cannot underflow. Of the factors only the first can be zero or infinite.
    """
    limits = LIMITS[total.dtype]
    edge = torch.where(moments < limits.smallest_normal, 0.0, moments).pow_(1 / 3)
    edges = edge.sum(-1, keepdim=True).double().clamp_min(limits.smallest_normal ** (1 / 3))  # less only if all are 0
    per_edge = (2 * strength.double()) ** (1 / 3)
    if multiplier is None:
        per_edge = per_edge * total.double() ** (-1 / 3)
    else:
        per_edge = per_edge * multiplier.double() ** (2 / 3) / total.double()
    per_edge = (per_edge * edges).clamp_max(limits.max_moment_root) / edges
    return edge.mul_(per_edge.to(total.dtype))
