"""The reference backend: values, flows and statistics in plain torch, for any circuit, device and precision.

It has no tables, no tree walk and no kernels of its own, and autograd differentiates its upward pass. The other
backends are tested against it, and it is tested against enumeration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from threading import RLock

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.params import Params
from circurve.engine.program import ProductLayer, Program, SumLayer
from circurve.engine.reference.downward import RootFlow, SumPass, child_flow, root_flow
from circurve.engine.reference.gather import Gather
from circurve.engine.reference.sums import Sums, input_statistics
from circurve.engine.reference.upward import SumValues, UpwardPass, never_weak, safe_sum_values, sum_values
from circurve.engine.reference.workspace import FRESH, Memory, Rows, Workspace
from circurve.engine.statistics import Request, Statistics
from circurve.words import counted

__all__ = ["DownwardPass", "Reference"]


class Reference:
    """R runs of a program on one device in one precision."""

    name = "reference"

    def __init__(self, program: Program, runs: int, device: torch.device, dtype: torch.dtype) -> None:
        self.program, self.runs, self.device, self.dtype = program, runs, device, dtype
        self.max_samples: int | None = None
        self.lock = RLock()
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
        self.workspace = Workspace(runs, device, dtype)
        """Memory of `statistics`, and of `log_prob` without gradients; it never contains a result."""

    @classmethod
    def of(cls, program: Program, params: Params) -> Reference:
        """For parameters of this shape, on their device."""
        return cls(program, params.runs, params.device, params.dtype)

    def describe(self) -> str:
        """A readable description of what computes."""
        name, runs = str(self.dtype).removeprefix("torch."), counted(self.runs, "run")
        return f"reference: plain torch on {self.device}, {name}, {runs}"

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs: what a pass holds at its end, and temporaries of the widest layer."""
        program = self.program
        widths = [math.prod(layer.shape) for layer in program.inputs]
        widths += [layer.children.targets for layer in program.layers]
        widest = max(*widths, *(math.prod(layer.shape[:2]) for layer in program.sums), 1)
        elements = sum(layer.children.targets for layer in program.sums)
        rows = program.values.rows + elements + program.units + 4 * widest
        if backward:
            rows += program.flows.rows + 3 * widest
        return rows * self.runs * torch.finfo(self.dtype).bits // 8

    def release(self) -> None:
        """Give all buffers back; the next call makes new ones."""
        self.workspace = Workspace(self.runs, self.device, self.dtype)

    def log_prob(self, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
        """Log-probabilities of all outputs; -inf for probability zero. Autograd can differentiate them."""
        memory = FRESH if torch.is_grad_enabled() else self.workspace.begin(batch.size, backward=False)
        value = self.upward(params, batch, memory).outputs
        return torch.where(value <= IMPOSSIBLE, -torch.inf, value)

    @torch.no_grad()
    def statistics(self, params: Params, batches: Iterable[Batch], request: Request | None = None) -> Statistics:
        """The sums of an E-step over all batches."""
        sums = Sums(self.program, params, request or Request())
        for batch in batches:
            memory = self.workspace.begin(batch.size, backward=True)
            down = self.passes(params, batch, memory)
            sums.add_root(down.root)
            for step in down.sums():
                sums.add_sum(step, down.root)
            for number, flow in down.inputs():
                layer = self.program.inputs[number]
                sums.add_input(number, input_statistics(layer, self.variables[number], batch, flow, memory))
        return sums.result()

    def upward(self, params: Params, batch: Batch, memory: Memory = FRESH) -> UpwardPass:
        """All values of a batch; zero probability is LOG_ZERO or below."""
        values = memory.rows("values", self.program.values, batch.size)
        for number, layer in enumerate(self.program.inputs):
            place = values.place(layer.block, *layer.shape)
            values.put(layer.block, self.input_values(number, params, batch, place))
        return self._climb(params, values, memory)

    def upward_from(self, params: Params, leaves: Sequence[Tensor]) -> UpwardPass:
        """All values, given those of the input layers, (R, G, K, N) each, in the order of the program."""
        values = FRESH.rows("values", self.program.values, leaves[0].shape[-1])
        for layer, leaf in zip(self.program.inputs, leaves, strict=True):
            values.put(layer.block, leaf)
        return self._climb(params, values, FRESH)

    def child_values(self, layer: SumLayer, values: Rows) -> Tensor:  # (R, G, C, N)
        """The log-values of the children of a sum layer, from those of an upward pass in memory of its own."""
        rows = self.children[layer.block](values, FRESH)
        g, _, c = layer.shape
        return rows.reshape(self.runs, g, c, rows.shape[-1])

    def _climb(self, params: Params, values: Rows, memory: Memory) -> UpwardPass:
        """The values of all sums and products; those of the inputs are there."""
        program, safe = self.program, never_weak(params.weights)
        found: list[SumValues] = []
        for step in program.layers:
            gather = self.children[step.block]
            if isinstance(step, ProductLayer):
                values.put(step.block, gather(values, memory, values.place(step.block, gather.targets)))
                continue
            g, _, c = step.shape
            weights, mask = params.weights[len(found)], self.masks[len(found)]
            places = memory.sum_places(step, len(found), values)
            in_place = places.elements if safe and gather.whole is None else None
            rows = gather(values, memory, in_place)
            children = rows.view(self.runs, g, c, rows.shape[-1])
            if safe:
                found.append(safe_sum_values(weights, children, places))
            else:
                found.append(sum_values(weights, children, mask, places))
            values.put(step.block, found[-1].log_value)
        return UpwardPass(self.outputs(values), values, tuple(found))

    def outputs(self, values: Rows) -> Tensor:  # (R, outputs, N)
        """The rows of the outputs."""
        return torch.stack([values.blocks[block][:, row] for block, row in self._outputs], dim=1)

    def input_values(
        self, number: int, params: Params, batch: Batch, place: Tensor | None = None
    ) -> Tensor:  # (R, G, K, N)
        """The log-values of one input layer, written to `place` if it is given; 0 where nothing is observed."""
        layer, variables = self.program.inputs[number], self.variables[number]
        parameters, x = params.inputs[number], batch.x.index_select(1, variables)
        family = layer.family
        value = family.log_prob(parameters, x) if place is None else family.log_prob_into(parameters, x, place)
        if batch.observed is not None:
            present = batch.observed.index_select(1, variables).unsqueeze(-2)
            value = torch.mul(value, present, out=place)
        return value

    @torch.no_grad()
    def passes(self, params: Params, batch: Batch, memory: Memory = FRESH) -> DownwardPass:
        """The upward pass of a batch, ready for the downward one."""
        up = self.upward(params, batch, memory)
        return DownwardPass(self, params, up, root_flow(batch, up.outputs), memory)


class DownwardPass:
    """Flows of a batch. `sums` must be walked through before `inputs` has what it needs.

    With a workspace as memory, what `sums` and `inputs` yield is valid until the next step.
    """

    def __init__(self, backend: Reference, params: Params, up: UpwardPass, root: RootFlow, memory: Memory) -> None:
        self.backend, self.params, self.up, self.root, self.memory = backend, params, up, root, memory
        self.flows = memory.rows("flows", backend.program.flows, root.flow.shape[-1])
        self.flows.put(0, root.flow.new_zeros(backend.runs, 1, root.flow.shape[-1]))
        self.flows.put(Program.ROOT_FLOWS, root.flow)

    def sums(self) -> Iterator[SumPass]:
        """The sum layers, parents first, each with its flow."""
        number = len(self.up.sums)
        for layer in reversed(self.backend.program.layers):
            if isinstance(layer, SumLayer):
                number -= 1
                step = self._sum_pass(layer, number)
                g, _, c = layer.shape
                self.flows.put(layer.flow_block, child_flow(step, self.flows.place(layer.flow_block, g, c)))
                yield step
            elif layer.flow_block is not None:
                gather = self.backend.received[layer.block]
                place = self.flows.place(layer.flow_block, gather.targets)
                self.flows.put(layer.flow_block, gather(self.flows, self.memory, place))

    def _sum_pass(self, layer: SumLayer, number: int) -> SumPass:
        values = self.up.sums[number]
        flow = self.backend.received[layer.block](self.flows, self.memory).view(values.sums.shape)
        ratio = torch.div(flow, values.sums, out=self.memory.take("ratio", *flow.shape))
        return SumPass(number, layer, values, self.params.weights[number], self.backend.masks[number], flow, ratio)

    def inputs(self) -> Iterator[tuple[int, Tensor]]:
        """The number of each input layer and its flow, (R, G, K, N)."""
        for number, layer in enumerate(self.backend.program.inputs):
            rows = self.backend.received[layer.block](self.flows, self.memory)
            yield number, rows.view(len(rows), *layer.shape, -1)
