"""The root of a mixture: a sum over the outputs of all members, in float64.

With E_c the probability of member output c, divided by the largest of all, and F the flow of the root,

    S = theta E     A = F / S     F_c = E_c sum_k theta_kc A_k

and the curvature sums follow with q = sum_c E_c^2: t = q / S^2, T = A^2 q. All are small: C outputs, not units.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import LOG_ZERO
from circurve.engine.reference.downward import RootFlow, root_flow
from circurve.engine.statistics import CurvatureSums, Request

__all__ = ["MixtureRoot", "mixed"]


def mixed(weights: Tensor, log_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log p (R, K, N), E (R, C, N) and S (R, K, N) of a sum, from its weights (R, K, C) and log E' (R, C, N)."""
    largest = log_values.amax(1, keepdim=True).clamp_min(LOG_ZERO)
    elements = (log_values - largest).exp()
    sums = torch.bmm(weights, elements)
    return sums.log() + largest, elements, sums


class MixtureRoot:
    """The sums over samples that belong to the root. weights: (R, K, C), of any floating type."""

    def __init__(self, weights: Tensor, request: Request) -> None:
        self.dtype, self.request, self.weights = weights.dtype, request, weights.double()
        runs, units, _ = weights.shape
        self.log_likelihood, self.weight = (torch.zeros(runs, dtype=torch.float64) for _ in range(2))
        self._edges = torch.zeros(3, *weights.shape, dtype=torch.float64)  # N / theta, rho, F_nc^2 / theta^2
        self._units = torch.zeros(3, runs, units, dtype=torch.float64)  # F^2, t, T

    def add(self, batch: Batch, log_values: Tensor) -> tuple[RootFlow, Tensor]:
        """Add a chunk with these log-probabilities of the members (R, C, N): its flow, and that of the members."""
        outputs, elements, sums = mixed(self.weights, log_values)
        root = root_flow(replace(batch, weights=None if batch.weights is None else batch.weights.double()), outputs)
        weight, inverse = root.weight, root.inverse[:, None]
        self.weight += weight.sum(-1)
        self.log_likelihood += (root.log_value * weight).sum(-1)
        ratio = root.flow / sums
        by_sample = elements.transpose(1, 2)
        self._edges[0] += torch.bmm(ratio, by_sample)
        if self.request.any:
            q, local = elements.square().sum(1, keepdim=True), weight[:, None] / sums.square()
            squares = ratio.square() * inverse
            self._edges[1] += torch.bmm(weight[:, None] / sums, by_sample)
            self._edges[2] += torch.bmm(squares, by_sample.square())
            kinds = (root.flow.square() * inverse, local * q, squares * q)
            self._units += torch.stack([kind.sum(-1) for kind in kinds])
        return root, elements * torch.bmm(self.weights.transpose(1, 2), ratio)

    def counts(self) -> Tensor:  # (R, 1, K, C)
        """N_nc = theta_nc sum_n A E."""
        return (self._edges[0] * self.weights).to(self.dtype)[:, None]

    def curvature(self) -> CurvatureSums:
        """The curvature sums that were asked for, as those of a layer with one group."""
        asked, units = self.request, [(unit[:, None],) for unit in self._units]
        square, local, total = units if asked.curvature else (None, None, None)
        ratio, second = (self._edges[1], self._edges[2] * self.weights.square())
        return CurvatureSums(
            square,
            local,
            total,
            (ratio.to(self.dtype)[:, None],) if asked.mean_ratio else None,
            (second.to(self.dtype)[:, None],) if asked.second_moment else None,
        )
