"""The states of a column: which there are, log p of them in pieces of bounded size, and what tables of them need.

A binomial of 2^24 trials has a parameter of 4 bytes, and a table over its states takes 64 MB. So tables are made piece
by piece where an answer needs no more than that, and are counted before they are made where it needs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from circurve.budget import Need
from circurve.engine.memory import MIN_FREE_BYTES, free_memory
from circurve.inputs import LOG_ZERO, Binomial, Categorical, Family
from circurve.inputs.family import same_values

if TYPE_CHECKING:
    from circurve.queries.target import Target

__all__ = [
    "LOG_BYTES",
    "ROW_BYTES",
    "check_masses",
    "check_states",
    "has_long_peaks",
    "pieces_of_states",
    "state_logs",
    "state_tensor",
    "union_of_states",
    "unit_log_prob",
]

MAX_TABLE_STATES = 1 << 12
"""Columns of binomials with more states are looked at around their peaks and not state by state."""

PIECE_BYTES = 64 << 20
"""What the tables of a piece take at most; with a memory budget, at most a quarter of it."""

LOG_BYTES = 48
"""Bytes of log p of a state for a unit, in float64, with the terms that it is computed from."""

MASS_BYTES = 80
"""Bytes of a state for a unit while cumulative sums of its probabilities are made from both ends."""

ROW_BYTES = 32
"""Bytes of a number in float64 with copies of it."""

CURE = "ask for fewer rows at once, or for the mean or an interval of this column"


def union_of_states(supports: Sequence[Sequence[int]]) -> Sequence[int]:
    """All values of some supports in order: a range where they have no gaps, which costs no memory."""
    first, last = min(support[0] for support in supports), max(support[-1] for support in supports)
    whole = range(first, last + 1)
    if any(same_values(support, whole) for support in supports):
        return whole
    values = tuple(sorted(set().union(*supports)))
    return whole if len(values) == len(whole) else values


def state_tensor(states: Sequence[int], like: Tensor) -> Tensor:  # (S,)
    """States as numbers, with the type and device of `like`."""
    if isinstance(states, range):
        return torch.arange(states.start, states.stop, states.step, dtype=like.dtype, device=like.device)
    return like.new_tensor(states)


def state_logs(family: Family, parameters: Tensor, states: Sequence[int]) -> Tensor:  # (R, g, K, P) -> (R, g, K, S)
    """log p of some states; LOG_ZERO for those that the family does not know."""
    support = family.support()
    assert support is not None
    if _without_gaps(states) and _without_gaps(support):
        known: Sequence[int] = range(max(states[0], support[0]), min(states[-1], support[-1]) + 1)
    else:
        members = support if isinstance(support, range) else set(support)
        known = [state for state in states if state in members]
    found = parameters.new_full((*parameters.shape[:-1], len(states)), LOG_ZERO)
    if not known:
        return found
    if isinstance(family, Categorical) and isinstance(known, range):
        logs = parameters[..., known.start : known.stop].log().clamp_min_(LOG_ZERO)
    else:
        logs = family.log_prob(parameters, state_tensor(known, parameters).expand(1, parameters.shape[1], -1))
    if len(known) == len(states):
        return logs
    if isinstance(known, range):
        first = known.start - states[0]
        found[..., first : first + len(known)] = logs
    else:
        place = {state: at for at, state in enumerate(states)}
        found[..., [place[state] for state in known]] = logs
    return found


def _without_gaps(states: Sequence[int]) -> bool:
    return same_values(states, range(states[0], states[-1] + 1))


def unit_log_prob(family: Family, parameters: Tensor, x: Tensor) -> Tensor:  # (R or 1, g, N) -> (R, g, K, N)
    """log p of any number; LOG_ZERO for what the family does not take."""
    support = family.support()
    if family.discrete:
        allowed = (x >= 0) & (x.floor() == x)
        if support is not None and same_values(support, range(support[0], support[-1] + 1)):
            allowed &= (x >= support[0]) & (x <= support[-1])
        elif support is not None:
            allowed = torch.isin(x, x.new_tensor(support))
        first = 0 if support is None else support[0]
        values = family.log_prob(parameters, torch.where(allowed, x, first))
        return torch.where(allowed.unsqueeze(-2), values, LOG_ZERO)
    return family.log_prob(parameters, x)


def pieces_of_states(target: Target, column: int, rows: int = 1, chosen: slice | None = None) -> Iterator[slice]:
    """Consecutive states of a column, as many at once as tables of PIECE_BYTES hold: of all units of its largest place,
    and of `rows` rows. chosen: only these; None: all."""
    states = target.states[column]
    assert states is not None
    first, end, _ = (slice(None) if chosen is None else chosen).indices(len(states))
    widest = max(len(place.groups) * target.program.inputs[place.number].units for place in target.places[column])
    each = target.runs * (LOG_BYTES * widest + ROW_BYTES * rows)
    limit = PIECE_BYTES if target.memory_budget is None else min(PIECE_BYTES, target.memory_budget // 4)
    size = max(1, limit // each)
    for start in range(first, end, size):
        yield slice(start, min(start + size, end))


def has_long_peaks(target: Target, column: int) -> bool:
    """Whether a column has many states, and only units whose probabilities rise up to one peak and fall after it."""
    states = target.states[column]
    binomial = all(isinstance(place.family, Binomial) for place in target.places[column])
    return binomial and states is not None and len(states) > MAX_TABLE_STATES


def check_states(target: Target, column: int, what: str, each: int, count: int | None = None) -> int | None:
    """What the budget leaves next to `each` bytes for every state of a column; MemoryLimitError if they do not fit.

    Without a budget, the memory that is free is the limit. what: what takes the memory, as messages call it. count: how
    many states, if not all.
    """
    found = len(target.states[column] or ()) if count is None else count
    size = each * found
    if target.memory_budget is None and size <= MIN_FREE_BYTES["cpu"]:
        return None
    need = Need(target.label(column), {f"{what} over {found:,} states": size}, CURE)
    return need.left(target.memory_budget, lambda: free_memory(target.device))


def check_masses(target: Target, column: int) -> None:
    """MemoryLimitError if cumulative sums of a column's inputs with finitely many states do not fit into memory.

    The masses of intervals are computed from them in columns that have inputs without a list of states, too.
    """
    for place in target.places[column]:
        support = None if isinstance(place.family, Binomial) else place.family.support()
        units = 0 if support is None else target.runs * len(place.groups) * target.program.inputs[place.number].units
        size = MASS_BYTES * units * len(support or ())
        if size and (target.memory_budget is not None or size > MIN_FREE_BYTES["cpu"]):
            need = Need(target.label(column), {f"cumulative sums over {len(support or ()):,} states": size}, CURE)
            need.left(target.memory_budget, lambda: free_memory(target.device))
