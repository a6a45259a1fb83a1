"""Estimators of t^_n, the local curvature of a sum node over a data set, from the sums of one E-step.

With t_n(x) = sum_c rho_nc(x)^2, F_n(x) the flow and W the weight of all samples:

    mean_trace      mean of t_n
    mean_ratio      sum_c (mean of rho_nc)^2
    flow_weighted   sum F_n t_n / sum F_n
    geometric       exp(sum F_n log t_n / sum F_n)
    clipped         mean of sum_c (r_nc / max(theta_nc, floor))^2, with r_nc = theta_nc rho_nc the responsibility

An edge that EM no longer uses has a weight near 1e-12, and ratios of up to 1 / theta in samples that its node hardly
explains. How much such a dead edge adds, if its ratio is rho in one of N samples, where the node has flow F:

    mean_trace      rho^2 / N                    bounded only by 1 / theta^2
    mean_ratio      rho^2 / N^2                  the same
    flow_weighted   F rho^2 / sum F              F is about theta where only this edge explains the sample: rho / sum F
    geometric       factor exp(F log(1 + rho^2) / sum F)        1 to rounding where F is about theta
    clipped         (theta rho / floor)^2 / N    at most 1 / (floor^2 N)

Those weighted by flow take a few more numbers for each unit. `clipped` takes one more product of matrices, the sums of
rho_nc^2 of each edge: its ratio is rho min(1, theta / floor), so that the floor enters as a factor of each edge when
all samples are added up. A cap min(rho, 1 / floor) would bound ratios just as well (r <= 1, so that r / max(theta,
floor) <= 1 / floor), but it is no product of matrices: it would need an array of samples x edges.

A median over samples would need a histogram for each unit: as many comparisons for each unit and sample as there are
bins, which is about the arithmetic of a whole E-step. The geometric mean costs one logarithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine import CurvatureSums, Request
from circurve.names import ESTIMATORS, RATIO_FLOOR, Estimator

__all__ = ["BY_FLOW", "ESTIMATORS", "RATIO_FLOOR", "Estimator", "NodeSums", "by_flow", "clipped", "request_for"]

BY_FLOW = ("flow_weighted", "geometric")
"""The estimators that weigh samples by the node's flow."""


def request_for(estimators: Sequence[str], second_moment: bool, curvature: bool) -> Request:
    """What an E-step must collect for these estimators."""
    return Request(
        curvature=curvature or bool(estimators),
        mean_ratio="mean_ratio" in estimators,
        second_moment=second_moment,
        flow_weighted=any(estimator in BY_FLOW for estimator in estimators),
        squared_ratio="clipped" in estimators,
    )


@dataclass(frozen=True)
class NodeSums:
    """Sums over samples that gates are computed from."""

    units: Tensor | None
    """F^2, t, T, and then F t, F log t, F of all units, (R, 3 or 6, M)."""

    weights: Sequence[Tensor]
    """theta of the E-step, (R, G, K, C) for each sum layer."""

    ratios: Sequence[Tensor] | None = None
    """Sums of rho, (R, G, K, C) for each sum layer."""

    squares: Sequence[Tensor] | None = None
    """Sums of rho^2, (R, G, K, C) for each sum layer."""

    @classmethod
    def of(cls, measured: CurvatureSums, weights: Sequence[Tensor]) -> NodeSums:
        """The sums of an E-step, layer after layer."""
        kinds = [measured.flow_squared, measured.local, measured.total]
        kinds += [measured.flow_local, measured.flow_log_local, measured.flow]
        parts = [torch.cat([layer.flatten(1) for layer in kind], dim=1) for kind in kinds if kind]
        units = torch.stack(parts, dim=1) if parts else None
        return cls(units, weights, measured.ratio, measured.squared_ratio)


def by_flow(estimator: str, weighted: Tensor, flow: Tensor, least: float = 0.0) -> Tensor:  # (..., M) all
    """t^ from sums (or means) of F t or F log t, and of F; 0 for units that received at most the flow `least`."""
    used = flow > least
    mean = weighted / torch.where(used, flow, 1.0)
    if estimator == "geometric":
        mean = mean.exp().clamp_max(torch.finfo(mean.dtype).max)  # an edge of weight zero can have any ratio
    return torch.where(used, mean, 0.0)


def clipped(squares: Tensor, weights: Tensor, floor: float) -> Tensor:  # (..., C), (..., C) -> (...), float64
    """The sum over edges of rho^2 min(1, theta / floor)^2: of samples' sums of rho^2."""
    factor = (weights.double() / floor).clamp_max(1.0).square()
    return (squares.double() * factor).sum(-1)
