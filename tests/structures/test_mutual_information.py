"""Mutual information of all pairs against a contingency table counted pair by pair."""

from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.errors import DataError, OptionError
from circurve.inputs import Categorical, Gaussian, Poisson
from circurve.structures import mutual_information, scan_columns
from circurve.structures.columns import discretize
from circurve.structures.mutual_information import _products, _scatter_counts

MODULE = import_module("circurve.structures.mutual_information")
COLUMNS = import_module("circurve.data.scan")


def table_information(u, v, pseudocount):
    """The definition, one cell at a time."""
    both = ~(np.isnan(u) | np.isnan(v))
    u, v = u[both], v[both]
    n = len(u)
    total = 0.0
    for i in np.unique(u):
        for j in np.unique(v):
            p, q = np.mean(u == i), np.mean(v == j)
            joint = (np.sum((u == i) & (v == j)) + pseudocount * p * q) / (n + pseudocount)
            if joint > 0:
                total += joint * np.log(joint / (p * q))
    return total


def brute_force(data, pseudocount=1.0):
    data = np.asarray(data, dtype=float)
    variables = data.shape[1]
    result = np.zeros((variables, variables))
    for u in range(variables):
        for v in range(variables):
            if u != v:
                result[u, v] = table_information(data[:, u], data[:, v], pseudocount)
    return result


def related_columns(rng, rows, variables, states):
    """Columns that copy the one before half of the time."""
    data = rng.integers(0, states, (rows, variables))
    for v in range(1, variables):
        data[:, v] = np.where(rng.random(rows) < 0.5, data[:, v - 1], data[:, v])
    return data


def with_holes(rng, data, share=0.3):
    return np.where(rng.random(data.shape) < share, np.nan, data)


@given(
    rows=st.integers(1, 40),
    variables=st.integers(1, 6),
    states=st.sampled_from([2, 3, 20]),
    pseudocount=st.sampled_from([0.0, 0.01, 1.0, 5.0]),
    missing=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_discrete_columns_equal_the_table_of_each_pair(rows, variables, states, pseudocount, missing, seed):
    rng = np.random.default_rng(seed)
    data = related_columns(rng, rows, variables, states)
    if missing:
        data = with_holes(rng, data)
    found = mutual_information(data, pseudocount=pseudocount)
    np.testing.assert_allclose(found, brute_force(data, pseudocount), atol=1e-12)
    assert (found >= 0).all()
    assert np.array_equal(found, found.T)
    assert found.dtype == np.float64


@pytest.mark.parametrize("states", [2, 5, 30])
@pytest.mark.parametrize("missing", [False, True])
def test_blocks_and_chunks_do_not_change_the_result(monkeypatch, states, missing):
    rng = np.random.default_rng(3)
    data = related_columns(rng, 97, 9, states).astype(float)
    data = with_holes(rng, data, 0.2) if missing else data
    whole, smooth = mutual_information(data), mutual_information(data, Gaussian())
    monkeypatch.setattr(MODULE, "BLOCK_WIDTH", 2 * states)
    monkeypatch.setattr(COLUMNS, "CHUNK", 50)
    np.testing.assert_allclose(mutual_information(data), whole, atol=1e-12)
    np.testing.assert_allclose(mutual_information(data, Gaussian()), smooth, atol=1e-12)


def test_counting_one_by_one_equals_the_product_of_indicators(monkeypatch):
    rng = np.random.default_rng(4)
    data = with_holes(rng, related_columns(rng, 200, 5, 7))
    by_product = mutual_information(data)
    monkeypatch.setattr(MODULE, "SCATTER_CELLS", 0)
    assert np.array_equal(mutual_information(data), by_product)


def test_scattered_counts_leave_out_missing_values():
    data = np.array([[0, 1], [2, np.nan], [2, 0], [np.nan, np.nan]])
    codes = discretize(data, scan_columns(data), [True, True], bins=8)
    counts = _scatter_counts(codes, slice(0, 1), slice(1, 2))
    assert counts.tolist() == [[0, 1], [0, 0], [1, 0]]


def test_chunks_of_float32_counts_add_up_in_float64():
    def ones(rows, block):
        return np.ones((rows.stop - rows.start, block.stop - block.start), dtype=np.float32)

    rows = 2**24 + 3  # one more would be lost in float32
    total = _products(ones, rows, slice(0, 1), slice(1, 2), width=4)
    assert total.dtype == np.float64
    assert total.item() == rows


def test_continuous_columns_use_the_gaussian_formula():
    rng = np.random.default_rng(5)
    data = rng.standard_normal((500, 4)) @ rng.standard_normal((4, 4)) * [1, 1e-9, 1e7, 3] + [0, 5, -1e6, 1e3]
    rho = np.corrcoef(data.T)
    expected = -0.5 * np.log1p(-((rho * 500 / 501) ** 2))
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(mutual_information(data), expected, atol=1e-7)


def test_continuous_pairs_use_the_rows_where_both_are_present():
    rng = np.random.default_rng(6)
    data = with_holes(rng, rng.standard_normal((60, 3)) @ rng.standard_normal((3, 3)))
    found = mutual_information(data, pseudocount=2.0)
    for u, v in [(0, 1), (0, 2), (1, 2)]:
        both = ~np.isnan(data[:, [u, v]]).any(axis=1)
        n = both.sum()
        rho = np.corrcoef(data[both, u], data[both, v])[0, 1] * n / (n + 2)
        assert found[u, v] == pytest.approx(-0.5 * np.log1p(-(rho**2)), abs=1e-12)


def pairwise(data, pseudocount=1.0):
    """The Gaussian formula, pair by pair, over the rows where both are present."""
    result = np.zeros((data.shape[1],) * 2)
    for u, v in np.argwhere(~np.eye(data.shape[1], dtype=bool)):
        both = ~np.isnan(data[:, [u, v]]).any(axis=1)
        n = both.sum()
        rho = np.corrcoef(data[both, u], data[both, v])[0, 1] * n / (n + pseudocount)
        result[u, v] = -0.5 * np.log1p(-(rho**2))
    return result


@pytest.mark.parametrize("size", [1e7, -1e12])
def test_a_huge_value_whose_partner_is_missing_does_not_touch_the_pair(size):
    rng = np.random.default_rng(20)
    data = rng.standard_normal((300, 3))
    data[:, 1] = data[:, 0] + 0.1 * data[:, 1]
    clean = mutual_information(data[1:])
    data[0] = [size, np.nan, 0.5]
    found = mutual_information(data)
    assert found[0, 1] == pytest.approx(clean[0, 1], abs=1e-12)
    np.testing.assert_allclose(found, pairwise(data), atol=1e-9)


@pytest.mark.parametrize("size", [1e7, 1e12])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_pairs_with_huge_values_equal_their_own_computation(size, share):
    rng = np.random.default_rng(21)
    data = rng.standard_normal((400, 5)) @ rng.standard_normal((5, 5)) * [1, 1e-6, 1e4, 1, 1] + [0, 1, -1e5, 10, 0]
    data = with_holes(rng, data, share)
    data[rng.integers(0, 400, 6), rng.integers(0, 5, 6)] = size * rng.choice([-1, 1], 6)
    np.testing.assert_allclose(mutual_information(data), pairwise(data), atol=1e-9)


def test_a_pair_in_rows_unlike_the_rest_equals_its_own_computation():
    """Column 1 is present only where column 0 lies a million of its own deviations away from its median."""
    rng = np.random.default_rng(22)
    data = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 3))
    data[:140, 0] += 1e6
    data[140:, 1] = np.nan
    np.testing.assert_allclose(mutual_information(data), pairwise(data), atol=1e-9)
    data[:140, 0] = 1e6 + 0.1
    assert mutual_information(data)[0, 1] == 0


def test_ordinary_pairs_are_not_taken_one_by_one(monkeypatch):
    rng = np.random.default_rng(23)
    skewed = with_holes(rng, np.exp(2 * rng.standard_normal((500, 6))))
    skewed = np.column_stack([skewed, np.full(500, 0.1), np.where(np.arange(500) == 7, 1e12, 0.5)])
    monkeypatch.delattr(MODULE, "correlation")
    assert mutual_information(skewed).any()


def test_a_pair_seen_in_a_single_row_shares_nothing():
    data = np.full((9, 3), np.nan)
    data[:, 0] = np.arange(9) / 7
    data[8, 1] = data[8, 2] = 0.3
    data[0, 2] = 0.1
    assert mutual_information(data)[1].tolist() == [0, 0, 0]


def test_numbers_near_the_largest_of_all_are_taken():
    data = np.array([[1.7e308, 1.5], [-1.7e308, 2.5], [0.0, 3.5], [1e308, np.nan], [1e-3, 9.5]])
    expected = pairwise(data / [1e300, 1])
    np.testing.assert_allclose(mutual_information(data), expected, atol=1e-9)


@pytest.mark.parametrize("pseudocount", [0.0, 1.0])
def test_identical_continuous_columns_stay_finite(pseudocount):
    column = np.random.default_rng(7).standard_normal(50)
    found = mutual_information(np.stack([column, column, -column], axis=1), pseudocount=pseudocount)
    assert np.isfinite(found).all()
    assert found[0, 1] > 1
    assert found[0, 2] == pytest.approx(found[0, 1])


def test_mixed_columns_are_binned_at_quantiles():
    rng = np.random.default_rng(8)
    label = rng.integers(0, 3, 400)
    value = label + 0.5 * rng.standard_normal(400)
    data = with_holes(rng, np.stack([label, value, rng.standard_normal(400)], axis=1), 0.1)
    binned = data.copy()
    for v in (1, 2):
        edges = np.nanquantile(data[:, v], np.arange(1, 8) / 8)
        binned[:, v] = np.where(np.isnan(data[:, v]), np.nan, (data[:, v, None] > edges).sum(axis=1))
    np.testing.assert_allclose(mutual_information(data), brute_force(binned), atol=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_continuous_column_of_two_values_keeps_both(share):
    rng = np.random.default_rng(9)
    label = (rng.random(1000) < share).astype(float)
    data = np.stack([label, 0.5 + label * 2.25], axis=1)
    np.testing.assert_allclose(mutual_information(data), brute_force(data), atol=1e-12)


def test_large_whole_numbers_of_a_discrete_family_are_binned():
    rng = np.random.default_rng(10)
    rate = rng.integers(1, 3, 300)
    data = np.stack([rate - 1, rng.poisson(400 * rate)], axis=1)
    found = mutual_information(data, Poisson())
    assert found[0, 1] > 0.6  # log 2 = 0.69 would be perfect knowledge


def test_a_constant_or_unobserved_column_shares_nothing():
    rng = np.random.default_rng(11)
    for others in (related_columns(rng, 50, 3, 2), related_columns(rng, 50, 3, 4), rng.standard_normal((50, 3))):
        for constant in (0.0, 1.0, 2.5, np.nan):
            found = mutual_information(np.column_stack([others, np.full(50, constant)]))
            np.testing.assert_allclose(found[-1], 0, atol=1e-14)
            assert found[0, 1] > 0


def test_a_pair_never_seen_together_shares_nothing():
    data = np.array([[0, np.nan], [1, np.nan], [np.nan, 1], [np.nan, 0]])
    for families in (None, Categorical(2), Gaussian()):
        for pseudocount in (0.0, 1.0):
            assert not mutual_information(data, families, pseudocount).any()


@pytest.mark.parametrize("data", [[[1]], [[2.5]], [[7]], [[0, 1, 3]], [[0.5, 1.5]], [[0], [1]]])
def test_one_row_or_one_column_gives_zeros(data):
    found = mutual_information(data)
    assert found.shape == (len(data[0]),) * 2
    assert not found.any()


def test_independent_samples_shrink_the_information_of_a_rare_pair():
    data = np.array([[0, 0], [1, 1]])
    raw, smooth = mutual_information(data, pseudocount=0.0), mutual_information(data, pseudocount=1.0)
    assert raw[0, 1] == pytest.approx(np.log(2))
    assert 0 < smooth[0, 1] < raw[0, 1] / 2


def test_moderately_large_tables_work():
    rng = np.random.default_rng(12)
    long, wide = related_columns(rng, 20_000, 100, 2), related_columns(rng, 500, 600, 2)
    found = mutual_information(long)
    assert found[3, 4] == pytest.approx(table_information(*long[:, 3:5].T.astype(float), 1.0))
    assert mutual_information(wide).shape == (600, 600)
    assert mutual_information(related_columns(rng, 300, 400, 6)).shape == (400, 400)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pseudocount": -1.0}, r"pseudocount must be a finite number >= 0, not -1\.0"),
        ({"pseudocount": float("nan")}, "pseudocount .* not nan"),
        ({"pseudocount": "a"}, "pseudocount .* not 'a'"),
        ({"bins": 257}, "bins must be at most 256, not 257"),
        ({"bins": 1}, "bins must be a whole number >= 2, not 1"),
        ({"families": [Gaussian()] * 3}, "families has 3 entries for 2 variables"),
    ],
)
def test_options_outside_their_range_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        mutual_information([[0, 1], [1, 0]], **options)


def test_an_infinite_value_is_named_by_its_column():
    with pytest.raises(DataError, match="column 2, row 2: -inf is not finite"):
        mutual_information([[0.0, 1.0], [1.0, -np.inf]])
