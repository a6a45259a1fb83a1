"""A `Table` and a circuit, or the families of its columns -> a table that the engine takes without more checks."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data.convert import Array, Names, about, column_label, first_true
from circurve.data.entry import as_table
from circurve.data.table import Column, Schema, Table
from circurve.errors import DataError, warn_user
from circurve.graph import Circuit
from circurve.inputs import Family

__all__ = ["check", "check_alike", "prepare", "warn_of_lost_digits"]

INTEGERS = (np.int8, np.int16, np.int32)
LARGEST = int(np.iinfo(np.int32).max)

LARGEST_WEIGHT = 1e18
"""Weights, their squares and their inverses must be finite in float32; one this much smaller than the largest is 0."""

FARTHEST = {torch.float32: 1e5, torch.float64: 1e7}
"""So many spreads a column's mean may lie from zero before log-likelihoods lose their second digit; sums of squares set
the limit of float64."""

LOOKED_AT = 20_000
"""About so many rows are enough to see where a column lies."""

Hidden = NDArray[np.bool_] | None
"""Which values are missing, (N, V); None if none is."""


def check(table: Table, families: Sequence[Family], outputs: int = 1) -> Table:
    """Check each column against its family, weights and labels; store the values compactly, in memory of their own.

    Values become int8, int16 or int32 if all families are discrete, else float64, with 0 where nothing is observed. A
    table that has these families in its schema was checked already. Families judge values one by one, so columns of
    equal family are checked together. outputs: how many outputs of a circuit the labels may name.
    """
    width = table.shape[1]
    if width != len(families):
        raise DataError(f"data has {width} columns, the circuit has {len(families)} variables")
    if table.schema is None or table.schema.families != tuple(families):
        table = _encode(table.to("cpu"), families)
    weights = None if table.weights is None else _check_weights(table.weights)
    return replace(table, weights=weights, labels=_check_labels(table.labels, outputs))


def prepare(
    data: Any, circuit: Circuit, what: str, *, weights: Any = None, labels: Any = None, missing: int | None = None
) -> Table:
    """Check data against a circuit; `what` ("train", "valid", ...) opens every message."""
    with about(f"{what} data"):
        table = as_table(data, weights=weights, labels=labels, missing=missing)
        table = check(table, circuit.families, circuit.outputs)
    empty, rows = table.empty_rows, len(table)
    if empty == rows:
        raise DataError(f"{what} data: every value is missing")
    if empty:
        warn_user(f"{what} data: {empty} of {rows} rows have no observed value and say nothing")
    return table


def check_alike(parts: Mapping[str, Table]) -> None:
    """Refuse parts whose columns have other names than those of `train`, or the same in another order."""
    wanted = parts["train"].columns
    for what, part in parts.items():
        for number, (name, expected) in enumerate(zip(part.columns or (), wanted or (), strict=False)):
            if name != expected:
                raise DataError(f"{what} data: column {number} is {name!r}, but {expected!r} in the training data")


def warn_of_lost_digits(train: Table, families: Sequence[Family], dtype: torch.dtype) -> None:
    """Warn of a column whose values lie too far from zero, and too close together, for the precision."""
    continuous = [v for v, family in enumerate(families) if not family.discrete]
    if not continuous:
        return
    values = train[:: 1 + len(train) // LOOKED_AT, continuous]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without a value has no mean
        mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    for number in np.flatnonzero((spread > 0) & (np.abs(mean) > FARTHEST[dtype] * spread)):
        label = column_label(train.columns, continuous[number])
        cure = ", or use precision='float64'" if abs(mean[number]) <= FARTHEST[torch.float64] * spread[number] else ""
        return warn_user(
            f"train data: {label} has a spread of {spread[number]:.2g} around {mean[number]:.6g}, more digits than "
            f"{str(dtype).removeprefix('torch.')} holds: subtract a constant from it{cure}"
        )


def _encode(table: Table, families: Sequence[Family]) -> Table:
    values, columns = table.values.detach().numpy(), table.columns
    hidden = None if table.observed is None or bool(table.observed.all()) else ~table.observed.numpy()
    filled = values if hidden is None else np.where(hidden, 0, values)
    discrete = [v for v, family in enumerate(families) if family.discrete]
    if len(discrete) == len(families):
        _check_whole(filled, discrete, columns, families)
        dtype = next(kind for kind in INTEGERS if filled.max() <= np.iinfo(kind).max)
        coded = filled.astype(dtype, order="C", copy=hidden is None)
    else:
        coded = filled.astype(np.float64, order="C", copy=hidden is None)
        if discrete:
            _check_whole(coded[:, discrete], discrete, columns, families)
    _check_families(coded, columns, families, hidden)
    named = zip(columns or [None] * len(families), families, strict=True)
    return replace(
        table,
        values=torch.from_numpy(coded),
        observed=None if hidden is None else torch.from_numpy(~hidden),
        schema=Schema(tuple(Column(name, family) for name, family in named)),
    )


def _check_whole(block: Array, numbers: Sequence[int], columns: Names, families: Sequence[Family]) -> None:
    """Values of discrete families are whole numbers from 0 to LARGEST; `numbers` are the columns of `block`."""
    whole = block.dtype.kind != "f" or bool((np.floor(block) == block).all())
    if whole and block.min() >= 0 and block.max() <= LARGEST:
        return
    row, position = first_true((np.floor(block) != block) | (block < 0) | (block > LARGEST))
    value, column = block[row, position], numbers[position]
    beyond = "negative" if value < 0 else f"larger than {LARGEST}"
    reason = beyond if value == np.floor(value) else "not a whole number"
    hint = "; if -1 marks missing values, say missing=-1" if value == -1 else ""
    found = f"{column_label(columns, column)}, row {row}: {value:.15g} is {reason}"
    raise DataError(f"{found}, but {families[column].name} takes whole numbers >= 0{hint}")


def _check_families(coded: Array, columns: Names, families: Sequence[Family], hidden: Hidden) -> None:
    groups: dict[Family, list[int]] = {}
    for number, family in enumerate(families):
        groups.setdefault(family, []).append(number)
    for family, numbers in groups.items():
        part = slice(None) if len(numbers) == len(families) else numbers
        block = coded[:, part]
        observed = block.reshape(-1) if hidden is None else block[~hidden[:, part]]
        if family.check_values(observed) is not None:
            raise _first_misfit(coded, columns, families, hidden)


def _first_misfit(coded: Array, columns: Names, families: Sequence[Family], hidden: Hidden) -> DataError:
    """Names the first column with a value its family refuses, and the first row where it does.

    The shortest prefix of the column that is refused ends with that row; it is found by bisection.
    """
    present = np.ones(coded.shape, dtype=np.bool_) if hidden is None else ~hidden
    number = next(v for v, family in enumerate(families) if family.check_values(coded[present[:, v], v]) is not None)
    family, rows = families[number], np.flatnonzero(present[:, number])
    column = coded[rows, number]
    first = bisect_left(range(1, len(column)), True, key=lambda n: family.check_values(column[:n]) is not None)
    found = f"{column_label(columns, number)}, row {rows[first]}: value {column[first]:.15g}"
    return DataError(f"{found} does not fit {family!r}: {family.check_values(column[first : first + 1])}")


def _check_weights(weights: Tensor) -> Tensor:  # (N,) -> (N,)
    wrong = ~(weights.isfinite() & (weights >= 0))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(f"the weight of row {row} is {float(weights[row]):g}; weights are finite and >= 0")
    largest = float(weights.max())
    if largest == 0:
        raise DataError("all weights are zero")
    if not 1 / LARGEST_WEIGHT <= largest <= LARGEST_WEIGHT:
        raise DataError(f"the largest weight is {largest:g}; scale them so that it lies between 1e-18 and 1e18")
    return torch.where(weights < largest / LARGEST_WEIGHT, 0.0, weights)


def _check_labels(labels: Tensor | None, outputs: int) -> Tensor | None:  # (N,) -> (N,)
    if labels is None:
        if outputs > 1:
            raise DataError(f"the circuit has {outputs} outputs: say with labels which one each row belongs to")
        return None
    wrong = (labels < 0) | (labels >= outputs)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(f"the label of row {row} is {int(labels[row])}; the circuit has outputs 0 to {outputs - 1}")
    return labels if outputs > 1 else None
