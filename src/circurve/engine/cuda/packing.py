"""Edges of all sum layers in a few tensors: one for each number of children, so that one launch computes many
layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from circurve.engine.program import Program

__all__ = ["ALIGN", "Pack", "Packing"]

ALIGN = 16
"""Rows have a multiple of this many numbers: loads of 16 bytes, aligned."""


@dataclass(frozen=True)
class Pack:
    """All sum units with C children, M of them: tensors are (R, M, W), with W - C zeros at the end of each row."""

    children: int
    layers: tuple[int, ...]
    starts: tuple[int, ...]
    """The first unit of each layer within the pack."""

    units: np.ndarray = field(repr=False)  # (M,), the number of each unit among all sum units of the circuit

    @property
    def size(self) -> int:
        """M."""
        return len(self.units)

    @property
    def width(self) -> int:
        """W, a multiple of ALIGN: rows can be read 16 bytes at a time."""
        return -(-self.children // ALIGN) * ALIGN


class Packing:
    """The place of the edges of each sum layer."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.starts = program.unit_starts
        sizes = np.diff(self.starts)
        by_children: dict[int, list[int]] = {}
        for number, layer in enumerate(program.sums):
            by_children.setdefault(layer.child_units, []).append(number)
        self.packs = []
        self.place: dict[int, tuple[int, int]] = {}  # layer -> (pack, first unit)
        for at, (children, layers) in enumerate(by_children.items()):
            begins = np.cumsum([0, *(sizes[number] for number in layers)])[:-1]
            units = np.concatenate([np.arange(self.starts[n], self.starts[n + 1]) for n in layers])
            self.packs.append(Pack(children, tuple(layers), tuple(int(b) for b in begins), units))
            for number, begin in zip(layers, begins, strict=True):
                self.place[number] = (at, int(begin))

    @property
    def units(self) -> int:
        """All sum units."""
        return self.program.units

    def zeros(self, runs: int, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
        """One tensor (R, M, W) for each pack."""
        return [torch.zeros(runs, p.size, p.width, device=device, dtype=dtype) for p in self.packs]

    def empty(self, runs: int, device: torch.device, dtype: torch.dtype) -> list[Tensor]:
        """Uninitialised tensors, for kernels that write whole rows."""
        return [torch.empty(runs, p.size, p.width, device=device, dtype=dtype) for p in self.packs]

    def layers(self, packed: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Views (R, G, K, C), one for each sum layer."""
        views = []
        for number, layer in enumerate(self.program.sums):
            g, k, c = layer.shape
            at, begin = self.place[number]
            views.append(packed[at][:, begin : begin + g * k].view(-1, g, k, packed[at].shape[2])[..., :c])
        return tuple(views)

    def unit_layers(self, units: Tensor) -> tuple[Tensor, ...]:  # (R, M)
        """Views (R, G, K), one for each sum layer."""
        views = []
        for number, layer in enumerate(self.program.sums):
            part = units[:, int(self.starts[number]) : int(self.starts[number + 1])]
            views.append(part.reshape(-1, *layer.shape[:2]))
        return tuple(views)
