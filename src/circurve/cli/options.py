"""The options of commands, imported as a whole; those that several commands share are records in `option_records`.

Options that `circurve.fit` has too come from the records `Settings`, `Run` and `Gated`, which define their defaults and
help texts.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from circurve.learning.methods import Gated
from circurve.learning.option_texts import help_of
from circurve.learning.options import Run, Settings
from circurve.learning.recipe import UNITS_GRID
from circurve.names import PLAIN_GATES

MODEL, METHOD, TRAINING, DATA = "Model", "Method", "Training", "Data"
"""The groups of options in a command's help."""


STANDARD = "-"
"""Standard input or output, in place of a file."""

DEFAULT_GATE = str(Gated.gate)
GATE_NAMES = ", ".join([*PLAIN_GATES, "top_fraction:Q[:total]", "power:P"])

Part = StrEnum("Part", ["all", "train", "valid", "test"])
"""Which rows of a data set to look at."""

MethodName = StrEnum("MethodName", {"vanilla": "vanilla", "global_": "global", "gated": "gated"})
Estimator = StrEnum("Estimator", ["mean_trace", "mean_ratio", "flow_weighted", "geometric", "clipped"])
Simplex = StrEnum("Simplex", ["normalize", "exact"])
Penalty = StrEnum("Penalty", ["surrogate", "exact"])
MuScale = StrEnum("MuScale", {"count_": "count", "mean": "mean", "data": "data"})
"""The names that may be typed; `Gated` explains each of them."""


class Structure(StrEnum):
    """The kind of circuit."""

    hclt = "hclt"
    chow_liu = "chow_liu"
    hmm = "hmm"
    rat = "rat"
    mixture = "mixture"
    factorized = "factorized"


class Leaves(StrEnum):
    """The hidden variable of a column without children in the tree of an hclt."""

    own = "own"
    shared = "shared"


class EngineName(StrEnum):
    """Where fleets are trained."""

    local = "local"
    ray = "ray"


class Select(StrEnum):
    """Which epoch's parameters to keep."""

    best = "best"
    last = "last"


class Precision(StrEnum):
    """The floating type of training."""

    float32 = "float32"
    float64 = "float64"
    tf32 = "tf32"


class Unseen(StrEnum):
    """What to do with a value that was not seen in training."""

    impossible = "impossible"
    missing = "missing"
    error = "error"


class UnseenToFill(StrEnum):
    """What to do with an unseen value in a table to impute. A row of probability zero cannot be imputed."""

    missing = "missing"
    error = "error"


class Init(StrEnum):
    """How parameters start."""

    random = "random"
    prototypes = "prototypes"


DEVICE, INIT, PRECISION, SEED = str(Settings.device), Init(Run.init), Precision(Settings.precision), Run.seed
"""Defaults as they are typed."""

SHARES_OUT, STRENGTH = (help_of(Gated, name).removesuffix(".") for name in ("gate", "mu"))


def option_of(record: type, name: str, metavar: str | None = None, shown: bool | str = True) -> Any:
    """An option of a record; `shown`: the text for a default that is None."""
    panel = METHOD if record is Gated else TRAINING
    return typer.Option(metavar=metavar, rich_help_panel=panel, show_default=shown, help=help_of(record, name))


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET|FILE",
        show_default=False,
        help="A data set by name, or a file: .csv, .tsv, .txt, .data (also .gz), .parquet, .arrow, .feather, .npy, "
        ".npz; - is standard input.",
    ),
]
FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        show_default=False,
        help="A table: .csv, .tsv, .txt, .data (also .gz), .parquet, .arrow, .feather, .npy; - is standard input.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False, help="A model file.")]
OutOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The model file to write. An existing file is replaced.")
]
PlotOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A picture to write: .png, .svg or .pdf.")]
OverwriteOption = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Let an interrupted training replace an existing model. Without it, the model is saved as "
        "NAME.interrupted.",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A page to write: one .html file that needs no network.")
]
DeviceOption = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help=help_of(Settings, "device"))]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]

StructureOption = Annotated[
    Structure,
    typer.Option(
        metavar="KIND",
        rich_help_panel=MODEL,
        help="hclt: hidden Chow-Liu tree; chow_liu: Chow-Liu tree without hidden states; hmm: hidden Markov model; "
        "rat: random binary trees; mixture: mixture of independent columns; factorized: independent columns.",
    ),
]
UnitsOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        rich_help_panel=MODEL,
        help="Number of states of each hidden variable, or of components of a mixture.",
    ),
]
LeavesOption = Annotated[
    Leaves | None,
    typer.Option(
        rich_help_panel=MODEL,
        show_default=Leaves.own.value,
        help="For hclt. own: a column without children in the tree has a hidden variable of its own; shared: it uses "
        "that of its parent.",
    ),
]
UnitsToChooseOption = Annotated[
    str,
    typer.Option(
        metavar="N|N,N|auto",
        rich_help_panel=MODEL,
        help=f"Number of states of each hidden variable, or of components of a mixture. With several numbers, "
        f"validation chooses the best. auto tries {UNITS_GRID[0]}, {UNITS_GRID[1]}, ... up to {UNITS_GRID[-1]}, and "
        f"stops when two in a row are worse. With --ensemble and several numbers, the members use them in turn.",
    ),
]

EnsembleOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=MODEL,
        help="Train N circuits and mix them: the first two on the tree of all rows, each further two on a tree of "
        "resampled rows; with several --units, two for each number; with --pseudocount, one instead of two. "
        "Weights are found on validation rows, or by cross-validation if there are none. Defaults for "
        "epochs, step, start and pseudocount are those of fit_ensemble.",
    ),
]
BoostedOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        rich_help_panel=MODEL,
        help="With --ensemble: train N of its circuits one after another, on the rows that the mixture so far fits "
        "worst.",
    ),
]
JointEpochsOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        rich_help_panel=MODEL,
        help="With --ensemble: then train the whole mixture as one circuit for at most N epochs.",
    ),
]

MethodOption = Annotated[
    MethodName,
    typer.Option(
        metavar="NAME",
        rich_help_panel=METHOD,
        help="vanilla: plain EM; global: the same penalty on the curvature of every sum; gated: a stronger penalty "
        "for sharper sums.",
    ),
]
MethodsOption = Annotated[
    str, typer.Option(metavar="NAME,NAME", rich_help_panel=METHOD, help="One or more of vanilla, global and gated.")
]
MuOption = Annotated[
    str | None,
    typer.Option(
        metavar="F|F,F|auto",
        rich_help_panel=METHOD,
        show_default="auto",
        help=f"{STRENGTH}. With several numbers, validation chooses the best. auto tries several strengths and plain "
        f"EM, and keeps plain EM unless a penalty is better by more than one standard error.",
    ),
]
MusOption = Annotated[
    str, typer.Option(metavar="F,F", rich_help_panel=METHOD, help="Strengths of the penalty of global and gated.")
]
GateOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=METHOD,
        show_default=DEFAULT_GATE,
        help=f"{SHARES_OUT}: {GATE_NAMES}; or auto: validation chooses the best.",
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
SeedOption = Annotated[int, option_of(Run, "seed", "N")]
DrawSeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="The same seed draws the same rows.")]
InitOption = Annotated[Init, option_of(Run, "init")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--memory-budget",
        metavar="N|NMB|NGB",
        show_default="free memory",
        help="Memory limit for data, results and buffers, checked before memory is allocated.",
    ),
]
TrackOption = Annotated[bool, typer.Option("--track", rich_help_panel=TRAINING, help=help_of(Settings, "track"))]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        rich_help_panel=DATA,
        help="A folder with data sets, arranged like DEBD. Without it, data sets of DEBD are downloaded.",
    ),
]
HeaderOption = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        rich_help_panel=DATA,
        show_default="guessed",
        help="Whether the first row of a text file names the columns.",
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        rich_help_panel=TRAINING,
        help="local: train in this process; ray: train parts as tasks of a Ray cluster (needs the package ray).",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Also accept files that need more than 10 times their size in memory (and more than 256 MB).",
    ),
]
MissingOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=DATA,
        help="A number that marks missing values, in addition to NaN and empty cells.",
    ),
]
TypesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=TYPE,...",
        rich_help_panel=DATA,
        help="Types of columns: bernoulli, categorical, binomial, poisson, gaussian, or drop to leave a column out.",
    ),
]
DroppedOption = Annotated[
    str | None,
    typer.Option(
        "--types",
        metavar="NAME=drop,...",
        rich_help_panel=DATA,
        help="Columns of the file to leave out; the types of the others are saved in the model.",
    ),
]
CopiedOption = Annotated[
    str | None,
    typer.Option(
        "--types",
        metavar="NAME=drop,...",
        rich_help_panel=DATA,
        help="Columns of the file that are not in the model; they are copied.",
    ),
]
UnseenOption = Annotated[
    Unseen,
    typer.Option(
        rich_help_panel=DATA,
        help="What to do with a value that was not seen in training. impossible: its row has probability zero; "
        "missing: the value counts as missing; error: stop.",
    ),
]
UnseenToFillOption = Annotated[
    UnseenToFill,
    typer.Option(
        "--unseen",
        rich_help_panel=DATA,
        help="What to do with a value that was not seen in training. error: stop; missing: replace the value.",
    ),
]
PartOption = Annotated[Part, typer.Option(rich_help_panel=DATA, help="Which part of a data set to use.")]
