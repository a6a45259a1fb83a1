"""The options that commands share, and the texts that stand for numbers in them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from circurve.errors import OptionError
from circurve.learning import schedules
from circurve.learning.option_texts import help_of
from circurve.learning.options import Settings
from circurve.learning.schedules import Schedule

__all__ = [
    "DATA",
    "DEVICE",
    "METHOD",
    "MODEL",
    "TRAINING",
    "DataArgument",
    "DataDirOption",
    "DeviceOption",
    "HeaderOption",
    "Init",
    "JsonOption",
    "MissingOption",
    "ModelArgument",
    "Part",
    "PartOption",
    "Precision",
    "Select",
    "Shares",
    "parse_batch_size",
    "parse_shares",
    "parse_step_size",
]

MODEL, METHOD, TRAINING, DATA = "Model", "Method", "Training", "Data"
"""The groups of options in a command's help."""

SCHEDULES: dict[str, Callable[[float, float], Schedule]] = {
    "cosine": schedules.cosine,
    "linear": schedules.linear,
    "exponential": schedules.exponential,
}

Shares: TypeAlias = tuple[float, float, float]
"""Of the rows of a table: for training, validation and test; they add up to 1."""

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATASET|FILE",
        show_default=False,
        help="A data set by name, or a .csv, .tsv, .txt, .data, .npy or .npz file.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", show_default=False, help="A model file.")]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        rich_help_panel=DATA,
        help="Where data sets lie, laid out like DEBD; else sets of DEBD are downloaded.",
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
MissingOption = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=DATA, help="A number that marks missing values, beside NaN and blanks."),
]
DeviceOption = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help=help_of(Settings, "device"))]
DEVICE = str(Settings.device)
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


class Select(StrEnum):
    """Which epoch's parameters to keep."""

    best = "best"
    last = "last"


class Precision(StrEnum):
    """The floating type of training."""

    float32 = "float32"
    float64 = "float64"
    tf32 = "tf32"


class Init(StrEnum):
    """How parameters start."""

    random = "random"
    prototypes = "prototypes"


class Part(StrEnum):
    """Which rows of a data set to look at."""

    all = "all"
    train = "train"
    valid = "valid"
    test = "test"


PartOption = Annotated[Part, typer.Option(rich_help_panel=DATA, help="Which part of a data set to take.")]


def parse_batch_size(text: str) -> int | None:
    """`200`, or `full` (None) for all rows at once."""
    if text == "full":
        return None
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"--batch-size must be a whole number or 'full', not {text!r}") from None


def parse_step_size(text: str) -> float | Schedule:
    """`0.1`, or `KIND:START:END` for a schedule over the training, such as `cosine:0.2:0.005`."""
    kind, *rest = text.split(":")
    if not rest:
        return _step(text, text)
    if kind not in SCHEDULES or len(rest) != 2:
        kinds = ", ".join(SCHEDULES)
        raise OptionError(f"--step-size must be a number or KIND:START:END with KIND one of {kinds}, not {text!r}")
    start, end = (_step(part, text) for part in rest)
    return SCHEDULES[kind](start, end)


def _step(part: str, text: str) -> float:
    try:
        step = float(part)
    except ValueError:
        step = 0.0
    if not 0 < step <= 1:
        given = repr(text) if part == text else f"{part!r} in {text!r}"
        raise OptionError(f"--step-size must lie in (0, 1], not {given}")
    return step


def parse_shares(text: str) -> Shares:
    """`0.8,0.1,0.1`: training, validation, test; `0.9,0.1` leaves out the test."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    within = len(shares) in (2, 3) and all(0 <= share <= 1 for share in shares) and shares[0] > 0
    if not within or abs(sum(shares) - 1) > 1e-6:
        raise OptionError(f"--split must be shares for train, valid and test that add up to 1, not {text!r}")
    train, valid, test = (*shares, 0.0)[:3]
    return train, valid, test
