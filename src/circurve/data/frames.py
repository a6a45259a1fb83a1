"""Data frames of pandas, polars, pyarrow and others in, and frames of the same kind out, through narwhals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import narwhals as nw
import numpy as np
from torch import Tensor

from circurve.data.convert import (
    Array,
    Coded,
    Names,
    by_category,
    coded_column,
    column_label,
    from_objects,
    is_missing,
    native,
    refuse_repeated,
)
from circurve.data.frame_bounds import TEXTS
from circurve.data.table import Places
from circurve.errors import DataError
from circurve.words import counted

__all__ = ["as_narwhals", "columns_of", "make_frame", "read_frame", "read_mapping", "read_records"]

FRAMES = ("pandas", "polars", "pyarrow")
"""What `make_frame` makes where nothing says which, the first one that is installed."""


def as_narwhals(data: object) -> Any:
    """The frame behind narwhals' interface; None for anything that is no data frame."""
    if isinstance(data, np.ndarray | Tensor | Mapping | list | tuple):
        return None
    try:
        frame = nw.from_native(data, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = getattr(data, "column_names", None)  # of pyarrow, whose `columns` are the values
        refuse_repeated(list(getattr(data, "columns", ()) if names is None else names))
        raise
    if frame is data and type(data).__module__.startswith("pyarrow.") and hasattr(data, "to_struct_array"):
        import pyarrow as pa  # noqa: PLC0415 - the data are pyarrow's

        return as_narwhals(pa.Table.from_batches([data])) if isinstance(data, pa.RecordBatch) else None
    if isinstance(frame, nw.LazyFrame):
        return frame.collect()
    return frame if isinstance(frame, nw.DataFrame) else None


def read_frame(frame: Any) -> tuple[Names, list[Coded], Places | None]:
    """Names, columns and row labels; names that are only numbers from 0 up count as no names."""
    listed = list(frame.columns)
    names = None if listed == list(range(len(listed))) else tuple(str(name) for name in listed)
    if names is not None:
        refuse_repeated(names)
    if not len(frame):
        raise DataError("data has no rows")
    columns = _read_numbers(frame)
    if frame.implementation.is_pyarrow():
        columns = _read_arrow(frame.to_native(), names)
    elif columns is None:
        columns = [_read_series(series, column_label(names, v)) for v, series in enumerate(frame.iter_columns())]
    return names, columns, _index(frame)


def _read_numbers(frame: Any) -> list[Coded] | None:
    """The columns of a frame of plain numbers, all at once; None for any other frame."""
    if not frame.implementation.is_pandas():
        return None
    native_frame = frame.to_native()
    kinds = {dtype.kind if isinstance(dtype, np.dtype) else "other" for dtype in native_frame.dtypes}
    if not kinds <= {"i", "u", "f"} or len(set(native_frame.dtypes)) > 1:
        return None
    return [Coded(native(column)) for column in native_frame.to_numpy().T]


def _read_arrow(table: Any, names: Names) -> list[Coded]:
    """The columns of a table of pyarrow; narwhals, which takes long for each column, only looks at those of text."""
    columns = []
    for v, column in enumerate(table.columns):
        label = column_label(names, v)
        if str(column.type).startswith(TEXTS):
            columns.append(_read_series(nw.from_native(column, series_only=True), label))
        else:
            columns.append(coded_column(column.to_numpy(), label))
    return columns


def read_mapping(data: Mapping[Any, Any]) -> tuple[Names, list[Coded], Places | None]:
    """Columns by name: lists of equal length, or single values for one row (with lists, they are repeated)."""
    names = tuple(str(name) for name in data)
    refuse_repeated(names)
    for v, values in enumerate(data.values()):
        if isinstance(values, set | frozenset | Mapping):
            kind = type(values).__name__
            raise DataError(f"{column_label(names, v)} is a {kind}, which has no order of rows; pass a list")
    many = {name: values for name, values in zip(names, data.values(), strict=True) if _is_list(values)}
    lengths = {name: len(values) for name, values in many.items()}
    rows = next(iter(lengths.values()), 1)
    wrong = next((name for name, length in lengths.items() if length != rows), None)
    if wrong is not None:
        first = next(iter(lengths))
        raise DataError(
            f"columns differ in length: {first!r} has {counted(rows, 'value')}, {wrong!r} has {lengths[wrong]}"
        )
    columns = []
    for v, (name, values) in enumerate(zip(names, data.values(), strict=True)):
        label = column_label(names, v)
        if name not in many:
            columns.append(from_objects([values] * rows, label))
        elif isinstance(series := nw.from_native(values, series_only=True, pass_through=True), nw.Series):
            columns.append(_read_series(series, label))
        else:
            array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
            plain = array.ndim == 1 and array.dtype.kind in "biufMmc"
            columns.append(coded_column(array, label) if plain else from_objects(list(values), label))
    return names, columns, None


def read_records(data: Sequence[Mapping[Any, Any]]) -> tuple[Names, list[Coded], Places | None]:
    """Rows that name their columns; a name that a row does not have is a missing value there."""
    names = dict.fromkeys(name for row in data for name in row)
    return read_mapping({name: [row.get(name) for row in data] for name in names})


def make_frame(columns: Mapping[str, Array], like: Any = None) -> Any:
    """A data frame of the kind of `like`: pandas, polars or pyarrow; numpy for arrays and tensors of numbers.

    With as many rows as `like`, a pandas frame has its index. Columns that are categorical in `like` are so again, and
    times are in the time zone that they have there.
    For any other `like`, and for None: pandas if it is installed, else polars, else pyarrow, else a dict of arrays.
    """
    if isinstance(like, np.ndarray | Tensor) and all(array.dtype.kind in "biuf" for array in columns.values()):
        return np.stack(list(columns.values()), axis=1) if columns else np.empty((0, 0))
    frame = as_narwhals(like)
    if frame is None:
        backend = next((name for name in FRAMES if find_spec(name) is not None), None)
        if backend is None:
            return dict(columns)
        return _from_columns(columns, backend).to_native()
    made = _from_columns(columns, frame.implementation)
    again = [
        nw.col(name).cast(frame.schema[name])
        for name in made.columns
        if frame.schema.get(name) in (nw.Categorical, nw.Enum) and made[name].dtype == nw.String
    ]
    again += [
        _like_times(made[name], frame[name])
        for name in made.columns
        if name in frame.columns and made[name].dtype in (nw.Date, nw.Datetime)
    ]
    made = made.with_columns(*again) if again else made
    native_frame = made.to_native()
    if len(made) == len(frame) and (index := nw.maybe_get_index(frame)) is not None:
        native_frame.index = index
    return native_frame


def _like_times(times: Any, like: Any) -> Any:
    """Dates or times in UTC as times, in the time zone, that the column `like` has; as they are if it has no times."""
    zone = getattr(like.to_native().dtype, "tz", None) if like.implementation.is_pandas() else None
    if zone is not None:  # narwhals does not know the names of all zones of pandas
        return nw.from_native(times.to_native().dt.tz_localize("UTC").dt.tz_convert(zone), series_only=True)
    if not isinstance(like.dtype, nw.Datetime):
        return times
    times = times.cast(nw.Datetime("us"))
    zone = like.dtype.time_zone
    return times if zone is None else times.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)


def columns_of(frame: Any) -> dict[str, Any]:
    """The columns of what `make_frame` made, by name, as arrays or lists."""
    if isinstance(frame, Mapping):
        return dict(frame)
    if isinstance(frame, np.ndarray):
        return {str(number): column for number, column in enumerate(frame.T)}
    table = as_narwhals(frame)
    return {name: table[name].to_numpy() for name in table.columns}


def _from_columns(columns: Mapping[str, Array], backend: Any) -> Any:
    """Object arrays go in as lists: every library finds the type of these by itself."""
    plain = {name: array.tolist() if array.dtype.kind == "O" else array for name, array in columns.items()}
    series = [nw.new_series(name, values, backend=backend) for name, values in plain.items()]
    return nw.from_dict({s.name: s for s in series}, backend=backend)


def _is_list(values: object) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str | bytes) and getattr(values, "ndim", 1) > 0


def _index(frame: Any) -> Places | None:
    """The index of a pandas frame, where it says more than the numbers of its rows."""
    index = nw.maybe_get_index(frame)
    if index is None or bool((np.asarray(index) == np.arange(len(frame))).all() if index.dtype.kind in "iu" else False):
        return None
    return Places("index", index)


def _read_series(series: Any, label: str) -> Coded:
    dtype = series.dtype
    if series.implementation.is_pyarrow() and dtype in (nw.Categorical, nw.String):
        found = _read_dictionary(series.to_native())
        if found is not None:
            return found
    if dtype in (nw.Categorical, nw.Enum):
        return _read_categories(series, label)
    if dtype == nw.String:
        values = series.to_list()
        return by_category(values, sorted({value for value in values if isinstance(value, str)}))
    if dtype in (nw.Int128, nw.UInt128):  # numpy has no such integers
        return from_objects(series.to_list(), label)
    return coded_column(series.to_numpy(), label)


def _read_dictionary(column: Any) -> Coded | None:
    """A column of pyarrow that holds text, plain or in dictionaries: each different text is looked at once.

    None for dictionaries of other values.
    """
    import pyarrow as pa  # noqa: PLC0415 - the column is one of pyarrow's

    listed = pa.types.is_dictionary(column.type)
    whole = (column.unify_dictionaries() if listed else column).combine_chunks()
    encoded = whole if listed else whole.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    if not all(isinstance(value, str) for value in distinct):
        return None
    codes = encoded.indices.cast(pa.int64()).fill_null(len(distinct)).to_numpy()
    present = sorted({distinct[code] for code in np.unique(codes) if code < len(distinct)})
    coded = by_category([*distinct, None], present)
    values = coded.values[codes]
    return Coded(values if np.isnan(values).any() else values.astype(np.int64), coded.coding)


def _read_categories(series: Any, label: str) -> Coded:
    """Categories as they were declared, where a frame has a declaration of its own; otherwise those that occur."""
    if series.dtype == nw.Enum:
        listed = list(series.dtype.categories)
    elif series.implementation.is_pandas_like() and hasattr(series.to_native(), "cat"):
        listed = series.to_native().cat.categories.tolist()
    else:  # also pandas' columns of pyarrow's dictionaries
        listed = sorted({value for value in series.to_list() if not is_missing(value)})
    values = [value.item() if isinstance(value, np.generic) else value for value in listed]
    if not all(isinstance(value, str | int | float) for value in values):
        return from_objects(series.to_list(), label)
    return by_category(series.to_list(), values)
