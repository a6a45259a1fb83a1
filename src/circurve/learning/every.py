"""How often checkpoints are written: `5min`, `30s`, `2h`, `10 epochs`, `5min, unfinished`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from circurve.errors import Argument, OptionError

__all__ = ["Every", "parse_every"]

INTERVAL_PATTERN = re.compile(r"(\d+(?:\.\d+)?) *(s|min|h|epochs?)(, *unfinished)?")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Every:
    """How often a checkpoint is written: after a number of seconds, at the end of an epoch or between two steps, or
    after a number of epochs."""

    seconds: float | None = None
    epochs: int | None = None
    finished: bool = True
    """Whether the end of a training is written too, even if it is not yet time for another checkpoint."""


def parse_every(text: object) -> Every:
    """`5min`, `30s`, `2h`, `10 epochs`; with `, unfinished` behind it, the end of a training is no reason to write."""
    found = INTERVAL_PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is not None:
        number, unit, finished = float(found[1]), found[2], found[3] is None
        if unit in SECONDS:
            return Every(seconds=number * SECONDS[unit], finished=finished)
        if number >= 1 and number.is_integer():
            return Every(epochs=int(number), finished=finished)
    known = "a time or a number of epochs, such as '5min' or '10 epochs'"
    raise OptionError(Argument("checkpoint_every"), f" must be {known}, not {text!r}")
