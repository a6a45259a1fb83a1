"""Figure 6: one trained circuit, drawn by use, by local curvature and by contribution, and all three together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from circurve.curvature import Curvature, curvature
from circurve.data import Dataset
from circurve.experiments.plan import circuit_for, digest, load_study_data
from circurve.experiments.records import Record, significant
from circurve.experiments.spec import DEFAULT_DATASETS, Protocol, ReproduceOptions, chosen_datasets, protocol_for
from circurve.graph import Circuit
from circurve.learning import FitResult, Vanilla, fit
from circurve.plots import Mark, circuit_panels, find_regimes
from circurve.plots.given import sum_tree

__all__ = ["decomposition_data", "describe_units", "draw_decomposition"]

Array = NDArray[np.float64]
QUANTITIES = ("flow_squared", "local", "total")
PREFERRED = "nltcs"
"""The paper does not say which circuit it draws; this one is small enough to see every unit."""

MAX_UNITS = 20_000
"""Larger circuits are drawn with the mean of each node in the trees, and so many of their units in the plane."""


def decomposition_data(options: ReproduceOptions, records: list[Record], progress: Callable[[str], None]) -> Record:
    """Train one model without a penalty, on the first data set, and measure every sum unit on its training rows."""
    protocol = protocol_for(options)
    name = chosen_datasets(options, (PREFERRED, *DEFAULT_DATASETS))[0]
    data = load_study_data(name, options.data_dir)
    progress(f"{data.name}: training")
    result = _train(data, protocol, options.device)
    progress(f"{data.name}: measuring curvature")
    curv = curvature(result.model, data.train)
    described = describe_units(result.model.circuit, curv)
    notes = [
        protocol.in_words(),
        f"Data set {data.name} (SHA-256 {digest(data)[:12]}), seed {protocol.seeds[0]}, vanilla; "
        f"test log-likelihood {result.test_ll:.3f}, trace {curv.trace:,.4g}.",
    ]
    return {"dataset": data.name, **described, "notes": [*notes, *_notes(described)]}


def _train(data: Dataset, protocol: Protocol, device: str) -> FitResult:
    """Plain EM by the protocol, with its first seed."""
    train = data.train
    result = fit(
        circuit_for(data, train, protocol.units, protocol.leaves),
        train,
        valid=data.valid,
        test=data.test,
        method=Vanilla(protocol.penalty_pseudocount),
        init=protocol.inits[0],
        seed=protocol.seeds[0],
        epochs=protocol.epochs_for(len(train)),
        batch_size=protocol.batch_size,
        step_size=protocol.step,
        select=protocol.choose_epoch,
        device=device,
    )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result


def describe_units(circuit: Circuit, curv: Curvature, most: int = MAX_UNITS) -> Record:
    """Everything that is drawn: the tree of sum nodes, the means of each, the units, and the three that are marked."""
    sums, parents = sum_tree(circuit)
    position = {node: i for i, node in enumerate(sums)}
    of_node = np.array([position[circuit.nodes[ref.node]] for ref in curv.nodes], dtype=np.int64)  # type: ignore[index]
    counts = np.bincount(of_node, minlength=len(sums))
    known = np.flatnonzero((curv.flow_squared > 0) & (curv.local > 0) & np.isfinite(curv.total))
    regimes = {letter: int(known[i]) for letter, i in find_regimes(curv.flow_squared[known], curv.local[known]).items()}
    shown = _some_units(curv, list(regimes.values()), most)
    return {
        "parents": parents,
        "units": {
            "node": of_node[shown].tolist(),
            "unit": [curv.nodes[i].unit for i in shown.tolist()],
            **{name: _numbers(getattr(curv, name)[shown]) for name in QUANTITIES},
        },
        "means": {
            name: _numbers(np.bincount(of_node, weights=getattr(curv, name), minlength=len(sums)) / counts)
            for name in QUANTITIES
        },
        "all_units": len(curv),
        "marks": {letter: shown.tolist().index(unit) for letter, unit in regimes.items()},
    }


def draw_decomposition(data: Record) -> Figure:
    """Three trees and the plane of use and local curvature."""
    units, marks = data["units"], data["marks"]
    whole = len(units["node"]) == data["all_units"]
    first = list(marks.values())
    others = np.setdiff1d(np.arange(len(units["node"])), first)
    order = [*first, *others.tolist()]
    plane = {name: np.asarray(units[name], dtype=np.float64)[order] for name in QUANTITIES}
    trees = {name: _by_node(data, name) if whole else [[mean] for mean in data["means"][name]] for name in QUANTITIES}
    letters = [Mark(m, units["node"][i], units["unit"][i] if whole else 0) for m, i in marks.items()]
    return circuit_panels(data["parents"], trees, plane, letters)


def _by_node(data: Record, name: str) -> list[Array]:
    """The values of the units of each node, by unit number."""
    units = data["units"]
    node, unit = np.array(units["node"]), np.array(units["unit"])
    order = np.lexsort((unit, node))
    values = np.asarray(units[name], dtype=np.float64)[order]
    return np.split(values, np.cumsum(np.bincount(node, minlength=len(data["parents"])))[:-1])


def _some_units(curv: Curvature, wanted: list[int], most: int) -> NDArray[np.int64]:
    """All units; of too many, those that lead in one quantity and others at even steps of the ranking by T^."""
    if len(curv) <= most:
        return np.arange(len(curv))
    leaders = [curv.rank_by(by)[: most // 10] for by in ("total", "local", "flow")]
    even = curv.rank_by("total")[np.linspace(0, len(curv) - 1, most // 2).astype(np.int64)]
    return np.unique(np.concatenate([wanted, *leaders, even]).astype(np.int64))


def _numbers(values: Array) -> list[float | None]:
    return [significant(value, digits=5) for value in values.tolist()]


def _notes(described: Record) -> list[str]:
    units = described["units"]
    parts = [
        f"{letter} F^2 {units['flow_squared'][i]:.3g}, t^ {units['local'][i]:.3g}, T^ {units['total'][i]:.3g}"
        for letter, i in described["marks"].items()
    ]
    shown, there = len(units["node"]), described["all_units"]
    lines = [f"Marked units: {'; '.join(parts)}."] if parts else []
    if shown < there:
        lines.append(f"The trees show means over each node's units; the plane shows {shown:,} of {there:,} units.")
    return lines
