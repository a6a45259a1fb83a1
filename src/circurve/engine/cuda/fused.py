"""The passes of the fused kernels: forward and backward for a fleet, and what runs at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cuda.blueprint import Blueprint, SumPlan, TablePlan
from circurve.engine.cuda.buffers import Buffers
from circurve.engine.cuda.launch import Launcher
from circurve.engine.program import Program
from circurve.engine.states import state_logs
from circurve.words import counted

__all__ = ["FusedEngine"]


class FusedEngine(Buffers):
    """R runs of a program on one CUDA device, in float32."""

    def __init__(
        self, program: Program, blueprint: Blueprint, runs: int, device: torch.device, precision: str = "float32"
    ) -> None:
        super().__init__(program, blueprint, runs, device, precision)
        self.launch = Launcher(self, precision)
        self._streams: list[torch.cuda.Stream] = []
        self._open: set[int] = set()
        """Which of them `join` has to wait for."""

        self.input_variables = [
            torch.tensor([node.variable for node in layer.nodes], device=device) for layer in program.inputs
        ]
        self._features = {plan.inputs: self._state_features(plan) for plan in blueprint.tables}

    def expect_missing(self, missing: bool) -> None:
        """Make tables with a column for each state, and one more if values are missing."""
        self.join()  # other branches may be writing the tables that are freed now
        self._set_columns(self.blueprint.states + missing)

    def accept(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """States and labels of a batch, as the kernels read them; its weights go to `sample_weights`."""
        self.reserve(batch.size, self._keeps)
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
        if self.wide and self.outdated:
            self.launch.round_weights()
            self.outdated = False
        for written in self.blueprint.written:
            assert batch is not None, "inputs without tables need the batch itself"
            self._write(written.inputs, written.rows, written.shape, batch)
        for number, (plan, group) in enumerate(self._with_groups()):
            self.launch.forward(plan, group, states, keep, follows=number > 0)

    def finish(self, labels: Tensor | None, totals: Tensor, add: bool, running: Tensor | None) -> None:
        """Log-values of the samples, the outputs' flow, and totals (4, R): log-likelihood, weight, impossible, broken.

        They are added to `running` (4 or more, R) as well, if it is given.
        """
        self.launch.outputs(labels, totals, add, running)

    def backward(self, curvature: Tensor | None) -> None:
        """Flows and ratios of all rows. curvature: (R, tiles, kinds, M), the sums of each tile."""
        for number, (plan, group) in enumerate(reversed(self._with_groups())):
            self.launch.backward(plan, group, curvature, follows=number > 0)

    @contextmanager
    def aside(self, branch: int = 0) -> Iterator[None]:
        """Launch at the same time as what follows and as other branches, until `join`: small kernels do not fill a
        GPU."""
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
        self.outdated = True
        with self.aside():
            for plan in self.blueprint.tables:
                if self.launch.knows(plan):
                    self.launch.tabulate(plan)
                else:
                    self._tabulate(plan)

    def _tabulate(self, plan: TablePlan) -> None:
        """A table of a family that the kernels do not know."""
        family, parameters = self.program.inputs[plan.inputs].family, self.inputs[plan.inputs]
        logs = state_logs(family, parameters, missing=False)
        logs = torch.nn.functional.pad(logs, (0, self.columns - logs.shape[-1]))
        if plan.sums is not None:
            leaves, weights = self.leaves[plan.inputs], self.packing.layers(self.packed)[plan.sums]
            leaves.log_largest.copy_(logs.amax(-2, keepdim=True))
            torch.exp(logs - leaves.log_largest, out=leaves.elements)
            torch.matmul(weights, leaves.elements, out=leaves.sums)
            logs = leaves.sums.log() + leaves.log_largest
        self.table[:, plan.rows : plan.rows + plan.groups * plan.units] = logs.flatten(1, 2)

    def _state_features(self, plan: TablePlan) -> Tensor:  # (1, G, S, features)
        family = self.program.inputs[plan.inputs].family
        support = family.support()
        assert support is not None
        values = torch.tensor(support, device=self.device, dtype=self.dtype).expand(1, plan.groups, -1)
        return family.features(values, None).transpose(-1, -2).to(self.dtype).contiguous()

    def features(self, plan: TablePlan) -> Tensor:  # (1, G, S, features)
        """The sufficient statistics of each state."""
        return self._features[plan.inputs]

    def _write(self, number: int, first: int, shape: tuple[int, int], batch: Batch) -> None:
        variables = self.input_variables[number]
        g, k = shape
        logs = self.program.inputs[number].family.log_prob(self.inputs[number], batch.x.index_select(1, variables))
        if batch.observed is not None:
            logs = logs * batch.observed.index_select(1, variables).unsqueeze(-2)
        self.values[:, first : first + g * k, : batch.size] = logs.flatten(1, 2)

    def describe(self) -> str:
        """One line for each layer: which kernel computes it."""
        lines = [f"fused: CUDA kernels on {self.device}, {self.precision}, {counted(self.runs, 'run')}"]
        lines += [
            f"table    {t.groups:>6} x {t.units}" + (" sums" if t.sums is not None else "")
            for t in self.blueprint.tables
        ]
        for plan in self.blueprint.sums:
            g, k, c = plan.shape
            way = "edge by edge" if plan.masked else "one kernel" if self.launch.fuses(plan) else "by blocks"
            lines.append(f"sum      {g:>6} x {k} x {c}  {way}")
        return "\n".join(lines)
