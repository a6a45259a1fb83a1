"""Fractions of the training rows: by seed, nested, in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circurve import Dataset, OptionError, take_fraction
from circurve.data import split_rows


@given(st.integers(1, 300), st.floats(0.001, 1), st.floats(0.001, 1), st.integers(0, 2**70))
def test_smaller_fractions_are_parts_of_larger_ones(count: int, one: float, other: float, seed: int) -> None:
    rows = np.arange(count)[:, None]
    small, large = (take_fraction(rows, share, seed)[:, 0].tolist() for share in sorted((one, other)))
    assert set(small) <= set(large)
    assert len(small) == max(1, round(count * min(one, other)))
    assert large == sorted(large)
    assert len(set(large)) == len(large)


def test_the_whole_is_the_whole_and_the_seed_decides() -> None:
    rows = np.arange(1000)[:, None]
    np.testing.assert_array_equal(take_fraction(rows, 1, seed=3), rows)
    one, other = take_fraction(rows, 0.25, seed=0), take_fraction(rows, 0.25, seed=1)
    assert len(one) == len(other) == 250
    assert not np.array_equal(one, other)
    np.testing.assert_array_equal(one, take_fraction(rows, 0.25))
    assert abs(one.mean() - 499.5) < 60


def test_the_rows_are_the_same_with_every_version_of_numpy() -> None:
    assert take_fraction(np.arange(20)[:, None], 0.2, seed=7)[:, 0].tolist() == ROWS_OF_SEED_7


ROWS_OF_SEED_7 = [1, 2, 3, 11]
"""Drawn once; another numpy must draw the same."""


def test_a_fraction_of_a_data_set_keeps_its_other_parts() -> None:
    data = Dataset("x", np.arange(100).reshape(50, 2), np.zeros((3, 2)), np.ones((4, 2)), columns=("a", "b"))
    part = take_fraction(data, 0.1, seed=2)
    np.testing.assert_array_equal(part.train, take_fraction(data.train, 0.1, seed=2))
    assert (part.name, part.columns) == ("x", ("a", "b"))
    assert part.valid is data.valid
    assert part.test is data.test


def test_a_fraction_is_independent_of_the_split_of_the_same_seed() -> None:
    rows = np.arange(1000)[:, None]
    train, _, _ = split_rows(rows, valid=0, test=0.5, seed=5)
    again = take_fraction(rows, 0.5, seed=5)
    shared = len(set(train[:, 0]) & set(again[:, 0]))
    assert 200 < shared < 300


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan"), True, "1%", None])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(OptionError, match="share must be a number above 0 and at most 1, not "):
        take_fraction(np.zeros((5, 2)), share)


def test_seeds_that_are_no_whole_number_are_refused() -> None:
    with pytest.raises(OptionError, match=r"seed must be a whole number >= 0, not 0\.5"):
        take_fraction(np.zeros((5, 2)), 0.5, seed=0.5)  # type: ignore[call-overload]
