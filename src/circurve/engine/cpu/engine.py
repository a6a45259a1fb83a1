"""A latent tree ready to run on a CPU: for R runs in one precision, with memory that is used again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cpu.factors import mark_states
from circurve.engine.cpu.messages import upward
from circurve.engine.cpu.tally import Tally
from circurve.engine.cpu.tree import LatentTree, latent_tree
from circurve.engine.cpu.views import TreeMemory, Views
from circurve.engine.params import Params
from circurve.engine.program import Program

__all__ = ["Risen", "TreeEngine"]


@dataclass(frozen=True)
class Risen:
    """A chunk whose messages have reached the root."""

    outputs: Tensor  # log p, (R, outputs, N)
    views: Views
    tally: Tally


class TreeEngine:
    """Stands beside the buffers of the reference backend, which serves chunks with impossible samples."""

    def __init__(self, program: Program, tree: LatentTree, runs: int, dtype: torch.dtype) -> None:
        self.program, self.tree, self.memory = program, tree, TreeMemory(tree, runs, dtype)
        rows = [tree.outputs, *[tree.units] * (len(tree.levels) - 1)]
        shapes = [(len(level.sums), runs, k, tree.units) for level, k in zip(tree.levels, rows, strict=True)]
        self._stacked = [torch.empty(shape, dtype=dtype) for shape in shapes]
        self.weights = [stacked.flatten(0, 1) for stacked in self._stacked]
        """For each level, (G R, K, K)."""

        self._kinds: dict[bool, Tally] = {}
        self._started: dict[bool, Tally] = {}

    @classmethod
    def of(cls, program: Program, runs: int, dtype: torch.dtype) -> TreeEngine | None:
        """None if the program is no latent tree."""
        tree = latent_tree(program)
        return None if tree is None else cls(program, tree, runs, dtype)

    @property
    def tallies(self) -> list[Tally]:
        """Those that chunks were added to since `load`."""
        return list(self._started.values())

    def load(self, params: Params) -> None:
        """Work with these parameters from now on; all sums start from zero."""
        self.params = params
        for level, stacked in zip(self.tree.levels, self._stacked, strict=True):
            torch.stack([params.weights[layer].select(1, place) for layer, place in level.sums], out=stacked)
        self._started = {}

    def rise(self, batch: Batch) -> Risen | None:
        """Send messages up; None if a sample is impossible."""
        missing, memory = batch.observed is not None, self.memory
        if missing not in self._kinds:
            self._kinds[missing] = Tally(memory.plan(missing), memory.runs, self.tree.units, memory.dtype)
        tally = self._kinds[missing]
        if missing not in self._started:
            tally.start(self.program, self.tree, self.params)
            self._started[missing] = tally
        views = memory.views(batch.size, missing)
        mark_states(tally.plan, views, batch)
        outputs = upward(views, self.weights, tally)
        return None if outputs is None else Risen(outputs, views, tally)
