"""Every inequality of engine/numerics.py, at its edge; in float32 and float64, with subnormal numbers flushed."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.engine.numerics import (
    KEPT_BITS,
    LIMITS,
    MAX_CHILDREN,
    MAX_COUNT,
    MIN_STEP,
    WEIGHT_FLOOR,
    effective_step,
    rounded,
)
from mstep_cases import flush

both_types = pytest.mark.parametrize("dtype", LIMITS, ids=["float32", "float64"])


@pytest.fixture(autouse=True)
def _flushed():
    with flush(True):
        yield


def number(value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([value], dtype=dtype)


@both_types
def test_the_smallest_normal_number_is_kept_and_anything_less_flushed(dtype):
    tiny = number(LIMITS[dtype].smallest_normal, dtype)
    assert LIMITS[dtype].smallest_normal == torch.finfo(dtype).tiny
    assert bool(tiny * 1 > 0)
    assert not bool(tiny * 0.5 > 0)


@both_types
def test_the_floor_of_the_least_row_is_positive(dtype):
    least = number(LIMITS[dtype].least_flow, dtype)
    assert bool(WEIGHT_FLOOR * least > 0)
    assert WEIGHT_FLOOR * LIMITS[dtype].least_flow >= torch.finfo(dtype).tiny


@both_types
def test_flushed_counts_of_the_least_row_change_no_weight_by_more_than_rounding(dtype):
    limits = LIMITS[dtype]
    assert math.sqrt(limits.smallest_normal / limits.least_flow) < torch.finfo(dtype).eps
    counts = torch.tensor([limits.least_flow, limits.smallest_normal], dtype=dtype)
    strongest = counts.sqrt() / counts.sqrt().sum()
    assert float(strongest[1]) < torch.finfo(dtype).eps


@both_types
def test_the_inverse_of_any_total_is_a_normal_number(dtype):
    largest, least = number(MAX_COUNT, dtype), number(LIMITS[dtype].least_flow, dtype)
    for total in (largest, least):
        inverse = 1 / total
        assert bool((inverse > 0) & inverse.isfinite())
        assert float(inverse * total) == pytest.approx(1, rel=1e-6)


@both_types
def test_the_largest_strength_is_the_limit_to_rounding_and_leaves_every_term_finite(dtype):
    limits = LIMITS[dtype]
    assert 1 / (2 * math.sqrt(limits.max_strength)) < torch.finfo(dtype).eps
    strength = number(limits.max_strength, dtype)
    assert bool((13 * strength * strength * MAX_CHILDREN).isfinite())


@both_types
def test_the_largest_sum_of_moment_roots_is_the_limit_to_rounding_and_leaves_every_term_finite(dtype):
    limits = LIMITS[dtype]
    assert 1 / limits.max_moment_root < torch.finfo(dtype).eps
    assert bool((10 * number(limits.max_moment_root, dtype) ** 3).isfinite())
    factor = number(limits.max_moment_root, dtype) / number(limits.smallest_normal, dtype) ** (1 / 3)
    assert bool(factor.isfinite())  # of the cube roots of a row's second moments, all of them as small as can be


@both_types
def test_cardano_s_formula_is_left_where_its_leading_terms_are_the_root(dtype):
    limits = LIMITS[dtype]
    assert 1 / (9 * limits.max_cardano**2) < torch.finfo(dtype).eps
    assert bool((number(limits.max_cardano, dtype) ** 6).isfinite())


@both_types
def test_the_least_step_towards_a_floored_weight_is_positive(dtype):
    assert bool(number(MIN_STEP, dtype) * WEIGHT_FLOOR > 0)


def test_steps_are_raised_to_the_least_one_and_zero_stays():
    steps = torch.tensor([0.0, 1e-300, MIN_STEP, 0.1, 1.0], dtype=torch.float64)
    assert effective_step(steps).tolist() == [0.0, MIN_STEP, MIN_STEP, 0.1, 1.0]


# --- rounding, for gates that put nodes in order ---

positive = st.floats(1e-30, 1e30)


@both_types
@given(values=st.lists(positive, min_size=2, max_size=20))
@settings(max_examples=50, deadline=None)
def test_rounding_is_close_keeps_the_order_and_keeps_what_is_rounded(values, dtype):
    given_values = torch.tensor(values, dtype=dtype).sort().values
    found = rounded(given_values)
    torch.testing.assert_close(found, given_values, rtol=2.0 ** -(KEPT_BITS + 1), atol=0)
    assert bool((found.diff() >= 0).all())
    assert torch.equal(rounded(found), found)


@both_types
@given(mantissa=st.integers(2**KEPT_BITS, 2 ** (KEPT_BITS + 1) - 1), exponent=st.integers(-60, 60))
@settings(max_examples=50, deadline=None)
def test_short_numbers_swallow_rounding_errors(mantissa, exponent, dtype):
    value = torch.tensor([mantissa * 2.0**exponent], dtype=dtype)
    for error in (-0.4, -0.01, 0.0, 0.01, 0.4):
        assert torch.equal(rounded(value * (1 + error * 2.0 ** -(KEPT_BITS + 1))), value)


@both_types
def test_rounding_comes_apart_at_an_edge_halfway_between_short_numbers(dtype):
    edge = 1 + 2.0 ** -(KEPT_BITS + 1)
    below, at = rounded(torch.tensor([edge - 1e-6, edge], dtype=dtype))
    assert (float(below), float(at)) == (1.0, 1 + 2.0**-KEPT_BITS)


@both_types
def test_zero_stays_zero(dtype):
    assert float(rounded(torch.zeros(1, dtype=dtype))) == 0
