"""All input families by name, and their form in model files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, cast

from circurve.errors import FileFormatError, OptionError
from circurve.inputs.bernoulli import Bernoulli
from circurve.inputs.binomial import Binomial
from circurve.inputs.categorical import Categorical
from circurve.inputs.family import Family
from circurve.inputs.gaussian import Gaussian
from circurve.inputs.indicator import Indicator
from circurve.inputs.poisson import Poisson

__all__ = ["FAMILIES", "family_from_json", "family_to_json"]

FAMILIES: dict[str, type[Family]] = {
    kind.name: kind for kind in (Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson)
}
"""The final classes by their names."""


def family_to_json(family: Family) -> dict[str, Any]:
    """The name and the hyperparameters: `{"name": "categorical", "states": 4}`."""
    options = {f.name: getattr(family, f.name) for f in fields(cast("Any", family))}
    listed = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    return {"name": family.name, **listed}


def family_from_json(document: Mapping[str, Any]) -> Family:
    """The family that `family_to_json` wrote; FileFormatError for an unknown name or unknown, missing, wrong fields."""
    if not isinstance(document, Mapping) or "name" not in document:
        raise FileFormatError(f"an input family must be an object with a name, not {document!r}")
    name, options = document["name"], {key: value for key, value in document.items() if key != "name"}
    kind = FAMILIES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise FileFormatError(f"unknown input family {name!r}; known are {', '.join(sorted(FAMILIES))}")
    expected = {f.name: f for f in fields(cast("Any", kind))}
    unknown = sorted(options.keys() - expected.keys())
    missing = sorted(key for key, f in expected.items() if f.default is MISSING and key not in options)
    if unknown or missing:
        wrong = f"unknown field {unknown[0]!r}" if unknown else f"no field {missing[0]!r}"
        raise FileFormatError(f"input family '{name}': {wrong}")
    try:
        return kind(**options)
    except OptionError as error:
        raise FileFormatError(f"input family '{name}': {error}") from error
