"""Masses and moments of binomials in intervals, from the values next to the peak, against sums over all values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from circurve.inputs import LOG_ZERO, Binomial
from circurve.inputs.one_peak import draws_inside

PROBABILITIES = np.array([0.0, 1e-12, 1e-3, 0.3, 0.5, 0.97, 1 - 1e-12, 1.0])


def intervals(trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Open ones, single values, far tails on both sides, and some at random."""
    drawn = np.sort(np.random.default_rng(trials).integers(0, trials + 1, (2, 9)), axis=0).astype(float)
    low = [-np.inf, trials / 2, 0, 0, trials, -np.inf, trials - 3.5, *drawn[0]]
    high = [np.inf, np.inf, 0, trials / 2, trials, 3.5, np.inf, *drawn[1]]
    return np.array(low), np.array(high)


@pytest.mark.parametrize("trials", [1, 2, 37, 5000, 300_000])
def test_sums_from_the_peak_are_those_over_all_values(trials: int) -> None:
    low, high = intervals(trials)
    ends = [torch.from_numpy(end)[None, None] for end in (low, high)]
    parameters = torch.from_numpy(PROBABILITIES)[None, None, :, None]
    family = Binomial(trials)
    log_mass = family.log_mass(parameters, *ends)[0, 0].numpy()
    mean, variance = (part[0, 0].numpy() for part in family.interval_moments(parameters, *ends))
    x = np.arange(trials + 1.0)
    logs = family.log_prob(parameters, torch.from_numpy(x)[None, None])[0, 0].numpy()
    rounding = 1e-14 + 1e-15 * special.gammaln(trials + 1)  # of the terms of log p
    for unit in range(len(PROBABILITIES)):
        for at, (a, b) in enumerate(zip(low, high, strict=True)):
            inside = (x >= a) & (x <= b)
            wanted = special.logsumexp(logs[unit, inside]) if inside.any() else LOG_ZERO
            assert log_mass[unit, at] == pytest.approx(max(wanted, LOG_ZERO), rel=1e-9, abs=rounding)
            if wanted > LOG_ZERO / 2:
                share = np.exp(logs[unit, inside] - wanted)
                centre = (x[inside] * share).sum() / share.sum()
                spread = (np.square(x[inside] - centre) * share).sum() / share.sum()
                assert mean[unit, at] == pytest.approx(centre, rel=1e-9, abs=1e-12)
                assert variance[unit, at] == pytest.approx(spread, rel=1e-6, abs=1e-15 * max(1.0, centre) ** 2)


def test_far_tails_of_very_many_trials_agree_with_scipy() -> None:
    trials, family = 2**24, Binomial(2**24)
    low = np.array([8388608, 8400000, 8430000, 16_000_000.0])
    ends = [torch.from_numpy(end)[None, None] for end in (low, np.full(4, np.inf))]
    found = family.log_mass(torch.full((1, 1, 1, 1), 0.5, dtype=torch.float64), *ends)[0, 0, 0].numpy()
    near = stats.binom.logsf(low[:3] - 1, trials, 0.5)  # scipy has no logarithm of smaller tails
    np.testing.assert_allclose(found[:3], near, rtol=1e-7)
    ratio = (trials - low[3]) / (low[3] + 1)
    assert found[3] == pytest.approx(stats.binom.logpmf(low[3], trials, 0.5) - np.log1p(-ratio), rel=1e-7)


def test_draws_inside_an_interval_have_its_distribution() -> None:
    trials, levels = 200, (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    ends = torch.full_like(levels, 70), torch.full_like(levels, 90)
    found = draws_inside(Binomial(trials), trials, torch.full((20_000, 1), 0.3, dtype=torch.float64), ends, levels)
    x = np.arange(70, 91)
    wanted = stats.binom.pmf(x, trials, 0.3) / stats.binom.pmf(x, trials, 0.3).sum()
    np.testing.assert_allclose(np.bincount(found.long().numpy(), minlength=91)[70:] / 20_000, wanted, atol=1e-4)
