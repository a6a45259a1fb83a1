"""How sum weights are re-estimated: frozen records of options, read by the M-step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from circurve.errors import OptionError

__all__ = ["Method", "Vanilla"]


@dataclass(frozen=True)
class Vanilla:
    """Plain EM: theta~ is proportional to N_nc + pseudocount / children.

    The pseudocount is per sum node and M-step, shared out evenly among its children; inputs get the same per unit.
    """

    pseudocount: float = 0.0

    def __post_init__(self) -> None:
        check_at_least_zero("pseudocount", self.pseudocount)


Method: TypeAlias = Vanilla


def check_at_least_zero(name: str, value: object) -> None:
    """Refuse anything but a finite number >= 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        raise OptionError(f"{name} must be a finite number >= 0, not {value!r}")
