"""What is known of each row: values, likelihoods of states, intervals; and the values of the input units that follow.

    a value x           log f_u(x)
    nothing             0
    likelihoods l_s     log sum_s l_s f_u(s)
    an interval [a, b]  log P_u(a <= x <= b)

An interval of a column with finitely many states becomes a likelihood of ones and zeros when the evidence is made; but
not one of binomials with very many states, whose masses need no table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circurve.data import Table
from circurve.engine import Batch
from circurve.errors import DataError
from circurve.inputs import LOG_ZERO, Binomial, Family
from circurve.queries.states import (
    check_masses,
    check_states,
    has_long_peaks,
    pieces_of_states,
    state_tensor,
    unit_log_prob,
)
from circurve.queries.target import Target

__all__ = [
    "Evidence",
    "Interval",
    "Likelihood",
    "best_inside",
    "leaf_values",
    "log_weights",
    "make_evidence",
    "no_evidence",
    "states_inside",
]

LIKELIHOOD_BYTES = 16
"""Bytes of the likelihood of a state: in float64, and while it is checked."""

Likelihood = Tensor
"""How probable each state of a column makes the evidence, up to a factor: (S, N) or (S, 1) float64, at least zero."""

Interval = tuple[Tensor, Tensor]
"""The ends of an interval, both included, -inf and inf for open ones: (N,) or (1,) each. They are float64 in a float32
model too, because an interval may be narrower than float32 can tell."""


@dataclass(frozen=True)
class Evidence:
    """N rows of evidence, the same for all runs or others for each. `make_evidence` makes and checks it."""

    x: Tensor  # (R or 1, V, N), any valid value where nothing is observed
    observed: Tensor  # like x, 1 where a value is known, else 0
    labels: Tensor | None = None  # (N,) int64, which output each row belongs to
    likelihoods: Mapping[int, Likelihood] = field(default_factory=dict)
    intervals: Mapping[int, Interval] = field(default_factory=dict)
    first_row: int = 0
    """The number, in messages, of the first row: parts of evidence keep those of the whole."""

    @property
    def size(self) -> int:
        """N."""
        return int(self.x.shape[-1])

    @property
    def soft(self) -> bool:
        """Whether some column has a likelihood or an interval."""
        return bool(self.likelihoods or self.intervals)

    def ends(self, column: int) -> Interval:
        """The ends of the intervals of a column, of equal length: 1 if all rows have the same interval."""
        low, high = self.intervals[column]
        rows = max(len(low), len(high))
        return low.expand(rows), high.expand(rows)

    def likely(self, column: int) -> slice:
        """The states of a column with a likelihood from the first to the last one that it does not rule out."""
        possible = (self.likelihoods[column] > 0).any(-1).nonzero()  # (P, 1)
        return slice(int(possible[0]), int(possible[-1]) + 1) if len(possible) else slice(0, 1)

    def batch(self) -> Batch:
        """The observed values, as the engine takes them: 0 where nothing is observed."""
        labels = None if self.labels is None else self.labels.unsqueeze(0)
        if bool((self.observed > 0).all()):  # backends are faster where nothing is missing
            return Batch(self.x.contiguous(), None, None, labels)
        observed = self.observed.contiguous()
        return Batch(self.x * observed, observed, None, labels)

    def rows(self, chosen: slice | Tensor) -> Evidence:
        """Some of the rows: consecutive ones, or by their numbers."""

        def cut(column: Tensor) -> Tensor:  # (..., N or 1)
            return column if column.shape[-1] == 1 else column[..., chosen]

        return Evidence(
            self.x[..., chosen],
            self.observed[..., chosen],
            None if self.labels is None else self.labels[chosen],
            {column: cut(likelihood) for column, likelihood in self.likelihoods.items()},
            {column: (cut(low), cut(high)) for column, (low, high) in self.intervals.items()},
            self.first_row + (chosen.start or 0) if isinstance(chosen, slice) else 0,
        )

    def with_values(self, x: Tensor, observed: Tensor) -> Evidence:  # (R or 1, V, N)
        """Evidence for the same rows with other values, without likelihoods and intervals."""
        return Evidence(x, observed, self.labels, first_row=self.first_row)

    def hide(self, columns: Sequence[int]) -> Evidence:
        """Evidence for the same rows without some columns."""
        observed = self.observed.clone()
        observed[:, list(columns)] = 0
        return replace(
            self,
            observed=observed,
            likelihoods={c: value for c, value in self.likelihoods.items() if c not in columns},
            intervals={c: value for c, value in self.intervals.items() if c not in columns},
        )

    def to(self, dtype: torch.dtype) -> Evidence:
        """The evidence with its values in another precision."""
        return Evidence(
            self.x.to(dtype),
            self.observed.to(dtype),
            self.labels,
            self.likelihoods,
            self.intervals,
            self.first_row,
        )


def make_evidence(
    target: Target,
    table: Table,
    likelihoods: Mapping[int, Any] | None = None,
    intervals: Mapping[int, tuple[Any, Any]] | None = None,
) -> Evidence:
    """Evidence from a table that was checked against the circuit's families.

    likelihoods: by column, one number >= 0 for each of its states (`Target.states`), the same for all rows (S,) or by
    row (S, N). intervals: by column, the two ends, numbers or (N,).
    """
    rows = Batch.rows(table.to(target.device), 0, len(table), target.dtype)
    x, observed = rows.x, torch.ones_like(rows.x) if rows.observed is None else rows.observed
    labels = None if rows.labels is None else rows.labels[0]
    if target.program.circuit.outputs > 1 and labels is None:
        raise DataError(
            f"the circuit has {target.program.circuit.outputs} outputs: pass labels= to say which one each row "
            f"belongs to"
        )
    soft = {c: _as_likelihood(target, c, values, len(table)) for c, values in (likelihoods or {}).items()}
    bounds: dict[int, Interval] = {}
    for column, ends in (intervals or {}).items():
        if column in soft:
            raise DataError(f"{target.label(column)} has both a likelihood and an interval: pass one of them")
        interval = _as_interval(target, column, ends, len(table))
        if target.states[column] is None or has_long_peaks(target, column):
            bounds[column] = interval
        else:
            soft[column] = states_inside(target, column, interval)
    evidence = Evidence(x, observed, labels, soft, bounds)
    _refuse_double_evidence(target, evidence)
    return evidence


def no_evidence(target: Target, rows: int = 1, labels: Tensor | None = None) -> Evidence:
    """Rows without evidence; labels (rows,) where the circuit has several outputs."""
    if target.program.circuit.outputs > 1 and labels is None:
        raise DataError(
            f"the circuit has {target.program.circuit.outputs} outputs: pass labels= to say which one to use"
        )
    zero = torch.zeros(1, target.variables, rows, dtype=target.dtype, device=target.device)
    return Evidence(zero, zero, labels)


def _as_likelihood(target: Target, column: int, given: Any, rows: int) -> Likelihood:  # (S, N or 1)
    states = target.states[column]
    if states is None:
        raise DataError(f"{target.label(column)} has no finite list of states: give an interval, not a likelihood")
    check_states(target, column, "the likelihood", LIKELIHOOD_BYTES * (1 if np.ndim(given) < 2 else rows))
    values = torch.as_tensor(given, dtype=torch.float64, device=target.device)
    values = values.unsqueeze(-1) if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[0] != len(states) or values.shape[1] not in (1, rows):
        raise DataError(
            f"{target.label(column)}: the likelihood has shape {tuple(torch.as_tensor(given).shape)}; it needs a "
            f"number for each of the {len(states)} states, ({len(states)},) or ({len(states)}, {rows})"
        )
    if not bool((values.isfinite() & (values >= 0)).all()):
        raise DataError(f"{target.label(column)}: likelihoods must be finite and >= 0")
    return values


def _as_interval(target: Target, column: int, given: tuple[Any, Any], rows: int) -> Interval:  # (N or 1,) each
    low, high = (torch.as_tensor(end, dtype=torch.float64, device=target.device).reshape(-1) for end in given)
    if any(len(end) not in (1, rows) for end in (low, high)):
        raise DataError(f"{target.label(column)}: each end of an interval is a number, or {rows} of them by row")
    if bool(low.isnan().any() | high.isnan().any()):
        raise DataError(f"{target.label(column)}: an end of an interval is NaN; use -inf or inf for an open end")
    wrong = low > high
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        ends = f"{float(low.expand(len(wrong))[row]):g} to {float(high.expand(len(wrong))[row]):g}"
        raise DataError(
            f"{target.label(column)}, row {row + 1}: the interval from {ends} has its ends in the wrong order"
        )
    return low, high


def states_inside(target: Target, column: int, interval: Interval) -> Likelihood:  # (S, N or 1)
    """An interval as a likelihood of ones and zeros."""
    low, high = interval
    known = target.states[column]
    assert known is not None
    width = max(len(low), len(high))
    check_states(target, column, "the states inside", LIKELIHOOD_BYTES * width)
    found = low.new_empty(len(known), width)
    for piece in pieces_of_states(target, column, width):
        states = state_tensor(known[piece], low).unsqueeze(-1)
        found[piece] = (low <= states) & (states <= high)
    return found


def _refuse_double_evidence(target: Target, evidence: Evidence) -> None:
    """A value and an interval, or a likelihood, of the same cell: one of them is a mistake. Open intervals count as no
    evidence."""
    says = {column: (likelihood != 1).any(0) for column, likelihood in evidence.likelihoods.items()}
    says |= {column: (low > -torch.inf) | (high < torch.inf) for column, (low, high) in evidence.intervals.items()}
    for column, restricted in says.items():
        twice = restricted & (evidence.observed[0, column] > 0)
        if bool(twice.any()):
            row = int(twice.nonzero()[0])
            kind = "an interval" if column in evidence.intervals else "a likelihood or an interval"
            raise DataError(f"{target.label(column)}, row {row + 1}: it has both a value and {kind}: pass one of them")


def leaf_values(target: Target, evidence: Evidence, largest: bool = False) -> list[Tensor]:  # (R, G, K, N) each
    """The log-values of all input layers under the evidence.

    largest: the highest density that the evidence allows in place of the sum or integral over all it allows.
    """
    reference, params, batch = target.reference, target.params, evidence.batch()
    leaves = [
        _any_values(target, number, evidence)
        if number in target.partial_layers
        else reference.input_values(number, params, batch)
        for number in range(len(target.program.inputs))
    ]
    if largest:
        leaves = [_with_highest(target, number, values, evidence) for number, values in enumerate(leaves)]
    for column in (*evidence.likelihoods, *evidence.intervals):
        known = evidence.observed[:, column, None, None] > 0  # (R or 1, 1, 1, N)
        likely = evidence.likely(column) if column in evidence.likelihoods else None
        for at, place in enumerate(target.places[column]):
            values = (
                _inside_values(target, evidence, column, at, largest)
                if likely is None
                else _likely_values(target, evidence, column, at, likely, largest)
            ).expand(-1, -1, -1, evidence.size)
            old = leaves[place.number].index_select(1, place.groups)
            leaves[place.number] = leaves[place.number].index_copy(1, place.groups, torch.where(known, old, values))
    return leaves


def _any_values(target: Target, number: int, evidence: Evidence) -> Tensor:  # (R, G, K, N)
    """The log-values of a layer whose columns have values that its family does not know: these are impossible."""
    variables = target.reference.variables[number]
    known = evidence.observed.index_select(1, variables).unsqueeze(-2) > 0  # (R or 1, G, 1, N)
    x = evidence.x.index_select(1, variables)
    values = unit_log_prob(target.program.inputs[number].family, target.params.inputs[number], x)
    return torch.where(known, values, 0.0)


def _with_highest(target: Target, number: int, values: Tensor, evidence: Evidence) -> Tensor:  # (R, G, K, N)
    """The density at the mode of each unit where nothing is observed."""
    layer = target.program.inputs[number]
    known = evidence.observed.index_select(1, target.reference.variables[number]).unsqueeze(-2)  # (R or 1, G, 1, N)
    highest = layer.family.log_max(target.params.inputs[number]).unsqueeze(-1)
    return torch.where(known > 0, values, highest)


def _likely_values(
    target: Target, evidence: Evidence, column: int, at: int, likely: slice, largest: bool
) -> Tensor:  # (R, g, K, N or 1)
    """The log-values of a column's units at one of its places, from a likelihood."""
    found = None
    for piece in pieces_of_states(target, column, evidence.likelihoods[column].shape[-1], likely):
        weights = log_weights(target, evidence, column, piece).to(target.dtype)
        terms = target.state_logs(column, at, piece).unsqueeze(-1) + weights  # (R, g, K, s, N or 1)
        part = terms.amax(-2) if largest else terms.logsumexp(-2)
        together = torch.maximum if largest else torch.logaddexp
        found = part if found is None else together(found, part)
    assert found is not None
    return found.clamp_min(LOG_ZERO)


def _inside_values(
    target: Target, evidence: Evidence, column: int, at: int, largest: bool
) -> Tensor:  # (R, g, K, N or 1)
    """The log-values of a column's units at one of its places, from an interval."""
    place = target.places[column][at]
    parameters = target.parameters(place)
    check_masses(target, column)
    low, high = (end.expand(1, len(place.groups), -1) for end in evidence.ends(column))
    if not largest:
        return place.family.log_mass(parameters, low, high)
    best = best_inside(place.family, parameters.double(), low, high)
    flat = best.flatten(1, 2)  # each unit becomes a group of its own
    units = parameters.double().flatten(1, 2).unsqueeze(2)
    found = place.family.log_prob(units, flat).reshape(best.shape).to(parameters.dtype)
    return torch.where((best >= low.unsqueeze(-2)) & (best <= high.unsqueeze(-2)), found, LOG_ZERO)


def best_inside(family: Family, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:  # (R, g, K, N)
    """The most probable value in an interval of families with one peak: the mode, or the end next to it.

    A binomial may have two modes, n p + p - 1 and n p + p; the first counts, as it does among listed states.
    """
    if family.discrete:
        low, high = low.ceil().clamp_min(0), high.floor()
    if isinstance(family, Binomial):
        high = high.clamp_max(family.trials)
        mode = ((family.trials + 1) * parameters[..., 0]).ceil().sub(1).clamp_min(0)
    else:
        mode = family.mode(parameters)
    return torch.minimum(torch.maximum(mode.unsqueeze(-1), low.unsqueeze(-2)), high.unsqueeze(-2))


def log_weights(target: Target, evidence: Evidence, column: int, piece: slice) -> Tensor:  # (s, N or 1)
    """log of the likelihood of some states of a column: from its likelihood, or 1 inside of its interval and 0
    outside."""
    if column in evidence.likelihoods:
        return evidence.likelihoods[column][piece].log().clamp_min(LOG_ZERO)
    low, high = evidence.intervals[column]
    known = target.states[column]
    assert known is not None
    states = state_tensor(known[piece], low).unsqueeze(-1)
    return torch.where((low <= states) & (states <= high), 0.0, LOG_ZERO).to(low.dtype)
