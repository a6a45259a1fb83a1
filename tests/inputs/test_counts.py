"""Bernoulli, binomial and Poisson inputs: floors, pseudocounts and how they relate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from circurve.errors import OptionError
from circurve.inputs import Bernoulli, Binomial, Family, Poisson


def scalar(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value, dtype=torch.float64)


def learn(family: Family, start: float, uses: float, total: float, pseudocount: float = 0, step: float = 1) -> float:
    statistics = torch.tensor([uses, total], dtype=torch.float64).reshape(1, 1, 1, 2)
    return family.maximize(scalar(start), statistics, scalar(pseudocount), scalar(step)).item()


@pytest.mark.parametrize("trials", [0, -1, 2.0, True, "3", None, 2**24 + 1])
def test_a_wrong_number_of_trials_is_refused_by_name(trials: object) -> None:
    with pytest.raises(OptionError, match="trials"):
        Binomial(trials)  # type: ignore[arg-type]


def test_one_trial_is_a_bernoulli() -> None:
    x = torch.tensor([[[0.0, 1.0]]]).double()
    parameters = torch.tensor([0.0, 1e-6, 0.3, 1.0]).double().reshape(1, 1, 4, 1)
    values = [f.log_prob(parameters, x) for f in (Bernoulli(), Binomial(1))]
    torch.testing.assert_close(values[0], values[1])
    assert learn(Bernoulli(), 0.2, 7, 3, 0.5, 0.3) == pytest.approx(learn(Binomial(1), 0.2, 7, 3, 0.5, 0.3))


@pytest.mark.parametrize("family", [Bernoulli(), Binomial(1), Binomial(10)])
def test_probabilities_keep_off_zero_and_one(family: Family) -> None:
    top = family.support()[-1]  # type: ignore[index]
    assert learn(family, 0.5, 9, 0) == pytest.approx(1e-6)
    assert learn(family, 0.5, 9, 9 * top) == pytest.approx(1 - 1e-6)


@pytest.mark.parametrize("family", [Bernoulli(), Binomial(10)])
def test_certain_units_stay_certain_until_data_moves_them(family: Family) -> None:
    assert learn(family, 0.0, 0, 0) == 0
    assert learn(family, 1.0, 5, 3, step=0) == 1
    assert learn(family, 0.0, 5, 0, step=0.5) == pytest.approx(5e-7)


def test_a_certain_binomial_unit_gives_its_value_probability_one() -> None:
    for dtype in (torch.float32, torch.float64):
        x = torch.tensor([[[0.0, 10.0]]], dtype=dtype)
        parameters = torch.tensor([0.0, 1.0], dtype=dtype).reshape(1, 1, 2, 1)
        log_value = Binomial(10).log_prob(parameters, x)[0, 0]
        assert log_value.diagonal().tolist() == [0, 0]


def test_a_binomial_pseudocount_draws_to_one_half() -> None:
    assert learn(Binomial(10), 0.1, 4, 8, pseudocount=4) == pytest.approx((8 / 10 + 2) / 8)


def test_a_poisson_unit_that_saw_only_zeros_keeps_a_small_rate() -> None:
    assert learn(Poisson(), 3.0, 9, 0) == pytest.approx(1e-6)


def test_a_poisson_pseudocount_stands_for_the_present_rate() -> None:
    assert learn(Poisson(), 3.0, 4, 20, pseudocount=4) == pytest.approx((20 + 4 * 3) / 8)
    assert learn(Poisson(), 3.0, 4, 12, pseudocount=100) == pytest.approx(3)


def test_large_counts_are_precise_in_float32() -> None:
    rate = torch.tensor([1e6], dtype=torch.float32).reshape(1, 1, 1, 1)
    x = torch.tensor([1e6], dtype=torch.float32).reshape(1, 1, 1)
    log_value = Poisson().log_prob(rate, x).item()
    assert log_value == pytest.approx(-0.5 * np.log(2 * np.pi * 1e6), abs=1e-5)


def test_poisson_rates_start_around_the_counts() -> None:
    start = Poisson().initialize(np.repeat([2.0, 50.0], 20), 40, torch.Generator().manual_seed(0))
    assert start.min() >= 0.5 * 14
    assert start.max() <= 1.5 * 38
    assert (Poisson().initialize(np.zeros(5), 3, torch.Generator()) == 1e-6).all()
    assert "rate" in str(Poisson().check_parameters(torch.zeros(2, 1)))
