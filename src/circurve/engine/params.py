"""The parameters of a fleet of runs: one tensor for each layer, with a leading run axis R."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.program import Program

__all__ = ["SAFE_WEIGHT", "Params", "random_weights", "stack"]

SAFE_WEIGHT = 1e-16
"""A sum whose weights all reach this cannot underflow: the child with the largest value counts with at least that."""


@dataclass(frozen=True)
class Params:
    """Weights of the sum layers and parameters of the input layers, in the order of `Program`.

    weights: one (R, G, K, C) for each sum layer, each row of C on the simplex, zero where masked.
    inputs: one (R, G, K, P) for each input layer.
    """

    weights: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]

    @property
    def runs(self) -> int:
        """R, the number of runs side by side."""
        return int(self.inputs[0].shape[0])

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.inputs[0].device

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of the parameters."""
        return self.inputs[0].dtype

    def map(self, function: Callable[[Tensor], Tensor]) -> Params:
        """The same parameters with a function applied to every tensor."""
        return Params(tuple(function(w) for w in self.weights), tuple(function(p) for p in self.inputs))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Params:
        """The same parameters on another device or in another precision."""
        return self.map(lambda t: t.to(device=device, dtype=dtype))

    def clone(self) -> Params:
        """A copy that shares no memory."""
        return self.map(torch.clone)

    def select(self, runs: Sequence[int]) -> Params:
        """The chosen runs, copied."""
        index = torch.as_tensor(list(runs), device=self.device)
        return self.map(lambda t: t.index_select(0, index))

    def may_underflow(self, program: Program | None = None) -> bool:
        """Whether some weight is so small, or zero, that a sum could lose all its children to rounding.

        With the program, edges that its masks leave out do not count.
        """
        masks = [None] * len(self.weights) if program is None else [layer.mask for layer in program.sums]
        return any(
            bool((w < SAFE_WEIGHT if mask is None else w[:, torch.from_numpy(mask)] < SAFE_WEIGHT).any())
            for w, mask in zip(self.weights, masks, strict=True)
        )


def stack(parts: Iterable[Params]) -> Params:
    """Several fleets as one, along the run axis."""
    listed = list(parts)
    weights = zip(*(p.weights for p in listed), strict=True)
    inputs = zip(*(p.inputs for p in listed), strict=True)
    return Params(tuple(torch.cat(w) for w in weights), tuple(torch.cat(p) for p in inputs))


def random_weights(program: Program, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Positive random weights on the simplex for one run, float64, (1, G, K, C) for each sum layer.

    theta ~ exp(u) with u uniform in [0, 1), normalised: the inputs break the symmetry between units, and a narrow
    spread of weights gave the most even results over seeds.
    """
    weights = []
    for layer in program.sums:
        draw = torch.rand(1, *layer.shape, generator=generator, dtype=torch.float64)
        weight = draw.exp_()
        if layer.mask is not None:
            weight *= torch.from_numpy(layer.mask)
        weights.append(weight / weight.sum(-1, keepdim=True))
    return tuple(weights)
