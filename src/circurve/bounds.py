"""What a file may cost to read: bounds on memory and time in ratio to its size, unless the caller trusts it.

A file is small, and what it says about itself costs nothing to write: a header can declare a thousand million rows, an
archive of 4 MB can unpack to 4 GB. So every loader works out what it would take before it takes it, and refuses a file
that needs more than MAX_RATIO times its own size (files that need less than FREE_BYTES are never refused).
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from circurve.errors import Argument, CircurveError, FileFormatError
from circurve.words import counted

__all__ = [
    "FREE_BYTES",
    "MAX_RATIO",
    "SECONDS_PER_BYTE",
    "TRUST_HINT",
    "allowed_bytes",
    "check_expansion",
    "check_seconds",
    "cut",
    "inflate",
    "parse_json",
    "readable_bytes",
    "shortened",
]

MAX_RATIO = 10
"""How many times its own size a file may take in memory."""

FREE_BYTES = 256 << 20
"""Files that take less than this are never refused for their ratio."""

SECONDS_PER_BYTE = 1e-7
"""How long a file may take to read: a second for each 10 MB."""

TRUST_HINT = ("; if you trust the file, pass ", Argument("trust", True))

SHOWN = 80
"""How many characters of a value from a file a message shows."""

CHUNK = 1 << 18
"""Bytes that are unpacked at a time."""

JSON_BYTES_PER_MARK = 56
"""What a comma, a colon or a bracket of a JSON text takes in memory: a reference, and its share of an object."""


def allowed_bytes(size: int) -> int:
    """The memory that a file of this size may take."""
    return max(MAX_RATIO * size, FREE_BYTES)


def check_expansion(needed: int, size: int, trust: bool, error: type[CircurveError]) -> None:
    """Raise `error` if a file of `size` bytes needs more memory than it may take."""
    if not trust and needed > allowed_bytes(size):
        what = f"a file of {readable_bytes(size)} that needs {readable_bytes(needed)} of memory"
        raise error(f"{what}, more than {MAX_RATIO} times its size", *TRUST_HINT)


def check_seconds(seconds: float, what: str, size: int, trust: bool, error: type[CircurveError]) -> None:
    """Raise `error` if reading `what` takes longer than a file of `size` bytes may take; a second is always allowed."""
    if not trust and seconds > max(1.0, size * SECONDS_PER_BYTE):
        raise error(f"its {what} take {seconds:,.1f} seconds to read", *TRUST_HINT)


def readable_bytes(count: int) -> str:
    """`364 bytes`, `1.6 MB`, `2.1 GB`."""
    if count < 1000:
        return counted(count, "byte")
    for unit, size in (("kB", 1e3), ("MB", 1e6)):
        if count < 999.95 * size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e9:,.1f} GB"


def inflate(packed: bytes, trust: bool, error: type[CircurveError]) -> bytes:
    """The content of a gzip file, which may have several members; `error` once it exceeds what the file may take.

    Raises zlib.error for a damaged file and EOFError for one that is cut off.
    """
    parts: list[bytes] = []
    total, rest = 0, packed
    while rest:
        unpacker = zlib.decompressobj(wbits=31)  # gzip, with its header and checksum
        while not unpacker.eof:
            part = unpacker.decompress(rest, CHUNK)
            rest = unpacker.unconsumed_tail
            if not part and not rest and not unpacker.eof:
                raise EOFError("it is cut off: the end of its content is missing")
            parts.append(part)
            total += len(part)
            check_expansion(2 * total, len(packed), trust, error)  # the parts, and the parts as one
        rest = unpacker.unused_data.lstrip(b"\0")  # padding between members is allowed
    return b"".join(parts)


def parse_json(text: str | bytes, size: int | None = None, trust: bool = False) -> Any:
    """The value of a JSON text; ValueError for whatever is wrong with it, FileFormatError if it becomes too large.

    size: of the file that the text comes from, where other things are in it, too; what the text would become in memory
    is compared with that size.
    """
    if isinstance(text, bytes):
        marks = sum(text.count(mark) for mark in (b",", b":", b"{", b"["))
    else:
        marks = sum(text.count(mark) for mark in (",", ":", "{", "["))
    check_expansion(len(text) + JSON_BYTES_PER_MARK * marks, size or len(text), trust, FileFormatError)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def shortened(value: object) -> str:
    """The repr of a value from a file, cut where it is long: a number of 4,000 digits is not shown in full."""
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python writes
        text = f"a number of {type(value).__name__} with thousands of digits"
    return cut(text, SHOWN)


def cut(text: str, most: int = 300) -> str:
    """The text, or its beginning: a message quotes a file, and that may have written a novel."""
    return text if len(text) <= most else f"{text[:most]}..."
