"""Questions by column name about probabilities, distributions and quantiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from circurve import queries
from circurve.data import answer_in_pieces
from circurve.errors import DataError, OptionError
from circurve.queries.asked import Asked
from circurve.queries.given import Given
from circurve.queries.in_pieces import answer_rows
from circurve.queries.states import check_states

if TYPE_CHECKING:
    from circurve.data.unseen import Unseen

__all__ = ["ProbabilityQuestions"]

Array = NDArray[np.float64]

FRAME_COLUMN_BYTES = 1_000
"""Bytes of a column of a data frame without its values: its name, and what frames keep of each column."""


class ProbabilityQuestions(Asked):
    """How probable something is, and how a column is distributed."""

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

        Raises
        ------
        DataError
            If a column is unknown, or a value was not seen in training and `unseen` is "error".

        Examples
        --------
        >>> round(model.marginal({"city": "Oslo"}), 2)
        0.51
        >>> model.marginal({"city": ["Oslo", "Rome"], "rain": [True, None]}).round(2)
        array([0.24, 0.49])
        """
        if out is not None or self._is_streamed(rows):
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

        Raises
        ------
        DataError
            If a column is unknown, is both asked for and given, or if what is given has probability zero.

        Examples
        --------
        >>> round(model.conditional({"rain": True}, given={"city": "Oslo"}), 2)
        0.48
        >>> model.conditional({"rain": True}, given={"degrees": [5.0, 20.0]}).round(2)
        array([0.59, 0.02])
        """
        if self._is_streamed(target) and self._is_streamed(given):
            raise OptionError("target and given cannot both be streams; pass all columns of a row in one, or in tables")
        if self._is_streamed(target):
            return answer_rows(target, lambda piece: self.conditional(piece, given, log=log))
        if self._is_streamed(given):
            return answer_rows(given, lambda piece: self.conditional(target, piece, log=log))
        asked, known = self._read(target), self._read(given)
        found = queries.conditional(self._target, asked.evidence, known.evidence)
        return self._probabilities(_with_share(found, asked), asked.single and known.single, log)

    def interval(self, ranges: Mapping[Any, tuple[Any, Any]], given: Any = None, *, log: bool = False) -> Any:
        """Probability that the values of columns are in intervals, both ends included.

        Parameters
        ----------
        ranges : mapping
            Column to (low, high); None is an open end.
        given : mapping, data frame or array, optional
            The evidence, as in `conditional`.
        log : bool, default False
            Return the logarithm.

        Returns
        -------
        float or array
            One number for each row.

        Raises
        ------
        DataError
            If an interval is not a pair (low, high), or a column holds categories, which have no order.

        Examples
        --------
        >>> round(model.interval({"degrees": (None, 10)}, given={"rain": False}), 2)
        0.32
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

        Raises
        ------
        DataError
            If the column is unknown, or its value is given.

        Examples
        --------
        >>> model.distribution("city", given={"degrees": 8.0}).round(2)
           city  probability
        0  Oslo         0.98
        1  Rome         0.02
        >>> model.distribution("degrees", points=3).round(2)
           degrees  density  cumulative
        0    -0.35      0.0        0.00
        1    15.20      0.0        0.52
        2    30.76      0.0        1.00
        """
        if self._is_streamed(given):
            return answer_rows(given, lambda piece: self.distribution(column, piece, points=points), numbered=True)
        number, known, write = self.schema.position(column), self._read(given), self._writer
        if not known.single and self._target.states[number] is not None:
            check_states(self._target, number, "a frame with columns", FRAME_COLUMN_BYTES)
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
            Above 0 and below 1.
        given : mapping, data frame or array, optional
            The evidence.

        Returns
        -------
        number or array
            One number for a single row and level, else (rows, levels) without the axis that is single.

        Raises
        ------
        DataError
            If the column holds categories, which have no order.
        OptionError
            If a level is not above 0 and below 1, or there is none.

        Examples
        --------
        >>> model.quantile("degrees", [0.1, 0.5, 0.9], given={"city": "Rome"}).round(1)
        array([18. , 22. , 25.9])
        """
        if self._is_streamed(given):
            return answer_rows(given, lambda piece: self.quantile(column, levels, piece))
        number, known = self.schema.position(column), self._read(given)
        if self.schema.columns[number].kind == "category":
            name = self._writer.name(number)
            raise DataError(f"column {name!r} holds categories, which have no order and no quantiles")
        found = queries.distribution(self._target, number, known.evidence)
        wanted = _levels(levels)
        table = np.stack(
            [found.quantile(level).cpu().numpy() for level in wanted.ravel().tolist()], axis=2
        )  # (R, N, levels)
        values = self._writer.decoded(number, table.ravel()).reshape(table.shape)
        values = values[:, 0] if known.single else values
        values = values if wanted.ndim else values[..., 0]
        return self._by_run(lambda run: values[run])


def _levels(given: Any) -> NDArray[np.float64]:  # () or (levels,)
    wrong = OptionError(f"levels must be a number above 0 and below 1, or a list of them, not {given!r}")
    if isinstance(given, str):
        raise wrong
    try:
        levels = np.asarray(given, dtype=np.float64)
    except (ValueError, TypeError):
        raise wrong from None
    if levels.ndim > 1 or not levels.size:
        raise wrong
    return levels


def _with_share(log_prob: Tensor, asked: Given) -> Tensor:  # (R, N)
    return log_prob if asked.log_share is None else log_prob.double() + asked.log_share.to(log_prob.device)
