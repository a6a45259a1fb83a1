"""The reference backend: values, flows and statistics in plain torch, for any circuit, device and precision.

It has no tables, no tree walk and no kernels of its own, and autograd differentiates its upward pass. The other
backends are tested against it, and it is tested against enumeration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.params import Params
from circurve.engine.program import ProductLayer, Program, SumLayer
from circurve.engine.reference.downward import RootFlow, SumPass, child_flow, root_flow
from circurve.engine.reference.gather import Gather
from circurve.engine.reference.sums import Sums, input_statistics
from circurve.engine.reference.upward import SumValues, UpwardPass, sum_values
from circurve.engine.statistics import Request, Statistics

__all__ = ["DownwardPass", "Reference"]


class Reference:
    """R runs of a program on one device in one precision."""

    name = "reference"

    def __init__(self, program: Program, runs: int, device: torch.device, dtype: torch.dtype) -> None:
        self.program, self.runs, self.device, self.dtype = program, runs, device, dtype
        self.max_samples: int | None = None
        layers = program.layers
        self.children = {layer.block: Gather(layer.children, program.values, runs, device) for layer in layers}
        self.received = {
            layer.block: Gather(layer.flow, program.flows, runs, device)
            for layer in (*program.inputs, *layers)
            if layer.flow is not None
        }
        self.variables = [
            torch.tensor([node.variable for node in layer.nodes], device=device) for layer in program.inputs
        ]
        self.masks = [
            None if layer.mask is None else torch.from_numpy(layer.mask).to(device, dtype) for layer in program.sums
        ]
        blocks = program.values.block_of(program.roots)
        rows = program.roots - program.values.starts[blocks]
        self._outputs = list(zip(blocks.tolist(), rows.tolist(), strict=True))
        self._read_last_by = self._last_readers()

    def _last_readers(self) -> dict[int, list[int]]:
        """For each layer's block, the blocks that no later layer reads: their memory can be used again."""
        program, kept = self.program, {block for block, _ in self._outputs}
        last: dict[int, int] = {}
        for layer in program.layers:
            for block in np.unique(program.values.block_of(layer.children.edges()[1])).tolist():
                last[block] = layer.block
        found: dict[int, list[int]] = {}
        for block, reader in last.items():
            if block not in kept:
                found.setdefault(reader, []).append(block)
        return found

    @classmethod
    def of(cls, program: Program, params: Params) -> Reference:
        """For parameters of this shape, on their device."""
        return cls(program, params.runs, params.device, params.dtype)

    def describe(self) -> str:
        """What computes, for people."""
        return f"reference: plain torch on {self.device}, {str(self.dtype).removeprefix('torch.')}, {self.runs} runs"

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs: what a pass holds at its end, and temporaries of the widest layer."""
        program = self.program
        widest = max((layer.children.targets for layer in program.layers), default=1)
        elements = sum(layer.children.targets for layer in program.sums)
        rows = program.values.rows + elements + program.units + 3 * widest
        if backward:
            rows += program.flows.rows + 2 * widest
        return rows * self.runs * torch.finfo(self.dtype).bits // 8

    def release(self) -> None:
        """Nothing to give back: memory is taken for each batch and goes with it."""

    def log_prob(self, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
        """Log-probabilities of all outputs; -inf for probability zero. Autograd can differentiate them."""
        value = self.upward(params, batch).outputs
        return torch.where(value <= IMPOSSIBLE, -torch.inf, value)

    @torch.no_grad()
    def statistics(self, params: Params, batches: Iterable[Batch], request: Request | None = None) -> Statistics:
        """The sums of an E-step over all batches."""
        sums = Sums(self.program, params, request or Request())
        for batch in batches:
            down = self.passes(params, batch)
            sums.add_root(down.root)
            for step in down.sums():
                sums.add_sum(step, down.root)
            for number, flow in down.inputs():
                layer = self.program.inputs[number]
                sums.add_input(number, input_statistics(layer, self.variables[number], batch, flow))
        return sums.result()

    def upward(self, params: Params, batch: Batch, keep: bool = False) -> UpwardPass:
        """All values of a batch; zero probability is LOG_ZERO or below. `keep` keeps the values of every block."""
        numbers = range(len(self.program.inputs))
        return self.upward_from(params, (self.input_values(number, params, batch) for number in numbers), keep)

    def upward_from(self, params: Params, leaves: Iterable[Tensor], keep: bool = False) -> UpwardPass:
        """All values, given those of the input layers, (R, G, K, N) each, in the order of the program."""
        program = self.program
        blocks = {layer.block: values.flatten(1, 2) for layer, values in zip(program.inputs, leaves, strict=True)}
        found: list[SumValues] = []
        for step in program.layers:
            rows = self.children[step.block](blocks)
            if not keep:
                for block in self._read_last_by.get(step.block, ()):
                    del blocks[block]
            if isinstance(step, ProductLayer):
                blocks[step.block] = rows
                continue
            g, _, c = step.shape
            number, children = len(found), rows.reshape(self.runs, g, c, rows.shape[-1])
            found.append(sum_values(params.weights[number], children, self.masks[number]))
            blocks[step.block] = found[-1].log_value.flatten(1, 2)
        outputs = torch.stack([blocks[block][:, row] for block, row in self._outputs], dim=1)
        return UpwardPass(outputs, blocks, tuple(found))

    def input_values(self, number: int, params: Params, batch: Batch) -> Tensor:  # (R, G, K, N)
        """The log-values of one input layer; 0 where nothing is observed."""
        layer, variables = self.program.inputs[number], self.variables[number]
        value = layer.family.log_prob(params.inputs[number], batch.x.index_select(1, variables))
        if batch.observed is not None:
            value = value * batch.observed.index_select(1, variables).unsqueeze(-2)
        return value

    @torch.no_grad()
    def passes(self, params: Params, batch: Batch) -> DownwardPass:
        """The upward pass of a batch, ready for the downward one."""
        up = self.upward(params, batch)
        return DownwardPass(self, params, up, root_flow(batch, up.outputs))


class DownwardPass:
    """Flows of a batch. `sums` must be walked through before `inputs` and `product_flow` have what they need."""

    def __init__(self, backend: Reference, params: Params, up: UpwardPass, root: RootFlow) -> None:
        self.backend, self.params, self.up, self.root = backend, params, up, root
        zero = root.flow.new_zeros(backend.runs, 1, root.flow.shape[-1])
        self.flows: dict[int, Tensor] = {0: zero, Program.ROOT_FLOWS: root.flow}
        """Flows by flow block, (R, rows, N)."""

    def sums(self) -> Iterator[SumPass]:
        """The sum layers, parents first, each with its flow."""
        backend = self.backend
        number = len(self.up.sums)
        for layer in reversed(backend.program.layers):
            if layer.flow is None:
                continue
            flow = backend.received[layer.block](self.flows)
            if isinstance(layer, SumLayer):
                number -= 1
                step = self._sum_pass(layer, number, flow)
                flow = child_flow(step).flatten(1, 2)
                yield step
            assert layer.flow_block is not None
            self.flows[layer.flow_block] = flow

    def _sum_pass(self, layer: SumLayer, number: int, rows: Tensor) -> SumPass:
        values = self.up.sums[number]
        flow = rows.reshape(len(rows), *layer.shape[:2], -1)
        weights, mask = self.params.weights[number], self.backend.masks[number]
        return SumPass(number, layer, values, weights, mask, flow, flow / values.sums)

    def inputs(self) -> Iterator[tuple[int, Tensor]]:
        """The number of each input layer and its flow, (R, G, K, N)."""
        for number, layer in enumerate(self.backend.program.inputs):
            rows = self.backend.received[layer.block](self.flows)
            yield number, rows.reshape(len(rows), *layer.shape, -1)
