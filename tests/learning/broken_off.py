"""Trainings that are interrupted at a known moment and then continued from their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circurve.learning import EpochEnd, FitResult, FleetResult


class BreakOffError(Exception):
    """Ends a training as a crash would."""


def break_off_at(epoch: int) -> Callable[[EpochEnd], None]:
    """A callback that ends the training after this many epochs."""

    def callback(event: EpochEnd) -> None:
        if event.epoch == epoch:
            raise BreakOffError

    return callback


def timeless(result: FitResult) -> list[object]:
    return [replace(record, seconds=0.0) for record in result.history]


def assert_equal_to_the_bit(found: FitResult, wanted: FitResult) -> None:
    pairs = zip(
        (*found.model.params.weights, *found.model.params.inputs),
        (*wanted.model.params.weights, *wanted.model.params.inputs),
        strict=True,
    )
    assert all(a.equal(b) for a, b in pairs)
    assert timeless(found) == timeless(wanted)
    scores = [(r.epoch, r.stopped, r.failure, r.train_ll, r.valid_ll, r.test_ll, r.sharpness) for r in (found, wanted)]
    assert scores[0] == scores[1]
    assert found.run == wanted.run


def assert_equal_fleets(found: FleetResult, wanted: FleetResult) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert_equal_to_the_bit(one, other)


def broken_and_continued(train: Callable[..., Any], folder: Path, epoch: int, **checkpoint: Any) -> Any:
    """What `train` returns after a break in this epoch."""
    options = {"checkpoint": folder, "checkpoint_every": "1 epoch", **checkpoint}
    with pytest.raises(BreakOffError):
        train(callbacks=[break_off_at(epoch)], **options)
    return train(**options)
