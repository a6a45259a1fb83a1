"""The questions that a model answers, by column name: the methods of `Model` that are not about training or files.

Evidence is `{column: value}`, a data frame, or None (see `given.py`). A single row given as values has a single answer;
several rows have one answer each, in a frame of the same kind as the evidence. Circuits with several outputs answer
through their numeric functions in `circurve.queries`, which take labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from circurve import queries
from circurve.data import make_frame
from circurve.data.recode import decode_column
from circurve.errors import DataError, OptionError
from circurve.queries.given import Given, read_given
from circurve.queries.target import Target
from circurve.schema import Schema

if TYPE_CHECKING:
    from circurve.data.unseen import Unseen
    from circurve.engine import Backend, Params, Program

__all__ = ["Completion", "Estimate", "Questions"]

Array = NDArray[np.float64]
Columns = str | int | Sequence[str | int]
How = Literal["mean", "mode", "sample"]


@dataclass(frozen=True)
class Completion:
    """Rows without gaps, and how good they are. No completion of row n has a higher log-probability than bound[n]."""

    rows: Any  # a data frame
    log_prob: Array  # (N,)
    bound: Array  # (N,), equal to log_prob where the completion is exact
    exact: NDArray[np.bool_]  # (N,)


@dataclass(frozen=True)
class Estimate:
    """A number in nats: exact, or the mean over draws with its standard error."""

    value: float
    standard_error: float
    exact: bool


class Questions:
    """What can be asked of a model."""

    program: Program
    params: Params
    schema: Schema

    if TYPE_CHECKING:

        @property
        def backend(self) -> Backend:
            """What computes upward passes."""

    @cached_property
    def _target(self) -> Target:
        if self.params.runs != 1 or self.program.circuit.outputs != 1:
            raise OptionError("questions by column name are for circuits with one output; see circurve.queries")
        return Target(self.program, self.params, self.backend, columns=self.schema.names)

    def _read(self, given: Any, unseen: Unseen = "error") -> Given:
        return read_given(self._target, self.schema, given, unseen)

    def marginal(self, rows: Any, *, log: bool = False, unseen: Unseen = "impossible") -> Any:
        """Probability of what is known of each row, everything else summed or integrated out.

        rows: evidence; columns that are not named count as missing. With continuous columns it is a density. log: the
        logarithm instead. unseen: as in `log_prob`.
        """
        asked = self._read(rows, unseen)
        found = queries.marginal(self._target, asked.evidence)
        return self._answer(_with_share(found, asked), asked.single, log)

    def conditional(self, target: Any, given: Any = None, *, log: bool = False) -> Any:
        """Probability of the target given the evidence: `conditional({"income": "high"}, given={"age": 30})`.

        Target and evidence are one row or many, or one of them one row for all rows of the other. A continuous target
        has a density; an interval (low, high) has its probability. log: the logarithm instead. Two upward passes.
        """
        asked, known = self._read(target), self._read(given)
        found = queries.conditional(self._target, asked.evidence, known.evidence)
        return self._answer(_with_share(found, asked), asked.single and known.single, log)

    def interval(self, ranges: Mapping[Any, tuple[Any, Any]], given: Any = None, *, log: bool = False) -> Any:
        """Probability that columns lie in intervals, both ends included: `interval({"age": (30, 40)}, given=...)`."""
        wrong = next((name for name, ends in ranges.items() if not isinstance(ends, tuple)), None)
        if wrong is not None:
            raise DataError(f"column {wrong!r}: an interval is (low, high), not {ranges[wrong]!r}")
        return self.conditional(ranges, given, log=log)

    def distribution(self, column: str | int, given: Any = None, *, points: int = 201) -> Any:
        """The distribution of one column, as a data frame.

        A column with a list of values: its values and their probabilities for a single row; for several rows one column
        for each value. Other columns: a grid from the 0.1 % to the 99.9 % quantile with density and cumulative
        probability (for counts: every whole number in it), for several rows one grid after the other, with the number
        of the row in front. `quantile` gives single quantiles. One pass up and one down.
        """
        number, known = self.schema.position(column), self._read(given)
        found = queries.distribution(self._target, number, known.evidence)
        name = self._name(number)
        if isinstance(found, queries.StateDistribution):
            probability = found.probability[0].cpu().numpy()
            values = self._decoded(number, found.states.cpu().numpy())
            if known.single:
                return make_frame({name: values, "probability": probability[0]})
            return make_frame({str(v): probability[:, at] for at, v in enumerate(values.tolist())}, like=known.source)
        return self._grids(number, found, known.single, points)

    def _grids(self, number: int, found: queries.MixtureDistribution, single: bool, points: int) -> Any:
        ends = [found.quantile(level)[0].cpu().numpy() for level in (0.001, 0.999)]
        grids = [_grid(low, high, found.discrete, points) for low, high in zip(*ends, strict=True)]
        table: dict[str, list[Array]] = {"density": [], "cumulative": []}
        for row, grid in enumerate(grids):
            own = found.row(row)
            at = own.shares[0].new_tensor(grid)
            table["density"].append(own.density(at)[0, 0].cpu().numpy())
            table["cumulative"].append(own.cdf(at)[0, 0].cpu().numpy())
        rows = {} if single else {"row": np.repeat(np.arange(len(grids)), [len(grid) for grid in grids])}
        value = {self._name(number): self._decoded(number, np.concatenate(grids))}
        height = "probability" if found.discrete else "density"
        return make_frame(
            rows | value | {height: np.concatenate(table["density"]), "cumulative": np.concatenate(table["cumulative"])}
        )

    def quantile(self, column: str | int, levels: float | Sequence[float], given: Any = None) -> Any:
        """Where the distribution function of a column reaches each level, in the column's own values.

        One number for a single row and level, else an array of (rows, levels) without the axis that is single.
        """
        number, known = self.schema.position(column), self._read(given)
        if self.schema.columns[number].kind == "category":
            raise DataError(f"column {self._name(number)!r} holds categories, which have no order and no quantiles")
        found = queries.distribution(self._target, number, known.evidence)
        wanted = [float(levels)] if isinstance(levels, int | float) else [float(level) for level in levels]
        table = np.stack([found.quantile(level)[0].cpu().numpy() for level in wanted], axis=1)  # (N, levels)
        values = self._decoded(number, table.ravel()).reshape(table.shape)
        values = values[0] if known.single else values
        return values[..., 0][()] if isinstance(levels, int | float) else values

    def mean(self, given: Any = None) -> Any:
        """The expected value of every column that holds numbers, dates or true and false, as a data frame.

        What is given comes back as it is. The mean of true and false is the probability of true.
        """
        known = self._read(given)
        values = queries.mean(self._target, known.evidence)[0].cpu().numpy()
        return self._numbers_frame(values, known, dates=True)

    def variance(self, given: Any = None) -> Any:
        """The variance of every column that holds numbers, dates (in days) or true and false; 0 for what is given."""
        known = self._read(given)
        return self._numbers_frame(queries.variance(self._target, known.evidence)[0].cpu().numpy(), known, dates=False)

    def covariance(self, given: Any = None) -> Any:
        """Covariances of all columns that hold numbers, dates (in days) or true and false.

        A single row: a data frame with the names in its first column; several rows: an array of (rows, columns,
        columns). One pass up and one down for each column, in float64.
        """
        known, chosen = self._read(given), self._numeric()
        table = queries.covariance(self._target, known.evidence)[0].cpu().numpy()[:, chosen][:, :, chosen]
        if not known.single:
            return table
        names = [self._name(v) for v in chosen]
        labels = np.array(names, dtype=object)
        return make_frame({"column": labels} | {name: table[0, :, at] for at, name in enumerate(names)})

    def sample(self, n: int = 1, given: Any = None, *, seed: int | None = None) -> Any:
        """Independent rows as a data frame: n of them, or n for each row of evidence, one after the other.

        seed: the same whole number gives the same rows; None draws a new one.
        """
        known = self._read(given)
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise OptionError(f"n must be a whole number >= 1, not {n!r}")
        drawn = queries.sample(self._target, known.evidence, int(n), _seed(seed))[0]  # (n, N, V)
        rows = np.stack([_as_given(table, known) for table in drawn], axis=1)  # (N, n, V)
        return self._frame(rows.reshape(-1, rows.shape[-1]), None if known.single else known.source)

    def impute(self, rows: Any, how: How = "mean", *, draws: int = 1, seed: int | None = None) -> Any:
        """The rows with every hole filled; what is known stays as it is.

        how: "mean" takes the expected value of numbers and dates, and the most probable value of categories and of true
        and false; "mode" the most probable value of each cell, by itself; "sample" draws whole rows from their joint
        distribution, and draws=m returns a list of m such tables. `most_probable` fills all holes of a row together.
        """
        if how not in ("mean", "mode", "sample"):
            raise OptionError(f"how must be 'mean', 'mode' or 'sample', not {how!r}")
        if how != "sample" and draws != 1:
            raise OptionError(f"draws={draws} has no effect with how={how!r}; use how='sample'")
        known = self._read(rows)
        if how == "sample":
            drawn = queries.sample(self._target, known.evidence, draws, _seed(seed))[0]
            tables = [self._frame(_as_given(table, known), known.source) for table in drawn]
            return tables if draws > 1 else tables[0]
        averaged = [v for v, c in enumerate(self.schema.columns) if how == "mean" and c.kind in ("number", "date")]
        others = [v for v in range(len(self.schema)) if v not in averaged]
        found = queries.mean(self._target, known.evidence)[0] if averaged else known.evidence.x[0].T.double()
        if others:
            found[:, others] = queries.modes(self._target, known.evidence, others)[0][:, others].double()
        return self._frame(_as_given(found, known), known.source, averaged)

    def most_probable(self, given: Any = None) -> Completion:
        """The most probable values of all that is not given, taken together, for one row or many; see `Completion`."""
        known = self._read(given)
        found = queries.most_probable(self._target, known.evidence)
        score, bound, exact = (part[0].cpu().numpy() for part in (found.log_prob, found.upper_bound, found.exact))
        rows = self._frame(_as_given(found.values[0], known), None if known.single else known.source)
        return Completion(rows, score.astype(np.float64), bound.astype(np.float64), exact)

    def mutual_information(self, a: Columns, b: Columns, *, draws: int = 10_000, seed: int = 0) -> Estimate:
        """I(a; b) of two columns, or two lists of columns, in nats; see `Estimate`."""
        found = queries.mutual_information(self._target, self._positions(a), self._positions(b), draws, seed)
        return _estimate(found)

    def entropy(self, columns: Columns | None = None, *, draws: int = 10_000, seed: int = 0) -> Estimate:
        """The entropy of a column, of some or of all columns, in nats (differential if continuous); see `Estimate`."""
        chosen = range(len(self.schema)) if columns is None else self._positions(columns)
        return _estimate(queries.entropy(self._target, list(chosen), draws, seed))

    def explain(self, rows: Any) -> Any:
        """How surprising each known cell is given the other cells of its row: a data frame, the worst of a row first.

        Columns: row, column, value, log_prob (log p(cell | the rest of its row), exact), the mean and standard
        deviation that the rest of the row gives for columns that hold numbers or true and false, and surprise, which
        rows are sorted by: -log_prob, for numbers and dates -log(probability or density x standard deviation), so
        that no column is surprising only because its values are many or its unit is small.
        """
        known = self._read(rows)
        found = queries.explain(self._target, known.evidence)
        return self._explained(found, known)

    def _explained(self, found: queries.Explanation, known: Given) -> Any:
        log_prob = found.log_conditional[0].cpu().numpy()  # (N, V)
        observed = known.evidence.observed[0].T.cpu().numpy() > 0
        shares = np.log1p([-c.unseen_share for c in self.schema.columns])
        log_prob = log_prob + shares  # each value that training saw shares the rest of its column's probability
        surprise = -log_prob - self._log_spread(found.variance[0].cpu().numpy())
        row, column = np.nonzero(observed)
        order = np.lexsort((-surprise[row, column], row))
        row, column = row[order], column[order]
        cells = known.table.values.double().numpy()
        numeric = np.array([c.kind in ("number", "boolean") for c in self.schema.columns])
        expected, spread = (part[0].cpu().numpy()[row, column] for part in (found.mean, found.variance))
        texts = [
            np.array([str(x) for x in self._decoded(v, cells[:, v])], dtype=object) for v in range(len(self.schema))
        ]
        return make_frame(
            {
                "row": row,
                "column": np.array([self._name(v) for v in range(len(self.schema))], dtype=object)[column],
                "value": np.stack(texts, axis=1)[row, column],
                "log_prob": log_prob[row, column],
                "mean": np.where(numeric[column], expected, np.nan),
                "standard_deviation": np.where(numeric[column], np.sqrt(spread), np.nan),
                "surprise": surprise[row, column],
            },
            like=None if known.single else known.source,
        )

    def _log_spread(self, variance: Array) -> Array:  # (N, V)
        """The logarithm of the standard deviation of numbers and dates, at least 0 for whole numbers; 0 for others."""
        spread = np.zeros_like(variance)
        for v, column in enumerate(self.schema.columns):
            if column.kind in ("number", "date"):
                floor = 1.0 if column.family.discrete else np.finfo(np.float64).tiny
                spread[:, v] = 0.5 * np.log(np.maximum(variance[:, v], floor))
        return spread

    # --- from numbers to what people see ---

    def _name(self, number: int) -> str:
        return self.schema.columns[number].name or str(number)

    def _numeric(self) -> list[int]:
        chosen = [v for v, column in enumerate(self.schema.columns) if column.kind != "category"]
        if not chosen:
            raise DataError("every column holds categories, which have no mean; ask for distribution(column)")
        return chosen

    def _decoded(self, number: int, values: Array) -> Any:
        column = self.schema.columns[number]
        return decode_column(values, column.coding, column.family.discrete)

    def _frame(self, array: Array, like: Any, averaged: Sequence[int] = ()) -> Any:  # (N, V)
        """A frame of coded values; averaged: columns whose numbers need not be whole."""
        columns = {}
        for v, column in enumerate(self.schema.columns):
            broken = v in averaged and column.kind == "number" and bool((array[:, v] != np.rint(array[:, v])).any())
            columns[self._name(v)] = array[:, v] if broken else self._decoded(v, array[:, v])
        return make_frame(columns, like=like)

    def _numbers_frame(self, values: Array, known: Given, dates: bool) -> Any:  # (N, V)
        columns: dict[str, Any] = {}
        for v in self._numeric():
            is_date = self.schema.columns[v].kind == "date"
            columns[self._name(v)] = self._decoded(v, values[:, v]) if dates and is_date else values[:, v]
        return make_frame(columns, like=None if known.single else known.source)

    def _positions(self, columns: Columns) -> list[int]:
        listed = [columns] if isinstance(columns, str | int) else columns
        return [self.schema.position(column) for column in listed]

    @staticmethod
    def _answer(log_prob: Tensor, single: bool, log: bool) -> Any:  # (1, N)
        values: Array = log_prob[0].double().cpu().numpy()
        values = values if log else np.exp(values)
        return float(values[0]) if single else values


def _with_share(log_prob: Tensor, asked: Given) -> Tensor:  # (1, N)
    return log_prob if asked.log_share is None else log_prob.double() + asked.log_share.to(log_prob.device)


def _as_given(values: Tensor, known: Given) -> Array:  # (N, V)
    """The values, with what was given in its own digits: the model may compute in float32."""
    table = known.table
    given = table.values.double().numpy()
    observed = np.ones(given.shape, dtype=np.bool_) if table.observed is None else table.observed.numpy()
    return np.where(observed, given, values.double().cpu().numpy())


def _estimate(found: queries.Estimate) -> Estimate:
    return Estimate(float(found.value[0]), float(found.standard_error[0]), found.exact)


def _grid(low: float, high: float, whole: bool, points: int) -> Array:
    return np.arange(low, high + 1) if whole else np.linspace(low, high, points)


def _seed(seed: int | None) -> int:
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
