import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tables import FAST, iris, people, with_holes

import circurve as cc
from circurve.errors import OptionError
from circurve.learning.recipe import UNITS_GRID
from circurve.learning.units import choose_units


def test_likelihood_is_that_of_the_original_units():
    x = np.random.default_rng(0).gamma(2.0, 5e4, (300, 1)) + 1e6
    fitted = cc.DensityEstimator(random_state=0).fit(x)
    grid = np.linspace(5e5, 2.5e6, 200_001)
    density = np.exp(fitted.score_samples(grid[:, None]))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)


def test_score_is_the_mean_over_rows_with_missing_values_integrated_out():
    x, _ = iris()
    fitted = cc.DensityEstimator(**FAST).fit(with_holes(x))
    holes = with_holes(x, seed=1)
    assert fitted.score(holes) == pytest.approx(fitted.score_samples(holes).mean())
    grid = np.linspace(-5, 15, 4001)
    full = np.column_stack([grid, *(np.full(len(grid), value) for value in x[3, 1:])])
    integral = np.trapezoid(np.exp(fitted.score_samples(full)), grid)
    partial = np.array([[np.nan, *x[3, 1:]]])
    assert np.log(integral) == pytest.approx(fitted.score_samples(partial)[0], abs=1e-5)


def test_default_is_as_good_as_a_gaussian_mixture_of_three_on_held_out_iris():
    x, _ = iris()
    held = np.arange(len(x)) % 3 == 0
    ours = cc.DensityEstimator(random_state=0).fit(x[~held]).score(x[held])
    diagonal = GaussianMixture(3, covariance_type="diag", random_state=0).fit(x[~held]).score(x[held])
    assert ours > diagonal


def test_criteria_count_free_parameters():
    x, _ = iris()
    fitted = cc.DensityEstimator(3, structure="mixture", n_estimators=1, max_epochs=5, random_state=0).fit(x)
    free = 2 + 3 * 4 * 2  # weights on the simplex, mean and variance of each unit and column
    total = fitted.score_samples(x).sum()
    assert fitted.bic(x) == pytest.approx(free * np.log(150) - 2 * total)
    assert fitted.aic(x) == pytest.approx(2 * free - 2 * total)


def test_free_parameters_of_categories():
    frame = people()[["city"]]
    fitted = cc.DensityEstimator(2, structure="mixture", n_estimators=1, max_epochs=2, random_state=0).fit(frame)
    assert fitted.model_.circuit.free_parameters == 1 + 2 * 2


def test_rows_of_weight_zero_are_as_good_as_absent():
    x, _ = iris()
    weights = (np.arange(len(x)) % 2).astype(float)
    x[0] = 1e6  # would change the spread of the columns, and so the smallest variance
    weighted = cc.DensityEstimator(**FAST).fit(x, sample_weight=weights)
    assert weighted.schema_ == cc.infer_schema(pd.DataFrame(x[weights > 0], columns=["x0", "x1", "x2", "x3"]))
    without = cc.DensityEstimator(**FAST).fit(x[weights > 0])
    np.testing.assert_allclose(weighted.score_samples(x), without.score_samples(x), rtol=1e-9)


def test_weights_move_the_density_towards_heavy_rows():
    x = np.concatenate([np.random.default_rng(0).normal(-3, 1, 50), np.random.default_rng(1).normal(3, 1, 50)])[:, None]
    heavy = np.where(x[:, 0] > 0, 9.0, 1.0)
    fitted = cc.DensityEstimator(random_state=0, n_units=4).fit(x, sample_weight=heavy)
    grid = np.linspace(-10, 10, 2001)
    density = np.exp(fitted.score_samples(grid[:, None]))
    assert np.trapezoid(density[grid > 0], grid[grid > 0]) == pytest.approx(0.9, abs=0.03)


def test_same_random_state_same_model():
    x, _ = iris()
    first, second = (cc.DensityEstimator(**FAST).fit(x).score_samples(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = cc.DensityEstimator(**{**FAST, "random_state": 1}).fit(x).score_samples(x)
    assert np.abs(first - other).max() > 1e-3


def test_stream_in_parts_improves_held_out_rows():
    random = np.random.default_rng(0)
    centres = random.normal(0, 3, (5, 3))
    x = centres[random.integers(0, 5, 2200)] + random.normal(0, 0.5, (2200, 3))
    stream = cc.DensityEstimator(8, random_state=0)
    scores = [stream.partial_fit(x[start : start + 100]).score(x[2000:]) for start in range(0, 2000, 100)]
    assert stream.n_iter_ == 20
    assert scores[-1] > scores[0] + 0.5


def test_samples_have_the_moments_of_the_model():
    x, _ = iris()
    fitted = cc.DensityEstimator(random_state=0).fit(x)
    drawn = fitted.sample(4000)
    assert drawn.shape == (4000, 4)
    np.testing.assert_array_equal(drawn, fitted.sample(4000))
    np.testing.assert_allclose(drawn.mean(0), x.mean(0), atol=0.15)
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.corrcoef(x.T), atol=0.15)


def test_samples_of_a_frame_with_text_are_a_frame():
    frame = people()
    drawn = cc.DensityEstimator(random_state=0).fit(frame).sample(300)
    assert list(drawn.columns) == ["city", "income", "married"]
    assert set(drawn["city"]) == {"Lima", "Oslo", "Rome"}
    assert drawn["income"][drawn["city"] == "Oslo"].mean() > drawn["income"][drawn["city"] == "Lima"].mean() + 10


def test_frames_of_pandas_and_polars_give_the_same():
    import polars as pl

    frame = people()
    first = cc.DensityEstimator(**FAST).fit(frame)
    second = cc.DensityEstimator(**FAST).fit(pl.from_pandas(frame))
    assert first.feature_names_in_.tolist() == ["city", "income", "married"]
    assert first.score(frame) == pytest.approx(second.score(pl.from_pandas(frame)))


def test_columns_in_another_order_are_refused():
    frame = people()
    fitted = cc.DensityEstimator(**FAST).fit(frame)
    with pytest.raises(ValueError, match="same order"):
        fitted.score(frame[["income", "city", "married"]])


@pytest.mark.parametrize(("unseen", "expected"), [("impossible", -np.inf), ("missing", None)])
def test_value_not_seen_in_training(unseen, expected):
    frame = people()
    fitted = cc.DensityEstimator(**FAST, unseen=unseen).fit(frame)
    new = frame[:1].assign(city="Bonn")
    with pytest.warns(cc.CircurveWarning, match="'Bonn' was not seen in training"):
        score = fitted.score_samples(new)[0]
    assert score == (fitted.score_samples(frame[:1].assign(city=None))[0] if expected is None else expected)


def test_unseen_value_as_an_error():
    frame = people()
    fitted = cc.DensityEstimator(**FAST, unseen="error").fit(frame)
    with pytest.raises(cc.DataError, match="'Bonn'"):
        fitted.score_samples(frame[:1].assign(city="Bonn"))


def test_types_by_name_and_as_a_list():
    x = np.random.default_rng(0).integers(0, 4, (200, 2))
    assert cc.DensityEstimator(**FAST).fit(x).schema_.families == (cc.Categorical(4),) * 2
    listed = cc.DensityEstimator(**FAST, types=["gaussian", cc.Binomial(3)]).fit(x)
    assert isinstance(listed.schema_.families[0], cc.Gaussian)
    assert listed.schema_.families[1] == cc.Binomial(3)
    named = cc.DensityEstimator(**FAST, types={"x1": "poisson"}).fit(x)
    assert named.schema_.families[1] == cc.Poisson()
    with pytest.raises(cc.OptionError, match="types has 1 families for 2 columns"):
        cc.DensityEstimator(**FAST, types=["gaussian"]).fit(x)


def test_clone_pipeline_and_search():
    x = np.random.default_rng(0).permutation(iris()[0])
    pipeline = make_pipeline(StandardScaler(), cc.DensityEstimator(**FAST))
    assert np.isfinite(cross_val_score(pipeline, x, cv=3)).all()
    search = GridSearchCV(clone(pipeline), {"densityestimator__n_units": [1, 8]}, cv=3).fit(x)
    assert search.best_params_ == {"densityestimator__n_units": 8}


def test_sample_weight_is_routed():
    x, _ = iris()
    weights = (np.arange(len(x)) % 2).astype(float)
    with config_context(enable_metadata_routing=True):
        density = cc.DensityEstimator(**FAST).set_fit_request(sample_weight=True)
        routed = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), density).fit(
            x, sample_weight=weights
        )
    scaled = StandardScaler().fit_transform(x)
    direct = cc.DensityEstimator(**FAST).fit(scaled, sample_weight=weights)
    np.testing.assert_allclose(routed[-1].score_samples(scaled), direct.score_samples(scaled))


def test_page_shows_parameters():
    assert "n_units" in cc.DensityEstimator(n_units=7)._repr_html_()


@pytest.mark.parametrize("method", ["vanilla", "global", "gated", cc.Gated(0.1)])
def test_methods(method):
    x, _ = iris()
    fitted = cc.DensityEstimator(**{**FAST, "n_estimators": 1}, method=method, mu=0.01).fit(x)
    assert np.isfinite(fitted.score(x))


def test_strength_chosen_by_validation():
    x, _ = iris()
    fitted = cc.DensityEstimator(**{**FAST, "n_estimators": 1}, method="gated", mu="auto").fit(x)
    assert np.isfinite(fitted.score(x))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "sgd"}, "method must be 'vanilla', 'global', 'gated'"),
        ({"structure": "tree"}, "structure must be 'hclt', 'chow_liu', 'mixture', 'independent'"),
        ({"validation_fraction": 1.0}, "validation_fraction must be None or a number from 0 to below 1, not 1.0"),
        ({"n_estimators": 0}, "n_estimators must be a whole number >= 1, not 0"),
        ({"init": "zeros"}, "init must be one of auto, random, prototypes, not 'zeros'"),
        ({"pseudocount": "some"}, "pseudocount must be 'auto' or a number"),
        ({"n_units": 0}, "units must be a whole number >= 1, not 0"),
    ],
)
def test_wrong_parameters(wrong, message):
    x, _ = iris()
    with pytest.raises(cc.OptionError, match=message):
        cc.DensityEstimator(**{**FAST, **wrong}).fit(x)


def test_types_and_schema_together():
    x, _ = iris()
    schema = cc.Schema.of([cc.Gaussian()] * 4)
    with pytest.raises(cc.OptionError, match="pass types= or schema=, not both"):
        cc.DensityEstimator(**FAST, types=["gaussian"] * 4, schema=schema).fit(x)


@pytest.mark.parametrize(("weights", "message"), [([-1.0, 1.0], "row 1 is negative"), ([0.0, 0.0], "zero")])
def test_wrong_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        cc.DensityEstimator(**FAST).fit([[1.0], [2.0]], sample_weight=weights)


def test_tables_of_categories_alone_are_smoothed():
    x = np.random.default_rng(0).integers(0, 3, (60, 2))
    auto, same, none = (cc.DensityEstimator(**FAST, pseudocount=p).fit(x).score(x) for p in ("auto", 0.1, 0.0))
    assert auto == same != none


def test_rows_without_a_value_are_left_out():
    x, _ = iris()
    empty = np.full((100, 4), np.nan)
    fitted = cc.DensityEstimator(**FAST).fit(np.vstack([x, empty]))
    np.testing.assert_allclose(fitted.score_samples(x), cc.DensityEstimator(**FAST).fit(x).score_samples(x))


def test_nothing_observed():
    with pytest.raises(cc.DataError, match="every value is missing"):
        cc.DensityEstimator(**FAST).fit(np.full((10, 2), np.nan))


def test_schedule_runs_over_all_epochs_in_both_trainings():
    seen = []

    def falling(progress: float) -> float:
        seen.append(progress)
        return 1 - 0.9 * progress

    x, _ = iris()
    fitted = cc.DensityEstimator(**FAST, step_size=falling).fit(x)
    assert np.isfinite(fitted.score(x))
    assert {round(progress, 6) for progress in seen if 0 < progress < 1} <= {round(i / 9, 6) for i in range(10)}


def test_pickled_and_saved():
    import pickle

    frame = people()
    fitted = cc.DensityEstimator(**FAST).fit(frame)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score_samples(frame), fitted.score_samples(frame))


def test_model_file_keeps_names_and_categories(tmp_path):
    frame = people()
    fitted = cc.DensityEstimator(**FAST).fit(frame)
    fitted.model_.save(tmp_path / "m.safetensors")
    loaded = cc.load(tmp_path / "m.safetensors")
    np.testing.assert_allclose(loaded.log_prob(frame[["income", "married", "city"]]), fitted.score_samples(frame))


def test_own_structure():
    x, _ = iris()
    fitted = cc.DensityEstimator(**FAST, structure=lambda table, units, schema: cc.hmm(schema.families, units)).fit(x)
    assert np.isfinite(fitted.score(x))


def test_ensemble_has_weights_from_held_out_rows():
    x = people(120)
    fitted = cc.DensityEstimator(3, ensemble=3, max_epochs=6, random_state=0).fit(x)
    assert fitted.model_ is fitted.ensemble_.model
    assert fitted.ensemble_.weighting == "em"
    assert len(fitted.ensemble_.members) + len(fitted.ensemble_.left_out) == 3
    assert len(fitted.ensemble_.rows["valid"]) == 24
    assert 1 <= fitted.n_iter_ <= 6
    assert np.isfinite(fitted.score(x))
    assert cc.DensityEstimator(**FAST).fit(x).ensemble_ is None


def test_ensemble_without_validation_rows_is_cross_validated():
    fitted = cc.DensityEstimator(2, ensemble=2, max_epochs=3, validation_fraction=None, random_state=0).fit(people(60))
    assert fitted.ensemble_.rows == {}
    assert fitted.ensemble_.valid_ll is not None


@pytest.mark.parametrize("options", [{"structure": "mixture"}, {"method": "gated"}])
def test_ensemble_is_for_plain_trees(options):
    with pytest.raises(cc.OptionError, match="ensemble needs structure='hclt' and method='vanilla'"):
        cc.DensityEstimator(ensemble=2, **options).fit(iris()[0])


def test_ensemble_in_the_other_estimators():
    x, y = iris()
    options = {"n_units": 2, "ensemble": 2, "max_epochs": 3, "random_state": 0}
    classifier = cc.CircuitClassifier(**options).fit(x, y)
    assert len(classifier.ensembles_) == 3
    assert classifier.score(x, y) > 0.8
    assert cc.OutlierDetector(**options).fit(x).ensemble_.model is not None
    assert not np.isnan(cc.CircuitImputer(**options).fit(x).transform(with_holes(x))).any()
    few = cc.DensityEstimator(**options).fit(x[:8])
    assert few.ensemble_ is None


def test_sample_takes_a_seed_of_its_own():
    x, _ = iris()
    fitted = cc.DensityEstimator(**FAST).fit(x)
    again = [fitted.sample(20, random_state=seed) for seed in (1, 1, 2, np.random.RandomState(1))]
    np.testing.assert_array_equal(again[0], again[1])
    np.testing.assert_array_equal(again[0], again[3])
    assert not np.array_equal(again[0], again[2])
    assert not np.array_equal(again[0], fitted.sample(20))


def test_all_rows_train_the_final_model_also_where_fit_would_set_some_aside():
    x = np.random.default_rng(0).normal(size=(250, 2))
    circuit = cc.hclt(x, 32)
    assert "valid" in cc.fit(circuit, x, epochs=2, progress=False).rows
    fitted = cc.DensityEstimator(
        structure=circuit, n_estimators=1, init="random", validation_fraction=None, max_epochs=5, random_state=0
    ).fit(x)
    options = {"seed": fitted._seed(), "epochs": 5, "batch_size": None, "precision": "float64", "progress": False}
    on_all_rows = cc.fit(circuit, x, valid=False, **options).model
    np.testing.assert_allclose(fitted.score_samples(x), on_all_rows.log_prob(x), rtol=1e-9)


def test_units_are_chosen_by_held_out_rows():
    x = people(120)
    fitted = cc.DensityEstimator((2, 6, 3), max_epochs=8, random_state=0).fit(x)
    assert fitted.n_units_ in (2, 3, 6)
    alone = cc.DensityEstimator(fitted.n_units_, max_epochs=8, random_state=0).fit(x)
    np.testing.assert_allclose(fitted.score_samples(x), alone.score_samples(x))
    assert alone.n_units_ == fitted.n_units_
    auto = cc.DensityEstimator("auto", n_estimators=1, max_epochs=2, random_state=0).fit(x)
    assert auto.n_units_ in UNITS_GRID


def test_the_choice_of_units_follows_the_validation_likelihood(monkeypatch):
    sizes = []

    def choose(grid, train):
        sizes.extend(grid)
        return choose_units(grid[1:], train)

    monkeypatch.setattr("circurve.estimators.training.choose_units", choose)
    fitted = cc.DensityEstimator((2, 5), max_epochs=2, random_state=0).fit(people(60))
    assert sizes == [2, 5]
    assert fitted.n_units_ == 5


def test_units_that_cannot_be_chosen_are_refused():
    x = people(60)
    for options, message in (
        ({"n_units": "auto", "ensemble": 2}, r"list the numbers: n_units=\(32, 100\)"),
        ({"n_units": (2, 3), "validation_fraction": None}, "need a validation_fraction"),
        ({"n_units": "some"}, "units must be a number, several, or 'auto', not 'some'"),
    ):
        with pytest.raises(OptionError, match=message):
            cc.DensityEstimator(**options).fit(x)
    with pytest.raises(OptionError, match="is chosen by fit; partial_fit needs one number"):
        cc.DensityEstimator("auto").partial_fit(x)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("types", [None, {"b": "drop"}])
def test_arrays_are_read_by_position_after_a_frame(types):
    """As all estimators of scikit-learn do, with a warning."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"b": rng.integers(0, 3, 60), "a": rng.normal(size=60)})
    density = cc.DensityEstimator(n_units=2, n_estimators=1, max_epochs=3, types=types, random_state=0).fit(frame)
    np.testing.assert_array_equal(density.score_samples(frame.to_numpy()), density.score_samples(frame))
    if types is None:
        assert np.isfinite(density.score_samples(density.sample(5))).all()


def test_a_strength_without_validation_rows_is_refused_in_words_of_the_estimator():
    estimator = cc.DensityEstimator(method="gated", validation_fraction=None)
    with pytest.raises(cc.OptionError, match="mu='auto' needs a validation_fraction; or pass a number"):
        estimator.fit(np.zeros((5, 2)))


def test_an_unknown_way_with_unseen_values_is_refused_in_training():
    with pytest.raises(cc.OptionError, match="unseen must be one of 'impossible', 'missing', 'error', not 'zz'"):
        cc.DensityEstimator(**FAST, unseen="zz").fit(people())
