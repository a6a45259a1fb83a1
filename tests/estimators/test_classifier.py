import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from tables import FAST, iris, people, with_holes

import circurve as cc


def test_posterior_is_bayes_rule_under_missing_values():
    x, y = iris()
    holes = with_holes(x)
    fitted = cc.CircuitClassifier(**FAST).fit(holes, y)
    joint = np.stack([m.log_prob(holes) + np.log(p) for m, p in zip(fitted.models_, fitted.class_prior_, strict=True)])
    expected = np.exp(joint - logsumexp(joint, axis=0)).T
    np.testing.assert_allclose(fitted.predict_proba(holes), expected, atol=1e-12)
    np.testing.assert_allclose(fitted.class_prior_, 1 / 3)
    empty = np.full((1, 4), np.nan)
    np.testing.assert_allclose(fitted.predict_proba(empty), [fitted.class_prior_])


def test_missing_value_is_the_integral_over_the_column():
    x, y = iris()
    fitted = cc.CircuitClassifier(**FAST).fit(x, y)
    grid = np.linspace(-5, 15, 4001)
    rows = np.column_stack([grid, *(np.full(len(grid), value) for value in x[60, 1:])])
    joint = np.stack([np.trapezoid(np.exp(m.log_prob(rows)), grid) for m in fitted.models_]) * fitted.class_prior_
    partial = fitted.predict_proba([[np.nan, *x[60, 1:]]])[0]
    np.testing.assert_allclose(partial, joint / joint.sum(), atol=1e-5)


def test_default_classifies_held_out_iris_with_holes():
    x, y = iris()
    held = np.arange(len(x)) % 3 == 0
    fitted = cc.CircuitClassifier(random_state=0).fit(with_holes(x)[~held], y[~held])
    assert fitted.score(x[held], y[held]) >= 0.92


@pytest.mark.parametrize("names", [["b", "a", "c"], [3.0, -1.0, 7.0], [True, False]])
def test_classes_of_any_type(names):
    x, y = iris()
    rows = y < len(names)
    labels = np.array(names)[y[rows]]
    fitted = cc.CircuitClassifier(**FAST).fit(x[rows], labels)
    np.testing.assert_array_equal(fitted.classes_, np.unique(labels))
    predicted = fitted.predict(x[rows])
    assert predicted.dtype == labels.dtype
    assert (predicted == labels).mean() > 0.9


def test_decision_of_two_classes_is_their_log_odds():
    x, y = iris()
    fitted = cc.CircuitClassifier(**FAST).fit(x[50:], y[50:])
    log_proba = fitted.predict_log_proba(x[50:])
    np.testing.assert_allclose(fitted.decision_function(x[50:]), log_proba[:, 1] - log_proba[:, 0])


def test_weights_count_as_rows_in_the_shares():
    x, y = iris()
    fitted = cc.CircuitClassifier(**FAST).fit(x, y, sample_weight=np.where(y == 0, 2.0, 1.0))
    np.testing.assert_allclose(fitted.class_prior_, [0.5, 0.25, 0.25])
    without = cc.CircuitClassifier(**FAST).fit(x, y, sample_weight=np.where(y == 0, 0.0, 1.0))
    assert without.classes_.tolist() == [1, 2]


def test_row_that_no_class_can_explain_gets_the_shares():
    frame = people()
    fitted = cc.CircuitClassifier(**FAST).fit(frame[["city"]], frame["married"])
    with pytest.warns(cc.CircurveWarning, match="'Bonn' was not seen"):
        proba = fitted.predict_proba(frame[:1][["city"]].assign(city="Bonn"))
    np.testing.assert_allclose(proba[0], fitted.class_prior_)


def test_stream_with_classes_that_come_later():
    x, y = iris()
    order = np.random.default_rng(0).permutation(len(x))
    stream = cc.CircuitClassifier(8, random_state=0)
    first = order[y[order] < 2][:40]
    stream.partial_fit(x[first], y[first], classes=[0, 1, 2])
    assert (stream.predict_proba(x)[:, 2] == 0).all()
    for start in range(0, 150, 30):
        rows = order[start : start + 30]
        stream.partial_fit(x[rows], y[rows])
    assert stream.n_iter_ == 6
    assert stream.class_count_.sum() == 190
    assert stream.score(x, y) > 0.9


def test_stream_refuses_unknown_classes():
    x, y = iris()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        cc.CircuitClassifier(**FAST).partial_fit(x, y)
    with pytest.raises(cc.DataError, match="y has the class 2, which is not in classes"):
        cc.CircuitClassifier(**FAST).partial_fit(x, y, classes=[0, 1])


def test_column_transformer_and_search():
    frame = people()
    married, columns = (
        frame.pop("married"),
        make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["income"])),
    )
    pipeline = make_pipeline(columns, cc.CircuitClassifier(**FAST))
    assert cross_val_score(pipeline, frame, married, cv=3).mean() > 0.75
    search = GridSearchCV(cc.CircuitClassifier(**FAST), {"n_units": [1, 4]}, cv=3, scoring="neg_log_loss")
    assert search.fit(frame, married).best_score_ > np.log(0.5)


def test_sample_weight_is_routed():
    x, y = iris()
    weights = np.where(y == 0, 2.0, 1.0)
    with config_context(enable_metadata_routing=True):
        classifier = cc.CircuitClassifier(**FAST).set_fit_request(sample_weight=True)
        routed = make_pipeline(classifier).fit(x, y, sample_weight=weights)
    np.testing.assert_allclose(routed[-1].class_prior_, [0.5, 0.25, 0.25])


def test_a_class_of_which_nothing_is_known_is_named():
    values = np.random.default_rng(0).normal(size=(40, 3))
    values[20:] = np.nan
    with pytest.raises(cc.DataError, match=r"^class 'b': train data: every value is missing"):
        cc.CircuitClassifier(n_units=2).fit(values, ["a"] * 20 + ["b"] * 20)
