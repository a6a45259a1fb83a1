"""A latent tree ready to run on a CPU: for R runs in one precision, with memory that is used again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cpu.factors import mark_states
from circurve.engine.cpu.joint import JointPlans
from circurve.engine.cpu.messages import Sent, upward
from circurve.engine.cpu.tally import Tally
from circurve.engine.cpu.tree import LatentTree, latent_tree
from circurve.engine.cpu.views import TreeMemory, Views
from circurve.engine.params import Params
from circurve.engine.program import Program

__all__ = ["BoundTree", "Risen", "TreeEngine"]

FLEET = 4
"""With so many runs for each thread, the runs keep the threads busy evenly enough."""

LITTLE = 1 << 19
"""Operations of a matrix product that are not worth sharing out."""


@dataclass(frozen=True)
class Risen:
    """A chunk whose messages have reached the root."""

    outputs: Tensor  # log p, (R, outputs, N)
    views: Views
    tally: Tally


class TreeEngine:
    """Stands beside the buffers of the reference backend, which serves chunks with impossible samples."""

    def __init__(self, program: Program, layout: LatentTree, runs: int, dtype: torch.dtype) -> None:
        self.program, self.layout, self.runs, self.dtype = program, layout, runs, dtype
        self.plans = JointPlans(layout)
        self._bound: dict[int, BoundTree] = {}

    @classmethod
    def of(cls, program: Program, runs: int, dtype: torch.dtype) -> TreeEngine | None:
        """None if the program is no latent tree."""
        layout = latent_tree(program)
        return None if layout is None else cls(program, layout, runs, dtype)

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs."""
        layout = self.layout
        rows = 2 * layout.size * layout.units + layout.outputs + self.plans[True].rows
        rows += max(layout.widest * layout.units, layout.outputs) if backward else 0
        return rows * self.runs * torch.finfo(self.dtype).bits // 8

    def bind(self, samples: int) -> BoundTree:
        """The tree with memory for chunks of about so many samples."""
        parts = self._parts(samples)
        if parts not in self._bound:
            self._bound[parts] = BoundTree(self, parts)
        return self._bound[parts]

    def _parts(self, samples: int) -> int:
        """Into how many parts a chunk is split: all threads have the same work, unless there is little of it."""
        threads = torch.get_num_threads()
        if self.runs >= FLEET * threads:
            return 1
        most = 2 * self.layout.units**2 * samples // LITTLE
        return max(1, min(threads // math.gcd(threads, self.runs), most))


class BoundTree:
    """A latent tree with memory for R runs and P parts, and the parameters of the moment."""

    def __init__(self, engine: TreeEngine, parts: int) -> None:
        self.program, self.layout, self.plans, self.runs = engine.program, engine.layout, engine.plans, engine.runs
        layout, runs, dtype = self.layout, self.runs, engine.dtype
        self.memory = TreeMemory(layout, runs * parts, parts, dtype)
        rows = [layout.outputs, *[layout.units] * (len(layout.levels) - 1)]
        shapes = [(len(level.sums), runs, parts, k, layout.units) for level, k in zip(layout.levels, rows, strict=True)]
        self._stacked = [torch.empty(shape, dtype=dtype) for shape in shapes]
        self.weights = [stacked.flatten(0, 2) for stacked in self._stacked]
        """For each level, (G L, K, K)."""

        self.places = self._places(rows)
        """Where the units of all levels lie among all sum units of the circuit."""

        self.senders = self._senders()
        """For each sum but the root, level by level, the product that it is a message to, among those of all levels."""

        self._kinds: dict[bool, Tally] = {}
        self._started: dict[bool, Tally] = {}

    def _places(self, units: Sequence[int]) -> Tensor:
        """units: of a sum in each level."""
        sizes = [layer.shape[0] * layer.shape[1] for layer in self.program.sums]
        starts = list(accumulate(sizes, initial=0))
        firsts = [
            starts[layer] + position * k
            for level, k in zip(self.layout.levels, units, strict=True)
            for layer, position in level.sums
        ]
        counts = [k for level, k in zip(self.layout.levels, units, strict=True) for _ in level.sums]
        return torch.cat([torch.arange(first, first + k) for first, k in zip(firsts, counts, strict=True)])

    def _senders(self) -> Tensor:
        found = torch.zeros(self.layout.size - 1, dtype=torch.int64)
        for level, following in pairwise(self.layout.levels):
            for stretch in (stretch for turn in level.messages for stretch in turn):
                first = following.start - 1 + stretch.other  # the root is not among them
                found[first : first + stretch.length] = torch.arange(stretch.length) + level.start + stretch.first
        return found

    @property
    def tallies(self) -> list[Tally]:
        """Those that chunks were added to since `load`."""
        return list(self._started.values())

    def load(self, params: Params) -> None:
        """Work with these parameters from now on; all sums start from zero."""
        self.params = params
        for level, stacked in zip(self.layout.levels, self._stacked, strict=True):
            weights = [params.weights[layer].select(1, position) for layer, position in level.sums]  # (R, K, K) each
            stacked.copy_(torch.stack(weights).unsqueeze(2))
        self._started = {}

    def rise(self, batch: Batch, sent: Sent | None = None) -> Risen | None:
        """Send messages up, with elements of length 1 if someone is told; None if a sample is impossible."""
        missing, memory = batch.observed is not None, self.memory
        if missing not in self._kinds:
            self._kinds[missing] = Tally(self.plans[missing], self.runs, memory.parts, self.layout.units, memory.dtype)
        tally = self._kinds[missing]
        if missing not in self._started:
            tally.start(self.program, self.layout, self.params)
            self._started[missing] = tally
        views = memory.views(batch.size, tally.plan)
        if not memory.holds(views, batch):
            memory.marked = None  # until all of it is written
            mark_states(tally.plan, views, batch)
            memory.marked = (views, batch.key)
        outputs = upward(views, self.weights, tally, sent)
        return None if outputs is None else Risen(outputs, views, tally)
