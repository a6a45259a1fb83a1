"""Bernoulli inputs: a column of zeros and ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circurve.inputs.common import (
    FLOOR,
    blend,
    from_logit,
    support_log_mass,
    to_logit,
    use_and_total,
    wrong_probability,
)
from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["Bernoulli"]


@dataclass(frozen=True)
class Bernoulli(Family):
    """A column of zeros and ones: p(x) = p^x (1-p)^(1-x), one parameter, the probability of a one.

    Examples
    --------
    >>> import circurve as cc
    >>> coin = cc.Input(0, cc.Bernoulli())
    >>> model = cc.Model.from_parameters(cc.Circuit(coin), inputs={coin: [[0.25]]})
    >>> model.marginal({0: 1})
    0.25000000000000006
    """

    name: ClassVar[str] = "bernoulli"
    discrete: ClassVar[bool] = True

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("probability",)

    def check_values(self, column: np.ndarray) -> str | None:
        wrong = column[(column != 0) & (column != 1)]
        return f"{wrong[0]:.10g} is not 0 or 1" if wrong.size else None

    def check_parameters(self, parameters: Tensor) -> str | None:
        return wrong_probability(parameters)

    def to_free(self, parameters: Tensor) -> Tensor:
        """The logit of p."""
        return to_logit(parameters)

    def from_free(self, free: Tensor) -> Tensor:
        return from_logit(free)

    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:
        """logit p = 4 (u - u') with u, u' uniform, whatever the column holds.

        Units that start around the mean of a sparse column are nearly alike, and EM finds a worse optimum.
        """
        draw = torch.rand(2, units, 1, generator=generator, dtype=torch.float64)
        return torch.sigmoid(4 * (draw[0] - draw[1]))

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log(1-p) + x (log p - log(1-p)): one pass over the output."""
        probability = parameters[..., 0].unsqueeze(-1)  # (R, G, K, 1)
        log_one = probability.log().clamp_min_(LOG_ZERO)
        log_zero = (-probability).log1p_().clamp_min_(LOG_ZERO)
        return torch.addcmul(log_zero, x.unsqueeze(-2), log_one - log_zero)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        return use_and_total(x, observed)

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """p~ = (ones + pseudocount/2) / (uses + pseudocount), within [FLOOR, 1 - FLOOR]."""
        uses, ones = statistics[..., :1], statistics[..., 1:]  # (R, G, K, 1)
        best = (ones + pseudocount / 2) / (uses + pseudocount)
        return blend(parameters, best.clamp(FLOOR, 1 - FLOOR), uses, step)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return torch.bernoulli(parameters[..., 0], generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        """1 where it is more probable than 0."""
        return (parameters[..., 0] > 0.5).to(parameters.dtype)

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    def variance(self, parameters: Tensor) -> Tensor:
        """p (1-p)."""
        return parameters[..., 0] * (1 - parameters[..., 0])

    def log_mass(self, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return support_log_mass(self, parameters, low, high)

    def support(self) -> range:
        return range(2)
