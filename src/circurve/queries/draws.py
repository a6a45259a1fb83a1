"""Draws from tables of probabilities: one search for each draw, whatever the number of entries in a row.

The cumulative probabilities of row i of a table are shifted by i, so that all rows lie on one increasing line, and a
draw from row i is the first entry above i + u with u uniform in [0, 1). Entries of probability zero are never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["RowTable", "uniform"]

LARGEST_UNIFORM = 1 - 2.0**-30
"""Uniform numbers end here: with up to 2^22 rows, i + u is then below i + 1 in float64 too."""


def uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Uniform numbers from 0 to LARGEST_UNIFORM, float64, on the generator's device."""
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
    return drawn.clamp_max_(LARGEST_UNIFORM)


@dataclass(frozen=True)
class RowTable:
    """Distributions over C entries for each unit of a layer, ready to be drawn from."""

    line: Tensor  # shifted cumulative probabilities, (R G K C,) float64; for C = 2 the first probability, (R G K,)
    shape: tuple[int, int, int, int]  # (R, G, K, C)

    @classmethod
    def of(cls, weights: Tensor) -> RowTable:  # (R, G, K, C), at least zero
        """Rows need not sum to one; a row of zeros counts as uniform."""
        r, g, k, c = weights.shape
        sums = weights.reshape(-1, c).cumsum(-1, dtype=torch.float64)
        total = sums[:, -1:]
        steps = torch.arange(1, c + 1, dtype=torch.float64, device=weights.device) / c
        share = torch.where(total > 0, sums / total, steps)
        if c == 2:
            return cls(share[:, 0].contiguous(), (r, g, k, c))
        shift = torch.arange(len(share), dtype=torch.float64, device=weights.device)
        return cls(share.add_(shift.unsqueeze(1)).flatten(), (r, g, k, c))

    def draw(
        self, units: Tensor, draws: Tensor
    ) -> Tensor:  # (R, G, N) int64, (R or B, G, N) uniform -> (R, G, N) int64
        """An entry of the row of each unit. `draws` repeats along the first axis."""
        r, g, k, c = self.shape
        if c == 1:
            return torch.zeros_like(units)
        first = torch.arange(0, r * g * k, k, device=units.device).reshape(r, g, 1)
        rows = units + first
        given = draws if draws.shape[0] == r else draws.repeat(r // draws.shape[0], 1, 1)
        if c == 2:
            return (given >= self.line[rows]).long()
        return torch.searchsorted(self.line, given + rows, right=True).sub_(rows.mul_(c))
