"""Sums that stand directly on discrete inputs: computed once for each state instead of once for each sample.

In a hidden Chow-Liu tree every leaf is such a sum, about half of all nodes. Its value depends on the sample only
through the state of one variable, so E, S and log p are tables with a column for each state (and one for "missing",
where every child has probability 1), and a sample picks a column. Backwards, flow is added up by state first; counts,
curvature sums and input statistics then come from the tables, as if the states were a handful of weighted samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.program import Program
from circurve.inputs import Family, Indicator

__all__ = [
    "Lookup",
    "StateTable",
    "by_state",
    "feeding_inputs",
    "has_few_states",
    "make_table",
    "squares_by_state",
    "states_of",
]

MOST_STATES = 16
"""Families with more values than this are not worth a table."""

LOOP_COLUMNS = 4
"""Up to so many columns, multiplying and adding up one after the other beats a matrix product on a CPU."""


@dataclass(frozen=True)
class StateTable:
    """The columns of some sums for each state of their variables; the last one is "missing" if anything is."""

    elements: Tensor  # E, (R, G, C, S)
    scaled: Tensor  # S = W E, (R, G, K, S)
    log_largest: Tensor  # (R, G, 1, S)


@dataclass(frozen=True)
class Lookup:
    """A table of a sum layer, and which of its states each sample has."""

    table: StateTable
    indicator: Tensor  # (R or 1, G, S, N)

    def spread(self, out: Tensor) -> None:
        """Each sample's column of log p, written to `out` (R, G, K, N)."""
        r, g, k, n = out.shape
        log_value = self.table.scaled.log() + self.table.log_largest
        chosen = self.indicator.expand(r, g, -1, n).reshape(r * g, -1, n)
        torch.bmm(log_value.view(r * g, k, -1), chosen, out=out.view(r * g, k, n))


def feeding_inputs(program: Program) -> dict[int, int]:
    """Block of a sum layer -> number of the input layer that it can be tabulated over."""
    inputs = {layer.block: number for number, layer in enumerate(program.inputs)}
    found = {}
    for layer in program.sums:
        one_input_each = all(len(node.children) == 1 for node in layer.nodes)
        if not (layer.owns_children and one_input_each) or layer.mask is not None:
            continue
        start = int(layer.children.columns[0].sources[0])
        block = int((program.values.starts <= start).sum() - 1)
        if block in inputs and has_few_states(program.inputs[inputs[block]].family):
            found[layer.block] = inputs[block]
    return found


def has_few_states(family: Family) -> bool:
    """Whether data hold only a few known values. An Indicator's data may hold values that none of its units names."""
    support = None if isinstance(family, Indicator) else family.support()
    return support is not None and len(support) <= MOST_STATES


def make_table(family: Family, weights: Tensor, parameters: Tensor, missing: bool) -> StateTable:
    """Tabulate G sums, each over one input of a family. weights: (R, G, K, C); parameters: (R, G, C, P)."""
    support = family.support()
    assert support is not None
    r, g, c, _ = parameters.shape
    states = weights.new_tensor(support).expand(1, g, -1)
    logs = family.log_prob(parameters, states, weights.new_empty(r, g, c, len(support)))
    logs = torch.nn.functional.pad(logs, (0, int(missing)))
    largest = logs.amax(-2, keepdim=True)
    elements = (logs - largest).exp_()
    return StateTable(elements, torch.matmul(weights, elements), largest)


def states_of(family: Family, x: Tensor, observed: Tensor | None) -> Tensor:  # -> (R or 1, G, S, N)
    """Which state each sample has, as zeros and ones. x, observed: (R or 1, G, N)."""
    states = x.new_tensor(family.support())
    indicator = (x.unsqueeze(-2) == states[:, None]).to(x.dtype)
    if observed is None:
        return indicator
    return torch.cat([indicator * observed.unsqueeze(-2), 1 - observed.unsqueeze(-2)], dim=-2)


def by_state(rows: Tensor, columns: Tensor, spare: Tensor) -> Tensor:
    """rows @ columns^T for few columns: (R, G, K, N) x (R or 1, G, S, N) -> (R, G, K, S); `spare` is like `rows`."""
    few = 0 < columns.shape[-2] <= LOOP_COLUMNS
    if not few or rows.device.type != "cpu" or rows.dtype != columns.dtype:
        wide = columns.expand(rows.shape[0], -1, -1, -1)
        return torch.matmul(rows.to(columns.dtype), wide.transpose(-1, -2))
    parts = [torch.mul(rows, columns[:, :, None, s], out=spare).sum(-1) for s in range(columns.shape[-2])]
    return torch.stack(parts, dim=-1)


def squares_by_state(rows: Tensor, indicator: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
    """`by_state` of rows and of their squares, in one go: on a CPU both come from the same products with 0 and 1."""
    if indicator.shape[-2] > LOOP_COLUMNS or rows.device.type != "cpu":
        return by_state(rows, indicator, spare), by_state(rows.square(), indicator, spare)
    sums, norms = [], []
    for state in range(indicator.shape[-2]):
        torch.mul(rows, indicator[:, :, None, state], out=spare)
        sums.append(spare.sum(-1))
        norms.append(torch.linalg.vector_norm(spare, dim=-1))
    return torch.stack(sums, dim=-1), torch.stack(norms, dim=-1).square_()
