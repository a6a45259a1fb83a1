"""Row weights in mutual information and in trees: sums over single rows, repeated rows, rows left out."""

from importlib import import_module
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import circurve as cc
from circurve.data import Examples
from circurve.data.chosen_rows import ChosenRows
from circurve.structures import chow_liu_tree, mutual_information, scan_columns
from circurve.structures.mutual_information import _products

MODULE = import_module("circurve.structures.mutual_information")
COLUMNS = import_module("circurve.data.scan")

KINDS = ("binary", "three states", "twenty states", "real", "mixed")


def made(kind, rng, rows, variables, missing):
    states = {"binary": 2, "three states": 3, "twenty states": 20}.get(kind)
    if states is None:
        data = rng.standard_normal((rows, variables)) @ rng.standard_normal((variables, variables))
        data = data * 10.0 ** rng.integers(-3, 4, variables) + rng.standard_normal(variables)
        if kind == "mixed":
            data[:, 0] = rng.integers(0, 3, rows)
    else:
        data = rng.integers(0, states, (rows, variables)).astype(float)
        for v in range(1, variables):
            data[:, v] = np.where(rng.random(rows) < 0.5, data[:, v - 1], data[:, v])
    return np.where(rng.random(data.shape) < 0.3, np.nan, data) if missing else data


def family_of(kind):
    return {"real": cc.Gaussian(), "mixed": None}.get(kind, cc.Categorical(20))


def small_blocks(patch, small):
    """Several blocks of columns and chunks of rows, if `small`."""
    if small:
        patch.setattr(MODULE, "BLOCK_WIDTH", 12)
        patch.setattr(COLUMNS, "CHUNK", 50)


def table_information(u, v, weights, pseudocount):
    """The definition, one row at a time."""
    cells, left, right, n = {}, {}, {}, 0.0
    for i, j, w in zip(u, v, weights, strict=True):
        if not (np.isnan(i) or np.isnan(j)) and w > 0:
            cells[i, j] = cells.get((i, j), 0.0) + w
            left[i], right[j], n = left.get(i, 0.0) + w, right.get(j, 0.0) + w, n + w
    total = 0.0
    for (i, p), (j, q) in product(left.items(), right.items()):
        independent = p / n * q / n
        joint = (cells.get((i, j), 0.0) + pseudocount * independent) / (n + pseudocount)
        total += joint * np.log(joint / independent) if joint > 0 else 0.0
    return total


def gaussian_information(u, v, weights, pseudocount):
    kept = ~(np.isnan(u) | np.isnan(v)) & (weights > 0)
    u, v, w = u[kept], v[kept], weights[kept]
    if len(u) < 2:
        return 0.0
    covariance = np.cov(u, v, aweights=w, bias=True)
    rho = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]) * w.sum() / (w.sum() + pseudocount)
    return -0.5 * np.log1p(-min(rho**2, 1 - 1e-12))


def brute_force(data, weights, pseudocount, of_pair=table_information):
    """Each pair by itself; weights of a weighted mean below 1 are divided by it."""
    weights = weights * max(1.0, weights.sum() / (weights**2).sum())
    result = np.zeros((data.shape[1],) * 2)
    for u, v in np.argwhere(~np.eye(data.shape[1], dtype=bool)):
        result[u, v] = of_pair(data[:, u], data[:, v], weights, pseudocount)
    return result


tables = given(
    kind=st.sampled_from(KINDS),
    rows=st.integers(2, 40),
    variables=st.integers(2, 6),
    missing=st.booleans(),
    small=st.booleans(),
    pseudocount=st.sampled_from([0.0, 0.01, 1.0, 5.0]),
    seed=st.integers(0, 2**16),
)


@tables
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("size", [1e-9, 0.02, 1.0, 50.0])
def test_weighted_information_equals_sums_over_single_rows(
    size, kind, rows, variables, missing, small, pseudocount, seed
):
    rng = np.random.default_rng(seed)
    kind = "binary" if kind == "mixed" else kind
    data = made(kind, rng, rows, variables, missing)
    weights = size * np.where(rng.random(rows) < 0.2, 0.0, rng.exponential(size=rows) + 0.01)
    weights[0] = size
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, small)
        found = mutual_information(Examples(data, weights=weights), family_of(kind), pseudocount)
    of_pair = gaussian_information if kind == "real" else table_information
    expected = brute_force(data, weights, pseudocount, of_pair)
    np.testing.assert_allclose(found, expected, atol=1e-6 if kind == "real" else 1e-12, rtol=1e-7)
    assert (found >= 0).all()
    assert np.array_equal(found, found.T)


@tables
@settings(max_examples=80, deadline=None)
def test_whole_weights_equal_repeated_rows(kind, rows, variables, missing, small, pseudocount, seed):
    rng = np.random.default_rng(seed)
    data = made(kind, rng, rows, variables, missing)
    weights = rng.integers(0, 5, rows)
    weights[rng.integers(rows)] = 3
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, small)
        found = mutual_information(Examples(data, weights=weights), family_of(kind), pseudocount)
        repeated = mutual_information(np.repeat(data, weights, axis=0), family_of(kind), pseudocount)
    if kind in ("real", "mixed"):
        np.testing.assert_allclose(found, repeated, atol=1e-6 if kind == "real" else 1e-12)
    else:
        assert np.array_equal(found, repeated)


@tables
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("others", ["ones", "fractions"])
def test_a_row_of_weight_zero_is_left_out(others, kind, rows, variables, missing, small, pseudocount, seed):
    """Whatever its values are: the rows left out would make a column of states one of real numbers."""
    rng = np.random.default_rng(seed)
    data = made(kind, rng, rows, variables, missing)
    weights = np.ones(rows) if others == "ones" else rng.exponential(size=rows) + 0.01
    places = rng.integers(0, rows + 1, 4)
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, small)
        more = Examples(np.insert(data, places, 777.25, axis=0), weights=np.insert(weights, places, 0.0))
        found = mutual_information(more, pseudocount=pseudocount)
        expected = mutual_information(Examples(data, weights=weights), pseudocount=pseudocount)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight", [1.0, 0.25, 1e-12])
def test_equal_weights_up_to_one_give_the_bits_of_no_weights(kind, weight):
    data = made(kind, np.random.default_rng(1), 50, 4, missing=True)
    found = mutual_information(Examples(data, weights=np.full(50, weight)))
    assert np.array_equal(found, mutual_information(data))


def test_counting_one_by_one_equals_the_product_of_indicators(monkeypatch):
    rng = np.random.default_rng(4)
    table = Examples(made("three states", rng, 200, 5, missing=True), weights=rng.random(200))
    by_product = mutual_information(table)
    monkeypatch.setattr(MODULE, "SCATTER_CELLS", 0)
    np.testing.assert_allclose(mutual_information(table), by_product, atol=1e-13)


def test_weights_are_added_up_in_float64():
    """Next to 1e9, float32 loses a weight of 1."""

    def ones(rows, block):
        return np.ones((rows.stop - rows.start, block.stop - block.start), dtype=np.float32)

    weights = np.ones(100_001)
    weights[50_000] = 1e9
    total = _products(ones, len(weights), slice(0, 1), slice(1, 2), 4, weights)
    assert total.dtype == np.float64
    assert total.item() == 1e9 + 100_000


def test_a_real_pair_far_from_the_middle_of_rows_of_little_weight():
    rng = np.random.default_rng(5)
    data = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 3))
    data[:100] += 1e6
    weights = np.where(np.arange(300) < 100, 1.0, 1e-13)
    found = mutual_information(Examples(data, weights=weights))
    np.testing.assert_allclose(found, brute_force(data, weights, 1.0, gaussian_information), atol=1e-8)


def test_a_single_row_of_real_numbers_shares_nothing():
    table = Examples([[0.1, 0.7], [2.5, np.nan], [np.nan, 3.5]], weights=[7.3, 2.0, 1.5])
    assert not mutual_information(table).any()


@tables
@settings(max_examples=25, deadline=None)
def test_a_tree_of_whole_weights_is_that_of_repeated_rows(kind, rows, variables, missing, small, pseudocount, seed):
    rng = np.random.default_rng(seed)
    kind = "twenty states" if kind in ("real", "mixed") else kind  # rounding decides between links of equal weight
    data = made(kind, rng, rows, variables, missing)
    weights = rng.integers(0, 4, rows)
    weights[0] = 1
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, small)
        found = chow_liu_tree(Examples(data, weights=weights), family_of(kind), pseudocount)
        repeated = chow_liu_tree(np.repeat(data, weights, axis=0), family_of(kind), pseudocount)
    assert np.array_equal(found.parents, repeated.parents)
    assert np.array_equal(found.information, repeated.information)


def circuit_of(build, table):
    return [node.name for node in build(table).nodes]


@pytest.mark.parametrize("build", [cc.chow_liu, lambda table: cc.hclt(table, units=2)], ids=["chow_liu", "hclt"])
def test_circuits_have_the_tree_of_the_rows_that_count(build):
    rng = np.random.default_rng(6)
    rows = rng.integers(0, 2, (200, 5))
    rows[:, 3], others = rows[:, 0], rng.integers(0, 2, (800, 5))
    others[:, 3] = others[:, 1]
    table = Examples(np.vstack([rows, others]), weights=np.repeat([1.0, 0.0], [200, 800]))
    assert circuit_of(build, table) == circuit_of(build, rows)
    assert circuit_of(build, table) != circuit_of(build, np.asarray(table))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1, 1], "the weight of row 2 is -1; weights must be finite and >= 0"),
        ([1, 1, np.nan], "the weight of row 3 is nan"),
        ([np.inf, 1, 1], "the weight of row 1 is inf"),
        ([0, 0, 0], "all weights are zero"),
        ([1e200, 1, 1], "the largest weight is 1e.200; scale the weights"),
    ],
)
@pytest.mark.parametrize("find", [mutual_information, chow_liu_tree, cc.chow_liu])
def test_wrong_weights_are_refused(find, weights, message):
    with pytest.raises(cc.DataError, match=message):
        find(Examples([[0, 1], [1, 0], [1, 1]], weights=weights))


def test_the_budget_counts_what_weights_take():
    rows = np.zeros((100_000, 2), dtype=np.int8)
    chow_liu_tree(rows, memory_budget=5_000_000)
    for weights in (np.arange(100_000), np.arange(100_000) % 2):
        with pytest.raises(cc.MemoryLimitError, match=r"row weights 5.6 MB|row weights 2.8 MB"):
            chow_liu_tree(Examples(rows, weights=weights), memory_budget=5_000_000)


def test_chosen_rows_read_like_an_array_of_them():
    array = np.random.default_rng(7).random((20, 5))
    numbers = np.array([0, 3, 4, 9, 17, 19])
    chosen, copied = ChosenRows(array, numbers), array[numbers]
    assert (len(chosen), chosen.shape) == (6, (6, 5))
    for key in (slice(1, 4), (slice(None), 2), (slice(0, 6, 2), slice(1, 3)), (slice(None), np.array([4, 0]))):
        assert np.array_equal(chosen[key], copied[key])
    facts, expected = scan_columns(chosen), scan_columns(copied)
    assert np.array_equal(facts.median, expected.median)
    assert np.array_equal(facts.high, expected.high)
