"""Inputs with few states, and sums directly over one of them: computed once for each state instead of for each sample.

In a hidden Chow-Liu tree every leaf is such a sum, about half of all nodes. Its value depends on the sample only
through the state of one variable, so E, S and log p are tables with a column for each state (and one for "missing",
where every child has probability 1), and a sample picks a column. Backwards, flow is added up by state first. With B_ks
the flow of unit k in state s, B2_ks its square and w_s the weight of the samples in that state,

    N_kc = theta_kc sum_s B_ks E_cs / S_ks          t_k = sum_s w_s q_s / S_ks^2        T_k = sum_s B2_ks q_s / S_ks^2

and the flow that reaches child c in state s is E_cs sum_k theta_kc B_ks / S_ks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.program import Program
from circurve.inputs import Family, Indicator
from circurve.inputs.common import tensor_of

__all__ = [
    "StateSums",
    "StateTable",
    "has_few_states",
    "leaf_inputs",
    "padded_sum",
    "state_logs",
    "state_statistics",
]

MAX_STATES = 16
"""Families with more values than this are not worth a table."""


def has_few_states(family: Family) -> bool:
    """True if data hold only a few known values. An Indicator's data may hold values that none of its units names."""
    support = None if isinstance(family, Indicator) else family.support()
    return support is not None and len(support) <= MAX_STATES


def leaf_inputs(program: Program) -> dict[int, int]:
    """Block of a sum layer -> number of the input layer that it can be tabulated over."""
    inputs = {layer.block: number for number, layer in enumerate(program.inputs)}
    found = {}
    for layer in program.sums:
        one_input_each = all(len(node.children) == 1 for node in layer.nodes)
        if not (layer.owns_children and one_input_each) or layer.mask is not None:
            continue
        block = int(program.values.block_of(layer.children.columns[0].sources[:1])[0])
        if block in inputs and has_few_states(program.inputs[inputs[block]].family):
            found[layer.block] = inputs[block]
    return found


def state_logs(family: Family, parameters: Tensor, missing: bool) -> Tensor:  # (R, G, K, P) -> (R, G, K, S)
    """log p of each state; a last column of zeros is for a missing value."""
    support = family.support()
    assert support is not None
    states = tensor_of(support, parameters).expand(1, parameters.shape[1], -1)
    return torch.nn.functional.pad(family.log_prob(parameters, states), (0, int(missing)))


def state_statistics(family: Family, flow: Tensor) -> Tensor:  # (R, G, K, states)
    """Sufficient statistics of an input layer from its flow by state (R, G, K, S, the last perhaps "missing")."""
    support = family.support()
    assert support is not None
    states = tensor_of(support, flow).expand(1, flow.shape[1], -1)
    features = family.features(states, None)  # (1, G, features, S without missing)
    seen = flow[..., : len(support)].to(features.dtype)
    return torch.matmul(seen, features.expand(seen.shape[0], -1, -1, -1).transpose(-1, -2))


@dataclass(frozen=True)
class StateSums:
    """Sums over samples by state, for sums over one input each."""

    flow: Tensor  # B, (R, G, K, S)
    square: Tensor | None = None  # B2, (R, G, K, S)
    weight: Tensor | None = None  # w, (R, G, 1, S)

    def __add__(self, other: StateSums) -> StateSums:
        """Sums of data with and without missing values differ in the last column."""
        pairs = ((self.flow, other.flow), (self.square, other.square), (self.weight, other.weight))
        flow, *others = (None if a is None or b is None else padded_sum(a, b) for a, b in pairs)
        assert flow is not None
        return StateSums(flow, *others)


def padded_sum(a: Tensor, b: Tensor) -> Tensor:
    """a + b, where one of them may lack the last columns."""
    width = max(a.shape[-1], b.shape[-1])
    a, b = (p if p.shape[-1] == width else torch.nn.functional.pad(p, (0, width - p.shape[-1])) for p in (a, b))
    return a + b


@dataclass(frozen=True)
class StateTable:
    """The columns of some sums for each state of their variables; the last one is "missing" if anything is."""

    elements: Tensor  # E, (R, G, C, S)
    sums: Tensor  # S = W E, (R, G, K, S)
    log_largest: Tensor  # m, (R, G, 1, S)

    @classmethod
    def of(cls, family: Family, weights: Tensor, parameters: Tensor, missing: bool) -> StateTable:
        """Tabulate G sums, each over one input of a family. weights: (R, G, K, C); parameters: (R, G, C, P)."""
        logs = state_logs(family, parameters, missing)
        largest = logs.amax(-2, keepdim=True)
        elements = (logs - largest).exp_()
        return cls(elements, torch.matmul(weights, elements), largest)

    def counts(self, flow: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Counts without theta, (R, G, K, C), and the flow that reaches the inputs, (R, G, C, S)."""
        ratio = flow / self.sums
        down = torch.matmul(weights.transpose(-1, -2), ratio) * self.elements
        return torch.matmul(ratio, self.elements.transpose(-1, -2)), down

    def ratios(self, weight: Tensor) -> Tensor:  # (R, G, 1, S) -> (R, G, K, C)
        """Sums of rho."""
        per_unit = self._where_possible(weight) / self.sums
        return torch.matmul(per_unit, self.elements.transpose(-1, -2))

    def second_moments(self, square: Tensor) -> Tensor:  # (R, G, K, S) -> (R, G, K, C)
        """Sums of F_nc^2 / theta_nc^2."""
        scaled = square / self.sums.square()
        return torch.matmul(scaled, self.elements.square().transpose(-1, -2))

    def squared_ratios(self, weight: Tensor) -> Tensor:  # (R, G, 1, S) -> (R, G, K, C)
        """Sums of rho^2."""
        per_unit = self._where_possible(weight) / self.sums.square()
        return torch.matmul(per_unit, self.elements.square().transpose(-1, -2))

    def units(self, states: StateSums, weighted: bool) -> Tensor:  # -> (3 or 6, R, G, K)
        """Sums of F^2, t and T, in float64; `weighted`: also of F t, F log t and F."""
        square, flow, weight = states.square, states.flow, states.weight
        assert square is not None
        assert weight is not None
        local = self.elements.square().sum(-2, keepdim=True) / self.sums.square()  # t, (R, G, K, S)
        kinds = [square, self._where_possible(weight) * local, square * local]
        if weighted:
            kinds += [flow * local, torch.xlogy(flow, local), flow]
        return torch.stack([kind.sum(-1, dtype=torch.float64) for kind in kinds])

    def _where_possible(self, weight: Tensor) -> Tensor:
        return weight * (self.log_largest > IMPOSSIBLE)
