"""Mixtures of latent trees: recognised in a program, and taken apart into their members.

A circuit is a mixture of latent trees if its root is a sum over the roots of latent trees that share no node. Members
may have different trees and different numbers of units. Members that are *alike*, with the same tree over the same
families, are computed together, as the runs of one fleet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.compiler import compile
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.tree.layout import TreeLayout, places, tree_layout
from circurve.graph import Circuit, Node, Sum

__all__ = ["AlikeMembers", "MixtureLayout", "Place", "mixture_layout"]


@dataclass(frozen=True)
class Place:
    """Where the nodes of a layer of M members are in the program of the mixture."""

    layer: int
    """Among its sum layers, or among its input layers."""

    positions: Tensor  # member by member, (M G,)


@dataclass(frozen=True)
class AlikeMembers:
    """M members with the same tree. Run r of member m is run r M + m of their fleet."""

    program: Program
    """The program of each member."""

    layout: TreeLayout
    sums: tuple[Place, ...]
    inputs: tuple[Place, ...]
    columns: Tensor  # the units of their roots among the child units of the mixture's root, (M outputs,)

    @property
    def count(self) -> int:
        """M."""
        return len(self.columns) // self.layout.outputs

    def params(self, params: Params) -> Params:
        """Their parameters as those of a fleet, from the parameters of the mixture."""

        def taken(tensor: Tensor, place: Place) -> Tensor:  # (R, all groups, ...) -> (R M, G, ...)
            chosen = tensor.index_select(1, place.positions)
            return chosen.view(len(tensor) * self.count, -1, *tensor.shape[2:])

        return Params(
            tuple(taken(params.weights[place.layer], place) for place in self.sums),
            tuple(taken(params.inputs[place.layer], place) for place in self.inputs),
        )

    def batch(self, batch: Batch) -> Batch:
        """The samples for each run of their fleet."""
        if self.count == 1:
            return batch
        fields = (self.by_run(field) for field in (batch.x, batch.observed, batch.weights))
        x, observed, weights = fields
        assert x is not None
        return replace(batch, x=x, observed=observed, weights=weights, key=batch.key if x is batch.x else None)

    def by_run(self, field: Tensor | None) -> Tensor | None:  # (R or 1, ...) -> (R M or 1, ...)
        """What all members of a run share, for each of them; what all runs share stays as it is."""
        return field if field is None or len(field) == 1 else field.repeat_interleave(self.count, dim=0)


@dataclass(frozen=True)
class MixtureLayout:
    """A program as a mixture of latent trees."""

    root: int
    """The sum layer that holds the mixture's root alone."""

    groups: tuple[AlikeMembers, ...]

    @property
    def members(self) -> int:
        """How many trees are mixed."""
        return sum(group.count for group in self.groups)


def mixture_layout(program: Program) -> MixtureLayout | None:
    """The members of a program, or None if it is no mixture of latent trees."""
    nodes, roots = program.circuit.nodes, program.circuit.roots
    root = roots[0]
    if len(roots) > 1 or not isinstance(root, Sum) or root.mask is not None:
        return None
    if not all(isinstance(child, Sum) for child in root.children):
        return None
    if max(Counter(child for node in nodes for child in node.children).values()) > 1:
        return None
    alike: list[list[_Member]] = []
    column = 0
    for child in root.children:
        program_of_child = compile(Circuit(child))
        layout = tree_layout(program_of_child)
        if layout is None:
            return None
        member = _Member(program_of_child, layout, tuple(range(column, column + child.units)))
        column += child.units
        same = next((members for members in alike if members[0].is_like(member)), None)
        if same is None:
            alike.append([member])
        else:
            same.append(member)
    place = places(program)
    return MixtureLayout(place[root][0], tuple(_group(members, place) for members in alike))


@dataclass(frozen=True)
class _Member:
    program: Program
    layout: TreeLayout
    columns: tuple[int, ...]

    def is_like(self, other: _Member) -> bool:
        mine, others = ([(layer.family, layer.shape) for layer in p.inputs] for p in (self.program, other.program))
        return mine == others and self.layout == other.layout


def _group(members: Sequence[_Member], place: Mapping[Node, tuple[int, int]]) -> AlikeMembers:
    def found(layers: Iterable[tuple[Node, ...]]) -> Place:
        listed = [place[node] for nodes in layers for node in nodes]
        assert len({layer for layer, _ in listed}) == 1, "layers of a member are parts of layers of the mixture"
        return Place(listed[0][0], torch.tensor([position for _, position in listed]))

    programs = [member.program for member in members]
    first = programs[0]
    return AlikeMembers(
        first,
        members[0].layout,
        tuple(found(p.sums[number].nodes for p in programs) for number in range(len(first.sums))),
        tuple(found(p.inputs[number].nodes for p in programs) for number in range(len(first.inputs))),
        torch.tensor([column for member in members for column in member.columns]),
    )
