"""The options of `circurve fit` and `circurve sweep`, but for those about the method.

What `circurve.fit` has too comes from the records `Settings` and `Run`: defaults and help texts stand there alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from circurve.cli.models import Structure
from circurve.cli.options import DATA, MODEL, TRAINING, Init, Precision, Select
from circurve.learning.option_texts import help_of, shown_default
from circurve.learning.options import Run, Settings

__all__ = [
    "BATCH_SIZE",
    "EPOCHS",
    "INIT",
    "PRECISION",
    "SEED",
    "TRACK",
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

EPOCHS, TRACK, SEED = Settings.epochs, Settings.track, Run.seed
BATCH_SIZE = str(Settings.batch_size)
INIT, PRECISION = Init(Run.init), Precision(Settings.precision)
"""The defaults as they are typed."""

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

EpochsOption = Annotated[int, typer.Option(metavar="N", rich_help_panel=TRAINING, help=help_of(Settings, "epochs"))]
BatchSizeOption = Annotated[
    str, typer.Option(metavar="N|full", rich_help_panel=TRAINING, help=help_of(Settings, "batch_size"))
]
StepSizeOption = Annotated[
    str | None,
    typer.Option(
        metavar="F|KIND:F:F",
        rich_help_panel=TRAINING,
        show_default=shown_default(Settings, "step_size"),
        help=f"{help_of(Settings, 'step_size')} A schedule is cosine, linear or exponential from one number to "
        "another: cosine:0.2:0.005.",
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", rich_help_panel=TRAINING, help=help_of(Run, "seed"))]
InitOption = Annotated[
    Init,
    typer.Option(rich_help_panel=TRAINING, help=help_of(Run, "init")),
]
SelectOption = Annotated[
    Select | None,
    typer.Option(
        rich_help_panel=TRAINING,
        show_default=shown_default(Settings, "select"),
        help=help_of(Settings, "select"),
    ),
]
PatienceOption = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=TRAINING, help=help_of(Settings, "patience")),
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(metavar="F", rich_help_panel=TRAINING, help=help_of(Settings, "tolerance")),
]
TrackOption = Annotated[bool, typer.Option("--track", rich_help_panel=TRAINING, help=help_of(Settings, "track"))]
PrecisionOption = Annotated[Precision, typer.Option(rich_help_panel=TRAINING, help=help_of(Settings, "precision"))]

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
