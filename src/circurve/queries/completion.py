"""The most probable completion of each row, with a bound on how far from the optimum it can be.

Max-product takes the largest term of every sum in place of the sum. Its value M(e) and the value B(e) of an upward pass
whose missing inputs are at their highest density, with sums as they are, enclose the optimum:

    max_x log p(x, e) >= log p(completion, e) >= M(e)        and        max_x log p(x, e) <= B(e).

Max-product is exact in deterministic circuits. Elsewhere the best of a few candidates is returned: the completion of
max-product, and the modes of the single columns. A row whose log p reaches its bound is exact as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.program import SumLayer
from circurve.engine.reference import FRESH, Rows
from circurve.inputs import LOG_ZERO
from circurve.queries.column_modes import column_modes
from circurve.queries.determinism import deterministic_runs
from circurve.queries.evidence import Evidence, best_inside, leaf_values, log_weights
from circurve.queries.passes import chunked, log_prob, own_output, posterior, require_possible
from circurve.queries.states import pieces_of_states, state_tensor
from circurve.queries.target import Place, Target

__all__ = ["Completion", "most_probable"]

ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}
"""How far, relative to its size, a log-probability may be from its bound and still count as equal to it."""

PASSES = 2
"""How many times the memory of a pass up and down a row takes: the values of max-product are held next to it."""

TERMS_AT_ONCE = 1 << 22
"""Terms theta_kc p_c of a max-product that are held at once, for each run."""


@dataclass(frozen=True)
class Completion:
    """The completions of N rows."""

    values: Tensor  # (R, N, V)
    log_prob: Tensor  # log p(values), with the log-likelihoods of states that the evidence weighs, (R, N)
    upper_bound: Tensor  # no completion of the row has a higher log p, (R, N)
    exact: Tensor  # bool: no completion of the row has a higher log p than this one, (R, N)


@torch.no_grad()
def most_probable(target: Target, given: Evidence) -> Completion:
    """argmax_x p(x, e) for each row: exact where `exact` says so, else within upper_bound - log_prob of the optimum.

    Four passes up, one of them of the cost of all edges times rows without matrix products, and two down.
    """
    certain = deterministic_runs(target)
    width = target.variables

    def work(part: Evidence) -> Tensor:  # (R, V + 2, N)
        found = posterior(target, part)
        require_possible(target, part, found.log_evidence)
        bound = target.reference.upward_from(target.params, leaf_values(target, part, largest=True)).outputs
        candidates = [_max_product(target, part), column_modes(target, part, found)]
        scores = torch.stack([_score(target, part, values) for values in candidates])  # (2, R, N)
        better = scores[1] > scores[0]
        better &= ~certain[:, None]
        best = torch.where(better.unsqueeze(1), candidates[1], candidates[0])
        score = torch.where(better, scores[1], scores[0])
        highest = torch.where(certain[:, None], score, torch.maximum(own_output(part, bound), score))
        return torch.cat([best, score.unsqueeze(1), highest.unsqueeze(1)], dim=1)

    left = None if target.memory_budget is None else max(1, target.memory_budget // PASSES)
    found = chunked(target, given, work, budget=left)
    score, bound = found[:, width], found[:, width + 1]
    exact = bound - score <= ROUNDING[target.dtype] * (1 + score.abs())
    return Completion(found[:, :width].transpose(1, 2), score, bound, exact)


def _score(target: Target, part: Evidence, values: Tensor) -> Tensor:  # (R, V, N) -> (R, N)
    """log p of completed rows, and the log-likelihoods of their states."""
    score = log_prob(target, part.with_values(values, torch.ones_like(values)))
    for column, likelihood in part.likelihoods.items():
        at = torch.searchsorted(_states(target, column, values), values[:, column].contiguous())  # (R, N)
        logs = likelihood.expand(-1, part.size).gather(0, at).log()
        score = score + torch.where(part.observed[:, column] > 0, 0.0, logs)
    return score


def _max_product(target: Target, part: Evidence) -> Tensor:  # (R, V, N)
    """The completion that the largest terms of all sums lead to."""
    reference, params = target.reference, target.params
    leaves = leaf_values(target, part, largest=True)
    layers = target.program.inputs
    found = Rows({layer.block: values.flatten(1, 2) for layer, values in zip(layers, leaves, strict=True)})
    logs = [weights.log().clamp_min(LOG_ZERO) for weights in params.weights]
    children: list[Tensor] = []
    for step in target.program.layers:
        if isinstance(step, SumLayer):
            children.append(reference.child_values(step, found))
            found.put(step.block, _largest_terms(logs[len(children) - 1], children[-1]))
        else:
            found.put(step.block, reference.children[step.block](found, FRESH))

    def choose(number: int, active: Tensor) -> Tensor:
        index = active.clamp_min(0).unsqueeze(2).expand(-1, -1, children[number].shape[2], -1)
        return (logs[number].transpose(-1, -2).gather(-1, index) + children[number]).argmax(2)

    units = target.descent.walk(part.labels, (target.runs, part.size), choose)
    return _values(target, part, [units(number) for number in range(len(layers))])


def _largest_terms(log_weights: Tensor, children: Tensor) -> Tensor:  # (R, G, K, C), (R, G, C, N) -> (R, G, K, N)
    """max_c (log theta_kc + log p_c), for as many units at once as TERMS_AT_ONCE allows."""
    units = max(1, TERMS_AT_ONCE // max(1, children[0].numel()))
    parts = [
        (log_weights[:, :, start : start + units].unsqueeze(-1) + children.unsqueeze(2)).amax(3)
        for start in range(0, log_weights.shape[2], units)
    ]
    return torch.cat(parts, dim=2).clamp_min(10 * LOG_ZERO)


def _values(target: Target, part: Evidence, active: list[Tensor]) -> Tensor:  # (R, V, N)
    """The mode of each active input unit, within what the evidence allows; observed values as they are."""
    x = torch.zeros(target.runs, target.variables, part.size, dtype=target.dtype, device=target.device)
    for number, layer in enumerate(target.program.inputs):
        mode = layer.family.mode(target.params.inputs[number])  # (R, G, K)
        values = mode.gather(2, active[number].clamp_min(0)).masked_fill(active[number] < 0, 0)
        x.index_add_(1, target.reference.variables[number], values)
    for column in part.likelihoods:
        x[:, column] = _likely_states(target, part, column, active)
    for column in part.intervals:
        x[:, column] = _best_inside(target, part, column, active)
    return torch.where(part.observed > 0, part.x, x)


def _likely_states(target: Target, part: Evidence, column: int, active: list[Tensor]) -> Tensor:  # (R, N)
    """The state with the largest p_u(s) l_s for the active unit u of a column."""
    found = torch.zeros(target.runs, part.size, dtype=target.dtype, device=target.device)
    likely = part.likely(column)
    for at, place in enumerate(target.places[column]):
        found += _of_active(_likely_values(target, part, column, at, likely), place, active).to(found.dtype)
    return found


def _best_inside(target: Target, part: Evidence, column: int, active: list[Tensor]) -> Tensor:  # (R, N)
    """The most probable value of the active unit of a column inside the interval."""
    found = torch.zeros(target.runs, part.size, dtype=torch.float64, device=target.device)
    low, high = part.ends(column)
    for place in target.places[column]:
        ends = (end.expand(1, len(place.groups), -1) for end in (low, high))
        best = best_inside(place.family, target.parameters(place).double(), *ends)
        found += _of_active(best, place, active)
    return found.to(target.dtype)


def _of_active(values: Tensor, place: Place, active: list[Tensor]) -> Tensor:  # (R, g, K, N or 1) -> (R, N)
    """The value of the active unit of a column, 0 where it is at another place."""
    own = active[place.number].index_select(1, place.groups)  # (R, g, N)
    values = values.expand(*values.shape[:3], own.shape[-1]).gather(2, own.clamp_min(0).unsqueeze(2)).squeeze(2)
    return values.masked_fill(own < 0, 0).sum(1)


def _likely_values(target: Target, part: Evidence, column: int, at: int, likely: slice) -> Tensor:  # (R, g, K, N or 1)
    """The state with the largest p_u(s) l_s, for the units at one of the places of a column."""
    states, likelihood = target.states[column], part.likelihoods[column]
    assert states is not None
    best = height = None
    for piece in pieces_of_states(target, column, likelihood.shape[-1], likely):
        weights = log_weights(target, part, column, piece).to(target.dtype)
        terms = target.state_logs(column, at, piece).unsqueeze(-1) + weights  # (R, g, K, s, N or 1)
        top, place = terms.max(3)
        values = state_tensor(states[piece], terms)[place]
        best = values if best is None or height is None else torch.where(top > height, values, best)
        height = top if height is None else torch.maximum(top, height)
    assert best is not None
    return best


def _states(target: Target, column: int, like: Tensor) -> Tensor:  # (S,)
    states = target.states[column]
    assert states is not None
    return state_tensor(states, like)
