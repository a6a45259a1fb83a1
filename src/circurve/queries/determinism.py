"""Whether the child units of every sum exclude each other: then the largest term of a sum is the whole sum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.engine import by_node
from circurve.engine.numerics import IMPOSSIBLE
from circurve.graph import Input, Node, Product, Sum
from circurve.inputs import Binomial
from circurve.queries.states import state_logs, union_of_states
from circurve.queries.target import Target

__all__ = ["deterministic_runs"]

Support = NDArray[np.bool_]
"""Which states of each column a unit allows, (units, V, S); a column without finitely many states allows all."""


def deterministic_runs(target: Target) -> Tensor:  # (R,) bool
    """For each run, whether no row has two child units of a sum with positive weight and positive value.

    A sufficient test: two units exclude each other if there is a column in which they allow no common state. It stops
    at the first pair of units that no column tells apart.
    """
    known = [_is_deterministic(target, run) for run in range(target.runs)]
    return torch.tensor(known, device=target.device)


def _is_deterministic(target: Target, run: int) -> bool:
    circuit = target.program.circuit
    states = [None if known is None else _telling(target, column) for column, known in enumerate(target.states)]
    widest = max((len(listed) for listed in states if listed is not None), default=1)
    parameters = by_node(target.program, target.params, run)
    support: dict[Node, Support] = {}
    for node in circuit.nodes:
        if isinstance(node, Input):
            support[node] = _input_support(target, node, parameters[node], (states[node.variable], widest))
        elif isinstance(node, Product):
            support[node] = _product_support(node, [support[child] for child in node.children])
        else:
            below = np.concatenate([support[child] for child in node.children])  # (C, V, S)
            weights = parameters[node].cpu().numpy() > 0
            if not _exclusive(node, weights, below):
                return False
            support[node] = np.stack([below[row].any(0) for row in weights])
    return True


def _telling(target: Target, column: int) -> Sequence[int]:
    """States of a column that tell its units apart: two units that allow a common state allow one of these.

    A binomial allows all its states, or only the first or the last.
    """
    supports: list[Sequence[int]] = []
    for place in target.places[column]:
        support = place.family.support()
        assert support is not None
        supports.append((support[0], support[-1]) if isinstance(place.family, Binomial) else support)
    if all(isinstance(place.family, Binomial) for place in target.places[column]):
        return tuple(sorted(set().union(*supports)))
    return union_of_states(supports)


def _input_support(
    target: Target, node: Input, parameters: Tensor, listed: tuple[Sequence[int] | None, int]
) -> Support:
    states, widest = listed
    found = np.zeros((node.units, target.variables, widest), dtype=np.bool_)
    if states is None:
        found[:, node.variable] = True
    else:
        logs = state_logs(node.family, parameters[None, None], states)[0, 0]  # (K, S)
        found[:, node.variable, : len(states)] = (logs > IMPOSSIBLE).cpu().numpy()
    return found


def _product_support(node: Product, below: Sequence[Support]) -> Support:
    found = np.zeros((node.units, *below[0].shape[1:]), dtype=np.bool_)
    for child, select in zip(below, node.select, strict=True):
        found |= child if select is None else child[select]
    return found


def _exclusive(node: Sum, weights: NDArray[np.bool_], below: Support) -> bool:  # (K, C), (C, V, S)
    """Whether every two children of positive weight have a column with disjoint states.

    A column outside of the sum's scope allows no state at all, and tells nothing apart.
    """
    scope = below[0].any(1)  # (V,)
    for row in weights:
        used = below[row][:, scope]  # (c, v, S)
        for at in range(len(used) - 1):
            common = (used[at] & used[at + 1 :]).any(2)  # (others, v)
            if bool(common.all(1).any()):
                return False
    return True
