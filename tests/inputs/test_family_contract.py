"""What every input family must do, checked against scipy, brute force and the definition of an M-step."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from family_cases import (
    ALL,
    DTYPES,
    GROUPS,
    LEARNING,
    RUNS,
    SAMPLES,
    UNITS,
    Case,
    grid_of,
    log_prob,
    parameters_of,
    per_run,
    statistics_of,
    values_of,
    weights,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from circurve.inputs import (
    FAMILIES,
    LOG_ZERO,
    Bernoulli,
    Binomial,
    Categorical,
    Gaussian,
    Indicator,
    family_from_json,
    family_to_json,
)

# ------------------------------------------------------------------------------------------- log-probability


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize(
    ("dtype", "absolute", "relative"), [(torch.float64, 1e-10, 1e-10), (torch.float32, 1e-4, 1e-5)]
)
def test_log_prob_agrees_with_scipy(case: Case, dtype: torch.dtype, absolute: float, relative: float) -> None:
    for seed in range(3):
        parameters, x = parameters_of(case, seed, dtype), values_of(case, seed, dtype)
        expected = case.reference(parameters.double().numpy()[..., None, :], x.double().numpy()[..., None, :])
        expected = np.broadcast_to(expected, (RUNS, GROUPS, UNITS, SAMPLES))
        np.testing.assert_allclose(log_prob(case, parameters, x).numpy(), expected, rtol=relative, atol=absolute)


@pytest.mark.parametrize("case", LEARNING)
def test_probabilities_add_up_to_one(case: Case) -> None:
    parameters = parameters_of(case, seed=0)
    grid, width = grid_of(case, parameters)
    total = log_prob(case, parameters, grid.expand(1, GROUPS, -1)).exp().sum(-1) * width
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", LEARNING)
def test_zero_probability_is_written_as_log_zero(case: Case, dtype: torch.dtype) -> None:
    for unit, value in case.impossible:
        parameters = torch.tensor(unit, dtype=dtype).expand(1, 1, UNITS, -1)
        log_value = log_prob(case, parameters, torch.full((1, 1, 2), value, dtype=dtype))
        assert log_value.isfinite().all()
        torch.testing.assert_close(log_value, torch.full_like(log_value, LOG_ZERO))


@pytest.mark.parametrize("case", ALL)
def test_log_prob_accepts_values_for_each_run(case: Case) -> None:
    parameters, x = parameters_of(case, 0), values_of(case, 0, runs=RUNS)
    alone = [log_prob(case, parameters[r : r + 1], x[r : r + 1]) for r in range(RUNS)]
    torch.testing.assert_close(log_prob(case, parameters, x), torch.cat(alone), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ALL)
def test_autograd_differentiates_log_prob_by_its_parameters(case: Case) -> None:
    parameters, x = parameters_of(case, 0), values_of(case, 0)
    for place in range(parameters.shape[-1]):
        step = torch.zeros_like(parameters)
        step[..., place] = 1e-4 * parameters[..., place].abs().clamp_min(1e-2)
        ends = [log_prob(case, parameters + sign * step, x) for sign in (-1, 1)]
        wanted = ((ends[1] - ends[0]) / 2).sum(-1)
        found = torch.func.jvp(lambda p: log_prob(case, p, x), (parameters,), (step,))[1].sum(-1)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------------------------ features and statistics


@pytest.mark.parametrize("case", ALL)
def test_missing_values_add_nothing_to_the_statistics(case: Case) -> None:
    x, weight = values_of(case, 0), weights(0)
    observed = (torch.arange(SAMPLES) % 3 > 0).to(x.dtype).expand_as(x)
    kept = observed[0, 0] > 0
    with_gaps = statistics_of(case, x * observed, weight, observed)
    torch.testing.assert_close(with_gaps, statistics_of(case, x[..., kept], weight[..., kept]))
    everything = statistics_of(case, x, weight, torch.ones_like(x))
    torch.testing.assert_close(everything, statistics_of(case, x, weight))


@pytest.mark.parametrize("case", ALL)
def test_statistics_add_up_over_parts_of_the_data(case: Case) -> None:
    x, weight = values_of(case, 1), weights(1)
    parts = [statistics_of(case, x[..., s], weight[..., s]) for s in (slice(0, 13), slice(13, SAMPLES))]
    torch.testing.assert_close(parts[0] + parts[1], statistics_of(case, x, weight))


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("runs", [1, RUNS])
def test_features_have_one_axis_more_than_the_values(case: Case, runs: int) -> None:
    features = case.family.features(values_of(case, 0, torch.float32, runs), None)
    assert features.shape[:2] == (runs, GROUPS)
    assert features.shape[-1] == SAMPLES
    assert features.dtype in DTYPES


# ----------------------------------------------------------------------------------------------------- M-step


def perturbed(case: Case, parameters: Tensor, size: float, generator: torch.Generator) -> Tensor:
    noise = size * torch.randn(parameters.shape, generator=generator, dtype=torch.float64)
    match case.family:
        case Categorical():
            return (parameters.log() + noise).softmax(-1)
        case Bernoulli() | Binomial():
            return (parameters.logit() + noise).sigmoid()
        case Gaussian():
            mean, variance = parameters.unbind(-1)
            return torch.stack([mean + noise[..., 0] * variance.sqrt(), variance * noise[..., 1].exp()], -1)
        case _:
            return parameters * noise.exp()


@pytest.mark.parametrize("case", LEARNING)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.sampled_from([1e-3, 1e-2, 0.3]))
def test_a_full_m_step_cannot_be_improved_by_any_perturbation(case: Case, seed: int, size: float) -> None:
    x, weight = values_of(case, seed), weights(seed)
    start = parameters_of(case, seed)
    best = case.family.maximize(start, statistics_of(case, x, weight), per_run(0), per_run(1))
    assert case.family.check_parameters(best) is None

    def objective(parameters: Tensor) -> Tensor:  # (R, G, K)
        return (weight * log_prob(case, parameters, x)).sum(-1)

    reached = objective(best)
    slack = 1e-10 * reached.abs() + 1e-8  # rounding; the smallest perturbations cost some 1e-6
    generator = torch.Generator().manual_seed(seed)
    assert (objective(start) <= reached + slack).all()
    for _ in range(5):
        assert (objective(perturbed(case, best, size, generator)) <= reached + slack).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ALL)
def test_step_zero_keeps_the_parameters(case: Case, dtype: torch.dtype) -> None:
    parameters = parameters_of(case, 0, dtype)
    statistics = statistics_of(case, values_of(case, 0, dtype), weights(0, dtype=dtype))
    for pseudocount in (0.0, 0.5):
        same = case.family.maximize(parameters, statistics, per_run(pseudocount, dtype=dtype), per_run(0, dtype=dtype))
        assert torch.equal(same, parameters)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pseudocount", [0.0, 0.5])
@pytest.mark.parametrize("case", ALL)
def test_a_unit_without_weight_keeps_its_parameters(case: Case, pseudocount: float, dtype: torch.dtype) -> None:
    parameters = parameters_of(case, 0, dtype)
    weight = weights(0, dtype=dtype)
    weight[:, :, 1] = 0
    statistics = statistics_of(case, values_of(case, 0, dtype), weight)
    moved = case.family.maximize(parameters, statistics, per_run(pseudocount, dtype=dtype), per_run(1, dtype=dtype))
    assert torch.equal(moved[:, :, 1], parameters[:, :, 1])
    assert moved.isfinite().all()
    if parameters.shape[-1]:
        assert not torch.equal(moved[:, :, 0], parameters[:, :, 0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight", [1e-45, 1e-38, 1e-30, 1e30])
@pytest.mark.parametrize("case", ALL)
def test_tiny_and_huge_weights_leave_valid_parameters(case: Case, weight: float, dtype: torch.dtype) -> None:
    parameters = parameters_of(case, 0, dtype)
    constant = torch.full((RUNS, GROUPS, UNITS, SAMPLES), weight, dtype=dtype)
    statistics = statistics_of(case, values_of(case, 0, dtype), constant)
    moved = case.family.maximize(parameters, statistics, per_run(0, dtype=dtype), per_run(1, dtype=dtype))
    assert case.family.check_parameters(moved) is None


@pytest.mark.parametrize("case", ALL)
def test_the_m_step_returns_the_dtype_of_the_parameters_and_changes_no_argument(case: Case) -> None:
    for dtype in DTYPES:
        for statistics_dtype in DTYPES:
            parameters = parameters_of(case, 0, dtype)
            statistics = statistics_of(case, values_of(case, 0), weights(0)).to(statistics_dtype)
            arguments = (parameters, statistics, per_run(0.1, dtype=dtype), per_run(0.3, dtype=dtype))
            before = [argument.clone() for argument in arguments]
            assert case.family.maximize(*arguments).dtype == dtype
            assert all(torch.equal(a, b) for a, b in zip(before, arguments, strict=True))


@pytest.mark.parametrize("case", ALL)
def test_each_run_has_its_own_pseudocount_and_step(case: Case) -> None:
    parameters = parameters_of(case, 0)
    statistics = statistics_of(case, values_of(case, 0), weights(0))
    pseudocount, step = per_run(0, 0.5, 20), per_run(1, 0.1, 0.7)
    together = case.family.maximize(parameters, statistics, pseudocount, step)
    for r in range(RUNS):
        run = slice(r, r + 1)
        alone = case.family.maximize(parameters[run], statistics[run], pseudocount[run], step[run])
        assert torch.equal(together[run], alone)


@pytest.mark.parametrize("case", LEARNING)
def test_a_pseudocount_pulls_less_the_more_data_there_is(case: Case) -> None:
    parameters = parameters_of(case, 0)
    statistics = statistics_of(case, values_of(case, 0), weights(0))
    full = case.family.maximize(parameters, statistics, per_run(0), per_run(1))
    gaps = []
    for factor in (1, 10, 1e6):
        pulled = case.family.maximize(parameters, factor * statistics, per_run(5), per_run(1))
        gaps.append((pulled - full).abs().max().item() / full.abs().max().item())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-4


# ---------------------------------------------------------------------------------------- sample, mode, mean


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ALL)
def test_the_sample_mean_approaches_the_mean(case: Case, dtype: torch.dtype) -> None:
    parameters = parameters_of(case, 0, dtype)[0, 0]  # (K, P)
    draws = case.family.sample(parameters.expand(20_000, *parameters.shape), torch.Generator().manual_seed(1))
    assert draws.shape == (20_000, UNITS)
    assert draws.dtype == dtype
    assert case.family.check_values(draws.numpy().ravel()) is None
    error = (draws.double().mean(0) - case.family.mean(parameters).double()).abs()
    assert (error <= 5 * draws.double().std(0) / 20_000**0.5 + 1e-6).all()


@pytest.mark.parametrize("case", LEARNING)
def test_draws_follow_the_log_probability(case: Case) -> None:
    parameters, count = parameters_of(case, 2)[:1, :1], 20_000
    grid, width = grid_of(case, parameters)
    expected = (log_prob(case, parameters, grid.expand(1, 1, -1)).exp() * width).cumsum(-1)[0, 0]  # (K, points)
    draws = case.family.sample(parameters[0, 0].expand(count, UNITS, -1), torch.Generator().manual_seed(2))
    below = torch.searchsorted(draws.T.contiguous().sort().values, grid.expand(UNITS, -1).contiguous(), right=True)
    # Dvoretzky, Kiefer, Wolfowitz: a gap over 0.024 has probability 2 exp(-2 count 0.024^2) < 1e-9.
    assert (below / count - expected).abs().max() < 0.024


@pytest.mark.parametrize("case", ALL)
def test_the_mode_has_the_highest_probability(case: Case) -> None:
    parameters = parameters_of(case, 0)
    mode = case.family.mode(parameters)  # (R, G, K)
    assert mode.shape == parameters.shape[:-1]
    everywhere = grid_of(case, parameters)[0].expand(1, GROUPS, -1)
    highest = log_prob(case, parameters, everywhere).amax(-1)  # (R, G, K)
    at_mode = log_prob(case, parameters.flatten(0, 1)[:, None], mode.flatten(0, 1)[:, None])  # (RG, 1, K, K)
    at_mode = at_mode.diagonal(dim1=-2, dim2=-1).reshape(highest.shape)
    assert (highest <= at_mode + 1e-9).all()


# ------------------------------------------------------------------------------------- initialisation, checks


@pytest.mark.parametrize("case", ALL)
def test_starting_parameters_are_valid_reproducible_and_differ_between_units(case: Case) -> None:
    many = values_of(case, 0).numpy().ravel()
    for column in (many, many[:1], many[:0], np.zeros(5), many.astype(np.float32)):
        first, second = (case.family.initialize(column, UNITS, torch.Generator().manual_seed(3)) for _ in range(2))
        assert first.shape == (UNITS, len(case.family.parameter_names))
        assert first.dtype == torch.float64
        assert torch.equal(first, second)
        assert case.family.check_parameters(first) is None
    start = case.family.initialize(many, UNITS, torch.Generator().manual_seed(3))
    assert not start.numel() or len({tuple(unit.tolist()) for unit in start}) == UNITS


@pytest.mark.parametrize("case", ALL)
def test_values_are_checked_with_the_first_wrong_one_named(case: Case) -> None:
    assert case.family.check_values(values_of(case, 0).numpy().ravel()) is None
    assert case.family.check_values(np.zeros(0)) is None
    assert "inf" in str(case.family.check_values(np.array([0.0, np.inf])))
    if case.family.discrete:
        assert "2.5" in str(case.family.check_values(np.array([1.0, 2.5, -1.0])))
        assert "-1" in str(case.family.check_values(np.array([1, -1])))
        assert "16777217" in str(case.family.check_values(np.array([0, 2**24 + 1])))
    support = case.family.support()
    if support is not None and not isinstance(case.family, Indicator):
        assert str(max(support) + 1) in str(case.family.check_values(np.array([max(support) + 1])))


@pytest.mark.parametrize("case", LEARNING)
def test_parameters_that_are_not_numbers_are_refused(case: Case) -> None:
    parameters = parameters_of(case, 0)
    assert case.family.check_parameters(parameters) is None
    for wrong in (torch.nan, torch.inf, -torch.inf):
        spoilt = parameters.clone()
        spoilt[0, 1, 2, -1] = wrong
        assert case.family.check_parameters(spoilt)


@pytest.mark.parametrize("case", ALL)
def test_a_family_survives_a_journey_through_json(case: Case) -> None:
    document = json.loads(json.dumps(family_to_json(case.family)))
    assert family_from_json(document) == case.family
    assert family_to_json(family_from_json(document)) == document


def test_every_registered_family_has_a_case() -> None:
    assert {type(case.values[0].family) for case in ALL} == set(FAMILIES.values())
    assert all(kind.name == name for name, kind in FAMILIES.items())
