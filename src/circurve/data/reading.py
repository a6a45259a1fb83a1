"""What a stream asks of the file or iterable that it is read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import Names
from circurve.data.table import Table

__all__ = ["Reader", "RowReader", "by_rows"]


class Reader(Protocol):
    """Blocks of rows, as a file or an iterable has them. What it gives are tables as they were read, unchecked."""

    name: str
    """What messages call it."""

    columns: Names
    width: int
    access: str
    """`rows`: any rows at once (`RowReader`). `blocks`: any block. `sequence`: one block after the other."""

    @property
    def sizes(self) -> Sequence[int]:
        """How many rows each block has."""

    def read(self, block: int) -> Table:
        """A block."""


class RowReader(Reader, Protocol):
    """A reader that also gives any rows at once."""

    def gather(self, rows: NDArray[np.int64] | slice) -> Table:
        """Rows by their numbers."""


def by_rows(reader: Reader) -> RowReader | None:
    """The reader, if it gives any rows at once."""
    return cast("RowReader", reader) if reader.access == "rows" else None
