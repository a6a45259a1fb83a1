"""A few rows take a short way through a model: with the scores, errors and types of the long one."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings

import circurve as cc
from circuits import cases
from circurve.data import as_table
from circurve.errors import CircurveWarning, DataError, OptionError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Gaussian
from circurve.model import Model

ROWS = np.array([[0.0, 1.0], [2.0, 0.0], [-1.5, 1.0]])


def model() -> Model:
    height, flag = Input(0, Gaussian(), 2), Input(1, Bernoulli(), 2)
    inputs = {height: [[0.0, 1.0], [2.0, 4.0]], flag: [[0.2], [0.9]]}
    return Model.from_parameters(Circuit(Sum(Product([height, flag]))), None, inputs)


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_a_few_rows_score_as_with_the_reference_backend(case):
    found = Model.from_parameters(case.circuit, case.weights, case.inputs)
    wanted = found.log_prob(case.x, backend="reference")
    np.testing.assert_allclose(found.log_prob(case.x), wanted, rtol=1e-9, atol=1e-10)
    of_tensor = found.log_prob(torch.from_numpy(case.x))
    assert isinstance(of_tensor, torch.Tensor)
    assert of_tensor.dtype == found.dtype
    np.testing.assert_allclose(of_tensor, wanted, rtol=1e-9, atol=1e-10)


def test_one_row_and_many_rows_give_the_same():
    x = np.random.default_rng(0).integers(0, 2, (5000, 6))
    trained = cc.fit(cc.hclt(x, units=4), x, epochs=1, seed=0).model
    many = trained.log_prob(x)
    assert len(x) > trained._small.max_samples > 0
    np.testing.assert_allclose([float(trained.log_prob(x[i : i + 1])[0]) for i in range(20)], many[:20], rtol=1e-5)


def test_a_frame_a_list_and_an_array_give_the_same_numbers():
    wanted = model().log_prob(ROWS)
    for given_ in (ROWS.tolist(), pd.DataFrame(ROWS), cc.Examples(ROWS), as_table(ROWS)):
        np.testing.assert_array_equal(model().log_prob(given_), wanted)
    marked = np.where(ROWS == 2.0, -1.0, ROWS)
    holes = np.where(ROWS == 2.0, np.nan, ROWS)
    np.testing.assert_array_equal(model().log_prob(marked, missing=-1), model().log_prob(holes))


def test_a_table_that_was_not_checked_against_these_families_is_not_looked_up():
    """States beyond those of a family would be read from the table of the next one."""
    leaves = [Input(v, Categorical(2)) for v in range(2)]
    found = Model.from_parameters(Circuit(Product(leaves)), None, {leaf: [[0.5, 0.5]] for leaf in leaves})
    assert found._few_rows(as_table([[2, 0]])) is None
    assert found._few_rows(as_table([[1, 0]])) is not None


def test_scores_of_a_call_do_not_change_with_the_next():
    scored = model()
    for kind in (np.array, torch.tensor):
        first = scored.log_prob(kind(ROWS))
        kept = np.asarray(first).copy()
        scored.log_prob(kind(ROWS[::-1].copy()))
        np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_row_that_does_not_fit_is_named_as_in_a_large_table(kind):
    bad = np.array([[0.0, 1.0], [1.0, 3.0]])
    with pytest.warns(CircurveWarning, match=r"column 2: 3 was not seen in training .* first in row 2"):
        scores = model().log_prob(kind(bad))
    assert [np.isfinite(float(score)) for score in scores] == [True, False]
    with pytest.raises(DataError, match=r"column 2, row 2: value 3 does not fit Bernoulli"):
        model().log_prob(kind(bad), unseen="error")
    with pytest.raises(DataError, match="data has 1 dimension"):
        model().log_prob(kind(bad[0]))
    with pytest.raises(DataError, match="data has 3 columns, the circuit has 2 variables"):
        model().log_prob(kind(np.zeros((1, 3))))


def test_a_model_with_what_it_keeps_can_be_pickled():
    scored = model()
    wanted = scored.log_prob(ROWS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(scored)).log_prob(ROWS), wanted)


def test_a_backend_by_name_is_used_or_refused():
    with pytest.raises(OptionError, match="backend='tree' cannot be used"):
        model().log_prob(ROWS, backend="tree")
    with pytest.raises(OptionError, match="backend must be one of"):
        model().log_prob(ROWS, backend="fast")
