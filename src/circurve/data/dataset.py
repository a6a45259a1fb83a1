"""A data set: rows for training, validation and test, with a name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

from circurve.data.convert import Names, about
from circurve.data.debd import SPLITS
from circurve.data.entry import as_table
from circurve.data.table import Table
from circurve.errors import DataError

__all__ = ["SPLITS", "Dataset"]


@final
@dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """Rows for training and, where there are any, for validation and test; all with the same columns.

    The parts may be given in any form that `circurve.data.as_table` takes. Names come from `columns`, or else from the
    training rows; parts without names get them.
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
            raise DataError(f"{name}: train has {width} columns, but there are {len(names)} names")
        for split, table in tables.items():
            if table.shape[1] != width:
                raise DataError(f"{name}: train has {width} columns, {split} has {table.shape[1]}")
            tables[split] = _named(table, names, f"{name}: {split}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "columns", names)
        for split in SPLITS:
            object.__setattr__(self, split, tables.get(split))

    def __repr__(self) -> str:
        parts = [(split, getattr(self, split)) for split in SPLITS]
        sizes = ", ".join(f"{len(part)} {split}" for split, part in parts if part is not None)
        return f"<Dataset {self.name}: {self.train.shape[1]} variables, rows: {sizes}>"


def _named(table: Table, names: Names, what: str) -> Table:
    """The table with these names; itself if it has them. Other names are an error, not a wish to rename."""
    if table.columns == names:
        return table
    if table.columns is None:
        return replace(table, columns=names)
    pairs = enumerate(zip(table.columns, names or table.columns, strict=True))
    wrong = next((f"column {n} is {a!r}, expected {b!r}" for n, (a, b) in pairs if a != b), "train has no names")
    raise DataError(f"{what}: the names of the columns differ: {wrong}")
