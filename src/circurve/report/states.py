"""The distributions of all columns with finitely many states at once: columns with the same states are one product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.model import Model
from circurve.queries.passes import Posterior
from circurve.queries.states import state_logs
from circurve.queries.target import Target

__all__ = ["StateTables", "state_counts", "table_bytes"]

STATE_BYTES = 24
"""Bytes of the probability of a state under a unit, in float64: as it is, and as its table is put together."""

COLUMN_BYTES = 64
"""Bytes of a state of a column: how often it occurs, how probable it is, and whether it is shown."""


def table_bytes(model: Model) -> int:
    """What tables of the states of all columns take, with the counts that they are compared with."""
    states = Target.of(model.program, model.params).states
    sizes = [0 if listed is None else len(listed) for listed in states]
    tables = sum(node.units * sizes[node.variable] for node in model.circuit.inputs)
    return STATE_BYTES * tables + COLUMN_BYTES * sum(sizes)


def state_counts(values: NDArray[np.float64], states: Sequence[int]) -> NDArray[np.int64]:  # (N,) -> (S,)
    """How many of the values are each state."""
    listed = np.asarray(states, dtype=np.float64)
    at = np.searchsorted(listed, values).clip(max=len(listed) - 1)
    return np.bincount(at[listed[at] == values], minlength=len(listed))


@dataclass(frozen=True)
class _Block:
    """Inputs of one layer whose columns have the same states."""

    layer: int
    groups: Tensor  # (g,) int64
    owner: Tensor  # (g,) int64, the place of each input's column in `columns`
    table: Tensor  # p(s | unit), (g, S, K)


@dataclass(frozen=True)
class StateTables:
    """What turns the flows of input units into probabilities of states; for the first run of a target."""

    blocks: tuple[tuple[tuple[int, ...], tuple[_Block, ...]], ...]
    """For each list of states: the columns that have it, and their inputs."""

    @classmethod
    def of(cls, target: Target) -> StateTables:
        """Tables of all columns with finitely many states."""
        alike: dict[Sequence[int], list[int]] = {}
        for column, states in enumerate(target.states):
            if states is not None:
                alike.setdefault(states, []).append(column)
        return cls(
            tuple((tuple(columns), tuple(_blocks(target, states, columns))) for states, columns in alike.items())
        )

    @torch.no_grad()
    def probabilities(self, found: Posterior) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Columns (c,), and p(x_v = s | e) of each, (c, S, N); only of use where they are not observed."""
        for columns, blocks in self.blocks:
            total: Tensor | None = None
            for block in blocks:
                flow = found.flows[block.layer][0].index_select(0, block.groups)  # (g, K, N)
                part = torch.bmm(block.table, flow).double()  # (g, S, N)
                if total is None:
                    total = part.new_zeros((len(columns), *part.shape[1:]))
                total.index_add_(0, block.owner, part)
            assert total is not None
            yield np.array(columns), (total / total.sum(1, keepdim=True)).cpu().numpy()


def _blocks(target: Target, states: Sequence[int], columns: list[int]) -> Iterator[_Block]:
    owner = {column: place for place, column in enumerate(columns)}
    for number, layer in enumerate(target.program.inputs):
        groups = [group for group, node in enumerate(layer.nodes) if node.variable in owner]
        if not groups:
            continue
        chosen = torch.tensor(groups, device=target.device)
        parameters = target.params.inputs[number][:1].index_select(1, chosen)  # (1, g, K, P)
        table = state_logs(layer.family, parameters, states)[0].exp().transpose(1, 2).contiguous()  # (g, S, K)
        owners = torch.tensor([owner[layer.nodes[group].variable] for group in groups], device=target.device)
        yield _Block(number, chosen, owners, table)
