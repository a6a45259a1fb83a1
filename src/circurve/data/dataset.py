"""A data set: rows for training, validation and test, with a name."""

from __future__ import annotations

from dataclasses import dataclass

from circurve.data.convert import Array, Names
from circurve.data.debd import SPLITS
from circurve.errors import DataError

__all__ = ["SPLITS", "Dataset"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows for training and, where there are any, for validation and test; all with the same columns."""

    name: str
    train: Array
    valid: Array | None = None
    test: Array | None = None
    columns: Names = None

    def __post_init__(self) -> None:
        width = self.train.shape[1]
        for split, part in (("valid", self.valid), ("test", self.test)):
            if part is not None and part.shape[1] != width:
                raise DataError(f"{self.name}: train has {width} columns, {split} has {part.shape[1]}")
        if self.columns is not None and len(self.columns) != width:
            raise DataError(f"{self.name}: train has {width} columns, but there are {len(self.columns)} names")

    def __repr__(self) -> str:
        parts = [(split, getattr(self, split)) for split in SPLITS]
        sizes = ", ".join(f"{len(part)} {split}" for split, part in parts if part is not None)
        return f"<Dataset {self.name}: {self.train.shape[1]} variables, rows: {sizes}>"
