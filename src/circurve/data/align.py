"""Any table in the order and coding of a schema, by column name; ready for the engine; back to original values."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from circurve.data.check import check, encode
from circurve.data.convert import Array, Names, about, column_label
from circurve.data.entry import as_table
from circurve.data.recode import decode_column, recoded
from circurve.data.scan import SAMPLED_ROWS
from circurve.data.source import RowSource
from circurve.data.table import Table
from circurve.data.unseen import Misfit, Unseen, check_unseen
from circurve.errors import Argument, DataError, OptionError, warn_user
from circurve.graph import Circuit
from circurve.inputs import Family
from circurve.schema import Coding, Schema, nearest
from circurve.words import counted

__all__ = ["MissingColumns", "align", "decode", "in_order", "log_unseen", "prepare", "warn_of_lost_digits"]

MissingColumns: TypeAlias = Literal["error", "missing"]

MAX_MEAN_IN_SPREADS = {torch.float32: 1e5, torch.float64: 1e7}
"""How many spreads a column's mean may be away from zero before log-likelihoods lose their second digit; sums of
squares set the limit of float64."""

MIN_RANGE = 1e-14
"""A column needs a wider range: standard deviations of a Gaussian are at least 1e-15."""

EMPTY_SCORES = "each counts as log 1 = 0 in mean log-likelihoods; remove them to score the other rows"
EMPTY_ROWS = {
    "train": "they only slow EM down, and each counts as log 1 = 0 in mean log-likelihoods; remove them",
    "curvature": "each adds a trace that the model alone decides; remove them to measure the other rows",
}
"""How rows without a value count, by what the rows are for; elsewhere as EMPTY_SCORES says."""


def align(
    data: Any,
    schema: Schema,
    *,
    missing: int | None = None,
    unseen: Unseen = "impossible",
    missing_columns: MissingColumns = "error",
) -> Table:
    """The data as a checked table with the columns of the schema.

    Data frames and columns by name are put in order by their names; arrays, and tables without names, by position.
    Numbers in a column of text or dates are codes or days, as `decode` takes them, where the columns have no names.
    A column that the schema does not know is a DataError; one that the data lack is one too, or missing values with
    missing_columns="missing".
    unseen: what to do with a value that was not seen in training, or that no family accepts. "impossible" marks it in
    `Table.impossible`, so that its row has probability zero, and warns once; "missing" takes it as not observed;
    "error" raises DataError.
    """
    check_unseen(unseen)
    if missing_columns not in ("error", "missing"):
        raise OptionError(f"missing_columns must be 'error' or 'missing', not {missing_columns!r}")
    table = as_table(data, missing=missing)
    if table.schema is not None and table.schema == schema:
        return table
    table, misfits = _in_codings(in_order(table.to("cpu"), schema, missing_columns), schema)
    return encode(table, schema, unseen, misfits)


def prepare(  # noqa: PLR0913 - what comes with rows, and what to do with them
    data: Any,
    circuit: Circuit,
    what: str,
    *,
    schema: Schema | None = None,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    unseen: Unseen = "error",
) -> Table:
    """Align data to the schema, by default that of the circuit, and check them; `what` ("train") opens every message.

    Without a schema, the data's own names and codings make one, with the families of the circuit; a frame whose columns
    are called 2, 0 and 1 is put in order by these numbers.
    """
    with about(f"{what} data"):
        table = as_table(data, weights=weights, labels=labels, missing=missing)
        schema = schema or circuit.schema
        if schema is not None:
            table = align(table, schema, unseen=unseen)
        elif are_numbers(table.columns, circuit):
            table = in_order(table, Schema.of(circuit.families), "error")
        table = check(table, circuit.families, circuit.outputs)
    empty, rows = table.empty_rows, len(table)
    if empty == rows:
        raise DataError(f"{what} data: every value is missing")
    if empty:
        warn_user(f"{what} data: {empty} of {rows} rows have no observed value; {EMPTY_ROWS.get(what, EMPTY_SCORES)}")
    return table


def warn_of_lost_digits(train: RowSource, families: Sequence[Family], dtype: torch.dtype) -> None:
    """Warn of a column whose values are too close together: for the precision, or for the least variance."""
    continuous = [v for v, family in enumerate(families) if not family.discrete]
    if not continuous:
        return
    values = train[:: 1 + len(train) // SAMPLED_ROWS, continuous]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without a value has no mean
        mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        reach = np.nanmax(values, axis=0) - np.nanmin(values, axis=0)
    for number in np.flatnonzero((reach > 0) & (reach < MIN_RANGE)):
        return warn_user(
            f"train data: the values of {column_label(train.columns, continuous[number])} are within "
            f"{reach[number]:.2g} of each other, too close to be told apart: multiply the column by a large number"
        )
    for number in np.flatnonzero((spread > 0) & (np.abs(mean) > MAX_MEAN_IN_SPREADS[dtype] * spread)):
        label = column_label(train.columns, continuous[number])
        enough = abs(mean[number]) <= MAX_MEAN_IN_SPREADS[torch.float64] * spread[number]
        return warn_user(
            f"train data: {label} has a spread of {spread[number]:.2g} around {mean[number]:.6g}, more digits than "
            f"{str(dtype).removeprefix('torch.')} can store: subtract a constant from the column",
            *((Argument("precision", "float64", ", or use "),) if enough else ()),
        )


def decode(values: Any, schema: Schema) -> dict[str, Array]:  # (N, V)
    """The columns of encoded values with their original values: categories by name, dates, booleans, whole numbers.

    values: an array or tensor with NaN for what is missing, or a table. Columns without names are called "0", "1", ...
    """
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 2 or array.shape[1] != len(schema):
        raise DataError(f"values have shape {array.shape}, expected rows x {len(schema)} columns")
    names = schema.labels
    columns = zip(names, schema.columns, array.T, strict=True)
    return {name: decode_column(values, column.coding, column.family.discrete) for name, column, values in columns}


def log_unseen(table: Table) -> Tensor | None:  # (N,) float64
    """What unseen values add to the log-probability of each row of an aligned table; None: nothing.

    An unseen value of a column with `unseen_share` s adds log s, a value that was seen log(1 - s). Without a share, an
    unseen value has probability zero: it adds -inf.
    """
    shares = np.array([column.unseen_share for column in table.schema.columns] if table.schema is not None else [])
    if table.impossible is None and not shares.any():
        return None
    device = table.values.device
    share = torch.from_numpy(shares).to(device)
    total = torch.zeros(len(table), dtype=torch.float64, device=device)
    if shares.any():
        seen = torch.ones_like(table.values, dtype=torch.bool) if table.observed is None else table.observed
        total += seen.double() @ torch.log1p(-share)
    if table.impossible is not None:
        total += torch.where(table.impossible, share.log(), 0.0).sum(1)
    return total


def are_numbers(columns: Names, circuit: Circuit) -> bool:
    """Whether names of columns are the numbers of the variables of a circuit, in any order."""
    return columns is not None and set(columns) == {str(number) for number in range(circuit.variables)}


def in_order(table: Table, schema: Schema, missing_columns: MissingColumns) -> Table:
    """The columns of the schema, by name where both have names, else by position.

    A frame whose columns are called 2, 0 and 1 has names; where the schema has none, they are numbers of its columns.
    """
    names = schema.names
    if names is None and set(table.columns or ()) <= set(schema.labels) and table.columns is not None:
        names = schema.labels
    if table.columns is None or names is None:
        if table.shape[1] != len(schema):
            hint = "" if names is None else "; to leave columns out, pass a data frame with named columns"
            given, wanted = counted(table.shape[1], "column"), counted(len(schema), "variable")
            raise DataError(f"data has {given}, the circuit has {wanted}{hint}")
        return table
    if table.columns == names:
        return table
    unknown = [name for name in table.columns if name not in names and name not in schema.ignored]
    if unknown:
        raise DataError(f"no column {unknown[0]!r} in the training data{nearest(unknown[0], names)}")
    place = {name: number for number, name in enumerate(table.columns)}
    lacking = [name for name in names if name not in place]
    if lacking and missing_columns == "error":
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise DataError(
            f"the data has no column {lacking[0]!r}{more}, but the training data has; add an empty column of that name",
            Argument("missing_columns", "missing", ", or pass "),
        )
    return table.pick([place.get(name) for name in names], schema.names)


def _in_codings(table: Table, schema: Schema) -> tuple[Table, list[Misfit]]:
    """The table in the codings of the schema, and the cells whose values are none of its categories."""
    bare = table.columns is None
    table = replace(table, columns=schema.names if bare else table.columns)
    if table.codings is None and schema.only_numbers:
        return table, []
    old, new = table.codings or (Coding(),) * len(schema), schema.codings
    if bare:
        old = tuple(b if a.kind == "number" and _means_codes(b) else a for a, b in zip(old, new, strict=True))
    return recoded(table, old, new)


def _means_codes(coding: Coding) -> bool:
    """Whether a bare number can only be meant as a code of this coding."""
    return coding.kind == "date" or any(isinstance(value, str) for value in coding.categories or ())
