"""`curvature` and `hessian_trace`: the exact decomposition of a model's sharpness, from the E-step's own pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.curvature.depth import fixed_depths, sum_depths
from circurve.curvature.record import Curvature, NodeRef, PerSample, squared_ratios
from circurve.data import Table, prepare
from circurve.engine import (
    AnyEngine,
    Batch,
    Engine,
    Params,
    Program,
    Request,
    Statistics,
    bind_engine,
    chunks,
    observe,
    statistics,
)
from circurve.engine.memory import chunk_size, within_memory
from circurve.engine.reference import BySample, SumPass
from circurve.engine.sums import Sums
from circurve.engine.underflow import Repaired
from circurve.errors import DataError, OptionError, warn_user
from circurve.graph import Sum
from circurve.inputs import LOG_ZERO
from circurve.model import Model

__all__ = ["PerSample", "curvature", "hessian_trace", "node_refs", "per_sample"]

Array = NDArray[np.float64]


def curvature(
    model: Model,
    x: Any,
    *,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    per_sample: bool | Sequence[Sum | str] = False,
) -> Curvature:
    """How much each sum unit is used, how sharp it is and what it adds to the trace, as means over the rows of x.

    Exact, per sample first and then the mean, and independent of how the rows are cut into chunks. Costs one E-step
    and O(edges) memory. `weights` (N,) weigh the rows; `labels` (N,) say which output of several each row belongs to.
    Rows of probability zero are left out, with a warning that counts them. With `per_sample=True`, or a list of sum
    nodes or their names, the record also has T_n(x), t_n(x) and F_n(x) for each row, at the price of a second pass.
    """
    samples = samples_of(model, x, weights, labels, missing)
    sums, outputs = _sums(model, samples)
    impossible = int(sums.impossible[0])
    weight = float(sums.weight[0])
    report_impossible(impossible, weight)
    measured = sums.curvature
    assert measured is not None

    def means(layers: Sequence[Tensor] | None) -> list[Array]:
        assert layers is not None
        return [(layer[0].double() / weight).cpu().numpy() for layer in layers]

    ratio = tuple(means(measured.ratio))
    depths = fixed_depths(model.program)
    if depths is None:
        depths = sum_depths(model.program, means(sums.counts), outputs.cpu().numpy() / weight)
    units = _units(model.program)
    return Curvature(
        flow=_flat(means(sums.unit_flow())),
        flow_squared=_flat(means(measured.flow_squared)),
        local=_flat(means(measured.local)),
        local_mean_ratio=squared_ratios(ratio),
        total=_flat(means(measured.total)),
        depth_min=_flat([d.low for d in depths]),
        depth_max=_flat([d.high for d in depths]),
        depth_mean=_flat([d.mean for d in depths]),
        layer=units.layer.copy(),  # a record's arrays are its own
        scope_size=units.scope_size.copy(),
        edges=units.edges.copy(),
        nodes=units.refs,
        weight=weight,
        impossible=impossible,
        mean_ratio=ratio,
        per_sample=_per_sample(model, samples, None if per_sample is True else per_sample) if per_sample else None,
    )


def node_refs(model: Model) -> tuple[NodeRef, ...]:
    """The sum units in the order of all curvature vectors: layer after layer, node after node, unit after unit."""
    return _units(model.program).refs


@dataclass(frozen=True)
class _ProgramUnits:
    """What is known of the sum units without parameters or data."""

    refs: tuple[NodeRef, ...]
    layer: Array
    scope_size: Array
    edges: Array


@lru_cache(maxsize=8)
def _units(program: Program) -> _ProgramUnits:
    """The same for all models of a program: a circuit can have 100,000 units, and a fleet many models."""
    circuit = program.circuit
    position = {node: i for i, node in enumerate(circuit.nodes)}
    nodes = [(number, node) for number, layer in enumerate(program.sums) for node in layer.nodes]
    counts = [node.units for _, node in nodes]
    return _ProgramUnits(
        refs=tuple(
            NodeRef(position[node], label(node, position[node]), unit)
            for _, node in nodes
            for unit in range(node.units)
        ),
        layer=np.repeat(np.array([number for number, _ in nodes], dtype=np.float64), counts),
        scope_size=np.repeat(
            np.array([circuit.scope_sizes[position[node]] for _, node in nodes], dtype=np.float64), counts
        ),
        edges=_flat([_edges(node) for _, node in nodes]),
    )


def label(node: Sum, position: int) -> str:
    """A node's own name, or one made from its position in `circuit.nodes`."""
    return node.name or f"Sum #{position}"


def hessian_trace(model: Model, x: Any, *, labels: Any = None, missing: int | None = None) -> Any:
    """Tr(x) = sum_n T_n(x), the trace of the Hessian of -log p(x) in the untied sum weights, for each row: (N,).

    Exact and independent of batch and chunk size. A row of probability zero gives NaN, with a warning that counts them.
    The result is a torch tensor for a torch tensor, else a numpy array.
    """
    samples = samples_of(model, x, None, labels, missing)
    engine = model.engine()
    parts = []
    for batch in batches_of(engine, samples):
        observer = _Trace(engine)
        observe(engine, model.params, batch, observer)
        parts.append(torch.where(observer.possible[0], observer.trace[0], torch.nan))
    trace = torch.cat(parts)
    report_impossible(int(trace.isnan().sum()), float((~trace.isnan()).sum()))
    return trace.to(x.device) if isinstance(x, Tensor) else trace.cpu().numpy()


def per_sample(
    model: Model,
    x: Any,
    nodes: Sequence[Sum | str] | Sum | str | None = None,
    *,
    labels: Any = None,
    missing: int | None = None,
) -> PerSample:
    """The decomposition sample by sample, for all units of the chosen sum nodes (by node or name; all by default)."""
    return _per_sample(model, samples_of(model, x, None, labels, missing), nodes)


def _per_sample(model: Model, samples: Table, nodes: Sequence[Sum | str] | Sum | str | None) -> PerSample:
    wanted = _wanted(model, nodes)
    samples = replace(samples, weights=None)  # a row's own quantities do not depend on its weight
    engine = model.engine()
    parts = []
    for batch in batches_of(engine, samples):
        observer = _Units(engine, wanted)
        observe(engine, model.params, batch, observer)
        parts.append(observer.stacked())
    total, local, flow = (torch.cat([part[i] for part in parts], dim=1).T.cpu().numpy() for i in range(3))
    refs = node_refs(model)
    return PerSample(total, local, flow, tuple(refs[i] for i in wanted))


def _sums(model: Model, samples: Table) -> tuple[Statistics, Tensor]:
    """The E-step's sums with all of the curvature, and the flow that enters at each output."""
    request = Request(curvature=True, mean_ratio=True)
    if model.circuit.outputs == 1:
        fastest = bind_engine(model.program, model.params)
        chunk = min(len(samples), chunk_size(fastest, backward=True))
        sums = within_memory(
            fastest, chunk, lambda size: statistics(fastest, model.params, chunks(samples, size, model.dtype), request)
        )
        return sums, sums.weight
    engine = model.engine(tables=True)
    observer = _Sums(engine, model.params, request)
    for batch in batches_of(engine, samples):
        observe(engine, model.params, batch, observer)
    return observer.result(), observer.outputs


class _Sums(Sums):
    """The E-step's sums, and the flow that enters at each output."""

    def __init__(self, engine: Engine, params: Params, request: Request) -> None:
        super().__init__(engine, params, request)
        self.outputs = torch.zeros(len(engine.program.roots), dtype=torch.float64, device=engine.device)

    def on_start(self, batch: Batch, log_value: Tensor, weight: Tensor, possible: Tensor) -> None:
        super().on_start(batch, log_value, weight, possible)
        chosen = torch.zeros_like(weight[0], dtype=torch.int64) if batch.labels is None else batch.labels[0]
        self.outputs.index_add_(0, chosen, weight[0].double())


class _Trace(BySample):
    """Adds up T_n(x) over all sum units."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.trace = torch.zeros(engine.runs, engine.samples, dtype=torch.float64, device=engine.device)

    def on_start(self, batch: Batch, log_value: Tensor, weight: Tensor, possible: Tensor) -> None:
        self.possible = possible
        self.trace = torch.zeros(log_value.shape, dtype=torch.float64, device=self.engine.device)

    def on_sum(self, step: SumPass) -> None:
        total, _ = decomposition(self.engine, step)
        self.trace += total.sum((1, 2), dtype=torch.float64)

    def on_repaired(self, number: int, entries: Repaired) -> None:
        total, _ = repaired_decomposition(self.engine, number, entries)
        self.trace.index_put_((entries.run, entries.sample), total, accumulate=True)

    def on_input(self, number: int, flow: Tensor) -> None:
        """Inputs are not part of the trace."""


class _Units(BySample):
    """Keeps T, t and F of chosen units."""

    def __init__(self, engine: Engine, wanted: Sequence[int]) -> None:
        self.engine, self.wanted = engine, torch.tensor(wanted, dtype=torch.int64, device=engine.device)
        sizes = [s.shape[0] * s.shape[1] for s in engine.program.sums]
        self.starts = np.cumsum([0, *sizes])

    def on_start(self, batch: Batch, log_value: Tensor, weight: Tensor, possible: Tensor) -> None:
        self.possible = possible[0]
        shape = (3, int(self.starts[-1]), log_value.shape[-1])
        self.values = torch.zeros(shape, dtype=torch.float64, device=self.engine.device)

    def on_sum(self, step: SumPass) -> None:
        flow = step.flow.clone()
        total, local = decomposition(self.engine, step)
        part = slice(int(self.starts[step.number]), int(self.starts[step.number + 1]))
        for place, values in enumerate((total, local, flow)):
            self.values[place, part] += values[0].flatten(0, 1)

    def on_repaired(self, number: int, entries: Repaired) -> None:
        total, local = repaired_decomposition(self.engine, number, entries)
        units = self.engine.program.sums[number].units
        rows = int(self.starts[number]) + entries.group * units + entries.unit
        self.values[0].index_put_((rows, entries.sample), total, accumulate=True)
        self.values[1].index_put_((rows, entries.sample), local, accumulate=True)

    def on_input(self, number: int, flow: Tensor) -> None:
        """Inputs are not part of the trace."""

    def stacked(self) -> Tensor:  # (3, units, N)
        """What was asked for; NaN for impossible samples."""
        return torch.where(self.possible, self.values[:, self.wanted], torch.nan)


def decomposition(engine: Engine, step: SumPass) -> tuple[Tensor, Tensor]:
    """T = A^2 q and t = q / S^2 for each unit and sample, (R, G, K, N), q = sum of E^2 over the unit's own edges."""
    mask = engine.masks[step.number]
    squares = step.elements.square()
    norm = squares.sum(-2, keepdim=True) if mask is None else torch.matmul(mask, squares)
    local = torch.where(step.log_largest > LOG_ZERO / 2, norm / step.scaled.square(), 0.0)
    return step.ratio.square() * norm, local


def repaired_decomposition(engine: Engine, number: int, entries: Repaired) -> tuple[Tensor, Tensor]:
    """T and t of entries computed in logs, (P,), float64."""
    log_ratio = repaired_log_ratio(engine, number, entries)
    log_flow = entries.flow.double().log()[:, None]  # in logs a flow of zero never meets an infinite ratio
    return (2 * (log_ratio + log_flow)).exp().sum(-1), (2 * log_ratio).exp().sum(-1)


def repaired_log_ratio(engine: Engine, number: int, entries: Repaired) -> Tensor:  # (P, C) float64
    """log rho of entries computed in logs; minus infinity where the mask has no edge."""
    log_ratio = entries.log_ratio.double()
    mask = engine.masks[number]
    return log_ratio if mask is None else log_ratio.masked_fill(mask[entries.group, entries.unit] == 0, -torch.inf)


def samples_of(model: Model, x: Any, weights: Any = None, labels: Any = None, missing: int | None = None) -> Table:
    """Check data for a model and move them to its device."""
    table = prepare(x, model.circuit, "curvature", weights=weights, labels=labels, missing=missing)
    return table.to(model.device)


def batches_of(engine: AnyEngine, samples: Table) -> Iterator[Batch]:
    """All rows, in chunks that fit the memory."""
    return chunks(samples, chunk_size(engine, backward=True), engine.dtype)


def report_impossible(impossible: int, weight: float) -> None:
    """One warning that counts the rows left out; an error if no row is left."""
    if weight == 0:
        raise DataError("curvature data: every row has probability zero under the model")
    if impossible:
        warn_user(f"{impossible} rows have probability zero under the model and are left out of its curvature")


def _wanted(model: Model, nodes: Sequence[Sum | str] | Sum | str | None) -> list[int]:
    """The unit numbers of the chosen nodes."""
    refs = node_refs(model)
    if nodes is None:
        return list(range(len(refs)))
    position = {node: i for i, node in enumerate(model.circuit.nodes)}
    chosen = []
    for node in (nodes,) if isinstance(nodes, Sum | str) else nodes:
        found = [
            i
            for i, ref in enumerate(refs)
            if (ref.name == node if isinstance(node, str) else ref.node == position.get(node))
        ]
        if not found:
            raise OptionError(f"nodes: no Sum {node!r} in this circuit")
        chosen += found
    return chosen


def _flat(layers: Sequence[Array]) -> Array:
    return np.concatenate([np.zeros(0), *(layer.reshape(-1) for layer in layers)])


def _edges(node: Sum) -> Array:
    """How many children each unit of a sum mixes."""
    return np.full(node.units, node.child_units, float) if node.mask is None else node.mask.sum(1).astype(float)
