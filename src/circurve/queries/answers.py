"""From numbers to what people see: the answers of one run by column name, and those of several runs put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from circurve import queries
from circurve.data import make_frame
from circurve.data.frames import as_narwhals
from circurve.data.recode import decode_column
from circurve.errors import DataError
from circurve.queries.given import Given
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["Completion", "Estimate", "Sheet", "Writer", "together"]

Array = NDArray[np.float64]

TIE_DIGITS = 9
"""Decimals by which cells are ranked: smaller differences are rounding errors, and differ between devices."""


@dataclass(frozen=True, repr=False)
class Completion:
    """Rows without gaps, and how good they are. No completion of row n has a higher log-probability than bound[n].

    Of `Models`, rows have the run in front, and the arrays are (R, N).
    """

    rows: Any  # a data frame
    log_prob: Array  # (N,)
    bound: Array  # (N,), equal to log_prob where the completion is exact
    exact: NDArray[np.bool_]  # (N,)

    def __repr__(self) -> str:
        rows, exact = self.exact.size, int(self.exact.sum())
        if exact == rows:
            return f"<Completion: {_count(rows)}, exact>"
        gap = float((self.bound - self.log_prob)[~self.exact].max())
        share = "not exact" if not exact else f"{exact} of them exact"
        return f"<Completion: {_count(rows)}, {share}; log p at most {gap:.3g} below the optimum>"


@dataclass(frozen=True, repr=False)
class Estimate:
    """A number in nats: exact, or the mean over draws with its standard error."""

    value: Any  # float; (R,) of `Models`
    standard_error: Any  # float; (R,) of `Models`; 0 where the value is exact
    exact: bool

    def __repr__(self) -> str:
        values, errors = np.atleast_1d(self.value), np.atleast_1d(self.standard_error)
        if self.exact:
            return f"<Estimate: {', '.join(f'{value:.4g}' for value in values)}, exact>"
        pairs = (f"{value:.4g} ± {error:.1g}" for value, error in zip(values, errors, strict=True))
        return f"<Estimate: {', '.join(pairs)}>"


@dataclass(frozen=True)
class Sheet:
    """Columns that become a frame of the kind of `like`."""

    columns: Mapping[str, Any]
    like: Any = None

    def frame(self) -> Any:
        """The frame; an array where `like` is one and all columns hold numbers."""
        return make_frame(self.columns, like=self.like)


def together(answers: Sequence[Any], runs: NDArray[Any] | None) -> Any:
    """The answers of several runs as one, the run in front; the answer itself where there is a single run (None).

    Numbers and arrays get a leading axis, frames a first column with the runs' labels or numbers.
    """
    first = answers[0]
    if isinstance(first, Completion):
        rows = together([answer.rows for answer in answers], runs)
        parts = ([getattr(answer, name) for answer in answers] for name in ("log_prob", "bound", "exact"))
        return Completion(rows, *(together(part, runs) for part in parts))
    if isinstance(first, Estimate) and runs is not None:
        value, error = (np.array([getattr(a, name) for a in answers]) for name in ("value", "standard_error"))
        return Estimate(value, error, first.exact)
    if runs is None:
        return first.frame() if isinstance(first, Sheet) else first
    if isinstance(first, Sheet):
        return _one_frame(answers, runs)
    return np.stack([np.asarray(answer) for answer in answers])


def _one_frame(sheets: Sequence[Sheet], runs: NDArray[Any]) -> Any:
    made = sheets[0].frame()
    if isinstance(made, np.ndarray):
        return np.stack([sheet.frame() for sheet in sheets])
    counts = [len(next(iter(sheet.columns.values()))) for sheet in sheets]
    name = "run"
    while name in sheets[0].columns:
        name = f"_{name}"
    columns = {name: np.repeat(runs, counts)}
    columns |= {key: np.concatenate([sheet.columns[key] for sheet in sheets]) for key in sheets[0].columns}
    return make_frame(columns, like=_repeated(sheets[0].like, len(sheets)))


def _repeated(like: Any, times: int) -> Any:
    """The frame repeated for each run, with the index of the run; anything else unchanged."""
    frame = as_narwhals(like)
    return like if frame is None else nw.concat([frame] * times).to_native()


@dataclass(frozen=True)
class Writer:
    """Coded values as the schema's own: names, categories, dates."""

    schema: Schema

    def name(self, number: int) -> str:
        """A column's name, or its number as text."""
        return self.schema.labels[number]

    def numeric(self) -> list[int]:
        """The columns that have moments."""
        chosen = [v for v, column in enumerate(self.schema.columns) if column.kind != "category"]
        if not chosen:
            raise DataError("every column holds categories, which have no mean; ask for distribution(column)")
        return chosen

    def decoded(self, number: int, values: Array) -> Any:
        """Values of one column as they were in the data."""
        column = self.schema.columns[number]
        return decode_column(values, column.coding, column.family.discrete)

    def rows(self, array: Array, like: Any, averaged: Sequence[int] = ()) -> Sheet:  # (N, V)
        """Whole rows; averaged: columns whose numbers need not be whole."""
        columns = {}
        for v, column in enumerate(self.schema.columns):
            broken = v in averaged and column.kind == "number" and bool((array[:, v] != np.rint(array[:, v])).any())
            columns[self.name(v)] = array[:, v] if broken else self.decoded(v, array[:, v])
        return Sheet(columns, like)

    def numbers(self, values: Array, like: Any, dates: bool) -> Sheet:  # (N, V)
        """The columns that have moments; dates: days are written as dates."""
        columns: dict[str, Any] = {}
        for v in self.numeric():
            is_date = self.schema.columns[v].kind == "date"
            columns[self.name(v)] = self.decoded(v, values[:, v]) if dates and is_date else values[:, v]
        return Sheet(columns, like)

    def covariances(self, table: Array) -> Sheet:  # (columns, columns)
        """One matrix, with the names in its first column."""
        names = [self.name(v) for v in self.numeric()]
        labels = np.array(names, dtype=object)
        return Sheet({"column": labels} | {name: table[:, at] for at, name in enumerate(names)})

    def states(self, number: int, found: queries.StateDistribution, run: int, known: Given) -> Sheet:
        """Probabilities of a column with a list of values: one row for each value, or one column for each."""
        probability = found.probability[run].cpu().numpy()  # (N, S)
        values = self.decoded(number, found.states.cpu().numpy())
        if known.single:
            return Sheet({self.name(number): values, "probability": probability[0]})
        return Sheet({str(v): probability[:, at] for at, v in enumerate(values.tolist())}, known.source)

    def grids(self, number: int, found: queries.MixtureDistribution, run: int, single: bool, points: int) -> Sheet:
        """Density and cumulative probability on a grid for each row of one run."""
        own = found.run(run)
        ends = [own.quantile(level)[0].cpu().numpy() for level in (0.001, 0.999)]
        grids = [_grid(low, high, own.discrete, points) for low, high in zip(*ends, strict=True)]
        density, cumulative = [], []
        for row, grid in enumerate(grids):
            one = own.row(row)
            at = one.shares[0].new_tensor(grid)
            density.append(one.density(at)[0, 0].cpu().numpy())
            cumulative.append(one.cdf(at)[0, 0].cpu().numpy())
        rows = {} if single else {"row": np.repeat(np.arange(len(grids)), [len(grid) for grid in grids])}
        value = {self.name(number): self.decoded(number, np.concatenate(grids))}
        height = "probability" if own.discrete else "density"
        return Sheet(rows | value | {height: np.concatenate(density), "cumulative": np.concatenate(cumulative)})

    def explained(self, found: queries.Explanation, run: int, known: Given) -> Sheet:
        """The known cells of one run's rows, the most surprising of a row first."""
        log_prob, mean, variance, log_tail = (
            part[run].cpu().numpy() for part in (found.log_conditional, found.mean, found.variance, found.log_tail)
        )  # (N, V) each
        # the values seen in training share the rest of the column's probability
        log_prob = log_prob + np.log1p([-c.unseen_share for c in self.schema.columns])
        row, column = np.nonzero(known.evidence.observed[0].T.cpu().numpy() > 0)
        keys = (np.round(part[row, column], TIE_DIGITS) for part in (log_prob, log_tail))
        order = np.lexsort((*keys, row))
        at = (row[order], column[order])
        cells = known.table.values.double().numpy()
        numeric = np.array([c.kind in ("number", "boolean") for c in self.schema.columns])[at[1]]
        names = [self.name(v) for v in range(len(self.schema))]
        texts = [np.array([str(x) for x in self.decoded(v, cells[:, v])], dtype=object) for v in range(len(names))]
        columns = {
            "row": at[0],
            "column": np.array(names, dtype=object)[at[1]],
            "value": np.stack(texts, axis=1)[at],
            "log_prob": log_prob[at],
            "mean": np.where(numeric, mean[at], np.nan),
            "standard_deviation": np.where(numeric, np.sqrt(variance[at]), np.nan),
            "surprise": np.abs(log_tail[at]),
        }
        return Sheet(columns, known.frame)


def _count(rows: int) -> str:
    return counted(rows, "row")


def _grid(low: float, high: float, whole: bool, points: int) -> Array:
    return np.arange(low, high + 1) if whole else np.linspace(low, high, points)
