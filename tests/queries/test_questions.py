"""Questions by column name: each answer is compared with sums and integrals of the model's own log_prob."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import circurve as cc
from circurve import DataError, Model, OptionError

pl = pytest.importorskip("polars")

CITIES = ["Oslo", "Paris", "Rome"]


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 400)
    return pd.DataFrame(
        {
            "city": np.array(CITIES)[(kind + (rng.random(400) < 0.2)) % 3],
            "adult": rng.random(400) < np.array([0.2, 0.6, 0.9])[kind],
            "income": rng.normal(np.array([1.0, 3.0, 6.0])[kind], 0.8),
            "born": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 300, 400) + 200 * kind, "D"),
            "visits": rng.poisson(np.array([2.0, 9.0, 25.0])[kind]),
        }
    )


@pytest.fixture(scope="module")
def model(people: pd.DataFrame) -> Model:
    schema = cc.infer_schema(people, types={"visits": "poisson"})
    circuit = cc.hclt(people, 3, schema=schema)
    return cc.fit(circuit, people, epochs=15, batch_size=None, precision="float64", progress=False, valid=None).model


def log_prob(model: Model, **columns: Any) -> np.ndarray:
    """log p of partial rows by `Model.log_prob` alone."""
    return model.log_prob(pd.DataFrame(columns), missing_columns="missing")


def test_a_conditional_is_a_ratio_of_probabilities(model: Model) -> None:
    both = log_prob(model, city=["Rome"], income=[2.5], adult=[True])[0]
    given = log_prob(model, income=[2.5], adult=[True])[0]
    known = {"income": 2.5, "adult": True}
    assert model.conditional({"city": "Rome"}, known) == pytest.approx(np.exp(both - given), rel=1e-10)
    assert model.conditional({"city": "Rome"}, known, log=True) == pytest.approx(both - given, rel=1e-10)
    assert model.marginal({"income": 2.5, "adult": True}) == pytest.approx(np.exp(given), rel=1e-10)


def test_one_target_for_many_rows_and_many_targets_for_one_row(model: Model, people: pd.DataFrame) -> None:
    known = people[["income", "adult"]].head(5)
    found = model.conditional({"city": "Rome"}, known)
    alone = [model.conditional({"city": "Rome"}, {"income": r.income, "adult": r.adult}) for r in known.itertuples()]
    np.testing.assert_allclose(found, alone, rtol=1e-10)
    np.testing.assert_allclose(model.conditional({"city": CITIES}, {"income": 2.5}).sum(), 1, rtol=1e-10)


def test_the_distribution_of_a_category_lists_its_conditionals(model: Model, people: pd.DataFrame) -> None:
    single = model.distribution("city", {"income": 2.5})
    assert list(single["city"]) == CITIES
    np.testing.assert_allclose(single["probability"], model.conditional({"city": CITIES}, {"income": 2.5}), rtol=1e-10)
    known = people[["income"]].iloc[[7, 3, 9]]
    many = model.distribution("city", known)
    assert list(many.columns) == CITIES
    assert list(many.index) == [7, 3, 9]
    np.testing.assert_allclose(many["Rome"], model.conditional({"city": "Rome"}, known), rtol=1e-10)


def test_the_distribution_of_a_number_is_its_density_on_a_grid(model: Model) -> None:
    found = model.distribution("income", {"city": "Rome"}, points=401)
    width = found["income"].iloc[1] - found["income"].iloc[0]
    np.testing.assert_allclose(
        found["density"], model.conditional({"income": found["income"].tolist()}, {"city": "Rome"}), rtol=1e-8
    )
    steps = np.cumsum((found["density"].to_numpy()[1:] + found["density"].to_numpy()[:-1]) / 2 * width)
    np.testing.assert_allclose(found["cumulative"].iloc[1:] - found["cumulative"].iloc[0], steps, atol=2e-5)
    assert found["cumulative"].iloc[0] == pytest.approx(0.001)
    assert found["cumulative"].iloc[-1] == pytest.approx(0.999)


def test_the_distribution_of_a_count_lists_whole_numbers(model: Model) -> None:
    found = model.distribution("visits", {"city": ["Rome", "Oslo"]})
    own = found[found["row"] == 1]
    assert list(np.diff(own["visits"])) == [1] * (len(own) - 1)
    np.testing.assert_allclose(
        own["probability"], model.conditional({"visits": own["visits"].tolist()}, {"city": "Oslo"}), rtol=1e-8
    )


def test_quantiles_invert_the_distribution_and_dates_are_dates(model: Model) -> None:
    levels = [0.1, 0.5, 0.9]
    found = model.quantile("income", levels, {"city": "Rome"})
    for level, value in zip(levels, found, strict=True):
        assert model.interval({"income": (None, float(value))}, {"city": "Rome"}) == pytest.approx(level, abs=1e-9)
    middle = model.quantile("born", 0.5)
    assert np.datetime64("2000-01-01") < middle < np.datetime64("2002-01-01")
    assert 0.4 < model.interval({"born": (None, str(middle))}) < 0.6


def test_levels_may_be_any_numbers(model: Model) -> None:
    wanted = model.quantile("income", [0.25])
    for level in (0.25, np.float32(0.25), np.array(0.25)):
        assert model.quantile("income", level) == wanted[0]
    for levels in ((0.25,), np.array([0.25], dtype=np.float32), pd.Series([0.25])):
        np.testing.assert_array_equal(model.quantile("income", levels), wanted)


def test_seeds_may_be_any_whole_numbers(model: Model) -> None:
    pd.testing.assert_frame_equal(model.sample(3, seed=2**64 + 5), model.sample(3, seed=2**64 + 5))


def test_moments_are_integrals(model: Model) -> None:
    grid = np.linspace(-8, 16, 4801)
    density = model.conditional({"income": grid.tolist()}, {"city": "Paris"})
    mean = float((grid * density).sum() * 0.005)
    second = float((np.square(grid - mean) * density).sum() * 0.005)
    assert model.mean({"city": "Paris"})["income"][0] == pytest.approx(mean, rel=1e-8)
    assert model.variance({"city": "Paris"})["income"][0] == pytest.approx(second, rel=1e-8)
    adult = model.conditional({"adult": True}, {"city": "Paris"})
    assert model.mean({"city": "Paris"})["adult"][0] == pytest.approx(adult, rel=1e-10)
    joint = [model.conditional({"income": grid.tolist(), "adult": a}, {"city": "Paris"}) for a in (False, True)]
    both = float((grid * joint[1]).sum() * 0.005)
    table = model.covariance({"city": "Paris"}).set_index("column")
    assert table.loc["adult", "income"] == pytest.approx(both - mean * adult, rel=1e-7)
    assert model.covariance(pd.DataFrame({"city": CITIES})).shape == (3, 4, 4)


def test_soft_evidence_mixes_what_it_is_made_of(model: Model) -> None:
    parts = {city: model.marginal({"city": city, "income": 2.0}) for city in CITIES}
    alone = {city: model.marginal({"city": city}) for city in CITIES}
    expected = (0.7 * parts["Rome"] + 0.3 * parts["Oslo"]) / (0.7 * alone["Rome"] + 0.3 * alone["Oslo"])
    found = model.conditional({"income": 2.0}, {"city": {"Rome": 0.7, "Oslo": 0.3}})
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("factor", [5e-324, 1e-300, 1e-40, 1e30, 1e300])
def test_likelihoods_have_a_common_factor(model: Model, factor: float) -> None:
    """Also one beyond the range of float32, and at both ends of that of float64."""
    small = cc.fit(model.circuit, model.sample(200, seed=0), epochs=3, progress=False, valid=False).model  # float32
    rain = {"city": {"Rome": 3, "Oslo": 1}, "adult": {True: 2, False: 1}}
    scaled = {name: {value: factor * share for value, share in given.items()} for name, given in rain.items()}
    for asked in (model, small):
        for column in ("city", "adult", "income"):
            wanted, found = (asked.distribution(column, given).iloc[:, 1] for given in (rain, scaled))
            np.testing.assert_allclose(found, wanted, rtol=1e-3)
        pd.testing.assert_frame_equal(asked.mean(scaled), asked.mean(rain), rtol=1e-3)
        draws = [asked.sample(50, given, seed=3) for given in (scaled, rain)]
        assert draws[0]["city"].tolist() == draws[1]["city"].tolist()


def test_an_interval_as_evidence_is_an_integral(model: Model) -> None:
    grid = np.linspace(1, 2, 2001)
    joint = model.marginal({"city": ["Rome"] * len(grid), "income": grid.tolist()})
    whole = model.marginal({"income": grid.tolist()})
    ends = np.full(len(grid), 1.0)
    ends[[0, -1]] = 0.5
    expected = (joint * ends).sum() / (whole * ends).sum()
    assert model.conditional({"city": "Rome"}, {"income": (1, 2)}) == pytest.approx(expected, rel=1e-6)


def test_draws_keep_what_is_given_and_follow_the_conditional(model: Model) -> None:
    drawn = model.sample(4000, {"city": "Rome", "income": 5.123456789}, seed=1)
    assert set(drawn["city"]) == {"Rome"}
    assert set(drawn["income"]) == {5.123456789}
    share = model.conditional({"adult": True}, {"city": "Rome", "income": 5.123456789})
    assert drawn["adult"].mean() == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 4000))
    pd.testing.assert_frame_equal(drawn, model.sample(4000, {"city": "Rome", "income": 5.123456789}, seed=1))
    assert not model.sample(5).equals(model.sample(5))
    many = model.sample(3, pd.DataFrame({"city": ["Rome", "Oslo"]}), seed=0)
    assert list(many["city"]) == ["Rome"] * 3 + ["Oslo"] * 3


@pytest.fixture
def holes(people: pd.DataFrame) -> pd.DataFrame:
    frame = people.head(60).astype({"adult": object}).copy()
    rng = np.random.default_rng(5)
    for name in frame:
        frame.loc[rng.random(60) < 0.3, name] = None
    frame.index = frame.index + 100
    return frame


@pytest.mark.parametrize("how", ["mean", "mode", "sample"])
def test_imputation_fills_holes_and_nothing_else(model: Model, holes: pd.DataFrame, how: Any) -> None:
    filled = model.impute(holes, how, seed=0)
    assert not filled.isna().any().any()
    assert list(filled.index) == list(holes.index)
    for name in holes:
        known = holes[name].notna()
        assert filled.loc[known, name].tolist() == holes.loc[known, name].tolist(), name
    if how == "mean":
        row = holes.index[holes["income"].isna() & holes["city"].notna()][0]
        known = {name: value for name, value in holes.loc[row].items() if pd.notna(value)}
        assert filled.loc[row, "income"] == pytest.approx(model.mean(known)["income"][0], rel=1e-9)


def test_times_with_an_offset_are_read_without_a_warning(model: Model) -> None:
    ends = (pd.Timestamp("2001-02-03 10:00", tz="America/New_York"), "2001-05-03T10:00-05:00")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = model.interval({"born": ends})
        assert model.log_prob({"born": [str(ends[0])]}, missing_columns="missing").shape == (1,)
    assert found == model.interval({"born": ("2001-02-03T15:00", np.datetime64("2001-05-03T15:00"))})


def test_several_imputations_are_a_list_of_tables(model: Model, holes: pd.DataFrame) -> None:
    tables = model.impute(holes, "sample", draws=3, seed=0)
    assert len(tables) == 3
    assert not tables[0].equals(tables[1])


def test_frames_of_every_kind_come_back_as_they_came(model: Model, holes: pd.DataFrame) -> None:
    expected = model.impute(holes)["income"].to_numpy()
    for frame in (pl.from_pandas(holes), pa.Table.from_pandas(holes, preserve_index=False)):
        found = model.impute(frame)
        assert type(found) is type(frame)
        np.testing.assert_array_equal(found["income"].to_numpy(), expected)


def test_a_completion_has_the_log_prob_it_says_and_a_bound(model: Model) -> None:
    known = pd.DataFrame({"city": CITIES, "born": pd.to_datetime(["2000-05-01"] * 3)})  # dates are rounded to days
    found = model.most_probable(known)
    np.testing.assert_allclose(found.log_prob, model.log_prob(found.rows), rtol=1e-9)
    assert (found.bound >= found.log_prob - 1e-9).all()
    better = model.sample(2000, {"city": "Rome", "born": "2000-05-01"}, seed=0)
    assert model.log_prob(better).max() <= found.bound[2] + 1e-9


def test_information_says_whether_it_is_exact(model: Model) -> None:
    table = np.array([[model.marginal({"city": c, "adult": a}) for a in (False, True)] for c in CITIES])
    outer = table.sum(1, keepdims=True) * table.sum(0, keepdims=True)
    found = model.mutual_information("city", "adult")
    assert found.exact
    assert found.value == pytest.approx((table * np.log(table / outer)).sum(), rel=1e-9)
    rough = model.entropy("income", draws=4000)
    grid = np.linspace(-8, 16, 4801)
    density = model.marginal({"income": grid.tolist()})
    assert not rough.exact
    assert rough.value == pytest.approx(-(density * np.log(density)).sum() * 0.005, abs=5 * rough.standard_error)


def tail(model: Model, name: str, log_prob: float, rest: dict[str, Any]) -> float:
    """The probability of all values of a column that are at most as probable as one of this log-probability."""
    grids: dict[str, list[Any]] = {
        "city": CITIES,
        "adult": [False, True],
        "income": np.linspace(-8, 16, 4801).tolist(),
        "born": [str(day) for day in np.datetime64("1999-01-01") + np.arange(1500)],
        "visits": list(range(120)),
    }
    p = model.conditional({name: grids[name]}, rest)
    return float(p[p <= np.exp(log_prob) * (1 + 1e-7)].sum() / p.sum())


def test_explanations_are_conditionals_of_each_cell(model: Model, people: pd.DataFrame) -> None:
    row = people.iloc[3].to_dict()
    found = model.explain(people.iloc[[3]]).set_index("column")
    for name in people:
        rest = {other: value for other, value in row.items() if other != name}
        expected = model.conditional({name: row[name]}, rest, log=True)
        assert found.loc[name, "log_prob"] == pytest.approx(expected, rel=1e-7, abs=1e-9), name
        assert np.exp(-found.loc[name, "surprise"]) == pytest.approx(tail(model, name, expected, rest), abs=0.01), name
    assert found["surprise"].is_monotonic_decreasing


def test_numbers_name_columns_without_names() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (200, 3))
    model = cc.fit(cc.hclt(x, 2), x, epochs=3, batch_size=None, progress=False).model
    assert model.conditional({2: 1}, {0: 1}) == pytest.approx(1 - model.conditional({2: 0}, {0: 1}), rel=1e-6)
    assert model.sample(4, {1: 1}, seed=0)["1"].tolist() == [1] * 4
    assert isinstance(model.impute(np.array([[0.0, np.nan, 1.0]])), np.ndarray)


def test_answers_survive_files_and_pickles(model: Model, tmp_path: Any) -> None:
    model.save(tmp_path / "m.safetensors")
    expected = model.conditional({"city": "Rome"}, {"income": 2.5, "born": "2001-02-03"})
    for same in (cc.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert same.conditional({"city": "Rome"}, {"income": 2.5, "born": "2001-02-03"}) == expected


MISTAKES: list[tuple[Callable[[Model], Any], type[Exception], str]] = [
    (lambda m: m.conditional({"citty": "Rome"}), DataError, "no column 'citty'; do you mean 'city'?"),
    (lambda m: m.conditional({"city": "Roma"}), DataError, "'Roma' was not seen in training; do you mean 'Rome'?"),
    (lambda m: m.conditional({"city": "Rome"}, {"city": "Oslo"}), DataError, "both asked for and given"),
    (lambda m: m.conditional({"city": "Rome"}, {"income": "much"}), DataError, "'income'"),
    (lambda m: m.conditional({"city": "Rome"}, {"income": (5, 1)}), DataError, "has its ends in the wrong order"),
    (lambda m: m.conditional({"city": "Rome"}, {"income": (1, 2, 3)}), DataError, "an interval is"),
    (lambda m: m.conditional({"city": CITIES}, {"income": [1.0, 2.0]}), DataError, "2 of the other"),
    (lambda m: m.conditional({"city": "Rome"}, {"city": {"Rome": 0}}), DataError, "all likelihoods are zero"),
    (lambda m: m.conditional({"city": "Rome"}, {"income": {1: 0.5}}), DataError, "give an interval"),
    (lambda m: m.mean({"city": {"Rome": "high"}}), DataError, "'city': a likelihood must be a number, not 'high'"),
    (lambda m: m.mean({"city": {"Rome": None}}), DataError, "'city': a likelihood must be a number, not None"),
    (lambda m: m.mean({"city": {"Rome", "Oslo"}}), DataError, "('city') is a set, which has no order of rows"),
    (lambda m: m.mean({"visits": -1}), DataError, "takes whole numbers >= 0; leave the cell empty to treat it as"),
    (lambda m: m.interval({"city": ("a", "b")}), DataError, "categories, which have no order"),
    (lambda m: m.interval({"income": 3}), DataError, "an interval is (low, high), not 3"),
    (lambda m: m.interval({"born": ("soon", None)}), DataError, "'soon' is not a date"),
    (lambda m: m.interval({"born": (3, None)}), DataError, "3 is not a date"),
    (lambda m: m.distribution("towns"), DataError, "no column 'towns'"),
    (lambda m: m.distribution("city", {"city": "Rome"}), DataError, "its value is given"),
    (lambda m: m.quantile("city", 0.5), DataError, "no order and no quantiles"),
    (lambda m: m.quantile("income", 1.5), OptionError, "above 0 and below 1, not 1.5"),
    (lambda m: m.quantile("income", 0), OptionError, "above 0 and below 1, not 0"),
    (lambda m: m.quantile("income", []), OptionError, "levels must be a number above 0 and below 1, or a list of them"),
    (lambda m: m.quantile("income", "0.5"), OptionError, "or a list of them, not '0.5'"),
    (lambda m: m.quantile("income", [[0.5]]), OptionError, "or a list of them, not [[0.5]]"),
    (lambda m: m.quantile("income", ["low"]), OptionError, "or a list of them, not ['low']"),
    (lambda m: m.sample(0), OptionError, "n must be a whole number >= 1"),
    (lambda m: m.sample(1, seed=-1), OptionError, "seed must be a whole number >= 0"),
    (lambda m: m.impute({"city": ["Rome"]}, "median"), OptionError, "how must be"),
    (lambda m: m.impute({"city": ["Rome"]}, "mean", draws=3), OptionError, "draws=3 has no effect"),
    (lambda m: m.mutual_information("city", "city"), OptionError, "on both sides"),
    (lambda m: m.entropy([]), OptionError, "at least one"),
    (lambda m: m.explain(pd.DataFrame({"town": ["Rome"]})), DataError, "no column 'town'"),
]


def test_text_in_place_of_a_number_is_named() -> None:
    rows = pd.DataFrame({"stars": [1, 2, 3, 4, 5] * 8, "x": np.arange(40.0)})
    model = cc.fit(cc.hclt(rows, 2), rows, epochs=1, progress=False, valid=False).model
    assert model.conditional({"stars": 2.0}) == model.conditional({"stars": 2})
    with pytest.raises(DataError, match=r"^column 'stars': '2' is text, but its categories are numbers$"):
        model.conditional({"stars": "2"})


@pytest.mark.parametrize(("ask", "kind", "words"), MISTAKES)
def test_a_mistake_is_named(model: Model, ask: Callable[[Model], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        ask(model)
    assert words in str(caught.value)


def test_values_not_seen_in_training_count_in_marginals_as_in_log_prob(model: Model) -> None:
    for row in ({"city": "Bonn"}, {"city": ["Bonn"]}, pd.DataFrame({"city": ["Bonn"]})):
        with pytest.warns(cc.CircurveWarning, match="'Bonn' was not seen in training"):
            assert model.marginal(row) == 0
        with pytest.warns(cc.CircurveWarning, match="treated as missing"):
            assert model.marginal(row, unseen="missing") == pytest.approx(1)
        with pytest.raises(DataError, match="'Bonn' was not seen in training"):
            model.marginal(row, unseen="error")


@pytest.mark.parametrize("ask", [Model.explain, Model.impute, Model.mean, Model.most_probable])
def test_advice_about_unseen_values_can_be_followed(model: Model, ask: Callable[..., Any]) -> None:
    """These questions have no `unseen=`."""
    with pytest.raises(DataError, match=r"\('Oslo', 'Paris', 'Rome'\); leave the cell empty to treat it as missing$"):
        ask(model, pd.DataFrame({"city": ["Rome", "Bonn"]}))


def test_impossible_evidence_is_named() -> None:
    leaf, other = cc.Input(0, cc.Categorical(2), 1), cc.Input(1, cc.Bernoulli(), 1)
    circuit = cc.Circuit(cc.Sum(cc.Product([leaf, other])))
    certain = Model.from_parameters(circuit, inputs={leaf: [[1.0, 0.0]], other: [[0.3]]})
    with pytest.raises(DataError, match=r"column 1.* = 1 has probability zero"):
        certain.conditional({1: 1}, {0: 1})
    assert certain.marginal({0: 1}) == 0.0


def test_an_empty_name_is_a_name() -> None:
    """As in the file of a frame that pandas wrote with its index: it must not become the name of another column."""
    rows = pd.DataFrame({"": [0, 1, 1, 0] * 5, "0": [1.5, 2.5, 3.0, 2.0] * 5, "b": ["x", "y", "x", "y"] * 5})
    model = cc.fit(cc.hclt(rows, 2), rows, epochs=1, progress=False, valid=False).model
    drawn = model.sample(4, seed=0)
    assert list(drawn.columns) == ["", "0", "b"]
    assert np.isfinite(model.log_prob(drawn)).all()
    holes = rows[["", "0"]].head(2).assign(b=None)
    assert list(model.impute(holes).columns) == ["", "0", "b"]
    assert set(model.explain(rows.head(1))["column"]) == {"", "0", "b"}
