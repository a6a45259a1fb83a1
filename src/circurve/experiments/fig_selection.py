"""Figure 5: the penalty on a part of the nodes only, chosen by T^ or by t^, with one strength and as many nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from circurve.experiments.options import ReproduceOptions
from circurve.experiments.records import is_failed
from circurve.experiments.spec import Setting, Study, make_study
from circurve.experiments.summary import Chosen, choose
from circurve.learning import Gated, Global, Vanilla
from circurve.learning.gates import top_fraction
from circurve.plots import node_selection

__all__ = ["FRACTIONS", "MU", "draw_selection", "selection_data", "selection_study"]

FRACTIONS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
"""The shares of the nodes that are penalised; 1 is the global method."""

QUICK_FRACTIONS = (1.0, 0.5, 0.1, 0.01)
MU = 0.1
"""The paper does not print its strength; this is the middle of its grid."""


def selection_study(options: ReproduceOptions) -> Study:
    """Without a penalty, with it on all nodes, and with it on the top fractions by T^ and by t^; all else the same.

    The strength is the first that the user names, or `MU`.
    """
    mu = options.mu[0] if options.mu else MU
    parts = [
        Setting(_label(by, q), Gated(mu, gate=top_fraction(q, by=by)))
        for q in _fractions(options)
        if q < 1
        for by in ("total", "local")
    ]
    return make_study("fig-5", options, [Setting("vanilla", Vanilla()), Setting("all", Global(mu)), *parts])


def selection_data(
    options: ReproduceOptions, records: list[dict[str, Any]], progress: Callable[[str], None]
) -> dict[str, Any]:
    """For each data set, ranking and seed the change of test log-likelihood against the run without a penalty."""
    fractions = _fractions(options)
    panels: dict[str, dict[str, list[list[float | None]]]] = {}
    strength = None
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        base = choose(records, dataset, 1.0, "vanilla")
        broken = {record["seed"] for record in records if record["dataset"] == dataset and is_failed(record)}
        seeds = [seed for seed in (base.seeds if base is not None else ()) if seed not in broken]
        if base is None or not seeds:
            continue
        panels[dataset] = {}
        for by in ("total", "local"):
            runs = [choose(records, dataset, 1.0, "all" if q == 1 else _label(by, q)) for q in fractions]
            strength = next((run.method["mu"] for run in runs if run is not None), strength)
            panels[dataset][by] = [[_change(run, base, seed) for run in runs] for seed in seeds]
    notes = [f"The strength is mu = {strength:g} throughout."] if strength is not None else []
    return {
        "fractions": list(fractions),
        "mu": strength,
        "panels": panels,
        "notes": [*notes, *_counts(panels, fractions)],
    }


def draw_selection(data: dict[str, Any]) -> Figure:
    """One panel for each data set."""
    return node_selection(data["panels"], data["fractions"])


def _fractions(options: ReproduceOptions) -> tuple[float, ...]:
    return QUICK_FRACTIONS if options.quick else FRACTIONS


def _label(by: str, q: float) -> str:
    return f"{by} {q:g}"


def _change(run: Chosen | None, base: Chosen, seed: int) -> float | None:
    """None where one of the two is not known."""
    if run is None or seed not in run.seeds:
        return None
    ours, theirs = (item.values("test_ll")[item.seeds.index(seed)] for item in (run, base))
    return round(ours - theirs, 6) if math.isfinite(ours - theirs) else None


def _counts(panels: dict[str, Any], fractions: tuple[float, ...]) -> list[str]:
    """How the two rankings compare, fraction by fraction, over data sets."""
    lines = []
    for i, q in enumerate(fractions):
        if q == 1:
            continue
        pairs = [(_mean(panel["total"], i), _mean(panel["local"], i)) for panel in panels.values()]
        known = [(total, local) for total, local in pairs if total is not None and local is not None]
        better = sum(local > total for total, local in known)
        lines.append(f"Top {q:.0%}: by t^ better than by T^ on {better} of {len(known)} data sets.")
    return lines


def _mean(runs: list[list[float | None]], place: int) -> float | None:
    values = [run[place] for run in runs]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
