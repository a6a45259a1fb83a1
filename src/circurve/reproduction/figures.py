"""The figures of the paper by name: which runs each needs, what it draws of them, and how the paper reads it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib import rc_context
from matplotlib.figure import Figure

from circurve.curvature.measure import DOMINANT_FLOOR_SHARE
from circurve.plots import concentration, depth_profile, node_selection, training_curves
from circurve.reproduction.records import Record, RunRecord
from circurve.reproduction.selection import selection_data, selection_study
from circurve.reproduction.spec import ReproduceOptions, Study, make_study, protocol_for, standard_settings
from circurve.reproduction.summary import Chosen, choose, choose_rows, upper_half
from circurve.reproduction.trained_figures import decomposition_data, draw_decomposition, draw_landscape, landscape_data

__all__ = ["FIGURES", "FigureSpec", "figure_files"]

DPI = 160
Progress = Callable[[str], None]
SYMBOLS = {"total": "T^", "local": "t^"}


@dataclass(frozen=True)
class FigureSpec:
    """One figure of the paper."""

    title: str
    reading: str
    """What the figure shows, and what the paper reads in it: the caption. Whether our numbers agree is another matter;
    `notes` of the data say what came out."""

    study: Callable[[ReproduceOptions], Study | None]
    """The trained runs it needs; None if it trains by itself."""

    data: Callable[[ReproduceOptions, list[RunRecord], Progress], Record]
    """From the options, the records of the study and a function that reports progress, to plain values ready for
    JSON: all that is drawn, and `notes`, sentences about what was measured."""

    draw: Callable[[Record], Figure]

    @property
    def metadata(self) -> dict[str, str]:
        """Title and description for `Figure.savefig(metadata=...)`, in PNG and SVG files alike."""
        return {"Title": self.title, "Description": self.reading}

    def files(self, data: Record) -> dict[str, bytes]:
        """The figure of these data by file name ending."""
        return figure_files(self.draw(data), self.metadata)


def figure_files(figure: Figure, metadata: Mapping[str, str]) -> dict[str, bytes]:
    """The picture as PNG and as SVG, by file name ending, with title and caption inside."""
    files = {}
    for kind, more in (("png", {}), ("svg", {"Date": None})):  # no clock in the file
        content = io.BytesIO()
        with rc_context({"svg.hashsalt": "circurve"}):  # the same names of parts every time
            figure.savefig(content, format=kind, dpi=DPI, bbox_inches="tight", metadata={**metadata, **more})
        files[kind] = content.getvalue()
    return files


def training_study(options: ReproduceOptions) -> Study:
    """The runs of the main table but for the gated ones."""
    return make_study("fig-1", options, [s for s in standard_settings(options) if s.label != "gated"])


def training_data(options: ReproduceOptions, records: list[RunRecord], progress: Progress) -> Record:
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
    """The scores of the epoch that counts; `starts`: with the start, if there was a choice."""
    parts = [] if chosen.method["mu"] is None else [f"mu {chosen.method['mu']:g}"]
    parts += [f"{chosen.method['init']} start"] if starts else []
    setting = f" ({', '.join(parts)})" if parts else ""
    return f"{chosen.label}{setting} {chosen.spread('train_ll').mean:.2f} / {chosen.spread('test_ll').mean:.2f}"


def anatomy_study(name: str, options: ReproduceOptions) -> Study:
    """Plain EM: figures 2, 3 and 4 look at the same runs."""
    return make_study(name, options, [s for s in standard_settings(options) if s.label == "vanilla"])


def concentration_data(options: ReproduceOptions, records: list[RunRecord], progress: Progress) -> Record:
    """The curves of T^ and t^ for each data set, one for each seed."""
    panels, notes = {}, []
    for dataset, measured in _measured(records):
        panels[dataset] = {by: [_curve(item[by]) for item in measured] for by in SYMBOLS}
        parts = []
        for by, symbol in SYMBOLS.items():
            share = sum(item[by]["fractions"]["0.9999"] for item in measured) / len(measured)
            parts.append(f"99.99 % of the sum of {symbol} in {share:.1%} of the nodes")
        notes.append(f"{dataset}: {', '.join(parts)}.{_floor_note(measured)}")
    return {"panels": panels, "notes": [*notes, *_epoch_note(options)]}


def _floor_note(measured: Sequence[Record]) -> str:
    """Where weights near zero make up most of the mean of t: how an estimate that they cannot move is spread.

    Empty where they do not, and for records of earlier versions, which do not say.
    """
    known = [item for item in measured if item.get("floor") and item.get("estimates")]
    edges, share = (sum(item["floor"][name] for item in known) / max(len(known), 1) for name in ("edges", "share"))
    if share <= DOMINANT_FLOOR_SHARE:
        return ""
    robust = sum(item["estimates"]["geometric"]["fractions"]["0.9999"] for item in known) / len(known)
    return (
        f" {edges:,.0f} edges with weights at the floor make up {share:.1%} of the mean of t^; they cannot move its "
        f"geometric mean, of which 99.99 % are in {robust:.1%} of the nodes."
    )


def _curve(recorded: Record) -> list[list[float]]:
    """The recorded points, the origin, and the exact places where 90, 99 and 99.99 % are reached, in order."""
    exact = [[fraction, float(level)] for level, fraction in recorded["fractions"].items()]
    return sorted([[0.0, 0.0], *exact, *recorded["curve"]])


def depth_data(options: ReproduceOptions, records: list[RunRecord], progress: Progress) -> Record:
    """The share of T^ in each partition of the depth, for each data set and seed."""
    panels = {dataset: {"share": [item["depth"] for item in measured]} for dataset, measured in _measured(records)}
    notes = []
    for dataset, panel in panels.items():
        upper = [upper_half(shares) for shares in panel["share"]]
        notes.append(f"{dataset}: {sum(upper) / len(upper):.0%} of the trace is in the upper half of the partitions.")
    return {"panels": panels, "notes": [*notes, *_epoch_note(options)]}


def _measured(records: list[RunRecord]) -> Iterator[tuple[str, list[Record]]]:
    """The curvature of each run of the chosen setting, by data set; runs whose curvature is not known are left out."""
    for dataset in _datasets(records):
        chosen = choose(records, dataset, 1.0, "vanilla")
        if chosen is not None and (measured := chosen.curvatures()):
            yield dataset, measured


def _epoch_note(options: ReproduceOptions) -> list[str]:
    """Where scores are those of the best epoch: that the curvature on record is not."""
    last = protocol_for(options).choose_epoch == "last"
    return [] if last else ["Curvature is that of each run's last epoch, not of the one whose scores count."]


def _datasets(records: list[RunRecord]) -> list[str]:
    return list(dict.fromkeys(record["dataset"] for record in records))


FIGURES: dict[str, FigureSpec] = {
    "fig-1": FigureSpec(
        "Training and test log-likelihood by epoch",
        "Mean log-likelihood by epoch: of test rows after the epoch (solid), and of training rows during the epoch "
        "(dashed), each batch scored just before its M-step. One line is without a penalty, one with the global "
        "penalty at the strength chosen by validation; bands show the range over seeds. The paper concludes: the "
        "penalty narrows the gap between the two only by lowering both, which is underfitting, not better "
        "generalisation.",
        training_study,
        training_data,
        lambda data: training_curves(data["panels"]),
    ),
    "fig-2": FigureSpec(
        "Concentration of the Hessian trace",
        "Share of the trace held by the sum nodes with the largest contribution T^, largest first. Marks show which "
        "share of the nodes holds 90, 99 and 99.99 % of it; the diagonal is an even spread. The paper concludes: "
        "fewer than a tenth of the nodes hold practically all of the trace.",
        partial(anatomy_study, "fig-2"),
        concentration_data,
        lambda data: concentration(data["panels"], "total"),
    ),
    "fig-3": FigureSpec(
        "Concentration of local curvature",
        "Share of the sum of local curvatures held by the sum nodes with the largest t^, largest first, with the "
        "curve of T^ for comparison (thin). The paper concludes: t^ is spread over far more nodes than T^, so that "
        "much of the "
        "concentration of the trace comes from how the nodes are used.",
        partial(anatomy_study, "fig-3"),
        concentration_data,
        lambda data: concentration(data["panels"], "local", compare=["total"]),
    ),
    "fig-4": FigureSpec(
        "The Hessian trace by depth",
        "Share of the trace in each tenth of the range of sum depths (or at each depth, if there are at most ten), "
        "from the root down; whiskers show the range over seeds. If their number is odd, the middle one counts half "
        "to the upper half. The paper concludes: contributions are concentrated near the root, where flow has not "
        "been divided yet.",
        partial(anatomy_study, "fig-4"),
        depth_data,
        lambda data: depth_profile(data["panels"], "total"),
    ),
    "fig-5": FigureSpec(
        "Penalising only the top nodes",
        "Change of test log-likelihood compared with the model without a penalty, if the penalty acts on all sum "
        "nodes or only on the given share with the largest T^ or t^, at the same strength; whiskers show the range "
        "over seeds. The paper concludes: penalising fewer nodes by T^ makes the fit worse, penalising fewer nodes "
        "by t^ keeps it.",
        selection_study,
        selection_data,
        lambda data: node_selection(data["panels"], data["fractions"]),
    ),
    "fig-6": FigureSpec(
        "Use, local curvature and contribution in one circuit",
        "The sum nodes of a trained circuit, the root framed, coloured by (a) use F^2, (b) local curvature t^ and (c) "
        "contribution T^. A block has a cell for each unit of the node, most used first; in large circuits a disc "
        "shows the mean over its units. (d) F^2 against t^ of every unit, coloured by T^; along a dashed line the "
        "product F^2 t^ is constant. A is used a lot but flat, B is hardly used but sharp, C is both used and sharp. "
        "The paper concludes: the sharpest nodes are used little and add little, while the trace comes from nodes "
        "near the root that are used most.",
        lambda _: None,
        decomposition_data,
        draw_decomposition,
    ),
    "fig-7": FigureSpec(
        "Three trainings in the plane",
        "The two-dimensional example, three Gaussians with a ring of noise: train NLL, test NLL and the exact trace of "
        "the Hessian over the plane of the first two principal components of all iterates, in brackets their shares of "
        "the variance, with the three trainings from one start (star). Coordinates are square roots of the sum weights "
        "and means and log standard deviations of the inputs, so that each point of the plane is a valid circuit. "
        "The numbers are those of the trained models themselves, which are not exactly in the plane. The paper "
        "concludes: without a penalty, training ends where the surface is sharp and test scores are worse; the "
        "global penalty ends in a flat place and underfits; the gated one keeps the fit at a lower trace.",
        lambda _: None,
        landscape_data,
        draw_landscape,
    ),
}
