"""Samples as the passes read them: columns first, missing values filled and marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.data import RowSource, Table

__all__ = ["Batch", "chunks"]


@dataclass(frozen=True)
class Batch:
    """N samples for each run, or the same N samples for all runs (then the leading axis is 1)."""

    x: Tensor  # (R or 1, V, N)
    observed: Tensor | None  # like x, 1 where a value is present
    weights: Tensor | None  # (R or 1, N), at least zero
    labels: Tensor | None  # (R or 1, N), which output each sample belongs to
    key: object | None = None
    """Batches with the same key (by identity) hold the same samples, and work on them may be skipped; None: nothing is
    known. A batch made from another by changing its samples must not keep the key."""

    @property
    def size(self) -> int:
        """N."""
        return int(self.x.shape[-1])

    @classmethod
    def rows(cls, source: RowSource, start: int, stop: int, dtype: torch.dtype) -> Batch:
        """Consecutive rows of a checked source, the same for all runs. The key of all rows is the source."""
        key = source if (start, stop) == (0, len(source)) else None
        return cls._cut(*source.span(start, stop), dtype, key)

    @classmethod
    def pick(cls, source: RowSource, index: Tensor, dtype: torch.dtype) -> Batch:  # (R, N)
        """Chosen rows of a checked source, other ones for each run."""
        return cls._cut(*source.take(index), dtype, None)

    @classmethod
    def _cut(cls, table: Table, part: slice | Tensor, dtype: torch.dtype, key: object | None) -> Batch:
        if table.schema is None:
            raise ValueError("batches are cut from a table that circurve.data.check has checked")

        def by_run(field: Tensor) -> Tensor:  # (N, ...) -> (R or 1, N, ...)
            return field[part].unsqueeze(0) if isinstance(part, slice) else field[part]

        def columns_first(field: Tensor) -> Tensor:  # (N, V) -> (R or 1, V, N)
            return by_run(field).transpose(1, 2).to(dtype, memory_format=torch.contiguous_format)

        return cls(
            columns_first(table.values),
            None if table.observed is None else columns_first(table.observed),
            None if table.weights is None else by_run(table.weights).to(dtype),
            None if table.labels is None else by_run(table.labels),
            key,
        )

    def parts(self, size: int) -> Iterator[Batch]:
        """The samples in batches of at most `size`."""
        for start in range(0, self.size, size):
            part = (..., slice(start, start + size))
            fields = (self.x, self.observed, self.weights, self.labels)
            x, *others = (None if field is None else field[part] for field in fields)
            assert x is not None
            yield Batch(x, *others)


def chunks(source: RowSource, size: int, dtype: torch.dtype, rows: range | None = None) -> Iterator[Batch]:
    """Rows in order, at most `size` at a time, in parts as even as can be: buffers then keep their shape.

    rows: consecutive ones; None is all of them.
    """
    chosen = range(len(source)) if rows is None else rows
    parts = -(-len(chosen) // size)
    even = -(-len(chosen) // max(parts, 1))
    for start in range(chosen.start, chosen.stop, max(even, 1)):
        yield Batch.rows(source, start, min(start + even, chosen.stop), dtype)
