"""The arguments that all builders share: a data matrix, one family for each variable, counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import torch

from circurve.errors import DataError, OptionError
from circurve.inputs import Bernoulli, Family

__all__ = ["Families", "as_families", "as_matrix", "check_count"]

Families: TypeAlias = int | tuple[Family, int] | Sequence[Family]
"""One family for each variable: a sequence of them, `(family, count)`, or a count alone for binary variables."""


def as_matrix(data: object) -> np.ndarray:  # (N, V)
    """Turn an array, tensor or list of rows into a numeric numpy matrix, NaN where a value is missing.

    Integers stay integers and floats stay floats; an array that fits already is not copied. Raises DataError.
    """
    if isinstance(data, torch.Tensor):
        held = data.detach().cpu()
        data = (held.float() if held.is_floating_point() and held.itemsize < 4 else held).numpy()
    try:
        matrix = np.asarray(data)
        if matrix.dtype == object:
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"data is not a matrix of numbers: {error}") from error
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"data must hold real numbers, not {matrix.dtype}")
    if matrix.ndim != 2:
        raise DataError(f"data must have two dimensions (samples x variables), not {matrix.ndim}: shape {matrix.shape}")
    if 0 in matrix.shape:
        raise DataError(f"data must have at least one row and one column, not shape {matrix.shape}")
    return matrix.view(np.uint8) if matrix.dtype == np.bool_ else matrix


def as_families(families: Families | Family, variables: int | None = None) -> tuple[Family, ...]:
    """One family for each variable, from any of the forms of `Families`.

    Where the number of `variables` is known from elsewhere (data), one family alone stands for all of them, and
    any other number of families is an OptionError.
    """
    if isinstance(families, Family):
        if variables is None:
            raise OptionError(f"families={families!r} says nothing of how many: write ({families!r}, count)")
        return (families,) * variables
    if isinstance(families, int | np.integer):
        listed: tuple[object, ...] = (Bernoulli(),) * check_count("families", families)
    else:
        listed = tuple(families) if isinstance(families, Iterable) else (families,)
        if len(listed) == 2 and isinstance(listed[1], int | np.integer):
            listed = listed[:1] * check_count("families", listed[1])
    checked = tuple(family for family in listed if isinstance(family, Family))
    if not checked or len(checked) < len(listed):
        raise OptionError(
            f"families must be a count, (family, count) or one input family for each variable, not {families!r}"
        )
    if variables is not None and len(checked) != variables:
        raise OptionError(f"families has {len(checked)} entries for {variables} variables")
    return checked


def check_count(option: str, value: object, at_least: int = 1) -> int:
    """Return `value` as an int; raise OptionError, naming the option, unless it is a whole number >= `at_least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < at_least:
        raise OptionError(f"{option} must be a whole number >= {at_least}, not {value!r}")
    return int(value)
