"""Records as JSON that is safe inside an HTML page, whatever strings the data contain."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["json_for_html", "plain"]

DIGITS = 7
"""Significant digits of single numbers; vectors keep their precision."""

TAGS = {"uint8": "u1", "float32": "f4", "float64": "f8", "uint16": "u2", "uint32": "u4"}
"""What the page calls the types of vectors; all are little-endian."""

ESCAPES = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
"""Characters that could end a script element, or that older parsers take for the end of a line."""


def plain(value: Any) -> Any:
    """Dataclasses as objects, numpy vectors as {"type", "data"} in base64, numbers that are not finite as null.

    The kind of a record is told by its fields; `SmallCircuit` and `Conditionals` have none in common.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return _vector(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return _number(value)
    return value


def _vector(array: np.ndarray) -> dict[str, str]:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return {"type": TAGS[array.dtype.name], "data": base64.b64encode(little.tobytes()).decode("ascii")}


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short


def json_for_html(value: Any) -> str:
    """JSON without a character that HTML or JavaScript could read as markup; parsers read the same text from it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in ESCAPES.items():  # on a long text much faster than `translate`
        text = text.replace(character, escape)
    return text
