"""Indicator inputs: each unit represents one value of the column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circurve.errors import OptionError
from circurve.inputs.common import check_whole, tensor_of, wrong_whole_value
from circurve.inputs.family import LOG_ZERO, Family
from circurve.words import counted

__all__ = ["Indicator"]


@dataclass(frozen=True)
class Indicator(Family):
    """Units that represent one value each: p_k(x) = 1 if x = values[k], else 0; no parameters.

    Parameters
    ----------
    values : tuple of int
        One whole number for each unit, so an input has exactly K = len(values) units; two units may have the same
        value. Parameter tensors have a last axis of length 0, and **the axis before it must be K**, in `sample`,
        `mode` and `mean` too: (..., K, 0) -> (..., K).

    Examples
    --------
    >>> import circurve as cc
    >>> state = cc.Input(0, cc.Indicator((0, 1)), units=2)
    >>> root = cc.Sum(state)
    >>> model = cc.Model.from_parameters(cc.Circuit(root), weights={root: [[0.7, 0.3]]})
    >>> round(model.marginal({0: 1}), 3)
    0.3
    """

    values: tuple[int, ...]

    name: ClassVar[str] = "indicator"
    discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        given: object = self.values
        listed = tuple(given) if isinstance(given, Iterable) else ()
        if not listed:
            raise OptionError(f"values must list one whole number for each unit, not {given!r}")
        object.__setattr__(self, "values", tuple(check_whole("values", value, least=0) for value in listed))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ()

    def check_units(self, units: int) -> str | None:
        """One unit for each value."""
        named = len(self.values)
        return None if units == named else f"indicator values name {counted(named, 'unit')}, not {units}"

    def check_values(self, column: np.ndarray) -> str | None:
        """Whole numbers; one that no unit names is impossible, not wrong."""
        return wrong_whole_value(column)

    def check_parameters(self, parameters: Tensor) -> str | None:
        """There are no parameters, but the axis before the last must be the units."""
        if parameters.dim() < 2:
            return f"indicator parameters need the axes (units, 0), not {tuple(parameters.shape)}"
        return self.check_units(parameters.shape[-2])

    def to_free(self, parameters: Tensor) -> Tensor:
        """There are none."""
        return parameters

    def from_free(self, free: Tensor) -> Tensor:
        return free

    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:
        """An empty tensor, (K, 0)."""
        wrong = self.check_units(units)
        if wrong:
            raise OptionError(wrong)
        return torch.empty(units, 0, dtype=torch.float64)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """0 where x is the unit's value, LOG_ZERO elsewhere."""
        differs = x.unsqueeze(-2) != tensor_of(self.values, x).unsqueeze(-1)  # (R or 1, G, K, N)
        return (differs.to(parameters.dtype) * LOG_ZERO).expand(*parameters.shape[:3], -1)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        return x.new_empty((*x.shape[:-1], 0, x.shape[-1]))

    def received(self, statistics: Tensor) -> Tensor:
        """Zero: without features there are no statistics and no parameters to change."""
        return statistics.new_zeros((*statistics.shape[:-1], 1))

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """The parameters as they are."""
        return parameters

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:  # (..., K, 0) -> (..., K)
        return self.mean(parameters)

    def mode(self, parameters: Tensor) -> Tensor:  # (..., K, 0) -> (..., K)
        return self.mean(parameters)

    def mean(self, parameters: Tensor) -> Tensor:  # (..., K, 0) -> (..., K)
        return tensor_of(self.values, parameters).expand(parameters.shape[:-1]).clone()

    def variance(self, parameters: Tensor) -> Tensor:  # (..., K, 0) -> (..., K)
        return parameters.new_zeros(parameters.shape[:-1])

    def log_mass(self, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """0 if the unit's value is in the interval, LOG_ZERO otherwise."""
        value = tensor_of(self.values, low).unsqueeze(-1)  # (K, 1)
        outside = (value < low.unsqueeze(-2)) | (value > high.unsqueeze(-2))  # (R or 1, G, K, N)
        return (outside.to(parameters.dtype) * LOG_ZERO).expand(*parameters.shape[:3], -1)

    def log_max(self, parameters: Tensor) -> Tensor:  # (..., K, 0) -> (..., K)
        return parameters.new_zeros(parameters.shape[:-1])

    def support(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.values)))
