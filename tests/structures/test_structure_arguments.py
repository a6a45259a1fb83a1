"""The forms in which families and data may be given, and the families read off data."""

import numpy as np
import pytest
import torch

from circurve.errors import DataError, OptionError
from circurve.inputs import Bernoulli, Categorical, Gaussian
from circurve.structures import infer_families
from circurve.structures.arguments import as_families, as_matrix


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        (3, [Bernoulli()] * 3),
        (np.int64(2), [Bernoulli()] * 2),
        ((Categorical(4), 3), [Categorical(4)] * 3),
        ([Categorical(4), Bernoulli()], [Categorical(4), Bernoulli()]),
        ((Bernoulli(),), [Bernoulli()]),
        (iter([Bernoulli()]), [Bernoulli()]),
    ],
)
def test_every_form_of_families_gives_one_for_each_variable(families, expected):
    assert as_families(families) == tuple(expected)


def test_one_family_stands_for_all_columns_of_data():
    assert as_families(Categorical(4), variables=3) == (Categorical(4),) * 3


@pytest.mark.parametrize(
    ("families", "message"),
    [
        (Bernoulli(), r"says nothing of how many: write \(Bernoulli\(\), count\)"),
        ((Bernoulli(), 0), "families must be a whole number >= 1, not 0"),
        (True, "families must be a whole number"),
        ([], r"one input family for each variable, not \[\]"),
        ([Bernoulli(), "gaussian"], "not .*gaussian"),
        (2.5, r"not 2\.5"),
        (None, "not None"),
    ],
)
def test_families_of_another_form_are_refused(families, message):
    with pytest.raises(OptionError, match=message):
        as_families(families)


def test_fitting_arrays_are_not_copied():
    data = np.zeros((3, 2))
    assert as_matrix(data) is data
    assert as_matrix(torch.zeros(3, 2, dtype=torch.int64)).dtype == np.int64
    assert as_matrix(torch.zeros(3, 2, requires_grad=True)).dtype == np.float32


def test_none_in_a_list_is_a_missing_value():
    assert np.isnan(as_matrix([[1, None]])[0, 1])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1, 2], r"two dimensions \(samples x variables\), not 1: shape \(2,\)"),
        (3, "two dimensions"),
        (np.zeros((0, 2)), r"at least one row and one column, not shape \(0, 2\)"),
        (np.zeros((2, 0)), "at least one row and one column"),
        ([[1, 2], [3]], "not a matrix of numbers"),
        ([["a", "b"]], "must hold real numbers"),
        ([[1, {}]], "not a matrix of numbers"),
    ],
)
def test_data_of_another_form_is_refused(data, message):
    with pytest.raises(DataError, match=message):
        as_matrix(data)


@pytest.mark.parametrize(
    ("column", "family"),
    [
        ([0, 1, 1], Bernoulli()),
        ([0.0, np.nan, 1.0], Bernoulli()),
        ([0, 0, 0], Bernoulli()),
        ([1, 1, 1], Bernoulli()),
        ([np.nan, np.nan], Bernoulli()),
        ([False, True], Bernoulli()),
        ([0, 2], Categorical(3)),
        ([255.0, np.nan], Categorical(256)),
        ([0, 256], Gaussian()),
        ([0, -1], Gaussian()),
        ([0.0, 0.5], Gaussian()),
        ([2.5, 2.5], Gaussian()),
    ],
)
def test_a_family_is_read_off_each_column(column, family):
    assert infer_families(np.array(column)[:, None]) == (family,)
