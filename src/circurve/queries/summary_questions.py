"""Questions by column name about moments and information, and about which cells of a row are surprising."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circurve import queries
from circurve.queries.answers import Estimate
from circurve.queries.asked import Asked
from circurve.queries.in_pieces import answer_rows

__all__ = ["SummaryQuestions"]

Columns = str | int | Sequence[str | int]


class SummaryQuestions(Asked):
    """Moments, information, and what explains a row's probability."""

    def mean(self, given: Any = None) -> Any:
        """The expected value of every column that holds numbers, dates or true and false.

        Parameters
        ----------
        given : mapping, data frame or array, optional
            The evidence; what is given comes back as it is.

        Returns
        -------
        data frame
            One row for each row of evidence, without the columns of categories. The mean of true and false is the
            probability of true.

        Raises
        ------
        DataError
            If every column holds categories.

        Examples
        --------
        >>> model.mean(given={"city": "Oslo"}).round(2)
           rain  degrees
        0  0.48     6.28
        """
        if self._is_streamed(given):
            return answer_rows(given, self.mean)
        known = self._read(given)
        values = queries.mean(self._target, known.evidence).cpu().numpy()
        return self._by_run(lambda run: self._writer.numbers(values[run], known.frame, dates=True))

    def variance(self, given: Any = None) -> Any:
        """The variance of every column that holds numbers, dates (in days) or true and false.

        Parameters
        ----------
        given : mapping, data frame or array, optional
            The evidence; the variance of what is given is 0.

        Returns
        -------
        data frame
            One row for each row of evidence, without the columns of categories.

        Raises
        ------
        DataError
            If every column holds categories.

        Examples
        --------
        >>> model.variance(given={"city": "Oslo"}).round(2)
           rain  degrees
        0  0.25     9.32
        """
        if self._is_streamed(given):
            return answer_rows(given, self.variance)
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

        Raises
        ------
        DataError
            If every column holds categories.

        Examples
        --------
        >>> model.covariance().round(2)
            column  rain  degrees
        0     rain  0.19    -2.09
        1  degrees -2.09    71.51
        """
        if self._is_streamed(given):
            return answer_rows(given, self.covariance)
        known, chosen = self._read(given), self._writer.numeric()
        table = queries.covariance(self._target, known.evidence).cpu().numpy()[:, :, chosen][..., chosen]
        return self._by_run(lambda run: self._writer.covariances(table[run, 0]) if known.single else table[run])

    def mutual_information(self, a: Columns, b: Columns, *, draws: int = 10_000, seed: int = 0) -> Estimate:
        """The mutual information I(a; b) of two columns, or two lists of columns, in nats.

        Parameters
        ----------
        a : str, int or a list of them
            Columns by name or number.
        b : str, int or a list of them
            Other columns.
        draws : int, default 10000
            If there are too many joint values to list, the answer is a mean over this many draws.
        seed : int, default 0
            The seed of these draws.

        Returns
        -------
        Estimate
            `.value`, its `.standard_error`, and whether it is `.exact`.

        Raises
        ------
        OptionError
            If a column is on both sides.

        Examples
        --------
        >>> model.mutual_information("city", "rain")
        <Estimate: 0.1609, exact>
        """
        first, second = (self._positions(columns) for columns in (a, b))
        return self._estimate(queries.mutual_information(self._target, first, second, draws, seed))

    def entropy(self, columns: Columns | None = None, *, draws: int = 10_000, seed: int = 0) -> Estimate:
        """The entropy of a column, of some or of all columns, in nats (differential if continuous).

        Parameters
        ----------
        columns : str, int or a list of them, optional
            Columns by name or number; None is all of them.
        draws : int, default 10000
            If there are too many joint values to list, the answer is a mean over this many draws.
        seed : int, default 0
            The seed of these draws.

        Returns
        -------
        Estimate
            `.value`, its `.standard_error`, and whether it is `.exact`.

        Raises
        ------
        OptionError
            If a column is listed twice.

        Examples
        --------
        >>> model.entropy("city")
        <Estimate: 0.693, exact>
        >>> model.entropy().exact
        False
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

        Examples
        --------
        >>> found = model.explain({"city": "Rome", "rain": True, "degrees": 5.0})
        >>> found[["column", "value", "log_prob", "surprise"]].round(2)
            column value  log_prob  surprise
        0     city  Rome     -4.41      4.41
        1  degrees   5.0     -3.01      0.79
        2     rain  True     -0.63      0.00
        """
        if self._is_streamed(rows):
            return answer_rows(rows, self.explain, numbered=True)
        known = self._read(rows)
        found = queries.explain(self._target, known.evidence)
        return self._by_run(lambda run: self._writer.explained(found, run, known))

    def _positions(self, columns: Columns) -> list[int]:
        listed = [columns] if isinstance(columns, str | int) else columns
        return [self.schema.position(column) for column in listed]
