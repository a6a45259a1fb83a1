"""The command `reproduce`, as a record of what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from circurve.cli import options

__all__ = ["RESUME", "TABLES", "Reproduce"]

RESUME = "--resume"

TABLES = (
    *("table-a", "table-b", "table-c", "table-d", "estimators", "pseudocounts", "readings"),
    *("study-clean", "study-scarce", "study-corrupted", "study-selected", "study-test-noise"),
    *("study-units", "study-ensembles", "study-stopping", "study-weights"),
)
"""The tables that can be computed; `reproduction` defines them."""


class ProtocolName(StrEnum):
    """How to train and choose."""

    paper = "paper"
    paper_own = "paper-own"
    smoothed = "smoothed"
    best = "best"
    fair = "fair"
    record = "record"


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Compute the tables and figures of the paper, or the leaderboard.

    Every run is recorded in FOLDER/records.jsonl as soon as it is finished, so
    you can stop the command at any time and resume it. Tables are written as
    Markdown, CSV and LaTeX, figures as PNG and SVG.
    """

    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            show_default=False,
            help=f"{', '.join(TABLES)}, fig-1 to fig-7, all for everything in the paper, "
            f"studies for every study-...; or leaderboard, which cannot be combined with others.",
        ),
    ]
    protocol: Annotated[
        ProtocolName | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=options.TRAINING,
            show_default="paper; fair for studies; record for leaderboard",
            help="paper: as in the paper; paper-own: as paper, but every column has a hidden variable of its own; "
            "smoothed: as paper, with pseudocount 0.1; best: a decreasing step, more strengths and pseudocounts, and "
            "validation also chooses the epoch; fair: for studies; record: for leaderboard.",
        ),
    ] = None
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            rich_help_panel=options.TRAINING,
            help="A quick run of some minutes, with few units, epochs, seeds and strengths. Without --data-dir it "
            "uses embedded data.",
        ),
    ] = False
    datasets: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,FILE",
            rich_help_panel=options.DATA,
            show_default="those in the paper",
            help="Data sets by name, or data files; a file with one table is split 80/10/10.",
        ),
    ] = None
    data_dir: options.DataDirOption = None
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N|N,N",
            rich_help_panel=options.TRAINING,
            show_default="5; leaderboard 3",
            help="How many seeds (5: seeds 0 to 4), or a list of them (0,3,4; seed 3 alone: 3,).",
        ),
    ] = None
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=options.TRAINING,
            show_default="from the protocol",
            help="Passes over the data; paper: 100, or 300 below 5000 rows; best: 150, or 100 below 5000 rows.",
        ),
    ] = None
    mu: Annotated[
        str | None,
        typer.Option(
            metavar="F,F",
            rich_help_panel=options.METHOD,
            show_default="from the protocol",
            help="Strengths of the penalty; validation chooses among them.",
        ),
    ] = None
    gate: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            rich_help_panel=options.METHOD,
            help="Gates of the gated method; validation chooses among them.",
        ),
    ] = "max_norm"
    units: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=options.MODEL,
            show_default="100; leaderboard: chosen by validation",
            help="Number of states of each hidden variable.",
        ),
    ] = None
    max_runs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=options.TRAINING,
            show_default="by the size of the circuit",
            help="How many runs to train at once; fewer runs need less memory.",
        ),
    ] = None
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write records, tables and figures.")] = Path(
        "reproduction"
    )
    resume: Annotated[
        bool, typer.Option(RESUME, help="Continue an earlier call with the same --out, for whatever reason it stopped.")
    ] = False
    device: options.DeviceOption = options.DEVICE
    memory_budget: options.BudgetOption = None
    engine: options.EngineOption = options.EngineName.local
    as_json: options.JsonOption = False
