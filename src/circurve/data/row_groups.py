"""Row groups of files in blocks: small ones together, and large ones in pieces that are read one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

__all__ = ["Group", "GroupReading", "merged", "pieces_of"]

Group: TypeAlias = tuple[int, int, int]
"""The number of a file, of a row group in it, and of its rows."""


class GroupReading:
    """Where the reader is in a row group."""

    def __init__(self, of: tuple[int, int, list[str]], batches: Iterator[Any]) -> None:
        self.of, self.batches, self.at = of, batches, 0
        self.rest: Any = None  # rows that were decoded and not asked for yet

    def skip(self, rows: int) -> None:
        """Pass over some rows; they are decoded, a few at a time, and let go."""
        while rows > 0:
            rows -= len(self._some(rows))

    def take(self, rows: int) -> Any:
        """The next rows as a table of pyarrow."""
        import pyarrow as pa  # noqa: PLC0415

        parts = []
        while rows > 0:
            parts.append(self._some(rows))
            rows -= len(parts[-1])
        return pa.Table.from_batches(parts)

    def _some(self, most: int) -> Any:
        """At least one of the next rows."""
        if self.rest is None or not len(self.rest):
            self.rest = next(self.batches)
        found, self.rest = self.rest.slice(0, most), self.rest.slice(most)
        self.at += len(found)
        return found


def merged(groups: Sequence[Group], rows: int) -> list[list[Group]]:
    """Row groups in blocks: consecutive ones together, up to this many rows or those of the largest group."""
    most = max([rows, *(held for _, _, held in groups)])
    blocks: list[list[Group]] = []
    held = 0
    for group in groups:
        if not group[2]:
            continue
        if not blocks or held + group[2] > most:
            blocks.append([])
            held = 0
        blocks[-1].append(group)
        held += group[2]
    return blocks


def pieces_of(block: Sequence[Group], rows: int) -> list[tuple[list[Group], int | None]]:
    """The row groups of a block in pieces of at most this many rows, each with its first row in its group."""
    return [([(file, group, min(rows, held - at))], at) for file, group, held in block for at in range(0, held, rows)]
