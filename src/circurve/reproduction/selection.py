"""Figure 5: the penalty on all nodes, and on the top fractions of them by T^ and by t^."""

from __future__ import annotations

import math
from collections.abc import Callable

from circurve.learning import Gated, Global, Vanilla
from circurve.learning.gates import top_fraction
from circurve.reproduction.records import Record, RunRecord, is_failed
from circurve.reproduction.spec import ReproduceOptions, Setting, Study, make_study, protocol_for
from circurve.reproduction.summary import Chosen, choose_rows

__all__ = ["FRACTIONS", "MU", "QUICK_FRACTIONS", "label_of", "selection_data", "selection_study"]

Progress = Callable[[str], None]

FRACTIONS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
"""The shares of the nodes that are penalised in figure 5; 1 is the global method."""

QUICK_FRACTIONS = (1.0, 0.5, 0.1, 0.01)
MU = 0.1
"""The paper does not print the strength of figure 5; this is the middle of its grid."""


def selection_study(options: ReproduceOptions) -> Study:
    """Without a penalty, with it on all nodes, and with it on the top fractions by T^ and by t^; all else the same.

    The strength is the first that the user names, or `MU`.
    """
    mu = options.mu[0] if options.mu else MU
    pseudocount = protocol_for(options).penalty_pseudocount
    parts = [
        Setting(label_of(by, q), Gated(mu, gate=top_fraction(q, by=by), pseudocount=pseudocount))
        for q in _fractions(options)
        if q < 1
        for by in ("total", "local")
    ]
    whole = [Setting("vanilla", Vanilla(pseudocount)), Setting("all", Global(mu, pseudocount))]
    return make_study("fig-5", options, [*whole, *parts])


def selection_data(options: ReproduceOptions, records: list[RunRecord], progress: Progress) -> Record:
    """For each data set, ranking and seed the change of test log-likelihood against the run without a penalty."""
    fractions, rows = _fractions(options), choose_rows(records)
    panels: dict[str, dict[str, list[list[float | None]]]] = {}
    strength = None
    for dataset, row in rows.items():
        broken = {record["seed"] for record in records if record["dataset"] == dataset and is_failed(record)}
        base = row.get("vanilla")
        seeds = [seed for seed in (base.seeds if base is not None else ()) if seed not in broken]
        if base is None or not seeds:
            continue
        panels[dataset] = {}
        for by in ("total", "local"):
            runs = [row.get(label_of(by, q)) for q in fractions]
            strength = next((run.method["mu"] for run in runs if run is not None), strength)
            panels[dataset][by] = [[_change(run, base, seed) for run in runs] for seed in seeds]
    notes = [f"The strength is mu = {strength:g} throughout."] if strength is not None else []
    notes += [_count_note(panels, place, q) for place, q in enumerate(fractions) if q < 1]
    return {"fractions": list(fractions), "mu": strength, "panels": panels, "notes": notes}


def _fractions(options: ReproduceOptions) -> tuple[float, ...]:
    return QUICK_FRACTIONS if options.quick else FRACTIONS


def label_of(by: str, q: float) -> str:
    """The label of the runs with the penalty on the top fraction q, by "total" (T^) or "local" (t^)."""
    return "all" if q == 1 else f"{by} {q:g}"


def _change(run: Chosen | None, base: Chosen, seed: int) -> float | None:
    """The change of the test score of one seed; None if one of the two scores is not known."""
    if run is None or seed not in run.seeds:
        return None
    ours, theirs = (item.values("test_ll")[item.seeds.index(seed)] for item in (run, base))
    return round(ours - theirs, 6) if math.isfinite(ours - theirs) else None


def _count_note(panels: Record, place: int, q: float) -> str:
    """How the two rankings compare at one fraction, over the data sets where every run is known."""
    better = known = 0
    for panel in panels.values():
        total, local = ([run[place] for run in panel[by]] for by in ("total", "local"))
        if None not in total and None not in local:
            known += 1
            better += sum(local) / len(local) > sum(total) / len(total)
    return f"Top {q:.0%}: by t^ better than by T^ on {better} of {known} data sets."
