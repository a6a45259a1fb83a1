"""The steps of an epoch on a GPU: one EM step recorded as a CUDA graph and replayed for every batch.

A recorded step reads everything that changes from tensors: which batch is next, its rows, step sizes and mu of all
runs. It writes the next parameters in place, so an epoch is a sequence of replays that the host does not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from circurve.data import RowSource, Table
from circurve.engine import Params
from circurve.engine.batch import Batch
from circurve.engine.cuda import Fused
from circurve.engine.cuda.compile_ahead import Kernels, compile_ahead
from circurve.engine.cuda.estep import FusedSums
from circurve.engine.cuda.sizes import parts, power
from circurve.engine.cuda.table_launch import PickFrom
from circurve.engine.memory import chunk_size, halve, ran_out
from circurve.engine.numerics import effective_step
from circurve.learning.gates import is_ours
from circurve.learning.local_curvature import NodeSums
from circurve.learning.mstep import moved_inputs
from circurve.learning.plan import Plan
from circurve.learning.score import Scorer
from circurve.learning.steps import Batches, Begun, Pause, Rates, Totals

__all__ = ["GraphSteps"]


class GraphSteps:
    """EM steps of a fleet on the fused kernels. Gates that users wrote may wait for the host: then nothing is recorded.

    Batches of an epoch may differ in size by a row or so: shorter ones are filled up with samples of weight zero.
    """

    def __init__(
        self,
        backend: Fused,
        plan: Plan,
        train: Table,
        params: Params,
        memory_budget: int | None = None,
        scored: Collection[RowSource] = (),
    ) -> None:
        engine = backend.engine
        self.scored = [table for table in scored if isinstance(table, Table)]
        """What will be scored, after each epoch or in the end; a stream is not read only to compile."""

        self.backend, self.engine, self.plan, self.train = backend, engine, plan, train
        # a recorded step must find its memory where it was, so scores have a backend of their own, and half the budget
        memory_budget = None if memory_budget is None else max(1, memory_budget // 2)
        self.scoring = Fused(backend.program, backend.runs, backend.device, engine.precision)
        self.scorer = self._scorer(self.scoring, memory_budget)
        engine.load(params)
        engine.expect_missing(train.observed is not None)
        self.weights = None if train.weights is None else train.weights.to(engine.dtype)
        engine.inputs = [values.clone(memory_format=torch.contiguous_format) for values in params.inputs]
        self.states = self._states(train) if not engine.blueprint.written else None
        self.chunk = chunk_size(backend, backward=True, memory_budget=memory_budget)
        self.records = backend.records and all(is_ours(gated.gate) for gated in plan.gated)
        self.graphs: list[torch.cuda.CUDAGraph] = []
        self.shape: tuple[int, ...] = ()
        self.tried = False
        self.bounds: tuple[int, ...] = ()
        self.sent: tuple[Rates, ...] = ()  # the step sizes and strengths that the device has

    def _scorer(self, backend: Fused, memory_budget: int | None) -> Scorer:
        """What computes scores after each epoch."""
        return Scorer(backend, memory_budget)

    @property
    def params(self) -> Params:
        """Views of the parameters, which the next step changes in place."""
        return self.engine.params

    def snapshot(self) -> Params:
        """A copy of the parameters."""
        return self.params.clone()

    def run(
        self, batches: Batches, step_sizes: Rates, mus: Rates, begun: Begun | None = None, pause: Pause | None = None
    ) -> Totals:
        """One EM step for each batch; nothing waits for the device until the totals are read.

        There is no pause, and an epoch that has begun begins again: all rows are on the device, so that it is short.
        """
        self._prepare(batches, step_sizes, mus)
        self.totals.zero_()
        self.traces.zero_()
        for _ in range(len(batches)):
            self._next()
        if self.plan.request.curvature:
            torch.sum(self.traces, -1, out=self.totals[4])
        return Totals(self.totals.clone())

    def release(self) -> None:
        """Give back the recorded steps, the buffers, and the parameters in the form that the kernels read."""
        self.graphs = []
        self.backend.discard()
        self.scoring.discard()

    def _prepare(self, batches: Batches, step_sizes: Rates, mus: Rates) -> None:
        """Put what an epoch needs where the recorded step reads it; record the step when its shape is new."""
        device = self.engine.device
        rows = self._rows(batches)
        if rows.shape != self.shape:
            self.shape, self.graphs, self.tried = tuple(rows.shape), [], False
            self.rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
            self.number = torch.zeros(1, dtype=torch.int64, device=device)
            self.alphas = torch.zeros(len(batches), self.engine.runs, dtype=torch.float64, device=device)
            self.mus = torch.zeros_like(self.alphas)
            self.totals = torch.zeros(Totals.ROWS, self.engine.runs, dtype=torch.float64, device=device)
            units = self.plan.units if self.plan.request.curvature else 0
            self.traces = torch.zeros(self.engine.runs, units, dtype=torch.float64, device=device)
            self.sent = ()
        self.rows.copy_(rows)
        if self.sent != (step_sizes, mus):
            self.sent = (step_sizes, mus)
            self.alphas.copy_(torch.tensor(step_sizes, dtype=torch.float64))
            self.mus.copy_(torch.tensor(mus, dtype=torch.float64))
        if not self.tried:
            self._try_out()
            self.tried = True
        self.number.zero_()

    def _rows(self, batches: Batches) -> Tensor:  # (steps, R or 1, N), -1 for padding
        device = self.engine.device
        if self.bounds != batches.bounds:
            self.bounds = batches.bounds
            starts, stops = torch.tensor([self._share(*bounds) for bounds in pairwise(batches.bounds)]).T[..., None]
            place = starts + torch.arange(max(1, int((stops - starts).max())))
            place = torch.where(place < stops, place, -1)  # (steps, N)
            self.in_order = torch.equal(place.flatten(), torch.arange(batches.bounds[-1]))
            self.places = place.to(device)
        steps, width = self.places.shape
        if batches.orders is None:
            return self.places[None]
        orders = batches.orders.to(device)
        if self.in_order:  # all rows, in batches of one size
            return orders[:, : steps * width].view(-1, steps, width).transpose(0, 1)
        orders = torch.nn.functional.pad(orders, (0, 1), value=-1)  # place -1 is the padding
        return orders[:, self.places.flatten()].view(-1, steps, width).transpose(0, 1)

    def _share(self, start: int, stop: int) -> tuple[int, int]:
        """The samples of a batch that this process takes: all of them."""
        return start, stop

    def _next(self) -> None:
        """The step of the next batch."""
        for piece in self._launches():
            piece()

    def _launches(self) -> Sequence[Callable[[], None]]:
        """What a step consists of: replays, where it is recorded."""
        return [graph.replay for graph in self.graphs] or self._pieces()

    def _pieces(self) -> Sequence[Callable[[], None]]:
        """What is recorded, each as a graph of its own."""
        return (self._step,)

    def _try_out(self) -> None:
        """Run the step once and undo it, so that kernels are compiled and memory is allocated. Then record it.

        Where memory is short, the batch is cut into smaller chunks.
        """
        engine = self.engine
        state = [*engine.packed, *engine.inputs, self.totals, self.traces, self.number, *self.plan.running()]
        saved = [tensor.clone() for tensor in state]

        def restore() -> None:
            for tensor, value in zip(state, saved, strict=True):
                tensor.copy_(value)

        while True:
            try:
                if self.records:
                    compile_ahead(engine.device, self._rehearse)
                    restore()
                self._first_step()
                done = True
            except RuntimeError as error:
                done = False
                if self.chunk == 1 or not ran_out(error):
                    raise
            restore()
            if done:
                return
            self.chunk = halve(self.backend, min(self.chunk, self.rows.shape[2]))

    def _first_step(self) -> None:
        if not self.records:
            self._pieces()[0]()  # where memory can be short
            return
        on_a_stream_of_its_own(self.engine.device, self._step)
        self.graphs = [recorded(piece) for piece in self._pieces()]

    def _rehearse(self) -> None:
        """All that a training launches, to compile it: a step, which moves on to the next batch, and the scores."""
        self._step()
        for table in self.scored:
            self.scorer.rehearse(self.params, table)

    def _step(self) -> None:
        self._m_step(self._e_step(self.totals))

    def _e_step(self, running: Tensor | None) -> FusedSums:
        """The sums of the next batch; running: where to add up the totals of an epoch as well."""
        self.engine.tabulate()
        sums = FusedSums(self.engine, self.plan.request, running)
        width = self.rows.shape[2]
        for start in range(0, width, self.chunk):
            self._add_chunk(sums, start, min(start + self.chunk, width))
        return sums

    def _add_chunk(self, sums: FusedSums, start: int, stop: int) -> None:
        """Samples `start` to `stop` of the batch."""
        engine, train = self.engine, self.train
        engine.reserve(stop - start, backward=True)
        batch: Batch | None = None
        labels: Tensor | None = None
        if self.states is not None:
            shape = (self.rows.shape[1], engine.variables, engine.stride)
            states = torch.empty(shape, dtype=torch.int8, device=engine.device)
            engine.launch.pick(PickFrom(self.states, self.rows, self.number, self.weights), start, states)
        if self.states is None or train.labels is not None:
            rows = self.rows.index_select(0, self.number)[0, :, start:stop]  # (R or 1, N)
            index = rows.clamp_min(0)
            if train.labels is not None:
                labels = engine.padded_labels(train.labels[index])
            if self.states is None:
                batch = Batch.pick(train, index, engine.dtype)
                states, _ = engine.accept(batch)
                engine.sample_weights[:, : stop - start] *= rows >= 0
        sums.add(states, labels, batch)

    def _m_step(self, sums: FusedSums) -> None:
        """Move all parameters, and go on to the next batch."""
        engine = self.engine
        layers = engine.packing.layers
        edges = (layers(found) if found else None for found in (sums.ratio, sums.squared))
        gates = self.plan.gates(NodeSums(sums.units, layers(engine.packed), *edges), sums.totals[1])
        with engine.aside():
            self._move_inputs(sums)
            if sums.units is not None:
                self.traces += sums.units[:, 2]
        self._move_weights(sums, gates)
        engine.join()
        self.number += 1

    def _move_weights(self, sums: FusedSums, gates: Tensor) -> None:
        """Move the packed weights; gates: (R, M). Runs of an exact form have a kernel of their own."""
        from circurve.learning.cuda import mstep_kernels, simplex_kernels  # noqa: PLC0415 - Triton is imported only when used

        engine, plan, plain = self.engine, self.plan, (False, False)
        scale = plan.scale(sums.totals[1])
        for at, pack in enumerate(engine.packing.packs):
            width = power(pack.children)
            common = {
                "weights": engine.packed[at], "counts": sums.counts[at], "gates": gates,
                "units": engine.launch.units[at], "alphas": self.alphas, "mus": self.mus, "number": self.number,
                "forms": plan.form_numbers, "multiplier": plan.multiplier, "scale": scale,
                "pseudocount": plan.pseudocount,
                "weight_stride": engine.packed[at].stride(0), "gate_stride": gates.stride(0),
                "rows": pack.size, "R": engine.runs, "C": pack.children, "CW": pack.width,
                "C2": width, "MASKED": engine.program.masked,
            }  # fmt: skip
            if plain in plan.forms:
                rows = max(1, min(16, 1024 // width))
                Kernels(mstep_kernels).maximize[(parts(pack.size, rows), engine.runs)](**common, BR=rows)
            if set(plan.forms) != {plain}:
                rows = max(1, min(8, 512 // width))
                common["moments"] = sums.second[at] if sums.second else sums.counts[at]
                Kernels(simplex_kernels).maximize_exactly[(parts(pack.size, rows), engine.runs)](**common, BR=rows)

    def _move_inputs(self, sums: FusedSums) -> None:
        """Move the parameters of inputs: tabulated layers by a kernel, from their flow by state, others by torch."""
        from circurve.learning.cuda import mstep_kernels  # noqa: PLC0415 - Triton is imported only when used

        engine, pseudocount = self.engine, self.plan.pseudocount
        known = {table.inputs: table for table in engine.blueprint.tables if engine.launch.knows(table)}
        for number, table in known.items():
            flows = sums.by_state[number]  # (R, units, S)
            units = flows.shape[1]
            Kernels(mstep_kernels).maximize_inputs[(parts(units, 256), engine.runs)](
                parameters=engine.inputs[number], flows=flows, flow_stride=flows.stride(0), alphas=self.alphas,
                number=self.number, pseudocount=pseudocount, units=units, R=engine.runs, BU=256,
                **engine.launch.family(table),
            )  # fmt: skip
        others = [number for number in range(len(engine.inputs)) if number not in known]
        if others:
            inputs = sums.input_sums()
            alpha = effective_step(self.alphas.index_select(0, self.number)[0].view(-1, 1, 1, 1)).to(engine.dtype)
            for number in others:
                family, old = engine.program.inputs[number].family, engine.inputs[number]
                old.copy_(moved_inputs(family, old, inputs[number], pseudocount, alpha))

    def _states(self, train: Table) -> Tensor:  # (rows, V) int8
        """The states of all rows; a missing value is the last one of all tables."""
        states = train.values.to(torch.int8)
        if train.observed is not None:
            states = torch.where(train.observed, states, self.engine.blueprint.states).to(torch.int8)
        return states.contiguous()


def on_a_stream_of_its_own(device: torch.device, work: Callable[[], None]) -> None:
    """What must be done once before it can be recorded."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream(device).wait_stream(stream)


def recorded(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """What `work` launches, as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    # other threads may use the GPU meanwhile: that of a process group asks whether its work is done
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
    except RuntimeError as error:  # the end of a recording that broke off fails, too, and would hide why it did
        if error.__context__ is not None and ran_out(error.__context__):
            raise error.__context__ from None
        raise
    return graph
