"""The four forms of the regularised M-step for sum weights, for all nodes of all runs at once, in float64.

For one sum node with counts N_c >= 0, second moments S_c >= 0 and strength m = mu * omega >= 0:

    surrogate penalty   maximise  sum_c N_c log theta_c - m sum_c N_c / theta_c
    exact penalty       maximise  sum_c N_c log theta_c - m sum_c S_c / theta_c^2

both subject to sum_c theta_c = 1. With the multiplier lambda of that constraint the stationary points are

    lambda theta^2 - N theta - m N   = 0      (a quadratic for each child)
    lambda theta^3 - N theta^2 - 2 m S = 0    (a cubic for each child)

For lambda > 0 each has exactly one positive root: its coefficients change sign once (Descartes). "normalize" takes the
root at a fixed lambda and divides by the sum; "exact" finds the lambda of each node at which the roots sum to one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["cubic_root", "quadratic_root", "solve_multiplier", "target_weights"]

NEWTON_STEPS = 6
"""The start is within a factor of 3.2 of the solution and convergence is quadratic: see `solve_multiplier`."""

FAR = 1e40
"""From here on kappa^(1/3) is so large that the cubic's root is its leading terms to rounding."""

Root = Callable[[Tensor], tuple[Tensor, Tensor]]
"""lambda (..., 1) -> (theta, -d theta / d log lambda), both (..., C)."""


def quadratic_root(counts: Tensor, strength: Tensor, multiplier: Tensor) -> tuple[Tensor, Tensor]:
    """theta = [N + sqrt(N^2 + 4 lambda m N)] / (2 lambda), and -d theta / d log lambda = theta - m N / sqrt(...).

    counts: (..., C); strength m, multiplier lambda: broadcastable. Sums of positive terms only: no cancellation.
    """
    root = (counts.square() + 4 * multiplier * strength * counts).sqrt()
    theta = (counts + root) / (2 * multiplier)
    falls = theta - torch.where(root > 0, strength * counts / root, 0.0)
    return theta, falls


def cubic_root(counts: Tensor, moments: Tensor, strength: Tensor, multiplier: Tensor) -> tuple[Tensor, Tensor]:
    """The positive root of lambda theta^3 - N theta^2 - 2 m S = 0, and -d theta / d log lambda.

    With theta = (N / lambda) y the equation is y^2 (y - 1) = kappa, kappa = 2 m S lambda^2 / N^3 >= 0. Its left side
    grows strictly from 0 at y = 1 to infinity, so there is exactly one root y >= 1; Cardano's formula gives it as
    y = 1/3 + a + 1/(9 a), a^3 = 1/27 + kappa/2 + sqrt(kappa/2 (kappa/2 + 2/27)), again without cancellation.
    Where the count vanishes beside the moment, theta = (2 m S / lambda)^(1/3) + N / (3 lambda) to rounding.
    """
    moment_root = (2 * strength * moments / multiplier) ** (1 / 3)
    count_root = counts / multiplier
    relative = moment_root / count_root.clamp_min(1e-300)  # kappa^(1/3)
    half = (relative.clamp_max(FAR) ** 3) / 2  # its square is finite
    a = (1 / 27 + half + (half * (half + 2 / 27)).sqrt()) ** (1 / 3)
    y = 1 / 3 + a + 1 / (9 * a)
    theta = torch.where(relative < FAR, count_root * y, moment_root + count_root / 3)
    share = torch.where(theta > 0, count_root / theta.clamp_min(1e-300), 0.0)  # 1/y
    return theta, theta / (3 - 2 * share)


def solve_multiplier(root: Root, start: Tensor) -> Tensor:
    """The lambda of each node at which its roots sum to one, from a start (..., 1) at or below it.

    G(u) = log sum_c theta_c(e^u) is decreasing with slope between -1 and -1/3, and convex (each log theta_c is, and so
    is the logarithm of a sum of their exponentials). Newton's iteration from the left therefore never overshoots. From
    an error of at most log 3.2 it reaches rounding in at most six steps; the number of steps is fixed, so that nothing
    waits for a GPU.
    """
    log_multiplier = start.log()
    for _ in range(NEWTON_STEPS):
        theta, falls = root(log_multiplier.exp())
        total = theta.sum(-1, keepdim=True)
        log_multiplier = log_multiplier + total.log() * total / falls.sum(-1, keepdim=True)
    return log_multiplier.exp()


def target_weights(
    counts: Tensor, strength: Tensor, moments: Tensor | None, multiplier: Tensor | None
) -> Tensor:  # (..., C)
    """theta~ of each node: rows that sum to one.

    counts: (..., C), with a positive entry in each row; strength m: (..., 1); moments S: like counts for the exact
    penalty, None for the surrogate; multiplier: a fixed lambda (..., 1) for "normalize", None for the exact simplex.
    """

    def root(at: Tensor) -> tuple[Tensor, Tensor]:
        if moments is None:
            return quadratic_root(counts, strength, at)
        return cubic_root(counts, moments, strength, at)

    if multiplier is None:
        multiplier = solve_multiplier(root, _lower_bound(counts, strength, moments))
    theta, _ = root(multiplier)
    return theta / theta.sum(-1, keepdim=True)


def _lower_bound(counts: Tensor, strength: Tensor, moments: Tensor | None) -> Tensor:
    """max(sum N, m (sum sqrt N)^2), or max(sum N, 2 m (sum S^(1/3))^3): the roots sum to at least one there.

    Each root is at least N / lambda and at least sqrt(m N / lambda), or (2 m S / lambda)^(1/3), and at most their sum:
    the solution is less than 3.2 times larger.
    """
    total = counts.sum(-1, keepdim=True)
    if moments is None:
        return torch.maximum(total, strength * counts.sqrt().sum(-1, keepdim=True).square())
    return torch.maximum(total, 2 * strength * (moments ** (1 / 3)).sum(-1, keepdim=True) ** 3)
