"""Categorical inputs: look-up, floor, impossible states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.errors import OptionError
from circurve.inputs import Bernoulli, Categorical


@pytest.mark.parametrize("states", [0, -1, 2.0, True, "3", None, 2**24 + 1])
def test_a_wrong_number_of_states_is_refused_by_name(states: object) -> None:
    with pytest.raises(OptionError, match="states"):
        Categorical(states)  # type: ignore[arg-type]


def test_numpy_integers_become_plain_ones() -> None:
    assert type(Categorical(np.int64(3)).states) is int


def test_one_state_is_certain() -> None:
    family = Categorical(1)
    parameters = family.initialize(np.zeros(4), 2, torch.Generator())
    assert parameters.tolist() == [[1.0], [1.0]]
    assert family.log_prob(parameters[None, None], torch.zeros(1, 1, 3).double()).eq(0).all()


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.floats(0, 1e6, width=32), min_size=2, max_size=300).filter(lambda c: sum(c) > 0),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_unseen_states_stay_possible_and_the_sum_is_one(counts: list[float], dtype: torch.dtype) -> None:
    family = Categorical(len(counts))
    parameters = torch.full((1, 1, 1, len(counts)), 1 / len(counts), dtype=dtype)
    statistics = torch.tensor(counts, dtype=dtype).reshape(1, 1, 1, -1)
    moved = family.maximize(parameters, statistics, torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1))
    assert moved.min() > 0.99e-6
    assert abs(moved.double().sum().item() - 1) < 4 * torch.finfo(dtype).eps * len(counts) ** 0.5


def test_a_pseudocount_is_spread_evenly_over_the_states() -> None:
    parameters = torch.full((1, 1, 1, 4), 0.25).double()
    statistics = torch.tensor([6.0, 2.0, 0.0, 0.0]).double().reshape(1, 1, 1, 4)
    moved = Categorical(4).maximize(parameters, statistics, torch.full((1, 1, 1, 1), 8.0), torch.ones(1, 1, 1, 1))
    torch.testing.assert_close(moved.flatten(), torch.tensor([8, 4, 2, 2]).double() / 16)


def test_two_states_learn_like_a_bernoulli() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.rand(2, 1, 3, 1, generator=generator, dtype=torch.float64)
    table = torch.cat([1 - one, one], -1)
    x = torch.randint(0, 2, (1, 1, 50), generator=generator).double()
    weight = torch.rand(2, 1, 3, 50, generator=generator, dtype=torch.float64)
    pseudocount, step = torch.full((2, 1, 1, 1), 0.3), torch.full((2, 1, 1, 1), 0.2)
    moved = [
        family.maximize(start, weight @ family.features(x, None).mT, pseudocount, step)
        for family, start in ((Bernoulli(), one), (Categorical(2), table))
    ]
    torch.testing.assert_close(moved[0], moved[1][..., 1:])


def test_a_state_of_probability_zero_is_never_drawn() -> None:
    parameters = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]).expand(5000, 5)
    draws = Categorical(5).sample(parameters, torch.Generator().manual_seed(0))
    assert set(draws.tolist()) == {1.0, 3.0}


def test_probabilities_must_sum_to_one() -> None:
    assert "sum to one" in str(Categorical(3).check_parameters(torch.tensor([[0.5, 0.4, 0.2]])))
    assert "not between 0 and 1" in str(Categorical(3).check_parameters(torch.tensor([[1.5, -0.5, 0.0]])))
