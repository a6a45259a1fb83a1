"""What callbacks are told after each epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from circurve.learning.history import EpochRecord
from circurve.model import Model

__all__ = ["Callback", "EpochEnd"]


@dataclass(frozen=True)
class EpochEnd:
    """What a callback is told after each epoch."""

    epoch: int
    epochs: int
    records: dict[int, EpochRecord]
    """The epoch's record of each run that is still training, by the run's number."""

    model: Callable[[int], Model]
    """The present model of a run, by the run's number."""

    names: Mapping[int, str] = field(default_factory=dict)
    """What messages call each run that is still training: its label, or its number."""


Callback = Callable[[EpochEnd], bool | None]
"""Called after each epoch; returning True ends the training of the whole fleet."""
