"""The rows that a model finds most surprising, and the cells that cause it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data import Stream, Table, columns_of
from circurve.model import Model
from circurve.report.columns import value_text
from circurve.report.record import Cell, RowInfo, Surprises

__all__ = ["Scored", "surprises"]

Array = NDArray[np.float64]

CELLS = 4
"""The largest number of cells that are listed for a row."""

BINS = 40


@dataclass(frozen=True)
class Scored:
    """Rows with their log-probabilities, -inf for rows of probability zero."""

    table: Table | Stream
    log_prob: Array  # (N,)

    @property
    def possible(self) -> Array:
        """The log-probabilities that are finite."""
        return self.log_prob[np.isfinite(self.log_prob)]

    @property
    def mean(self) -> float:
        """Over the rows of probability above zero; NaN if there is none."""
        return float(self.possible.mean()) if len(self.possible) else float("nan")

    @property
    def standard_error(self) -> float:
        """The standard error of the mean."""
        rows = len(self.possible)
        return float(self.possible.std(ddof=1) / np.sqrt(rows)) if rows > 1 else float("inf")


def surprises(model: Model, parts: Mapping[str, Scored], most: int) -> Surprises:
    """The `most` least probable rows of the first part, each with the cells that `Model.explain` finds surprising."""
    scored = next(iter(parts.values()))
    lowest = np.argsort(scored.log_prob, kind="stable")[:most]
    rows = tuple(_rows(model, scored, lowest)) if len(lowest) else ()
    every = np.concatenate([part.possible for part in parts.values()])
    edges = np.linspace(every.min(), every.max() + 1e-9, BINS + 1) if len(every) else np.zeros(0)
    counts = tuple(
        (name, tuple((np.histogram(part.possible, edges)[0] / max(len(part.possible), 1)).tolist()))
        for name, part in parts.items()
        if len(edges)
    )
    return Surprises(rows, tuple(edges.tolist()), counts)


def _rows(model: Model, scored: Scored, lowest: NDArray[np.int64]) -> list[RowInfo]:
    table = scored.table
    assert isinstance(table, Table)
    few = table.rows(lowest)
    frame = columns_of(model.explain(few))
    places = {name: v for v, name in enumerate(model.schema.labels)}
    row = np.asarray(frame["row"], dtype=np.int64)  # sorted, the most surprising cell of a row first
    blamed: list[list[tuple[int, float]]] = [[] for _ in lowest]
    for at, number in enumerate(row.tolist()):
        surprise = float(frame["surprise"][at])
        if len(blamed[number]) < CELLS and not np.isnan(surprise):
            blamed[number].append((places[str(frame["column"][at])], surprise))
    cells = [(number, column) for number, found in enumerate(blamed) for column, _ in found]
    expected = dict(zip(cells, _expected(model, few, cells), strict=True))
    values = few.values.double().cpu().numpy()
    return [
        RowInfo(
            _place(table, int(lowest[number])),
            float(scored.log_prob[lowest[number]]),
            tuple(
                Cell(c, value_text(model.schema.columns[c], values[number, c]), expected[number, c], surprise)
                for c, surprise in found
            ),
        )
        for number, found in enumerate(blamed)
    ]


def _place(table: Table, row: int) -> str:
    """`line 9` of a file, `index Rome` of a frame, `row 8` of an array, counted from 0 as numpy does."""
    return f"row {row}" if table.places is None else f"{table.places.word} {table.places.labels[row]}"


def _expected(model: Model, few: Table, cells: list[tuple[int, int]]) -> list[str]:
    """The mean of numbers and the most probable state of others, given the rest of the row."""
    if not cells:
        return []
    rows, columns = ([cell[i] for cell in cells] for i in (0, 1))
    copies = few.rows(rows)
    observed = torch.ones(copies.shape, dtype=torch.bool) if copies.observed is None else copies.observed.clone()
    observed[range(len(cells)), columns] = False
    filled = columns_of(model.impute(replace(copies, observed=observed)))
    names = list(filled)
    return [_text(filled[names[column]][at]) for at, column in enumerate(columns)]


def _text(value: object) -> str:
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[m]")).removesuffix("T00:00")
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    return f"{float(value):.3g}" if isinstance(value, float | np.floating) else str(value)
