"""Figures 1 to 5, which show trained runs: from the records of a study to all that is drawn, as plain values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from circurve.experiments.protocols import ReproduceOptions, protocol_for
from circurve.experiments.records import Record, is_failed
from circurve.experiments.spec import Setting, Study, global_settings, make_study, vanilla_settings
from circurve.experiments.summary import Chosen, choose, choose_rows, upper_half
from circurve.learning import Gated, Global, Vanilla
from circurve.learning.gates import top_fraction

__all__ = ["anatomy_study", "concentration_data", "depth_data", "selection_data", "selection_study", "training_data"]

Progress = Callable[[str], None]
SYMBOLS = {"total": "T^", "local": "t^"}

FRACTIONS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
"""The shares of the nodes that are penalised in figure 5; 1 is the global method."""

QUICK_FRACTIONS = (1.0, 0.5, 0.1, 0.01)
MU = 0.1
"""The paper does not print the strength of figure 5; this is the middle of its grid."""


def training_study(options: ReproduceOptions) -> Study:
    """The runs of the main table but for the gated ones."""
    protocol = protocol_for(options)
    return make_study("fig-1", options, [*vanilla_settings(protocol), *global_settings(protocol)])


def training_data(options: ReproduceOptions, records: list[Record], progress: Progress) -> Record:
    """For each data set and method the histories of all seeds, of the strength that validation chooses."""
    rows = choose_rows(records)
    panels: Record = {}
    notes = []
    for dataset in _datasets(records):
        row = rows.get(dataset, {})
        found = {label: row[label] for label in ("vanilla", "global") if label in row}
        panels[dataset] = {
            label: {split: [run["history"][f"{split}_ll"] for run in chosen.records] for split in ("train", "test")}
            for label, chosen in found.items()
        }
        told = [_scores_note(chosen, len(protocol_for(options).inits) > 1) for chosen in found.values()]
        notes.append(f"{dataset}, train / test log-likelihood: {', '.join(told)}.")
    return {"panels": panels, "notes": notes}


def _scores_note(chosen: Chosen, starts: bool) -> str:
    """What the epoch that counts came to; `starts`: say from where, where there was a choice."""
    parts = [] if chosen.method["mu"] is None else [f"mu {chosen.method['mu']:g}"]
    parts += [f"{chosen.method['init']} start"] if starts else []
    setting = f" ({', '.join(parts)})" if parts else ""
    return f"{chosen.label}{setting} {chosen.spread('train_ll').mean:.2f} / {chosen.spread('test_ll').mean:.2f}"


def anatomy_study(name: str, options: ReproduceOptions) -> Study:
    """Plain EM: figures 2, 3 and 4 look at the same runs."""
    return make_study(name, options, vanilla_settings(protocol_for(options)))


def concentration_data(options: ReproduceOptions, records: list[Record], progress: Progress) -> Record:
    """The curves of T^ and t^ for each data set, one for each seed."""
    panels, notes = {}, []
    for dataset, measured in _measured(records):
        panels[dataset] = {by: [_curve(item[by]) for item in measured] for by in SYMBOLS}
        parts = []
        for by, symbol in SYMBOLS.items():
            share = sum(item[by]["fractions"]["0.9999"] for item in measured) / len(measured)
            parts.append(f"99.99 % of the sum of {symbol} in {share:.1%} of the nodes")
        notes.append(f"{dataset}: {', '.join(parts)}.")
    return {"panels": panels, "notes": [*notes, *_epoch_note(options)]}


def _curve(recorded: Record) -> list[list[float]]:
    """The recorded points, the origin, and the exact places where 90, 99 and 99.99 % are reached, in order."""
    exact = [[fraction, float(level)] for level, fraction in recorded["fractions"].items()]
    return sorted([[0.0, 0.0], *exact, *recorded["curve"]])


def depth_data(options: ReproduceOptions, records: list[Record], progress: Progress) -> Record:
    """The share of T^ in each partition of the depth, for each data set and seed."""
    panels = {dataset: {"share": [item["depth"] for item in measured]} for dataset, measured in _measured(records)}
    notes = []
    for dataset, panel in panels.items():
        upper = [upper_half(shares) for shares in panel["share"]]
        notes.append(f"{dataset}: {sum(upper) / len(upper):.0%} of the trace lies in the upper half of the partitions.")
    return {"panels": panels, "notes": [*notes, *_epoch_note(options)]}


def _measured(records: list[Record]) -> Iterator[tuple[str, list[Record]]]:
    """The curvature of each run of the chosen setting, by data set; runs whose curvature is not known are left out."""
    for dataset in _datasets(records):
        chosen = choose(records, dataset, 1.0, "vanilla")
        if chosen is not None and (measured := chosen.curvatures()):
            yield dataset, measured


def _epoch_note(options: ReproduceOptions) -> list[str]:
    """Where scores are those of the best epoch: that the curvature on record is not."""
    last = protocol_for(options).choose_epoch == "last"
    return [] if last else ["Curvature is that of each run's last epoch, not of the one whose scores count."]


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


def selection_data(options: ReproduceOptions, records: list[Record], progress: Progress) -> Record:
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
            runs = [row.get(_label(by, q)) for q in fractions]
            strength = next((run.method["mu"] for run in runs if run is not None), strength)
            panels[dataset][by] = [[_change(run, base, seed) for run in runs] for seed in seeds]
    notes = [f"The strength is mu = {strength:g} throughout."] if strength is not None else []
    notes += [_count_note(panels, place, q) for place, q in enumerate(fractions) if q < 1]
    return {"fractions": list(fractions), "mu": strength, "panels": panels, "notes": notes}


def _fractions(options: ReproduceOptions) -> tuple[float, ...]:
    return QUICK_FRACTIONS if options.quick else FRACTIONS


def _label(by: str, q: float) -> str:
    return "all" if q == 1 else f"{by} {q:g}"


def _change(run: Chosen | None, base: Chosen, seed: int) -> float | None:
    """None where one of the two is not known."""
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


def _datasets(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(record["dataset"] for record in records))
