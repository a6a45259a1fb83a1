"""A data set: rows for training, validation and test, with a name; and rows drawn at random by seed.

The same seed draws the same rows with every version of numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from circurve.budget import Need
from circurve.data.convert import Array, Names, about
from circurve.data.debd import SPLITS
from circurve.data.entry import as_table
from circurve.data.table import Table
from circurve.errors import Argument, DataError, OptionError
from circurve.words import counted

__all__ = ["SPLITS", "Dataset", "check_seed", "split_numbers", "split_rows", "take_fraction"]

SPLIT, FRACTION = 2, 1
"""What rows are drawn for: with one seed, a split and a fraction of one of its parts are independent. Neither is 0:
numpy.random.default_rng(seed) has that stream, and rows that were made with it would be split by their values."""

ORDER_BYTES = 24
"""What a row takes while rows are drawn: a random key, its number, and its place in their order."""


@final
@dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """Rows for training and, optionally, for validation and test; all with the same columns.

    Parameters
    ----------
    name : str
        What messages call the data set.
    train, valid, test : array, data frame or Table
        The rows, in any form that `fit` takes; `valid` and `test` may be None.
    columns : list of str, optional
        The names of the columns; None takes those of the training rows. Parts without names get them.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.Dataset("coins", train=[[0, 1], [1, 1], [1, 0]], test=[[0, 0]], columns=["a", "b"])
    >>> data
    <Dataset coins: 2 variables, rows: 3 train, 1 test>
    >>> data.train[:2]
    <Table: 2 rows x 2 columns; int64; columns a, b>
    """

    name: str
    train: Table
    valid: Table | None
    test: Table | None
    columns: Names

    def __init__(self, name: str, train: Any, valid: Any = None, test: Any = None, columns: Names = None) -> None:
        tables: dict[str, Table] = {}
        for split, part in zip(SPLITS, (train, valid, test), strict=True):
            if part is not None:
                with about(f"{name}: {split}"):
                    tables[split] = as_table(part)
        width = tables["train"].shape[1]
        names = tables["train"].columns if columns is None else tuple(columns)
        if names is not None and len(names) != width:
            raise DataError(
                f"{name}: train has {counted(width, 'column')}, but columns= has {counted(len(names), 'name')}"
            )
        for split, table in tables.items():
            if table.shape[1] != width:
                raise DataError(f"{name}: train has {counted(width, 'column')}, {split} has {table.shape[1]}")
            tables[split] = _named(table, names, f"{name}: {split}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "columns", names)
        for split in SPLITS:
            object.__setattr__(self, split, tables.get(split))

    def __repr__(self) -> str:
        parts = [(split, getattr(self, split)) for split in SPLITS]
        sizes = ", ".join(f"{len(part)} {split}" for split, part in parts if part is not None)
        return f"<Dataset {self.name}: {counted(self.train.shape[1], 'variable')}, rows: {sizes}>"


def _named(table: Table, names: Names, what: str) -> Table:
    """The table with these names; the table itself if it has them. Different names are an error."""
    if table.columns == names:
        return table
    if table.columns is None:
        return replace(table, columns=names)
    pairs = enumerate(zip(table.columns, names or table.columns, strict=True), 1)
    wrong = next((f"column {n} is {a!r}, expected {b!r}" for n, (a, b) in pairs if a != b), "train has no names")
    raise DataError(f"{what}: the names of the columns differ: {wrong}")


Part = TypeVar("Part", Table, Array)
Rows = TypeVar("Rows", Dataset, Table, Array)


def split_rows(
    values: Part, valid: float = 0.1, test: float = 0.1, seed: int = 0
) -> tuple[Part, Part | None, Part | None]:
    """Training, validation and test rows, drawn at random; rows keep their order, and a share of 0 gives None.

    A table gives tables, with names, weights and labels; anything else gives arrays.
    """
    source = values if isinstance(values, Table) else np.asanyarray(values)
    trains, valids, tests = split_numbers(len(source), valid, test, seed)
    return source[trains], None if valids is None else source[valids], None if tests is None else source[tests]


Numbers = NDArray[np.int64]


def split_numbers(
    count: int, valid: float, test: float, seed: int
) -> tuple[Numbers, Numbers | None, Numbers | None]:  # (N,) in all
    """The numbers of the rows that `split_rows` takes for each part, ascending."""
    for option, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1:
            raise OptionError(f"{option} must be a share of the rows from 0 to below 1, not {share!r}")
    check_seed(seed)
    held, tested = (max(1, round(count * share)) if share else 0 for share in (valid, test))
    if held + tested >= count:
        raise DataError(
            f"{counted(count, 'row is', 'rows are')} too few for shares of {valid} for validation and {test} for test"
        )
    parts = np.split(_shuffled(count, seed, SPLIT), [tested, tested + held])
    for part in parts:
        part.sort()
    tests, valids, trains = parts
    return trains, valids if held else None, tests if tested else None


def take_fraction(data: Rows, share: float, seed: int = 0, *, memory_budget: int | None = None) -> Rows:
    """A share of the rows, drawn at random and kept in order; of a `Dataset`, a share of its training rows.

    Parameters
    ----------
    data : Dataset, Table or array
        What to take rows from.
    share : float
        Above 0, at most 1; at least one row is taken.
    seed : int, default 0
        Fractions of one seed are nested: its 5 % contain its 1 %.
    memory_budget : int, optional
        Memory limit for the rows that are taken, in bytes; checked before memory is allocated.

    Returns
    -------
    Dataset, Table or array
        Of the same kind as `data`.

    Raises
    ------
    OptionError
        If the share is not in (0, 1].

    Examples
    --------
    >>> import circurve as cc
    >>> cc.take_fraction(cc.load_dataset("digits"), 0.1)
    <Dataset digits: 64 variables, rows: 126 train, 270 valid, 270 test>
    """
    if isinstance(data, Dataset):
        return replace(data, train=take_fraction(data.train, share, seed, memory_budget=memory_budget))
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share <= 1:
        raise OptionError(f"share must be a number above 0 and at most 1, not {share!r}")
    check_seed(seed)
    values: Any = data if isinstance(data, Table) else np.asanyarray(data)
    taken = max(1, round(len(values) * float(share)))
    parts = {"rows": taken * values.nbytes // max(1, len(values)), "numbers of rows": ORDER_BYTES * len(values)}
    Need("take_fraction", parts, "take a smaller share").left(memory_budget)
    rows: Rows = values[np.sort(_shuffled(len(values), seed, FRACTION)[:taken])]
    return rows


def check_seed(seed: object) -> None:
    """Refuse what is not a whole number >= 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(Argument("seed"), f" must be a whole number >= 0, not {seed!r}")


def _shuffled(count: int, seed: int, purpose: int) -> NDArray[np.int64]:
    """The numbers below `count` in random order. It sorts raw PCG64 output, whose stream numpy keeps fixed."""
    entropy: Any = [int(seed), purpose]
    keys = np.random.PCG64(entropy).random_raw(count)
    return np.argsort(keys, kind="stable")
