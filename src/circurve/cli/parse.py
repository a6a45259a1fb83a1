"""Texts of the command line, parsed into numbers, types and schedules."""

from __future__ import annotations

from collections.abc import Callable

from circurve.cli.loading import Shares
from circurve.data.infer import parse_type
from circurve.errors import OptionError
from circurve.learning import schedules
from circurve.learning.recipe import UNITS_GRID
from circurve.learning.schedules import Schedule

__all__ = [
    "parse_batch_size",
    "parse_bytes",
    "parse_dropped",
    "parse_shares",
    "parse_step_size",
    "parse_types",
    "parse_units",
]

SCHEDULES: dict[str, Callable[[float, float], Schedule]] = {
    "cosine": schedules.cosine,
    "linear": schedules.linear,
    "exponential": schedules.exponential,
}


BYTE_UNITS = {"K": 1, "M": 2, "G": 3, "T": 4}
"""The powers of 1000 that a number of bytes may end with."""


def parse_batch_size(text: str) -> int | None:
    """`200`, or `full` (None) for all rows at once."""
    if text == "full":
        return None
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"--batch-size must be a whole number or 'full', not {text!r}") from None


def parse_bytes(text: str | None) -> int | None:
    """`2000000`, `500MB` or `2GB`, in powers of 1000; None if nothing was said."""
    if text is None:
        return None
    number = text.upper().removesuffix("B")
    power = BYTE_UNITS.get(number[-1:], 0)
    try:
        found = int(float(number[:-1] if power else number) * 1000**power)
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise OptionError(f"--memory-budget must be a number of bytes such as 500MB or 2GB, not {text!r}")
    return found


def parse_step_size(text: str) -> float | Schedule:
    """`0.1`, or `KIND:START:END` for a schedule over the training, such as `cosine:0.2:0.005`."""
    kind, *rest = text.split(":")
    if not rest:
        return _step(text, text)
    if kind not in SCHEDULES or len(rest) != 2:
        kinds = ", ".join(SCHEDULES)
        raise OptionError(f"--step-size must be a number or KIND:START:END with KIND one of {kinds}, not {text!r}")
    start, end = (_step(part, text) for part in rest)
    return SCHEDULES[kind](start, end)


def _step(part: str, text: str) -> float:
    try:
        step = float(part)
    except ValueError:
        step = 0.0
    if not 0 < step <= 1:
        given = repr(text) if part == text else f"{part!r} in {text!r}"
        raise OptionError(f"--step-size must be above 0 and at most 1, not {given}")
    return step


def parse_types(text: str | None) -> dict[str, str]:
    """`age=gaussian,city=categorical`: types by the names of columns."""
    types = {}
    for part in text.split(",") if text else ():
        name, equals, kind = part.rpartition("=")
        if not equals or not name.strip():
            raise OptionError(f"--types must be NAME=TYPE,NAME=TYPE, not {text!r}")
        types[name.strip()] = parse_type(kind.strip())
    return types


def parse_dropped(text: str | None) -> frozenset[str]:
    """`id=drop,name=drop`: the names of columns to leave out."""
    types = parse_types(text)
    typed = next((name for name, kind in types.items() if kind != "drop"), None)
    if typed is not None:
        raise OptionError(
            f"--types {typed}={types[typed]}: the types are saved in the model; here only NAME=drop is allowed"
        )
    return frozenset(types)


def parse_units(text: str) -> tuple[int, ...]:
    """`100`, `8,16,32` or `auto`: the numbers of units to choose from, from the smallest on."""
    if text == "auto":
        return UNITS_GRID
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        problem = f"--units must be a whole number, several (8,16,32), or auto, not {text!r}"
        raise OptionError(problem) from None


def parse_shares(text: str) -> Shares:
    """`0.8,0.1,0.1`: training, validation, test; `0.9,0.1` leaves out the test."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    within = len(shares) in (2, 3) and all(0 <= share <= 1 for share in shares) and shares[0] > 0
    if not within or abs(sum(shares) - 1) > 1e-6:
        raise OptionError(f"--split must be shares for train, valid and test that add up to 1, not {text!r}")
    train, valid, test = (*shares, 0.0)[:3]
    return train, valid, test
