"""Categorical inputs: a column of states 0, 1, ..., states - 1 without an order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circurve.inputs.common import (
    FLOOR,
    SMALLEST_FREE,
    blend,
    check_whole,
    presence,
    support_log_mass,
    wrong_probability,
    wrong_whole_value,
)
from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["Categorical"]


@dataclass(frozen=True)
class Categorical(Family):
    """A column of the whole numbers 0 to states - 1: p(x) = p_x, one parameter for each state.

    Parameters
    ----------
    states : int
        How many values the column can take.

    Examples
    --------
    >>> import circurve as cc
    >>> colour = cc.Input(0, cc.Categorical(states=3))
    >>> model = cc.Model.from_parameters(cc.Circuit(colour), inputs={colour: [[0.5, 0.3, 0.2]]})
    >>> model.distribution(0)
       0  probability
    0  0          0.5
    1  1          0.3
    2  2          0.2
    """

    states: int

    name: ClassVar[str] = "categorical"
    discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", check_whole("states", self.states, least=1))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple(f"probability_{state}" for state in range(self.states))

    @property
    def parameter_count(self) -> int:
        return self.states

    def check_values(self, column: np.ndarray) -> str | None:
        return wrong_whole_value(column, self.states - 1)

    def check_parameters(self, parameters: Tensor) -> str | None:
        """Probabilities are from 0 to 1 and sum to one."""
        error = (parameters.sum(-1) - 1).abs()
        wrong_sum = None if bool((error <= 1e-4).all()) else "the probabilities of a unit do not sum to one"
        return wrong_probability(parameters) or wrong_sum

    def to_free(self, parameters: Tensor) -> Tensor:
        """log p_s: one more number than needed, since adding a constant to all of them changes nothing."""
        return parameters.clamp_min(SMALLEST_FREE[parameters.dtype]).log()

    def from_free(self, free: Tensor) -> Tensor:
        """The softmax, with a minimum of SMALLEST_FREE."""
        return torch.softmax(free, dim=-1).clamp_min(SMALLEST_FREE[free.dtype])

    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:
        """p_s proportional to exp(4 u_s) with u_s uniform, whatever the column holds (`Bernoulli` says why)."""
        draw = torch.rand(units, self.states, generator=generator, dtype=torch.float64)
        return torch.softmax(4 * draw, dim=-1)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log p_x, looked up in the table of logarithms.

        The look-up costs the same for any number of states and is exact; a product with one-hot columns is faster
        only for a handful of states, and its cost grows with them.
        """
        log_table = parameters.log().clamp_min_(LOG_ZERO)  # (R, G, K, states)
        states = x.long().unsqueeze(-2).expand(*parameters.shape[:3], -1)
        return torch.gather(log_table, -1, states)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """One-hot: how often the unit saw each state."""
        states = torch.arange(self.states, dtype=x.dtype, device=x.device).unsqueeze(-1)  # (states, 1)
        return (x.unsqueeze(-2) == states) * presence(x, observed).unsqueeze(-2)

    def received(self, statistics: Tensor) -> Tensor:
        """The sum over states."""
        return statistics.sum(-1, keepdim=True)

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """p~_s = (count_s + pseudocount/states) / (uses + pseudocount), as max(p~, FLOOR) / sum of it."""
        uses = self.received(statistics)  # (R, G, K, 1)
        best = (statistics + pseudocount / self.states) / (uses + pseudocount)
        raised = best.clamp_min(FLOOR)
        return blend(parameters, raised / raised.sum(-1, keepdim=True), uses, step)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """The first of `states` exponential clocks to ring, clock s with rate p_s: it is s with probability p_s."""
        clocks = torch.empty_like(parameters).exponential_(generator=generator)
        return (parameters / clocks).argmax(-1).to(parameters.dtype)

    def mode(self, parameters: Tensor) -> Tensor:
        """The most probable state, the first one of equals."""
        return parameters.argmax(-1).to(parameters.dtype)

    def mean(self, parameters: Tensor) -> Tensor:
        """Sum over s of s p_s, the states read as numbers."""
        return parameters @ torch.arange(self.states, dtype=parameters.dtype, device=parameters.device)

    def variance(self, parameters: Tensor) -> Tensor:
        """Sum over s of (s - mean)^2 p_s."""
        states = torch.arange(self.states, dtype=parameters.dtype, device=parameters.device)
        return ((states - self.mean(parameters).unsqueeze(-1)).square() * parameters).sum(-1)

    def log_mass(self, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return support_log_mass(self, parameters, low, high)

    def support(self) -> range:
        return range(self.states)
