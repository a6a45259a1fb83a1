"""How often checkpoints are written: `5min`, `30s`, `2h`, `10 epochs`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from circurve.errors import Argument, OptionError

__all__ = ["Every", "parse_every"]

EVERY = re.compile(r"(\d+(?:\.\d+)?) *(s|min|h|epochs?)")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Every:
    """How often a checkpoint is written: after a number of seconds, at the end of an epoch, or after a number of
    epochs."""

    seconds: float | None = None
    epochs: int | None = None


def parse_every(text: object) -> Every:
    """`5min`, `30s`, `2h`, `10 epochs`."""
    found = EVERY.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is not None:
        number, unit = float(found[1]), found[2]
        if unit in SECONDS:
            return Every(seconds=number * SECONDS[unit])
        if number >= 1 and number.is_integer():
            return Every(epochs=int(number))
    known = "a time or a number of epochs, such as '5min' or '10 epochs'"
    raise OptionError(Argument("checkpoint_every"), f" must be {known}, not {text!r}")
