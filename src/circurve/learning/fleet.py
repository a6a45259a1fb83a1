"""The state of a training: one record that is replaced as a whole, so that it is consistent at any moment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from circurve.engine import Params
from circurve.learning.history import EpochRecord, Failure
from circurve.learning.steps import Steps

__all__ = ["Finished", "Fleet"]


@dataclass(frozen=True)
class Finished:
    """A run that has stopped."""

    params: Params  # R = 1
    epoch: int  # whose parameters these are
    stopped: str
    failure: Failure | None = None


@dataclass(frozen=True)
class Fleet:
    """The whole state of a training between two epochs. Runs have numbers; active runs also have places, from 0 on.

    `kept`, `memories` and `best` are of the active runs, in the order of their places.
    """

    active: tuple[int, ...]  # the numbers of the runs that still train
    steps: Steps
    kept: Params  # after the last whole epoch, all finite
    memories: tuple[Tensor, ...]  # the gates' running curvature after the last whole epoch
    best: Params  # of the best epoch by validation
    best_ll: tuple[float, ...]
    best_epoch: tuple[int, ...]  # 0 before the first one
    history: tuple[tuple[EpochRecord, ...], ...]  # of every run, by its number
    finished: Mapping[int, Finished]  # by the run's number

    @classmethod
    def start(cls, params: Params, steps: Steps) -> Fleet:
        """Before the first epoch; R = number of runs."""
        runs, memories = params.runs, steps.plan.memories()
        nothing = ((-math.inf,) * runs, (0,) * runs, ((),) * runs)
        return cls(tuple(range(runs)), steps, params, memories, params, *nothing, finished={})

    def last(self) -> list[EpochRecord | None]:
        """The record of the last epoch of each active run; None before the first one."""
        return [self.history[run][-1] if self.history[run] else None for run in self.active]

    def after_epoch(self, records: Sequence[EpochRecord], keep_best: bool) -> Fleet:
        """The state after one more epoch, with its record of each active run; `keep_best` keeps the best parameters."""
        new = dict(zip(self.active, records, strict=True))
        history = tuple((*past, new[run]) if run in new else past for run, past in enumerate(self.history))
        kept, best = self.steps.snapshot(), self.best
        scores = [-math.inf if record.valid_ll is None else record.valid_ll for record in records]
        better = [score > before for score, before in zip(scores, self.best_ll, strict=True)]
        if keep_best and any(better):
            best = _where(torch.tensor(better, device=kept.device).view(-1, 1, 1, 1), kept, best)
        return replace(
            self,
            history=history,
            kept=kept,
            memories=self.steps.plan.memories(),
            best=best,
            best_ll=tuple(map(max, scores, self.best_ll)),
            best_epoch=tuple(records[0].epoch if b else e for b, e in zip(better, self.best_epoch, strict=True)),
        )

    def without(self, finished: Mapping[int, Finished], steps: Steps | None) -> Fleet:
        """The state once these active runs have stopped; `steps` continue with the others; None if there are none."""
        places = [place for place, run in enumerate(self.active) if run not in finished]
        state = replace(
            self,
            active=tuple(self.active[place] for place in places),
            best_ll=tuple(self.best_ll[place] for place in places),
            best_epoch=tuple(self.best_epoch[place] for place in places),
            finished={**self.finished, **finished},
        )
        if steps is None:
            return state
        kept, memories = steps.snapshot(), steps.plan.memories()
        return replace(state, steps=steps, kept=kept, memories=memories, best=self.best.select(places))


def _where(chosen: Tensor, new: Params, old: Params) -> Params:
    """For each run the new parameters where chosen (R, 1, 1, 1), else the old ones."""
    pairs = ((new.weights, old.weights), (new.inputs, old.inputs))
    return Params(*(tuple(torch.where(chosen, a, b) for a, b in zip(*pair, strict=True)) for pair in pairs))
