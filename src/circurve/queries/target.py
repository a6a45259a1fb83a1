"""What a question is asked of: a compiled circuit with the parameters of R runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from circurve.budget import Need
from circurve.data.convert import Names, column_label
from circurve.engine import Backend, Params, Program, Reference, choose_backend
from circurve.engine.memory import MIN_FREE_BYTES
from circurve.inputs import Family
from circurve.inputs.family import same_values
from circurve.queries.descent import Descent
from circurve.queries.draws import DrawTables
from circurve.queries.recorded import Recorded
from circurve.queries.states import state_logs, union_of_states

__all__ = ["Place", "Target", "check_drawn"]


ALL = slice(None)


@dataclass(frozen=True)
class Place:
    """Where the input units of a column are: some groups of one input layer."""

    number: int
    """The position of the layer among the input layers."""

    family: Family
    groups: Tensor  # (g,) int64


@dataclass(frozen=True, eq=False)
class Target:
    """R runs of a program, and the backend for plain upward passes. What is derived from them is made once."""

    program: Program
    params: Params
    backend: Backend = field(repr=False)
    memory_budget: int | None = None
    """Bytes for what a query computes at once; None: a share of the free memory."""

    columns: Names = None
    """The columns' names, for messages."""

    first_run: int = 0
    """The number, in messages, of the first run: a part of a fleet keeps those of the whole."""

    @classmethod
    def of(cls, program: Program, params: Params) -> Target:
        """With the backend that suits the parameters best. They must not be changed in place afterwards."""
        return cls(program, params, choose_backend(program, params, fixed=True))

    @property
    def runs(self) -> int:
        """R."""
        return self.params.runs

    @property
    def variables(self) -> int:
        """V."""
        return self.program.circuit.variables

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.params.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the parameters."""
        return self.params.dtype

    @cached_property
    def reference(self) -> Reference:
        """The backend that gives flows."""
        return Reference.of(self.program, self.params)

    @cached_property
    def exact(self) -> Target:
        """The target in float64 with the reference backend: for differences that float32 would lose."""
        params = self.params.to(dtype=torch.float64)
        return Target(self.program, params, Reference.of(self.program, params), self.memory_budget, self.columns)

    @cached_property
    def descent(self) -> Descent:
        """The order of walks from the outputs down."""
        return Descent(self.program, self.device)

    @cached_property
    def draw_tables(self) -> DrawTables:
        """What draws without evidence come from."""
        return DrawTables.of(self.program, self.params)

    @cached_property
    def recorded_draws(self) -> Recorded:
        """Draws without evidence on a GPU."""
        return Recorded()

    @cached_property
    def places(self) -> tuple[tuple[Place, ...], ...]:
        """For each column, where its input units are."""
        found: list[list[Place]] = [[] for _ in range(self.variables)]
        for number, layer in enumerate(self.program.inputs):
            groups: dict[int, list[int]] = {}
            for group, node in enumerate(layer.nodes):
                groups.setdefault(node.variable, []).append(group)
            for column, members in groups.items():
                found[column].append(Place(number, layer.family, torch.tensor(members, device=self.device)))
        return tuple(tuple(places) for places in found)

    @cached_property
    def states(self) -> tuple[Sequence[int] | None, ...]:
        """For each column, all values that an input of it can take, in order; None if they are not finitely many."""
        found: list[Sequence[int] | None] = []
        for places in self.places:
            supports = [place.family.support() for place in places]
            finite = [support for support in supports if support is not None]
            found.append(union_of_states(finite) if len(finite) == len(supports) else None)
        return tuple(found)

    @cached_property
    def partial_layers(self) -> frozenset[int]:
        """The input layers whose families lack a value that another input of one of their columns takes."""
        return frozenset(
            place.number
            for states, places in zip(self.states, self.places, strict=True)
            for place in places
            if (support := place.family.support()) is not None and not same_values(support, states)
        )

    def label(self, column: int) -> str:
        """A column as messages call it."""
        return column_label(self.columns, column)

    def parameters(self, place: Place) -> Tensor:  # (R, g, K, P)
        """The parameters of a column's input units."""
        return self.params.inputs[place.number].index_select(1, place.groups)

    def state_logs(self, column: int, at: int, piece: slice = ALL) -> Tensor:  # (R, g, K, S)
        """log p of the states of a column with finitely many, or some of them, for the units at one of its places."""
        states, place = self.states[column], self.places[column][at]
        assert states is not None
        return state_logs(place.family, self.parameters(place), states[piece])


def check_drawn(target: Target, rows: int) -> None:
    """MemoryLimitError if this many rows, drawn and put into a frame, do not fit into memory."""
    size = 2 * 8 * target.runs * rows * target.variables
    if target.memory_budget is None and size <= MIN_FREE_BYTES["cpu"]:
        return
    Need("sample", {"rows": size}, "draw fewer rows at once").left(target.memory_budget)
