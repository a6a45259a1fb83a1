"""Weights of a mixture against scipy's optimiser and against exhaustive search."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp

from circurve.learning import mixture_weights
from circurve.learning.mixture_weights import NEGLIGIBLE, Scores, find_weights, forward_selection, without_negligible


def made(seed: int, members: int = 4, rows: int = 80, spread: float = 1.5, weighted: bool = False) -> Scores:
    rng = np.random.default_rng(seed)
    log_prob = rng.normal(-800, 50, rows) + rng.normal(0, spread, (members, rows)) + rng.normal(0, 0.3, (members, 1))
    return Scores(log_prob, rng.choice([0.0, 0.5, 1.0, 3.0], rows) if weighted else np.ones(rows))


def mean_log_prob(scores: Scores, weights: np.ndarray) -> float:
    """L(w) by its definition."""
    rows = logsumexp(scores.log_prob, axis=0, b=weights[:, None])
    return float(np.average(rows, weights=scores.row_weights))


def by_scipy(scores: Scores, prior: float = 0.0) -> np.ndarray:
    """The maximum over the simplex, in logits, from a few starts."""

    def loss(free: np.ndarray) -> float:
        weights = np.exp(free - logsumexp(free))
        return -mean_log_prob(scores, weights) - prior * np.mean(free - logsumexp(free))

    starts = [np.zeros(scores.members), *np.random.default_rng(0).normal(0, 2, (2, scores.members))]
    found = [minimize(loss, start, method="BFGS", options={"gtol": 1e-9}) for start in starts]
    best = min(found, key=lambda result: result.fun).x
    return np.exp(best - logsumexp(best))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**16), members=st.integers(2, 5), weighted=st.booleans())
def test_em_finds_the_maximum_that_scipy_finds(seed, members, weighted):
    scores = made(seed, members, weighted=weighted)
    weights = find_weights(scores, "em")
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert scores.mean_mixed(weights) == pytest.approx(mean_log_prob(scores, weights), rel=1e-12)
    assert mean_log_prob(scores, weights) >= mean_log_prob(scores, by_scipy(scores)) - 2e-7


def test_any_start_leads_to_the_same_weights():
    scores = made(3)
    starts = np.random.default_rng(0).dirichlet(np.ones(4), 3)
    for start in starts:
        np.testing.assert_allclose(find_weights(scores, "em", start), find_weights(scores, "em"), atol=2e-3)


def test_the_pseudocount_of_stacked_weights_is_a_dirichlet_prior():
    scores = made(1)
    np.testing.assert_allclose(mixture_weights._em(scores, 0.3), by_scipy(scores, prior=0.3), atol=1e-4)


def test_few_rows_are_better_served_by_stacked_weights():
    """Members that are equally good in the long run, weighted by 15 rows and scored on 2000 others."""
    gains = []
    for seed in range(20):
        many = made(seed, members=8, rows=2015, spread=0.7)
        level = many.log_prob - many.log_prob.mean(1, keepdims=True) + many.log_prob.mean()
        few, fresh = (Scores(level[:, part], np.ones(n)) for part, n in ((slice(15), 15), (slice(15, None), 2000)))
        gains.append(fresh.mean_mixed(find_weights(few, "stacked")) - fresh.mean_mixed(find_weights(few, "em")))
    assert np.mean(gains) > 3 * np.std(gains) / np.sqrt(len(gains))


def test_stacked_weights_follow_the_rows_where_they_are_many():
    scores = made(0, members=3, rows=3000)
    np.testing.assert_allclose(find_weights(scores, "stacked"), find_weights(scores, "em"), atol=0.05)


def test_rows_that_no_member_explains_and_rows_of_weight_zero_do_not_matter():
    scores = made(5)
    log_prob = np.concatenate([scores.log_prob, np.full((4, 2), -np.inf)], axis=1)
    with_impossible = Scores(log_prob, np.append(scores.row_weights, [1.0, 0.0]))
    np.testing.assert_allclose(find_weights(with_impossible, "em"), find_weights(scores, "em"))
    assert with_impossible.mean_mixed(np.full(4, 0.25)) == -np.inf
    only_unused = Scores(log_prob, np.append(scores.row_weights, [0.0, 0.0]))
    assert only_unused.mean_mixed(np.full(4, 0.25)) == pytest.approx(scores.mean_mixed(np.full(4, 0.25)))


def test_a_row_that_only_one_member_explains_keeps_that_member():
    log_prob = np.array([[-1.0, -1.0, -1.0, -np.inf], [-9.0, -9.0, -9.0, -2.0]])
    assert find_weights(Scores(log_prob, np.ones(4)), "em")[1] > 0.2


def test_members_of_negligible_weight_go_and_the_others_are_weighted_again():
    scores = made(7, members=6)
    bad = scores.log_prob - np.array([0, 0, 0, 20, 20, 20])[:, None]
    scores = Scores(bad, scores.row_weights)
    kept, weights = without_negligible(scores, "em", range(6))
    assert set(kept) <= {0, 1, 2}
    assert (weights >= NEGLIGIBLE).all()
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights, find_weights(scores.pick(kept), "em"), atol=1e-3)
    assert without_negligible(scores, "uniform", range(6))[0] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("weighting", ["em", "uniform"])
def test_forward_selection_takes_the_best_pair_with_the_best_first(weighting):
    """For two members, the step that is greedy is the best one given the first."""
    for seed in range(5):
        scores = made(seed, members=6, spread=1.0)
        chosen = forward_selection(scores, 2, weighting)
        first = int(np.argmax(scores.log_prob.mean(1)))
        assert chosen[0] == first
        pairs = {m: [first, m] for m in range(6) if m != first}
        reached = {
            m: mean_log_prob(scores.pick(pair), find_weights(scores.pick(pair), weighting)) for m, pair in pairs.items()
        }
        assert reached[chosen[1]] == pytest.approx(max(reached.values()), abs=1e-5)


def test_forward_selection_stops_where_nothing_helps_and_is_near_the_best_set():
    scores = made(2, members=7, spread=1.0)
    chosen = forward_selection(scores, 3, "em")
    best = max(scores.pick(s).mean_mixed(find_weights(scores.pick(s), "em")) for s in combinations(range(7), 3))
    assert scores.pick(chosen).mean_mixed(find_weights(scores.pick(chosen), "em")) > best - 0.05
    alone = Scores(np.stack([np.full(9, -1.0), np.full(9, -2.0)]), np.ones(9))
    assert forward_selection(alone, 2, "em") == [0]


def test_a_member_of_negligible_weight_stays_where_a_row_is_impossible_without_it():
    rng = np.random.default_rng(0)
    log_prob = rng.normal([[-5.0], [-9.0], [-9.5], [-9.0]], 1.0, (4, 5000))
    log_prob[0, 7] = log_prob[3, 7] = -np.inf  # members 1 and 2 explain the row: one of them is enough
    scores = Scores(log_prob, np.ones(5000))
    kept, weights = without_negligible(scores, "em", range(4))
    assert kept == [0, 1]
    assert 0 < weights[1] < NEGLIGIBLE
    assert scores.pick(kept).mean_mixed(weights) > -5.01
    uncounted = Scores(log_prob, np.where(np.arange(5000) == 7, 0.0, 1.0))
    assert without_negligible(uncounted, "em", range(4))[0] == [0]


@pytest.mark.parametrize("weighting", ["em", "uniform"])
def test_forward_selection_goes_on_where_every_pair_has_an_impossible_row(weighting):
    log_prob = np.full((4, 300), -np.inf)
    log_prob[0, 200:] = log_prob[1, 100:200] = log_prob[2, :100] = log_prob[3, :50] = -5.0
    scores = Scores(log_prob, np.ones(300))
    assert forward_selection(scores, 2, weighting) == [0, 1]
    chosen = forward_selection(scores, 3, weighting)
    assert sorted(chosen) == [0, 1, 2]
    assert np.isfinite(scores.pick(chosen).mean_mixed(np.full(3, 1 / 3)))


def test_forward_selection_goes_on_beside_a_row_that_no_member_explains():
    scores = made(2, members=7, spread=1.0)
    longer = Scores(np.append(scores.log_prob, np.full((7, 1), -np.inf), axis=1), np.append(scores.row_weights, 1.0))
    assert forward_selection(longer, 3, "em") == forward_selection(scores, 3, "em")
