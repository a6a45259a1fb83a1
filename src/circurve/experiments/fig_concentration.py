"""Figures 2, 3 and 4: how the trace, and local curvature, are spread over the nodes of models without a penalty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from matplotlib.figure import Figure

from circurve.experiments.options import ReproduceOptions
from circurve.experiments.protocols import protocol_for
from circurve.experiments.spec import Study, make_study, vanilla_settings
from circurve.experiments.summary import choose, upper_half
from circurve.plots import concentration, depth_profile

__all__ = [
    "anatomy_study",
    "concentration_data",
    "depth_data",
    "draw_depth",
    "draw_local_concentration",
    "draw_total_concentration",
]

Record = dict[str, Any]
SYMBOLS = {"total": "T^", "local": "t^"}


def anatomy_study(name: str) -> Callable[[ReproduceOptions], Study]:
    """Plain EM: the three figures look at the same runs."""

    def study(options: ReproduceOptions) -> Study:
        return make_study(name, options, vanilla_settings(protocol_for(options)))

    return study


def concentration_data(
    options: ReproduceOptions, records: list[Record], progress: Callable[[str], None]
) -> dict[str, Any]:
    """The curves of T^ and t^ for each data set, one for each seed."""
    panels = {
        dataset: {by: [_curve(item[by]) for item in measured] for by in SYMBOLS}
        for dataset, measured in _measured(records)
    }
    notes = [_note(dataset, measured) for dataset, measured in _measured(records)]
    return {"panels": panels, "notes": [*notes, *_epoch_note(options)]}


def draw_total_concentration(data: dict[str, Any]) -> Figure:
    """Figure 2: nodes ranked by T^."""
    return concentration(data["panels"], "total")


def draw_local_concentration(data: dict[str, Any]) -> Figure:
    """Figure 3: nodes ranked by t^, with the curves of figure 2 to compare."""
    return concentration(data["panels"], "local", compare=["total"])


def depth_data(options: ReproduceOptions, records: list[Record], progress: Callable[[str], None]) -> dict[str, Any]:
    """The share of T^ in each partition of the depth, for each data set and seed."""
    panels = {dataset: {"share": [item["depth"] for item in measured]} for dataset, measured in _measured(records)}
    notes = []
    for dataset, panel in panels.items():
        upper = [upper_half(shares) for shares in panel["share"]]
        notes.append(f"{dataset}: {sum(upper) / len(upper):.0%} of the trace lies in the upper half of the partitions.")
    return {"panels": panels, "notes": [*notes, *_epoch_note(options)]}


def draw_depth(data: dict[str, Any]) -> Figure:
    """Figure 4: one panel for each data set."""
    return depth_profile(data["panels"], "total")


def _measured(records: list[Record]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The curvature of each run of the chosen setting, by data set; runs whose curvature is not known are left out."""
    for dataset in dict.fromkeys(record["dataset"] for record in records):
        chosen = choose(records, dataset, 1.0, "vanilla")
        measured = [r["curvature"] for r in (chosen.records if chosen else ()) if r["curvature"] is not None]
        if measured:
            yield dataset, measured


def _epoch_note(options: ReproduceOptions) -> list[str]:
    """Where scores are those of the best epoch: that the curvature on record is not."""
    last = protocol_for(options).choose_epoch == "last"
    return [] if last else ["Curvature is that of each run's last epoch, not of the one whose scores count."]


def _curve(recorded: dict[str, Any]) -> list[list[float]]:
    """The recorded points, the origin, and the exact places where 90, 99 and 99.99 % are reached, in order."""
    exact = [[fraction, float(level)] for level, fraction in recorded["fractions"].items()]
    return sorted([[0.0, 0.0], *exact, *recorded["curve"]])


def _note(dataset: str, measured: list[dict[str, Any]]) -> str:
    parts = []
    for by, symbol in SYMBOLS.items():
        fractions = [item[by]["fractions"]["0.9999"] for item in measured]
        parts.append(f"99.99 % of the sum of {symbol} in {sum(fractions) / len(fractions):.1%} of the nodes")
    return f"{dataset}: {', '.join(parts)}."
