"""What every input family provides, and nothing about circuits.

A family is a frozen record of hyperparameters; its parameters live in tensors whose last axis P holds the
parameters of one unit. The letters are R runs, G inputs folded together, K units, N samples, P parameters of
a unit, S sufficient statistics of a unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circurve.inputs.floors import LOG_ZERO

__all__ = ["LOG_ZERO", "Family", "counts_from_zero", "same_values", "takes_others"]


class Family(ABC):
    """A univariate distribution with K units side by side; each final class is a frozen dataclass.

    Missing values never reach `log_prob` as such: the engine passes `x` with missing entries replaced by a
    valid filler and `observed` (1 where a value is present, 0 where not, or None when nothing is missing).
    A unit's log-probability of a missing value is 0, and it contributes nothing to the statistics.
    """

    name: ClassVar[str]
    """The name in model files and on the command line."""

    discrete: ClassVar[bool]
    """Whether values are whole numbers >= 0 (then the engine may store the column as integers)."""

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the P parameters of a unit, in the order of the last axis."""

    @property
    def parameter_count(self) -> int:
        """P, the number of parameters of a unit; a family with very many need not name them all to count them."""
        return len(self.parameter_names)

    @property
    def layer_key(self) -> Hashable:
        """Inputs whose families have equal keys may share a layer of the engine, with `merged` as its family."""
        return self

    def merged(self, families: Sequence[Family]) -> Family:
        """The family of a layer whose input g has families[g]; all of them have the layer key of this one."""
        return self

    def check_units(self, units: int) -> str | None:
        """Why an input of this family cannot have this many units; None if it can. Only Indicator restricts the
        number."""
        return None

    @abstractmethod
    def check_values(self, column: np.ndarray) -> str | None:
        """What is wrong with the observed values of a column (without missing ones); None if all fit."""

    @abstractmethod
    def check_parameters(self, parameters: Tensor) -> str | None:  # (..., P)
        """What is wrong with parameters; None if nothing is."""

    @abstractmethod
    def to_free(self, parameters: Tensor) -> Tensor:  # (..., P) -> (..., Q)
        """Parameters as Q numbers without bounds, as gradient descent moves them: logits, logarithms.

        A parameter at its bound, such as a probability of zero, moves to the nearest value that has such numbers.
        """

    @abstractmethod
    def from_free(self, free: Tensor) -> Tensor:  # (..., Q) -> (..., P)
        """The inverse of `to_free`, in the same dtype; autograd can differentiate it.

        Any finite numbers give parameters that `check_parameters` takes.
        """

    @abstractmethod
    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:  # (K, P) float64
        """Draw starting parameters for `units` units, spread around the observed values of `column` (may be empty)."""

    @abstractmethod
    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log p_k(x_n), (R, G, K, N), in the dtype of the parameters; autograd can differentiate it.

        parameters: (R, G, K, P); x: (R or 1, G, N), floating. Zero probability is LOG_ZERO, never an infinity.
        """

    def log_prob_into(self, parameters: Tensor, x: Tensor, out: Tensor) -> Tensor:
        """`log_prob`, written to `out` (R, G, K, N) where that saves memory; never called where gradients are kept."""
        return out.copy_(self.log_prob(parameters, x))

    @abstractmethod
    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """The sufficient statistics of each sample, zero where it is missing.

        x: (R or 1, G, N); observed: the same shape or None; returns (R or 1, G, S, N). The E-step sums them over
        samples, weighted by flow: `statistics = flow @ features^T`, (R, G, K, S). A family whose sums cancel
        badly returns float64 features; the product is then taken in float64.
        """

    def received(self, statistics: Tensor) -> Tensor:  # (R, G, K, S) -> (R, G, K, 1)
        """The flow that each unit received from samples that observed its variable.

        The M-step leaves a unit as it is where this is too little (see engine/numerics.py). The default is the first
        statistic, for families whose first feature is 1 for each observed sample.
        """
        return statistics[..., :1]

    @abstractmethod
    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """M-step: the parameters (R, G, K, P) moved by `step` towards the maximiser given `statistics` (R, G, K, S).

        pseudocount and step are (R, 1, 1, 1). A unit that received no weight keeps its parameters, whatever the
        pseudocount; step 0 keeps all of them. Floors act on the maximiser. No argument is changed; the result has
        the dtype of `parameters`, also where `statistics` are float64.
        """

    @abstractmethod
    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:  # (..., P) -> (...)
        """One draw from each unit."""

    @abstractmethod
    def mode(self, parameters: Tensor) -> Tensor:  # (..., P) -> (...)
        """The most probable value of each unit."""

    @abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:  # (..., P) -> (...)
        """The expected value of each unit."""

    @abstractmethod
    def variance(self, parameters: Tensor) -> Tensor:  # (..., P) -> (...)
        """The variance of each unit."""

    @abstractmethod
    def log_mass(self, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """log P_k(low_n <= x <= high_n), (R, G, K, N), in the dtype of the parameters; LOG_ZERO for a probability of
        zero.

        parameters: (R, G, K, P); low, high: (R or 1, G, N), floating, -inf and inf for open ends. A family with finite
        support returns `common.support_log_mass(...)`.
        """

    def interval_moments(self, parameters: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of x given low <= x <= high, (R, G, K, N) each, in float64; shapes as in `log_mass`.

        Only asked of families without finite support, and finite where the interval has no mass.
        """
        raise NotImplementedError(f"{type(self).__name__} needs interval_moments, for moments given an interval")

    def log_max(self, parameters: Tensor) -> Tensor:  # (..., P) -> (...)
        """log p at the mode of each unit."""
        units = parameters.reshape(1, -1, 1, parameters.shape[-1])
        return self.log_prob(units, self.mode(units)).reshape(parameters.shape[:-1])

    def support(self) -> Sequence[int] | None:
        """All values a variable can take, in ascending order, if they are finitely many; a range costs no memory."""
        return None


def counts_from_zero(support: Sequence[int]) -> bool:
    """Whether a support is 0, 1, ..., S - 1."""
    return same_values(support, range(len(support)))


def same_values(one: Sequence[int] | None, other: Sequence[int] | None) -> bool:
    """Whether two supports hold the same values; None is equal to None only. Two ranges are compared at once."""
    if one is None or other is None:
        return one is other
    return one == other or (len(one) == len(other) and tuple(one) == tuple(other))


def takes_others(one: Family, other: Family) -> bool:
    """Whether two families may take different values; those of finite support are compared by it."""
    if one.layer_key == other.layer_key:
        return False
    support = one.support()
    return support is None or not same_values(support, other.support())
