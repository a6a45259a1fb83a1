"""The step size and the strength of the penalty of every run, at every step of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from circurve.learning.checks import check_at_least_zero
from circurve.learning.history import EpochRecord
from circurve.learning.methods import Grid, Strength, Vanilla
from circurve.learning.options import Run, Settings, as_schedule
from circurve.learning.schedules import Schedule, by_overfitting

__all__ = ["Rates"]

T = TypeVar("T")
"""A number, a schedule, or what else says how strong or how long a step is."""

Steps = list[tuple[float, ...]]
"""A number for each step and run, (steps, R)."""


class Rates:
    """Step sizes and strengths of all runs; each value of a schedule is checked when it is read."""

    def __init__(self, runs: Sequence[Run], settings: Settings) -> None:
        steps: list[float | Schedule] = [settings.step if run.step_size is None else run.step_size for run in runs]
        mus: list[Strength] = [0.0 if isinstance(run.method, Vanilla) else run.method.mu for run in runs]
        self.step_sizes = _checked(steps, as_schedule)
        self.strengths = _checked(mus, _as_strength)

    def step_sizes_at(self, runs: Sequence[int], progress: Sequence[float]) -> Steps:
        """alpha of the given runs at each step; progress goes from 0 to 1 over the training."""
        return _over_epoch([self.step_sizes[run] for run in runs], progress)

    def strengths_at(self, runs: Sequence[int], progress: Sequence[float], last: Sequence[EpochRecord | None]) -> Steps:
        """mu of the given runs at each step; `last` holds the record of each run's last epoch."""
        pairs = zip(runs, last, strict=True)
        return _over_epoch([self._strength(run, record) for run, record in pairs], progress)

    def _strength(self, run: int, last: EpochRecord | None) -> float | Schedule:
        strength = self.strengths[run]
        if isinstance(strength, by_overfitting):
            return strength.value(None if last is None else _overfitting(last))
        assert not isinstance(strength, str | Grid), "a choice of mu is resolved before training"
        return strength


def _checked(given: Sequence[T], check: Callable[[Schedule], Schedule]) -> list[T]:
    """Schedules with a check of their values, one for all runs that share a schedule; all else as it is."""
    checked = {id(value): cast("T", check(value)) for value in given if callable(value)}
    return [checked.get(id(value), value) for value in given]


def _as_strength(mu: Schedule) -> Schedule:
    def checked(progress: float) -> float:
        strength = mu(progress)
        check_at_least_zero("mu", strength)
        return strength

    return checked


def _over_epoch(given: Sequence[float | Schedule], progress: Sequence[float]) -> Steps:
    """Each run's number or schedule at every step; a schedule that runs share is asked once a step."""
    schedules = dict.fromkeys(value for value in given if callable(value))
    values = {schedule: [schedule(at) for at in progress] for schedule in schedules}
    columns = [values[value] if callable(value) else [value] * len(progress) for value in given]
    return list(zip(*columns, strict=True))


def _overfitting(record: EpochRecord) -> float | None:
    """The degree of overfitting, zero where validation data fit better than training data."""
    if record.valid_ll is None or record.valid_ll >= record.train_ll:
        return None if record.valid_ll is None else 0.0
    return record.dof
