"""Entropy and mutual information: exact where the joint states are few, else from draws, with a standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.errors import OptionError
from circurve.queries.checks import check_count
from circurve.queries.evidence import Evidence, no_evidence
from circurve.queries.passes import log_prob
from circurve.queries.sampling import sample
from circurve.queries.states import state_tensor
from circurve.queries.target import Target, check_drawn

__all__ = ["Estimate", "entropy", "mutual_information"]

MAX_JOINT_STATES = 1 << 16
"""Up to this many joint states are enumerated."""

ROWS_BYTES = 64 << 20
"""Bytes of the rows of joint states that are looked at together."""

ROW_COPIES = 4
"""Copies of such a row: its values, which of them are known, and both as a batch."""


@dataclass(frozen=True)
class Estimate:
    """A number for each run, in nats."""

    value: Tensor  # (R,) float64
    standard_error: Tensor  # (R,) float64; 0 where the value is exact
    exact: bool


def entropy(target: Target, columns: Sequence[int], draws: int = 10_000, seed: int = 0) -> Estimate:
    """H(x_A) = -E[log p(x_A)] of some columns; differential entropy where they are continuous.

    draws: rows that are drawn where the columns have no, or too many, joint states.
    """
    chosen = _check_columns(target, columns)
    states = _joint_states(target, chosen)
    if states is not None:
        logs = _log_joint(target, chosen, states)
        return _exact(-torch.where(logs > -torch.inf, logs.exp() * logs, 0.0).sum(-1))
    x = _draws(target, draws, seed)
    return _estimated(-log_prob(target, _only(x, chosen)).double())


def mutual_information(
    target: Target, first: Sequence[int], second: Sequence[int], draws: int = 10_000, seed: int = 0
) -> Estimate:
    """I(x_A; x_B) = E[log p(x_A, x_B) - log p(x_A) - log p(x_B)] of two sets of columns, at least 0."""
    a, b = _check_columns(target, first), _check_columns(target, second)
    shared = sorted({*a} & {*b})
    if shared:
        raise OptionError(f"{target.label(shared[0])} is on both sides; mutual information needs different columns")
    states = _joint_states(target, [*a, *b])
    if states is not None:
        logs = _log_joint(target, [*a, *b], states)
        size = math.prod(len(target.states[c] or ()) for c in b)
        joint = logs.reshape(target.runs, -1, size)  # (R, states of A, of B)
        gain = joint - joint.logsumexp(-1, keepdim=True) - joint.logsumexp(-2, keepdim=True)
        return _exact(torch.where(joint > -torch.inf, joint.exp() * gain, 0.0).sum((-1, -2)).clamp_min(0))
    x = _draws(target, draws, seed)
    both, one, other = (log_prob(target, _only(x, columns)).double() for columns in ([*a, *b], a, b))
    return _estimated(both - one - other)


def _exact(value: Tensor) -> Estimate:  # (R,)
    return Estimate(value, torch.zeros_like(value), exact=True)


def _estimated(terms: Tensor) -> Estimate:  # (R, N)
    """The mean over draws, and the standard deviation of that mean."""
    return Estimate(terms.mean(-1), terms.std(-1) / terms.shape[-1] ** 0.5, exact=False)


def _check_columns(target: Target, columns: Sequence[int]) -> list[int]:
    chosen = list(columns)
    if not chosen or len(set(chosen)) != len(chosen):
        raise OptionError(f"columns must be a list of different columns, at least one, not {chosen!r}")
    if target.program.circuit.outputs > 1:
        raise OptionError(
            f"the circuit has {target.program.circuit.outputs} outputs; information needs a circuit with one output"
        )
    return chosen


def _joint_states(target: Target, columns: Sequence[int]) -> Tensor | None:  # (columns, joint states)
    """All joint states, the last column changing fastest; None if they are too many."""
    lists = [target.states[column] for column in columns]
    if any(states is None for states in lists) or math.prod(len(s or ()) for s in lists) > MAX_JOINT_STATES:
        return None
    like = torch.empty(0, dtype=target.dtype, device=target.device)
    each = [state_tensor(states or (), like) for states in lists]
    return torch.stack([grid.flatten() for grid in torch.meshgrid(*each, indexing="ij")])


def _log_joint(target: Target, columns: Sequence[int], states: Tensor) -> Tensor:  # (columns, N) -> (R, N)
    """log p of joint states, as many at once as rows of ROWS_BYTES hold, float64."""
    size = max(1, ROWS_BYTES // (ROW_COPIES * target.dtype.itemsize * target.variables))
    return torch.cat(
        [log_prob(target, _rows(target, columns, part)) for part in torch.split(states, size, 1)], dim=1
    ).double()


def _rows(target: Target, columns: Sequence[int], states: Tensor) -> Evidence:  # (columns, N)
    x = no_evidence(target, states.shape[1]).x.clone()
    x[0, list(columns)] = states
    return _only(x, columns)


def _only(x: Tensor, columns: Sequence[int]) -> Evidence:  # (R or 1, V, N)
    """Rows with some known columns."""
    observed = torch.zeros_like(x)
    observed[:, list(columns)] = 1
    return Evidence(x, observed)


def _draws(target: Target, draws: int, seed: int) -> Tensor:  # (R, V, N)
    count = check_count("draws", draws, least=2)
    check_drawn(target, count)
    return sample(target, no_evidence(target), count, seed)[:, :, 0].transpose(1, 2).contiguous()
