"""The spread of a column, and the smallest variance that goes with it."""

from importlib import import_module

import numpy as np
import pytest

from circurve import fit, fully_factorized, hclt
from circurve.engine import compile
from circurve.inputs import Gaussian
from circurve.structures import infer_families, scan_columns

COLUMNS = import_module("circurve.data.scan")


def normal(size=2000):
    return np.random.default_rng(0).standard_normal(size)


def floor(*columns):
    """The smallest variance inferred for a column that comes in several tables."""
    (family,) = infer_families(*(np.asarray(column, dtype=float)[:, None] for column in columns))
    assert isinstance(family, Gaussian)
    return family.min_variance


@pytest.mark.parametrize("scale", [1, 0.35, 2.8, 0.25, 4, 1e3, 1e-3, 1e-6])
def test_the_smallest_variance_goes_with_the_spread(scale):
    one = floor(normal())
    assert one == pytest.approx(1e-4, rel=0.1)
    assert floor(scale * normal()) == pytest.approx(scale**2 * one)
    assert floor(scale * (normal() + 100)) == pytest.approx(scale**2 * one)


@pytest.mark.parametrize("scale", [3.0, 3.16, 0.316, 31.6])
def test_the_smallest_variance_is_continuous_in_the_spread(scale):
    assert floor(1.001 * scale * normal()) == pytest.approx(1.001**2 * floor(scale * normal()))


@pytest.mark.parametrize(("scale", "expected"), [(1e-300, 1e-4), (1e-40, 1e-30), (1e40, 1e28), (1e300, 1e28)])
def test_the_smallest_variance_stays_among_those_a_gaussian_takes(scale, expected):
    assert floor(scale * normal()) == pytest.approx(expected)


@pytest.mark.parametrize("column", [[0.1] * 7, [1e-9] * 3, [-1e12], [2.5, np.nan]])
def test_a_constant_column_keeps_the_default(column):
    assert floor(column) == 1e-4


def test_missing_values_and_outliers_do_not_count():
    column = 1e-3 * normal()
    column[::3] = np.nan
    column[:20] = 9999999.0
    assert floor(column) == pytest.approx(1e-10, rel=0.2)


def test_without_a_range_between_quartiles_the_deviation_counts():
    column = np.zeros(1000)
    column[:100] = 1e3 * normal(100)
    assert floor(column) == pytest.approx(1e-4 * column.var())


def test_a_narrow_cluster_counts_where_most_values_are_in_it():
    assert floor(np.concatenate([1e-3 * normal(), 5 + normal(200)])) == pytest.approx(1e-10, rel=0.5)


@pytest.mark.parametrize(("middle", "expected"), [(1e3, 1e-8), (1e4, 1e-6), (1e9, 1e-4), (-1e9, 1e-4)])
def test_rounding_beside_a_large_median_is_no_spread(middle, expected):
    """float32 has seven digits; the floor does not go below them, but neither above its default."""
    assert floor(middle + 1e-4 * normal()) == pytest.approx(expected, rel=1e-5)


def test_a_large_median_does_not_raise_the_default():
    assert floor(1e9 + normal()) == pytest.approx(1e-4, rel=0.1)


def test_columns_of_different_spread_share_a_layer():
    data = normal(3000).reshape(-1, 6) * [0.4, 0.7, 1, 1.5, 2, 280]
    families = infer_families(data)
    assert len(set(families)) == 6
    program = compile(fully_factorized(families))
    assert [layer.shape for layer in program.inputs] == [(6, 1)]


def test_each_column_of_a_shared_layer_keeps_its_own_smallest_variance():
    data = np.full((50, 3), 0.5)
    families = [Gaussian(1e-2), Gaussian(1e-6), Gaussian(1.0)]
    model = fit(fully_factorized(families), data, epochs=40, batch_size=None, progress=False, precision="float64").model
    found = {node.variable: model.input_parameters(node)[0, 1] for node in model.circuit.inputs}
    assert [found[v] for v in range(3)] == pytest.approx([1e-2, 1e-6, 1.0])


def test_the_spread_is_that_of_all_tables():
    assert floor(1e-3 * normal(10), 1e3 * normal(2000)) == pytest.approx(100.0, rel=0.1)
    assert floor(1e-3 * normal(2000), 1e3 * normal(10)) == pytest.approx(1e-10, rel=0.1)


def test_median_and_spread_are_those_of_the_columns_that_need_them():
    values = normal(999)
    data = np.column_stack([values > 0, np.arange(999) % 7, np.full(999, np.nan), np.full(999, 0.5), 3 * values + 1])
    columns = scan_columns(data)
    assert np.isnan(columns.median).tolist() == np.isnan(columns.spread).tolist() == [True] * 4 + [False]
    assert columns.median[4] == pytest.approx(np.median(data[:, 4]), abs=1e-12)
    first, third = np.quantile(data[:, 4], [0.25, 0.75])
    assert columns.spread[4] == pytest.approx(min(data[:, 4].std(), (third - first) / 1.349), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
def test_the_type_of_the_values_does_not_matter(dtype):
    data = np.round(1000 * normal())[:, None].astype(dtype)
    assert infer_families(data)[0].min_variance == pytest.approx(100.0, rel=0.1)


def test_a_sample_of_all_rows_is_looked_at_in_blocks(monkeypatch):
    monkeypatch.setattr(COLUMNS, "SAMPLED_ROWS", 100)
    monkeypatch.setattr(COLUMNS, "CHUNK", 250)
    column = np.sort(normal(5000))
    data = np.column_stack([column * scale for scale in (1, 1e3, 1e-3, 10, 0.1)])
    columns = scan_columns(data[:4000], data[4000:])
    assert columns.spread == pytest.approx([1, 1e3, 1e-3, 10, 0.1], rel=0.1)


def test_all_rows_are_looked_at_where_a_sample_shows_a_single_value(monkeypatch):
    monkeypatch.setattr(COLUMNS, "SAMPLED_ROWS", 100)
    rare, seldom = np.full(1000, 0.5), np.full(1000, np.nan)
    rare[1:1000:50] += 1e-2 * normal(20)
    seldom[1:1000:50] = 1e-2 * normal(20)
    columns = scan_columns(np.column_stack([rare, seldom]))
    assert columns.spread[0] == pytest.approx(rare.std())
    assert 0.005 < columns.spread[1] < 0.02


class TestFitting:
    @staticmethod
    def measurements():
        """Measures of one thing in many units, as in the breast cancer data: spreads from 0.003 to 600."""
        rng = np.random.default_rng(2)
        size = rng.standard_normal((300, 1)) + rng.integers(0, 3, (300, 1))
        noisy = size + 0.3 * rng.standard_normal((300, 6))
        return noisy * [0.003, 0.02, 0.1, 5, 90, 600] + [0.1, 0.2, 1, 10, 500, 900]

    @pytest.mark.parametrize("scale", [1e-3, 1e3])
    def test_other_units_change_the_likelihood_by_their_size_only(self, scale):
        data = self.measurements()
        plain, scaled = (
            fit(hclt(table, units=4), table, epochs=20, progress=False).train_ll for table in (data, scale * data)
        )
        assert scaled + data.shape[1] * np.log(scale) == pytest.approx(plain, abs=0.01)

    def test_a_column_of_tiny_numbers_is_fitted(self):
        data = 1e-6 * normal(500)[:, None]
        found = fit(hclt(data, units=4), data, epochs=60, progress=False)
        best = -0.5 * np.log(2 * np.pi * np.e * data.var())
        assert found.train_ll == pytest.approx(best, abs=0.1)
