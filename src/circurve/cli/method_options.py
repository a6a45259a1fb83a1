"""The options that say how sum weights are learned."""

from __future__ import annotations

from typing import Annotated

import typer

from circurve.cli.methods import DEFAULT_GATE, Estimator, MethodName, MuScale, Penalty, Simplex
from circurve.cli.options import METHOD
from circurve.learning import Gated, Vanilla
from circurve.learning.gates import GATES
from circurve.learning.option_texts import help_of, shown_default

__all__ = [
    "PSEUDOCOUNT",
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

SHARES_OUT, STRENGTH = (help_of(Gated, name).removesuffix(".") for name in ("gate", "mu"))
PSEUDOCOUNT = Vanilla.pseudocount
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
        help=f"{STRENGTH}; of several, or with auto, the best by validation.",
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
        show_default=DEFAULT_GATE,
        help=f"{SHARES_OUT}: {GATE_NAMES}; or auto, the best by validation.",
    ),
]
GatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        rich_help_panel=METHOD,
        show_default=DEFAULT_GATE,
        help=f"{SHARES_OUT}, one or more of {GATE_NAMES}.",
    ),
]
EstimatorOption = Annotated[
    Estimator | None,
    typer.Option(
        rich_help_panel=METHOD, show_default=shown_default(Gated, "estimator"), help=help_of(Gated, "estimator")
    ),
]
GateMemoryOption = Annotated[
    float | None,
    typer.Option(
        metavar="F",
        rich_help_panel=METHOD,
        show_default=f"{Gated.gate_memory:g}",
        help=help_of(Gated, "gate_memory"),
    ),
]
SimplexOption = Annotated[
    Simplex | None,
    typer.Option(
        rich_help_panel=METHOD,
        show_default=shown_default(Gated, "simplex"),
        help=help_of(Gated, "simplex"),
    ),
]
PenaltyOption = Annotated[
    Penalty | None,
    typer.Option(rich_help_panel=METHOD, show_default=shown_default(Gated, "penalty"), help=help_of(Gated, "penalty")),
]
MuScaleOption = Annotated[
    MuScale | None,
    typer.Option(
        rich_help_panel=METHOD,
        show_default=shown_default(Gated, "mu_scale"),
        help=help_of(Gated, "mu_scale"),
    ),
]
PseudocountOption = Annotated[
    float, typer.Option(metavar="F", rich_help_panel=METHOD, help=help_of(Gated, "pseudocount"))
]
