"""Data-parallel EM on torch.distributed: each worker takes a part of every batch, and the sums of all are added up.

All workers have the same data, draw the same batches, and move the same parameters: after one all-reduce for each step
their statistics are equal to the last bit, and so is everything that follows from them. Statistics travel as float64,
so that the sum over workers adds almost no rounding error. Workers share the rows that are scored in the same way.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import repeat
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from circurve.data import RowSource, Stream
from circurve.engine import Backend, Params, Statistics
from circurve.errors import Argument, OptionError, WorkerError
from circurve.learning.plan import Plan
from circurve.learning.score import Scorer, log_likelihood_sums
from circurve.learning.steps import PlainSteps

__all__ = [
    "ParallelSteps",
    "add_up",
    "check_same_training",
    "own_part",
    "shared_sums",
    "wait_for_workers",
    "worker",
    "workers",
]

Record = TypeVar("Record")


def workers() -> int:
    """How many processes train together: the size of the process group, 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def worker() -> int:
    """The number of this process among them, from 0; worker 0 writes files."""
    return dist.get_rank() if workers() > 1 else 0


def check_same_training(facts: Mapping[str, str], device: torch.device) -> None:
    """Refuse workers that were given different trainings, which would wait for each other or mix their sums."""
    if workers() == 1:
        return
    names = sorted(facts)
    digests = [hashlib.sha256(json.dumps([name, facts[name]]).encode()).digest()[:7] for name in names]
    if _differ(torch.tensor([len(names)], device=device)).any():
        raise OptionError(
            "the workers of the process group have different arguments: the number of runs or tables differs"
        )
    found = _differ(torch.tensor([int.from_bytes(digest, "big") for digest in digests], device=device)).tolist()
    different = [name for name, differs in zip(names, found, strict=True) if differs]
    if different:
        raise OptionError(
            f"the workers of the process group have different arguments ({', '.join(different[:3])}): "
            "give all of them the same arguments"
        )


def _differ(own: Tensor) -> Tensor:  # (n,) int64 -> (n,) bool
    """Which numbers are not the same for all workers."""
    largest = torch.cat([own, -own])
    _together(lambda: dist.all_reduce(largest, dist.ReduceOp.MAX))
    return largest[: len(own)] != -largest[len(own) :]


def wait_for_workers() -> None:
    """Wait until all workers have reached this point."""
    if workers() > 1:
        _together(dist.barrier)


class ParallelSteps(PlainSteps):
    """Step by step, on any backend, with the samples of each batch divided among the workers."""

    def __init__(
        self, backend: Backend, plan: Plan, train: RowSource, params: Params, memory_budget: int | None
    ) -> None:
        super().__init__(backend, plan, train, params, memory_budget)
        self.scorer = Scorer(backend, memory_budget, shared_sums)

    def _e_step(self, rows: Tensor | None) -> Statistics:
        if rows is None:
            rows = torch.arange(len(self.train), device=self.params.device)[None]  # (1, N)
        own = rows[:, slice(*own_part(0, rows.shape[1]))]
        sums = super()._e_step(own if own.shape[1] else rows[:, :1])
        # in a batch of fewer samples than workers, some have no part
        return _added_up(sums if own.shape[1] else _mapped(sums, repeat(None)))


def own_part(start: int, stop: int) -> tuple[int, int]:
    """Where the part of this worker begins and ends, of what all of them share; it can be empty."""
    first, last = ((stop - start) * number // workers() for number in (worker(), worker() + 1))
    return start + first, start + last


def add_up(sums: Tensor) -> None:
    """Replace the sums of this worker by those of all of them together, the same bits for each."""
    _together(lambda: dist.all_reduce(sums))


def shared_sums(backend: Backend, params: Params, table: RowSource, chunk: int) -> Tensor:  # (2, R) float64
    """The sums of `log_likelihood_sums` over all rows: each worker takes a part of them, and all get the same bits.

    Batches of an iterable may come in another order on each worker, so each worker takes all of them.
    """
    if isinstance(table, Stream) and table.reader.access == "sequence":
        return log_likelihood_sums(backend, params, table, chunk)
    sums = log_likelihood_sums(backend, params, table, chunk, range(*own_part(0, len(table))))
    add_up(sums)
    return sums


def _added_up(sums: Statistics) -> Statistics:
    """The sum over all workers, by one all-reduce."""
    tensors = list(_tensors(sums))
    buffer = torch.cat([tensor.double().flatten() for tensor in tensors])
    add_up(buffer)
    parts = torch.split(buffer, [tensor.numel() for tensor in tensors])
    made = (part.view(tensor.shape).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True))
    return _mapped(sums, made)


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a record, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _tensors(each)
    elif is_dataclass(value):
        for given in fields(value):
            yield from _tensors(getattr(value, given.name))


def _mapped(value: Record, new: Iterator[Tensor | None]) -> Record:
    """A copy of the record with other tensors, in the order of `_tensors`; zeros instead of None."""
    found: Any = value
    if isinstance(value, Tensor):
        tensor = next(new)
        found = torch.zeros_like(value) if tensor is None else tensor
    elif isinstance(value, tuple):
        found = tuple(_mapped(each, new) for each in value)
    elif is_dataclass(value):
        parts = {given.name: _mapped(getattr(value, given.name), new) for given in fields(value)}
        found = replace(cast("Any", value), **parts)
    return cast("Record", found)


def _together(work: Any) -> None:
    """Runs something that all workers do together; one clear error if another worker has ended."""
    try:
        work()
    except RuntimeError as error:
        if "No backend type associated with device type" in str(error):
            raise OptionError(
                "the process group has no backend for the device of this training: start it with "
                "init_process_group('cpu:gloo,cuda:nccl'), or train on the device that it has a backend for"
            ) from error
        raise WorkerError(
            f"worker {worker()} of {workers()} lost the connection to another worker; training stops "
            f"({_first_line(error)})",
            "; with ",
            Argument("checkpoint"),
            " the same call continues, with any number of workers",
        ) from error


def _first_line(error: Exception) -> str:
    """What went wrong, without the place in the source code of torch."""
    lines: Sequence[str] = str(error).splitlines() or [type(error).__name__]
    return re.sub(r"^\[\S+:\d+\] ", "", lines[0]).split(". ")[0]
