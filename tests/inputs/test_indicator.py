"""Indicator inputs: no parameters, one value for each unit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from circurve.errors import OptionError
from circurve.inputs import LOG_ZERO, Categorical, Indicator


@pytest.mark.parametrize("values", [(), 3, None, "01", (0, -1), (0, 1.5), (True, 0), (2**24 + 1,)])
def test_wrong_values_are_refused_by_name(values: object) -> None:
    with pytest.raises(OptionError, match="values"):
        Indicator(values)  # type: ignore[arg-type]


def test_lists_and_arrays_become_a_tuple() -> None:
    family = Indicator(np.array([2, 0]))  # type: ignore[arg-type]
    assert family == Indicator([2, 0]) == Indicator((2, 0))  # type: ignore[arg-type]
    assert hash(family) == hash(Indicator((2, 0)))


def test_a_unit_is_certain_of_its_value_and_a_value_nobody_names_is_impossible() -> None:
    family = Indicator((2, 0, 2))
    x = torch.tensor([0.0, 1.0, 2.0]).expand(1, 2, 3)
    out = family.log_prob(torch.empty(4, 2, 3, 0), x)
    expected = torch.tensor([[LOG_ZERO, LOG_ZERO, 0], [0, LOG_ZERO, LOG_ZERO], [LOG_ZERO, LOG_ZERO, 0]])
    assert torch.equal(out, expected.expand(4, 2, 3, 3))


def test_empty_tensors_pass_through_every_method() -> None:
    family = Indicator((0, 1, 5))
    start = family.initialize(np.array([0.0, 5.0]), 3, torch.Generator())
    parameters = start.expand(2, 4, 3, 0)
    x = torch.zeros(1, 4, 7, dtype=torch.float64)
    features = family.features(x, torch.ones_like(x))
    assert features.shape == (1, 4, 0, 7)
    statistics = torch.ones(2, 4, 3, 7, dtype=torch.float64) @ features.mT
    assert statistics.shape == (2, 4, 3, 0)
    one = torch.ones(2, 1, 1, 1)
    assert family.maximize(parameters, statistics, one, one).shape == (2, 4, 3, 0)
    assert family.check_parameters(parameters) is None
    for values in (family.sample(parameters, torch.Generator()), family.mode(parameters), family.mean(parameters)):
        assert torch.equal(values, torch.tensor([0.0, 1.0, 5.0]).double().expand(2, 4, 3))


def test_the_number_of_units_must_match() -> None:
    family = Indicator((0, 1))
    assert family.check_units(2) is None
    assert "2 units, not 3" in str(family.check_units(3))
    assert "2 units, not 3" in str(family.check_parameters(torch.empty(5, 3, 0)))
    assert "axes" in str(family.check_parameters(torch.empty(0)))
    with pytest.raises(OptionError, match="2 units, not 3"):
        family.initialize(np.zeros(0), 3, torch.Generator())
    assert Categorical(3).check_units(17) is None


def test_the_support_is_what_the_units_name() -> None:
    assert Indicator((3, 0, 3)).support() == (0, 3)
