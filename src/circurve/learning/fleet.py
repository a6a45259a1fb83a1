"""The state of a training: one record that is replaced as a whole, so that it is consistent at any moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from circurve.engine import Params
from circurve.learning.history import EpochRecord, Failure
from circurve.learning.plan import Plan
from circurve.learning.score import Scorer
from circurve.learning.steps import Steps

__all__ = ["Finished", "Fleet", "Workers"]


@dataclass(frozen=True)
class Finished:
    """A run that has stopped."""

    params: Params  # R = 1
    epoch: int
    """The epoch whose parameters these are."""

    stopped: str
    failure: Failure | None = None


@dataclass(frozen=True)
class Workers:
    """What trains and scores the active runs; made for their number."""

    plan: Plan
    steps: Steps
    scorer: Scorer


@dataclass(frozen=True)
class Fleet:
    """All that a training knows between two epochs. Runs have numbers; active runs also have places, from 0 on."""

    active: tuple[int, ...]
    """The numbers of the runs that still train."""

    workers: Workers
    kept: Params
    """The parameters after the last whole epoch, all finite; R = number of active runs, as in the next four."""

    memories: tuple[Tensor, ...]
    """The gates' running curvature after the last whole epoch."""

    best: Params
    """The parameters of the best epoch by validation."""

    best_ll: Tensor  # (R,) float64, on the CPU
    best_epoch: tuple[int, ...]
    history: tuple[tuple[EpochRecord, ...], ...]
    """Of every run, by its number."""

    finished: Mapping[int, Finished]
    """The runs that have stopped, by their number."""

    @classmethod
    def start(cls, params: Params, workers: Workers) -> Fleet:
        """Before the first epoch; R = number of runs."""
        return cls(
            active=tuple(range(params.runs)),
            workers=workers,
            kept=params,
            memories=workers.plan.memories(),
            best=params,
            best_ll=torch.full((params.runs,), -torch.inf, dtype=torch.float64),
            best_epoch=(0,) * params.runs,
            history=((),) * params.runs,
            finished={},
        )

    def last(self) -> list[EpochRecord | None]:
        """The record of the last epoch of each active run; None before the first one."""
        return [self.history[run][-1] if self.history[run] else None for run in self.active]

    def after_epoch(self, records: Sequence[EpochRecord], keep_best: bool) -> Fleet:
        """The state after one more epoch, with its record of each active run; `keep_best` keeps the best parameters."""
        history = list(self.history)
        for run, record in zip(self.active, records, strict=True):
            history[run] = (*history[run], record)
        kept = self.workers.steps.snapshot()
        state = replace(self, history=tuple(history), kept=kept, memories=self.workers.plan.memories())
        scores = [record.valid_ll for record in records if record.valid_ll is not None]
        return state._with_best(scores, records[0].epoch, keep_best) if scores else state

    def _with_best(self, scores: Sequence[float], epoch: int, keep_best: bool) -> Fleet:
        valid = torch.tensor(scores, dtype=torch.float64)
        better = valid > self.best_ll
        pairs = zip(better.tolist(), self.best_epoch, strict=True)
        best = self.best
        if keep_best:
            best = _where(better.to(self.kept.device).view(-1, 1, 1, 1), self.kept, self.best)
        return replace(
            self,
            best=best,
            best_ll=torch.where(better, valid, self.best_ll),
            best_epoch=tuple(epoch if has_risen else before for has_risen, before in pairs),
        )

    def without(self, finished: Mapping[int, Finished], workers: Workers | None) -> Fleet:
        """The state once these active runs have stopped; `workers` go on with the others, None if there are none."""
        places = [place for place, run in enumerate(self.active) if run not in finished]
        state = replace(
            self,
            active=tuple(self.active[place] for place in places),
            best_epoch=tuple(self.best_epoch[place] for place in places),
            finished={**self.finished, **finished},
        )
        if workers is None:
            return state
        return replace(
            state,
            workers=workers,
            kept=workers.steps.snapshot(),
            memories=workers.plan.memories(),
            best=self.best.select(places),
            best_ll=self.best_ll[places],
        )


def _where(chosen: Tensor, new: Params, old: Params) -> Params:
    """For each run the new parameters where chosen (R, 1, 1, 1), else the old ones."""
    weights = zip(new.weights, old.weights, strict=True)
    inputs = zip(new.inputs, old.inputs, strict=True)
    return Params(
        tuple(torch.where(chosen, a, b) for a, b in weights), tuple(torch.where(chosen, a, b) for a, b in inputs)
    )
