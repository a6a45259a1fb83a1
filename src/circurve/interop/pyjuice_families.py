"""The input families that PyJuice and Circurve both have, and how their parameters correspond.

PyJuice                       Circurve                      parameters of a unit
Bernoulli()                   Bernoulli()                   p                           the same
Categorical(num_cats)         Categorical(states)           p_0, p_1, ...               the same
Gaussian(min_sigma)           Gaussian(min_variance)        (mean, deviation)           (mean, variance)
Literal(lit)                  Indicator(values)             none; all units name one value
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from circurve.errors import ParameterError, StructureError
from circurve.inputs import Bernoulli, Categorical, Family, Gaussian, Indicator
from circurve.inputs.gaussian import SMALLEST_VARIANCE
from circurve.words import counted

__all__ = ["family_from", "family_to"]

Array = NDArray[np.float64]

ROUNDING = 1e-4
"""Probabilities that sum to one within this are taken as rounded, and made to do so exactly."""


def family_from(distribution: Any, units: int, parameters: Array | None, label: str) -> tuple[Family, Array]:
    """The family of a PyJuice distribution and its parameters (units, P), from PyJuice's flat vector of them.

    `label` opens the messages of StructureError (a distribution without counterpart) and ParameterError.
    """
    name = type(distribution).__name__
    if name not in READERS:
        known = ", ".join(READERS)
        raise StructureError(f"{label}: the distribution {name} does not exist in Circurve; it has {known}")
    width = int(distribution.num_parameters())
    if parameters is None and width:
        raise ParameterError(f"{label}: no parameters yet; call init_parameters on the root, or compile the circuit")
    flat = np.empty(0) if parameters is None else parameters.reshape(-1)
    if flat.size != units * width:
        raise ParameterError(
            f"{label}: {counted(flat.size, 'parameter')} for {units} units of {name}, expected {units * width}"
        )
    return READERS[name](distribution, flat.reshape(units, width), label)


def family_to(family: Family, parameters: Array, distributions: Any, label: str) -> tuple[Any, Array]:
    """The PyJuice distribution of a family, and its parameters in PyJuice's order.

    `distributions` is the module `pyjuice.distributions`; `label` opens the message of a StructureError.
    """
    writer = WRITERS.get(type(family))
    if writer is None:
        known = ", ".join(kind.__name__ for kind in WRITERS)
        raise StructureError(f"{label}: {family!r} does not exist in PyJuice; it has {known}")
    return writer(family, parameters, distributions, label)


def _read_bernoulli(_distribution: Any, parameters: Array, _label: str) -> tuple[Family, Array]:
    return Bernoulli(), parameters


def _read_categorical(distribution: Any, parameters: Array, _label: str) -> tuple[Family, Array]:
    total = parameters.sum(axis=1, keepdims=True)
    rounded = np.abs(total - 1) <= ROUNDING
    return Categorical(int(distribution.num_cats)), parameters / np.where(rounded, total, 1.0)


def _read_gaussian(distribution: Any, parameters: Array, label: str) -> tuple[Family, Array]:
    mean, deviation = parameters[:, 0], parameters[:, 1]
    if not bool((deviation > 0).all()):
        raise ParameterError(f"{label}: a standard deviation is not above zero")
    smallest = max(float(distribution.min_sigma) ** 2, SMALLEST_VARIANCE)
    return Gaussian(smallest), np.stack([mean, np.square(deviation)], axis=1)


def _read_literal(distribution: Any, parameters: Array, _label: str) -> tuple[Family, Array]:
    return Indicator((int(distribution.lit),) * len(parameters)), parameters


def _write_bernoulli(_family: Family, parameters: Array, distributions: Any, _label: str) -> tuple[Any, Array]:
    return distributions.Bernoulli(), parameters


def _write_categorical(family: Family, parameters: Array, distributions: Any, _label: str) -> tuple[Any, Array]:
    return distributions.Categorical(num_cats=cast("Categorical", family).states), parameters


def _write_gaussian(family: Family, parameters: Array, distributions: Any, _label: str) -> tuple[Any, Array]:
    smallest = float(np.sqrt(cast("Gaussian", family).min_variance))
    values = np.stack([parameters[:, 0], np.sqrt(parameters[:, 1])], axis=1)
    return distributions.Gaussian(min_sigma=smallest), values


def _write_indicator(family: Family, parameters: Array, distributions: Any, label: str) -> tuple[Any, Array]:
    values = set(cast("Indicator", family).values)
    if len(values) > 1:
        raise StructureError(f"{label}: the units name the values {sorted(values)}; PyJuice's Literal has one for all")
    return distributions.Literal(values.pop()), parameters


READERS: dict[str, Callable[[Any, Array, str], tuple[Family, Array]]] = {
    "Bernoulli": _read_bernoulli,
    "Categorical": _read_categorical,
    "Gaussian": _read_gaussian,
    "Literal": _read_literal,
}
WRITERS: dict[type[Family], Callable[[Family, Array, Any, str], tuple[Any, Array]]] = {
    Bernoulli: _write_bernoulli,
    Categorical: _write_categorical,
    Gaussian: _write_gaussian,
    Indicator: _write_indicator,
}
