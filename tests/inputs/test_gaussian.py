"""Gaussian inputs: precision far from zero, blended moments, floors, odd columns."""

from __future__ import annotations

import math
import pickle
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from circurve.errors import OptionError
from circurve.inputs import Gaussian


def unit(mean: float, variance: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor([mean, variance], dtype=dtype).reshape(1, 1, 1, 2)


def scalar(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value, dtype=torch.float64)


def learn(family: Gaussian, start: Tensor, x: Tensor, pseudocount: float, step: float) -> tuple[float, float]:
    statistics = family.features(x.reshape(1, 1, -1), None).sum(-1).reshape(1, 1, 1, 3)
    mean, variance = family.maximize(start, statistics, scalar(pseudocount), scalar(step)).flatten().tolist()
    return mean, variance


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, True, "1", None, 1e-40])
def test_a_wrong_variance_floor_is_refused_by_name(value: object) -> None:
    with pytest.raises(OptionError, match="min_variance"):
        Gaussian(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("centre", [0.0, 1e4, -1e6])
def test_mean_and_variance_are_found_far_from_zero(centre: float) -> None:
    values = np.random.default_rng(0).normal(centre, 1.0, 5000)
    mean, variance = learn(Gaussian(), unit(0, 1), torch.from_numpy(values), 0, 1)
    assert mean == pytest.approx(values.mean(), rel=1e-12)
    assert variance == pytest.approx(values.var(), rel=1e-3)


def test_float32_values_far_from_zero_keep_their_variance() -> None:
    values = np.random.default_rng(0).normal(1e4, 1.0, 5000).astype(np.float32)
    mean, variance = learn(Gaussian(), unit(1e4, 1, torch.float32), torch.from_numpy(values), 0, 1)
    assert mean == pytest.approx(values.mean(dtype=np.float64), rel=1e-6)
    assert variance == pytest.approx(values.var(dtype=np.float64), rel=1e-5)


@settings(max_examples=50, deadline=None)
@given(
    mean=st.floats(-100, 100),
    variance=st.floats(0.01, 100),
    step=st.floats(0.01, 1),
    pseudocount=st.floats(0, 50),
    seed=st.integers(0, 1000),
)
def test_moments_blend_as_those_of_a_mixture(
    mean: float, variance: float, step: float, pseudocount: float, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(3.0, 2.0, 20)
    count, own = values.size, pseudocount
    target = (values.sum() + own * mean) / (count + own)
    spread = (((values - target) ** 2).sum() + own * (variance + (mean - target) ** 2)) / (count + own)
    expected = (1 - step) * mean + step * target
    expected_variance = (1 - step) * (variance + (mean - expected) ** 2) + step * (spread + (target - expected) ** 2)
    got = learn(Gaussian(), unit(mean, variance), torch.from_numpy(values), pseudocount, step)
    assert got == pytest.approx((expected, expected_variance), rel=1e-8, abs=1e-10)


def test_the_variance_never_falls_below_its_floor() -> None:
    assert learn(Gaussian(), unit(0, 1), torch.full((9,), 5.0), 0, 1) == pytest.approx((5, 1e-4))
    assert learn(Gaussian(min_variance=0.25), unit(0, 1), torch.full((9,), 5.0), 0, 1) == pytest.approx((5, 0.25))


def test_cancellation_cannot_make_a_variance_negative() -> None:
    mean, variance = learn(Gaussian(), unit(0, 1), torch.full((1000,), 123456789.125, dtype=torch.float64), 0, 1)
    assert mean == pytest.approx(123456789.125)
    assert variance >= 1e-4


def test_starting_means_come_from_distinct_rows() -> None:
    column = np.arange(0.0, 1000.0, 100.0)
    start = Gaussian().initialize(column, 10, torch.Generator().manual_seed(0))
    jitter = 0.1 * column.std()
    nearest = np.abs(start[:, :1].numpy() - column).min(1)
    assert (nearest < 5 * jitter).all()
    assert start[:, 1].tolist() == pytest.approx([column.var()] * 10)
    assert start[:, 0].std() > 0.5 * column.std()


def test_more_units_than_rows_start_apart() -> None:
    start = Gaussian().initialize(np.array([1.0, 2.0, 3.0]), 50, torch.Generator().manual_seed(0))
    assert start[:, 0].unique().numel() == 50


def test_a_constant_column_starts_at_its_value_with_the_smallest_variance() -> None:
    start = Gaussian().initialize(np.full(5, 7.0), 4, torch.Generator().manual_seed(0))
    assert (start[:, 0] - 7).abs().max() < 0.01
    assert (start[:, 1] == 1e-4).all()


def test_an_empty_column_starts_as_standard_normal() -> None:
    start = Gaussian().initialize(np.zeros(0), 4, torch.Generator().manual_seed(0))
    assert (start[:, 1] == 1).all()
    assert start[:, 0].abs().max() < 5


def test_bad_parameters_are_described() -> None:
    assert "variance" in str(Gaussian().check_parameters(unit(0, 0)))
    assert "mean" in str(Gaussian().check_parameters(unit(1e30, 1)))


def test_the_floors_of_a_layer_are_made_once_for_a_device_and_belong_to_the_layer():
    layer = Gaussian(1.0).merged([Gaussian(1.0), Gaussian(4.0)])
    variance = torch.zeros(1, 2, 3)
    first = layer._raised(variance)
    assert first.tolist() == [[[1.0] * 3, [4.0] * 3]]
    kept = layer._columns[torch.device("cpu")]
    layer._raised(variance)
    assert layer._columns[torch.device("cpu")] is kept
    again = pickle.loads(pickle.dumps(layer))
    assert again == layer
    assert hash(again) == hash(layer)
    assert again._columns == {}
    held = weakref.ref(kept)
    del layer, kept
    assert held() is None
