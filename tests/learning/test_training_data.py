"""Wrong data are refused with a message that says where; unusual data are learned from."""

import math
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from learning_helpers import binary_rows, quick, shown, small_circuit

from circurve import (
    Bernoulli,
    Categorical,
    Circuit,
    CircurveWarning,
    DataError,
    Examples,
    Gated,
    Gaussian,
    Global,
    Input,
    OptionError,
    Poisson,
    Product,
    Sum,
    Vanilla,
    hclt,
    mixture,
)

X = binary_rows(30)
CIRCUIT = small_circuit(X)
METHODS = [Vanilla(), Global(0.1), Global(0.1, penalty="exact", simplex="exact"), Gated(0.1)]
methods = pytest.mark.parametrize("method", METHODS, ids=["vanilla", "global", "exact", "gated"])


def changed(row: int, column: int, value: object, dtype: type = float) -> np.ndarray:
    x = X.astype(dtype)
    x[row, column] = value
    return x


def refuses(message: str):
    return pytest.raises(DataError, match="^" + re.escape(message))


# --- tables ---

WRONG = [
    (changed(4, 2, 2), "column 3, row 5: value 2 does not fit Bernoulli(): 2 is not 0 or 1"),
    (changed(4, 2, 0.5), "column 3, row 5: 0.5 is not a whole number, but bernoulli takes whole numbers >= 0"),
    (changed(4, 2, -1), "column 3, row 5: -1 is negative, but bernoulli takes whole numbers >= 0; if -1 marks missing"),
    (changed(4, 2, np.inf), "column 3, row 5: inf is not finite"),
    (changed(4, 2, "a", object), "column 3 holds numbers (row 1: "),
    (X[:, :5], "data has 5 columns, the circuit has 6 variables"),
    (X[:0], "data has no rows"),
    (X[:, :0], "data has no columns"),
    (X[0], "data has 1 dimension (shape (6,)), expected rows x columns"),
    (X[None], "data has 3 dimensions (shape (1, 30, 6)), expected rows x columns"),
    ([[0, 1], [0]], "rows differ in length: row 1 has 2 values, row 2 has 1"),
    (None, "data must be a table, rows x columns of numbers, not a NoneType"),
    (np.full((30, 6), np.nan), "every value is missing"),
]


@pytest.mark.parametrize(("data", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_a_wrong_table_is_refused_by_name_and_place(data, message):
    with refuses(f"train data: {message}"):
        quick(CIRCUIT, data)
    if data is None:
        return
    for name in ("valid", "test"):
        with refuses(f"{name} data: {message}"):
            quick(CIRCUIT, X, unseen="error", **{name: data})


@pytest.mark.parametrize(
    ("family", "value", "reason"),
    [
        (Categorical(3), 3, "does not fit Categorical(states=3): 3 is not a whole number from 0 to 2"),
        (Poisson(), 1.5, "1.5 is not a whole number, but poisson takes whole numbers >= 0"),
        (Gaussian(), 1e30, "does not fit Gaussian(min_variance=0.0001): 1e+30 is not a number between"),
    ],
    ids=shown,
)
def test_each_family_says_what_does_not_fit(family, value, reason):
    with pytest.raises(DataError, match="^train data: column 1, row 2: .*" + re.escape(reason)):
        quick(Circuit(Input(0, family)), np.array([[0.0], [value]]))


def test_rows_without_any_value_are_counted_in_a_warning_that_says_how_they_count():
    x = X.astype(float)
    x[[3, 7]] = np.nan
    told = "^train data: 2 of 30 rows have no observed value; they only slow EM down, and each counts as log 1 = 0"
    with pytest.warns(CircurveWarning, match=told):
        found = quick(CIRCUIT, x, batch_size=None)
    without = quick(CIRCUIT, np.delete(x, [3, 7], axis=0), batch_size=None)
    assert found.history[0].train_ll == pytest.approx(without.history[0].train_ll * 28 / 30, rel=1e-12)  # log 1 = 0
    assert found.train_ll == pytest.approx(found.model.log_prob(x).mean(), rel=1e-12)
    with pytest.warns(CircurveWarning, match="^valid data: 2 of 30 rows .*; each counts as log 1 = 0 in mean log-like"):
        scored = quick(CIRCUIT, X, valid=x)
    others = scored.model.log_prob(np.delete(x, [3, 7], axis=0)).sum()
    assert scored.valid_ll == pytest.approx(others / 30, rel=1e-12)


def test_a_whole_column_may_be_missing():
    x = X.astype(float)
    x[:, 1] = np.nan
    assert math.isfinite(quick(CIRCUIT, x).train_ll)
    gaussians = mixture((Gaussian(), 6), 2)
    assert math.isfinite(quick(gaussians, x).train_ll)


def test_an_own_mark_of_missing_values_must_be_declared():
    marked = changed(0, 0, -1, int)
    assert math.isfinite(quick(CIRCUIT, Examples(marked, missing=-1)).train_ll)
    with refuses("train data: column 1, row 1: -1 is negative"):
        quick(CIRCUIT, marked)


# --- weights and labels ---

WRONG_WEIGHTS = [
    (np.ones(29), "weights have shape (29,), expected (30,)"),
    (np.ones((30, 1)), "weights have shape (30, 1), expected (30,)"),
    (1.0, "weights have shape (), expected (30,)"),
    ([1] * 29 + [-0.5], "the weight of row 30 is -0.5; weights must be finite and >= 0"),
    ([math.nan] + [1] * 29, "the weight of row 1 is nan; weights must be finite and >= 0"),
    ([1, math.inf] + [1] * 28, "the weight of row 2 is inf; weights must be finite and >= 0"),
    (np.zeros(30), "all weights are zero"),
    (["1"] * 30, "weights must be numbers, not '1'"),
    ([None] * 30, "weights must be numbers, not None"),
    (np.ones(30) * 1j, "weights must be numbers, not 1j"),
    ([[1], [1, 2]], "weights must be a list of 30 numbers"),
    (np.full(30, 1e200), "the largest weight is 1e+200; scale the weights so that it is between 1e-18 and 1e18"),
    (np.full(30, 1e-60), "the largest weight is 1e-60; scale the weights so that it is between 1e-18 and 1e18"),
]


def where_found(message: str, part: str) -> str:
    """Examples refuses what is no row of numbers itself; `fit` refuses the rest and says for which part."""
    early = ("weights have", "weights must", "labels have", "labels must")
    return message if message.startswith(early) else f"{part} data: {message}"


@pytest.mark.parametrize(("weights", "message"), WRONG_WEIGHTS, ids=[message[:40] for _, message in WRONG_WEIGHTS])
def test_wrong_weights_are_refused(weights, message):
    with refuses(f"train data: {message}"):
        quick(CIRCUIT, X, weights=weights)
    with refuses(where_found(message, "valid")):
        quick(CIRCUIT, X, valid=Examples(X, weights=weights))


@pytest.mark.parametrize("weight", [1e-18, 1e18])
@methods
def test_weights_of_any_allowed_size_give_finite_results_in_single_precision(weight, method):
    result = quick(CIRCUIT, X, weights=np.full(30, weight), method=method, precision="float32", track=True)
    assert math.isfinite(result.train_ll)
    assert math.isfinite(result.sharpness)


def two_roots() -> Circuit:
    body = Product([Input(v, Bernoulli(), 2) for v in range(6)])
    return Circuit([Sum(body), Sum(body)])


WRONG_LABELS = [
    (None, "the circuit has 2 outputs: pass labels= to say which one each row belongs to"),
    ([0] * 29, "labels have shape (29,), expected (30,)"),
    ([0] * 29 + [2], "the label of row 30 is 2; the circuit has outputs 0 to 1"),
    ([-1] + [0] * 29, "the label of row 1 is -1; the circuit has outputs 0 to 1"),
    ([0.5] * 30, "labels must be whole numbers"),
    ([math.nan] * 30, "labels must be whole numbers"),
    ([math.inf] * 30, "labels must be whole numbers"),
    (["cat"] * 30, "labels must be numbers, not 'cat'"),
]


@pytest.mark.parametrize(("labels", "message"), WRONG_LABELS, ids=[message[:40] for _, message in WRONG_LABELS])
def test_wrong_labels_are_refused(labels, message):
    with refuses(f"train data: {message}"):
        quick(two_roots(), X, labels=labels)
    with refuses(where_found(message, "test")):
        quick(two_roots(), X, labels=X[:, 0], test=Examples(X, labels=labels))


def test_a_circuit_with_one_output_takes_the_label_zero_only():
    assert quick(CIRCUIT, X, labels=np.zeros(30)).train_ll == quick(CIRCUIT, X).train_ll
    with refuses("train data: the label of row 1 is 1; the circuit has outputs 0 to 0"):
        quick(CIRCUIT, X, labels=np.ones(30))


# --- unusual data ---


def quiet(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return quick(*arguments, **options)


@methods
def test_one_row_is_learned_by_heart(method):
    result = quiet(hclt(X, 2), X[:1], method=method, batch_size=None, epochs=3)
    assert result.train_ll == pytest.approx(0, abs=1e-4)  # inputs stop at probability 1 - 1e-6


@methods
def test_one_variable_is_enough(method):
    x = np.random.default_rng(0).integers(0, 3, (60, 1))
    result = quiet(hclt(x, 2, Categorical(3)), x, method=method, batch_size=None, epochs=20)
    shares = np.bincount(x[:, 0]) / 60
    assert result.train_ll == pytest.approx(float(shares @ np.log(shares)), abs=1e-3)


@methods
def test_one_unit_makes_the_variables_independent(method):
    result = quiet(hclt(X, 1), X, method=method, batch_size=None, epochs=2, track=True)
    share = X.mean(0).clip(1e-6, 1 - 1e-6)
    wanted = (X * np.log(share) + (1 - X) * np.log(1 - share)).sum(1).mean()
    assert result.train_ll == pytest.approx(float(wanted), rel=1e-9)
    assert result.sharpness == pytest.approx(6.0)  # each sum has one child, with ratio 1


@pytest.mark.parametrize("family", [Bernoulli(), Categorical(2), Gaussian(), Poisson()], ids=lambda f: f.name)
@methods
def test_a_constant_column_is_learned(family, method):
    x = X.copy()
    x[:, 2] = 1
    families = [family if v == 2 else Bernoulli() for v in range(6)]
    result = quiet(mixture(families, 3), x, method=method, batch_size=10)
    assert math.isfinite(result.train_ll)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_values_far_from_each_other_are_learned(precision):
    x = np.array([[-1e9], [0.0], [1e9], [1e9 + 1]])
    result = quiet(mixture((Gaussian(), 1), 3), x, precision=precision, batch_size=None, epochs=20)
    assert math.isfinite(result.train_ll)


def test_the_data_are_left_alone():
    x = X.astype(float)
    x[0, 0] = np.nan
    table, weights = torch.from_numpy(x.copy()), np.ones(30)
    quick(CIRCUIT, table, weights=weights)
    np.testing.assert_array_equal(table.numpy(), x)
    np.testing.assert_array_equal(weights, np.ones(30))


def test_a_mark_for_missing_values_holds_for_all_parts():
    marked = X.astype(np.int64)
    marked[::3, 0] = -1
    circuit = hclt(marked, units=2, missing=-1)
    nan = np.where(marked < 0, np.nan, marked)
    a = quick(circuit, marked, missing=-1, valid=marked, test=marked)
    b = quick(circuit, nan, valid=nan, test=nan)
    assert (a.train_ll, a.valid_ll, a.test_ll) == (b.train_ll, b.valid_ll, b.test_ll)


@pytest.mark.parametrize("name", ["weights", "missing"])
def test_what_is_said_twice_is_refused(name):
    value = np.ones(30) if name == "weights" else -1
    with pytest.raises(OptionError, match=f"{name}= is given twice"):
        quick(CIRCUIT, Examples(X, **{name: value}), **{name: value})


def test_weights_may_stand_beside_examples():
    weights = np.arange(30.0)
    beside = quick(CIRCUIT, Examples(X, missing=-1), weights=weights)
    assert beside.train_ll == quick(CIRCUIT, Examples(X, weights)).train_ll


@pytest.mark.parametrize("part", ["valid", "test"])
def test_columns_of_all_parts_are_put_in_order_by_their_names(part):
    frame = pd.DataFrame(X, columns=[f"c{v}" for v in range(X.shape[1])])
    turned = frame[frame.columns[::-1]]
    scores = [getattr(quick(CIRCUIT, frame, **{part: held}), f"{part}_ll") for held in (frame, turned, X)]
    assert scores[0] == scores[1] == scores[2]
    with pytest.raises(DataError, match=f"{part} data: no column 'c9' in the training data"):
        quick(CIRCUIT, frame, **{part: frame.rename(columns={"c0": "c9"})})


@pytest.mark.parametrize(
    ("far", "precision", "cure"), [(1e4, "float32", None), (1e6, "float32", "float64"), (1e9, "float64", "subtract")]
)
def test_a_column_far_from_zero_is_named(far, precision, cure):
    x = np.random.default_rng(0).normal(size=(40, 2))
    x[:, 1] += far
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick(mixture([Gaussian(), Gaussian()], 2), x, precision=precision)
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == (cure is not None)
    assert all("column 2" in text and cure in text for text in texts)


def test_warnings_point_to_the_line_that_called():
    x = X.astype(float)
    x[3] = np.nan
    with pytest.warns(CircurveWarning, match="no observed value") as caught:
        quick(CIRCUIT, x)
    assert Path(caught[0].filename).name == "learning_helpers.py"
