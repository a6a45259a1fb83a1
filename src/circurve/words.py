"""Numbers with the nouns they count, for messages."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """`1 unit`, `2 units`, `1,000 units`; noun: one whose plural ends with s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
