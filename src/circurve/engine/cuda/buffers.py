"""Memory of the fused kernels for R runs of a program: parameters, rows of samples, tables by state."""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.engine.cuda.blueprint import Blueprint
from circurve.engine.cuda.packing import ALIGN, Packing
from circurve.engine.cuda.sizes import PROGRAMS, WIDE_TILE, is_wide, parts
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.states import StateTable

__all__ = ["Buffers"]


class Buffers:
    """Tensors that the kernels read and write. Rows are (R, rows, stride); tables are (R, rows, columns).

    The weights are packed in `packed` and updated in place; `load` copies a `Params` there.
    """

    def __init__(self, program: Program, blueprint: Blueprint, runs: int, device: torch.device, precision: str) -> None:
        self.program, self.blueprint, self.runs, self.device = program, blueprint, runs, device
        self.dtype = torch.float32
        self.packing = Packing(program)
        self.packed = self.packing.zeros(runs, device, self.dtype)
        self.inputs: list[Tensor] = []
        self.groups = sum(plan.shape[0] for plan in blueprint.sums)
        self.variables = len(program.circuit.families)
        self.exact = bool(blueprint.written)
        """True if S is kept for the backward pass: inputs without a table can have log-values of any size."""

        self.precision = precision
        self.wide_groups = _wide_groups(blueprint) if precision == "tf32" else {}
        """The number of groups of each shape (K, C) for which there are the kernels of wide layers."""

        self.wide = False
        """True if the samples in use give those kernels enough work."""

        self.copies: dict[tuple[int, int], Tensor] = {}
        """Rounded weights of those shapes, (1, R, G, K C) for the forward pass alone, else (2, R, G, K C), where the
        second ones are transposed."""

        self.outdated = True
        """True if the copies are not those of the present weights."""

        self.samples = self.width = self.stride = 0
        """Samples in use, the same rounded up to 16, or to a tile of the kernels of wide layers (all kernels take them
        all, the last with weight zero), and the room of a row."""

        self._capacity, self._keeps = 0, False
        self._parts: Tensor | None = None
        self._set_columns(blueprint.states)
        self._forget_rows()

    def _set_columns(self, columns: int) -> None:
        """Make tables with this many columns: one for each state; those beyond a family's own are for "missing"."""
        self.columns = columns
        shape = (self.runs, max(1, self.blueprint.table_rows), max(1, columns))
        self.table = torch.zeros(shape, device=self.device, dtype=self.dtype)
        self.leaves: dict[int, StateTable] = {}
        for plan in self.blueprint.tables:
            if plan.sums is not None:
                g, k, c = self.program.sums[plan.sums].shape
                parts = [(g, c), (g, k), (g, 1)]
                tables = (self.table.new_empty(self.runs, *part, columns) for part in parts)
                self.leaves[plan.inputs] = StateTable(*tables)

    def load(self, params: Params) -> None:
        """Copy parameters in, unless they are these tensors already."""
        for view, weights in zip(self.packing.layers(self.packed), params.weights, strict=True):
            if view.data_ptr() != weights.data_ptr():
                view.copy_(weights)
        self.inputs = list(params.inputs)
        self.outdated = True

    @property
    def params(self) -> Params:
        """Views of the present parameters."""
        return Params(self.packing.layers(self.packed), tuple(self.inputs))

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs: what the chunk size is computed from."""
        plan = self.blueprint
        rows = plan.value_rows + plan.flow_rows + 2 * self.groups
        if backward:
            rows += plan.value_rows + plan.flow_rows + 6 * self.packing.units // ALIGN
            rows += plan.value_rows * (self.exact + (self.exact and self.program.masked))
        return (4 * rows + self.variables + 8) * self.runs

    def reserve(self, samples: int, backward: bool) -> None:
        """Make room for this many samples; memory is allocated only when it must grow."""
        self.samples, self.wide = samples, self._is_wide(samples)
        step = WIDE_TILE if self.wide else ALIGN
        self.width = parts(samples, step) * step
        if samples > self._capacity or (backward and not self._keeps):
            self._capacity, self._keeps = max(samples, self._capacity), backward or self._keeps
            self._allocate()
        if self.wide and any(len(self.copies.get(shape, ())) < 1 + self._keeps for shape in self.wide_groups):
            self._allocate_copies()

    def _is_wide(self, samples: int) -> bool:
        """True if a typical wide layer has enough work for all multiprocessors."""
        shapes = [plan.shape for plan in self.blueprint.sums if plan.shape[1:] in self.wide_groups and not plan.masked]
        tiles = sum(g * (k // WIDE_TILE) for g, k, _ in shapes) * parts(samples, WIDE_TILE) * self.runs
        return bool(shapes) and tiles >= PROGRAMS * len(shapes)

    def release(self) -> None:
        """Give all rows back; `reserve` makes new ones."""
        self._capacity, self._keeps, self._parts = 0, False, None
        self.copies = {}
        self._forget_rows()

    def _forget_rows(self) -> None:
        nothing = torch.empty(self.runs, 0, 0, device=self.device, dtype=self.dtype)
        self.values = self.elements = self.flows = self.ratios = self.largest = self.squares = nothing
        self.scaled_sums = self.tops = nothing
        self.sample_weights = self.log_values = nothing[:, 0:0]

    def _allocate(self) -> None:
        plan, step = self.blueprint, WIDE_TILE if self.wide_groups else ALIGN
        stride = self.stride = parts(self._capacity, step) * step

        def rows(count: int) -> Tensor:
            return torch.empty(self.runs, count, stride, device=self.device, dtype=self.dtype)

        self.values = rows(plan.value_rows).zero_()
        self.sample_weights, self.log_values = rows(1)[:, 0], rows(1)[:, 0]
        self.elements = rows(plan.flow_rows)
        self.largest, self.squares = (rows(max(1, self.groups)) for _ in range(2))
        self.flows = rows(plan.flow_rows if self._keeps else 1 + len(plan.outputs))
        self.flows[:, 0] = 0
        self.ratios = rows(plan.value_rows if self._keeps else 1)
        self.scaled_sums = rows(plan.value_rows if self._keeps and self.exact else 1)
        self.tops = rows(plan.value_rows if self._keeps and self.exact and self.program.masked else 1)

    def _allocate_copies(self) -> None:
        """Make room for rounded weights; the backward pass reads them transposed."""
        self.copies, self.outdated = {}, True
        for (k, c), groups in self.wide_groups.items():
            shape = (1 + self._keeps, self.runs, groups, k * c)
            self.copies[k, c] = torch.empty(shape, device=self.device, dtype=self.dtype)

    def partial_sums(self, tile: int, kinds: int) -> Tensor:  # (R, tiles, kinds, M)
        """Where the backward pass leaves the sums of each tile of samples; always zero for tabulated sums."""
        shape = (self.runs, -(-self.width // tile), kinds, self.packing.units)
        if self._parts is None or self._parts.shape != shape:
            self._parts = torch.zeros(shape, device=self.device, dtype=self.dtype)
        return self._parts


def _wide_groups(blueprint: Blueprint) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for plan in blueprint.sums:
        g, k, c = plan.shape
        if is_wide(k, c) and not plan.masked:
            found[k, c] = found.get((k, c), 0) + g
    return found
