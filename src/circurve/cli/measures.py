"""The numbers that several commands report."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.curvature import curvature
from circurve.data import Stream, Table
from circurve.data.bind import without_unseen
from circurve.data.convert import about
from circurve.errors import CircurveWarning, DataError, MemoryLimitError, OptionError, warn_user
from circurve.model import Model

__all__ = [
    "check_one_output",
    "degree_of_overfitting",
    "empty_rows",
    "log_likelihoods",
    "possible_rows",
    "sharpness",
    "unseen_rows",
]


def check_one_output(model: Model) -> None:
    """Refuse a model of several distributions: the command line has no way to say which row belongs to which."""
    if model.circuit.outputs != 1:
        raise OptionError(
            f"the model has {model.circuit.outputs} outputs; only a model with one output can be evaluated"
        )


def log_likelihoods(
    model: Model, values: Table | Stream, what: str, memory_budget: int | None = None
) -> NDArray[np.float64]:  # (N,)
    """log p of each row, in nats; -inf for a row of probability zero. `what` is the start of messages."""
    check_one_output(model)
    with about(what):
        found: NDArray[np.float64] = model.log_prob(values, memory_budget=memory_budget)
        return found


def possible_rows(rows: Table | Stream) -> Table | Stream:
    """The rows without a value that was not seen in training; DataError if there is none."""
    if isinstance(rows, Stream):
        return _possible_stream(rows)
    if rows.impossible is None:
        return rows
    return replace(rows.rows(_some(~rows.impossible.any(1))), impossible=None)


def _possible_stream(stream: Stream) -> Stream:
    if stream.binding is None or not stream.binding.impossible:
        return stream
    parts = [
        torch.ones(len(piece), dtype=torch.bool) if piece.impossible is None else ~piece.impossible.any(1)
        for piece in stream.pieces()
    ]
    return without_unseen(stream.rows(_some(torch.cat(parts))))


def _some(possible: Tensor) -> Tensor:  # (N,)
    if not bool(possible.any()):
        raise DataError("every row has a value that was not seen in training")
    return possible


def empty_rows(source: Table | Stream) -> int:
    """How many rows have no value at all, not even one that was not seen in training: their probability is 1."""
    if isinstance(source, Stream) and source.binding is not None and not source.binding.missing:
        return 0
    pieces = source.pieces() if isinstance(source, Stream) else (source,)
    found = 0
    for piece in pieces:
        if piece.observed is not None:
            known = piece.observed if piece.impossible is None else piece.observed | piece.impossible
            found += int((~known.any(1)).sum())
    return found


def unseen_rows(source: Table | Stream) -> int:
    """How many rows have a value that was not seen in training."""
    pieces = source.pieces() if isinstance(source, Stream) else (source,)
    return sum(0 if piece.impossible is None else int(piece.impossible.any(1).sum()) for piece in pieces)


def degree_of_overfitting(train_ll: float | None, valid_ll: float | None) -> float | None:
    """|L_valid - L_train| / |L_valid|, where both are known and it is a number."""
    if train_ll is None or valid_ll is None or not np.isfinite([train_ll, valid_ll]).all() or valid_ll == 0:
        return None
    return abs(valid_ll - train_ll) / abs(valid_ll)


def sharpness(model: Model, values: Table | Stream, memory_budget: int | None = None) -> float | None:
    """The mean over rows of the trace of the Hessian; rows of probability zero are left out, None if no other is there.

    The rows have been scored before, and all warnings were given then. None, with a warning, if it does not fit the
    memory: a model that took hours to train is not lost for it.
    """
    try:
        return _trace(model, values, memory_budget)
    except MemoryLimitError as error:
        warn_user(f"the sharpness is not measured: {error}")
        return None


def _trace(model: Model, values: Table | Stream, memory_budget: int | None) -> float | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CircurveWarning)
        try:
            return curvature(model, possible_rows(values), memory_budget=memory_budget).trace
        except DataError:
            return None
