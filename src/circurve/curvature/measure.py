"""`curvature` and `hessian_trace`: the exact decomposition of a model's sharpness, from the E-step's own pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.budget import Need
from circurve.curvature.depth import fixed_depths, sum_depths
from circurve.curvature.record import Curvature, PerSample, squared_ratios
from circurve.curvature.units import flat, node_refs, unit_facts, wanted_units
from circurve.data import RowSource, Stream, Table, prepare_source
from circurve.data.need import check_data
from circurve.engine import Backend, Batch, Reference, Request, Statistics, chunks
from circurve.engine.memory import chunk_size, release_large, within_memory
from circurve.engine.numerics import WEIGHT_FLOOR
from circurve.engine.reference import root_flow
from circurve.engine.reference.sums import decomposition, weak_decomposition
from circurve.errors import DataError, ParameterError, warn_user
from circurve.graph import Sum
from circurve.learning.finite import finite_runs, first_broken_node
from circurve.learning.local_curvature import RATIO_FLOOR, by_flow, clipped
from circurve.model import Model
from circurve.words import counted

__all__ = ["DOMINANT_FLOOR_SHARE", "PerSample", "curvature", "hessian_trace", "node_refs", "per_sample"]

Array = NDArray[np.float64]

AT_FLOOR = 10 * WEIGHT_FLOOR
"""An edge of at most this weight counts as one that training has given up."""

DOMINANT_FLOOR_SHARE = 0.5
"""Where such edges make up more than this share of the mean of t, it says little about the other nodes."""

SUM_KINDS = 4
"""How many numbers for each edge a record is made from: counts, ratios, their squares, and a copy while they add up."""

PASS_COPIES = 2
"""Memory of both passes and the decomposition of their layers, as a multiple of the reference backend's buffers."""

UNIT_BYTES = 4 * 3 * 8
"""T, t and F of one row and unit in float64, with copies without impossible rows and without other units."""

EVERYTHING = Request(curvature=True, mean_ratio=True, flow_weighted=True, squared_ratio=True)
"""What a record is made from."""


def curvature(  # noqa: PLR0913 - each parameter is an option
    model: Model,
    x: Any,
    *,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    per_sample: bool | Sequence[Sum | str] = False,
    memory_budget: int | None = None,
) -> Curvature:
    """How much each sum unit is used, how sharp it is and what it adds to the trace, as means over the rows of x.

    Exact, per sample first and then the mean, and independent of how the rows are cut into chunks. Costs one E-step
    and O(edges) memory.

    Parameters
    ----------
    model : Model
        What to measure.
    x : array, tensor, list, data frame or Table
        (N, V); rows of probability zero are left out, with a warning that counts them.
    weights : array, optional
        (N,): how much each row counts.
    labels : array, optional
        (N,): which output of several each row belongs to.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    per_sample : bool or sequence of Sum or str, default False
        True, or a list of sum nodes: the record also has T_n(x), t_n(x) and F_n(x) for each row, at the price of a
        second pass.
    memory_budget : int, optional
        Memory limit for sums, data and buffers, in bytes; checked before memory is allocated. None is the free memory.

    Returns
    -------
    Curvature
        One number for each sum unit and quantity; `.trace` is the mean trace of the Hessian of -log p.

    Raises
    ------
    DataError
        If the rows do not fit the model, or all have probability zero.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> model = cc.fit(cc.hclt(data.train, units=4), data.train, epochs=3, valid=False).model
    >>> record = cc.curvature(model, data.train)
    >>> first = record.rank_by("total")[0]
    >>> record.nodes[first].name, round(float(record.total[first] / record.trace), 2)
    ('root', 0.06)
    """
    check_data("curvature", memory_budget, x)
    samples = samples_of(model, x, weights, labels, missing)
    left = _need(model, samples, bool(per_sample)).left(memory_budget)
    sums, outputs = _sums(model, samples, left)
    impossible = int(sums.impossible[0])
    weight = float(sums.weight[0])
    report_impossible(impossible, weight)
    measured = sums.curvature
    assert measured is not None

    def means(layers: Sequence[Tensor] | None) -> list[Array]:
        assert layers is not None
        return [(layer[0].double() / weight).cpu().numpy() for layer in layers]

    ratio = tuple(means(measured.ratio))
    depths, chosen = fixed_depths(model.program), None if per_sample is True else per_sample or None
    if depths is None:
        depths = sum_depths(model.program, means(sums.counts), outputs.cpu().numpy() / weight)
    units = unit_facts(model.program)
    return Curvature(
        flow=flat(means(sums.unit_flow())),
        flow_squared=flat(means(measured.flow_squared)),
        local=flat(means(measured.local)),
        local_mean_ratio=squared_ratios(ratio),
        total=flat(means(measured.total)),
        depth_min=flat([d.low for d in depths]),
        depth_max=flat([d.high for d in depths]),
        depth_mean=flat([d.mean for d in depths]),
        layer=units.layer.copy(),  # a record's arrays are its own
        scope_size=units.scope_size.copy(),
        edges=units.edges.copy(),
        nodes=units.refs,
        weight=weight,
        impossible=impossible,
        mean_ratio=ratio,
        per_sample=_per_sample(model, samples, chosen, left) if per_sample else None,
        **_robust(model, sums),
    )


def _need(model: Model, samples: RowSource, by_row: bool) -> Need:
    """What a record takes in addition to buffers: sums for every edge, the data, three numbers for each row and
    unit."""
    program = model.program
    parts = {
        "sums": SUM_KINDS * model.dtype.itemsize * program.parameters,
        "data": samples.nbytes,
        "values for each row": 3 * 8 * len(samples) * program.units if by_row else 0,
    }
    one_row = _row_bytes(model) if by_row else model.backend.bytes_per_sample(True)
    return Need("curvature", parts, "use fewer rows, or call per_sample for some nodes only", one_row)


def _robust(model: Model, sums: Statistics) -> dict[str, Array]:
    """The estimates that dead edges cannot make up, and what edges at the floor add to the mean of t; (M,) each."""
    measured, weight = sums.curvature, float(sums.weight[0])
    assert measured is not None
    assert measured.squared_ratio is not None

    def flat(layers: Sequence[Tensor] | None) -> Tensor:
        assert layers is not None
        return torch.cat([torch.zeros(0), *(layer.double().flatten().cpu() for layer in layers)]).double()

    edges = list(zip(measured.squared_ratio, model.params.weights, strict=True))
    masks = [True if s.mask is None else torch.from_numpy(s.mask).to(model.device) for s in model.program.sums]
    at_floor = [(theta <= AT_FLOOR) & mask for (_, theta), mask in zip(edges, masks, strict=True)]
    parts = [
        torch.where(dead, squares.double(), 0.0).sum(-1) for dead, (squares, _) in zip(at_floor, edges, strict=True)
    ]
    found = {
        "local_flow_weighted": by_flow("flow_weighted", flat(measured.flow_local), flat(measured.flow)),
        "local_geometric": by_flow("geometric", flat(measured.flow_log_local), flat(measured.flow)),
        "local_clipped": flat([clipped(squares, theta, RATIO_FLOOR) for squares, theta in edges]) / weight,
        "floor_edges": flat([dead.sum(-1) for dead in at_floor]),
        "floor_local": flat(parts) / weight,
    }
    return {name: values.numpy() for name, values in found.items()}


def hessian_trace(
    model: Model, x: Any, *, labels: Any = None, missing: int | None = None, memory_budget: int | None = None
) -> Any:
    """Tr(x) = sum_n T_n(x), the trace of the Hessian of -log p(x) in the untied sum weights, for each row.

    Exact and independent of batch and chunk size.

    Parameters
    ----------
    model : Model
        What to measure.
    x : array, tensor, list, data frame or Table
        (N, V).
    labels : array, optional
        (N,): which output of several each row belongs to.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    memory_budget : int, optional
        Memory limit for data, result and buffers, in bytes; checked before memory is allocated.

    Returns
    -------
    array or tensor
        (N,); a torch tensor for a torch tensor. A row of probability zero gives NaN, with a warning that counts them.

    Examples
    --------
    >>> import circurve as cc
    >>> root = cc.Sum(cc.Input(0, cc.Bernoulli(), units=2))
    >>> model = cc.Model.from_parameters(cc.Circuit(root), {root: [[0.5, 0.5]]}, {root.children[0]: [[0.9], [0.1]]})
    >>> cc.hessian_trace(model, [[1]]).round(2)  # (0.9 / 0.5)^2 + (0.1 / 0.5)^2
    array([3.28])
    """
    check_data("hessian_trace", memory_budget, x)
    samples = samples_of(model, x, None, labels, missing)
    reference = model.reference
    parts, row_bytes = {"data": samples.nbytes, "result": 3 * 8 * len(samples)}, _row_bytes(model)
    left = Need("hessian_trace", parts, "use fewer rows", row_bytes).left(memory_budget)
    batches = batches_of(reference, samples, left, row_bytes)
    trace = torch.cat([_traces(reference, model, batch) for batch in batches])
    report_impossible(int(trace.isnan().sum()), float((~trace.isnan()).sum()))
    return trace.to(x.device) if isinstance(x, Tensor) else trace.cpu().numpy()


def per_sample(
    model: Model,
    x: Any,
    nodes: Sequence[Sum | str] | Sum | str | None = None,
    *,
    labels: Any = None,
    missing: int | None = None,
    memory_budget: int | None = None,
) -> PerSample:
    """The decomposition sample by sample, for all units of the chosen sum nodes.

    Parameters
    ----------
    model : Model
        What to measure.
    x : array, tensor, list, data frame or Table
        (N, V).
    nodes : Sum, str or a sequence of them, optional
        The sum nodes, or their names; None is all of them.
    labels : array, optional
        (N,): which output of several each row belongs to.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    memory_budget : int, optional
        Memory limit for data, result and buffers, in bytes; checked before memory is allocated.

    Returns
    -------
    PerSample
        `.total`, `.local` and `.flow`, each (N, units); NaN for a row of probability zero.

    Examples
    --------
    >>> import numpy as np
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> model = cc.fit(cc.hclt(data.train, units=4), data.train, epochs=3, valid=False).model
    >>> found = cc.per_sample(model, data.test, nodes="root")
    >>> found.total.shape, np.allclose(found.total, found.flow**2 * found.local)
    ((270, 1), True)
    """
    check_data("per_sample", memory_budget, x)
    samples = samples_of(model, x, None, labels, missing)
    parts = {"data": samples.nbytes, "result": 3 * 8 * len(samples) * len(wanted_units(model, nodes))}
    cure = "use fewer rows, or name some nodes only"
    return _per_sample(model, samples, nodes, Need("per_sample", parts, cure, _row_bytes(model)).left(memory_budget))


def _row_bytes(model: Model) -> int:
    """Buffers of the decomposition of one row: those of the reference backend, and three numbers for each unit."""
    passes = PASS_COPIES * model.reference.bytes_per_sample(True)
    return passes + UNIT_BYTES * model.program.units


def _per_sample(
    model: Model, samples: RowSource, nodes: Sequence[Sum | str] | Sum | str | None, memory_budget: int | None = None
) -> PerSample:
    wanted = wanted_units(model, nodes)
    if isinstance(samples, Table):
        samples = replace(samples, weights=None)  # the quantities of a row do not depend on its weight
    reference = model.reference
    found, filled = np.empty((3, len(samples), len(wanted))), 0
    for batch in batches_of(reference, samples, memory_budget, _row_bytes(model)):
        place = found[:, filled : filled + batch.size]  # (3, n, units)
        place[:] = _unit_values(reference, model, batch)[:, wanted].transpose(1, 2).cpu().numpy()
        filled += batch.size
    refs = node_refs(model)
    return PerSample(found[0], found[1], found[2], tuple(refs[i] for i in wanted))


def _sums(model: Model, samples: RowSource, memory_budget: int | None) -> tuple[Statistics, Tensor]:
    """The E-step's sums with all of the curvature, and the flow that enters at each output."""
    backend, request = model.backend, EVERYTHING
    chunk = min(len(samples), chunk_size(backend, backward=True, memory_budget=memory_budget))
    sums = within_memory(
        backend, chunk, lambda size: backend.statistics(model.params, chunks(samples, size, model.dtype), request)
    )
    entering = sums.weight if samples.labels is None else _entering(model, samples)
    release_large(backend, chunk, backward=True)
    return sums, entering


def _entering(model: Model, samples: RowSource) -> Tensor:  # (outputs,)
    """The weight of the possible samples of each output."""
    backend = model.backend
    total = torch.zeros(model.circuit.outputs, dtype=torch.float64, device=model.device)
    for batch in chunks(samples, chunk_size(backend, backward=False), model.dtype):
        root = root_flow(batch, backend.log_prob(model.params, batch))
        total += root.flow[0].sum(-1, dtype=torch.float64)
    return total


@torch.no_grad()
def _traces(reference: Reference, model: Model, batch: Batch) -> Tensor:  # (N,)
    """The sum of T_n(x) over all sum units; NaN for impossible samples."""
    down = reference.passes(model.params, batch)
    trace = torch.zeros(batch.size, dtype=torch.float64, device=model.device)
    for step in down.sums():
        trace += decomposition(step)[0][0].sum((0, 1), dtype=torch.float64)
        for entries in step.weak():
            total, _ = weak_decomposition(entries.log_ratio, entries.flow)
            trace.index_put_((entries.at[3],), total, accumulate=True)
    return torch.where(down.root.possible[0], trace, torch.nan)


@torch.no_grad()
def _unit_values(reference: Reference, model: Model, batch: Batch) -> Tensor:  # (3, M, N)
    """T, t and F of all sum units; NaN for impossible samples."""
    program, down = model.program, reference.passes(model.params, batch)
    found = torch.zeros(3, program.units, batch.size, dtype=torch.float64, device=model.device)
    for step in down.sums():
        first, last = (int(start) for start in program.unit_starts[step.number : step.number + 2])
        here = found[:, first:last].view(3, *step.layer.shape[:2], -1)  # (3, G, K, N)
        for place, values in enumerate((*decomposition(step), step.flow)):
            here[place] = values[0]
        for entries in step.weak():
            _, *at = entries.at
            for place, values in enumerate(weak_decomposition(entries.log_ratio, entries.flow)):
                here[place].index_put_(tuple(at), values)
    return torch.where(down.root.possible[0], found, torch.nan)


def samples_of(model: Model, x: Any, weights: Any = None, labels: Any = None, missing: int | None = None) -> RowSource:
    """Check data for a model and move them to its device. If a parameter of the model is not finite, the error names
    the model, not the data."""
    check_finite(model)
    row_options = {"weights": weights, "labels": labels, "missing": missing}
    table = prepare_source(x, model.circuit, "curvature", schema=model.schema, **row_options)
    if isinstance(table, Stream) and table.binding is not None and table.binding.impossible:
        raise DataError("curvature data: some rows have a value that was not seen in training; remove these rows first")
    if isinstance(table, Table) and table.impossible is not None:
        rows = int(table.impossible.any(1).sum())
        raise DataError(
            f"curvature data: {counted(rows, 'row has', 'rows have')} a value that was not seen in training; "
            "remove such rows first"
        )
    return table.to(model.device)


def check_finite(model: Model) -> None:
    """Refuse a model with a parameter that is not finite: it gives NaN for every row."""
    if not bool(finite_runs(model.params)[0]):
        node = first_broken_node(model.program, model.params.to("cpu"), 0)
        raise ParameterError(f"curvature: {node}: a parameter is not finite")


def batches_of(
    backend: Backend, samples: RowSource, memory_budget: int | None = None, row_bytes: int = 0
) -> Iterator[Batch]:
    """All rows, in chunks that fit the memory; row_bytes: for each row, where it is more than the backend's buffers."""
    size = chunk_size(backend, backward=True, memory_budget=memory_budget)
    if memory_budget is not None and row_bytes:
        size = min(size, max(1, memory_budget // row_bytes))
    return chunks(samples, size, backend.dtype)


def report_impossible(impossible: int, weight: float) -> None:
    """One warning that counts the rows left out; an error if no row is left."""
    if weight == 0:
        raise DataError("curvature data: every row has probability zero under the model")
    if impossible:
        rows = counted(impossible, "row has", "rows have")
        warn_user(f"{rows} probability zero under the model and no part in the curvature")
