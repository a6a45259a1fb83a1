"""Where the rows of a table stand in their source, as a person would look them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["Places"]


@dataclass(frozen=True, eq=False)
class Places:
    """A label for each row: lines of a file, counted from 1 with the header, numbers, or the index of a data frame."""

    word: str
    """What a label is: `line`, `row` (its number in a longer table) or `index`."""

    labels: Sequence[Any]
    """One for each row."""

    def at(self, row: int) -> str:
        """`line 9`, `row 8`, or `row 8 (index 'Rome')`."""
        label = self.labels[row]
        label = label.item() if isinstance(label, np.generic) else label
        return f"row {row} (index {label!r})" if self.word == "index" else f"{self.word} {label}"

    def rows(self, index: slice | np.ndarray) -> Places:
        """The labels of some rows."""
        if isinstance(index, slice):
            return replace(self, labels=self.labels[index])
        return replace(self, labels=np.asarray(self.labels)[index])
