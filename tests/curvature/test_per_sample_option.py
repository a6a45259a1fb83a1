"""`curvature(..., per_sample=...)`: rows in addition to the means."""

import numpy as np
import pytest

import circurve as cc


@pytest.fixture(scope="module")
def model() -> cc.Model:
    rows = np.random.default_rng(0).integers(0, 2, (60, 5))
    return cc.fit(cc.hclt(rows, units=3), rows, epochs=2, precision="float64").model


def test_rows_are_unweighted_and_average_to_the_weighted_means(model: cc.Model):
    rows, weights = np.random.default_rng(1).integers(0, 2, (30, 5)), np.linspace(0.5, 3, 30)
    curv = cc.curvature(model, rows, weights=weights, per_sample=True)
    found = curv.per_sample
    assert found is not None
    np.testing.assert_allclose(np.average(found.total, axis=0, weights=weights), curv.total, rtol=1e-10)
    np.testing.assert_allclose(np.average(found.local, axis=0, weights=weights), curv.local, rtol=1e-10)
    np.testing.assert_allclose(found.flow, cc.per_sample(model, rows).flow, rtol=0)


def test_chosen_nodes_only_and_none_by_default(model: cc.Model):
    rows = np.zeros((4, 5), dtype=int)
    found = cc.curvature(model, rows, per_sample=["root"]).per_sample
    assert found is not None
    assert [ref.name for ref in found.nodes] == ["root"]
    assert cc.curvature(model, rows).per_sample is None


def test_adding_records_drops_the_rows(model: cc.Model):
    part = cc.curvature(model, np.zeros((4, 5), dtype=int), per_sample=True)
    assert (part + part).per_sample is None
