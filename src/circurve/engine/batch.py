"""Samples as the passes read them: columns first, missing values filled and marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from circurve.data import Table

__all__ = ["Batch", "Samples"]


@dataclass(frozen=True)
class Batch:
    """N samples for each run, or the same N samples for all runs (then the leading axis is 1)."""

    x: Tensor  # (R or 1, V, N)
    observed: Tensor | None  # like x, 1 where a value is present
    weights: Tensor | None  # (R or 1, N), at least zero
    labels: Tensor | None  # (R or 1, N), which output each sample belongs to
    key: object | None = None
    """Batches with the same key hold the same samples: what was prepared for one serves the other."""

    @property
    def size(self) -> int:
        """N."""
        return int(self.x.shape[-1])

    def parts(self, size: int) -> Iterator[Batch]:
        """The same samples, at most `size` at a time."""
        for start in range(0, self.size, size):
            part = (..., slice(start, start + size))
            fields = (self.x, self.observed, self.weights, self.labels)
            x, *others = (None if field is None else field[part] for field in fields)
            assert x is not None
            yield Batch(x, *others)


@dataclass(frozen=True)
class Samples:
    """A checked table on a device, with the weights and labels of its rows."""

    values: Tensor  # (N, V), integers with -1 for missing, or floats with NaN
    has_missing: bool
    weights: Tensor | None  # (N,)
    labels: Tensor | None  # (N,)
    dtype: torch.dtype
    token: object = field(default_factory=object, repr=False)

    @classmethod
    def of(
        cls,
        table: Table,
        device: torch.device,
        dtype: torch.dtype,
        weights: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Samples:
        """Move a table to the device once; batches are then cut from it there."""
        return cls(
            table.values.to(device),
            table.has_missing,
            None if weights is None else weights.to(device, dtype),
            None if labels is None else labels.to(device),
            dtype,
        )

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __add__(self, other: Samples) -> Samples:
        """The rows of both; a table without weights counts each of its rows once."""
        weights = None
        if self.weights is not None or other.weights is not None:
            parts = [
                part.values.new_ones(len(part), dtype=part.dtype) if part.weights is None else part.weights
                for part in (self, other)
            ]
            weights = torch.cat(parts)
        labels = None if self.labels is None or other.labels is None else torch.cat([self.labels, other.labels])
        values = torch.cat([self.values, other.values])
        return Samples(values, self.has_missing or other.has_missing, weights, labels, self.dtype)

    def rows(self, start: int, stop: int) -> Batch:
        """Consecutive rows, the same for all runs."""
        return replace(self._part(slice(start, stop)), key=(self.token, start, stop))

    def _part(self, part: slice) -> Batch:
        return self._batch(
            self.values[part].unsqueeze(0),
            None if self.weights is None else self.weights[part].unsqueeze(0),
            None if self.labels is None else self.labels[part].unsqueeze(0),
        )

    def pick(self, index: Tensor) -> Batch:  # (R, N)
        """Chosen rows, other ones for each run."""
        return self._batch(
            self.values[index],
            None if self.weights is None else self.weights[index],
            None if self.labels is None else self.labels[index],
        )

    def _batch(self, values: Tensor, weights: Tensor | None, labels: Tensor | None) -> Batch:
        columns = values.transpose(1, 2)  # (R or 1, V, N)
        observed = None
        if self.has_missing:
            present = ~columns.isnan() if columns.is_floating_point() else columns >= 0
            observed = present.to(self.dtype)
            columns = torch.where(present, columns, torch.zeros((), dtype=columns.dtype, device=columns.device))
        x = columns.to(self.dtype, memory_format=torch.contiguous_format)
        return Batch(x, observed, weights, labels)
