"""Scores row by row, and the cells that cause a low score, in the columns of `circurve evaluate --scores`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.cli.files import cells
from circurve.data import Table, columns_of
from circurve.data.recode import decode_column
from circurve.model import Model
from circurve.schema import Coding

__all__ = ["Blame", "ScoredPart", "blamed", "lowest_rows", "score_columns"]

MAX_EXPLAINED_CELLS = 3
"""The largest number of cells that explain a row."""

LOWEST = 10
"""How many rows `lowest_rows` returns."""


@dataclass(frozen=True)
class ScoredPart:
    """A part of the data: as it was read, in the model's schema, and the log-likelihood of each row."""

    read: Table
    aligned: Table
    scores: NDArray[np.float64]  # (N,)

    @property
    def word(self) -> str:
        """What the number of a row is: `line` of the file, `row` counted from 0."""
        return "row" if self.read.places is None else self.read.places.word

    def place(self, row: int) -> Any:
        """The number of a row."""
        label = row if self.read.places is None else self.read.places.labels[row]
        return label.item() if isinstance(label, np.generic) else label

    def rows(self, index: NDArray[np.int64]) -> ScoredPart:
        """Some of the rows."""
        return ScoredPart(self.read.rows(index), self.aligned.rows(index), self.scores[index])


@dataclass(frozen=True)
class Blame:
    """A cell, and its prediction from the rest of the row."""

    row: int
    column: str
    value: str
    log_probability: float
    """log p(cell | rest of the row); -inf if the cell is impossible there, or unseen in training."""

    expected: str
    """The expected number or date, or the most probable category, given the rest of the row."""


@dataclass(frozen=True)
class Cell:
    """A cell by its place, and how surprising it is (see `Model.explain`)."""

    row: int
    column: int
    log_probability: float
    surprise: float


def lowest_rows(part: ScoredPart) -> NDArray[np.int64]:
    """The numbers of the least probable rows, the lowest first."""
    return np.argsort(part.scores, kind="stable")[:LOWEST]


def score_columns(model: Model, parts: Mapping[str, ScoredPart], explain: bool) -> dict[str, list[Any]]:
    """One entry for each row, in the order of the file where rows have lines or numbers of one table.

    Columns: `split` if there are several parts, `line` or `row`, `log_likelihood`; with `explain`, for up to three
    cells, the most surprising first, `column_1`, `value_1`, `log_probability_1`, `expected_1` and so on.
    """
    columns: dict[str, list[Any]] = {"split": []} if len(parts) > 1 else {}
    for name, part in parts.items():
        count = len(part.scores)
        found = {"split": [name] * count, part.word: [part.place(row) for row in range(count)]}
        found["log_likelihood"] = part.scores.tolist()
        if explain:
            found |= _blame_columns(blamed(model, part), count)
        for head, values in found.items():
            if head != "split" or len(parts) > 1:
                columns.setdefault(head, []).extend(values)
    one_table = len(parts) == 1 or all(part.read.places is not None for part in parts.values())
    word = next(iter(parts.values())).word
    if one_table:
        order = np.argsort(columns[word], kind="stable").tolist()
        columns = {head: [values[at] for at in order] for head, values in columns.items()}
    return columns


def _blame_columns(blames: Sequence[Blame], count: int) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for number in range(1, MAX_EXPLAINED_CELLS + 1):
        columns |= {f"column_{number}": [None] * count, f"value_{number}": [None] * count}
        columns |= {f"log_probability_{number}": [np.nan] * count, f"expected_{number}": [None] * count}
    met = [0] * count
    for blame in blames:
        met[blame.row] += 1
        number = met[blame.row]
        columns[f"column_{number}"][blame.row] = blame.column
        columns[f"value_{number}"][blame.row] = blame.value
        columns[f"log_probability_{number}"][blame.row] = blame.log_probability
        columns[f"expected_{number}"][blame.row] = blame.expected
    return columns


def blamed(model: Model, part: ScoredPart) -> list[Blame]:
    """Up to three cells of each row, the most surprising first.

    A value that was not seen in training is surprising by itself: in a row that such a value makes impossible, only
    cells like it are listed. A row that is impossible whichever single cell is left out has no such cell.
    """
    known = replace(part.aligned, impossible=None)  # unseen values are not observed: the others are explained without
    frame = columns_of(model.explain(known))
    names = model.schema.labels
    places = {name: v for v, name in enumerate(names)}
    row = np.asarray(frame["row"], dtype=np.int64)  # sorted, with the most surprising cell of a row first
    first = np.arange(len(row)) - np.searchsorted(row, row) < MAX_EXPLAINED_CELLS
    kept = np.flatnonzero(first & ~np.isnan(np.asarray(frame["log_prob"], dtype=np.float64))).tolist()
    found = [
        Cell(int(row[at]), places[str(frame["column"][at])], float(frame["log_prob"][at]), float(frame["surprise"][at]))
        for at in kept
    ]
    chosen = _most_surprising([*_unseen(model, part.aligned), *found])
    texts = zip(chosen, _values(model, part, chosen), _expected(model, known, chosen), strict=True)
    return [Blame(cell.row, names[cell.column], value, cell.log_probability, text) for cell, value, text in texts]


def _unseen(model: Model, table: Table) -> list[Cell]:
    """The values that were not seen in training: impossible, or with the share that their column reserves for them."""
    if table.impossible is None:
        return []
    with np.errstate(divide="ignore"):
        shares = np.log([column.unseen_share for column in model.schema.columns])
    return [Cell(row, v, float(shares[v]), -float(shares[v])) for row, v in table.impossible.nonzero().tolist()]


def _most_surprising(found: Sequence[Cell]) -> list[Cell]:
    """Up to three of each row, the most surprising first; if a cell is impossible, only impossible cells."""
    chosen: dict[int, list[Cell]] = {}
    for cell in sorted(found, key=lambda cell: (cell.row, -cell.surprise)):
        rivals = chosen.setdefault(cell.row, [])
        alike = not rivals or rivals[0].surprise < np.inf or cell.surprise == np.inf
        if len(rivals) < MAX_EXPLAINED_CELLS and alike:
            rivals.append(cell)
    return [cell for rivals in chosen.values() for cell in rivals]


def _expected(model: Model, table: Table, chosen: Sequence[Cell]) -> list[str]:
    """The value that the rest of the row predicts for each cell; computed on a copy of the row with the cell hidden."""
    if not chosen:
        return []
    rows, columns = [cell.row for cell in chosen], [cell.column for cell in chosen]
    copies = table.rows(rows)
    observed = torch.ones(copies.shape, dtype=torch.bool) if copies.observed is None else copies.observed.clone()
    observed[range(len(chosen)), columns] = False
    filled = columns_of(model.impute(replace(copies, observed=observed)))
    texts = [cells(values) for values in filled.values()]
    return [_text(texts[v][at]) for at, v in enumerate(columns)]


def _values(model: Model, part: ScoredPart, chosen: Sequence[Cell]) -> list[str]:
    """The cells as they were read; the columns of the file may be in another order than those of the model."""
    table, texts = part.read, [""] * len(chosen)
    for v in {cell.column for cell in chosen}:
        name = model.schema.columns[v].name
        place = table.columns.index(name) if table.columns is not None and name in table.columns else v
        coding = Coding() if table.codings is None else table.codings[place]
        numbers = [at for at, cell in enumerate(chosen) if cell.column == v]
        read = table.values[[chosen[at].row for at in numbers], place]
        for at, value in zip(numbers, cells(decode_column(np.asarray(read), coding)), strict=True):
            texts[at] = _text(value)
    return texts


def _text(value: object) -> str:
    """`Rome`, `3`, `2.5`."""
    return f"{value:.7g}" if isinstance(value, float) else str(value)
