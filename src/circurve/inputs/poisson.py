"""Poisson inputs: a column of counts without an upper end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circurve.inputs.common import blend, cancelling_log_prob, draw_rows, use_and_total, wrong_whole_value
from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["Poisson"]

RATE_FLOOR = 1e-6
"""The M-step aims at rates >= RATE_FLOOR: a unit that saw only zeros still allows a one."""

LARGEST_LOG_RATE = 60.0
"""Gradient descent keeps the rate between exp(-60) and exp(60), well within float32."""


@dataclass(frozen=True)
class Poisson(Family):
    """p(x) = rate^x exp(-rate) / x! for x = 0, 1, 2, ...; one parameter, the rate."""

    name: ClassVar[str] = "poisson"
    discrete: ClassVar[bool] = True

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("rate",)

    def check_values(self, column: np.ndarray) -> str | None:
        """Whole numbers that float32 holds exactly."""
        return wrong_whole_value(column)

    def check_parameters(self, parameters: Tensor) -> str | None:
        positive = (parameters > 0) & parameters.isfinite()
        return None if bool(positive.all()) else "a rate is not positive and finite"

    def to_free(self, parameters: Tensor) -> Tensor:
        """The logarithm of the rate."""
        return parameters.log()

    def from_free(self, free: Tensor) -> Tensor:
        return free.clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE).exp()

    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:
        """Half the column's mean and half the value of a random row, times a uniform draw from [0.5, 1.5].

        An empty column counts as having mean 1.
        """
        values = column if column.size else np.ones(1)
        centre = 0.5 * float(values.mean(dtype=np.float64)) + 0.5 * draw_rows(values, units, generator)
        draw = torch.rand(units, generator=generator, dtype=torch.float64)
        return (centre * (0.5 + draw)).clamp_min_(RATE_FLOOR).unsqueeze(-1)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """-log x! + x log(rate) - rate."""
        rate, count = parameters[..., 0].double(), x.double()
        log_rate = rate.log().clamp_min_(LOG_ZERO)
        return cancelling_log_prob(count, -torch.lgamma(count + 1), log_rate, -rate).to(parameters.dtype)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        return use_and_total(x, observed)

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """rate~ = (total + pseudocount rate) / (uses + pseudocount), at least RATE_FLOOR.

        The pseudocount acts as that many observations of the unit's present distribution.
        """
        uses, total = statistics[..., :1], statistics[..., 1:]  # (R, G, K, 1)
        weight = uses + pseudocount
        best = total / weight + pseudocount / weight * parameters  # a share of the rate: no product can overflow
        return blend(parameters, best.clamp_min(RATE_FLOOR), uses, step)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return torch.poisson(parameters[..., 0], generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        """The rate rounded down."""
        return parameters[..., 0].floor()

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]
