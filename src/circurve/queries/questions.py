"""The questions that a model answers, by column name: the methods of `Model` that are not about training or files.

`Models` has the same methods for several runs of one circuit, which are asked together: the passes are those of one.

Evidence is `{column: value}`, a data frame, or None (see `given.py`). A single row given as values has a single answer;
several rows have one answer each, in a frame of the same kind as the evidence. Circuits with several outputs answer
through their numeric functions in `circurve.queries`, which take labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from circurve import queries
from circurve.data import answer_in_pieces, is_streamed
from circurve.errors import DataError, OptionError
from circurve.queries.answers import Completion, Estimate, Writer, together
from circurve.queries.given import Given, as_given, read_given
from circurve.queries.target import Target
from circurve.schema import Schema

if TYPE_CHECKING:
    from circurve.data.unseen import Unseen
    from circurve.engine import Backend, Params, Program

__all__ = ["Completion", "Estimate", "Questions"]

Array = NDArray[np.float64]
Columns = str | int | Sequence[str | int]
How = Literal["mean", "mode", "sample"]


class Questions:
    """What can be asked of a model, or of several runs of one circuit."""

    program: Program
    params: Params
    schema: Schema
    _run_names: NDArray[Any] | None = None
    """What answers call each run; None for a single model, whose answers have no run in front."""

    if TYPE_CHECKING:

        @property
        def backend(self) -> Backend:
            """What computes upward passes."""

    @cached_property
    def _target(self) -> Target:
        if self.program.circuit.outputs != 1:
            raise OptionError("questions by column name are for circuits with one output; see circurve.queries")
        return Target(self.program, self.params, self.backend, columns=self.schema.names)

    @property
    def _writer(self) -> Writer:
        return Writer(self.schema)

    def _read(self, given: Any, unseen: Unseen = "error") -> Given:
        return read_given(self._target, self.schema, given, unseen)

    def _by_run(self, answer: Callable[[int], Any]) -> Any:
        """The answer, given that of each run by its number."""
        return together([answer(run) for run in range(self.params.runs)], self._run_names)

    def marginal(self, rows: Any, *, log: bool = False, unseen: Unseen = "impossible", out: Any = None) -> Any:
        """Probability of what is known of each row, everything else summed or integrated out.

        Parameters
        ----------
        rows : mapping, data frame or array
            Evidence; columns that are not named count as missing.
        log : bool, default False
            Return the logarithm.
        unseen : {"impossible", "missing", "error"}, default "impossible"
            As in `log_prob`.
        out : array, optional
            Filled with the result, and returned; a stream is read piece by piece.

        Returns
        -------
        float or array
            One number for each row; a density if columns are continuous.
        """
        if out is not None or (is_streamed(rows) and self._run_names is None):
            return answer_in_pieces(rows, None, lambda part: self.marginal(part, log=log, unseen=unseen), out)
        asked = self._read(rows, unseen)
        found = queries.marginal(self._target, asked.evidence)
        return self._probabilities(_with_share(found, asked), asked.single, log)

    def conditional(self, target: Any, given: Any = None, *, log: bool = False) -> Any:
        """Probability of the target given the evidence: `conditional({"income": "high"}, given={"age": 30})`.

        Parameters
        ----------
        target, given : mapping, data frame or array
            One row or many, or one of them one row for all rows of the other.
        log : bool, default False
            Return the logarithm.

        Returns
        -------
        float or array
            A continuous target has a density; an interval (low, high) has its probability. Two upward passes.
        """
        asked, known = self._read(target), self._read(given)
        found = queries.conditional(self._target, asked.evidence, known.evidence)
        return self._probabilities(_with_share(found, asked), asked.single and known.single, log)

    def interval(self, ranges: Mapping[Any, tuple[Any, Any]], given: Any = None, *, log: bool = False) -> Any:
        """Probability that the values of columns are in intervals, both ends included: `interval({"age": (30, 40)},
        given=...)`.

        Parameters
        ----------
        ranges : mapping
            Column to (low, high); None is an open end.
        given, log : as in `conditional`
            The evidence, and whether to return the logarithm.

        Returns
        -------
        float or array
            One number for each row.
        """
        wrong = next((name for name, ends in ranges.items() if not isinstance(ends, tuple)), None)
        if wrong is not None:
            raise DataError(f"column {wrong!r}: an interval is (low, high), not {ranges[wrong]!r}")
        return self.conditional(ranges, given, log=log)

    def _probabilities(self, log_prob: Tensor, single: bool, log: bool) -> Any:  # (R, N)
        values: Array = log_prob.double().cpu().numpy()
        values = values if log else np.exp(values)
        return self._by_run(lambda run: float(values[run, 0]) if single else values[run])

    def distribution(self, column: str | int, given: Any = None, *, points: int = 201) -> Any:
        """The distribution of one column, as a data frame. One pass up and one down.

        Parameters
        ----------
        column : str or int
            Its name or number.
        given : mapping, data frame or array, optional
            The evidence.
        points : int, default 201
            The size of the grid of a column without a list of values.

        Returns
        -------
        data frame
            A column with a list of values: the values with their probabilities; for several rows one column for each
            value. Other columns: a grid from the 0.1 % to the 99.9 % quantile with density and cumulative probability
            (for counts: every whole number in it); for several rows one grid after the other, numbered.
        """
        number, known, write = self.schema.position(column), self._read(given), self._writer
        found = queries.distribution(self._target, number, known.evidence)
        if isinstance(found, queries.StateDistribution):
            return self._by_run(lambda run: write.states(number, found, run, known))
        return self._by_run(lambda run: write.grids(number, found, run, known.single, points))

    def quantile(self, column: str | int, levels: float | Sequence[float], given: Any = None) -> Any:
        """Where the distribution function of a column reaches each level, in the column's own values.

        Parameters
        ----------
        column : str or int
            Its name or number; not one of categories.
        levels : float or sequence of float
            From 0 to 1.
        given : mapping, data frame or array, optional
            The evidence.

        Returns
        -------
        number or array
            One number for a single row and level, else (rows, levels) without the axis that is single.
        """
        number, known = self.schema.position(column), self._read(given)
        if self.schema.columns[number].kind == "category":
            name = self._writer.name(number)
            raise DataError(f"column {name!r} holds categories, which have no order and no quantiles")
        found = queries.distribution(self._target, number, known.evidence)
        wanted = [float(levels)] if isinstance(levels, int | float) else [float(level) for level in levels]
        table = np.stack([found.quantile(level).cpu().numpy() for level in wanted], axis=2)  # (R, N, levels)
        values = self._writer.decoded(number, table.ravel()).reshape(table.shape)
        values = values[:, 0] if known.single else values
        values = values[..., 0] if isinstance(levels, int | float) else values
        return self._by_run(lambda run: values[run])

    def mean(self, given: Any = None) -> Any:
        """The expected value of every column that holds numbers, dates or true and false, as a data frame.

        What is given comes back as it is. The mean of true and false is the probability of true.
        """
        known = self._read(given)
        values = queries.mean(self._target, known.evidence).cpu().numpy()
        return self._by_run(lambda run: self._writer.numbers(values[run], known.frame, dates=True))

    def variance(self, given: Any = None) -> Any:
        """The variance of every column that holds numbers, dates (in days) or true and false; 0 for what is given."""
        known = self._read(given)
        values = queries.variance(self._target, known.evidence).cpu().numpy()
        return self._by_run(lambda run: self._writer.numbers(values[run], known.frame, dates=False))

    def covariance(self, given: Any = None) -> Any:
        """Covariances of all columns that hold numbers, dates (in days) or true and false.

        Parameters
        ----------
        given : mapping, data frame or array, optional
            The evidence.

        Returns
        -------
        data frame or array
            A single row: a frame with the names in its first column; several rows: (rows, columns, columns). It takes
            one pass up and one down for each column, in float64.
        """
        known, chosen = self._read(given), self._writer.numeric()
        table = queries.covariance(self._target, known.evidence).cpu().numpy()[:, :, chosen][..., chosen]
        return self._by_run(lambda run: self._writer.covariances(table[run, 0]) if known.single else table[run])

    def sample(self, n: int = 1, given: Any = None, *, seed: int | None = None) -> Any:
        """Independent rows as a data frame: n of them, or n for each row of evidence, one after the other.

        Parameters
        ----------
        n : int, default 1
            How many rows.
        given : mapping, data frame or array, optional
            The evidence; what is given is kept.
        seed : int, optional
            The same number gives the same rows; None draws new ones.

        Returns
        -------
        data frame
            The rows, in the values of the table that the model was trained on.
        """
        known = self._read(given)
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise OptionError(f"n must be a whole number >= 1, not {n!r}")
        drawn = as_given(queries.sample(self._target, known.evidence, int(n), _seed(seed)), known)  # (R, n, N, V)
        rows = drawn.swapaxes(1, 2).reshape(len(drawn), -1, drawn.shape[-1])  # (R, N n, V)
        return self._frames(rows, known.frame)

    def impute(self, rows: Any, how: How = "mean", *, draws: int = 1, seed: int | None = None) -> Any:
        """The rows with every hole filled; what is known stays as it is.

        Parameters
        ----------
        rows : mapping, data frame or array
            Rows with holes.
        how : {"mean", "mode", "sample"}, default "mean"
            "mean" takes the expected value of numbers and dates, and the most probable value of categories and of true
            and false; "mode" the most probable value of each cell, by itself; "sample" draws whole rows from their
            joint distribution. `most_probable` fills all holes of a row together.
        draws : int, default 1
            With how="sample": m > 1 returns a list of m tables.
        seed : int, optional
            The same number gives the same draws.

        Returns
        -------
        data frame, or list of them
            Of the same kind as `rows`.
        """
        if how not in ("mean", "mode", "sample"):
            raise OptionError(f"how must be 'mean', 'mode' or 'sample', not {how!r}")
        if how != "sample" and draws != 1:
            raise OptionError(f"draws={draws} has no effect with how={how!r}; use how='sample'")
        known, averaged = self._read(rows), self._averaged() if how == "mean" else []
        if how == "sample":
            found = queries.sample(self._target, known.evidence, draws, _seed(seed))  # (R, draws, N, V)
        else:
            found = self._expected(known, averaged).unsqueeze(1)
        whole = as_given(found, known)
        tables = [self._frames(whole[:, draw], known.source, averaged) for draw in range(draws)]
        return tables if draws > 1 else tables[0]

    def _frames(self, rows: Array, like: Any, averaged: Sequence[int] = ()) -> Any:  # (R, N, V)
        return self._by_run(lambda run: self._writer.rows(rows[run], like, averaged))

    def _averaged(self) -> list[int]:
        return [v for v, column in enumerate(self.schema.columns) if column.kind in ("number", "date")]

    def _expected(self, known: Given, averaged: Sequence[int]) -> Tensor:  # (R, N, V)
        """Means of these columns, most probable values of the others."""
        others = [v for v in range(len(self.schema)) if v not in averaged]
        if not averaged:
            return queries.modes(self._target, known.evidence)
        found = queries.mean(self._target, known.evidence)
        if others:
            found[..., others] = queries.modes(self._target, known.evidence, others)[..., others].double()
        return found

    def most_probable(self, given: Any = None) -> Completion:
        """The most probable values of all that is not given, taken together, for one row or many.

        Parameters
        ----------
        given : mapping, data frame or array, optional
            The evidence.

        Returns
        -------
        Completion
            `.rows`, their `.log_prob`, a `.bound` that no completion exceeds, and whether it is `.exact`.
        """
        known = self._read(given)
        found = queries.most_probable(self._target, known.evidence)
        values = as_given(found.values, known)  # (R, N, V)
        score, bound = (part.double().cpu().numpy() for part in (found.log_prob, found.upper_bound))  # (R, N)
        exact = found.exact.cpu().numpy()

        def answer(run: int) -> Completion:
            return Completion(self._writer.rows(values[run], known.frame), score[run], bound[run], exact[run])

        completion: Completion = self._by_run(answer)
        return completion

    def mutual_information(self, a: Columns, b: Columns, *, draws: int = 10_000, seed: int = 0) -> Estimate:
        """I(a; b) of two columns, or two lists of columns, in nats.

        Parameters
        ----------
        a, b : str, int or a list of them
            Columns by name or number.
        draws, seed : int
            For the mean over draws that is taken if there are too many joint values.

        Returns
        -------
        Estimate
            `.value`, its `.standard_error`, and whether it is `.exact`.
        """
        first, second = (self._positions(columns) for columns in (a, b))
        return self._estimate(queries.mutual_information(self._target, first, second, draws, seed))

    def entropy(self, columns: Columns | None = None, *, draws: int = 10_000, seed: int = 0) -> Estimate:
        """The entropy of a column, of some or of all columns, in nats (differential if continuous).

        Parameters
        ----------
        columns : str, int or a list of them, optional
            Columns by name or number; None is all of them.
        draws, seed : int
            As in `mutual_information`.

        Returns
        -------
        Estimate
            `.value`, its `.standard_error`, and whether it is `.exact`.
        """
        chosen = range(len(self.schema)) if columns is None else self._positions(columns)
        return self._estimate(queries.entropy(self._target, list(chosen), draws, seed))

    def _estimate(self, found: queries.Estimate) -> Estimate:
        pairs = list(zip(found.value.tolist(), found.standard_error.tolist(), strict=True))
        estimate: Estimate = self._by_run(lambda run: Estimate(*pairs[run], found.exact))
        return estimate

    def explain(self, rows: Any) -> Any:
        """How surprising each known cell is given the other cells of its row.

        Parameters
        ----------
        rows : mapping, data frame or array
            The rows to explain.

        Returns
        -------
        data frame
            The worst cell of a row first. Columns: row, column, value, log_prob (log p(cell | the rest of its row),
            exact), the mean and standard deviation that the rest of the row gives for columns that hold numbers or true
            and false, and surprise: -log P(a value at most as probable as this one | the rest of its row). If the model
            is right, a cell of any column has a surprise above s with probability e^-s at most.
        """
        known = self._read(rows)
        found = queries.explain(self._target, known.evidence)
        return self._by_run(lambda run: self._writer.explained(found, run, known))

    def _positions(self, columns: Columns) -> list[int]:
        listed = [columns] if isinstance(columns, str | int) else columns
        return [self.schema.position(column) for column in listed]


def _with_share(log_prob: Tensor, asked: Given) -> Tensor:  # (R, N)
    return log_prob if asked.log_share is None else log_prob.double() + asked.log_share.to(log_prob.device)


def _seed(seed: int | None) -> int:
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
