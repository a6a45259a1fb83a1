"""`circurve curvature`: which parts of a model are sharp."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from circurve.cli.commands.models import ModelCurvature
from circurve.cli.failures import NotSavedError
from circurve.cli.files import check_plot, check_report, check_target, read_training, save_plot, write_csv
from circurve.cli.loading import Source, files_of, open_parts, parts_of
from circurve.cli.measures import check_one_output, possible_rows
from circurve.cli.options import Estimator, Part
from circurve.cli.parse import parse_bytes, parse_dropped
from circurve.cli.show import number, print_facts, print_heading, print_json, print_table, print_text, significant
from circurve.cli.streams import streamed, together
from circurve.curvature import Curvature, DepthProfile, Reversal, concentration, depth_profile, reversals
from circurve.curvature import curvature as measure
from circurve.curvature.measure import DOMINANT_FLOOR_SHARE
from circurve.data import Dataset, Stream, Table
from circurve.data.bind import without_unseen
from circurve.data.convert import about
from circurve.errors import CircurveError, OptionError
from circurve.graph import Input, Node
from circurve.model import Model
from circurve.model import load as load_model
from circurve.report import ReportOptions, conclusion, sentences
from circurve.report import report as write_page
from circurve.words import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["HELD", "curvature"]

HELD = (0.9, 0.99, 0.9999)
"""The shares of a quantity for which the fraction of nodes that hold it is reported."""

QUANTITIES = {"total": "T, share of the trace", "local": "t, own sharpness"}
EXTREMES = 3
"""How many reversed pairs are shown."""

IN_WORDS = {
    "mean_trace": "mean of t over rows",
    "mean_ratio": "sum of squared mean ratios",
    "flow_weighted": "mean of t over rows, weighted by flow",
    "geometric": "geometric mean of t over rows, weighted by flow",
    "clipped": "mean of t over rows, with weights of at least 1e-4 in its ratios",
}

NAMED = 2
"""Nodes with at most this many columns below them are listed with the names of these columns."""

WHOLE = ("depth_min", "depth_max", "layer", "scope_size", "edges", "floor_edges")
"""The columns that hold whole numbers."""


def curvature(typed: ModelCurvature) -> None:
    """Show which parts of a model are sharp. The conclusion comes first."""
    if typed.top < 0:
        raise OptionError(f"--top must be a whole number >= 0, not {typed.top}")
    budget = parse_bytes(typed.memory_budget)
    source = Source(
        typed.data,
        typed.data_dir,
        typed.header,
        typed.missing,
        dropped=parse_dropped(typed.types),
        trust=typed.trust,
        memory_budget=budget,
    )
    files = (typed.model, *files_of(source))
    if typed.csv is not None:
        check_target("--csv", typed.csv, files)
    check_plot(typed.plot, (*files, typed.csv))
    check_report(typed.report, (*files, typed.csv, typed.plot))
    loaded = load_model(typed.model, typed.device, trust=typed.trust, memory_budget=budget)
    check_one_output(loaded)
    if not loaded.circuit.sums:
        raise OptionError(f"{typed.model}: the model has no sum nodes, so it has no curvature")
    if typed.report is not None and streamed(source) is not None:
        raise OptionError("--report draws all rows, which must be in memory; it cannot read a stream")
    training = read_training(typed.model, typed.trust)
    opened = open_parts(loaded, source, training, typed.split, typed.unseen.value)
    dataset, parts = opened.data, {name: possible_rows(part) for name, part in opened.parts.items()}
    started = time.perf_counter()
    with about(typed.data):
        measured = reduce(add, (measure(loaded, part, memory_budget=budget) for part in parts.values()))
    curv = measured.with_local(typed.estimator.value)
    whole = Measured(
        _whole(list(parts.values())),
        _held_out(loaded, dataset, typed.split),
        _page_options(dataset, typed.split, typed.estimator),
    )
    found = conclusion(loaded, measured, whole.rows, valid=whole.valid, options=whole.options, memory_budget=budget)
    facts = {
        "command": "curvature",
        "model": str(typed.model),
        "dataset": dataset.name,
        "split": typed.split.value if len(parts_of(dataset)) > 1 else "all",
        "estimator": typed.estimator.value,
        "findings": sentences(found),
        **describe(curv, loaded, typed.top),
        "floor": describe_floor(measured),
        "seconds": round(time.perf_counter() - started, 3),
        "device": str(loaded.device),
        "csv": None if typed.csv is None else str(typed.csv),
        "plot": None if typed.plot is None else str(typed.plot),
        "report": None if typed.report is None else str(typed.report),
    }
    failure: Exception | None = None
    try:
        if typed.csv is not None:
            _write(typed.csv, measured)
        if typed.plot is not None:
            save_plot(typed.plot, lambda: _draw(curv))
        if typed.report is not None:
            write_page(loaded, whole.rows, typed.report, valid=whole.valid, options=whole.options, memory_budget=budget)
    except (CircurveError, OSError) as error:
        failure, facts = error, {**facts, "csv": None, "plot": None, "report": None}
    print_json(facts) if typed.as_json else _print(facts, loaded)
    if failure is not None:
        raise NotSavedError(str(failure)) from failure


@dataclass(frozen=True)
class Measured:
    """The rows that were measured, validation rows for comparison, and how a page about them is made."""

    rows: Table | Stream
    valid: Table | Stream | None
    options: ReportOptions


def _whole(parts: Sequence[Table | Stream]) -> Table | Stream:
    """The rows of all parts."""
    streams = [part for part in parts if isinstance(part, Stream)]
    return together(streams) if streams else reduce(add, parts)


def _page_options(dataset: Dataset, split: Part, estimator: Estimator) -> ReportOptions:
    """The name of the rows, known if the data have parts."""
    words = {Part.train: "training", Part.valid: "validation", Part.test: "test"}
    part = words.get(split, "") if len(parts_of(dataset)) > 1 else ""
    return ReportOptions(title=dataset.name, estimator=estimator.value, part=part)


def _held_out(model: Model, dataset: Dataset, split: Part) -> Table | Stream | None:
    """The validation rows of a data set whose training rows are measured."""
    if split is not Part.train or dataset.valid is None:
        return None
    valid: Table | Stream = dataset.valid
    return without_unseen(valid) if isinstance(valid, Stream) else model.align(valid, unseen="missing")


def _draw(curv: Curvature) -> Figure:
    from circurve.plots import decomposition

    return decomposition(curv)


def describe(curv: Curvature, model: Model, top: int) -> dict[str, Any]:
    """The numbers of a decomposition."""
    held = {by: concentration(curv, by) for by in ("total", "local")}
    pairs = reversals(curv, EXTREMES)
    return {
        "trace": curv.trace,
        "samples": round(curv.weight),
        "impossible": curv.impossible,
        "sum_nodes": len(curv),
        "concentration": {by: {f"{s:g}": found.fraction_for(s) for s in HELD} for by, found in held.items()},
        "gini": {by: found.gini for by, found in held.items()},
        "reversals": {name: getattr(pairs, name) for name in ("pairs", "disagree", "share", "tau")},
        "extreme_reversals": [_pair(pair) for pair in pairs.extreme],
        "depth_profile": _partitions(depth_profile(curv, "total"), depth_profile(curv, "local")),
        "top": {by: [_node(curv, model, int(i)) for i in curv.rank_by(by)[:top]] for by in ("local", "total")},
    }


def describe_floor(curv: Curvature) -> dict[str, Any]:
    """How many edges have a weight at the floor of training, and what share of the mean trace t they make up."""
    assert curv.floor_edges is not None
    return {
        "edges": int(curv.floor_edges.sum()),
        "of_edges": int(curv.edges.sum()),
        "share_of_local": curv.floor_share,
        "largest_local": float(curv.local.max()),
    }


def _node(curv: Curvature, model: Model, i: int) -> dict[str, Any]:
    depth, few = curv.depth_min[i], curv.scope_size[i] <= NAMED
    return {
        "name": curv.nodes[i].name,
        "unit": curv.nodes[i].unit,
        "columns": _columns_below(model, curv.nodes[i].node) if few else None,
        "scope_size": int(curv.scope_size[i]),
        "layer": int(curv.layer[i]),
        "depth": int(depth) if np.isfinite(depth) else None,
        **{name: float(getattr(curv, name)[i]) for name in ("flow_squared", "local", "total")},
    }


def _columns_below(model: Model, node: int) -> list[str]:
    """The names of the columns below a node, or their numbers if they have no names; for small scopes."""
    waiting: list[Node] = [model.circuit.nodes[node]]
    found: set[int] = set()
    seen: set[Node] = set()
    while waiting:
        here = waiting.pop()
        if here not in seen:
            seen.add(here)
            waiting += here.children
            found |= {here.variable} if isinstance(here, Input) else set()
    return [model.schema.labels[v] for v in sorted(found)]


def _pair(pair: Reversal) -> dict[str, Any]:
    return {
        "used": {"name": pair.i.name, "unit": pair.i.unit},
        "sharper": {"name": pair.j.name, "unit": pair.j.unit},
        "usage_ratio": pair.usage_ratio,
        "local_ratio": pair.local_ratio,
    }


def _partitions(total: DepthProfile, local: DepthProfile) -> list[dict[str, Any]]:
    """One record for each partition of the depths; both profiles have the same ones."""
    return [
        {
            "depth_low": float(total.depth_low[i]),
            "depth_high": float(total.depth_high[i]),
            "units": int(total.units[i]),
            "mean_total": float(total.means[i]),
            "share_total": float(total.share[i]),
            "mean_local": float(local.means[i]),
            "share_local": float(local.share[i]),
        }
        for i in range(len(total.units))
    ]


def _write(path: Path, curv: Curvature) -> None:
    """One row for each sum unit, in the order of the record."""
    columns = [getattr(curv, name).tolist() for name in curv.columns]
    for name, column in zip(curv.columns, columns, strict=True):
        if name in WHOLE:
            column[:] = [int(value) if np.isfinite(value) else value for value in column]
    rows = zip(curv.nodes, zip(*columns, strict=True), strict=True)
    write_csv(
        path, ("node", "name", "unit", *curv.columns), ((ref.node, ref.name, ref.unit, *values) for ref, values in rows)
    )


def _print(report: dict[str, Any], model: Model) -> None:
    print_heading(f"{report['dataset']} ({report['split']}), model {report['model']}")
    print_text(*report["findings"])
    left_out = f", {report['impossible']:,} of probability zero left out" if report["impossible"] else ""
    layers = len(model.program.sums)
    over, deep = counted(report["samples"], "row"), counted(layers, "layer")
    print_facts(
        {
            "trace (sharpness)": f"{significant(report['trace'], 6)}, mean over {over}{left_out}",
            "sum nodes": f"{report['sum_nodes']:,} in {deep}; T = F^2 t in each row, the tables show means",
            "t": IN_WORDS[report["estimator"]],
            "at the floor": _floor_text(report["floor"]),
            "reversals": "{disagree:,} of {pairs:,} pairs ({share:.2%}) have a different order by T and by t; "
            "Kendall's tau {tau:.3f}".format(**report["reversals"]),
            "table": report["csv"],
            "picture": report["plot"],
            "page": report["report"],
        }
    )
    _print_extremes(report["extreme_reversals"])
    _print_concentration(report)
    _print_profile(report["depth_profile"])
    for by, title in (("total", "nodes with the largest contribution T"), ("local", "sharpest nodes, by t")):
        _print_top(report["top"][by], title, report["trace"])


def _floor_text(floor: dict[str, Any]) -> str | None:
    """One sentence if edges at the floor matter; None if there are none."""
    if not floor["edges"]:
        return None
    share, whole = floor["share_of_local"], f"{floor['edges']:,} of {floor['of_edges']:,} edges have weights near zero"
    if share <= DOMINANT_FLOOR_SHARE:
        return f"{whole}; they make up {share:.1%} of the mean trace of t"
    return (
        f"{whole} and make up {share:.2%} of the mean trace of t (largest {significant(floor['largest_local'], 3)}): "
        "do not rely on mean_trace and mean_ratio here; train with --pseudocount 0.01, or use another --estimator"
    )


def _print_extremes(pairs: list[dict[str, Any]]) -> None:
    rows = [
        (_label(p["used"]), significant(p["usage_ratio"], 3), _label(p["sharper"]), significant(p["local_ratio"], 3))
        for p in pairs
    ]
    if rows:
        heads = ("larger T", "times more used", "larger t", "times sharper")
        print_table(heads, rows, "\nmost extreme reversals", texts=["larger t"])


def _print_concentration(report: dict[str, Any]) -> None:
    rows = [
        (text, *(f"{share:.2%}" for share in report["concentration"][by].values()), number(report["gini"][by], 3))
        for by, text in QUANTITIES.items()
    ]
    heads = ("", *(f"{100 * share:g} %" for share in HELD), "Gini")
    print_table(heads, rows, "concentration: how few nodes hold 90, 99 and 99.99 % of the total")


def _print_profile(partitions: list[dict[str, Any]]) -> None:
    rows = [
        (
            _range(part["depth_low"], part["depth_high"]),
            f"{part['units']:,}",
            significant(part["mean_total"], 3),
            f"{part['share_total']:.2%}",
            significant(part["mean_local"], 3),
            f"{part['share_local']:.2%}",
        )
        for part in partitions
    ]
    print_table(("sum depth", "nodes", "mean T", "of T", "mean t", "of t"), rows, "depth profile, from the root down")


def _print_top(nodes: list[dict[str, Any]], title: str, trace: float) -> None:
    rows = [
        (
            _label(node),
            _below(node),
            f"{node['layer']}",
            "-" if node["depth"] is None else f"{node['depth']}",
            *(significant(node[key]) for key in ("flow_squared", "local", "total")),
            f"{node['total'] / trace:.2%}" if trace > 0 else "-",
        )
        for node in nodes
    ]
    if rows:
        heads = ("node", "columns below", "layer", "depth", "F^2", "t", "T", "of trace")
        print_table(heads, rows, title, texts=["columns below"])


def _below(node: dict[str, Any]) -> str:
    """The columns below a node: their names, or their number if there are many."""
    return counted(node["scope_size"], "column") if node["columns"] is None else ", ".join(node["columns"])


def _label(node: dict[str, Any]) -> str:
    return f"{node['name']}[{node['unit']}]"


def _range(low: float, high: float) -> str:
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
