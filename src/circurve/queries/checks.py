"""Checks that several questions share."""

from __future__ import annotations

import numpy as np

from circurve.errors import Argument, OptionError

__all__ = ["check_count"]


def check_count(option: str, value: object, least: int) -> int:
    """Return `value` as an int if it is a whole number >= least; else raise OptionError."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise OptionError(Argument(option), f" must be a whole number >= {least}, not {value!r}")
