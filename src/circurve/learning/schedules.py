"""Numbers that change during training: functions of the share of the training that is done, from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Schedule", "constant", "cosine", "exponential", "linear"]

Schedule: TypeAlias = Callable[[float], float]
"""progress in [0, 1] -> value."""


@dataclass(frozen=True)
class constant:  # noqa: N801 - used like a function, printed like a record
    """The same value throughout."""

    value: float

    def __call__(self, progress: float) -> float:
        return self.value


@dataclass(frozen=True)
class linear:  # noqa: N801
    """A straight line from `start` to `end`."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        return self.start + (self.end - self.start) * progress


@dataclass(frozen=True)
class cosine:  # noqa: N801
    """Half a cosine wave from `start` to `end`: slow, fast, slow."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class exponential:  # noqa: N801
    """A constant ratio from `start` to `end`, both positive."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        return self.start * math.exp(progress * math.log(self.end / self.start))
