"""Variances, masses and moments of intervals and highest densities of all families, by sums and integrals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from family_cases import (
    ALL,
    GROUPS,
    LEARNING,
    RUNS,
    SAMPLES,
    UNITS,
    Case,
    grid_of,
    log_prob,
    parameters_of,
    values_of,
)
from torch import Tensor

from circurve.inputs import (
    LOG_ZERO,
    Bernoulli,
    Categorical,
)


@pytest.mark.parametrize("case", LEARNING)
def test_the_variance_is_the_expected_squared_distance_from_the_mean(case: Case) -> None:
    parameters = parameters_of(case, seed=0)
    grid, width = grid_of(case, parameters)
    p = log_prob(case, parameters, grid.expand(1, GROUPS, -1)).exp() * width
    mean = case.family.mean(parameters)[..., None]
    torch.testing.assert_close(
        case.family.variance(parameters), ((grid - mean).square() * p).sum(-1), rtol=1e-6, atol=0
    )


def intervals_of(case: Case, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Ends of intervals, in order: among values, beyond them, open on either side, and of one value only."""
    low, high = torch.stack([values_of(case, seed, dtype), values_of(case, seed + 1, dtype)]).sort(0).values
    low[..., ::7], high[..., 1::7] = -torch.inf, torch.inf
    high[..., 2::7] = low[..., 2::7]
    low[..., 3::7] -= 0.5
    return low, high


@pytest.mark.parametrize(("dtype", "absolute"), [(torch.float64, 1e-8), (torch.float32, 1e-4)])
@pytest.mark.parametrize("case", ALL)
def test_the_mass_of_an_interval_agrees_with_scipy(case: Case, dtype: torch.dtype, absolute: float) -> None:
    parameters, (low, high) = parameters_of(case, 0, dtype), intervals_of(case, 0, dtype)
    found = case.family.log_mass(parameters, low, high)
    assert found.shape == (RUNS, GROUPS, UNITS, SAMPLES)
    assert found.dtype == dtype
    p = parameters.double().numpy()[..., None, :]
    ends = (low.double().numpy()[..., None, :], high.double().numpy()[..., None, :])
    wanted = np.broadcast_to(case.log_mass(p, *ends), found.shape)
    np.testing.assert_allclose(found.numpy(), np.maximum(wanted, LOG_ZERO), rtol=max(1e-5, absolute), atol=absolute)


@pytest.mark.parametrize("case", ALL)
def test_an_interval_whose_ends_are_in_the_wrong_order_has_no_mass(case: Case) -> None:
    low, high = intervals_of(case, 0, torch.float64)
    swapped = case.family.log_mass(parameters_of(case, 0), high + 1, low)
    assert torch.equal(swapped, torch.full_like(swapped, LOG_ZERO))


@pytest.mark.parametrize("case", ALL)
def test_an_open_interval_has_all_the_mass(case: Case) -> None:
    ends = torch.full((1, GROUPS, 2), torch.inf, dtype=torch.float64)
    log_mass = case.family.log_mass(parameters_of(case, 0), -ends, ends)
    torch.testing.assert_close(log_mass, torch.zeros_like(log_mass), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", ALL)
def test_log_max_is_the_log_probability_of_the_mode(case: Case) -> None:
    parameters = parameters_of(case, 0)
    highest = log_prob(case, parameters, grid_of(case, parameters)[0].expand(1, GROUPS, -1)).amax(-1)
    found = case.family.log_max(parameters)
    assert found.shape == highest.shape
    assert (found >= highest - 1e-9).all()
    assert (found <= highest + 1e-2).all()  # the grid of a density may miss its peak


@pytest.mark.parametrize("case", LEARNING)
def test_moments_inside_an_interval_agree_with_sums_over_a_grid(case: Case) -> None:
    if isinstance(case.family, Bernoulli | Categorical):
        with pytest.raises(NotImplementedError, match=f"{type(case.family).__name__} needs interval_moments"):
            case.family.interval_moments(parameters_of(case, 0), torch.zeros(1, 1, 1), torch.ones(1, 1, 1))
        return
    parameters = parameters_of(case, 0)
    mean, deviation = case.family.mean(parameters), case.family.variance(parameters).sqrt()
    centre, spread = mean.mean(), deviation.mean()
    low = torch.stack([centre - spread, centre + spread, centre - torch.inf]).expand(1, GROUPS, 3)
    high = torch.stack([centre + spread, centre + torch.inf, centre + 0.3 * spread]).expand(1, GROUPS, 3)
    found = case.family.interval_moments(parameters, low, high)
    grid, _ = grid_of(case, parameters)
    if not case.family.discrete:
        grid = torch.linspace(grid[0].item(), grid[-1].item(), 40_001, dtype=torch.float64)
    logs = log_prob(case, parameters, grid.expand(1, GROUPS, -1))[..., None, :]  # (R, G, K, 1, points)
    inside = ((grid >= low[..., None]) & (grid <= high[..., None]))[:, :, None]
    assert all(bool(part.isfinite().all()) for part in found)
    p = torch.where(inside, logs, -torch.inf).softmax(-1)
    wanted = (grid * p).sum(-1)
    variance = ((grid - wanted[..., None]).square() * p).sum(-1)
    filled = inside.any(-1).expand(wanted.shape)  # an interval may lie between two whole numbers
    torch.testing.assert_close(found[0][filled], wanted[filled], rtol=1e-3, atol=1e-3 * spread.item())
    torch.testing.assert_close(found[1][filled], variance[filled], rtol=2e-3, atol=1e-3 * spread.item() ** 2)


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parameters_without_bounds_come_back(case: Case, dtype: torch.dtype) -> None:
    parameters = torch.from_numpy(case.draw(np.random.default_rng(0), (GROUPS, UNITS))).to(dtype)
    free = case.family.to_free(parameters)
    assert bool(free.isfinite().all())
    assert free.shape[:-1] == parameters.shape[:-1]
    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(case.family.from_free(free), parameters, rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_any_numbers_without_bounds_give_valid_parameters(case: Case, dtype: torch.dtype, size: float) -> None:
    start = torch.from_numpy(case.draw(np.random.default_rng(0), (50, UNITS))).to(dtype)
    free = size * torch.randn(case.family.to_free(start).shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert case.family.check_parameters(case.family.from_free(free)) is None
