"""Printed text compared with what was expected: words exactly, numbers and dates nearly."""

from __future__ import annotations

import re
from datetime import date

__all__ = ["difference"]

NUMBER = re.compile(r"(\d{4}-\d\d-\d\d|(?<![\w.])-?\d+(?:\.\d*)?(?:e[-+]\d+)?)")

TOLERANCE = 0.02
"""How far, as a share, a number may be off on another machine."""

DAYS = 3
"""How far a date may be off."""


def difference(found: str, wanted: str) -> str | None:
    """The first line that differs by more than another machine explains; None if there is none."""
    pairs = (found.strip().splitlines(), wanted.strip().splitlines())
    if len(pairs[0]) != len(pairs[1]):
        return f"{len(pairs[0])} lines, expected {len(pairs[1])}:\n{found}"
    wrong = next(((a, b) for a, b in zip(*pairs, strict=True) if not _alike(a, b)), None)
    return None if wrong is None else f"found    {wrong[0]}\nexpected {wrong[1]}"


def _alike(found: str, wanted: str) -> bool:
    a, b = NUMBER.split(found), NUMBER.split(wanted)
    if [text.split() for text in a[::2]] != [text.split() for text in b[::2]]:
        return False
    return all(_near(x, y) for x, y in zip(a[1::2], b[1::2], strict=True))


def _near(found: str, wanted: str) -> bool:
    """Within TOLERANCE, or within one unit of the last digit after the point; small whole numbers exactly."""
    if "-" in wanted[1:] and "e" not in wanted:
        return "-" in found[1:] and abs((date.fromisoformat(found) - date.fromisoformat(wanted)).days) <= DAYS
    digits = len(wanted.partition(".")[2])
    allowed = max(TOLERANCE * abs(float(wanted)), 1.01 * 10**-digits if digits else 0)
    return abs(float(found) - float(wanted)) <= allowed
