"""A program bound to a number of runs, a device and a precision: index tensors, and buffers that are used again.

Rows of all runs lie in one matrix (R x rows, N); a block of it, seen as (R, G, K, N), is contiguous for any number
of samples, because the matrix is cut from one flat buffer to the size of the chunk at hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circurve.engine.cpu.engine import TreeEngine
from circurve.engine.program import Index, Program, Space, SumLayer, Wiring
from circurve.engine.tables import Lookup, feeding_inputs

__all__ = ["BoundWiring", "Engine", "Rows"]


@dataclass(frozen=True)
class BoundWiring:
    """A wiring for R runs, as tensors of row numbers of the whole fleet.

    `block` names the source block where the targets are exactly that block: then a view replaces the gather.
    `columns` holds (sources (R x n,), targets), targets being None for all, a count for a prefix, or row numbers.
    """

    targets: int
    block: int | None
    columns: tuple[tuple[Tensor, int | Tensor | None], ...]
    tail: tuple[Tensor, Tensor, Tensor] | None  # targets (R x n,), sources, offsets (R x n,)


def bind(wiring: Wiring, space: Space, runs: int, device: torch.device) -> BoundWiring:
    """Number the rows of all runs of a wiring."""

    def sources(rows: Index) -> Tensor:
        return torch.from_numpy(space.bind(rows, runs).reshape(-1)).to(device)

    def each_run(positions: Index, stride: int) -> Tensor:
        """Positions of the first run, repeated at a stride for the others."""
        shifts = np.arange(runs, dtype=np.int64)[:, None] * stride
        return torch.from_numpy((shifts + positions).reshape(-1)).to(device)

    columns = []
    for column in wiring.columns:
        targets = column.targets
        numbered = targets if targets is None or isinstance(targets, int) else each_run(targets, wiring.targets)
        columns.append((sources(column.sources), numbered))
    tail = None
    if wiring.tail is not None:
        tail = (
            each_run(wiring.tail.targets, wiring.targets),
            sources(wiring.tail.sources),
            each_run(wiring.tail.offsets, len(wiring.tail.sources)),
        )
    return BoundWiring(wiring.targets, _whole_block(wiring, space), tuple(columns), tail)


def _whole_block(wiring: Wiring, space: Space) -> int | None:
    rows = wiring.single
    if rows is None:
        return None
    block = int(np.searchsorted(space.starts, rows[0], side="right") - 1)
    whole = rows[0] == space.starts[block] and len(rows) == space.sizes[block]
    return block if whole and bool((np.diff(rows) == 1).all()) else None


class Rows:
    """The rows of one space for R runs and a changing number of samples, in one flat buffer."""

    def __init__(self, space: Space, runs: int, buffer: Tensor) -> None:
        self.space, self.runs, self.buffer = space, runs, buffer
        self.samples = 0
        self.matrix = buffer
        self._views: dict[tuple[int, ...], Tensor] = {}

    def resize(self, samples: int) -> None:
        """Cut the buffer to `samples` columns; what it held is lost."""
        rows = self.space.rows * self.runs
        self.samples = samples
        self.matrix = self.buffer[: rows * samples].view(rows, samples)
        self._views = {}

    def block(self, number: int, *shape: int) -> Tensor:  # (R, *shape, N)
        """A block as a contiguous view; made once, since a view costs as much as a small operation."""
        view = self._views.get((number, *shape))
        if view is None:
            start = int(self.space.starts[number]) * self.runs
            size = int(self.space.sizes[number]) * self.runs
            view = self.matrix[start : start + size].view(self.runs, *shape, self.samples)
            self._views[(number, *shape)] = view
        return view

    def before(self, number: int) -> Tensor:  # (rows, N)
        """All rows of earlier blocks: what a block may be computed from."""
        return self.matrix[: int(self.space.starts[number]) * self.runs]


class Engine:
    """A program ready to run: for `runs` runs on one device in one precision.

    `careful` keeps the logs of all elements beside their exponentials, so that sums with zero weights can be repaired
    after an underflow (see `underflow.py`). `tables` computes sums over discrete inputs once for each state (see
    `tables.py`); observers must then take `on_table`, as the E-step's sums do. A latent tree with `tables` on a CPU has
    a `tree` beside the buffers here: `log_prob` and `statistics` take that path (see `cpu/`), `observe` never does.
    """

    def __init__(
        self,
        program: Program,
        runs: int,
        device: torch.device,
        dtype: torch.dtype,
        careful: bool = False,
        tables: bool = False,
    ) -> None:
        self.program, self.runs, self.device, self.dtype, self.careful = program, runs, device, dtype, careful
        self.tabulated = feeding_inputs(program) if tables and not careful else {}
        self.tables: dict[int, Lookup] = {}
        tuned = tables and not careful and device.type == "cpu"
        self.tree = TreeEngine.of(program, runs, dtype) if tuned else None
        layers = program.layers
        self.children = {layer.block: bind(layer.children, program.values, runs, device) for layer in layers}
        self.flow = {
            layer.block: bind(layer.flow, program.flows, runs, device)
            for layer in (*program.inputs, *layers)
            if layer.flow is not None
        }
        self.roots = torch.from_numpy(program.values.bind(program.roots, runs).reshape(-1)).to(device)
        self.variables = [
            torch.tensor([node.variable for node in layer.nodes], device=device) for layer in program.inputs
        ]
        self.masks = [
            None if layer.mask is None else torch.from_numpy(layer.mask).to(device, dtype) for layer in program.sums
        ]
        kept = [layer for layer in program.sums if not self.overwrites(layer)]
        self._element_space, self._element_block = _space({s.block: s.children.targets for s in kept})
        self._scaled_space, self._scaled_block = _space({s.block: len(s.nodes) * s.units for s in program.sums})
        widths = [layer.children.targets for layer in layers] + [s.units * len(s.nodes) for s in program.sums]
        self._widest = max(widths, default=1)
        self._most_received = max((wiring.targets for wiring in self.flow.values()), default=1)
        self._samples = self._capacity = 0
        self._keep = False
        self._rows: list[Rows] = []
        self._scratch: list[Tensor] = []
        self.most_samples: int | None = None
        """What the device's memory turned out to hold; see `memory.within_memory`."""

        self.repairs: dict[int, Tensor] = {}
        self.largest: dict[int, Tensor] = {}

    @property
    def samples(self) -> int:
        """How many samples the buffers are cut to."""
        return self._samples

    @property
    def keeps(self) -> bool:
        """Whether the buffers keep what a backward pass needs."""
        return self._keep

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs: what the chunk size is computed from."""
        if self.tree is not None:
            return self.tree.bytes_per_sample(backward)
        return self.reference_bytes_per_sample(backward)

    def reference_bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample in the buffers of the reference backend."""
        widest = max(self._widest, self._most_received if backward else 0)
        rows = self.program.values.rows + (3 if backward else 2) * widest
        if backward:
            rows += self.program.flows.rows + self._element_space.rows + self._scaled_space.rows
            rows += sum(len(layer.nodes) for layer in self.program.sums)
        return rows * self.runs * torch.finfo(self.dtype).bits // 8

    def reserve(self, samples: int, backward: bool) -> None:
        """Cut the buffers to `samples` samples, allocating only when they must grow.

        A forward pass alone keeps no scaled values: they share the scratch memory.
        """
        if samples > self._capacity or (backward and not self._keep):
            self._capacity, self._keep = max(samples, self._capacity), backward or self._keep
            self._allocate()
        if samples != self._samples:
            self._samples = samples
            for rows in self._rows:
                rows.resize(samples)

    def release(self) -> None:
        """Give all buffers back; `reserve` makes new ones."""
        self._samples = self._capacity = 0
        self._keep = False
        self._rows, self._scratch = [], []
        for name in ("values", "flows", "_elements", "_scaled"):
            self.__dict__.pop(name, None)

    def overwrites(self, layer: SumLayer) -> bool:
        """Whether the layer's elements are exponentiated in place, over the logs of its children."""
        return layer.owns_children and not self.careful

    def elements(self, layer: SumLayer) -> Tensor:  # (R, G, C, N)
        """Where the scaled elements E of a sum layer are kept until the backward pass."""
        g, _, c = layer.shape
        if self.overwrites(layer):
            source = self.children[layer.block].block
            assert source is not None
            return self.values.block(source, g, c)
        if not self._keep:
            return self.scratch(0, g, c)
        return self._elements.block(self._element_block[layer.block], g, c)

    def scaled(self, layer: SumLayer) -> Tensor:  # (R, G, K, N)
        """Where the scaled sums S = W E of a sum layer are kept until the backward pass."""
        g, k, _ = layer.shape
        return self._scaled.block(self._scaled_block[layer.block], g, k) if self._keep else self.scratch(1, g, k)

    def scratch(self, which: int, *shape: int) -> Tensor:  # (R, *shape, N)
        """Temporary memory number 0, 1 or (for a backward pass) 2, overwritten by the next user of the same number."""
        size = math.prod(shape) * self.runs * self._samples
        return self._scratch[which][:size].view(self.runs, *shape, self._samples)

    def _allocate(self) -> None:
        def rows(space: Space) -> Rows:
            return Rows(space, self.runs, self._buffer(space.rows))

        self.values = rows(self.program.values)
        self._rows = [self.values]
        if self._keep:
            self.flows, self._elements, self._scaled = map(
                rows, (self.program.flows, self._element_space, self._scaled_space)
            )
            self._rows += [self.flows, self._elements, self._scaled]
        widest = max(self._widest, self._most_received if self._keep else 0)
        self._scratch = [self._buffer(widest) for _ in range(3 if self._keep else 2)]
        self._samples = 0

    def _buffer(self, rows: int) -> Tensor:
        return torch.empty(rows * self.runs * self._capacity, device=self.device, dtype=self.dtype)


def _space(sizes: dict[int, int]) -> tuple[Space, dict[int, int]]:
    """Blocks of the given sizes one after the other, and the number of each by its key."""
    listed = np.array(list(sizes.values()), dtype=np.int64)
    return Space(np.cumsum(listed) - listed, listed), {key: number for number, key in enumerate(sizes)}
