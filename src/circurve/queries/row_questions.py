"""Questions by column name whose answers are rows: draws, filled holes, most probable completions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from circurve import queries
from circurve.data import Table
from circurve.errors import OptionError
from circurve.queries.answers import Completion
from circurve.queries.asked import Asked
from circurve.queries.given import Given, as_given
from circurve.queries.in_pieces import answer_rows, seed_of_piece
from circurve.queries.target import check_drawn

__all__ = ["RowQuestions"]

Array = NDArray[np.float64]
How = Literal["mean", "mode", "sample"]


class RowQuestions(Asked):
    """Draw rows, or complete them."""

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

        Raises
        ------
        OptionError
            If `n` is not a whole number of at least 1.
        DataError
            If the evidence has probability zero.

        Examples
        --------
        >>> rows = model.sample(3, given={"city": "Rome"}, seed=0)
        >>> list(rows["city"])
        ['Rome', 'Rome', 'Rome']
        """
        if self._is_streamed(given):
            return answer_rows(given, _drawing(seed, lambda piece, own: self.sample(n, piece, seed=own)))
        known = self._read(given)
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise OptionError(f"n must be a whole number >= 1, not {n!r}")
        check_drawn(self._target, known.evidence.size * int(n))
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

        Raises
        ------
        OptionError
            If `how` is something else, or `draws` is given without how="sample".

        Examples
        --------
        >>> model.impute({"city": ["Oslo", None], "degrees": [None, 20.5]}).round(1)
           city   rain  degrees
        0  Oslo  False      6.3
        1  Rome  False     20.5
        """
        if how not in ("mean", "mode", "sample"):
            raise OptionError(f"how must be 'mean', 'mode' or 'sample', not {how!r}")
        if how != "sample" and draws != 1:
            raise OptionError(f"draws={draws} has no effect with how={how!r}; use how='sample'")
        if self._is_streamed(rows):
            return answer_rows(rows, _drawing(seed, lambda piece, own: self.impute(piece, how, draws=draws, seed=own)))
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

        Raises
        ------
        DataError
            If the evidence has probability zero.

        Examples
        --------
        >>> found = model.most_probable({"city": "Rome"})
        >>> found
        <Completion: 1 row, not exact; log p at most 0.0201 below the optimum>
        >>> found.rows.round(1)
           city   rain  degrees
        0  Rome  False     22.1
        """
        if self._is_streamed(given):
            answers: Completion = answer_rows(given, self.most_probable)
            return answers
        known = self._read(given)
        found = queries.most_probable(self._target, known.evidence)
        values = as_given(found.values, known)  # (R, N, V)
        score, bound = (part.double().cpu().numpy() for part in (found.log_prob, found.upper_bound))  # (R, N)
        exact = found.exact.cpu().numpy()

        def answer(run: int) -> Completion:
            return Completion(self._writer.rows(values[run], known.frame), score[run], bound[run], exact[run])

        completion: Completion = self._by_run(answer)
        return completion


def _drawing(seed: int | None, ask: Callable[[Table, int | None], Any]) -> Callable[[Table], Any]:
    """A question about a piece that draws with a seed of its own each time."""
    numbers = itertools.count()
    return lambda piece: ask(piece, seed_of_piece(seed, next(numbers)))


def _seed(seed: int | None) -> int:
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
