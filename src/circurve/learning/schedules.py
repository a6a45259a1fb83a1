"""Schedules: numbers that change during training, as functions of the share of the training that is done (0 to 1).

Examples
--------
>>> import circurve as cc
>>> step = cc.schedules.cosine(0.2, 0.005)
>>> [round(step(progress), 3) for progress in (0, 0.5, 1)]
[0.2, 0.103, 0.005]
>>> data = cc.load_dataset("digits")
>>> result = cc.fit(cc.hclt(data.train, units=4), data.train, valid=data.valid, epochs=3, step_size=step)
>>> [round(record.step_size, 3) for record in result.history]
[0.16, 0.058, 0.005]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from circurve.errors import OptionError
from circurve.learning.checks import check_at_least_zero, is_number

__all__ = ["Schedule", "by_overfitting", "constant", "cosine", "exponential", "linear", "warm_up"]

Schedule: TypeAlias = Callable[[float], float]
"""progress in [0, 1] -> value."""


@dataclass(frozen=True)
class constant:  # noqa: N801 - used like a function, printed like a record
    """The same value throughout."""

    value: float

    def __call__(self, progress: float) -> float:
        return self.value


@dataclass(frozen=True)
class _FromTo:
    """What goes from `start` to `end`."""

    start: float
    end: float

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            check_at_least_zero(f"{type(self).__name__}: {name}", getattr(self, name))


class linear(_FromTo):  # noqa: N801
    """A straight line from `start` to `end`."""

    def __call__(self, progress: float) -> float:
        return self.start + (self.end - self.start) * progress


class cosine(_FromTo):  # noqa: N801
    """Half a cosine wave from `start` to `end`: slow, fast, slow."""

    def __call__(self, progress: float) -> float:
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


class exponential(_FromTo):  # noqa: N801
    """A constant ratio from `start` to `end`, both positive."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start == 0 or self.end == 0:
            raise OptionError(f"exponential: start and end must be positive, not {self.start!r} and {self.end!r}")

    def __call__(self, progress: float) -> float:
        return self.start * math.exp(progress * math.log(self.end / self.start))


@dataclass(frozen=True)
class warm_up:  # noqa: N801
    """A straight line from 0 to `value` over the first share `until` of the training, then `value`."""

    value: float
    until: float = 0.1

    def __post_init__(self) -> None:
        check_at_least_zero("warm_up: value", self.value)
        if not is_number(self.until) or not 0 <= self.until <= 1:
            raise OptionError(f"warm_up: until must be from 0 to 1, not {self.until!r}")

    def __call__(self, progress: float) -> float:
        return self.value if progress >= self.until else self.value * progress / self.until


@dataclass(frozen=True)
class by_overfitting:  # noqa: N801
    """A strength driven by the degree of overfitting measured after each epoch on validation data.

    mu = maximum * min(1, DoF / full_at): no penalty while train and validation agree, all of it from `full_at` on.
    """

    maximum: float
    full_at: float = 0.1

    def __post_init__(self) -> None:
        check_at_least_zero("by_overfitting: maximum", self.maximum)
        if not is_number(self.full_at) or self.full_at <= 0:
            raise OptionError(f"by_overfitting: full_at must be a finite number > 0, not {self.full_at!r}")

    def value(self, dof: float | None) -> float:
        """The strength for a degree of overfitting; 0 before the first one is known."""
        return 0.0 if dof is None else self.maximum * min(1.0, dof / self.full_at)
