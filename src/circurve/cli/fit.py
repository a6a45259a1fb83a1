"""`circurve fit`: train a model, report its log-likelihoods, write its file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

import circurve.learning
from circurve.cli.failures import INTERRUPTED, NotSavedError
from circurve.cli.files import check_target, save_model
from circurve.cli.measures import degree_of_overfitting, sharpness
from circurve.cli.models import MethodName, Shape, Structure, build_circuit, build_method
from circurve.cli.options import (
    DataArgument,
    DataDirOption,
    DeviceOption,
    HeaderOption,
    JsonOption,
    MissingOption,
    Precision,
    Select,
    parse_batch_size,
    parse_shares,
    parse_step_size,
)
from circurve.cli.show import number, print_facts, print_json, print_table, progress
from circurve.cli.tables import HeldOut, Source, load_in_parts, parts_of, rows_of
from circurve.data import Dataset
from circurve.errors import FileAccessError, OptionError
from circurve.learning import FitResult, Run
from circurve.learning.options import Settings
from circurve.model import as_device

__all__ = ["fit"]

MODEL, TRAINING, DATA = "Model", "Training", "Data"


def fit(  # noqa: PLR0913 - each parameter is one option
    data: DataArgument,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write the model.")] = None,
    structure: Annotated[Structure, typer.Option(rich_help_panel=MODEL, help="Kind of circuit.")] = Structure.hclt,
    units: Annotated[int, typer.Option(metavar="N", rich_help_panel=MODEL, help="Latent states per sum.")] = 100,
    method: Annotated[MethodName, typer.Option(rich_help_panel=TRAINING, help="M-step.")] = MethodName.vanilla,
    pseudocount: Annotated[float, typer.Option(metavar="F", rich_help_panel=TRAINING, help="Per sum and step.")] = 0.0,
    epochs: Annotated[int, typer.Option(metavar="N", rich_help_panel=TRAINING, help="Passes over the data.")] = 100,
    batch_size: Annotated[str, typer.Option(metavar="N|full", rich_help_panel=TRAINING, help="Rows per step.")] = "200",
    step_size: Annotated[
        str | None,
        typer.Option(
            metavar="F|KIND:F:F",
            rich_help_panel=TRAINING,
            help="A number in (0, 1], or cosine, linear or exponential from one to another, as in cosine:0.2:0.005. "
            "Default: 0.1, or 1 with --batch-size full.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", rich_help_panel=TRAINING, help="Of everything random.")] = 0,
    select: Annotated[
        Select | None,
        typer.Option(rich_help_panel=TRAINING, help="Epoch to keep. Default: best if there is validation data."),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=TRAINING, help="Stop after N epochs without a better valid_ll."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(metavar="F", rich_help_panel=TRAINING, help="Stop when an epoch raises train_ll by less."),
    ] = None,
    device: DeviceOption = "auto",
    precision: Annotated[Precision, typer.Option(rich_help_panel=TRAINING, help="Of numbers.")] = Precision.float32,
    data_dir: DataDirOption = None,
    valid: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=DATA, help="Validation rows.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=DATA, help="Test rows.")] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="F,F,F", rich_help_panel=DATA, help="Shares of one table to train, validate, test; 0.8,0.1,0.1."
        ),
    ] = None,
    no_split: Annotated[
        bool, typer.Option("--no-split", rich_help_panel=DATA, help="Train on all rows of one table.")
    ] = False,
    missing: MissingOption = None,
    header: HeaderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on a data set or a file.

    A file with a single table is split 80/10/10 into rows for training, validation and test, drawn with the seed;
    --split, --no-split, --valid and --test change that. Ctrl-C ends the training and keeps what was learned so far.
    """
    settings = Settings(
        epochs=epochs,
        batch_size=parse_batch_size(batch_size),
        step_size=None if step_size is None else parse_step_size(step_size),
        tolerance=tolerance,
        patience=patience,
        select=cast("Literal['best', 'last'] | None", select and select.value),
        device=as_device(device),
        precision=cast("Literal['float32', 'float64']", precision.value),
    )
    run, shape = Run(build_method(method, pseudocount), seed), Shape(structure, units)
    held = HeldOut(valid, test, None if split is None else parse_shares(split), no_split)
    if out is None:
        print("circurve: warning: no --out FILE, so the model will not be saved", file=sys.stderr)
    else:
        check_target(out, (data, valid, test))
    parts = load_in_parts(Source(data, data_dir, header, missing), held, seed)
    result = _train(parts, shape, run, settings)
    report = {**_describe(parts, shape, result), "step_size": step_size or settings.step}
    report |= {"batch_size": settings.batch_size or "full", "precision": precision.value, "device": settings.device}
    _finish(result, report, out, as_json)
