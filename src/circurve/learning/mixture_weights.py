"""Weights of a mixture from the log-likelihoods of its members on held-out rows.

With l_mn the log-likelihood of row n under member m and c_n the weight of the row, the mixture's mean log-likelihood is

    L(w) = sum_n c_n log sum_m w_m exp(l_mn) / sum_n c_n,

a concave function of w on the simplex. EM climbs it: with r_mn = w_m exp(l_mn) / sum_k w_k exp(l_kn),

    w_m <- sum_n c_n r_mn / sum_n c_n = w_m g_m,    g_m = dL/dw_m.

As sum_m w_m g_m = 1 and L is concave, the maximum is at most log(max_m g_m) above L(w): that bound ends the iteration.
Where members are alike, EM is slow. So w_m g_m^s is tried with s >= 1 that grows from step to step; a step that lowers
L is replaced by a plain one, s = 1, which never does. All in float64; a step costs O(M N).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["NEGLIGIBLE", "WEIGHTINGS", "Scores", "Weighting", "find_weights", "forward_selection", "without_negligible"]

Floats = NDArray[np.float64]

Weighting: TypeAlias = Literal["em", "uniform", "stacked"]
WEIGHTINGS = ("em", "uniform", "stacked")

NEGLIGIBLE = 1e-3
"""A member whose weight is smaller is dropped, and the others are weighted again; unless only it explains some row."""

GAP = 1e-7
"""EM stops when L(w) is proved to be this close to its maximum, in nats per row."""

MAX_STEPS = 20_000
"""EM steps at most."""

STRETCH_GROWTH = 1.5
"""By what s grows from step to step."""

LEAST_WEIGHT = 1e-12
"""A weight of zero could not grow again."""

LINE_STEPS = 50
"""EM steps for the share of one member that is added to a fixed mixture."""

FOLDS, SEED = 5, 0
"""How "stacked" splits the held-out rows."""

SHRINKAGE = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Pseudocounts that "stacked" tries, as a multiple of the weight of the rows."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Log-likelihoods of held-out rows under the members, and the weights of the rows."""

    log_prob: Floats  # (M, N)
    row_weights: Floats  # (N,)

    @property
    def members(self) -> int:
        """M."""
        return len(self.log_prob)

    @cached_property
    def total(self) -> float:
        """The sum of the rows' weights."""
        return float(self.row_weights.sum())

    @cached_property
    def largest(self) -> Floats:  # (N,)
        """max_m l_mn; 0 for a row that has probability zero in every member; it has no effect on the weights."""
        top = self.log_prob.max(axis=0)
        return np.where(np.isfinite(top), top, 0.0)

    @cached_property
    def scaled(self) -> Floats:  # (M, N)
        """exp(l_mn - max_m l_mn): at most 1, and 1 for one member of each row."""
        return np.exp(self.log_prob - self.largest)

    def mixed(self, weights: Floats) -> Floats:  # (M,) -> (N,)
        """log sum_m w_m exp(l_mn); -inf for a row that no member explains."""
        with np.errstate(divide="ignore"):
            return np.log(weights @ self.scaled) + self.largest

    def mean(self, log_prob: Floats) -> Floats:  # (..., N) -> (...)
        """The mean over rows by their weights; rows of weight zero do not count, even if they are impossible."""
        counted = np.where(self.row_weights > 0, log_prob, 0.0)
        result: Floats = counted @ self.row_weights / self.total
        return result

    def possible(self, log_prob: Floats) -> NDArray[np.bool_]:  # (..., N) -> (..., N)
        """Which rows count and have a probability above zero."""
        result: NDArray[np.bool_] = (log_prob > -np.inf) & (self.row_weights > 0)
        return result

    def mean_mixed(self, weights: Floats) -> float:
        """L(w)."""
        return float(self.mean(self.mixed(weights)))

    def pick(self, members: Sequence[int] | None = None, rows: NDArray[np.int64] | None = None) -> Scores:
        """Some members, some rows."""
        kept = self.log_prob if members is None else self.log_prob[list(members)]
        return Scores(kept, self.row_weights) if rows is None else Scores(kept[:, rows], self.row_weights[rows])


def find_weights(scores: Scores, weighting: Weighting, start: Floats | None = None) -> Floats:  # (M,)
    """The weights of the members: they sum to one.

    em: the maximum of L. uniform: 1/M. stacked: the maximum of L(w) + a sum_m log(w_m) / M, that is, EM with a
    pseudocount of a times the rows' weight, divided evenly. a is chosen among `SHRINKAGE` and infinity (uniform
    weights) by 5-fold cross-validation of the held-out rows: the fewer they are, the nearer the weights to uniform.
    """
    uniform = np.full(scores.members, 1 / scores.members)
    if weighting == "uniform" or scores.members == 1:
        return uniform
    if weighting == "em":
        return _em(scores, 0.0, start)
    shrinkage = _best_shrinkage(scores)
    return uniform if np.isinf(shrinkage) else _em(scores, shrinkage, start)


def _em(scores: Scores, shrinkage: float, start: Floats | None = None) -> Floats:
    """EM from `start`, by default uniform weights, with a pseudocount of `shrinkage` times the rows' weight."""
    count = scores.members
    weights = np.full(count, 1 / count) if start is None else start
    used = (scores.row_weights > 0) & np.isfinite(scores.log_prob.max(axis=0))
    if not used.any():
        return weights
    scaled = scores.scaled[:, used]
    shares = scores.row_weights[used] / scores.row_weights[used].sum()
    stretch, plain, reached = 1.0, weights, -np.inf
    for _ in range(MAX_STEPS):
        mixture = weights @ scaled
        value = shares @ np.log(mixture) + (shrinkage * np.log(weights).mean() if shrinkage else 0.0)
        if value < reached:  # too far
            weights, stretch, reached = plain, 1.0, -np.inf
            continue
        gradient = scaled @ (shares / mixture)
        factors = gradient if shrinkage == 0 else (gradient + shrinkage / (count * weights)) / (1 + shrinkage)
        if np.log(factors.max()) < GAP:
            break
        reached, plain = value, _on_simplex(weights * factors)
        weights = _on_simplex(np.maximum(weights * factors**stretch, LEAST_WEIGHT))
        stretch *= STRETCH_GROWTH
    return weights


def _on_simplex(weights: Floats) -> Floats:
    result: Floats = weights / weights.sum()
    return result


def _best_shrinkage(scores: Scores) -> float:
    """The pseudocount with the best cross-validated likelihood; infinity means uniform weights."""
    rows = scores.log_prob.shape[1]
    folds = np.array_split(np.random.default_rng(SEED).permutation(rows), FOLDS)
    if rows < FOLDS:
        return np.inf
    results = []
    for shrinkage in (*SHRINKAGE, np.inf):
        total = 0.0
        for number, fold in enumerate(folds):
            rest = np.concatenate([other for place, other in enumerate(folds) if place != number])
            inside, outside = scores.pick(rows=rest), scores.pick(rows=fold)
            uniform = np.full(scores.members, 1 / scores.members)
            weights = uniform if np.isinf(shrinkage) or not inside.total else _em(inside, shrinkage)
            used = np.isfinite(outside.log_prob.max(axis=0)) & (outside.row_weights > 0)
            total += float(outside.mixed(weights)[used] @ outside.row_weights[used])
        results.append(total)
    return (*SHRINKAGE, np.inf)[int(np.argmax(results))]


def without_negligible(scores: Scores, weighting: Weighting, members: Sequence[int]) -> tuple[list[int], Floats]:
    """The members whose weight is not negligible, and their weights, found again without the others.

    A member of less weight stays if a row would have probability zero without it.
    """
    kept = list(members)
    weights = find_weights(scores.pick(kept), weighting)
    while weighting != "uniform" and (weights < NEGLIGIBLE).any():
        if (weights < NEGLIGIBLE).all():  # more than 1 / NEGLIGIBLE members that are all alike
            break
        places = np.flatnonzero(_needed(scores.pick(kept), weights))
        if len(places) == len(kept):
            break
        kept = [kept[place] for place in places]
        weights = find_weights(scores.pick(kept), weighting, weights[places] / weights[places].sum())
    return kept, weights


def _needed(scores: Scores, weights: Floats) -> NDArray[np.bool_]:  # (M,) -> (M,)
    """Which members have weight, and which of the others, the heaviest first, explain rows that those do not."""
    possible = scores.possible(scores.log_prob)
    needed = weights >= NEGLIGIBLE
    lacking = ~possible[needed].any(axis=0)
    for place in np.argsort(-weights, kind="stable"):
        if not needed[place] and (possible[place] & lacking).any():
            needed[place] = True
            lacking &= ~possible[place]
    return needed


def forward_selection(scores: Scores, size: int, weighting: Weighting) -> list[int]:
    """At most `size` members: from the best single one on, the one that raises the likelihood most, while one does.

    A candidate is tried with its best share in the mixture so far (with uniform weights, with the share 1/(k+1));
    then all members so far are weighted again. Where rows have probability zero, a mixture that explains more rows is
    better, whatever its likelihood.
    """
    alone = _quality(scores, scores.log_prob)
    chosen = [max(range(scores.members), key=lambda m: alone[m])]
    weights = np.ones(1)
    while len(chosen) < min(size, scores.members):
        mixture = scores.pick(chosen).mixed(weights)  # (N,)
        share = 1 / (len(chosen) + 1) if weighting == "uniform" else None
        quality = _quality(scores, _beside(scores, mixture, share))
        best = max((m for m in range(scores.members) if m not in chosen), key=lambda m: quality[m])
        if not quality[best] > _quality(scores, mixture[None])[0]:
            break
        chosen.append(best)
        start = np.append(weights * (1 - 1 / len(chosen)), 1 / len(chosen))
        weights = find_weights(scores.pick(chosen), "uniform" if weighting == "uniform" else "em", start)
    return chosen


def _quality(scores: Scores, log_prob: Floats) -> list[tuple[float, float]]:  # (M, N) -> M pairs
    """The weight of the rows that are possible, and the log-likelihood of these, as a share of L; for each of M."""
    possible = scores.possible(log_prob)
    explained = np.where(possible, scores.row_weights, 0.0).sum(axis=1)
    return list(zip(explained.tolist(), scores.mean(np.where(possible, log_prob, 0.0)).tolist(), strict=True))


def _beside(scores: Scores, mixture: Floats, share: float | None) -> Floats:  # (N,) -> (M, N)
    """log((1 - share) mixture + share member) for each member; None takes each one's best share, found by EM."""
    top = np.maximum(scores.largest, np.where(np.isfinite(mixture), mixture, -np.inf))
    old, new = np.exp(mixture - top), np.exp(scores.log_prob - top)  # (N,), (M, N)
    shares = np.full((scores.members, 1), 0.5 if share is None else share)
    rows = scores.row_weights / scores.total
    for _ in range(LINE_STEPS if share is None else 0):
        both = (1 - shares) * old + shares * new
        ratio = np.divide(new, both, out=np.ones_like(new), where=both > 0)
        shares = shares * (ratio @ rows)[:, None]
    with np.errstate(divide="ignore"):
        result: Floats = np.log((1 - shares) * old + shares * new) + top
    return result
