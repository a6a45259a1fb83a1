"""Draws against the definitions: chi-square for discrete columns, moments for the others, with and without evidence."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from world import GRIDS, evidence_of, fleet, on_grid, possible_rows, probability, target_of, with_gap

from circuits import Case, cases, random_parameters, random_weights
from circurve.queries import Target, no_evidence, sample, sampling

DRAWS = 4000
LEAST_P = 1e-7
"""A test of a few hundred comparisons fails by chance with a probability below 1e-4, and seeds are fixed."""


def discrete_p_value(case: Case, x: np.ndarray, row: int) -> float:  # (M, V)
    """The chi-square test of draws of a few discrete columns against their joint probabilities."""
    gaps = [int(c) for c in np.flatnonzero(np.isnan(case.x[row])) if case.domains[c] in ("binary", "ternary")][:3]
    if not gaps:
        return 1.0
    _, mass = on_grid(case, row, gaps)
    expected = (mass / mass.sum()).numpy().ravel() * len(x)
    grids = [GRIDS[case.domains[c]][0] for c in gaps]
    cells = {cell: at for at, cell in enumerate(itertools.product(*grids))}
    counts = np.zeros(len(cells))
    for values in x[:, gaps]:
        counts[cells[tuple(values)]] += 1
    assert counts[expected < 1e-9].sum() == 0, "a draw of probability zero"
    large = expected >= 5
    if large.sum() < 2:
        return 1.0
    observed, wanted = counts[large], expected[large]
    statistic = ((observed - wanted) ** 2 / wanted).sum()
    return float(stats.chi2.sf(statistic, large.sum()))  # a degree of freedom too many where all cells are large


def assert_moments(case: Case, x: np.ndarray, row: int) -> None:  # (M, V)
    """Means of columns that are not discrete are within six standard errors."""
    for column in np.flatnonzero(np.isnan(case.x[row])):
        (grid,), mass = on_grid(case, row, [int(column)])
        points, share = torch.from_numpy(grid), mass / mass.sum()
        mean = float((points * share).sum())
        deviation = float(((points - mean).square() * share).sum().sqrt())
        assert abs(x[:, column].mean() - mean) <= 6 * deviation / len(x) ** 0.5 + 1e-5
        if deviation > 0:
            fourth = float(((points - mean) ** 4 * share).sum())
            error = (max(fourth - deviation**4, 0) / len(x)) ** 0.5
            assert abs(x[:, column].var() - deviation**2) <= 6 * error + 1e-4


def check_draws(case: Case, found: torch.Tensor) -> None:  # (M, N, V)
    for row in range(len(case.x)):
        x = found[:, row].double().numpy()
        known = ~np.isnan(case.x[row])
        np.testing.assert_allclose(x[:, known], np.broadcast_to(case.x[row, known], x[:, known].shape), rtol=1e-6)
        assert discrete_p_value(case, x, row) > LEAST_P
        assert_moments(case, x, row)


@settings(max_examples=15, deadline=None)
@given(case=cases(zeros=True, samples=2))
def test_draws_without_evidence_follow_the_circuit(case: Case) -> None:
    case = replace(case, x=np.full_like(case.x, np.nan), sample_weights=None)
    target = target_of(case)
    check_draws(case, sample(target, evidence_of(case, target), DRAWS, seed=1)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@settings(max_examples=12, deadline=None)
@given(case=cases(zeros=True, samples=2))
def test_many_draws_for_each_row_follow_the_conditional(dtype: torch.dtype, case: Case) -> None:
    case = possible_rows(with_gap(case))
    assume(len(case.x) > 0)
    target = target_of(case, dtype)
    check_draws(case, sample(target, evidence_of(case, target), DRAWS, seed=2)[0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@settings(max_examples=12, deadline=None)
@given(case=cases(zeros=True, samples=2))
def test_one_draw_for_each_of_many_equal_rows_follows_the_conditional(dtype: torch.dtype, case: Case) -> None:
    case = possible_rows(with_gap(case))
    assume(len(case.x) > 0)
    target = target_of(case, dtype)
    many = evidence_of(case, target).rows(torch.arange(len(case.x)).repeat_interleave(DRAWS))
    found = sample(target, many, 1, seed=3)[0, 0]
    check_draws(case, found.reshape(len(case.x), DRAWS, -1).transpose(0, 1))


@settings(max_examples=10, deadline=None)
@given(case=cases(samples=3), at_once=st.sampled_from([1, 16]))
def test_a_run_of_a_fleet_draws_as_it_does_alone(case: Case, at_once: int) -> None:
    case = possible_rows(with_gap(case))
    assume(len(case.x) > 0)
    rng = np.random.default_rng(0)
    second = replace(
        case,
        weights={node: random_weights(node, False, rng) for node in case.circuit.sums},
        inputs={node: random_parameters(node, False, rng) for node in case.circuit.inputs},
    )
    both = target_of(case, params=fleet(case, second))
    assume(bool((probability(second, case.x, case.labels) > 0).all()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "CPU_BYTES", 1)  # blocks of 64 rows
        patch.setattr(sampling, "RUNS_AT_ONCE", at_once)
        for draws in (1, 50):
            together = sample(both, evidence_of(case, both), draws, seed=5)
            for run, alone in enumerate((case, second)):
                target = target_of(alone)
                assert torch.equal(together[run], sample(target, evidence_of(case, target), draws, seed=5)[0])


def test_the_seed_decides_the_draws(simple: Target) -> None:
    first, again, other = (sample(simple, no_evidence(simple, 50), seed=seed) for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
