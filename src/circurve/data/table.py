"""The one record that carries data from their source to the engine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from circurve.data.convert import Array, Coded, Names, column_label, first_true
from circurve.errors import DataError
from circurve.schema import Coding, Schema
from circurve.words import counted

__all__ = ["Places", "Table", "table_of", "with_codings"]

SHOWN_NAMES = 5
"""How many column names the one-line description of a table shows."""

SIGNED_TYPES = {"uint16": np.int32, "uint32": np.int64}
"""Unsigned types with few torch operations -> the signed type that holds all of their values."""


@dataclass(frozen=True, eq=False)
class Places:
    """A label for each row: lines of a file, counted from 1 with the header, numbers, or the index of a data frame."""

    word: str
    """What a label is: `line`, `row` (its number in a longer table) or `index`."""

    labels: Sequence[Any]
    """One for each row."""

    def at(self, row: int) -> str:
        """`line 9`, `row 8`, or `row 8 (index 'Rome')`; all count from 1."""
        label = self.labels[row]
        label = label.item() if isinstance(label, np.generic) else label
        return f"row {row + 1} (index {label!r})" if self.word == "index" else f"{self.word} {label}"

    def rows(self, index: slice | np.ndarray) -> Places:
        """The labels of some rows."""
        if isinstance(index, slice):
            return replace(self, labels=self.labels[index])
        return replace(self, labels=np.asarray(self.labels)[index])


class ArrayLike(NDArrayOperatorsMixin):
    """Operators and methods of `np.asarray(self)`, which do not change it. A subclass defines `__array__`.

    Results are numpy arrays. Like an array, it compares element by element and has no hash.
    """

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        array = np.asarray(self).view()
        array.flags.writeable = False  # a method that changes an array fails, even on a copy that no one would see
        return getattr(array, name)

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = (np.asarray(each) if isinstance(each, ArrayLike) else each for each in inputs)
        return getattr(function, method)(*arrays, **options)

    def __iter__(self) -> Iterator[Array]:
        return iter(np.asarray(self))

    def __contains__(self, value: object) -> bool:
        return value in np.asarray(self)


@dataclass(frozen=True, eq=False, repr=False)
class Table(ArrayLike):
    """Rows x columns of numbers, with names, missing values, and the weights and labels of the rows.

    `Examples` and `load_data` make one, and so does every function that takes data. It reads like a numpy array of
    shape (N, V), with NaN for what is missing: `np.asarray(table)`, `table[3]`, `table[:, 0]`, `table == 1`,
    `table.mean(axis=0)`. Two things differ: a choice of rows, `table[:10]`, is a table again, and `table + table` is
    the rows of the first, then those of the second. A table does not change; `np.array(table)` is a copy that does.

    Examples
    --------
    >>> import circurve as cc
    >>> table = cc.Examples({"city": ["Oslo", "Rome", None], "price": [1.5, 2.5, 4.0]})
    >>> table.columns
    ('city', 'price')
    >>> table[:2]
    <Table: 2 rows x 2 columns; float64; columns city, price; 0 values missing>
    >>> table[:, 1]
    array([1.5, 2.5, 4. ])
    """

    values: Tensor  # (N, V)
    """Integers or floats, on any device; they may share memory with the source. Values are arbitrary where `observed`
    is false; in a checked table it is 0."""

    columns: Names = None
    """The names of the columns; None if they have none."""

    observed: Tensor | None = None  # (N, V) bool
    """False where a value is missing; None if nothing is."""

    weights: Tensor | None = None  # (N,) float64
    """How much each row counts; None: each row once."""

    labels: Tensor | None = None  # (N,) int64
    """Which output of a circuit with several each row belongs to."""

    schema: Schema | None = None
    """The families that the values were checked against; None before `check`."""

    missing: int | None = None
    """The number that marked missing values in the source, where one was given."""

    codings: tuple[Coding, ...] | None = None
    """How the numbers encode text, dates, true and false; None: all columns are plain numbers."""

    impossible: Tensor | None = None  # (N, V) bool
    """True where a value is one that was not seen in training; it then counts as not observed. None: there is none."""

    places: Places | None = None
    """The rows' lines in a file, or their labels in a data frame; None: rows have numbers only."""

    source: str | None = None
    """What read the table from a file, such as `pyarrow 26.0.1`."""

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def shape(self) -> tuple[int, int]:
        """(N, V)."""
        return int(self.values.shape[0]), int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of `np.asarray(table)`: a floating one where values are missing."""
        return np.asarray(self.rows(slice(0))).dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        fields = (self.values, self.observed, self.weights, self.labels, self.impossible)
        return sum(field.numel() * field.element_size() for field in fields if field is not None)

    @property
    def empty_rows(self) -> int:
        """How many rows have no observed value; their probability is 1."""
        return 0 if self.observed is None else int((~self.observed.any(1)).sum())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self._read(slice(None))
        shared = self.observed is None and self.values.device.type == "cpu"
        if copy is False and not (shared and (dtype is None or np.dtype(dtype) == array.dtype)):
            raise ValueError("a table with missing values, or in another type, cannot be read without a copy")
        return (
            np.array(array, dtype=dtype) if copy else array.astype(array.dtype if dtype is None else dtype, copy=False)
        )

    def __getitem__(self, key: Any) -> Any:
        """A table for a slice, a list of row numbers or a mask of rows; a numpy array or a number for all else."""
        if isinstance(key, slice) or (isinstance(key, list | np.ndarray | Tensor) and np.ndim(key) == 1):
            return self.rows(key)
        return self._read(key)[()]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a Table cannot be changed: make a copy with np.array(table) and change the copy")

    def _read(self, key: Any) -> Array:
        """A part of the table, read-only where it shares memory; integers with gaps become floats that hold them."""
        values = np.asarray(self.values.detach().cpu().numpy()[key])
        if self.observed is not None:
            dtype = np.promote_types(values.dtype, np.float32)
            observed = self.observed.cpu().numpy()[key]
            return np.where(observed, values.astype(dtype, copy=False), np.array(np.nan, dtype=dtype))
        if self.values.device.type == "cpu" and np.may_share_memory(values, self.values.detach().numpy()):
            values = values.view()
            values.flags.writeable = False
        return values

    def _each(self, change: Callable[[Tensor], Tensor]) -> Table:
        """The table with all its tensors changed."""
        fields = ("values", "observed", "weights", "labels", "impossible")
        names = [name for name in fields if getattr(self, name) is not None]
        changed: dict[str, Any] = {name: change(getattr(self, name)) for name in names}
        return replace(self, **changed)

    def rows(self, index: Any) -> Table:
        """Some rows, with all that belongs to them.

        Parameters
        ----------
        index : slice, list, array or Tensor
            A slice, row numbers from 0, or a mask of all rows.

        Returns
        -------
        Table
            As `table[index]`.
        """
        chosen = _as_index(index, len(self), self.values.device)
        part = self._each(lambda field: field[chosen])
        if self.places is None:
            return part
        return replace(part, places=self.places.rows(chosen if isinstance(chosen, slice) else chosen.cpu().numpy()))

    @property
    def known_values(self) -> int:
        """How many values are not missing."""
        return self.values.numel() if self.observed is None else int(self.observed.sum())

    def order(self, generator: torch.Generator) -> Tensor:  # (N,)
        """Row numbers in random order, for one epoch.

        Parameters
        ----------
        generator : torch.Generator
            Where random numbers come from.

        Returns
        -------
        Tensor
            (N,).
        """
        return torch.randperm(len(self), generator=generator)

    def take(self, index: Tensor) -> tuple[Table, Tensor]:
        """The table itself and the index: all rows are in memory (see `RowSource`)."""
        return self, index

    def span(self, start: int, stop: int) -> tuple[Table, slice]:
        """The table itself and the slice."""
        return self, slice(start, stop)

    def pick(self, order: Sequence[int | None], names: Names) -> Table:
        """Some columns in another order, unchecked.

        Parameters
        ----------
        order : sequence of int or None
            Column numbers from 0; None is a column of missing values.
        names : tuple of str or None
            What the columns are called then.

        Returns
        -------
        Table
            It has no schema.
        """
        source, absent = [number or 0 for number in order], [number is None for number in order]
        values, observed = self.values[:, source], self.observed
        if any(absent):
            observed = torch.ones_like(self.values, dtype=torch.bool) if observed is None else observed
        if observed is not None:
            observed = observed[:, source].clone()
            observed[:, absent] = False
        codings = None if self.codings is None else tuple(self.codings[number] for number in source)
        return replace(self, values=values, observed=observed, columns=names, codings=codings, schema=None)

    def cell(self, row: int, column: int) -> str:
        """How messages name a cell.

        Parameters
        ----------
        row, column : int
            Both from 0.

        Returns
        -------
        str
            Such as `column 2 ('age'), line 9`, which count from 1.
        """
        place = f"row {row + 1}" if self.places is None else self.places.at(row)
        return f"{column_label(self.columns, column)}, {place}"

    def bare(self) -> Table:
        """A table of the same rows without weights and labels.

        Returns
        -------
        Table
            It shares its values with this one.
        """
        return replace(self, weights=None, labels=None)

    def to(self, device: str | torch.device) -> Table:
        """The table on a device.

        Parameters
        ----------
        device : str or torch.device
            Where its tensors are to be.

        Returns
        -------
        Table
            It shares the tensors that are there already.
        """
        return self._each(lambda field: field.to(device))

    def __add__(self, other: Any) -> Any:
        """The rows of both tables; with anything else than a table, the sum of numpy arrays."""
        return _joined(self, other) if isinstance(other, Table) else np.asarray(self) + other

    def __repr__(self) -> str:
        rows, width = self.shape
        parts = [f"{counted(rows, 'row')} x {counted(width, 'column')}", str(self.values.dtype).removeprefix("torch.")]
        if self.columns is not None:
            more = ", ..." if width > SHOWN_NAMES else ""
            parts.append("columns " + ", ".join(self.columns[:SHOWN_NAMES]) + more)
        if self.observed is not None:
            parts.append(f"{counted(int((~self.observed).sum()), 'value')} missing")
        parts += [name for name in ("weights", "labels") if getattr(self, name) is not None]
        return f"<Table: {'; '.join(parts)}>"


def table_of(values: Array, columns: Names = None, places: Places | None = None, path: Path | None = None) -> Table:
    """A table of numbers (N, V) in the machine's byte order; NaN is missing. It shares memory where torch can read it.

    path: the file that messages name, with the line given by `places`.
    """
    if values.dtype == np.uint64:
        fits = not values.size or values.max() <= np.iinfo(np.int64).max
        values = values.astype(np.int64 if fits else np.float64)
    values = values.astype(SIGNED_TYPES.get(values.dtype.name, values.dtype), copy=False)
    if any(stride < 0 or stride % values.itemsize for stride in values.strides):
        values = values.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing is written to a table
        table = Table(torch.from_numpy(values), columns, places=places)
    if values.dtype.kind != "f" or bool(table.values.sum().isfinite()):  # a sum is faster than a check of each value
        return table
    if (infinite := np.isinf(values)).any():
        row, column = first_true(infinite)
        number, label = values[row, column], column_label(columns, column)
        if path is not None and places is not None:
            raise DataError(f"{path}:{places.labels[row]}: {label} is not finite ({number})")
        raise DataError(f"{table.cell(row, column)}: {number} is not finite")
    observed = ~np.isnan(values)
    return table if observed.all() else replace(table, observed=torch.from_numpy(observed))


def with_codings(table: Table, columns: Sequence[Coded]) -> Table:
    """The table of these columns with their codings, where one of them is more than a plain number."""
    codings = tuple(column.coding for column in columns)
    return replace(table, codings=codings) if any(coding.kind != "number" for coding in codings) else table


def _as_index(index: Any, rows: int, device: torch.device) -> slice | Tensor:
    """As torch takes it: no backward slices, and no small integers, which torch would read as a mask."""
    if isinstance(index, slice):
        if index.step is None or index.step > 0:
            return index
        index = np.arange(rows)[index]
    found = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    kind = np.bool_ if found.dtype.kind == "b" else np.int64
    return torch.from_numpy(found.astype(kind, casting="same_kind" if found.size else "unsafe")).to(device)


def _joined(first: Table, second: Table) -> Table:
    """The rows of both; a table without weights counts each of its rows once."""
    if first.shape[1] != second.shape[1]:
        raise DataError(f"tables of {first.shape[1]} and {counted(second.shape[1], 'column')} cannot be joined")
    named = [table.columns for table in (first, second) if table.columns is not None]
    if len(named) == 2 and named[0] != named[1]:
        raise DataError(f"tables with different columns cannot be joined: {named[0]} and {named[1]}")
    if first.codings != second.codings:
        raise DataError("tables with different categories cannot be joined: align them to one schema first")
    return Table(
        values=torch.cat([first.values, second.values]),
        columns=named[0] if named else None,
        observed=_cat_or(first, second, "observed", torch.ones),
        weights=_cat_or(first, second, "weights", torch.ones),
        labels=None if first.labels is None or second.labels is None else torch.cat([first.labels, second.labels]),
        schema=first.schema if first.schema == second.schema else None,
        missing=first.missing if first.missing == second.missing else None,
        codings=first.codings,
        impossible=_cat_or(first, second, "impossible", torch.zeros),
    )


def _cat_or(first: Table, second: Table, name: str, fill: Callable[..., Tensor]) -> Tensor | None:
    """A field of both tables, one below the other, `fill` for one that is not there; None if neither is."""
    parts = [getattr(table, name) for table in (first, second)]
    known = next((part for part in parts if part is not None), None)
    if known is None:
        return None
    kind = {"dtype": known.dtype, "device": known.device}
    sizes = [(len(table), *known.shape[1:]) for table in (first, second)]
    return torch.cat([fill(size, **kind) if part is None else part for part, size in zip(parts, sizes, strict=True)])
