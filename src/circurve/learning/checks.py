"""Checks of single options; each error names the option and the value."""

from __future__ import annotations

import math

import numpy as np

from circurve.errors import Argument, OptionError

__all__ = ["check_at_least_zero", "check_choice", "check_count", "check_step", "is_number"]


def is_number(value: object) -> bool:
    """Whether a value is a finite real number of Python or numpy; booleans are not."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def check_at_least_zero(name: str, value: object, at_most: float = math.inf) -> None:
    """Refuse anything but a finite number >= 0, or from 0 to `at_most`."""
    if not is_number(value) or not 0 <= value <= at_most:  # type: ignore[operator]
        kind = "finite number >= 0" if at_most == math.inf else f"number from 0 to {at_most:g}"
        raise OptionError(Argument(name), f" must be a {kind}, not {value!r}")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse anything but one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise OptionError(Argument(name), f" must be one of {', '.join(choices)}, not {value!r}")


def check_count(name: str, value: object, at_least: int) -> None:
    """Refuse anything but a whole number >= `at_least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < at_least:
        raise OptionError(Argument(name), f" must be a whole number >= {at_least}, not {value!r}")


def check_step(value: object) -> None:
    """Refuse a step size outside (0, 1]."""
    if not is_number(value) or not 0 < value <= 1:  # type: ignore[operator]
        raise OptionError(Argument("step_size"), f" must be above 0 and at most 1, not {value!r}")
