"""Figure 1: training and test log-likelihood by epoch, without a penalty and with the global one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from circurve.experiments.options import ReproduceOptions
from circurve.experiments.protocols import protocol_for
from circurve.experiments.spec import Study, global_settings, make_study, vanilla_settings
from circurve.experiments.summary import Chosen, choose
from circurve.plots import training_curves

__all__ = ["draw_training", "training_data", "training_study"]

LABELS = ("vanilla", "global")
SPLITS = ("train", "test")


def training_study(options: ReproduceOptions) -> Study:
    """The runs of the main table but for the gated ones."""
    protocol = protocol_for(options)
    return make_study("fig-1", options, [*vanilla_settings(protocol), *global_settings(protocol)])


def training_data(
    options: ReproduceOptions, records: list[dict[str, Any]], progress: Callable[[str], None]
) -> dict[str, Any]:
    """For each data set and method the histories of all seeds, of the strength that validation chooses."""
    panels: dict[str, dict[str, Any]] = {}
    notes = []
    starts = len(protocol_for(options).inits) > 1
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        chosen = {label: choose(records, dataset, 1.0, label) for label in LABELS}
        found = {label: runs for label, runs in chosen.items() if runs is not None}
        panels[dataset] = {label: {split: _histories(runs, split) for split in SPLITS} for label, runs in found.items()}
        notes += [_note(dataset, found, starts)]
    return {"panels": panels, "notes": notes}


def draw_training(data: dict[str, Any]) -> Figure:
    """One panel for each data set."""
    return training_curves(data["panels"])


def _histories(runs: Chosen, split: str) -> list[list[float | None]]:
    return [record["history"][f"{split}_ll"] for record in runs.records]


def _note(dataset: str, found: dict[str, Chosen], starts: bool) -> str:
    """What the epoch that counts came to; `starts`: say from where, where there was a choice."""
    parts = []
    for label, runs in found.items():
        train, test = runs.spread("train_ll").mean, runs.spread("test_ll").mean
        chosen = [] if runs.method["mu"] is None else [f"mu {runs.method['mu']:g}"]
        chosen += [f"{runs.method['init']} start"] if starts else []
        setting = f" ({', '.join(chosen)})" if chosen else ""
        parts.append(f"{label}{setting} {train:.2f} / {test:.2f}")
    return f"{dataset}, train / test log-likelihood: {', '.join(parts)}."
