"""The options that say how sum weights are learned."""

from __future__ import annotations

from typing import Annotated

import typer

from circurve.cli.methods import Estimator, MethodName, MuScale, Penalty, Simplex
from circurve.cli.options import METHOD
from circurve.learning.gates import GATES

__all__ = [
    "EstimatorOption",
    "GateMemoryOption",
    "GateOption",
    "GatesOption",
    "MethodOption",
    "MethodsOption",
    "MuOption",
    "MuScaleOption",
    "MusOption",
    "PenaltyOption",
    "PseudocountOption",
    "SimplexOption",
]

GATE_NAMES = ", ".join([*(name for name in GATES), "top_fraction:Q[:total]", "power:P"])

MethodOption = Annotated[
    MethodName,
    typer.Option(
        metavar="NAME",
        rich_help_panel=METHOD,
        help="vanilla: plain EM; global: the same penalty on the curvature of every sum; gated: the more, the sharper "
        "the sum.",
    ),
]
MethodsOption = Annotated[
    str, typer.Option(metavar="NAME,NAME", rich_help_panel=METHOD, help="Some of vanilla, global and gated.")
]
MuOption = Annotated[
    str | None,
    typer.Option(
        metavar="F|F,F|auto",
        rich_help_panel=METHOD,
        show_default="auto",
        help="Strength of the penalty of global and gated; of several, or with auto, the best by validation.",
    ),
]
MusOption = Annotated[
    str,
    typer.Option(metavar="F,F", rich_help_panel=METHOD, help="Strengths of the penalty of global and gated."),
]
GateOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=METHOD,
        show_default="max_norm",
        help=f"How gated shares out the penalty: {GATE_NAMES}; or auto, the best by validation.",
    ),
]
GatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        rich_help_panel=METHOD,
        show_default="max_norm",
        help=f"How gated shares out the penalty, one or more of {GATE_NAMES}.",
    ),
]
EstimatorOption = Annotated[
    Estimator | None,
    typer.Option(rich_help_panel=METHOD, show_default="mean_trace", help="The curvature that gates go by."),
]
GateMemoryOption = Annotated[
    float | None,
    typer.Option(
        metavar="F",
        rich_help_panel=METHOD,
        show_default="0",
        help="Weight of the past in the curvature that gates go by, below 1; 0 takes each batch alone.",
    ),
]
SimplexOption = Annotated[
    Simplex | None,
    typer.Option(
        rich_help_panel=METHOD,
        show_default="normalize",
        help="Scale the solution of each weight to sum 1, or solve for all weights of a sum together.",
    ),
]
PenaltyOption = Annotated[
    Penalty | None,
    typer.Option(rich_help_panel=METHOD, show_default="surrogate", help="The paper's penalty, or the true trace."),
]
MuScaleOption = Annotated[
    MuScale | None,
    typer.Option(
        rich_help_panel=METHOD,
        show_default="count",
        help="mu against the counts of a batch, or against their mean: then it does not depend on the batch size.",
    ),
]
PseudocountOption = Annotated[
    float, typer.Option(metavar="F", rich_help_panel=METHOD, help="Added to each sum's counts in every step.")
]
