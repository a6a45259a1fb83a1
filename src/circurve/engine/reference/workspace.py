"""Where the passes of the reference backend write: memory that every batch uses again, or new tensors.

Both kinds of memory have the same methods, which give the `out=` arguments of torch functions. Those of `FRESH` are
None, and torch then makes a new tensor, which autograd can differentiate and a caller can keep.
New memory costs a CPU a page fault for every 4 kB, which takes about as long as the arithmetic on 4 kB of numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from circurve.engine.program import Space, SumLayer

__all__ = ["FRESH", "Fresh", "Memory", "Rows", "SumPlaces", "Workspace"]


@dataclass(frozen=True)
class Rows:
    """The rows of a space for N samples, by block."""

    blocks: dict[int, Tensor] = field(default_factory=dict)  # (R, rows, N) each
    matrix: Tensor | None = None  # all blocks one below the other, (R x rows, N), if they are in a workspace
    _places: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def place(self, block: int, *shape: int) -> Tensor | None:  # (R, *shape, N)
        """Memory for a block, to be passed as `out=`."""
        if self.matrix is None:
            return None
        if block not in self._places:
            rows = self.blocks[block]
            self._places[block] = rows.view(rows.shape[0], *shape, rows.shape[-1])
        return self._places[block]

    def put(self, block: int, value: Tensor) -> None:  # (R, ..., N)
        """Make `value` the block; it is copied only if it was not written to the block's place."""
        if self.matrix is None:
            self.blocks[block] = value if value.dim() == 3 else value.flatten(1, -2)
        elif value is not self._places.get(block):
            rows = self.blocks[block]
            rows.copy_(value.reshape(rows.shape))


@dataclass(frozen=True)
class SumPlaces:
    """Memory for the values of a sum layer, to be passed as `out=`."""

    elements: Tensor | None = None  # (R, G, C, N)
    sums: Tensor | None = None  # (R, G, K, N)
    log_value: Tensor | None = None  # (R, G, K, N)


class Fresh:
    """New memory for every tensor."""

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> None:
        """None: torch makes a new tensor."""

    def rows(self, name: str, space: Space, samples: int) -> Rows:
        """An empty table of blocks."""
        return Rows()

    def sum_places(self, layer: SumLayer, number: int, values: Rows) -> SumPlaces:
        """No memory."""
        return NO_PLACES


FRESH, NO_PLACES = Fresh(), SumPlaces()


class Workspace:
    """Memory by name, for R runs. A tensor is valid until the next one of its name is taken."""

    def __init__(self, runs: int, device: torch.device, dtype: torch.dtype) -> None:
        self.runs, self.device, self.dtype = runs, device, dtype
        self._memory: dict[str, Tensor] = {}  # flat
        # by name and shape; kept, since a view costs like a small operation
        self._views: dict[str, dict[tuple[int, ...], Tensor]] = {}
        self._rows: dict[str, Rows] = {}
        self._sums: dict[int, SumPlaces] = {}
        self._samples, self._backward = 0, False

    @property
    def bytes(self) -> int:
        """The size of all memory."""
        return sum(memory.nbytes for memory in self._memory.values())

    def begin(self, samples: int, backward: bool) -> Workspace:
        """Get ready for a pass over `samples` samples: everything that was taken before becomes invalid.

        `backward`: what a downward pass needs is kept; without it all sum layers share memory.
        """
        if (samples, backward) != (self._samples, self._backward):
            self._samples, self._backward = samples, backward
            self._views, self._rows, self._sums = {}, {}, {}
        return self

    def take(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor of this shape with undefined content; a name has one dtype."""
        views = self._views.setdefault(name, {})
        found = views.get(shape)
        if found is None:
            size = math.prod(shape)
            if name not in self._memory or self._memory[name].numel() < size:
                views.clear()
                self._memory.pop(name, None)  # give it back before more is taken
                with torch.inference_mode(False):  # else it could not be written to outside of inference mode
                    self._memory[name] = torch.empty(size, device=self.device, dtype=dtype or self.dtype)
            found = views[shape] = self._memory[name][:size].view(shape)
        return found

    def rows(self, name: str, space: Space, samples: int) -> Rows:
        """All blocks of a space in one matrix."""
        if name not in self._rows:
            matrix = self.take(name, space.rows * self.runs, samples)
            parts = torch.split(matrix, (space.sizes * self.runs).tolist())
            blocks = {number: rows.view(self.runs, -1, samples) for number, rows in enumerate(parts)}
            self._rows[name] = Rows(blocks, matrix)
        return self._rows[name]

    def sum_places(self, layer: SumLayer, number: int, values: Rows) -> SumPlaces:
        """Memory for sum layer `number`."""
        if number not in self._sums:
            g, k, c = layer.shape
            which = f" {number}" if self._backward else ""
            elements = self.take("elements" + which, self.runs, g, c, self._samples)
            sums = self.take("sums" + which, self.runs, g, k, self._samples)
            self._sums[number] = SumPlaces(elements, sums, values.place(layer.block, g, k))
        return self._sums[number]


Memory: TypeAlias = Fresh | Workspace
