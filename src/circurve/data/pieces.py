"""Answers for rows that are read piece by piece, put together in one array."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from circurve.data.convert import Array
from circurve.data.open_stream import as_source
from circurve.data.stream import Stream
from circurve.data.table import Table
from circurve.errors import CircurveWarning, DataError, warn_user

__all__ = ["answer_in_pieces"]


def answer_in_pieces(
    data: Any, missing: int | None, answer: Callable[[Table], Array], out: Any = None, size: int | None = None
) -> Any:
    """answer(piece), (n, ...), for all pieces of a stream, one below the other: (N, ...).

    size: the rows of a piece, at most. out: an array of that shape to fill, which may be in a file; None makes one in
    memory. Of the warnings of all pieces the first is given.
    """
    source = as_source(data, missing)
    rows, filled, told = len(source), 0, False
    for piece in source.pieces(size) if isinstance(source, Stream) else (source,):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CircurveWarning)
            found = np.asarray(answer(piece))
        if caught and not told:
            warn_user(str(caught[0].message))
            told = True
        if out is None:
            out = np.empty((rows, *found.shape[1:]), dtype=found.dtype)
        if tuple(np.shape(out)) != (rows, *found.shape[1:]):
            raise DataError(f"out has shape {np.shape(out)}, expected {(rows, *found.shape[1:])}")
        out[filled : filled + len(found)] = found
        filled += len(found)
    return out
