"""Questions about the rows of a stream: asked some rows at a time, the answers put together as those of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from circurve.data import Table, columns_of, make_frame
from circurve.data.pieces import piece_answers
from circurve.queries.answers import Completion

__all__ = ["answer_rows", "seed_of_piece"]

Ask = Callable[[Table], Any]


def answer_rows(rows: Any, ask: Ask, numbered: bool = False) -> Any:
    """ask(piece) for all pieces of a stream, one below the other, in the form in which a table is answered.

    ask returns an array, a frame, a `Completion` or a list of frames. numbered: its frames have a column `row`, which
    counts from 0 within a piece.
    """
    answers, starts = [], [0]
    for piece, found in piece_answers(rows, None, ask):
        answers.append(found)
        starts.append(starts[-1] + len(piece))
    like = np.empty((0, 0)) if isinstance(rows, np.ndarray) else None  # a mapped array is answered with an array
    return _joined(answers, like, starts if numbered else None)


def seed_of_piece(seed: int | None, number: int) -> int | None:
    """The seed of a piece, by its number from 0: that of the whole for the first, so that a single piece is drawn like
    a table. Draws of different pieces are independent."""
    if seed is None or number == 0:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _joined(answers: Sequence[Any], like: Any, starts: Sequence[int] | None) -> Any:
    first = answers[0]
    if isinstance(first, Completion):
        rows = _joined([answer.rows for answer in answers], like, None)
        parts = ([getattr(answer, name) for answer in answers] for name in ("log_prob", "bound", "exact"))
        return Completion(rows, *(np.concatenate(part) for part in parts))
    if isinstance(first, list):
        return [_joined(tables, like, starts) for tables in zip(*answers, strict=True)]
    if isinstance(first, np.ndarray):
        return np.concatenate(answers)
    parts_of = [columns_of(answer) for answer in answers]
    columns = {name: np.concatenate([np.asarray(part[name]) for part in parts_of]) for name in parts_of[0]}
    if starts is not None and "row" in columns:
        columns["row"] = columns["row"] + np.repeat(starts[:-1], [len(part["row"]) for part in parts_of])
    return make_frame(columns, like)
