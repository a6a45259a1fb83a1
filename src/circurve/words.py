"""Numbers with the nouns they count, for messages."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 unit`, `2 units`, `1,000 units`, `1 row has`, `2 rows have`; plural: None adds an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
