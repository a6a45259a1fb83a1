"""Answers for rows that are read piece by piece, put together in one array."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from circurve.data.convert import Array
from circurve.data.open_stream import as_source
from circurve.data.stream import Stream
from circurve.data.table import Places, Table
from circurve.errors import CircurveWarning, DataError, warn_user

__all__ = ["answer_in_pieces", "piece_answers", "source_pieces"]

Answer = TypeVar("Answer")


def answer_in_pieces(
    data: Any, missing: int | None, answer: Callable[[Table], Array], out: Any = None, size: int | None = None
) -> Any:
    """answer(piece), (n, ...), for all pieces of a stream, one below the other: (N, ...).

    size: the rows of a piece, at most. out: an array of that shape to fill, which may be in a file; None makes one in
    memory. Of the warnings of all pieces the first is given.
    """
    source = as_source(data, missing)
    rows, filled = len(source), 0
    for _, given in piece_answers(source, None, answer, size):
        found = np.asarray(given)
        if out is None:
            out = np.empty((rows, *found.shape[1:]), dtype=found.dtype)
        if tuple(np.shape(out)) != (rows, *found.shape[1:]):
            raise DataError(f"out has shape {np.shape(out)}, expected {(rows, *found.shape[1:])}")
        out[filled : filled + len(found)] = found
        filled += len(found)
    return out


def piece_answers(
    data: Any, missing: int | None, answer: Callable[[Table], Answer], size: int | None = None
) -> Iterator[tuple[Table, Answer]]:
    """All pieces of a stream with answer(piece); a table is one piece. Of all warnings the first is given.

    Messages about a row give its number among all rows, from 1.
    """
    source, told = as_source(data, missing), False
    for piece in source_pieces(source, size):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CircurveWarning)
            found = answer(piece)
        if caught and not told:
            warn_user(str(caught[0].message))
            told = True
        yield piece, found


def source_pieces(source: Table | Stream, size: int | None = None) -> Iterator[Table]:
    """A table whole, or a stream some rows at a time, which messages count from the first of all."""
    if isinstance(source, Table):
        yield source
        return
    start = 1
    for piece in source.pieces(size):
        yield replace(piece, places=Places("row", range(start, start + len(piece))))
        start += len(piece)
