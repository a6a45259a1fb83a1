import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tables import FAST, iris, people, with_holes

import circurve as cc


def test_mean_is_the_integral_of_the_conditional_density():
    x, _ = iris()
    imputer = cc.CircuitImputer(**FAST).fit(x)
    row = np.array([[np.nan, *x[70, 1:]]])
    grid = np.linspace(-5, 15, 8001)
    rows = np.column_stack([grid, *(np.full(len(grid), value) for value in x[70, 1:])])
    density = np.exp(imputer.model_.log_prob(rows))
    expected = np.trapezoid(grid * density, grid) / np.trapezoid(density, grid)
    assert imputer.transform(row)[0, 0] == pytest.approx(expected, abs=1e-5)


def test_mode_is_the_highest_point_of_the_conditional_density():
    x, _ = iris()
    imputer = cc.CircuitImputer(**FAST, strategy="mode").fit(x)
    row = np.array([[np.nan, *x[70, 1:]]])
    grid = np.linspace(0, 10, 20_001)
    rows = np.column_stack([grid, *(np.full(len(grid), value) for value in x[70, 1:])])
    assert imputer.transform(row)[0, 0] == pytest.approx(grid[imputer.model_.log_prob(rows).argmax()], abs=2e-3)


@pytest.mark.parametrize("strategy", ["mean", "mode", "most_probable", "sample"])
def test_only_holes_are_filled(strategy):
    x, _ = iris()
    holes = with_holes(x)
    filled = cc.CircuitImputer(**FAST, strategy=strategy).fit_transform(holes)
    kept = ~np.isnan(holes)
    np.testing.assert_array_equal(filled[kept], x[kept])
    assert np.isfinite(filled).all()


def test_draws_spread_as_the_data_do_and_repeat():
    random = np.random.default_rng(0)
    a = random.normal(size=1000)
    x = np.column_stack([a, a + random.normal(0, 0.5, 1000)])
    imputer = cc.CircuitImputer(16, strategy="sample", random_state=0).fit(x)
    half = np.column_stack([x[:, 0], np.full(1000, np.nan)])
    drawn = imputer.transform(half)
    np.testing.assert_array_equal(drawn, imputer.transform(half))
    assert np.std(drawn[:, 1] - drawn[:, 0]) == pytest.approx(0.5, rel=0.2)
    means = imputer.set_params(strategy="mean").transform(half)
    assert np.std(means[:, 1] - means[:, 0]) < 0.25


def test_default_beats_the_column_mean_by_far_on_held_out_iris():
    x, _ = iris()
    held = np.arange(len(x)) % 3 == 0
    holes = with_holes(x)
    missing = np.isnan(holes[held])
    filled = cc.CircuitImputer(random_state=0).fit(holes[~held]).transform(holes[held])
    spread = x.std(0)
    error = np.sqrt(np.mean((((filled - x[held]) / spread)[missing]) ** 2))
    constant = np.sqrt(np.mean((((np.nanmean(holes[~held], 0) - x[held]) / spread)[missing]) ** 2))
    assert error < 0.65 * constant


def test_text_is_filled_with_the_most_probable_category():
    frame = people()
    imputer = cc.CircuitImputer(random_state=0).fit(frame)
    rich = pd.DataFrame({"city": [None, "Rome"], "income": [50.0, np.nan], "married": [False, None]})
    filled = imputer.transform(rich)
    assert filled[0].tolist() == ["Oslo", 50.0, 0.0]
    assert filled[1, 0] == "Rome"
    assert filled[1, 1] == pytest.approx(frame["income"][frame["city"] == "Rome"].mean(), abs=1.5)
    assert filled[1, 2] == 1.0


def test_value_not_seen_in_training_stays():
    frame = people()
    imputer = cc.CircuitImputer(**FAST).fit(frame)
    with pytest.warns(cc.CircurveWarning, match="'Bonn' was not seen"):
        filled = imputer.transform(frame[:1].assign(city="Bonn", income=np.nan))
    assert filled[0, 0] == "Bonn"
    assert 20 < filled[0, 1] < 60


def test_frames_out_and_names():
    x, _ = iris()
    frame = pd.DataFrame(with_holes(x), columns=["a", "b", "c", "d"], index=range(10, 160))
    imputer = cc.CircuitImputer(**FAST).set_output(transform="pandas")
    filled = imputer.fit_transform(frame)
    assert filled.columns.tolist() == ["a", "b", "c", "d"]
    assert filled.index.tolist() == frame.index.tolist()
    assert imputer.get_feature_names_out().tolist() == ["a", "b", "c", "d"]


def test_indicators_and_their_inverse():
    x, _ = iris()
    holes = with_holes(x)
    holes[:, 1] = x[:, 1]
    imputer = cc.CircuitImputer(**FAST, add_indicator=True)
    filled = imputer.fit_transform(holes)
    assert filled.shape == (150, 7)
    assert imputer.get_feature_names_out().tolist()[4:] == [f"missingindicator_x{v}" for v in (0, 2, 3)]
    np.testing.assert_array_equal(filled[:, 4:], np.isnan(holes[:, [0, 2, 3]]))
    np.testing.assert_array_equal(imputer.inverse_transform(filled), holes)


def test_indicators_and_their_inverse_with_text():
    """The text "nan" is a category like any other."""
    frame = pd.DataFrame({"city": ["nan", "Rome", None, "nan", "Rome"] * 8, "age": [1.5, 2.5, np.nan, 4.0, 2.0] * 8})
    imputer = cc.CircuitImputer(**FAST, add_indicator=True).fit(frame)
    filled = imputer.transform(frame)
    np.testing.assert_array_equal(filled[:, 2:].astype(bool), frame.isna())
    back = pd.DataFrame(imputer.inverse_transform(filled), columns=["city", "age"])
    np.testing.assert_array_equal(back["age"].astype(float), frame["age"])
    assert back["city"].where(back["city"].notna(), None).tolist() == frame["city"].tolist()


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_times_are_filled_like_those_around_them(zone):
    times = pd.Series(pd.date_range("2020-01-01", periods=40, freq="D", tz=zone))
    frame = pd.DataFrame({"at": times.where(np.arange(40) % 5 > 0), "x": np.arange(40.0)})
    filled = cc.CircuitImputer(**FAST).fit(frame).transform(frame)[:, 0]
    assert all(type(value) is pd.Timestamp and str(value.tz) == str(zone) for value in filled)
    known = frame["at"].notna().to_numpy()
    assert filled[known].tolist() == times[known].tolist()


def test_lists_of_rows_with_text_are_filled():
    rows = [["Rome", 1.0], ["Oslo", 2.0], [None, 1.0], ["Rome", None]] * 10
    filled = cc.CircuitImputer(**FAST).fit(rows).transform(rows[:4])
    assert filled[[0, 1, 3], 0].tolist() == ["Rome", "Oslo", "Rome"]
    assert filled[2, 0] in ("Rome", "Oslo")
    assert filled[:3, 1].tolist() == [1.0, 2.0, 1.0]


def test_inverse_needs_indicators():
    x, _ = iris()
    imputer = cc.CircuitImputer(**FAST).fit(x)
    with pytest.raises(cc.OptionError, match="inverse_transform needs add_indicator=True"):
        imputer.inverse_transform(x)


def test_inverse_refuses_other_widths():
    imputer = cc.CircuitImputer(**FAST, add_indicator=True).fit(with_holes(iris()[0]))
    with pytest.raises(cc.DataError, match="expected 8 columns: 4 columns and the indicators"):
        imputer.inverse_transform(np.zeros((2, 5)))


def test_wrong_strategy():
    with pytest.raises(cc.OptionError, match="strategy must be one of mean, mode, most_probable, sample, not 'median'"):
        cc.CircuitImputer(**FAST, strategy="median").fit(iris()[0])


def test_before_a_classifier():
    x, y = iris()
    pipeline = make_pipeline(cc.CircuitImputer(**FAST), LogisticRegression(max_iter=500))
    assert pipeline.fit(with_holes(x), y).score(x, y) > 0.9
