"""Questions by name to several runs at once: each run answers as its own model does alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from scipy import stats
from world import possible_rows, with_gap

import circurve as cc
from circuits import Case, cases, random_parameters, random_weights
from circurve import DataError, Model, Models
from circurve.queries.questions import Completion, Estimate, Questions

Ask = Callable[[Questions, Any], Any]

BY_POSITION: dict[str, Ask] = {
    "log_prob": lambda m, rows: m.log_prob(rows),
    "marginal": lambda m, rows: m.marginal(rows),
    "marginal of a row": lambda m, rows: m.marginal(one_row(rows), log=True),
    "conditional": lambda m, rows: m.conditional({0: 1.0}, rows, log=True),
    "interval": lambda m, rows: m.interval({0: (0, 1)}, rows),
    "distribution": lambda m, rows: m.distribution(0, rows),
    "distribution of a row": lambda m, rows: m.distribution(0, one_row(rows)),
    "quantile": lambda m, rows: m.quantile(0, [0.2, 0.7], rows),
    "quantile of a row": lambda m, rows: m.quantile(0, 0.5, one_row(rows)),
    "mean": lambda m, rows: m.mean(rows),
    "variance": lambda m, rows: m.variance(rows),
    "covariance": lambda m, rows: m.covariance(rows),
    "covariance of a row": lambda m, rows: m.covariance(one_row(rows)),
    "sample": lambda m, rows: m.sample(3, rows, seed=4),
    "impute by means": lambda m, rows: m.impute(rows),
    "impute by modes": lambda m, rows: m.impute(rows, "mode"),
    "impute by draws": lambda m, rows: m.impute(rows, "sample", seed=1),
    "most_probable": lambda m, rows: m.most_probable(rows),
    "mutual_information": lambda m, rows: m.mutual_information(0, 1, draws=200),
    "entropy": lambda m, rows: m.entropy(draws=200),
    "explain": lambda m, rows: m.explain(rows),
}


def one_row(rows: np.ndarray) -> dict[int, float]:
    return {int(v): float(rows[0, v]) for v in np.flatnonzero(~np.isnan(rows[0]))}


def of_run(answer: Any, run: Any, at: int) -> Any:
    """The part of an answer of `Models` that belongs to one run."""
    if isinstance(answer, Completion):
        parts = (part[at] for part in (answer.log_prob, answer.bound, answer.exact))
        return Completion(of_run(answer.rows, run, at), *parts)
    if isinstance(answer, Estimate):
        return Estimate(answer.value[at], answer.standard_error[at], answer.exact)
    if isinstance(answer, pd.DataFrame):
        assert answer.columns[0] == "run"
        return answer[answer["run"] == run].drop(columns="run")
    return answer[at]


def assert_same(found: Any, alone: Any) -> None:
    if isinstance(alone, Completion):
        assert_same(found.rows, alone.rows)
        for name in ("log_prob", "bound", "exact"):
            assert_same(getattr(found, name), getattr(alone, name))
    elif isinstance(alone, Estimate):
        assert found.exact == alone.exact
        assert_same([found.value, found.standard_error], [alone.value, alone.standard_error])
    elif isinstance(alone, pd.DataFrame):
        index = isinstance(alone.index, pd.RangeIndex)
        found = found.reset_index(drop=True) if index else found
        pd.testing.assert_frame_equal(found, alone, rtol=1e-7, atol=1e-8, check_dtype=False)
    elif isinstance(alone, np.ndarray) and alone.dtype.kind == "M":
        np.testing.assert_array_equal(found, alone)
    else:
        np.testing.assert_allclose(found, alone, rtol=1e-7, atol=1e-8)


def runs_of(case: Case, count: int) -> Models:
    """The case's circuit with its own parameters and with other ones."""
    rng = np.random.default_rng(1)
    others = [
        Model.from_parameters(
            case.circuit,
            {node: random_weights(node, False, rng) for node in case.circuit.sums},
            {node: random_parameters(node, False, rng) for node in case.circuit.inputs},
        )
        for _ in range(count - 1)
    ]
    return Models([Model.from_parameters(case.circuit, case.weights, case.inputs), *others])


@pytest.mark.parametrize("ask", BY_POSITION.values(), ids=BY_POSITION)
@settings(max_examples=6, deadline=None)
@given(case=cases(samples=3, roots=1))
def test_each_run_answers_as_it_does_alone(ask: Ask, case: Case) -> None:
    x = case.x.copy()
    x[:, 0] = np.nan
    case = replace(case, x=x, sample_weights=None)
    assume(case.circuit.variables > 1)
    models = runs_of(case, 3)
    assume(bool(np.isfinite(models.log_prob(case.x)).all()))
    together = ask(models, case.x)
    for run, model in enumerate(models):
        assert_same(of_run(together, run, run), ask(model, case.x))


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 200)
    return pd.DataFrame(
        {
            "city": np.array(["Oslo", "Rome"])[kind ^ (rng.random(200) < 0.2)],
            "adult": rng.random(200) < np.array([0.2, 0.8])[kind],
            "income": rng.normal(np.array([1.0, 4.0])[kind], 0.8),
            "born": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 300, 200) + 200 * kind, "D"),
        },
        index=np.arange(200) + 1000,
    )


@pytest.fixture(scope="module")
def fleet(people: pd.DataFrame) -> Any:
    runs = [cc.Run(seed=seed, label=label) for seed, label in enumerate(["first", "second", "third"])]
    return cc.fit_fleet(cc.hclt(people, 2), people, runs, epochs=4, precision="float64", progress=False, valid=None)


BY_NAME: dict[str, Ask] = {
    "log_prob": lambda m, rows: m.log_prob(rows),
    "conditional": lambda m, rows: m.conditional({"city": "Rome"}, rows[["income", "adult"]]),
    "distribution": lambda m, rows: m.distribution("city", rows[["income"]]),
    "grids": lambda m, rows: m.distribution("income", rows[["city"]], points=7),
    "soft evidence": lambda m, rows: m.mean({"city": {"Rome": 0.7, "Oslo": 0.3}, "income": (1, None)}),
    "dates": lambda m, rows: m.quantile("born", [0.1, 0.9], rows[["city"]]),
    "means": lambda m, rows: m.mean(rows[["city"]]),
    "sample": lambda m, rows: m.sample(2, rows[["city"]], seed=0),
    "impute": lambda m, rows: m.impute(rows.mask(np.eye(len(rows), 4, dtype=bool))),
    "most_probable": lambda m, rows: m.most_probable({"city": "Rome"}),
    "entropy": lambda m, rows: m.entropy("city"),
    "explain": lambda m, rows: m.explain(rows),
}


@pytest.mark.parametrize("ask", BY_NAME.values(), ids=BY_NAME)
def test_a_trained_fleet_answers_with_labels_in_front(fleet: Any, people: pd.DataFrame, ask: Ask) -> None:
    rows = people.head(4)
    together = ask(fleet.models, rows)
    for at, (label, result) in enumerate(zip(["first", "second", "third"], fleet, strict=True)):
        assert_same(of_run(together, label, at), ask(result.model, rows))


def test_frames_of_a_fleet_keep_kind_and_index(fleet: Any, people: pd.DataFrame) -> None:
    rows = people.head(4)
    assert list(fleet.models.mean(rows[["city"]]).index) == [1000, 1001, 1002, 1003] * 3
    table = fleet.models.impute(pa.Table.from_pandas(rows, preserve_index=False))
    assert isinstance(table, pa.Table)
    assert table["run"].to_pylist() == ["first"] * 4 + ["second"] * 4 + ["third"] * 4
    several = fleet.models.impute(rows, "sample", draws=2, seed=0)
    assert [len(table) for table in several] == [12, 12]


def test_runs_without_labels_have_numbers_and_arrays_an_axis(people: pd.DataFrame) -> None:
    x = np.random.default_rng(0).integers(0, 2, (60, 3)).astype(float)
    runs = [cc.Run(seed=seed) for seed in range(2)]
    models = cc.fit_fleet(cc.hclt(x, 2), x, runs, epochs=2, progress=False, valid=None).models
    assert models.impute(x[:5]).shape == (2, 5, 3)
    assert models.sample(3, seed=0)["run"].tolist() == [0, 0, 0, 1, 1, 1]
    assert models.log_prob(x).shape == (2, 60)
    named = cc.fit_fleet(
        cc.hclt(pd.DataFrame(x, columns=["run", "a", "b"]), 2),
        pd.DataFrame(x, columns=["run", "a", "b"]),
        runs,
        epochs=1,
        progress=False,
        valid=None,
    ).models
    assert list(named.sample(1, seed=0).columns) == ["_run", "run", "a", "b"]


@settings(max_examples=8, deadline=None)
@given(case=cases(samples=1, roots=1, domains=("binary", "ternary"), variables=4))
def test_draws_of_many_runs_follow_each_of_them(case: Case) -> None:
    """More runs than are drawn at once; chi-square of the first column for each run, and the same seed again."""
    case = possible_rows(replace(with_gap(case), sample_weights=None))
    models = runs_of(case, 18)
    assume(len(case.x) > 0 and bool(np.isfinite(models.log_prob(case.x)).all()))
    known = one_row(case.x)
    drawn = models.sample(1500, known, seed=3)
    pd.testing.assert_frame_equal(drawn, models.sample(1500, known, seed=3))
    table = models.distribution(0, known)
    for run in range(len(models)):
        wanted = of_run(table, run, run)
        expected = wanted["probability"].to_numpy() * 1500
        values = of_run(drawn, run, run)["0"].to_numpy()
        counts = np.array([(values == state).sum() for state in wanted["0"]])
        assert counts.sum() == 1500
        assert counts[expected < 1e-9].sum() == 0
        large = expected >= 5
        statistic = ((counts - expected)[large] ** 2 / expected[large]).sum()
        assert stats.chi2.sf(statistic, large.sum()) > 1e-7


def test_evidence_that_one_run_excludes_is_an_error_that_names_it() -> None:
    leaf, other = cc.Input(0, cc.Categorical(2), 1), cc.Input(1, cc.Bernoulli(), 1)
    circuit = cc.Circuit(cc.Sum(cc.Product([leaf, other])))
    possible, certain = (
        Model.from_parameters(circuit, inputs={leaf: [[p, 1 - p]], other: [[0.3]]}) for p in (0.5, 1.0)
    )
    with pytest.raises(DataError, match=r"row 1, run 1: column 1.* = 1 has probability zero"):
        Models([possible, certain]).mean({0: 1})
    np.testing.assert_array_equal(Models([possible, certain]).marginal({0: 1}), [0.5, 0.0])
