"""The rule by which columns get their families."""

import datetime

import numpy as np
import pandas as pd
import pytest

import circurve as cc
from circurve.data import infer_schema
from circurve.errors import CircurveWarning, DataError, OptionError

pl = pytest.importorskip("polars")

RNG = np.random.default_rng(0)


def column(values, **options):
    """What is inferred for a single named column."""
    return infer_schema(pd.DataFrame({"x": values}), **options).columns[0]


@pytest.mark.parametrize(
    ("values", "family", "kind", "categories"),
    [
        (["b", "a", "b", None], cc.Categorical(2), "category", ("a", "b")),
        (pd.Categorical(["lo", "hi"], ["lo", "mid", "hi"]), cc.Categorical(3), "category", ("lo", "mid", "hi")),
        ([True, False, None], cc.Bernoulli(), "boolean", None),
        ([True, True], cc.Bernoulli(), "boolean", None),
        ([0, 1, 1], cc.Bernoulli(), "number", None),
        ([1, 1, 1], cc.Bernoulli(), "number", None),
        ([7, 7, 7], cc.Categorical(1), "category", (7,)),
        (["same"] * 30, cc.Categorical(1), "category", ("same",)),
        ([None, None], cc.Bernoulli(), "number", None),
        ([0, 1, 2] * 5, cc.Categorical(3), "number", None),
        ([1, 2, 5] * 5, cc.Categorical(3), "category", (1, 2, 5)),
        ([1.0, 2.0, np.nan] * 8, cc.Categorical(2), "category", (1, 2)),
        ([*RNG.poisson(6, 300), 19], cc.Poisson(), "number", None),
        (RNG.geometric(0.05, 300), cc.Poisson(), "number", None),
        ([3, 9, 4, 0], cc.Poisson(), "number", None),
    ],
)
def test_discrete_columns(values, family, kind, categories):
    found = column(values)
    assert (found.family, found.kind, found.categories) == (family, kind, categories)
    assert found.reason


def test_successes_among_trials_are_binomial():
    values = [*RNG.binomial(40, 0.8, 400), 20]
    assert column(values).family == cc.Binomial(int(max(values)))


@pytest.mark.parametrize(
    "values",
    [
        RNG.normal(size=50),
        np.full(9, 2.5),
        [-3, 4, 12, 40],
        RNG.integers(0, 10**6, 100),
        RNG.poisson(60, 200),
        np.rint(RNG.normal(20, 0.4, 30)).cumsum() % 97 + 1000,
        [datetime.date(2024, 1, day) for day in range(1, 30)],
    ],
)
def test_all_other_columns_are_gaussian(values):
    assert isinstance(column(values).family, cc.Gaussian)


def test_dates_are_days_since_the_first_one():
    found = column(pd.date_range("2024-03-05", periods=40))
    assert (found.kind, found.origin) == ("date", "2024-03-05")
    assert found.family.min_variance == pytest.approx(1e-4 * np.arange(40).var())


def test_a_library_does_not_matter():
    frame = pd.DataFrame({"city": ["a", "b"] * 9, "n": [1, 2, 5] * 6, "x": RNG.normal(size=18)})
    assert infer_schema(frame) == infer_schema(pl.from_pandas(frame)) == infer_schema(pl.from_pandas(frame).to_arrow())


def test_arrays_keep_their_own_rule():
    whole = RNG.poisson(6, 300)
    assert infer_schema(whole[:, None]).families == (cc.Categorical(int(whole.max()) + 1),)
    assert infer_schema(pd.DataFrame(whole[:, None])).families == (cc.Categorical(int(whole.max()) + 1),)


@pytest.mark.parametrize("values", [[f"id{n}" for n in range(300)], [f"id{n}" for n in range(25)]])
def test_text_that_names_rows_is_refused_with_a_way_out(values):
    frame = pd.DataFrame({"name": values, "x": np.arange(len(values)) % 2})
    with pytest.raises(DataError) as caught:
        infer_schema(frame)
    message = str(caught.value)
    assert f"column 1 ('name'): {len(values)} different texts in {len(values)} rows, such as 'id0'" in message
    assert "types={'name': 'drop'}" in message
    kept = infer_schema(frame, types={"name": "categorical"})
    assert kept.families == (cc.Categorical(len(values)), cc.Bernoulli())
    dropped = infer_schema(frame, types={"name": "drop"})
    assert (dropped.names, dropped.ignored) == (("x",), ("name",))
    model = cc.fit(cc.hclt(frame, 2, schema=dropped), frame, epochs=1, progress=False, device="cpu").model
    assert model.log_prob(frame).shape == (len(values),)


class TestTypes:
    FRAME = pd.DataFrame({"age": [30, 41, 30, 55], "city": ["a", "b", "a", "b"], "ok": [True, False, True, True]})

    def test_they_override_the_rule(self):
        families = infer_schema(self.FRAME, types={"age": "gaussian", 1: "categorical", "ok": "categorical"}).families
        assert [family.name for family in families] == ["gaussian", "categorical", "categorical"]
        assert infer_schema(self.FRAME, types={"age": "categorical"}).columns[0].categories == (30, 41, 55)
        assert infer_schema(self.FRAME, types={"age": "binomial"}).families[0] == cc.Binomial(55)
        assert infer_schema(self.FRAME, types={"age": cc.Binomial(100)}).families[0] == cc.Binomial(100)
        assert infer_schema(self.FRAME, types={"age": "Poisson"}).families[0] == cc.Poisson()
        assert infer_schema(self.FRAME, types={"ok": "bernoulli"}).columns[2].kind == "boolean"

    @pytest.mark.parametrize(
        ("types", "error", "message"),
        [
            ({"aeg": "gaussian"}, DataError, "no column 'aeg'; do you mean 'age'?"),
            ({"age": "normal"}, OptionError, "types: 'normal' is not one of bernoulli, categorical, binomial"),
            ({"age": 3}, OptionError, "types: 'age' must be the name of a family or a family, not 3"),
            ({"city": "gaussian"}, OptionError, "holds text, which cannot be gaussian; use categorical or drop"),
            ({"age": "bernoulli"}, OptionError, "has values above 1 (55), which bernoulli does not take"),
            ({"city": cc.Gaussian()}, OptionError, "holds text, which cannot be Gaussian(min_variance=0.0001); use"),
            (dict.fromkeys(FRAME, "drop"), OptionError, "all columns are left out"),
        ],
    )
    def test_wrong_ones_are_named(self, types, error, message):
        with pytest.raises(error) as caught:
            infer_schema(self.FRAME, types=types)
        assert message in str(caught.value)

    @pytest.mark.parametrize("kind", ["poisson", "binomial"])
    def test_counts_that_are_too_large_are_named(self, kind):
        with pytest.raises(OptionError) as caught:
            infer_schema(pd.DataFrame({"age": [3, 10**9]}), types={"age": kind})
        problem = f"column 1 ('age') has values above 16777216 (1e+09), which {kind} does not take; use gaussian"
        assert str(caught.value) == f"types: {problem}"
        families = infer_schema(pd.DataFrame({"age": [3, 10**9]}), types={"age": "categorical"}).families
        assert families == (cc.Categorical(2),)

    @pytest.mark.parametrize("kind", ["bernoulli", "poisson", "binomial"])
    def test_dates_are_no_counts(self, kind):
        dates = pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2020-01-02"])})
        with pytest.raises(OptionError, match=f"'day'.* holds dates, which cannot be {kind}; use gaussian or drop"):
            infer_schema(dates, types={"day": kind})

    def test_numbers_without_names_cannot_be_dropped(self):
        with pytest.raises(OptionError, match="'drop' is for columns with names"):
            infer_schema(np.zeros((2, 2)), types={0: "drop"})
        with pytest.raises(OptionError, match="not whole numbers >= 0, which poisson needs"):
            infer_schema([[-1], [0.5]], types={0: "poisson"})


def test_several_tables_give_one_schema_for_all():
    first = pd.DataFrame({"city": ["b", "a"], "n": [0, 1], "when": [datetime.date(2024, 2, 1)] * 2})
    second = pd.DataFrame({"city": ["c", None], "n": [1, 3], "when": [datetime.date(2024, 1, 1)] * 2})
    schema = infer_schema(first, second)
    assert schema.columns[0].categories == ("a", "b", "c")
    assert schema.columns[2].origin == "2024-01-01"
    assert cc.data.align(second, schema)[:, 2].tolist() == [0, 0]
    with pytest.raises(DataError, match=r"column 1 \('a'\) holds category in one table and number in another"):
        infer_schema(pd.DataFrame({"a": ["x"]}), pd.DataFrame({"a": [1]}))


def test_minus_one_is_pointed_out():
    with pytest.warns(CircurveWarning, match=r"column 1 \('x'\): whole numbers from -1 up, read as Categorical"):
        column([-1, 0, 1] * 5)
    assert column([-1, 0, 1] * 5, missing=-1).family == cc.Bernoulli()


@pytest.mark.parametrize("start", [2**62, -(2**62), 2**53])
def test_whole_numbers_that_floats_round_are_pointed_out(start):
    with pytest.warns(CircurveWarning, match=r"column 1 \('x'\): whole numbers beyond 2\^53, such as \d+, are rounded"):
        column([start, start + 1] * 10)
    column([2**53 - 2, 2**53 - 1] * 10)


@pytest.mark.filterwarnings("error")
def test_squares_beyond_the_floating_range_give_no_warning():
    values = pd.DataFrame({"a": np.linspace(-3e300, 3e300, 40)})
    assert isinstance(infer_schema(values).families[0], cc.Gaussian)


def test_dates_keep_their_times_if_only_some_tables_have_any():
    days, times = [datetime.datetime(2024, 1, day) for day in (3, 4)], [datetime.datetime(2024, 1, 5, 6, 30)] * 2
    tables = [pd.DataFrame({"seen": moments}) for moments in (days, times)]
    assert infer_schema(*tables) == infer_schema(pd.concat(tables))
    assert infer_schema(*tables).columns[0].origin == "2024-01-03T00:00:00"
