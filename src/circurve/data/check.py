"""A `Table` and the families of its columns -> a table that the engine takes without more checks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data.convert import Array
from circurve.data.table import Table
from circurve.data.unseen import Misfit, Unseen, find_misfits, mask_of, report
from circurve.errors import DataError
from circurve.inputs import Family
from circurve.schema import Schema

__all__ = ["check", "encode"]

INTEGERS = (np.int8, np.int16, np.int32)
LARGEST = int(np.iinfo(np.int32).max)

LARGEST_WEIGHT = 1e18
"""Weights, their squares and their inverses must be finite in float32; one this much smaller than the largest is 0."""

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
        table = encode(table.to("cpu"), Schema.of(families, table.columns, table.codings))
    weights = None if table.weights is None else _check_weights(table.weights)
    return replace(table, weights=weights, labels=_check_labels(table.labels, outputs))


def encode(table: Table, schema: Schema, unseen: Unseen = "error", misfits: Sequence[Misfit] = ()) -> Table:
    """The table, in the codings of the schema, with its values checked and stored compactly.

    misfits: cells that are known to have no code; they are hidden already.
    """
    families = schema.families
    values = table.values.detach().numpy()
    hidden = None if table.observed is None or bool(table.observed.all()) else ~table.observed.numpy()
    filled = values if hidden is None else np.where(hidden, 0, values)
    found, impossible = list(misfits), None
    if found and unseen == "error":
        report(found, table, schema, unseen)
    if not _all_fit(filled, hidden, schema):
        if unseen == "error":
            raise _first_misfit(table, filled, hidden, families)
        found += find_misfits(filled, hidden, families)
    if found:
        report(found, table, schema, unseen)
        wrong = mask_of(found, table.shape)
        hidden = wrong if hidden is None else hidden | wrong
        filled = np.where(hidden, 0, filled)
        impossible = torch.from_numpy(wrong) if unseen == "impossible" else None
    dtype: Any = np.float64
    if schema.discrete:
        dtype = next(kind for kind in INTEGERS if filled.max() <= np.iinfo(kind).max)
    return replace(
        table,
        values=torch.from_numpy(filled.astype(dtype, order="C", copy=hidden is None)),
        observed=None if hidden is None else torch.from_numpy(~hidden),
        impossible=impossible,
        codings=None if schema.only_numbers else schema.codings,
        schema=schema,
    )


def _all_fit(filled: Array, hidden: Hidden, schema: Schema) -> bool:
    """Whether all observed values fit their families; columns of equal family are looked at together."""
    for family, numbers in schema.by_family.items():
        part = slice(None) if len(numbers) == len(schema) else numbers
        block = filled[:, part]
        observed = block.reshape(-1) if hidden is None else block[~hidden[:, part]]
        if family.check_values(observed) is not None:
            return False
    return True


def _first_misfit(table: Table, filled: Array, hidden: Hidden, families: Sequence[Family]) -> DataError:
    """Names the first column with a value its family refuses, and the first row where it does.

    The shortest prefix of the column that is refused ends with that row; it is found by bisection.
    """
    present = np.ones(filled.shape, dtype=np.bool_) if hidden is None else ~hidden
    number = next(v for v, family in enumerate(families) if family.check_values(filled[present[:, v], v]) is not None)
    family, rows = families[number], np.flatnonzero(present[:, number])
    column = filled[rows, number]
    first = bisect_left(range(1, len(column)), True, key=lambda n: family.check_values(column[:n]) is not None)
    value, cell = column[first], table.cell(int(rows[first]), number)
    if family.discrete and not (value >= 0 and value == np.floor(value) and value <= LARGEST):
        beyond = "negative" if value < 0 else f"larger than {LARGEST}"
        reason = beyond if value == np.floor(value) else "not a whole number"
        hint = "; if -1 marks missing values, say missing=-1" if value == -1 else ""
        return DataError(f"{cell}: {value:.15g} is {reason}, but {family.name} takes whole numbers >= 0{hint}")
    return DataError(f"{cell}: value {value:.15g} does not fit {family!r}: {family.check_values(column[first:][:1])}")


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
