"""The quick check accepts exactly plain arrays that the full check accepts, with the same values."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.data import QuickCheck, as_table, check
from circurve.errors import DataError
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson

FAMILIES = (Bernoulli(), Categorical(3), Binomial(4), Poisson(), Gaussian(), Indicator((2, 7)))
CELLS = st.sampled_from([0, 1, 2, 3, 4, 7, -1, 0.5, -2.5, 1e17, 1e19, 2.0**24, 2.0**32, np.nan, np.inf, -np.inf])


def full(data, families):
    """The table that the full check makes, or None."""
    try:
        return check(as_table(data), families)
    except DataError:
        return None


@given(
    families=st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=4),
    cells=st.lists(CELLS, min_size=1, max_size=12),
    dtype=st.sampled_from([np.float64, np.float32, np.int64, np.int8, np.uint8, np.bool_]),
    tensor=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_accepts_what_the_full_check_accepts(families, cells, dtype, tensor):
    kept = cells if np.dtype(dtype).kind == "f" else [c for c in cells if c in (0, 1, 2, 3, 4, 7)] or [0]
    rows = np.resize(np.array(kept), (-(-len(kept) // len(families)), len(families))).astype(dtype)
    data = torch.from_numpy(rows) if tensor else rows
    quick, wanted = QuickCheck(families)(data), full(data, families)
    assert (quick is None) == (wanted is None)
    if quick is not None and wanted is not None:
        of_table = QuickCheck(families)(wanted)
        assert of_table is not None
        np.testing.assert_equal(of_table, quick)
        values, observed = quick
        np.testing.assert_array_equal(values, wanted.values.numpy().T)
        assert (observed is None) == (wanted.observed is None)
        if observed is not None:
            np.testing.assert_array_equal(observed, wanted.observed.numpy().T)


@pytest.mark.parametrize(
    "data",
    [
        [[0, 1]],
        pd.DataFrame({"a": [0], "b": [1]}),
        np.ma.masked_array([[0, 1]], [[True, False]]),
        np.array([["0", "1"]]),
        np.array([[0, 1]], dtype=object),
        np.array([0, 1]),
        np.zeros((1, 3)),
        np.zeros((0, 2)),
        torch.zeros(1, 2, dtype=torch.bfloat16),
        torch.zeros(1, 2).to_sparse(),
        np.float64(1),
    ],
)
def test_leaves_everything_else_to_the_full_check(data):
    assert QuickCheck([Bernoulli(), Bernoulli()])(data) is None


def test_the_columns_share_no_memory_with_the_data():
    data = np.zeros((1, 1))
    values, _ = QuickCheck([Gaussian()])(data)
    assert not np.shares_memory(values, data)
