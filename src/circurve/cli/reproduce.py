"""`circurve reproduce`: the paper's tables and figures, computed again, with everything needed to check them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from circurve.cli import options
from circurve.cli.failures import INTERRUPTED
from circurve.cli.files import check_folder
from circurve.cli.methods import parse_gate, parse_mus, split_commas
from circurve.cli.parse import parse_bytes
from circurve.cli.show import new_console, print_facts, print_heading, print_json, print_text, progress
from circurve.errors import OptionError
from circurve.experiments import ReproduceOptions, reproduce
from circurve.experiments.leaderboard import FILE as LEADERBOARD_FILE
from circurve.experiments.leaderboard import LEADERBOARD
from circurve.experiments.outputs import (
    ALL,
    ALL_STUDIES,
    FIGURE_NAMES,
    TABLES,
    FigureOutput,
    Outputs,
    targets_of,
    usual_protocol,
)
from circurve.experiments.plan import portable_command
from circurve.experiments.records import FILE_NAME, read_records
from circurve.experiments.table import Report, print_report

__all__ = ["reproduce_command"]

RESUME = "--resume"


class ProtocolName(StrEnum):
    """How to train and choose."""

    paper = "paper"
    paper_own = "paper-own"
    smoothed = "smoothed"
    best = "best"
    fair = "fair"
    record = "record"


def reproduce_command(  # noqa: PLR0913 - each parameter is an option
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET",
            show_default=False,
            help=f"{', '.join(TABLES)}, {FIGURE_NAMES[0]} to {FIGURE_NAMES[-1]}, {ALL} for everything in the paper, "
            f"{ALL_STUDIES} for every study-...; or {LEADERBOARD}, which cannot be combined with others.",
        ),
    ],
    *,
    protocol: Annotated[
        ProtocolName | None,
        typer.Option(
            rich_help_panel=options.TRAINING,
            show_default="paper; fair for studies; record for leaderboard",
            help="paper: as in the paper; paper-own: as paper, but every column has a hidden variable of its own; "
            "smoothed: as paper, with pseudocount 0.1; best: a decreasing step, more strengths and pseudocounts, and "
            "validation also chooses the epoch; fair: for studies; record: for leaderboard.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            rich_help_panel=options.TRAINING,
            help="A quick run of some minutes, with few units, epochs, seeds and strengths. Without --data-dir it "
            "uses embedded data.",
        ),
    ] = False,
    datasets: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,FILE",
            rich_help_panel=options.DATA,
            show_default="those in the paper",
            help="Data sets by name, or data files; a file with one table is split 80/10/10.",
        ),
    ] = None,
    data_dir: options.DataDirOption = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N|N,N",
            rich_help_panel=options.TRAINING,
            show_default="5; leaderboard 3",
            help="How many seeds (5: seeds 0 to 4), or a list of them (0,3,4; seed 3 alone: 3,).",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=options.TRAINING,
            show_default="from the protocol",
            help="Passes over the data; paper: 100, or 300 below 5000 rows; best: 150, or 100 below 5000 rows.",
        ),
    ] = None,
    mu: Annotated[
        str | None,
        typer.Option(
            metavar="F,F",
            rich_help_panel=options.METHOD,
            show_default="from the protocol",
            help="Strengths of the penalty; validation chooses among them.",
        ),
    ] = None,
    gate: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            rich_help_panel=options.METHOD,
            help="Gates of the gated method; validation chooses among them.",
        ),
    ] = "max_norm",
    units: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=options.MODEL,
            show_default="100; leaderboard: chosen by validation",
            help="Number of states of each hidden variable.",
        ),
    ] = None,
    max_runs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=options.TRAINING,
            show_default="by the size of the circuit",
            help="How many runs to train at once; fewer runs need less memory.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write records, tables and figures.")] = Path(
        "reproduction"
    ),
    resume: Annotated[
        bool, typer.Option(RESUME, help="Continue an earlier call with the same --out, for whatever reason it stopped.")
    ] = False,
    device: options.DeviceOption = options.DEVICE,
    memory_budget: options.BudgetOption = None,
    engine: options.EngineOption = options.EngineName.local,
    as_json: options.JsonOption = False,
) -> None:
    """Compute the tables and figures of the paper, or the leaderboard.

    Every run is recorded in FOLDER/records.jsonl as soon as it is finished, so
    you can stop the command at any time and resume it. Tables are written as
    Markdown, CSV and LaTeX, figures as PNG and SVG.
    """
    chosen = targets_of(targets)
    asked = ReproduceOptions(
        protocol=usual_protocol(chosen) if protocol is None else protocol.value,
        datasets=None if datasets is None else split_commas(datasets, "--datasets"),
        seeds=None if seeds is None else parse_seeds(seeds),
        epochs=epochs,
        mu=None if mu is None else parse_mus(mu),
        gate=tuple(parse_gate(name) for name in split_commas(gate, "--gate")),
        data_dir=data_dir,
        out=out,
        device=device,
        units=units,
        quick=quick,
        max_runs=max_runs,
        engine=engine.value,
        memory_budget=parse_bytes(memory_budget),
    )
    check_folder("--out", out)
    words = [word for word in sys.argv[1:] if word != RESUME]
    command = portable_command(["circurve", *words])
    tell = (lambda _: None) if as_json else _show
    try:
        outputs = reproduce(chosen, asked, resume=resume, command=command, tell=tell, progress=progress)
    except KeyboardInterrupt:
        known = len(read_records(out / _file(chosen)))
        print(f"circurve: interrupted; {known} runs are recorded in {out}; to continue, add {RESUME}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _print_json(outputs, asked) if as_json else _print_files(outputs, asked, _file(chosen))


def _file(targets: Sequence[str]) -> str:
    """The name of the file of records."""
    return LEADERBOARD_FILE if targets == (LEADERBOARD,) else FILE_NAME


def parse_seeds(text: str) -> tuple[int, ...]:
    """`5` is 0 to 4; `3,7` is these two; `3,` is seed 3."""
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in text.removesuffix(",").split(",")))
    except ValueError:
        numbers = ()
    seeds = numbers if "," in text or not numbers else tuple(range(numbers[0]))
    if not seeds or min(seeds) < 0:
        raise OptionError(f"--seeds must be a number of seeds (5) or a list of seeds (0,3,4), not {text!r}")
    return seeds


def _show(output: Report | FigureOutput) -> None:
    if isinstance(output, Report):
        print_report(output, new_console())
    else:
        print_heading(f"{output.name}: {output.title}")
        print_text(output.reading)
        print_text(*output.findings)
        print_text(*output.notes)


def _print_files(outputs: Outputs, asked: ReproduceOptions, records: str) -> None:
    names = sorted({path.stem for path in outputs.files})
    endings = {name: ", ".join(path.suffix[1:] for path in outputs.files if path.stem == name) for name in names}
    print_facts(
        {
            "records": str(asked.out / records),
            **{name: f"{asked.out / name}.{{{endings[name]}}}" for name in names},
        }
    )


def _print_json(outputs: Outputs, asked: ReproduceOptions) -> None:
    print_json(
        {
            "command": "reproduce",
            "out": asked.out,
            "protocol": asked.protocol,
            "quick": asked.quick,
            "tables": {
                report.name: {"title": report.title, "values": list(report.values), "notes": list(report.notes)}
                for report in outputs.reports
            },
            "figures": {figure.name: asdict(figure) for figure in outputs.figures},
            "files": [str(path) for path in outputs.files],
        }
    )
