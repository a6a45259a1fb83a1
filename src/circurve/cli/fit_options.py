"""The options of `circurve fit` and `circurve sweep`, but for those about the method."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from circurve.cli.models import Structure
from circurve.cli.options import DATA, MODEL, TRAINING, Init, Precision, Select

__all__ = [
    "BatchSizeOption",
    "EpochsOption",
    "InitOption",
    "NoSplitOption",
    "OutOption",
    "PatienceOption",
    "PrecisionOption",
    "SeedOption",
    "SelectOption",
    "SharesOption",
    "StepSizeOption",
    "StructureOption",
    "TestOption",
    "ToleranceOption",
    "TrackOption",
    "UnitsOption",
    "ValidOption",
]

OutOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The model file to write; one that exists is replaced.")
]

StructureOption = Annotated[
    Structure,
    typer.Option(
        metavar="KIND",
        rich_help_panel=MODEL,
        help="hclt: hidden Chow-Liu tree; hmm: hidden Markov model; rat: random binary trees; mixture: of independent "
        "variables; factorized: independent variables.",
    ),
]
UnitsOption = Annotated[
    int, typer.Option(metavar="N", rich_help_panel=MODEL, help="States of each latent; components of a mixture.")
]

EpochsOption = Annotated[int, typer.Option(metavar="N", rich_help_panel=TRAINING, help="Passes over the data.")]
BatchSizeOption = Annotated[
    str, typer.Option(metavar="N|full", rich_help_panel=TRAINING, help="Rows in each step, or all of them.")
]
StepSizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="F|KIND:F:F",
        rich_help_panel=TRAINING,
        show_default="0.1; 1 with --batch-size full",
        help="A number in (0, 1], or cosine, linear or exponential from one number to another: cosine:0.2:0.005.",
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", rich_help_panel=TRAINING, help="Fixes all that is random.")]
InitOption = Annotated[
    Init,
    typer.Option(
        rich_help_panel=TRAINING, help="Start at random, or with each unit around a row of the training data."
    ),
]
SelectOption = Annotated[
    Select | None,
    typer.Option(
        rich_help_panel=TRAINING,
        show_default="best with validation data",
        help="Keep the epoch of the best validation log-likelihood, or the last one.",
    ),
]
PatienceOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=TRAINING, help="Stop after N epochs in which the validation got no better."
    ),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(
        metavar="F", rich_help_panel=TRAINING, help="Stop when an epoch raises the training log-likelihood by less."
    ),
]
TrackOption = Annotated[
    bool, typer.Option("--track", rich_help_panel=TRAINING, help="Measure sharpness and gates in every epoch.")
]
PrecisionOption = Annotated[
    Precision, typer.Option(rich_help_panel=TRAINING, help="The numbers to compute with; tf32 is for GPUs.")
]

ValidOption = Annotated[
    Path | None, typer.Option(metavar="FILE", rich_help_panel=DATA, help="A table of validation rows.")
]
TestOption = Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=DATA, help="A table of test rows.")]
SharesOption = Annotated[
    str | None,
    typer.Option(
        metavar="F,F,F",
        rich_help_panel=DATA,
        show_default="0.8,0.1,0.1",
        help="Shares of a single table for training, validation and test.",
    ),
]
NoSplitOption = Annotated[
    bool, typer.Option("--no-split", rich_help_panel=DATA, help="Train on all rows of a single table.")
]
