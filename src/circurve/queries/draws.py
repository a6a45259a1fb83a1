"""Draws from tables of probabilities: one search for each draw, whatever the number of entries in a row.

The cumulative probabilities of row i of a table are shifted by i, so that all rows form one increasing sequence, and a
draw from row i is the first entry above i + u with u uniform in [0, 1). Entries of probability zero are never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine import Params, Program
from circurve.engine.states import leaf_inputs
from circurve.inputs.family import counts_from_zero
from circurve.queries.states import state_logs

__all__ = ["DrawTables", "RowTable", "Uniforms", "uniform_numbers"]

MAX_TABLE_STATES = 1024
"""Inputs with more states draw by their family's own method."""

LARGEST_UNIFORM = 1 - 2.0**-30
"""Uniform numbers end here: with up to 2^22 rows, i + u is then below i + 1 in float64 too."""


def uniform_numbers(copies: int, groups: int, rows: int, generator: torch.Generator) -> Tensor:  # (B, groups, N)
    """Uniform numbers from 0 to LARGEST_UNIFORM, float64, for all layers of a walk."""
    shape = (copies, groups, rows)
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
    return drawn.clamp_max_(LARGEST_UNIFORM)


class Uniforms:
    """`uniform_numbers`, handed out layer by layer."""

    def __init__(self, drawn: Tensor) -> None:  # (B, groups of all layers, N)
        self._drawn, self._taken = drawn, 0

    def take(self, groups: int) -> Tensor:  # (B, groups, N)
        """The next ones."""
        self._taken += groups
        return self._drawn[:, self._taken - groups : self._taken]


@dataclass(frozen=True)
class RowTable:
    """Distributions over C entries for each unit of a layer, ready to be drawn from."""

    line: Tensor  # shifted cumulative probabilities, (R G K C,) float64; for C = 2 the first probability, (R G K,)
    first: Tensor  # the first row of each group, (R, G, 1) int64
    entries: int  # C

    @classmethod
    def of(cls, weights: Tensor) -> RowTable:  # (R, G, K, C), at least zero
        """Rows need not sum to one; a row of zeros counts as uniform."""
        r, g, k, c = weights.shape
        sums = weights.reshape(-1, c).cumsum(-1, dtype=torch.float64)
        total = sums[:, -1:]
        steps = torch.arange(1, c + 1, dtype=torch.float64, device=weights.device) / c
        share = torch.where(total > 0, sums / total, steps)
        first = torch.arange(0, r * g * k, k, device=weights.device).reshape(r, g, 1)
        if c == 2:
            return cls(share[:, 0].contiguous(), first, c)
        shift = torch.arange(len(share), dtype=torch.float64, device=weights.device)
        return cls(share.add_(shift.unsqueeze(1)).flatten(), first, c)

    def draw(
        self, units: Tensor, draws: Tensor
    ) -> Tensor:  # (R, G, N) int64, (R or B, G, N) uniform -> (R, G, N) int64
        """An entry of the row of each unit. `draws` repeats along the first axis."""
        c, runs = self.entries, len(self.first)
        if c == 1:
            return torch.zeros_like(units)
        rows = units + self.first
        given = draws if len(draws) == runs else draws.repeat(runs // len(draws), 1, 1)
        if c == 2:
            return (given >= self.line[rows]).long()
        return torch.searchsorted(self.line, given + rows, right=True).sub_(rows, alpha=c)


@dataclass(frozen=True)
class DrawTables:
    """All that is drawn from, for R x B sets of parameters: of each run, B tilted by one row of evidence each."""

    sums: tuple[RowTable | None, ...]  # None: the sums draw the state of their input
    inputs: tuple[RowTable | None, ...]  # of states; None: drawn by the family
    states: tuple[Tensor | None, ...]  # of each input layer, (S,); None where they are 0, 1, 2, ...
    parameters: tuple[Tensor, ...]  # (R B, G, K, P)
    leaves: dict[int, int]  # number of a sum layer -> of the input layer whose states it draws
    copies: int  # B

    @classmethod
    def of(cls, program: Program, params: Params, copies: int = 1, collapse: bool = True) -> DrawTables:
        """Tables for the sums and inputs; `collapse` draws states through the sums right above inputs."""
        inputs = state_probabilities(program, params)
        blocks = leaf_inputs(program) if collapse else {}
        numbers = {number: blocks[layer.block] for number, layer in enumerate(program.sums) if layer.block in blocks}
        leaves = {number: at for number, at in numbers.items() if inputs[at] is not None}
        for number, at in leaves.items():
            states = inputs[at]
            assert states is not None
            inputs[at] = torch.matmul(params.weights[number], states)
        sums = [None if number in leaves else RowTable.of(w) for number, w in enumerate(params.weights)]
        tables = (None if states is None else RowTable.of(states) for states in inputs)
        return cls(tuple(sums), tuple(tables), _state_values(program, params), params.inputs, leaves, copies)

    @classmethod
    def of_inputs(cls, program: Program, params: Params) -> DrawTables:
        """Tables for the inputs alone."""
        found = state_probabilities(program, params)
        tables = (None if states is None else RowTable.of(states) for states in found)
        return cls((), tuple(tables), _state_values(program, params), params.inputs, {}, 1)

    @property
    def complete(self) -> bool:
        """Whether all inputs are drawn from tables."""
        return all(table is not None for table in self.inputs)


def _state_values(program: Program, params: Params) -> tuple[Tensor | None, ...]:  # (S,) int64 each
    supports = [layer.family.support() for layer in program.inputs]
    plain = [support is None or counts_from_zero(support) for support in supports]
    return tuple(
        None if as_they_are else torch.tensor(support, device=params.device)
        for support, as_they_are in zip(supports, plain, strict=True)
    )


def state_probabilities(program: Program, params: Params) -> list[Tensor | None]:  # (R B, G, K, S) each
    """The probability of each state for the units of each input layer; None if there are too many states."""
    found: list[Tensor | None] = []
    for layer, parameters in zip(program.inputs, params.inputs, strict=True):
        support = layer.family.support()
        few = support is not None and len(support) <= MAX_TABLE_STATES
        found.append(state_logs(layer.family, parameters, support).exp() if few and support is not None else None)
    return found
