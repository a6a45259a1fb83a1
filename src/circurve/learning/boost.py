"""One more member for an existing mixture: EM for the new component with all others fixed.

Given a mixture p, the best new member q with share a, for rows of weights c_n, is the one where

    L(a, q) = sum_n c_n log((1 - a) p(x_n) + a q(x_n))

is largest. EM for a and q alone, p fixed, alternates

    h_n = a q(x_n) / ((1 - a) p(x_n) + a q(x_n)),
    q   = argmax sum_n c_n h_n log q(x_n),          a = sum_n c_n h_n / sum_n c_n,

and raises L in every round. The middle step is the training of a circuit on rows of weights c_n h_n. The first h needs
a q: one that gives every row the same probability, the geometric mean of p over the rows. Rows that the mixture
explains worse than average then get larger weights, but no single row can get almost all the weight. It could with the
functional gradient c_n / p(x_n), to which h is proportional for a -> 0. The weights of all members together are found
on held-out rows afterwards, so `a` is not returned.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data import Table
from circurve.graph import Circuit
from circurve.learning.ensemble_options import EnsembleOptions
from circurve.learning.fitting import fit
from circurve.learning.history import FitResult
from circurve.learning.members import Plan, Rows, resampled_tree
from circurve.learning.mixture_weights import Scores, find_weights
from circurve.learning.progress import note
from circurve.learning.schedules import cosine
from circurve.model import Model
from circurve.structures import chow_liu_tree, hclt
from circurve.words import counted

__all__ = ["grow", "responsibilities"]

Floats = NDArray[np.float64]

SECOND_STEP = cosine(0.05, 0.005)
"""The step of the second round, which continues from the member of the first round."""

SECOND_SHARE = 4
"""The second round has the epochs of the first divided by this."""

LEAST_SHARE = 1e-3
"""A member that would get a smaller share is not trained any further."""


def responsibilities(mixture: Floats, member: Floats | float, share: float) -> Floats:  # (N,), (N,) -> (N,)
    """h_n = a q / ((1 - a) p + a q) from log p and log q; a row that is impossible for both counts as the member's."""
    with np.errstate(invalid="ignore"):
        odds = np.where(np.isneginf(mixture), np.inf, member - mixture)
    from scipy.special import expit  # noqa: PLC0415 - slow to import

    return np.asarray(expit(odds + math.log(share) - math.log1p(-share)), dtype=np.float64)


def grow(plan: Plan, mixture: Model, members: int, rows: Rows, options: EnsembleOptions) -> FitResult:
    """One more member for a mixture of `members` members; two rounds of EM, each stopped by the held-out rows."""
    assert rows.valid is not None
    note(f"member {plan.number}: grown on weighted rows, {counted(plan.units, 'unit')}", rows.progress)
    known = {name: _log_prob(mixture, table) for name, table in (("train", rows.train), ("valid", rows.valid))}
    level = float(_average(known["train"], rows.train))
    first = {name: responsibilities(known[name], level, 1 / (members + 1)) for name in known}
    weighted = _weighted(rows, first)
    rng = np.random.default_rng([options.seed, plan.number])
    bootstrap = options.trees == "bootstrap"
    budget, families = rows.settings.memory_budget, rows.schema.families
    if bootstrap:
        tree = resampled_tree(weighted, None, rng)
    else:
        tree = chow_liu_tree(rows.train, families, memory_budget=budget)
    circuit = hclt(rows.train, plan.units, schema=rows.schema, tree=tree)
    result = _fit(circuit, plan, weighted.part(f"grown-{plan.number}-round-1"))
    if result.stopped == "interrupted" or result.failed:
        return result
    try:
        return _second_round(plan, circuit, result, known, rows)
    except KeyboardInterrupt:  # the first round is kept
        return replace(result, stopped="interrupted")


def _second_round(plan: Plan, circuit: Circuit, result: FitResult, known: dict[str, Floats], rows: Rows) -> FitResult:
    """The member of the first round trained further on new weights, if the mixture is better with that.

    known: log-likelihoods under the mixture without the member.
    """
    assert rows.valid is not None
    own = {name: _log_prob(result.model, table) for name, table in (("train", rows.train), ("valid", rows.valid))}
    held = Scores(np.stack([known["valid"], own["valid"]]), _weights(rows.valid))
    share = float(find_weights(held, "em")[1])
    if not LEAST_SHARE < share < 1:
        return result
    second = {name: responsibilities(known[name], own[name], share) for name in known}
    settings = replace(rows.settings, epochs=-(-rows.settings.epochs // SECOND_SHARE), step_size=SECOND_STEP)
    reweighted = _weighted(replace(rows, settings=settings), second).part(f"grown-{plan.number}-round-2")
    again = _fit(circuit, plan, reweighted, result.model)
    after = Scores(np.stack([known["valid"], _log_prob(again.model, rows.valid)]), held.row_weights)
    better = after.mean_mixed(find_weights(after, "em")) > held.mean_mixed(find_weights(held, "em"))
    return again if better and not again.failed else replace(result, stopped=again.stopped)


def _fit(circuit: Circuit, plan: Plan, rows: Rows, start: Model | None = None) -> FitResult:
    """`fit` on weighted rows; the epoch is chosen by held-out rows weighted in the same way."""
    run = plan.run
    result = fit(
        circuit,
        rows.train,
        method=run.method,
        seed=run.seed,
        init=run.init,
        valid=rows.valid,
        start=start,
        callbacks=rows.callbacks,
        progress=rows.progress,
        **rows.settings.options(),
    )
    return replace(result, run=run)


def _weighted(rows: Rows, factors: dict[str, Floats]) -> Rows:
    """The rows with their weights times a factor, (N,) each, scaled to the mean weight that they had.

    Without this scale, a pseudocount would have more effect on a member that explains fewer rows.
    """
    parts = {"train": rows.train, "valid": rows.valid}
    made = {}
    for name, table in parts.items():
        assert table is not None
        own = _weights(table)
        new = own * factors[name]
        made[name] = replace(table, weights=torch.from_numpy(new * (own.sum() / new.sum())))
    return replace(rows, train=made["train"], valid=made["valid"])


def _weights(table: Table) -> Floats:  # (N,)
    return np.ones(len(table)) if table.weights is None else table.weights.cpu().numpy().astype(np.float64)


def _log_prob(model: Model, table: Table) -> Floats:  # (N,)
    scores: Floats = model.log_prob(table.bare())
    return scores


def _average(values: Floats, table: Table) -> float:
    """The weighted mean of the finite ones."""
    finite = np.isfinite(values)
    return float(np.average(values[finite], weights=_weights(table)[finite])) if finite.any() else 0.0
