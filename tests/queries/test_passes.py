"""Marginals, conditionals, distributions and moments against sums and integrals over all values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from world import evidence_of, missing_columns, on_grid, possible_rows, probability, target_of, with_gap

from circuits import Case, cases
from circurve.queries import conditional, covariance, distribution, marginal, mean_and_variance

PRECISIONS = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 3e-4)])


def with_rows(case: Case) -> Case:
    case = possible_rows(with_gap(case))
    assume(len(case.x) > 0)
    return case


@PRECISIONS
@settings(max_examples=15, deadline=None)
@given(case=cases(zeros=False), data=st.data())
def test_a_conditional_is_a_ratio_of_two_marginals(dtype: torch.dtype, tolerance: float, case: Case, data) -> None:
    case = possible_rows(case)
    assume(len(case.x) > 0)
    target = target_of(case, dtype)
    everything = evidence_of(case, target)
    torch.testing.assert_close(
        marginal(target, everything)[0].double(),
        probability(case, case.x, case.labels).log(),
        rtol=tolerance,
        atol=tolerance,
    )
    asked = data.draw(st.sets(st.integers(0, target.variables - 1), min_size=1))
    given_part = everything.hide(sorted(asked))
    asked_part = everything.hide([c for c in range(target.variables) if c not in asked])
    rest = case.x.copy()
    rest[:, sorted(asked)] = np.nan
    wanted = probability(case, case.x, case.labels).log() - probability(case, rest, case.labels).log()
    found = conditional(target, asked_part, given_part)
    torch.testing.assert_close(found[0].double(), wanted, rtol=10 * tolerance, atol=10 * tolerance)


@PRECISIONS
@settings(max_examples=15, deadline=None)
@given(case=cases(zeros=True, samples=3))
def test_the_distribution_of_a_missing_value_is_the_normalised_joint(
    dtype: torch.dtype, tolerance: float, case: Case
) -> None:
    case = with_rows(case)
    target = target_of(case, dtype)
    column = 0
    gap = case.x.copy()
    gap[:, column] = np.nan
    case = possible_rows(Case(case.circuit, case.domains, case.weights, case.inputs, gap, None, case.labels))
    found = distribution(target, column, evidence_of(case, target))
    for row in range(len(case.x)):
        (grid,), mass = on_grid(case, row, [column])
        mass = mass / mass.sum()
        width = grid[1] - grid[0]
        density = found.density(torch.from_numpy(grid))[0, row] * width
        torch.testing.assert_close(density, mass, rtol=tolerance, atol=tolerance)
        points = torch.from_numpy(grid)
        mean = (points * mass).sum()
        torch.testing.assert_close(found.mean()[0, row], mean, rtol=tolerance, atol=tolerance)
        spread = ((points - mean).square() * mass).sum()
        torch.testing.assert_close(found.variance()[0, row], spread, rtol=tolerance, atol=10 * tolerance)
        best = found.mode()[0, row]
        assert found.density(best[None])[0, row, 0] >= (density / width).max() * (1 - 1e-3)
        for level in (0.1, 0.5, 0.9):
            at = found.quantile(level)[0, row]
            assert found.cdf(at[None] + 1e-6)[0, row, 0] >= level - 1e-6
            assert found.cdf(at[None] - 1e-6)[0, row, 0] <= level + 1e-6


@PRECISIONS
@settings(max_examples=12, deadline=None)
@given(case=cases(zeros=True, samples=3))
def test_moments_of_all_missing_values(dtype: torch.dtype, tolerance: float, case: Case) -> None:
    case = with_rows(case)
    target = target_of(case, dtype)
    mean, variance = mean_and_variance(target, evidence_of(case, target))
    for row in range(len(case.x)):
        gaps = missing_columns(case, row)
        for column in range(target.variables):
            if column not in gaps:
                torch.testing.assert_close(
                    mean[0, row, column], torch.tensor(case.x[row, column]), rtol=1e-6, atol=1e-6
                )
                assert variance[0, row, column] == 0
                continue
            (grid,), mass = on_grid(case, row, [column])
            points, mass = torch.from_numpy(grid), mass / mass.sum()
            wanted = (points * mass).sum()
            torch.testing.assert_close(mean[0, row, column], wanted, rtol=tolerance, atol=tolerance)
            spread = ((points - wanted).square() * mass).sum()
            torch.testing.assert_close(variance[0, row, column], spread, rtol=tolerance, atol=10 * tolerance)


@settings(max_examples=15, deadline=None)
@given(case=cases(zeros=True, samples=2, variables=4))
def test_covariances_are_those_of_the_joint_on_a_grid(case: Case) -> None:
    case = with_rows(case)
    target = target_of(case)
    found = covariance(target, evidence_of(case, target))
    for row in range(len(case.x)):
        gaps = missing_columns(case, row)
        for a in range(target.variables):
            for b in range(a, target.variables):
                if a not in gaps or b not in gaps:
                    assert found[0, row, a, b] == 0
                    continue
                if a == b:
                    continue
                (first, second), mass = on_grid(case, row, [a, b])
                mass = mass / mass.sum()
                x, y = torch.from_numpy(first)[:, None], torch.from_numpy(second)[None]
                wanted = (x * y * mass).sum() - (x * mass).sum() * (y * mass).sum()
                torch.testing.assert_close(found[0, row, a, b], wanted, rtol=1e-7, atol=1e-7)
                torch.testing.assert_close(found[0, row, b, a], wanted, rtol=1e-7, atol=1e-7)
        variance = mean_and_variance(target, evidence_of(case, target))[1]
        torch.testing.assert_close(found[0, row].diagonal(), variance[0, row], rtol=1e-9, atol=1e-12)
