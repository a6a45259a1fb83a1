"""The figures of the paper by name: which runs each needs, what it draws of them, and how the paper reads it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from matplotlib import rc_context
from matplotlib.figure import Figure

from circurve.experiments import fig_runs
from circurve.experiments.fig_decomposition import decomposition_data, draw_decomposition
from circurve.experiments.fig_landscape import draw_landscape, landscape_data
from circurve.experiments.protocols import ReproduceOptions
from circurve.experiments.records import Record
from circurve.experiments.spec import Study
from circurve.plots import concentration, depth_profile, node_selection, training_curves

__all__ = ["FIGURES", "FigureSpec", "figure_files"]

DPI = 160


@dataclass(frozen=True)
class FigureSpec:
    """One figure of the paper."""

    title: str
    reading: str
    """What the figure shows, and what the paper reads in it: the caption. Whether our numbers agree is another matter;
    `notes` of the data say what came out."""

    study: Callable[[ReproduceOptions], Study | None]
    """The trained runs it needs; None if it trains by itself."""

    data: Callable[[ReproduceOptions, list[Record], Callable[[str], None]], Record]
    """From the options, the records of the study and a function that is told of progress, to plain values ready for
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


FIGURES: dict[str, FigureSpec] = {
    "fig-1": FigureSpec(
        "Training and test log-likelihood by epoch",
        "Mean log-likelihood by epoch: of test rows after it (full), of training rows during it (dashed), each batch "
        "scored just before its M-step; without a penalty and with the global one at the strength chosen by "
        "validation; bands span the seeds. The paper reads: the penalty narrows the gap between the two only by "
        "lowering both, which is underfitting, not better generalisation.",
        fig_runs.training_study,
        fig_runs.training_data,
        lambda data: training_curves(data["panels"]),
    ),
    "fig-2": FigureSpec(
        "Concentration of the Hessian trace",
        "Share of the trace held by the sum nodes with the largest contribution T^, largest first; marks show which "
        "share of the nodes holds 90, 99 and 99.99 % of it, the diagonal is an even spread. The paper reads: fewer "
        "than a tenth of the nodes hold practically all of the trace.",
        partial(fig_runs.anatomy_study, "fig-2"),
        fig_runs.concentration_data,
        lambda data: concentration(data["panels"], "total"),
    ),
    "fig-3": FigureSpec(
        "Concentration of local curvature",
        "Share of the sum of local curvatures held by the sum nodes with the largest t^, largest first, with the curve "
        "of T^ to compare (thin). The paper reads: t^ is spread over far more nodes than T^, so that much of the "
        "concentration of the trace comes from how the nodes are used.",
        partial(fig_runs.anatomy_study, "fig-3"),
        fig_runs.concentration_data,
        lambda data: concentration(data["panels"], "local", compare=["total"]),
    ),
    "fig-4": FigureSpec(
        "The Hessian trace by depth",
        "Share of the trace in each tenth of the range of sum depths (or at each depth, where there are no more than "
        "ten), from the root down; whiskers span the seeds. The middle one of an odd number counts half to the upper "
        "half. The paper reads: contributions gather near the root, where flow has not been divided yet.",
        partial(fig_runs.anatomy_study, "fig-4"),
        fig_runs.depth_data,
        lambda data: depth_profile(data["panels"], "total"),
    ),
    "fig-5": FigureSpec(
        "Penalising only the top nodes",
        "Change of test log-likelihood against the model without a penalty, when the penalty acts on all sum nodes or "
        "on the given share with the largest T^ or t^, at the same strength; whiskers span the seeds. The paper reads: "
        "fewer nodes by T^ makes the fit worse, fewer nodes by t^ keeps it.",
        fig_runs.selection_study,
        fig_runs.selection_data,
        lambda data: node_selection(data["panels"], data["fractions"]),
    ),
    "fig-6": FigureSpec(
        "Use, local curvature and contribution in one circuit",
        "The sum nodes of a trained circuit, the root framed, coloured by (a) use F^2, (b) local curvature t^ and (c) "
        "contribution T^. A block has a cell for each unit of the node, most used first; in large circuits a disc "
        "stands for the mean over its units. (d) F^2 against t^ of every unit, coloured by T^; along a dashed line the "
        "product F^2 t^ is constant. A is much used and flat, B hardly used and sharp, C both used and sharp. The "
        "paper reads: the sharpest nodes are little used and add little, while the trace comes from nodes near the "
        "root that are used most.",
        lambda _: None,
        decomposition_data,
        draw_decomposition,
    ),
    "fig-7": FigureSpec(
        "Three trainings in the plane",
        "The two-dimensional example, three Gaussians with a ring of noise: train NLL, test NLL and the exact trace of "
        "the Hessian over the plane of the first two principal components of all iterates, in brackets their shares of "
        "the variance, with the three trainings from one start (star). Coordinates are square roots of the sum weights "
        "and means and log standard deviations of the inputs, so that each point of the plane is a valid circuit. The "
        "numbers are those of the trained models themselves, which lie beside the plane. The paper reads: without a "
        "penalty training ends where the surface is sharp and test rows fare worse, the global penalty ends flat and "
        "underfits, and the gated one keeps the fit at a lower trace.",
        lambda _: None,
        landscape_data,
        draw_landscape,
    ),
}
