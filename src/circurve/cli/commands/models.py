"""The commands that ask or measure a model, as records of what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from circurve.cli import options

__all__ = ["Evaluate", "Impute", "Info", "ModelCurvature", "Query", "Sample"]

ScoresOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|-",
        help="Write a table with the log-likelihood of each row: .csv, .tsv, .parquet; - is standard output.",
    ),
]

ExplainOption = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Name up to three cells that make a row improbable: for every row in the table of --scores, and for the "
        "ten least probable rows of each part on the terminal.",
    ),
]

QuestionArgument = Annotated[
    str,
    typer.Argument(
        metavar="QUESTION",
        show_default=False,
        help="'income | age=30, sex=F': the distribution of a column. 'income=high, age=..40 | sex=F': a probability.",
    ),
]

CsvOption = Annotated[bool, typer.Option("--csv", help="Print comma-separated values instead of tables.")]

GivenOption = Annotated[str, typer.Option(metavar="EVIDENCE", help="Known values: 'age=30..40, sex=F'.")]

RowsOutOption = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FILE|-",
        help="Where to write the rows: .csv, .tsv, .parquet; - is standard output, as CSV.",
    ),
]

HowOption = Annotated[
    str,
    typer.Option(
        metavar="mean|mode|sample",
        help="mean: expected values of numbers, most probable values of categories; mode: most probable values; "
        "sample: values drawn at random, row by row.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score a data set or a file with a model: log-likelihoods and sharpness.

    The file that the model was trained on is split in the same way as in
    training. All rows of another file with a single table are scored, and
    reported as test rows, or under the name given by --split. Columns are
    matched by name. Sharpness is the mean over rows of the trace of the Hessian
    of -log p.
    """

    model: options.ModelArgument
    data: options.DataArgument
    scores: ScoresOption = None
    explain: ExplainOption = False
    split: options.PartOption = options.Part.all
    device: options.DeviceOption = options.DEVICE
    memory_budget: options.BudgetOption = None
    trust: options.TrustOption = False
    data_dir: options.DataDirOption = None
    missing: options.MissingOption = None
    unseen: options.UnseenOption = options.Unseen.impossible
    types: options.DroppedOption = None
    header: options.HeaderOption = None
    as_json: options.JsonOption = False


@dataclass(frozen=True, kw_only=True)
class ModelCurvature:
    """Show which parts of a model are sharp. The conclusion comes first.

    The trace of the Hessian of -log p is a sum over sum nodes of
    T = F^2 t: how much a node is used (F, its flow) times how sharp its own
    mixture is (t). All numbers are means over rows: the training rows of a
    data set, or of the file that the model was trained on, unless --split says
    otherwise; all rows of any other file. --estimator selects how t is averaged.
    """

    model: options.ModelArgument
    data: options.DataArgument
    split: options.PartOption = options.Part.train
    estimator: Annotated[
        options.Estimator,
        typer.Option(
            help="How the local curvature t is averaged. Edges of weight near zero have no effect on geometric."
        ),
    ] = options.Estimator.geometric
    top: Annotated[int, typer.Option(metavar="N", help="How many nodes to list.")] = 10
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a table with a row for each sum node.")] = None
    plot: options.PlotOption = None
    report: options.ReportOption = None
    device: options.DeviceOption = options.DEVICE
    trust: options.TrustOption = False
    memory_budget: options.BudgetOption = None
    data_dir: options.DataDirOption = None
    missing: options.MissingOption = None
    unseen: options.UnseenOption = options.Unseen.impossible
    types: options.DroppedOption = None
    header: options.HeaderOption = None
    as_json: options.JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Info:
    """Show what is in a model file."""

    model: options.ModelArgument
    memory_budget: options.BudgetOption = None
    as_json: options.JsonOption = False
    trust: options.TrustOption = False


@dataclass(frozen=True, kw_only=True)
class Query:
    """Ask a model for a distribution or a probability; every answer is exact.

    Left of the bar is what you ask, right of it what you know; both are
    columns with values (age=30), intervals (age=30..40, age=..40) or, to ask
    for a distribution, names alone. Columns that you do not name are summed
    out. Put names and values with commas or bars in quotes.
    """

    model: options.ModelArgument
    question: QuestionArgument
    device: options.DeviceOption = options.DEVICE
    memory_budget: options.BudgetOption = None
    trust: options.TrustOption = False
    as_json: options.JsonOption = False
    as_csv: CsvOption = False


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Draw rows from a model, with some values given if you like."""

    model: options.ModelArgument
    n: Annotated[int, typer.Option("-n", "--rows", metavar="N", help="How many rows to draw.")] = 10
    given: GivenOption = ""
    seed: options.DrawSeedOption = options.SEED
    out: RowsOutOption = options.STANDARD
    device: options.DeviceOption = options.DEVICE
    memory_budget: options.BudgetOption = None
    trust: options.TrustOption = False


@dataclass(frozen=True, kw_only=True)
class Impute:
    """Fill the missing cells of a table from a model.

    Known values do not change. Columns are matched by name. A column of the
    model that the file does not have is added. Columns that were left out of
    the training are copied.
    """

    model: options.ModelArgument
    data: options.FileArgument
    how: HowOption = "mean"
    seed: options.DrawSeedOption = options.SEED
    out: RowsOutOption = options.STANDARD
    missing: options.MissingOption = None
    unseen: options.UnseenToFillOption = options.UnseenToFill.error
    types: options.CopiedOption = None
    header: options.HeaderOption = None
    device: options.DeviceOption = options.DEVICE
    memory_budget: options.BudgetOption = None
    trust: options.TrustOption = False
