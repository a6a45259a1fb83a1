"""`circurve fit`: train a model, report its log-likelihoods, write its file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import typer

import circurve.learning
from circurve.cli.failures import INTERRUPTED, NotSavedError
from circurve.cli.files import check_target, save_model
from circurve.cli.fit_options import (
    BatchSizeOption,
    EpochsOption,
    MethodOption,
    NoSplitOption,
    OutOption,
    PatienceOption,
    PrecisionOption,
    PseudocountOption,
    SeedOption,
    SelectOption,
    SharesOption,
    StepSizeOption,
    StructureOption,
    TestOption,
    ToleranceOption,
    UnitsOption,
    ValidOption,
)
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
    parse_batch_size,
    parse_shares,
    parse_step_size,
)
from circurve.cli.show import measured, print_facts, print_json, print_scores, progress
from circurve.cli.tables import HeldOut, Source, load_in_parts, parts_of, rows_of
from circurve.data import Dataset
from circurve.errors import CircurveError, OptionError
from circurve.learning import FitResult, Run
from circurve.learning.options import Settings
from circurve.model import as_device

__all__ = ["fit"]

STOPPED = {
    "epochs": "all epochs done",
    "tolerance": "gained less than the tolerance",
    "patience": "validation got no better",
    "callback": "stopped by a callback",
    "interrupted": "interrupted",
}


@dataclass(frozen=True)
class Job:
    """A training with all its options checked."""

    shape: Shape
    run: Run
    settings: Settings
    step_size: str | float
    """As it was typed, where it was."""


def fit(  # noqa: PLR0913 - each parameter is an option
    data: DataArgument,
    *,
    out: OutOption = None,
    structure: StructureOption = Structure.hclt,
    units: UnitsOption = 100,
    method: MethodOption = MethodName.vanilla,
    pseudocount: PseudocountOption = 0.0,
    epochs: EpochsOption = 100,
    batch_size: BatchSizeOption = "200",
    step_size: StepSizeOption = None,
    seed: SeedOption = 0,
    select: SelectOption = None,
    patience: PatienceOption = None,
    tolerance: ToleranceOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = Precision.float32,
    data_dir: DataDirOption = None,
    valid: ValidOption = None,
    test: TestOption = None,
    split: SharesOption = None,
    no_split: NoSplitOption = False,
    missing: MissingOption = None,
    header: HeaderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on a data set or a file.

    A file with a single table is split at random, with the seed: 80 % of its
    rows for training, 10 % for validation, 10 % for test, unless the options
    under Data say otherwise. Ctrl-C ends the training and keeps what was
    learned so far.
    """
    settings = Settings(
        epochs=epochs,
        batch_size=parse_batch_size(batch_size),
        step_size=None if step_size is None else parse_step_size(step_size),
        tolerance=tolerance,
        patience=patience,
        select=None if select is None else select.value,
        device=as_device(device),
        precision=precision.value,
    )
    run = Run(build_method(method, pseudocount), seed)
    job = Job(Shape(structure, units), run, settings, step_size or cast("float", settings.step))
    held = HeldOut(valid, test, None if split is None else parse_shares(split), no_split)
    if out is not None:
        check_target(out, (data, valid, test))
    parts = load_in_parts(Source(data, data_dir, header, missing), held, seed)
    if parts.valid is None and (patience is not None or settings.select == "best"):
        raise OptionError("--patience and --select best need validation rows: give --valid FILE or a share in --split")
    if out is None:
        print("circurve: warning: no --out FILE, so the model will not be saved", file=sys.stderr)
    result = train(job, parts)
    finish(result, describe(job, parts, result), out, as_json)


def train(job: Job, data: Dataset) -> FitResult:
    """Build the circuit and train it."""
    settings = job.settings
    circuit = build_circuit(job.shape, data, job.run.seed)
    progress(f"{data!r}\n{circuit.describe().parameters:,} parameters, {settings.device}, {settings.precision}")
    return circurve.learning.fit(
        circuit,
        data.train,
        valid=data.valid,
        test=data.test,
        method=job.run.method,
        seed=job.run.seed,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        step_size=settings.step_size,
        tolerance=settings.tolerance,
        patience=settings.patience,
        select=settings.select,
        device=settings.device,
        precision=settings.precision,
    )


def describe(job: Job, data: Dataset, result: FitResult) -> dict[str, Any]:
    """All fields of the report but `out`."""
    return {
        "command": "fit",
        "dataset": data.name,
        "rows": rows_of(parts_of(data)),
        "variables": data.train.shape[1],
        "structure": job.shape.structure.value,
        "units": job.shape.units,
        "method": type(job.run.method).__name__.lower(),
        "pseudocount": job.run.method.pseudocount,
        "seed": job.run.seed,
        "batch_size": job.settings.batch_size or "full",
        "step_size": job.step_size,
        "precision": job.settings.precision,
        "epochs": len(result.history),
        "epoch": result.epoch,
        "stopped": result.stopped,
        "train_ll": result.train_ll,
        "valid_ll": result.valid_ll,
        "test_ll": result.test_ll,
        "sharpness": sharpness(result.model, data.train),
        "dof": degree_of_overfitting(result.train_ll, result.valid_ll),
        "parameters": result.model.circuit.describe().parameters,
        "seconds": round(result.seconds, 3),
        "device": str(result.model.device),
    }


def finish(result: FitResult, report: dict[str, Any], out: Path | None, as_json: bool) -> None:
    """Write the file, print the report, and say how it ended; a file that cannot be written hides no numbers."""
    failure: Exception | None = None
    if out is not None:
        try:
            save_model(out, result.model, report)
        except (CircurveError, OSError) as error:
            failure, out = error, None
    report = {**report, "out": None if out is None else str(out)}
    print_json(report) if as_json else _print(report)
    if failure is not None:
        raise NotSavedError(str(failure)) from failure
    if result.stopped == "interrupted":
        kept = "nothing was saved, there is no --out" if out is None else f"the model so far is saved in {out}"
        print(f"circurve: interrupted after {report['epochs']} whole epochs; {kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _print(report: dict[str, Any]) -> None:
    title = f"{report['dataset']}: {report['structure']}, {report['units']} units, {report['method']}"
    print_scores(title, report)
    facts = {
        **measured(report),
        "epochs": f"{report['epochs']:,} ({STOPPED[report['stopped']]}), model of epoch {report['epoch']:,}",
        "time": f"{report['seconds']:.1f} s on {report['device']}",
        "saved in": report["out"],
    }
    print_facts(facts)
