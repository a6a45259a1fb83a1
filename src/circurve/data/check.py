"""A `Table` and the families of its columns -> a table that the engine takes without more checks.

`QuickCheck` does the same for a few rows of plain numbers, without the records between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data.convert import Array
from circurve.data.table import Table
from circurve.data.unseen import LARGEST, Misfit, Unseen, find_misfits, misfit_reason, report
from circurve.errors import Argument, DataError
from circurve.inputs import Family
from circurve.inputs.family import counts_from_zero
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["QuickCheck", "check", "check_weights", "encode"]

INTEGERS = (torch.int8, torch.int16, torch.int32)

LARGEST_WEIGHT = 1e18
"""Weights, their squares and their inverses must be finite in float32; one this much smaller than the largest is 0."""

NUMBERS = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.float32, torch.float64),
)
"""What torch and numpy both know."""

Columns: TypeAlias = tuple[NDArray[np.float64], NDArray[np.bool_] | None]
"""Values (V, N) with 0 where nothing is observed, and what is observed (V, N), None if everything is."""


def check(table: Table, families: Sequence[Family], outputs: int = 1) -> Table:
    """Check each column against its family, weights and labels; store the values compactly, in memory of their own.

    Values become int8, int16 or int32 if all families are discrete, else float64, with 0 where nothing is observed. A
    table that has these families in its schema was checked already. Families judge values one by one, so columns of
    equal family are checked together. outputs: how many outputs of a circuit the labels may name.
    """
    width = table.shape[1]
    if width != len(families):
        raise DataError(f"data has {counted(width, 'column')}, the circuit has {counted(len(families), 'variable')}")
    if table.schema is None or table.schema.families != tuple(families):
        table = encode(table.to("cpu"), Schema.of(families, table.columns, table.codings))
    weights = None if table.weights is None else check_weights(table.weights)
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
    if not ((hidden is None and _in_range(table.values, schema)) or _all_fit(filled, hidden, schema)):
        found += find_misfits(filled, hidden, families)
        if unseen == "error":
            raise _refusal(table, filled, found[0], families)
    if found:
        report(found, table, schema, unseen)
        wrong = np.zeros(table.shape, dtype=np.bool_)
        for misfit in found:
            wrong[misfit.rows, misfit.column] = True
        hidden = wrong if hidden is None else hidden | wrong
        filled = np.where(hidden, 0, filled)
        impossible = torch.from_numpy(wrong) if unseen == "impossible" else None
    kept, dtype = torch.from_numpy(filled), torch.float64
    if schema.discrete:
        largest = float(kept.max())
        dtype = next(kind for kind in INTEGERS if largest <= torch.iinfo(kind).max)
    return replace(
        table,
        values=kept.to(dtype, copy=hidden is None, memory_format=torch.contiguous_format),
        observed=None if hidden is None else torch.from_numpy(~hidden),
        impossible=impossible,
        codings=None if schema.only_numbers else schema.codings,
        schema=schema,
    )


def _in_range(values: Tensor, schema: Schema) -> bool:  # (N, V)
    """Whether all values are whole numbers that fit because 0 to S - 1 do; else it is unknown. All threads help."""
    if values.is_floating_point() or not schema.discrete or not values.numel():
        return False
    largest = {family: _largest(family) for family in schema.by_family}
    known = [most for most in largest.values() if most is not None]
    lowest, highest = values.aminmax()
    if len(known) < len(largest) or lowest < 0:
        return False
    if highest <= min(known):
        return True
    return bool((values.numpy().max(0) <= np.array([largest[family] for family in schema.families])).all())


def _all_fit(filled: Array, hidden: NDArray[np.bool_] | None, schema: Schema) -> bool:  # (N, V)
    """Whether all observed values fit their families; columns of equal family are looked at together."""
    for family, numbers in schema.by_family.items():
        part = slice(None) if len(numbers) == len(schema) else numbers
        block = filled[:, part]
        observed = block.reshape(-1) if hidden is None else block[~hidden[:, part]]
        if misfit_reason(family, observed) is not None:
            return False
    return True


def _refusal(table: Table, filled: Array, misfit: Misfit, families: Sequence[Family]) -> DataError:
    """Names the first column with a value its family refuses, and the first row where it does."""
    row, family = int(misfit.rows[0]), families[misfit.column]
    value, cell = filled[row, misfit.column], table.cell(row, misfit.column)
    if family.discrete and not (value >= 0 and value == np.floor(value) and float(value) <= LARGEST):
        beyond = "negative" if value < 0 else f"larger than {LARGEST}"
        reason = beyond if value == np.floor(value) else "not a whole number"
        hint = (Argument("missing", -1, "; if -1 marks missing values, pass "),) if value == -1 else ()
        return DataError(f"{cell}: {value:.15g} is {reason}, but {family.name} takes whole numbers >= 0", *hint)
    why = misfit_reason(family, filled[row : row + 1, misfit.column])
    return DataError(f"{cell}: value {value:.15g} does not fit {family!r}: {why}")


def check_weights(weights: Tensor) -> Tensor:  # (N,) -> (N,)
    """The weights of rows, with 0 for those that are negligible; DataError unless they are finite and >= 0."""
    wrong = ~(weights.isfinite() & (weights >= 0))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(f"the weight of row {row + 1} is {float(weights[row]):g}; weights must be finite and >= 0")
    largest = float(weights.max())
    if largest == 0:
        raise DataError("all weights are zero")
    if not 1 / LARGEST_WEIGHT <= largest <= LARGEST_WEIGHT:
        raise DataError(f"the largest weight is {largest:g}; scale the weights so that it is between 1e-18 and 1e18")
    return torch.where(weights < largest / LARGEST_WEIGHT, 0.0, weights)


def _check_labels(labels: Tensor | None, outputs: int) -> Tensor | None:  # (N,) -> (N,)
    if labels is None:
        if outputs > 1:
            raise DataError(f"the circuit has {outputs} outputs: pass labels= to say which one each row belongs to")
        return None
    wrong = (labels < 0) | (labels >= outputs)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise DataError(f"the label of row {row + 1} is {int(labels[row])}; the circuit has outputs 0 to {outputs - 1}")
    return labels if outputs > 1 else None


class QuickCheck:
    """Says which plain arrays fit the families of a circuit; made once for a model.

    It accepts only what `check(as_table(data), families)` accepts, and raises nothing. All other data are passed to
    that slower check, which names the wrong value or accepts what is not handled here (frames, lists, masked arrays).
    """

    def __init__(self, families: Sequence[Family]) -> None:
        self._width = len(families)
        largest = [_largest(family) for family in families]
        bounded = [family.discrete for family in families]
        self._least = np.where(bounded, 0.0, -np.finfo(float).max)[:, None]  # (V, 1)
        self._most = np.array([LARGEST if most is None else most for most in largest], dtype=np.float64)[:, None]
        self._most[~np.array(bounded)] = np.finfo(float).max
        self._whole: slice | list[int] | None = [v for v, family in enumerate(families) if family.discrete] or None
        if self._whole is not None and len(self._whole) == self._width:
            self._whole = slice(None)
        self._others: dict[Family, list[int]] = {}
        for number, (family, most) in enumerate(zip(families, largest, strict=True)):
            if most is None:
                self._others.setdefault(family, []).append(number)

    def __call__(self, data: Any) -> Columns | None:
        """The columns of an array, tensor or table (N, V) that fits, in memory of their own; None for all else."""
        if isinstance(data, Table):
            data = np.asarray(data)
        if type(data) is Tensor and data.device.type == "cpu" and data.layout == torch.strided:
            data = data.detach().numpy() if data.dtype in NUMBERS else None
        if type(data) is not np.ndarray or data.ndim != 2 or data.dtype.kind not in "biuf":
            return None
        if data.shape[1] != self._width or not len(data):
            return None
        columns = np.array(data.T, dtype=np.float64, order="C")
        observed = ~np.isnan(columns) if data.dtype.kind == "f" else None
        if observed is not None and observed.all():
            observed = None
        if observed is not None:
            columns[~observed] = 0
        return (columns, observed) if self._fits(columns, observed) else None

    def _fits(self, columns: NDArray[np.float64], observed: NDArray[np.bool_] | None) -> bool:
        if not ((columns >= self._least) & (columns <= self._most)).all():
            return False
        if self._whole is not None:
            whole = columns[self._whole]
            if not (np.floor(whole) == whole).all():
                return False
        for family, numbers in self._others.items():
            block = columns[numbers]
            seen = block.reshape(-1) if observed is None else block[observed[numbers]]
            if misfit_reason(family, seen) is not None:
                return False
        return True


def _largest(family: Family) -> float | None:
    """S - 1 for a family that takes exactly 0, 1, ..., S - 1; None for all others, which are asked value by value."""
    support = family.support()
    if not family.discrete or support is None or not counts_from_zero(support):
        return None
    tried = support[:: len(support) - 1 or 1] if isinstance(support, range) else support  # the ends of a range
    taken = family.check_values(np.array(tried)) is None
    return float(len(support) - 1) if taken and family.check_values(np.array([len(support)])) is not None else None
