"""Families in model files: what is written, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from circurve.errors import FileFormatError
from circurve.inputs import Bernoulli, Categorical, Gaussian, Indicator, family_from_json, family_to_json


def test_a_family_is_written_as_its_name_and_hyperparameters() -> None:
    assert family_to_json(Bernoulli()) == {"name": "bernoulli"}
    assert family_to_json(Categorical(4)) == {"name": "categorical", "states": 4}
    assert family_to_json(Gaussian()) == {"name": "gaussian", "min_variance": 1e-4}
    assert family_to_json(Indicator((0, 2))) == {"name": "indicator", "values": [0, 2]}


def test_a_field_with_a_default_may_be_absent() -> None:
    assert family_from_json({"name": "gaussian"}) == Gaussian()


@pytest.mark.parametrize(
    ("document", "culprit"),
    [
        ({"name": "dirichlet"}, "dirichlet"),
        ({"name": ["bernoulli"]}, "bernoulli"),
        ({"states": 4}, "name"),
        ([], "name"),
        (None, "name"),
        ({"name": "bernoulli", "states": 2}, "states"),
        ({"name": "categorical"}, "states"),
        ({"name": "categorical", "states": 4, "colour": 1}, "colour"),
        ({"name": "categorical", "states": "4"}, "states"),
        ({"name": "binomial", "trials": 0}, "trials"),
        ({"name": "gaussian", "min_variance": None}, "min_variance"),
        ({"name": "indicator", "values": [0, "a"]}, "values"),
    ],
)
def test_anything_else_is_refused_with_the_culprit(document: Any, culprit: str) -> None:
    with pytest.raises(FileFormatError, match=culprit):
        family_from_json(document)
