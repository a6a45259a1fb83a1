"""The forms in which families and data may be given, and the families read off data."""

import numpy as np
import pandas as pd
import pytest

from circurve.data import as_table
from circurve.errors import CircurveWarning, DataError, OptionError
from circurve.inputs import Bernoulli, Categorical, Gaussian
from circurve.structures import infer_families
from circurve.structures.arguments import as_families


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
        (Bernoulli(), r"does not say how many columns there are: write \(Bernoulli\(\), count\)"),
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
    assert np.shares_memory(np.asarray(as_table(data)), data)
    assert np.shares_memory(np.asarray(as_table(data, missing=-1)), data)


@pytest.mark.parametrize(("given", "expected"), [(np.int8, np.float32), (np.int64, np.float64), (float, float)])
def test_a_mark_for_missing_values_becomes_nan(given, expected):
    table = as_table(np.array([[1, -1], [0, 1]], dtype=given), missing=-1)
    np.testing.assert_array_equal(table, [[1, np.nan], [0, 1]])
    assert np.asarray(table).dtype == table.dtype == expected


@pytest.mark.parametrize("missing", [0.5, True, "none"])
def test_a_mark_that_is_no_whole_number_is_refused(missing):
    with pytest.raises(OptionError, match="missing must be a whole number or None"):
        as_table([[1]], missing=missing)


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
        ([0, 256], Gaussian(min_variance=1e-4 * (128 / 1.349) ** 2)),
        ([0, -1], Gaussian(min_variance=1e-4 * (0.5 / 1.349) ** 2)),
        ([0.0, 0.5], Gaussian(min_variance=1e-4 * (0.25 / 1.349) ** 2)),
        ([0.0, 1.5], Gaussian(min_variance=1e-4 * (0.75 / 1.349) ** 2)),
        ([2.5, 2.5], Gaussian()),
    ],
)
@pytest.mark.filterwarnings("ignore:column 1. whole numbers from -1")
def test_a_family_is_read_off_each_column(column, family):
    (found,) = infer_families(np.array(column)[:, None])
    assert type(found) is type(family)
    assert [vars(found)[name] for name in vars(family)] == pytest.approx(list(vars(family).values()))


def test_families_take_the_values_of_all_tables():
    train, valid, test = np.array([[0, 1], [1, 1]]), [[2, 0]], np.array([[0.0, np.nan]])
    assert infer_families(train, valid, test) == (Categorical(3), Bernoulli())


def test_a_mark_for_missing_values_is_no_value():
    frame = pd.DataFrame({"a": [0, 1, 9], "b": [3, 9, 0]})
    assert infer_families(frame, missing=9) == (Bernoulli(), Categorical(4))


def test_whole_numbers_from_minus_one_on_are_pointed_out_by_name():
    frame = pd.DataFrame({"a": [0, 1], "b": [-1, 1], "c": [-1, 5]})
    message = r"column 2 \('b'\) and 1 more: whole numbers from -1 up, .* pass missing=-1"
    with pytest.warns(CircurveWarning, match=message):
        assert [family.name for family in infer_families(frame)] == ["bernoulli", "gaussian", "gaussian"]


def test_tables_that_do_not_go_together_are_refused():
    with pytest.raises(DataError, match="differ in their number of columns: 1, 2"):
        infer_families([[1, 2]], [[1]])
    with pytest.raises(DataError, match="at least one table"):
        infer_families()


def test_text_has_a_state_for_each_value():
    assert infer_families([["x", 1], ["y", 0]], [["z", 1]]) == (Categorical(3), Bernoulli())
