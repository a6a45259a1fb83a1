"""The commands that train: `demo`, `fit` and `sweep`, as records of what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from circurve.cli import options
from circurve.cli.option_records import HeldOutOptions, MethodOptions, SourceOptions, TrainingOptions
from circurve.learning.options import Settings

__all__ = ["Demo", "Fit", "Sweep"]


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train three methods on embedded data and compare them, in half a minute.

    The methods are plain EM, the same penalty on the curvature of every sum
    node, and a penalty gated by each node's own curvature. All start from the
    same parameters. The command writes a page about the best of them, to open
    in a browser.
    """

    seed: options.SeedOption = options.SEED
    report: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path("circurve-demo.html")
    memory_budget: options.BudgetOption = None
    as_json: options.JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Train a model on a data set or a file.

    A file with a single table is split at random, with the seed: 80 % of its
    rows for training, 10 % for validation, 10 % for test, unless the options
    under Data say otherwise. Ctrl-C ends the training and keeps what was
    learned so far.
    """

    context: typer.Context
    data: options.DataArgument
    out: options.OutOption = None
    plot: options.PlotOption = None
    report: options.ReportOption = None
    structure: options.StructureOption = options.Structure.hclt
    units: options.UnitsToChooseOption = "100"
    leaves: options.LeavesOption = None
    ensemble: options.EnsembleOption = None
    boosted: options.BoostedOption = 0
    joint_epochs: options.JointEpochsOption = 0
    method: options.MethodOption = options.MethodName.vanilla
    mu: options.MuOption = None
    gate: options.GateOption = None
    method_options: MethodOptions
    training: TrainingOptions
    init: options.InitOption = options.INIT
    track: options.TrackOption = Settings.track
    reading: SourceOptions
    holding: HeldOutOptions
    as_json: options.JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Compare methods and strengths over several seeds, all trained at once.

    Every method with every mu (and every gate) is trained from every seed on
    the same data and circuit. The table shows means and standard deviations
    over seeds, and marks for each method the mu with the best mean validation
    log-likelihood.
    """

    data: options.DataArgument
    methods: options.MethodsOption = "vanilla,global,gated"
    mu: options.MusOption = "0.001,0.01,0.1"
    gates: options.GatesOption = None
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N", rich_help_panel=options.TRAINING, help="Number of seeds for each setting, counted from --seed."
        ),
    ] = 5
    out_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A folder for the models of all runs; it is created if necessary."),
    ] = None
    ensemble: Annotated[
        bool,
        typer.Option(
            "--ensemble",
            help="Also mix all runs into one model, with weights found on validation rows, and save it in --out-dir.",
        ),
    ] = False
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a table with a row for each run.")] = None
    plot: options.PlotOption = None
    structure: options.StructureOption = options.Structure.hclt
    units: options.UnitsOption = 100
    leaves: options.LeavesOption = None
    method_options: MethodOptions
    training: TrainingOptions
    reading: SourceOptions
    holding: HeldOutOptions
    engine: options.EngineOption = options.EngineName.local
    as_json: options.JsonOption = False
