"""The columns of a table in words: names, types, and how single values are written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circurve.data.recode import decode_column
from circurve.model import Model
from circurve.queries.target import Target
from circurve.report.record import ColumnInfo
from circurve.schema import Column

__all__ = ["column_infos", "column_name", "value_text"]

MAX_LABELS = 2000
"""Of a column with more states, only this many have their own label."""


def column_name(column: Column, place: int) -> str:
    """A column's name, or `column 3` by its number from 0."""
    return f"column {place}" if column.name is None else column.name


def column_infos(model: Model, target: Target) -> tuple[ColumnInfo, ...]:
    """What the page contains about each column."""
    infos = []
    for place, column in enumerate(model.schema.columns):
        states = target.states[place]
        kind = "count" if column.family.discrete else "real"
        labels = None if states is None else _labels(column, states[:MAX_LABELS])
        name, family = column_name(column, place), type(column.family).__name__
        infos.append(ColumnInfo(name, family, "states" if states is not None else kind, labels, column.origin))  # type: ignore[arg-type]
    return tuple(infos)


def _labels(column: Column, states: Sequence[int]) -> tuple[str, ...]:
    return tuple(value_text(column, float(state)) for state in states)


def value_text(column: Column, value: float) -> str:
    """A coded value as people write it: `Rome`, `true`, `2.5`, `2024-01-31`."""
    if column.kind == "number" or (column.categories is not None and not 0 <= value < len(column.categories)):
        return f"{value:.6g}"
    found = decode_column(np.array([value]), column.coding, column.family.discrete)[0]
    return str(bool(found)).lower() if column.kind == "boolean" else str(found)
