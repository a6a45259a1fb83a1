"""`circurve reproduce`: the paper's tables and figures, computed anew, with everything needed to trust them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from circurve.cli.failures import INTERRUPTED
from circurve.cli.files import check_folder
from circurve.cli.methods import parse_gate, parse_mus
from circurve.cli.options import DATA, DEVICE, METHOD, MODEL, TRAINING, DataDirOption, DeviceOption, JsonOption
from circurve.cli.show import WIDTH, print_facts, print_heading, print_json, print_text, progress
from circurve.errors import OptionError
from circurve.experiments import ReproduceOptions, reproduce
from circurve.experiments.outputs import ALL, FIGURE_NAMES, TABLES, FigureOutput, Outputs, targets_of
from circurve.experiments.provenance import portable_command
from circurve.experiments.records import FILE_NAME, read_records
from circurve.experiments.table import Report, print_report

__all__ = ["reproduce_command"]

RESUME = "--resume"


class ProtocolName(StrEnum):
    """How to train and choose."""

    paper = "paper"
    best = "best"


def reproduce_command(  # noqa: PLR0913 - each parameter is an option
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            show_default=False,
            help=f"{', '.join(TABLES)}, {FIGURE_NAMES[0]} to {FIGURE_NAMES[-1]}, or {ALL}.",
        ),
    ],
    *,
    protocol: Annotated[
        ProtocolName,
        typer.Option(
            rich_help_panel=TRAINING,
            help="paper: the paper's way; best: a falling step, more strengths, pseudocounts, and the epoch, too, "
            "chosen by validation.",
        ),
    ] = ProtocolName.paper,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            rich_help_panel=TRAINING,
            help="A first look in minutes: few units, epochs, seeds and strengths; embedded data without --data-dir.",
        ),
    ] = False,
    datasets: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,FILE",
            rich_help_panel=DATA,
            show_default="those of the paper",
            help="Data sets by name, or data files; a file with one table is split 80/10/10.",
        ),
    ] = None,
    data_dir: DataDirOption = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N|N,N", rich_help_panel=TRAINING, show_default="5", help="How many seeds, from 0 on, or which."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=TRAINING,
            show_default="the protocol's",
            help="Passes over the data; paper: 100, or 300 below 5000 rows; best: 150, or 100 below 5000 rows.",
        ),
    ] = None,
    mu: Annotated[
        str | None,
        typer.Option(
            metavar="F,F",
            rich_help_panel=METHOD,
            show_default="the protocol's",
            help="Strengths of the penalty to choose from by validation.",
        ),
    ] = None,
    gate: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME",
            rich_help_panel=METHOD,
            help="Gates of the gated method; of several, validation chooses.",
        ),
    ] = "max_norm",
    units: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=MODEL, show_default="100", help="States of each latent."),
    ] = None,
    max_runs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=TRAINING,
            show_default="by the size of the circuit",
            help="Runs to train at once; fewer need less memory.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where records, tables and figures go.")] = Path(
        "reproduction"
    ),
    resume: Annotated[
        bool, typer.Option(RESUME, help="Go on where an earlier call with the same --out stopped, however it stopped.")
    ] = False,
    device: DeviceOption = DEVICE,
    as_json: JsonOption = False,
) -> None:
    """Compute tables and figures of the paper anew.

    Every run is recorded in FOLDER/records.jsonl as soon as it is known, so
    that a call can be stopped at any moment and resumed. Tables are written
    as Markdown, CSV and LaTeX, figures as PNG and SVG.
    """
    chosen = targets_of(targets)
    options = ReproduceOptions(
        protocol=protocol.value,
        datasets=None if datasets is None else _parts("--datasets", datasets),
        seeds=None if seeds is None else parse_seeds(seeds),
        epochs=epochs,
        mu=None if mu is None else parse_mus(mu),
        gate=tuple(parse_gate(name) for name in _parts("--gate", gate)),
        data_dir=data_dir,
        out=out,
        device=device,
        units=units,
        quick=quick,
        max_runs=max_runs,
    )
    check_folder("--out", out)
    words = [word for word in sys.argv[1:] if word != RESUME]
    command = portable_command(["circurve", *words])
    tell = (lambda _: None) if as_json else _show
    try:
        outputs = reproduce(chosen, options, resume=resume, command=command, tell=tell, progress=progress)
    except KeyboardInterrupt:
        known = len(read_records(out / FILE_NAME))
        print(f"circurve: interrupted; {known} runs are recorded in {out}, go on with {RESUME}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    _print_json(outputs, options) if as_json else _print_files(outputs, options)


def parse_seeds(text: str) -> tuple[int, ...]:
    """`5` is 0 to 4; `3,7` is these two."""
    try:
        numbers = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        numbers = (-1,)
    if min(numbers) < 0 or numbers == (0,):
        raise OptionError(f"--seeds must be how many (5) or which (0,3,4), not {text!r}")
    return numbers if "," in text else tuple(range(numbers[0]))


def _parts(option: str, text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if "" in parts:
        raise OptionError(f"{option} has a gap between its commas: {text!r}")
    return parts


def _show(output: Report | FigureOutput) -> None:
    if isinstance(output, Report):
        console = Console(markup=False, highlight=False, emoji=False)
        console.width = max(console.width, WIDTH)
        print_report(output, console)
    else:
        print_heading(f"{output.name}: {output.title}")
        print_text(output.reading)
        print_text(*output.findings)
        print_text(*output.notes)


def _print_files(outputs: Outputs, options: ReproduceOptions) -> None:
    names = sorted({path.stem for path in outputs.files})
    endings = {name: ", ".join(path.suffix[1:] for path in outputs.files if path.stem == name) for name in names}
    print_facts(
        {
            "records": str(options.out / FILE_NAME),
            **{name: f"{options.out / name}.{{{endings[name]}}}" for name in names},
        }
    )


def _print_json(outputs: Outputs, options: ReproduceOptions) -> None:
    print_json(
        {
            "command": "reproduce",
            "out": options.out,
            "protocol": options.protocol,
            "quick": options.quick,
            "tables": {
                report.name: {"title": report.title, "values": list(report.values), "notes": list(report.notes)}
                for report in outputs.reports
            },
            "figures": {figure.name: asdict(figure) for figure in outputs.figures},
            "files": [str(path) for path in outputs.files],
        }
    )
