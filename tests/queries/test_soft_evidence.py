"""Likelihoods and intervals against sums and integrals over what they allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from world import GRIDS, evidence_of, on_grid, probability, target_of

from circuits import Case, cases
from circurve.queries import conditional, covariance, distribution, marginal, mean_and_variance, sample
from circurve.queries.evidence import Evidence
from circurve.queries.target import Target

FINE = np.linspace(-12, 12, 4801)


def allowed(case: Case, column: int, draw: st.DataObject) -> tuple[dict, np.ndarray, np.ndarray]:
    """Soft evidence for a column, and what it is worth at the points of a grid of that column."""
    domain = case.domains[column]
    if domain in ("binary", "ternary"):
        grid = np.array(target_of(case).states[column], dtype=float)  # indicators may leave some out
        size = len(grid)
        worth = np.array(draw.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.5]), min_size=size, max_size=size)))
        return {"likelihoods": {column: worth}}, grid, worth
    if domain == "count":
        low, high = sorted(draw.draw(st.tuples(st.integers(0, 6), st.integers(0, 8))))
        grid = GRIDS[domain][0]
        return {"intervals": {column: (low, high)}}, grid, ((grid >= low) & (grid <= high)).astype(float)
    low, high = sorted(draw.draw(st.tuples(st.integers(-4, 4), st.integers(-4, 4))))
    ends = (float(low), np.inf) if low == high else (float(low), float(high))
    worth = ((ends[0] <= FINE) & (ends[1] >= FINE)).astype(float)
    worth[(ends[0] == FINE) | (ends[1] == FINE)] = 0.5  # the trapezoidal rule
    return {"intervals": {column: ends}}, FINE, worth


def case_with_soft(case: Case, draw: st.DataObject) -> tuple[Case, Target, Evidence, np.ndarray, torch.Tensor]:
    """A case of one row whose first column is missing, soft evidence for it, and p(e, x_0) worth(x_0) on a grid."""
    x = case.x[:1].copy()
    x[:, 0] = np.nan
    case = replace(case, x=x, sample_weights=None, labels=None if case.labels is None else case.labels[:1])
    soft, grid, worth = allowed(case, 0, draw)
    target = target_of(case)
    points = np.repeat(x, len(grid), axis=0)
    points[:, 0] = grid
    labels = None if case.labels is None else case.labels.expand(len(grid))
    width = 1.0 if case.domains[0] != "real" else grid[1] - grid[0]
    mass = probability(case, points, labels) * torch.from_numpy(worth) * width
    assume(float(mass.sum()) > 1e-12)
    return case, target, evidence_of(case, target, **soft), grid, mass


@settings(max_examples=20, deadline=None)
@given(case=cases(zeros=True, samples=1), data=st.data())
def test_soft_evidence_is_a_weighted_sum_over_the_values_it_allows(case: Case, data: st.DataObject) -> None:
    case, target, evidence, grid, mass = case_with_soft(case, data)
    points = torch.from_numpy(grid)
    torch.testing.assert_close(marginal(target, evidence)[0, 0].exp(), mass.sum(), rtol=2e-4, atol=1e-12)
    given_rest = evidence.hide([0])
    asked = evidence.hide(range(1, target.variables))
    wanted = mass.sum() / on_grid(case, 0, [0])[1].sum()
    torch.testing.assert_close(conditional(target, asked, given_rest)[0, 0].exp(), wanted, rtol=2e-4, atol=1e-12)
    share = mass / mass.sum()
    mean = (points * share).sum()
    variance = ((points - mean).square() * share).sum()
    found = mean_and_variance(target, evidence)
    torch.testing.assert_close(found[0][0, 0, 0], mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[1][0, 0, 0], variance, rtol=2e-3, atol=1e-3)
    density = distribution(target, 0, evidence)
    torch.testing.assert_close(density.mean()[0, 0], mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(density.variance()[0, 0], variance, rtol=2e-3, atol=1e-3)
    middle = density.quantile(0.5)[0, 0]
    assert density.cdf(middle[None] + 1e-6)[0, 0, 0] >= 0.5 - 1e-6
    assert density.cdf(middle[None] - 1e-6)[0, 0, 0] <= 0.5 + 1e-6
    below = share[points <= middle + 1e-9].sum()
    assert below >= 0.5 - 0.02
    best = density.mode()[0, 0]
    width = 1.0 if case.domains[0] != "real" else grid[1] - grid[0]
    assert density.density(best[None])[0, 0, 0] * width >= share.max() * 0.99 - 1e-9


@settings(max_examples=15, deadline=None)
@given(case=cases(zeros=True, samples=1, variables=3), data=st.data())
def test_draws_stay_within_soft_evidence_and_follow_it(case: Case, data: st.DataObject) -> None:
    case, target, evidence, grid, mass = case_with_soft(case, data)
    points, share = torch.from_numpy(grid), mass / mass.sum()
    mean = float((points * share).sum())
    deviation = float(((points - mean).square() * share).sum().sqrt())
    count = 3000
    many = evidence.rows(torch.zeros(count, dtype=torch.int64))
    for x in (sample(target, evidence, count, seed=4)[0, :, 0, 0], sample(target, many, 1, seed=4)[0, 0, :, 0]):
        assert abs(float(x.mean()) - mean) <= 6 * deviation / count**0.5 + 1e-2
        for low, high in evidence.intervals.values():
            assert bool(((x >= low) & (x <= high)).all())
        if evidence.likelihoods:
            counts = torch.stack([(x == point).sum() for point in points]).double()
            assert float(counts.sum()) == count
            assert float(counts[share == 0].sum()) == 0
            kept = share > 1e-3
            statistic = ((counts - count * share).square() / (count * share))[kept].sum()
            assert stats.chi2.sf(float(statistic), int(kept.sum())) > 1e-7


@settings(max_examples=10, deadline=None)
@given(case=cases(zeros=False, samples=1, variables=3, domains=("real", "count", "binary")), data=st.data())
def test_covariances_under_an_interval(case: Case, data: st.DataObject) -> None:
    assume(case.circuit.variables > 1)
    x = case.x.copy()
    x[:, :2] = np.nan
    case = replace(case, x=x)
    case, target, evidence, grid, mass = case_with_soft(case, data)
    found = covariance(target, evidence)[0, 0, 0, 1]
    other = GRIDS[case.domains[1]][0]
    points = np.array(np.meshgrid(grid, other, indexing="ij")).reshape(2, -1).T
    rows = np.repeat(case.x, len(points), axis=0)
    rows[:, :2] = points
    labels = None if case.labels is None else case.labels.expand(len(rows))
    joint = probability(case, rows, labels).reshape(len(grid), len(other))
    marginal_mass = joint.sum(1, keepdim=True)
    joint = joint * torch.where(marginal_mass > 0, mass[:, None] / marginal_mass, 0.0)
    joint = joint / joint.sum()
    a, b = torch.from_numpy(grid)[:, None], torch.from_numpy(other)[None]
    wanted = (a * b * joint).sum() - (a * joint).sum() * (b * joint).sum()
    torch.testing.assert_close(found, wanted, rtol=5e-3, atol=2e-3)
