"""The latent-tree backend: messages in linear space, tables by state and large matrix products, on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from threading import RLock
from typing import Protocol

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.reference import Reference
from circurve.engine.statistics import Request, Statistics
from circurve.engine.tree.bound import BoundTree
from circurve.engine.tree.estep import TreeSums
from circurve.engine.tree.joint import JointPlans
from circurve.engine.tree.layout import TreeLayout
from circurve.engine.tree.memory import Pool
from circurve.words import counted

__all__ = ["LatentTree", "collect", "parts_for"]

TABLE_COPIES, CURVED_COPIES = 3, 2
"""Copies of the joint tables of an E-step: log p, the sums of the flow, and these by run; more with curvature."""

RUNS_PER_THREAD = 4
"""With this many runs for each thread, the runs keep the threads evenly busy; samples are then not split."""

MIN_OPERATIONS = 1 << 19
"""Operations of a matrix product below which dividing it among threads is not faster."""


class LatentTree:
    """R runs of a latent tree on a CPU. Chunks with impossible samples are handed to a reference backend."""

    name = "latent tree"

    def __init__(
        self, program: Program, layout: TreeLayout, runs: int, dtype: torch.dtype, pool: Pool | None = None
    ) -> None:
        """pool: of buffers that other trees use too; then log-probabilities are all that this one computes."""
        self._pool = pool
        self.program, self.layout, self.runs, self.dtype = program, layout, runs, dtype
        self.device = torch.device("cpu")
        self.max_samples: int | None = None
        self.lock = RLock()
        self._plans = JointPlans(layout)
        self._bound: dict[int, BoundTree] = {}

    @cached_property
    def _reference(self) -> Reference:
        """What computes chunks with impossible samples; made when the first one comes."""
        return Reference(self.program, self.runs, self.device, self.dtype)

    def describe(self) -> str:
        """A readable description of what computes."""
        name, levels = str(self.dtype).removeprefix("torch."), counted(len(self.layout.levels), "level")
        return f"latent tree: {levels} of messages on a CPU, {name}, {counted(self.runs, 'run')}"

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs."""
        layout = self.layout
        rows = 2 * layout.size * layout.units + layout.outputs + self._plans[True].rows
        rows += max(layout.widest * layout.units, layout.outputs) if backward else 0
        return rows * self.runs * torch.finfo(self.dtype).bits // 8

    def table_bytes(self, curved: bool) -> int:
        """Memory of joint tables and of sums by joint state, whatever the samples are. curved: for curvature, too."""
        numbers = sum(shape.count * shape.states for shape in self._plans[True].shapes) * self.layout.units
        copies = TABLE_COPIES + CURVED_COPIES * curved
        return copies * numbers * self.runs * self._most_parts() * torch.finfo(self.dtype).bits // 8

    def _most_parts(self) -> int:
        threads = torch.get_num_threads()
        return 1 if self.runs >= RUNS_PER_THREAD * threads else max(1, threads // math.gcd(threads, self.runs))

    def release(self) -> None:
        """Give all buffers back; the next call makes new ones."""
        self._bound = {}
        if "_reference" in self.__dict__:
            self._reference.release()

    @torch.no_grad()
    def log_prob(self, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
        """Log-probabilities of all outputs; -inf for probability zero."""
        return self.log_values(params, batch).to(self.dtype)

    @torch.no_grad()
    def log_values(self, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
        """Log-values in float64: differences of large values need the precision."""
        tree = self.bind(batch.size)
        tree.load_values(params)
        up = tree.upward(batch)
        if up is not None:
            return up.outputs
        parts = parts_for(self._reference, batch, False, self.bytes_per_sample(False))
        return torch.cat([self._reference.log_prob(params, part) for part in parts], dim=-1).double()

    @torch.no_grad()
    def statistics(self, params: Params, batches: Iterable[Batch], request: Request | None = None) -> Statistics:
        """The sums of an E-step over all batches."""
        asked = request or Request()

        def start(batch: Batch) -> TreeSums:
            return TreeSums(self.bind(batch.size), params, asked)

        def otherwise(batch: Batch) -> Statistics:
            parts = parts_for(self._reference, batch, True, self.bytes_per_sample(True))
            return self._reference.statistics(params, parts, asked)

        return collect(start, otherwise, batches, self.program)

    def bind(self, samples: int) -> BoundTree:
        """The tree with memory for chunks of about this many samples."""
        parts = self._parts(samples)
        if parts not in self._bound:
            like = torch.empty(self.runs, dtype=self.dtype)
            self._bound[parts] = BoundTree(self.program, self.layout, self._plans, like, parts, self._pool)
        return self._bound[parts]

    def _parts(self, samples: int) -> int:
        """Into how many parts a chunk is split: all threads have the same work, unless there is little of it."""
        threads = torch.get_num_threads()
        if self.runs >= RUNS_PER_THREAD * threads:
            return 1
        worthwhile = 2 * self.layout.units**2 * samples // MIN_OPERATIONS
        return max(1, min(threads // math.gcd(threads, self.runs), worthwhile))


class _Sums(Protocol):
    """An E-step that adds up chunk by chunk; `add` is False if it left a chunk out."""

    def add(self, batch: Batch) -> bool: ...

    def result(self, program: Program) -> Statistics: ...


def collect(
    start: Callable[[Batch], _Sums],
    otherwise: Callable[[Batch], Statistics],
    batches: Iterable[Batch],
    program: Program,
) -> Statistics:
    """The sums over all batches: `start` makes what adds them up, `otherwise` computes what that leaves out."""
    sums: _Sums | None = None
    others: Statistics | None = None
    added = False
    for batch in batches:
        if sums is None:
            sums = start(batch)
        if sums.add(batch):
            added = True
            continue
        more = otherwise(batch)
        others = more if others is None else others + more
    assert sums is not None, "statistics need at least one batch"
    if others is None:
        return sums.result(program)
    return others + sums.result(program) if added else others


def parts_for(reference: Reference, batch: Batch, backward: bool, bytes_per_sample: int) -> Iterator[Batch]:
    """A batch in parts, for which the reference backend needs no more than this much memory per sample of the batch."""
    memory = bytes_per_sample * batch.size
    return batch.parts(max(1, memory // reference.bytes_per_sample(backward)))
