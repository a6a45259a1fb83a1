"""How surprising a cell is: P(p(X) <= p(x)) against sums over all values, and against integrals on fine grids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from scipy import stats
from world import evidence_of, possible_rows, probability, target_of

import circurve as cc
from circuits import Case, cases
from circurve.queries import explain

GRIDS = {"binary": np.arange(2.0), "ternary": np.arange(3.0), "count": np.arange(60.0)}
FINE = np.linspace(-14, 14, 5601)


def tail(case: Case, row: int, column: int) -> tuple[float, float]:
    """P(p(X) <= p(x)) of a cell given the rest of its row, and the density of x relative to the highest."""
    grid = GRIDS.get(case.domains[column], FINE)
    x = np.repeat(case.x[row : row + 1], len(grid) + 1, axis=0)
    x[:-1, column] = grid
    labels = None if case.labels is None else case.labels[row].expand(len(x))
    *mass, own = probability(case, x, labels).tolist()
    p = np.array(mass)
    return float(p[p <= own * (1 + 1e-7)].sum() / p.sum()), own / p.max()


@settings(max_examples=15, deadline=None)
@given(case=cases(samples=2, zeros=True))
def test_a_tail_is_the_probability_of_all_values_that_are_not_more_probable(case: Case) -> None:
    case = possible_rows(case)
    assume(len(case.x) > 0)
    target = target_of(case)
    found = explain(target, evidence_of(case, target)).log_tail[0].exp()
    for row, column in zip(*np.nonzero(~np.isnan(case.x)), strict=True):
        expected, height = tail(case, row, column)
        if case.domains[column] == "real":
            # near a peak the set of less dense values changes fast with the density: compare where it does not
            if height < 0.95:
                assert float(found[row, column]) == pytest.approx(expected, rel=0.02, abs=2e-3)
        else:
            assert float(found[row, column]) == pytest.approx(expected, rel=1e-5, abs=1e-12)
    assert found[~torch.from_numpy(np.isnan(case.x))].isfinite().all()


def gaussians(means: list[float], weights: list[float] | None = None) -> cc.Model:
    leaf = cc.Input(0, cc.Gaussian(), len(means))
    top = cc.Sum(leaf, 1)
    given_weights = [weights or [1 / len(means)] * len(means)]
    return cc.Model.from_parameters(cc.Circuit(top), {top: given_weights}, {leaf: [[m, 1.0] for m in means]})


@pytest.mark.parametrize("z", [0.1, 0.5, 1.0, 2.0, 3.3, 6.0, 11.0, 30.0, 45.0])
def test_the_tail_of_a_gaussian_is_its_two_sided_tail(z: float) -> None:
    found = gaussians([3.0]).explain({0: 3.0 + z})["surprise"][0]
    assert found == pytest.approx(-(np.log(2) + stats.norm.logsf(z)), rel=0.01, abs=0.01)


def test_a_value_in_a_gap_is_surprising_and_modes_are_not() -> None:
    model = gaussians([0.0, 100.0])
    found = model.explain(np.array([[50.0], [0.0], [100.0]])).set_index("row")["surprise"]
    assert found[0] > 1000
    assert found[1] < 0.1
    assert found[2] < 0.1


@pytest.mark.parametrize("mean", [3.0, 60.0, 40_000.0])
def test_the_tail_of_a_count_is_the_sum_of_its_less_probable_values(mean: float) -> None:
    leaf = cc.Input(0, cc.Poisson(), 1)
    model = cc.Model.from_parameters(cc.Circuit(leaf), inputs={leaf: [[mean]]})
    values = np.unique(np.rint(mean + np.sqrt(mean) * np.array([-3.0, -1.0, 0.5, 2.0, 6.0])).clip(0))
    found = model.explain(values[:, None]).set_index("row")["surprise"]
    every = stats.poisson.pmf(np.arange(int(mean + 60 * np.sqrt(mean)) + 60), mean)
    for row, value in enumerate(values):
        expected = every[every <= stats.poisson.pmf(value, mean) * (1 + 1e-7)].sum()
        assert found[row] == pytest.approx(-np.log(expected), rel=0.01, abs=0.02 if mean > 1000 else 1e-6)


def test_columns_with_many_values_do_not_rank_high_for_that_alone() -> None:
    """500 equally probable cities beside a coin that fell on its rarer side."""
    city, coin = cc.Input(0, cc.Categorical(500), 1), cc.Input(1, cc.Bernoulli(), 1)
    model = cc.Model.from_parameters(
        cc.Circuit(cc.Product([city, coin])), inputs={city: [[1 / 500] * 500], coin: [[0.2]]}
    )
    found = model.explain(np.array([[7.0, 1.0]]))
    assert found["column"].tolist() == ["1", "0"]
    np.testing.assert_allclose(found["surprise"], [np.log(5), 0], atol=1e-9)
    np.testing.assert_allclose(found["log_prob"], [np.log(0.2), -np.log(500)], rtol=1e-9)


def test_surprise_is_as_rare_as_it_says_in_columns_of_all_kinds() -> None:
    """Of rows drawn from a model. A surprise above s has probability e^-s in a continuous column, less in others."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 600)
    frame = pd.DataFrame(
        {
            "city": np.array([f"c{n}" for n in range(30)])[(kind * 10 + rng.integers(0, 10, 600)) % 30],
            "income": rng.normal(kind * 3.0, 1.0),
            "visits": rng.poisson(np.array([2.0, 9.0, 40.0])[kind]),
        }
    )
    circuit = cc.hclt(frame, 3, schema=cc.infer_schema(frame, types={"visits": "poisson"}))
    model = cc.fit(circuit, frame, epochs=10, progress=False, valid=None, precision="float64").model
    rows = model.sample(4000, seed=1)
    found = model.explain(rows)
    for column, own in found.groupby("column"):
        for s in (1.0, 2.0, 4.0):
            error = 5 * np.sqrt(np.exp(-s) / len(own))
            share = float((own["surprise"] > s).mean())
            assert share < np.exp(-s) + error, column
            if column == "income":
                assert share > np.exp(-s) - error


def test_an_impossible_cell_has_infinite_surprise() -> None:
    leaf, other = cc.Input(0, cc.Categorical(2), 1), cc.Input(1, cc.Bernoulli(), 1)
    circuit = cc.Circuit(cc.Product([leaf, other]))
    certain = cc.Model.from_parameters(circuit, inputs={leaf: [[1.0, 0.0]], other: [[0.3]]})
    found = certain.explain(np.array([[1.0, 1.0], [0.0, 0.0]])).set_index(["row", "column"])["surprise"]
    assert found[0, "0"] == np.inf
    assert found[1, "0"] == 0


def test_a_run_of_a_fleet_has_cells_of_its_own() -> None:
    """A run whose counts are few is exact beside one whose counts are many."""
    leaf = cc.Input(0, cc.Poisson(), 1)
    circuit = cc.Circuit(leaf)
    few, many = (cc.Model.from_parameters(circuit, inputs={leaf: [[mean]]}) for mean in (3.0, 50_000.0))
    together = cc.Models([few, many]).explain(np.array([[9.0]]))["surprise"]
    np.testing.assert_allclose(together, [m.explain(np.array([[9.0]]))["surprise"][0] for m in (few, many)], rtol=1e-12)
