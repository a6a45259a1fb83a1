"""The step size and the strength of the penalty of every run, at every step of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from circurve.learning.checks import check_at_least_zero, check_step
from circurve.learning.history import EpochRecord
from circurve.learning.methods import Grid, Vanilla
from circurve.learning.options import Run, Settings
from circurve.learning.schedules import Schedule, by_overfitting

__all__ = ["Rates", "step_sizes", "strengths"]

Rates = list[tuple[float, ...]]
"""A number for each step and run, (steps, R)."""


def step_sizes(runs: Sequence[Run], settings: Settings, progress: Sequence[float]) -> Rates:
    """alpha of the runs at each step; progress goes from 0 to 1 over the training."""
    given = [settings.step if run.step_size is None else run.step_size for run in runs]
    return _at_each_step(given, progress, check_step)


def strengths(runs: Sequence[Run], last: Sequence[EpochRecord | None], progress: Sequence[float]) -> Rates:
    """mu of the runs at each step; `last` holds the record of each run's last epoch."""
    given = [_strength(run, record) for run, record in zip(runs, last, strict=True)]
    return _at_each_step(given, progress, partial(check_at_least_zero, "mu"))


def _strength(run: Run, last: EpochRecord | None) -> float | Schedule:
    mu = 0.0 if isinstance(run.method, Vanilla) else run.method.mu
    assert not isinstance(mu, str | Grid), "a choice of mu is resolved before training"
    if not isinstance(mu, by_overfitting):
        return mu
    if last is None or last.valid_ll is None:
        return mu.value(None)
    return mu.value(0.0 if last.valid_ll >= last.train_ll else last.dof)


def _at_each_step(
    given: Sequence[float | Schedule], progress: Sequence[float], check: Callable[[float], None]
) -> Rates:
    """Each run's number or schedule at every step; a schedule that runs share is asked, and checked, once a step."""
    schedules = {id(value): value for value in given if callable(value)}
    values = {key: [schedule(at) for at in progress] for key, schedule in schedules.items()}
    for column in values.values():
        for value in column:
            check(value)
    columns = [values[id(value)] if callable(value) else [value] * len(progress) for value in given]
    return list(zip(*columns, strict=True))
