"""The state of a training between two epochs, or two steps: one record, and named arrays and plain values for a file.

`to_arrays` and `from_arrays` are the only two functions that know what of a training is stored. What they leave out
(kernels, graphs, buffers) is made again from the record, with the same results to the last bit: that needs the
kind of backend and the sizes of chunks too, which may depend on how much memory was free at the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.engine import BackendName, Params, option_for, stack
from circurve.learning.fleet import Finished, Fleet
from circurve.learning.history import EpochRecord, Failure
from circurve.learning.plan import GateSummary
from circurve.learning.steps import Begun, Steps

__all__ = ["Sizes", "TrainerState", "from_arrays", "to_arrays"]

Array = NDArray[Any]
Arrays = dict[str, Array]

NUMBERS = tuple(field.name for field in fields(EpochRecord) if field.name not in ("epoch", "gates"))
GATES = tuple(field.name for field in fields(GateSummary))
COLUMNS = ("epoch", *NUMBERS, *(f"gates_{name}" for name in GATES))
"""The columns of a stored history."""


@dataclass(frozen=True)
class Sizes:
    """How many samples are computed at once; sums in other chunks would differ in their last bits."""

    chunk: int
    max_samples: int | None
    score_chunk: int | None
    score_max_samples: int | None

    @classmethod
    def of(cls, steps: Steps) -> Sizes:
        """The current sizes of the steps."""
        scorer = steps.scorer
        return cls(steps.chunk, steps.backend.max_samples, scorer.chunk, scorer.backend.max_samples)

    def restore(self, steps: Steps) -> None:
        """Give them to new steps."""
        steps.chunk, steps.backend.max_samples = self.chunk, self.max_samples
        steps.scorer.chunk, steps.scorer.backend.max_samples = self.score_chunk, self.score_max_samples


@dataclass(frozen=True)
class TrainerState:
    """Everything that determines how a training continues after a complete epoch, and after some steps of the next one.
    Nothing in it is changed by later steps."""

    epoch: int  # the last whole one
    seconds: float  # of training so far
    warned: bool  # of samples with probability zero
    shuffles: Mapping[int, Tensor]  # seed -> the state of its generator
    backend: BackendName
    sizes: Sizes
    active: tuple[int, ...]
    kept: Params | None  # of the active runs; None if there are none
    memories: tuple[Tensor, ...]  # the state of the gates of the active runs
    best: Params | None  # of the active runs; None where no best epoch is kept
    best_ll: tuple[float, ...]
    best_epoch: tuple[int, ...]
    history: tuple[tuple[EpochRecord, ...], ...]
    finished: Mapping[int, Finished]
    begun: Begun | None = None
    """The next epoch, if some of its steps are made; the generators of `shuffles` are those before it."""

    @property
    def steps(self) -> int:
        """How many steps of the next epoch are made."""
        return 0 if self.begun is None else self.begun.steps

    @classmethod
    def of(
        cls, epoch: int, fleet: Fleet, shuffles: Mapping[int, torch.Generator], seconds: float, warned: bool
    ) -> TrainerState:
        """The state after a whole epoch; it refers to the fleet's tensors, which no step changes."""
        some = bool(fleet.active)
        return cls(
            epoch=epoch,
            seconds=seconds,
            warned=warned,
            shuffles={seed: generator.get_state() for seed, generator in shuffles.items()},
            backend=option_for(fleet.steps.backend),
            sizes=Sizes.of(fleet.steps),
            active=fleet.active,
            kept=fleet.kept if some else None,
            memories=fleet.memories if some else (),
            best=fleet.best if some and any(fleet.best_epoch) else None,
            best_ll=fleet.best_ll,
            best_epoch=fleet.best_epoch,
            history=fleet.history,
            finished=fleet.finished,
        )

    @property
    def done(self) -> bool:
        """Whether every run has stopped."""
        return not self.active

    def fleet(self, steps: Steps) -> Fleet:
        """The fleet that continues with these steps, which were made for `kept`."""
        kept = steps.snapshot()
        return Fleet(
            active=self.active,
            steps=steps,
            kept=kept,
            memories=steps.plan.memories(),
            best=kept if self.best is None else self.best,
            best_ll=self.best_ll,
            best_epoch=self.best_epoch,
            history=self.history,
            finished=self.finished,
        )


def to_arrays(state: TrainerState) -> tuple[Arrays, dict[str, Any]]:
    """Arrays by name, and all that is no array as values for JSON."""
    arrays: Arrays = {}
    strides: dict[str, list[int]] = {}
    stopped = sorted(state.finished)
    sets = {
        "kept": state.kept,
        "best": state.best,
        "finished": stack(state.finished[run].params for run in stopped) if stopped else None,
        **({} if state.begun is None else {"begun": state.begun.params}),
    }
    for name, params in sets.items():
        for part, tensors in () if params is None else (("weights", params.weights), ("inputs", params.inputs)):
            _put(arrays, strides, f"{name}.{part}", tensors)
    _put(arrays, strides, "memories", state.memories)
    for seed, generator in state.shuffles.items():
        arrays[f"shuffle.{seed}"] = generator.numpy()
    arrays |= _history_arrays(state.history)
    arrays["best_ll"] = np.array(state.best_ll, dtype=np.float64)
    values = {
        "epoch": state.epoch,
        "seconds": state.seconds,
        "warned": state.warned,
        "backend": state.backend,
        "sizes": vars(state.sizes),
        "active": list(state.active),
        "best_epoch": list(state.best_epoch),
        "seeds": list(state.shuffles),
        "finished": [_finished_value(run, state.finished[run]) for run in stopped],
        "sets": {name: None if p is None else [len(p.weights), len(p.inputs)] for name, p in sets.items()},
        "memories": len(state.memories),
        "strides": strides,
    }
    if state.begun is not None:
        _put(arrays, strides, "begun.memories", state.begun.memories)
        arrays["begun.totals"] = state.begun.totals.cpu().numpy()
        values["begun"] = state.begun.steps
    return arrays, values


def from_arrays(arrays: Mapping[str, Array], values: Mapping[str, Any], device: torch.device) -> TrainerState:
    """The state that `to_arrays` was given, with its tensors on a device."""
    strides = values["strides"]

    def params(name: str) -> Params | None:
        counts = values["sets"][name]
        if counts is None:
            return None
        names = [
            [f"{name}.{part}.{i}" for i in range(n)] for part, n in zip(("weights", "inputs"), counts, strict=True)
        ]
        return Params(*(tuple(_tensor(arrays[each], strides.get(each), device) for each in part) for part in names))

    ended, finished = params("finished"), {}
    for place, value in enumerate(values["finished"]):
        failure = None if value["failure"] is None else Failure(*value["failure"])
        own = cast("Params", ended).select([place])
        finished[int(value["run"])] = Finished(own, value["epoch"], value["stopped"], failure)

    def memories(prefix: str) -> tuple[Tensor, ...]:
        names = [f"{prefix}memories.{number}" for number in range(values["memories"])]
        return tuple(_tensor(arrays[name], strides.get(name), device) for name in names)

    begun = None
    if "begun" in values:
        totals = _tensor(arrays["begun.totals"], None, device)
        begun = Begun(values["begun"], cast("Params", params("begun")), memories("begun."), totals)
    return TrainerState(
        epoch=values["epoch"],
        seconds=values["seconds"],
        warned=values["warned"],
        shuffles={seed: torch.from_numpy(arrays[f"shuffle.{seed}"].copy()) for seed in values["seeds"]},
        backend=values["backend"],
        sizes=Sizes(**values["sizes"]),
        active=tuple(values["active"]),
        kept=params("kept"),
        memories=memories(""),
        best=params("best"),
        best_ll=tuple(arrays["best_ll"].tolist()),
        best_epoch=tuple(values["best_epoch"]),
        history=_history(arrays),
        finished=finished,
        begun=begun,
    )


def _put(arrays: Arrays, strides: dict[str, list[int]], name: str, tensors: Iterable[Tensor]) -> None:
    """Tensors as contiguous arrays; the strides of those that are not: a matrix product may depend on them."""
    for number, tensor in enumerate(tensors):
        own = f"{name}.{number}"
        arrays[own] = tensor.detach().cpu().contiguous().numpy()
        if not tensor.is_contiguous() and sorted(tensor.stride()) == sorted(_dense(tensor)):
            strides[own] = list(tensor.stride())


def _dense(tensor: Tensor) -> list[int]:
    """The strides of a tensor of this shape without gaps, its axes in the order of the present strides."""
    order = sorted(range(tensor.ndim), key=tensor.stride)
    return [math.prod(tensor.shape[axis] for axis in order[:place]) for place in range(tensor.ndim)]


def _tensor(array: Array, strides: Sequence[int] | None, device: torch.device) -> Tensor:
    """A tensor in memory of its own: aligned as torch aligns it, with the strides that it had."""
    source = torch.from_numpy(np.ascontiguousarray(array))
    shape = tuple(source.shape)
    made = torch.empty(shape, dtype=source.dtype, device=device)
    if strides is not None:
        made = torch.empty_strided(shape, tuple(strides), dtype=source.dtype, device=device)
    return made.copy_(source)


def _finished_value(run: int, ended: Finished) -> dict[str, Any]:
    failure = None if ended.failure is None else [ended.failure.epoch, ended.failure.reason]
    return {"run": run, "epoch": ended.epoch, "stopped": ended.stopped, "failure": failure}


def _history_arrays(history: Sequence[Sequence[EpochRecord]]) -> Arrays:
    """All records below one another, float64; which of their numbers are known; and how many records each run has."""
    rows = [_row(record) for records in history for record in records]
    known = np.array([[value is not None for value in row] for row in rows], dtype=bool)
    filled = np.array([[0.0 if value is None else value for value in row] for row in rows], dtype=np.float64)
    return {
        "history": filled.reshape(-1, len(COLUMNS)),
        "history_known": known.reshape(-1, len(COLUMNS)),
        "history_lengths": np.array([len(records) for records in history], dtype=np.int64),
    }


def _row(record: EpochRecord) -> list[float | None]:
    gates = [None] * len(GATES) if record.gates is None else [getattr(record.gates, name) for name in GATES]
    return [record.epoch, *(getattr(record, name) for name in NUMBERS), *gates]


def _history(arrays: Mapping[str, Array]) -> tuple[tuple[EpochRecord, ...], ...]:
    pairs = zip(arrays["history"].tolist(), arrays["history_known"].tolist(), strict=True)
    records = [_record([v if k else None for v, k in zip(values, known, strict=True)]) for values, known in pairs]
    ends = np.cumsum(arrays["history_lengths"]).tolist()
    starts = [0, *ends[:-1]]
    return tuple(tuple(records[start:end]) for start, end in zip(starts, ends, strict=True))


def _record(row: Sequence[Any]) -> EpochRecord:
    epoch, numbers, gates = int(row[0]), row[1 : 1 + len(NUMBERS)], row[1 + len(NUMBERS) :]
    summary = None if gates[0] is None else GateSummary(*gates)
    return EpochRecord(epoch, **dict(zip(NUMBERS, numbers, strict=True)), gates=summary)
