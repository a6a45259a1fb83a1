"""Families of one file are read once for each way they are written, and are those that are read one by one."""

from __future__ import annotations

import numpy as np
import pytest

from circurve import FileFormatError
from circurve.graph.circuit import LIMITED, _largest_value
from circurve.inputs import Bernoulli, Binomial, Categorical, family_from_json, family_reader
from circurve.inputs.common import LARGEST_WHOLE

DOCUMENTS = [
    {"name": "bernoulli"},
    {"name": "categorical", "states": 3},
    {"name": "binomial", "trials": 3},
    {"name": "gaussian", "min_variance": 1},
    {"name": "gaussian", "min_variance": 1.0},
]
WRONG = [{"name": "categorical", "states": True}, {"name": "categorical", "states": 3.0}, "categorical", {"states": 3}]


def test_families_are_those_of_single_reads():
    read = family_reader()
    for _ in range(2):
        for document in DOCUMENTS:
            assert read(dict(document)) == family_from_json(document)
    assert read(DOCUMENTS[1]) is read(dict(DOCUMENTS[1]))


@pytest.mark.parametrize("document", WRONG)
def test_a_number_of_another_type_is_refused_after_one_that_equals_it(document):
    read = family_reader()
    read({"name": "categorical", "states": 1})
    read({"name": "categorical", "states": 3})
    with pytest.raises(FileFormatError) as alone:
        family_from_json(document)
    with pytest.raises(FileFormatError) as together:
        read(document)
    assert str(together.value) == str(alone.value)


@pytest.mark.parametrize("states", [1, 2, 1000, LARGEST_WHOLE - 1, LARGEST_WHOLE])
def test_the_largest_value_is_the_last_that_passes_the_check(states):
    for family in (Bernoulli(), Binomial(states), Categorical(states)):
        assert type(family) in LIMITED
        largest = _largest_value(family)
        unbounded = family.check_values(np.array([LARGEST_WHOLE])) is None
        assert (largest == np.inf) == unbounded
        if not unbounded:
            assert family.check_values(np.array([largest])) is None
            assert family.check_values(np.array([largest + 1])) is not None
