"""Rows held out for validation if none are given: when, how many, and which."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from circurve.data import RowSource, Stream, split_rows
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.learning.auto import needs_choice
from circurve.learning.methods import Vanilla
from circurve.learning.options import Run, Settings
from circurve.learning.schedules import by_overfitting
from circurve.words import counted

__all__ = ["FEWEST_ROWS", "HeldOut", "check_validation", "hold_out", "say", "set_aside"]

Source = TypeVar("Source", bound=RowSource)

SHARE = 0.1
"""The share of the training rows that is held out, unless a share is given."""

FEWEST_ROWS, FEWEST_ROWS_UNASKED = 10, 200
"""Fewer rows are not split; without a need for validation rows, only tables of FEWEST_ROWS_UNASKED rows are."""

SEED = 760_218_834
"""Which rows are held out does not depend on the seeds of the runs: all runs are compared on the same rows.

It must not be a seed that users choose either: if the rows were generated with the seed of the split, the split would
depend on their values (it could, for example, hold out the smallest ones).
"""


@dataclass(frozen=True)
class HeldOut(Generic[Source]):
    """The training table in parts, and the numbers of their rows in it."""

    parts: Mapping[str, Source]
    rows: Mapping[str, NDArray[np.int64]]


def hold_out(train: Source, circuit: Circuit, runs: Sequence[Run], settings: Settings, valid: Any) -> HeldOut[Source]:
    """Set rows aside for validation, where `valid` is a share, or None and they are needed.

    They are needed by mu="auto", gate="auto", by_overfitting, patience and select="best"; and where a circuit has more
    parameters than the table has values, unless select says which epoch to keep: the last epoch would then fit the
    noise, and the best one is kept instead.
    """
    if valid is True:
        raise OptionError("valid must be data, a share of the training rows between 0 and 1, or False, not True")
    count = len(train)
    share = valid if isinstance(valid, float) else SHARE
    if not isinstance(valid, float):
        free = settings.select is None and settings.epochs > 1 and count >= FEWEST_ROWS_UNASKED
        wanted = _need(runs, settings) is not None or (free and _more_parameters(circuit, train))
        if valid is not None or not wanted:
            return HeldOut({"train": train}, {"train": np.arange(count)})
    return set_aside(train, share)


def set_aside(train: Source, share: float = SHARE) -> HeldOut[Source]:
    """A share of the rows for validation, the others for training."""
    count = len(train)
    if not 0 < share < 1:
        raise OptionError(f"valid must be data, a share of the training rows between 0 and 1, or False, not {share!r}")
    if isinstance(train, Stream) and train.reader.access == "sequence":
        raise OptionError(
            f"rows of a {train.reader.name} cannot be held out, because their order may change: pass valid="
        )
    if count < FEWEST_ROWS:
        rows = counted(count, "training row is", "training rows are")
        raise OptionError(f"{rows} too few to hold some out for validation: pass valid=")
    kept, held, _ = split_rows(np.arange(count), valid=share, test=0.0, seed=SEED)
    assert held is not None
    parts = {"train": cast("Source", train.rows(kept)), "valid": cast("Source", train.rows(held))}
    return HeldOut(parts, {"train": kept, "valid": held})


def say(held: HeldOut[Any], train: RowSource) -> None:
    """One line on standard error about the rows that were held out."""
    rows = len(held.rows["valid"])
    print(
        f"circurve: {rows:,} of {len(train):,} training rows are held out for validation (result.rows); pass "
        f"valid=False to train on all rows",
        file=sys.stderr,
    )


def check_validation(runs: Sequence[Run], settings: Settings, refit: bool, possible: bool) -> None:
    """Refuse what needs validation data where there can be none, and what a refit would take them away from."""
    if refit and any(_follows_validation(run) for run in runs):
        raise OptionError(
            "refit trains on the validation rows too, but mu=by_overfitting(...) needs them to measure overfitting"
        )
    need = _need(runs, settings)
    if need is not None and not possible:
        raise OptionError(f"{need}: pass valid=, or leave valid=False out, and some rows are held out")


def _need(runs: Sequence[Run], settings: Settings) -> str | None:
    """What needs validation data, as a message opens with it."""
    if any(needs_choice(run) for run in runs):
        return "mu='auto' and gate='auto' choose by validation likelihood"
    if any(_follows_validation(run) for run in runs):
        return "mu=by_overfitting(...) needs validation data"
    if settings.patience is not None or settings.select == "best":
        return "patience and select='best' need validation data"
    return None


def _follows_validation(run: Run) -> bool:
    return not isinstance(run.method, Vanilla) and isinstance(run.method.mu, by_overfitting)


def _more_parameters(circuit: Circuit, train: RowSource) -> bool:
    return circuit.describe().parameters > train.known_values
