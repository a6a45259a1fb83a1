"""The one function that all data of users go through: anything like a table -> `Table`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circurve.data.convert import (
    Array,
    Coded,
    Names,
    coded_column,
    column_label,
    native,
    stack,
    unmasked,
)
from circurve.data.frames import as_narwhals, read_frame, read_mapping, read_records
from circurve.data.need import check_data
from circurve.data.table import Places, Table, table_of, with_codings
from circurve.errors import DataError, OptionError
from circurve.words import counted

__all__ = ["Examples", "as_table", "refuse_stream"]


def as_table(
    data: Any, *, weights: Any = None, labels: Any = None, missing: int | None = None, missing_mask: Any = None
) -> Table:
    """Take a table of any kind: an array, a tensor, nested lists, a data frame, columns by name, a sparse matrix.

    Data frames may be of pandas, polars or pyarrow. Columns by name are a mapping `{"age": [30, 41]}`, a single row
    `{"age": 30}`, or a list of such rows. Numbers keep their type (unsigned ones may be widened); true and false become
    0 and 1, text the numbers of its categories, dates days: `Table.codings` says how.
    NaN, None, pandas.NA and the masked entries of a masked array are missing; so are values equal to `missing` (-1,
    say) and entries where `missing_mask` (N, V) is true. weights, labels: (N,) numbers. Raises DataError for whatever
    is not a table, and OptionError for what a given table has already.
    """
    refuse_stream(data)
    table = data if isinstance(data, Table) else _from_source(data)
    if not len(table):
        raise DataError("data has no rows")
    for name, value in {"weights": weights, "labels": labels, "missing": missing}.items():
        if value is not None and getattr(table, name) is not None:
            raise OptionError(f"{name}= is given twice, in the table (Examples) and as an argument; leave one out")
    if missing is not None or missing_mask is not None:
        table = _hide(table, missing, missing_mask)
    if weights is not None:
        table = replace(table, weights=_vector(weights, len(table), "weights"))
    if labels is None:
        return table
    whole = _vector(labels, len(table), "labels")
    if not bool((whole.isfinite() & (whole == whole.floor())).all()):
        raise DataError("labels must be whole numbers")
    return replace(table, labels=whole.long())


def refuse_stream(data: Any) -> None:
    """DataError for a `Stream`, which numpy would load silently, and for a list of batches."""
    if callable(getattr(data, "pieces", None)):
        raise DataError(
            f"{data!r} is not loaded into memory here: pass some rows at a time, `for piece in stream.pieces()`, "
            "or a table"
        )
    if isinstance(data, list | tuple) and data and len(getattr(data[0], "shape", ())) == 2:
        raise DataError(
            f"data is a list of {len(data)} tables, which is read like a stream, but here one table is needed: "
            "join them with numpy.concatenate or pandas.concat"
        )


def Examples(  # noqa: N802 - it was a class, and reads like one where it is used
    data: Any,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    *,
    memory_budget: int | None = None,
) -> Table:
    """Rows of data with their weights and labels; `fit` takes one wherever it takes plain data.

    Parameters
    ----------
    data : array, tensor, list, data frame, mapping or sparse matrix
        Rows x columns.
    weights : array, optional
        (N,): how much each row counts, at least 0. They are checked where they are used: by `fit`, `hclt`, `curvature`.
    labels : array, optional
        (N,): which output of a circuit with several roots each row belongs to.
    missing : int, optional
        A number that marks missing values in whole numbers, in addition to NaN.
    memory_budget : int, optional
        Memory limit for the table, in bytes; checked before memory is allocated.

    Returns
    -------
    Table
        The rows, checked.

    Raises
    ------
    DataError
        If the data do not form a table, or weights and labels do not fit it.

    Examples
    --------
    >>> import circurve as cc
    >>> rows = cc.Examples([[0, 1], [1, -1]], weights=[2, 1], missing=-1)
    >>> rows
    <Table: 2 rows x 2 columns; int64; 1 value missing; weights>
    >>> rows.observed
    tensor([[ True,  True],
            [ True, False]])
    """
    check_data("Examples", memory_budget, data)
    return as_table(data, weights=weights, labels=labels, missing=missing)


def _from_source(data: Any) -> Table:
    if isinstance(data, Mapping):
        return _coded_table(*read_mapping(data))
    if isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data):
        return _coded_table(*read_records(data))
    if (frame := as_narwhals(data)) is not None:
        return _coded_table(*read_frame(frame))
    array = _as_array(data)
    _check_shape(array, data)
    if isinstance(array, np.ma.MaskedArray):
        array = unmasked(array)
    if array.dtype.kind in "biuf":
        return table_of(native(array))
    columns = [coded_column(array[:, v], column_label(None, v)) for v in range(array.shape[1])]
    return _coded_table(None, columns)


def _coded_table(names: Names, columns: Sequence[Coded], places: Places | None = None) -> Table:
    """A table of columns of equal length."""
    if not columns:
        raise DataError("data has no columns")
    if not len(columns[0].values):
        raise DataError("data has no rows")
    return with_codings(table_of(stack(columns), names, places), columns)


def _hide(table: Table, missing: int | None, missing_mask: Any) -> Table:
    """The table with more values missing: those equal to `missing`, and where the mask is true."""
    values = table.values.cpu().numpy()
    hidden = np.zeros(values.shape, dtype=np.bool_)
    if missing is not None:
        if isinstance(missing, bool) or not isinstance(missing, int | np.integer):
            raise OptionError(f"missing must be a whole number or None, not {missing!r}")
        hidden |= values == int(missing)
    if missing_mask is not None:
        wanted = f"missing_mask must be boolean of shape {values.shape}"
        mask = _plain(missing_mask, f"{wanted}, but its rows differ in length")
        if mask.dtype != np.bool_ or mask.shape != values.shape:
            raise DataError(f"{wanted}, not {mask.dtype} of shape {mask.shape}")
        hidden |= mask
    table = replace(table, missing=table.missing if missing is None else int(missing))
    if not hidden.any():
        return table
    observed = torch.from_numpy(~hidden).to(table.values.device)
    return replace(table, observed=observed if table.observed is None else table.observed & observed)


def _vector(values: Any, rows: int, name: str) -> Tensor:  # (N,) float64
    vector = _plain(values, f"{name} must be a list of {rows} numbers")
    if vector.shape != (rows,):
        raise DataError(f"{name} have shape {vector.shape}, expected ({rows},)")
    if vector.dtype.kind not in "biuf":
        raise DataError(f"{name} must be numbers, not {vector.tolist()[0]!r}")
    return torch.from_numpy(vector.astype(np.float64))


def _plain(values: Any, ragged: str) -> Array:
    """The values as a numpy array; `ragged` is what to say where their rows differ in length."""
    try:
        return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    except ValueError:
        raise DataError(ragged) from None


def _as_array(data: Any) -> Array:
    if isinstance(data, np.ndarray):
        return data
    if isinstance(data, Tensor):
        dense = data.detach().cpu().to_dense().resolve_conj().resolve_neg()
        narrow = dense.is_floating_point() and dense.element_size() < 4  # numpy does not know all of these
        return np.asarray((dense.float() if narrow else dense).numpy())
    if any(k.__module__.startswith("scipy.sparse") for k in type(data).__mro__):
        return np.asarray(data.toarray())
    try:
        array = np.asarray(data)
    except (ValueError, TypeError):
        raise DataError(_why_no_table(data)) from None
    # numpy turns [[1, "a"]] into text throughout; as objects, the culprit can still be told from its neighbours
    return np.array(data, dtype=object) if array.dtype.kind in "US" and isinstance(data, Sequence) else array


def _why_no_table(data: Any) -> str:
    lengths = [len(row) if hasattr(row, "__len__") else 0 for row in data] if isinstance(data, Sequence) else []
    for row, length in enumerate(lengths):
        if length != lengths[0]:
            return f"rows differ in length: row 1 has {counted(lengths[0], 'value')}, row {row + 1} has {length}"
    return f"the {type(data).__name__} does not form rows x columns of numbers"


def _check_shape(array: Array, data: object) -> None:
    shape = array.shape
    if not shape:
        read = "; read the file with load_data" if isinstance(data, str | os.PathLike) else ""
        raise DataError(f"data must be a table, rows x columns of numbers, not a {type(data).__name__}{read}")
    if not shape[0]:
        raise DataError("data has no rows")
    if len(shape) == 1 and array.dtype.names is not None:
        raise DataError(
            "data is a structured array, expected rows x columns; pass {name: data[name] for name in data.dtype.names}"
        )
    if len(shape) == 1 and hasattr(data, "to_frame"):
        raise DataError(
            f"data has 1 dimension (shape {shape}), expected rows x columns; "
            "for a single column pass data.to_frame(), for a single row a mapping such as data.to_dict()"
        )
    if len(shape) == 1:
        raise DataError(
            f"data has 1 dimension (shape {shape}), expected rows x columns; "
            "for a single row use data.reshape(1, -1), for a single column data.reshape(-1, 1)"
        )
    if len(shape) > 2:
        raise DataError(f"data has {len(shape)} dimensions (shape {shape}), expected rows x columns")
    if not shape[1]:
        raise DataError("data has no columns")
