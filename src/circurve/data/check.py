"""A `Matrix` and the families of its columns -> a `Table` that the engine takes without further questions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data.convert import Array, column_label, first_true
from circurve.data.matrix import Matrix
from circurve.errors import DataError, OptionError
from circurve.inputs import Family

__all__ = ["Table", "encode"]

INTEGERS = (np.int8, np.int16, np.int32)
LARGEST = int(np.iinfo(np.int32).max)


@dataclass(frozen=True, eq=False)
class Table:
    """Checked data: every observed value is one that its column's family can take."""

    values: Tensor
    """(N, V): int8, int16 or int32 with -1 for missing if all families are discrete, else float64 with NaN."""

    has_missing: bool
    """Whether any value is missing."""

    empty_rows: int
    """How many rows have no observed value; their probability is 1."""


def encode(
    matrix: Matrix, families: Sequence[Family], *, missing: int | None = None, missing_mask: Any = None
) -> Table:
    """Check each column against its family and store the table compactly, in memory of its own.

    NaN is always missing; so are values equal to `missing` (-1, say) and entries where `missing_mask` (N, V) is true.
    Families judge values one by one, so columns of equal family are checked together.
    """
    width = matrix.values.shape[1]
    if width != len(families):
        raise DataError(f"data has {width} columns, the circuit has {len(families)} variables")
    hidden = _hidden(matrix.values, missing, missing_mask)
    if all(family.discrete for family in families):
        coded = _as_integers(matrix, families, hidden)
    else:
        coded = _as_floats(matrix, families, hidden)
    _check_families(coded, families, matrix, hidden is not None)
    return Table(
        values=torch.from_numpy(coded),
        has_missing=hidden is not None,
        empty_rows=0 if hidden is None else int(hidden.all(axis=1).sum()),
    )


def _hidden(values: Array, missing: int | None, missing_mask: Any) -> NDArray[np.bool_] | None:
    """Which values are missing, (N, V); None if none is."""
    parts = [np.isnan(values)] if values.dtype.kind == "f" else []
    if missing is not None:
        if isinstance(missing, bool) or not isinstance(missing, int | np.integer):
            raise OptionError(f"missing must be a whole number or None, not {missing!r}")
        parts.append(values == int(missing))
    if missing_mask is not None:
        parts.append(_as_mask(missing_mask, values.shape))
    hidden = None
    for part in parts:
        if part.any():
            hidden = part if hidden is None else hidden | part
    return hidden


def _as_mask(mask: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    try:
        array = np.asarray(mask.detach().cpu() if isinstance(mask, Tensor) else mask)
    except ValueError:
        raise DataError(f"missing_mask must be boolean of shape {shape}, but its rows differ in length") from None
    if array.dtype != np.bool_ or array.shape != shape:
        raise DataError(f"missing_mask must be boolean of shape {shape}, not {array.dtype} of shape {array.shape}")
    return array


def _as_integers(matrix: Matrix, families: Sequence[Family], hidden: NDArray[np.bool_] | None) -> Array:
    filled = matrix.values if hidden is None else np.where(hidden, 0, matrix.values)
    _check_whole(filled, range(len(families)), families, matrix)
    largest = filled.max()
    dtype = next(kind for kind in INTEGERS if largest <= np.iinfo(kind).max)
    coded: Array = np.array(filled, dtype=dtype, order="C")
    if hidden is not None:
        coded[hidden] = -1
    return coded


def _as_floats(matrix: Matrix, families: Sequence[Family], hidden: NDArray[np.bool_] | None) -> Array:
    coded: Array = np.array(matrix.values, dtype=np.float64, order="C")
    discrete = [v for v, family in enumerate(families) if family.discrete]
    if hidden is not None:
        coded[hidden] = np.nan
    if discrete:
        whole = coded[:, discrete]
        filled = whole if hidden is None else np.where(hidden[:, discrete], 0, whole)
        _check_whole(filled, discrete, families, matrix)
    return coded


def _check_whole(block: Array, numbers: Sequence[int], families: Sequence[Family], matrix: Matrix) -> None:
    """Values of discrete families are whole numbers from 0 to LARGEST; `numbers` are the columns of `block`."""
    whole = block.dtype.kind != "f" or bool((np.floor(block) == block).all())
    if whole and block.min() >= 0 and block.max() <= LARGEST:
        return
    row, position = first_true((np.floor(block) != block) | (block < 0) | (block > LARGEST))
    value, column = block[row, position], numbers[position]
    beyond = "negative" if value < 0 else f"larger than {LARGEST}"
    reason = beyond if value == np.floor(value) else "not a whole number"
    hint = "; if -1 marks missing values, say missing=-1" if value == -1 else ""
    raise DataError(
        f"{column_label(matrix.columns, column)}, row {row}: {value:.15g} is {reason}, "
        f"but {families[column].name} takes whole numbers >= 0{hint}"
    )


def _check_families(coded: Array, families: Sequence[Family], matrix: Matrix, has_missing: bool) -> None:
    groups: dict[Family, list[int]] = {}
    for number, family in enumerate(families):
        groups.setdefault(family, []).append(number)
    for family, numbers in groups.items():
        block = coded if len(numbers) == len(families) else coded[:, numbers]
        observed = block[_observed(block)] if has_missing else block.reshape(-1)
        if family.check_values(observed) is not None:
            _raise_first_misfit(coded, families, matrix)


def _observed(coded: Array) -> NDArray[np.bool_]:
    observed: NDArray[np.bool_] = ~np.isnan(coded) if coded.dtype.kind == "f" else coded >= 0
    return observed


def _raise_first_misfit(coded: Array, families: Sequence[Family], matrix: Matrix) -> None:
    """Name the first column with a value its family refuses, and the first row where it does."""
    for number, family in enumerate(families):
        rows = np.flatnonzero(_observed(coded[:, number]))
        column = coded[rows, number]
        if family.check_values(column) is None:
            continue
        first = _first_refused(family, column)
        reason = family.check_values(column[first : first + 1])
        raise DataError(
            f"{column_label(matrix.columns, number)}, row {rows[first]}: value {column[first]:.15g} "
            f"does not fit {family!r}: {reason}"
        )


def _first_refused(family: Family, column: Array) -> int:
    """The shortest prefix that is refused ends with the first wrong value; found by bisection."""
    return bisect_left(range(1, len(column)), True, key=lambda n: family.check_values(column[:n]) is not None)
