"""Tables that are larger than memory: rows are fetched when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data.convert import Array, Names
from circurve.data.entry import as_table
from circurve.data.reading import Reader, by_rows
from circurve.data.slots import Binding, Slots, slot_shape
from circurve.data.source import block_order
from circurve.data.table import Table
from circurve.errors import DataError
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["BUFFER", "Stream", "sample_rows", "say_stream"]

BUFFER = 256 << 20
"""Bytes of rows that a stream of blocks holds at a time, unless told otherwise. Rows are mixed within half of it."""

CPU = torch.device("cpu")

PIECE = 1 << 22
"""Values of a piece, where a stream is read from its beginning to its end."""


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """Rows that are not loaded into memory: in a mapped array, in Parquet or Arrow files, in any source of batches.

    `open_stream` makes one. It can be used like a table in `fit`, `hclt`, `log_prob`, `curvature` and in questions
    about rows. The first use reads all of it once, to check it.

    Parameters
    ----------
    reader : Reader
        What the rows are read from.
    binding : Binding, optional
        The schema, and what a pass over all rows found.
    chosen : Tensor, optional
        The numbers of some rows, ascending; None is all rows.
    device : torch.device, default cpu
        The device of the rows that `take` returns.
    buffer : int, default 256 MiB
        Bytes of rows in memory.
    missing : int, optional
        A number that marks missing values, in addition to NaN.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.open_stream([[0, 1], [1, 1], [0, 0]])
    <Stream array of int64: 3 rows x 2 columns>
    """

    reader: Reader
    binding: Binding | None = None
    chosen: Tensor | None = None  # (N,) int64, ascending
    device: torch.device = CPU
    buffer: int = BUFFER
    missing: int | None = None
    weights = None
    labels = None

    @property
    def schema(self) -> Schema | None:
        """The families that the values were checked against; None before the check."""
        return None if self.binding is None else self.binding.schema

    @property
    def columns(self) -> Names:
        """The names of the columns; None if they have none."""
        return self.reader.columns if self.binding is None else self.binding.schema.names

    def __len__(self) -> int:
        return int(self.starts[-1]) if self.chosen is None else len(self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, V)."""
        return len(self), self.reader.width if self.binding is None else len(self.binding.schema)

    @property
    def known_values(self) -> int:
        """How many values are not missing; of a choice of rows, by their share."""
        assert self.binding is not None
        return int(self.binding.known_values * len(self) / max(1, int(self.starts[-1])))

    @property
    def nbytes(self) -> int:
        """The largest number of bytes in memory."""
        if self.reader.access == "rows":
            return 0
        slots, height = slot_shape(np.diff(self.starts), self.window)
        return slots * height * self.row_bytes

    @property
    def row_bytes(self) -> int:
        """Bytes of a checked row."""
        if self.binding is None:
            return 8 * self.shape[1]
        return self.shape[1] * (self.binding.dtype.itemsize + self.binding.missing)

    @cached_property
    def starts(self) -> NDArray[np.int64]:  # (blocks + 1,)
        """The first row of each block, and the number of all rows."""
        return np.cumsum([0, *self.reader.sizes], dtype=np.int64)

    def bound(self, binding: Binding) -> Stream:
        """A stream of the same rows that is bound to a schema.

        Parameters
        ----------
        binding : Binding
            The schema, and what a pass over all rows found.

        Returns
        -------
        Stream
            Its rows come as checked tables.
        """
        return replace(self, binding=binding)

    def to(self, device: str | torch.device) -> Stream:
        """A stream of the same rows for another device.

        Parameters
        ----------
        device : str or torch.device
            The device of the tables that `take` and `span` return.

        Returns
        -------
        Stream
            No row is read.
        """
        return replace(self, device=torch.device(device))

    def bare(self) -> Stream:
        """The stream itself, which has neither weights nor labels.

        Returns
        -------
        Stream
            The same object.
        """
        return self

    def rows(self, index: Any) -> Stream:
        """A choice of rows. They keep their order.

        Parameters
        ----------
        index : slice, list, array or Tensor
            A slice, row numbers from 0, or a mask of all rows.

        Returns
        -------
        Stream
            No row is read.
        """
        wanted = index if isinstance(index, slice | Tensor) else torch.from_numpy(np.asarray(index))
        if self.chosen is None and isinstance(wanted, Tensor) and _are_rows(wanted, len(self)):
            return replace(self, chosen=wanted.clone())
        kept = (torch.arange(len(self)) if self.chosen is None else self.chosen)[wanted]
        return replace(self, chosen=kept if _are_rows(kept, int(self.starts[-1])) else kept.sort().values)

    def order(self, generator: torch.Generator) -> Tensor:  # (N,)
        """Row numbers in the order of an epoch.

        Parameters
        ----------
        generator : torch.Generator
            Where random numbers come from.

        Returns
        -------
        Tensor
            (N,): in random order if the source can read any row; otherwise shuffled block by block, or in their own
            order.
        """
        if self.reader.access == "rows":
            return torch.randperm(len(self), generator=generator)
        if self.reader.access == "sequence":
            self._slots.clear()  # the next pass may bring the rows in another order
            return torch.arange(len(self))
        return block_order(self._sizes, self.window, generator, getattr(self.reader, "joined", None))

    @cached_property
    def _sizes(self) -> list[int]:
        """Rows of each block, of those that were chosen."""
        if self.chosen is None:
            return list(self.reader.sizes)
        found: list[int] = np.diff(np.searchsorted(self.chosen.numpy(), self.starts)).tolist()
        return found

    @property
    def window(self) -> int:
        """The smallest number of rows that are shuffled together: half of the buffer."""
        return max(1, self.buffer // 2 // max(1, self.row_bytes))

    def span(self, start: int, stop: int) -> tuple[Table, slice]:
        """A table in memory of consecutive rows.

        Parameters
        ----------
        start, stop : int
            The first row, and the one after the last.

        Returns
        -------
        tuple of Table and slice
            The table, and the places of the rows in it.

        Raises
        ------
        DataError
            If the source cannot be read, or a value does not fit the schema.
        """
        reader = by_rows(self.reader)
        if reader is not None and self.chosen is None:
            return self._checked(reader.gather(slice(start, stop))).to(self.device), slice(0, stop - start)
        table, places = self.take(torch.arange(start, stop))
        return (table.rows(places) if reader is None else table), slice(0, stop - start)

    def take(self, index: Tensor) -> tuple[Table, Tensor]:
        """A table in memory that holds the rows of these numbers.

        Parameters
        ----------
        index : Tensor
            Row numbers, of any shape. Unless the source can read any row, the stream must be bound to a schema.

        Returns
        -------
        tuple of Table and Tensor
            The table, and the places of the rows in it, in the shape of the index.

        Raises
        ------
        DataError
            If the source cannot be read, or a value does not fit the schema.
        """
        rows = index.cpu() if self.chosen is None else self.chosen[index.cpu()]
        reader = by_rows(self.reader)
        if reader is not None:
            table = self._checked(reader.gather(rows.flatten().numpy()))
            return table.to(self.device), torch.arange(rows.numel(), device=self.device).view(rows.shape)
        table, places = self._slots.take(rows, self._block)
        if self.device.type != "cpu":
            table = table.rows(places.flatten()).to(self.device)
            places = torch.arange(rows.numel(), device=self.device).view(rows.shape)
        return table, places

    @property
    def _slots(self) -> Slots:
        assert self.binding is not None
        key = (self.reader, self.window)
        if key not in self.binding.slots:
            self.binding.slots[key] = Slots(self.starts, self.window, self.binding)
        return self.binding.slots[key]

    def _block(self, number: int) -> Table:
        return self._checked(self.reader.read(number))

    def _checked(self, read: Table) -> Table:
        """Rows in the schema, if the stream has one. Where any row misses a value, all rows have an `observed`."""
        if self.missing is not None:
            read = as_table(read, missing=self.missing)
        if self.binding is None:
            return read
        table = self.binding.encode(read)
        if self.binding.missing and table.observed is None:
            table = replace(table, observed=torch.ones_like(table.values, dtype=torch.bool))
        return table

    def pieces(self, rows: int | None = None) -> Iterator[Table]:
        """All rows in order, some at a time; checked if the stream is checked, otherwise as they were read.

        Parameters
        ----------
        rows : int, optional
            The largest number of rows at a time; None is as many as have about four million values.

        Yields
        ------
        Table
            The next rows.

        Raises
        ------
        DataError
            If the source cannot be read, or a value does not fit the schema.

        Examples
        --------
        >>> [len(piece) for piece in cc.open_stream([[0, 1], [1, 1], [0, 0]]).pieces(rows=2)]
        [2, 1]
        """
        for _, piece in self._pieces_from(0, rows):
            yield piece

    def _pieces_from(self, row: int, rows: int | None = None) -> Iterator[tuple[int, Table]]:
        """The piece with a row and those after it, each with the number of its first row; blocks before it are not
        read."""
        size = rows or max(1, PIECE // max(1, self.shape[1]))
        cached = self.chosen is not None and self.binding is not None  # blocks in memory are not read again
        if self.reader.access == "rows" or cached:
            for start in range(row - row % size, len(self), size):
                yield start, self.span(start, min(start + size, len(self)))[0]
            return
        sizes = np.asarray(self._sizes)
        starts = np.cumsum(sizes) - sizes
        for number in np.flatnonzero((sizes > 0) & (starts + sizes > row)).tolist():
            table = self._block(number)
            if self.chosen is not None:
                first, last = np.searchsorted(self.chosen.numpy(), self.starts[number : number + 2])
                table = table.rows(self.chosen[first:last] - self.starts[number])
            for start in range(0, len(table), size):
                if starts[number] + start + size > row:
                    piece = table.rows(slice(start, start + size)) if size < len(table) else table
                    yield int(starts[number]) + start, piece

    def __getitem__(self, key: Any) -> Any:
        """Cells as a numpy array, NaN where one is missing: `stream[:100, 3]`; or a choice of rows, `stream[:100]`."""
        if not isinstance(key, tuple):
            return self.rows(key)
        rows, columns = key
        if isinstance(rows, slice):
            wanted = range(*rows.indices(len(self)))
            return self._strided(wanted, columns) if wanted.step > 0 else self._strided(wanted[::-1], columns)[::-1]
        table, places = self.take(torch.arange(len(self))[torch.as_tensor(rows)])
        return np.asarray(table[places.cpu().numpy(), columns])

    def _strided(self, wanted: range, columns: Any) -> Array:
        """Cells of evenly spaced rows; where blocks are read, from one pass over those up to the last row."""
        some = self._gathered(wanted) if self.reader.access == "rows" else self._passed(wanted)
        parts = [np.asarray(table)[:, columns] for table in some]
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]))[:, columns]

    def _gathered(self, wanted: range) -> Iterator[Table]:
        size = max(1, PIECE // max(1, self.shape[1]))
        for start in range(0, len(wanted), size):
            some = wanted[start : start + size]
            yield self.take(torch.arange(some.start, some.stop, some.step))[0]

    def _passed(self, wanted: range) -> Iterator[Table]:
        for start, piece in self._pieces_from(wanted.start):
            skipped = -(-max(0, start - wanted.start) // wanted.step) * wanted.step
            first, stop = wanted.start + skipped - start, min(wanted.stop - start, len(piece))
            if first < stop:
                yield piece.rows(slice(first, stop, wanted.step))
            if start + len(piece) >= wanted.stop:
                return  # the next block is not read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of it in memory. Text has no numbers before it is in a schema: each piece counts its own categories."""
        if self.binding is None and any(coding.kind != "number" for coding in next(self.pieces()).codings or ()):
            raise DataError(f"{self.reader.name} is not all numbers: use `for piece in stream.pieces()`")
        whole: Array = self[:, :]
        return whole if dtype is None else whole.astype(dtype)

    def __repr__(self) -> str:
        rows, width = self.shape
        return f"<Stream {self.reader.name}: {counted(rows, 'row')} x {counted(width, 'column')}>"


def _are_rows(numbers: Tensor, count: int) -> bool:
    """Whether these are numbers of rows in their order. Sorting them would take memory for each row."""
    if numbers.dtype != torch.int64 or numbers.ndim != 1 or not len(numbers):
        return False
    return bool(numbers[0] >= 0 and numbers[-1] < count and (numbers[1:] >= numbers[:-1]).all())


def sample_rows(stream: Stream, most: int) -> list[Table]:
    """Evenly spaced rows of a stream, at most this many, as tables."""
    step, start, parts = -(-len(stream) // most), 0, []
    for piece in stream.pieces():
        first = -start % step
        if first < len(piece):
            parts.append(piece.rows(slice(first, None, step)))
        start += len(piece)
    return parts


def say_stream(stream: Stream, what: str) -> None:
    """One line on standard error about what was made from a stream, and how."""
    print(f"circurve: {stream.reader.name}: {what}", file=sys.stderr)
