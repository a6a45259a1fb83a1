"""Consecutive rows of a stream as a stream of their own: only their blocks are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from circurve.data.readers import ArrayReader
from circurve.data.reading import Reader
from circurve.data.stream import Stream
from circurve.data.table import Table

__all__ = ["section"]


class _Section:
    """The rows from `start` to before `stop` of a reader of blocks."""

    def __init__(self, reader: Reader, start: int, stop: int) -> None:
        starts = np.cumsum([0, *reader.sizes], dtype=np.int64)
        self.first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        ends = starts[self.first : last + 1].tolist()
        self.cuts = [slice(max(start, low) - low, min(stop, high) - low) for low, high in pairwise(ends)]
        self.reader, self.access = reader, reader.access
        self.name, self.columns, self.width = reader.name, reader.columns, reader.width

    @property
    def sizes(self) -> Sequence[int]:
        """Rows of each block."""
        return [cut.stop - cut.start for cut in self.cuts]

    def read(self, block: int) -> Table:
        """A block without the rows of other sections."""
        table, cut = self.reader.read(self.first + block), self.cuts[block]
        return table if cut == slice(0, len(table)) else table.rows(cut)


def section(stream: Stream, start: int, stop: int) -> Stream:
    """The rows from `start` to before `stop`; of a stream that is not bound to a schema, the others are never read."""
    if stream.binding is not None or stream.chosen is not None:
        return stream.rows(slice(start, stop))
    if isinstance(stream.reader, ArrayReader) and stream.reader.access == "rows":
        return replace(stream, reader=ArrayReader(stream.reader.array[start:stop]))
    return replace(stream, reader=_Section(stream.reader, start, stop))
