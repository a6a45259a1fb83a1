"""A program bound to the fused kernels: buffers, and the forward and backward pass of a fleet.

`FusedEngine` stands where the reference's `Engine` does in `estep.py`; its answers are the same to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cuda.blueprint import Blueprint, SumPlan, TablePlan
from circurve.engine.cuda.launch import Launcher
from circurve.engine.cuda.packing import ALIGN, Packing
from circurve.engine.params import Params
from circurve.engine.program import Program

__all__ = ["FusedEngine", "Leaves"]


@dataclass(frozen=True)
class Leaves:
    """The columns of a tabulated sum layer for the present parameters."""

    elements: Tensor  # E, (R, G, C, S)
    scaled: Tensor  # S, (R, G, K, S)
    log_largest: Tensor  # m, (R, G, 1, S)


class FusedEngine:
    """R runs of a program on one CUDA device, in float32.

    The weights live packed in `packed`, updated in place; `load` puts a `Params` there.
    """

    def __init__(self, blueprint: Blueprint, runs: int, device: torch.device, precision: str = "float32") -> None:
        self.blueprint, self.runs, self.device, self.precision = blueprint, runs, device, precision
        self.program: Program = blueprint.program
        self.dtype = torch.float32
        self.packing = Packing(self.program)
        self.packed = self.packing.zeros(runs, device, self.dtype)
        self.inputs: list[Tensor] = []
        self.launch = Launcher(self)
        self.samples = self.width = self.stride = self._capacity = 0
        self._keep = False
        self.most_samples: int | None = None
        """What the device's memory turned out to hold; see `memory.within_memory`."""

        self._parts: Tensor | None = None
        self._streams: list[torch.cuda.Stream] = []
        self._open: set[int] = set()
        """Which of them `join` has to wait for."""

        self.expect_missing(False)
        self.groups = sum(plan.shape[0] for plan in blueprint.sums)
        self.variables = len(self.program.circuit.families)
        self.input_variables = [
            torch.tensor([node.variable for node in layer.nodes], device=device) for layer in self.program.inputs
        ]
        self._features = {plan.inputs: self._state_features(plan) for plan in blueprint.tables}

    def expect_missing(self, missing: bool) -> None:
        """Make tables with a column for each state, and one more if values are missing."""
        self.join()  # others may be writing the tables that now go
        self.columns = self.blueprint.states + missing
        """Of a table; those beyond a family's own states stand for a missing value."""

        shape = (self.runs, max(1, self.blueprint.table_rows), max(1, self.columns))
        self.table = torch.zeros(shape, device=self.device, dtype=self.dtype)
        self.leaves: dict[int, Leaves] = {}
        for plan in self.blueprint.tables:
            if plan.sums is not None:
                g, k, c = self.program.sums[plan.sums].shape
                parts = [(g, c), (g, k), (g, 1)]
                self.leaves[plan.inputs] = Leaves(*(self.table.new_empty(self.runs, *p, self.columns) for p in parts))

    # -- what the passes are given

    def load(self, params: Params) -> None:
        """Copy parameters in, unless they are the engine's own already."""
        for view, weights in zip(self.packing.layers(self.packed), params.weights, strict=True):
            if view.data_ptr() != weights.data_ptr():
                view.copy_(weights)
        self.inputs = list(params.inputs)

    @property
    def params(self) -> Params:
        """Views of the present parameters."""
        return Params(self.packing.layers(self.packed), tuple(self.inputs))

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs: what the chunk size is computed from."""
        plan = self.blueprint
        rows = plan.value_rows + plan.flow_rows + 2 * self.groups
        if backward:
            rows += plan.value_rows + plan.flow_rows + 3 * self.packing.units // ALIGN
        return (4 * rows + self.variables + 8) * self.runs

    def reserve(self, samples: int, backward: bool) -> None:
        """Make room for so many samples."""
        self.samples = samples
        self.width = -(-samples // ALIGN) * ALIGN
        """Samples with those that fill the last 16: the kernels take them all, the latter with weight zero."""

        if samples > self._capacity or (backward and not self._keep):
            self._capacity, self._keep = max(samples, self._capacity), backward or self._keep
            self._allocate()

    def release(self) -> None:
        """Give all buffers back; `reserve` makes new ones."""
        self._capacity, self._keep, self._parts = 0, False, None
        for name in ("values", "elements", "flows", "ratios", "largest", "squares"):
            setattr(self, name, self.table)

    def parts_of_units(self) -> Tensor:  # (R, tiles, 3, M)
        """Where the backward pass leaves F^2, t and T of each tile of samples; always zero for tabulated sums."""
        shape = (self.runs, -(-self.width // self.launch.tile()), 3, self.packing.units)
        if self._parts is None or self._parts.shape != shape:
            self._parts = torch.zeros(shape, device=self.device, dtype=self.dtype)
        return self._parts

    def _allocate(self) -> None:
        plan, stride = self.blueprint, -(-self._capacity // ALIGN) * ALIGN
        self.stride = stride

        def rows(count: int) -> Tensor:
            return torch.empty(self.runs, count, stride, device=self.device, dtype=self.dtype)

        self.values = rows(plan.value_rows).zero_()
        self.sample_weights, self.log_values = rows(1)[:, 0], rows(1)[:, 0]
        self.elements = rows(plan.flow_rows)
        self.largest, self.squares = (rows(max(1, self.groups)) for _ in range(2))
        self.flows = rows(plan.flow_rows if self._keep else 1 + len(plan.outputs))
        self.flows[:, 0] = 0
        self.ratios = rows(plan.value_rows if self._keep else 1)

    # -- passes

    def accept(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """States and labels of a batch, as the kernels read them; its weights go to `sample_weights`."""
        self.reserve(batch.size, self._keep)
        if batch.observed is not None and self.columns == self.blueprint.states:
            self.expect_missing(True)
            self.tabulate()
        n = batch.size
        states = torch.zeros(batch.x.shape[0], self.variables, self.stride, device=self.device, dtype=torch.int8)
        codes = batch.x.clamp(-1, 127).to(torch.int8)
        if batch.observed is not None:
            codes = torch.where(batch.observed > 0, codes, self.blueprint.states)
        states[..., :n] = codes
        self.sample_weights[:, :n] = 1.0 if batch.weights is None else batch.weights
        self.sample_weights[:, n:] = 0.0
        return states, None if batch.labels is None else self.padded_labels(batch.labels)

    def padded_labels(self, labels: Tensor) -> Tensor:  # (R or 1, N) -> (R, NS)
        """Labels as the kernels read them."""
        padded = torch.zeros(self.runs, self.stride, device=self.device, dtype=torch.int32)
        padded[:, : labels.shape[1]] = labels
        return padded

    def forward(self, states: Tensor, batch: Batch | None, keep: bool) -> None:
        """Values of all rows. states: (R or 1, V, NS); the batch itself is needed where inputs are not tables."""
        self.join()
        for written in self.blueprint.written:
            assert batch is not None, "inputs without tables need the batch itself"
            self._write(written.inputs, written.rows, written.shape, batch)
        for number, (plan, group) in enumerate(self._with_groups()):
            self.launch.forward(plan, group, states, keep, follows=number > 0)

    def finish(self, labels: Tensor | None, totals: Tensor, add: bool, running: Tensor | None) -> None:
        """Log-values of the samples, the outputs' flow, and totals (4, R): log-likelihood, weight, impossible, broken.

        They are added to `running` (4 or more, R) as well, if there is such.
        """
        self.launch.outputs(labels, totals, add, running)

    def backward(self, curvature: Tensor | None) -> None:
        """Flows and ratios of all rows. curvature: (R, tiles, 3, M), the sums of F^2, t and T of each tile."""
        for number, (plan, group) in enumerate(reversed(self._with_groups())):
            self.launch.backward(plan, group, curvature, follows=number > 0)

    @contextmanager
    def aside(self, branch: int = 0) -> Iterator[None]:
        """Launch beside what follows and beside other branches, until `join`: small kernels do not fill a GPU."""
        if self.device.type != "cuda":
            yield
            return
        while len(self._streams) <= branch:
            self._streams.append(torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
        self._open.add(branch)
        self._streams[branch].wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._streams[branch]):
            yield

    def join(self) -> None:
        """Wait, on the device, for what was launched aside."""
        for branch in self._open:
            torch.cuda.current_stream(self.device).wait_stream(self._streams[branch])
        self._open.clear()

    def _with_groups(self) -> list[tuple[SumPlan, int]]:
        """Each plan with the number of its first group."""
        pairs, group = [], 0
        for plan in self.blueprint.sums:
            pairs.append((plan, group))
            group += plan.shape[0]
        return pairs

    def tabulate(self) -> None:
        """The columns by state of all tables, from the present parameters: before the first forward pass with them."""
        with self.aside():
            self._tabulate()

    def _tabulate(self) -> None:
        layers = self.packing.layers(self.packed)
        for plan in self.blueprint.tables:
            if self.launch.knows(plan):
                self.launch.tabulate(plan)
                continue
            family, parameters = self.program.inputs[plan.inputs].family, self.inputs[plan.inputs]
            values, _ = self._features[plan.inputs]
            logs = parameters.new_empty(*parameters.shape[:3], values.shape[-1])
            family.log_prob(parameters, values, logs)
            logs = torch.nn.functional.pad(logs, (0, self.columns - values.shape[-1]))
            if plan.sums is not None:
                leaves = self.leaves[plan.inputs]
                leaves.log_largest.copy_(logs.amax(-2, keepdim=True))
                torch.exp(logs - leaves.log_largest, out=leaves.elements)
                torch.matmul(layers[plan.sums], leaves.elements, out=leaves.scaled)
                logs = leaves.scaled.log() + leaves.log_largest
            self.table[:, plan.rows : plan.rows + plan.groups * plan.units] = logs.flatten(1, 2)

    def _state_features(self, plan: TablePlan) -> tuple[Tensor, Tensor]:
        """The states of a table's family, (1, G, S), and their sufficient statistics, (1, G, S, features)."""
        family = self.program.inputs[plan.inputs].family
        support = family.support()
        assert support is not None
        values = torch.tensor(support, device=self.device, dtype=self.dtype).expand(1, plan.groups, -1)
        return values, family.features(values, None).transpose(-1, -2).to(self.dtype).contiguous()

    def features(self, plan: TablePlan) -> Tensor:  # (1, G, S, features)
        """The sufficient statistics of each state."""
        return self._features[plan.inputs][1]

    def _write(self, number: int, first: int, shape: tuple[int, int], batch: Batch) -> None:
        variables = self.input_variables[number]
        g, k = shape
        logs = torch.empty(self.runs, g, k, batch.size, device=self.device, dtype=self.dtype)
        self.program.inputs[number].family.log_prob(self.inputs[number], batch.x.index_select(1, variables), logs)
        if batch.observed is not None:
            logs *= batch.observed.index_select(1, variables).unsqueeze(-2)
        self.values[:, first : first + g * k, : batch.size] = logs.flatten(1, 2)

    def describe(self) -> str:
        """One line for each layer: which kernel serves it."""
        lines = [f"fused CUDA kernels, {self.precision}, {self.runs} runs"]
        lines += [
            f"table    {t.groups:>6} x {t.units}" + (" sums" if t.sums is not None else "")
            for t in self.blueprint.tables
        ]
        for plan in self.blueprint.sums:
            g, k, c = plan.shape
            way = "edge by edge" if plan.masked else "one kernel" if self.launch.fuses(plan) else "by blocks"
            lines.append(f"sum      {g:>6} x {k} x {c}  {way}")
        return "\n".join(lines)
