"""`circurve reproduce`: the paper's tables and figures, computed again, with everything needed to check them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

import typer

from circurve.cli.commands.reproduction import RESUME, Reproduce
from circurve.cli.failures import INTERRUPTED
from circurve.cli.files import check_folder
from circurve.cli.methods import parse_gate, parse_mus, split_commas
from circurve.cli.parse import parse_bytes
from circurve.cli.show import new_console, print_facts, print_heading, print_json, print_text, progress
from circurve.errors import OptionError
from circurve.reproduction import ReproduceOptions, reproduce
from circurve.reproduction.leaderboard import FILE as LEADERBOARD_FILE
from circurve.reproduction.leaderboard import LEADERBOARD
from circurve.reproduction.outputs import (
    FigureOutput,
    Outputs,
    targets_of,
    usual_protocol,
)
from circurve.reproduction.plan import portable_command
from circurve.reproduction.records import FILE_NAME, read_records
from circurve.reproduction.table import Report, print_report
from circurve.words import counted

__all__ = ["reproduce_command"]


def reproduce_command(typed: Reproduce) -> None:
    """Compute the tables and figures of the paper, or the leaderboard."""
    chosen = targets_of(typed.targets)
    asked = ReproduceOptions(
        protocol=usual_protocol(chosen) if typed.protocol is None else typed.protocol.value,
        datasets=None if typed.datasets is None else split_commas(typed.datasets, "--datasets"),
        seeds=None if typed.seeds is None else parse_seeds(typed.seeds),
        epochs=typed.epochs,
        mu=None if typed.mu is None else parse_mus(typed.mu),
        gate=tuple(parse_gate(name) for name in split_commas(typed.gate, "--gate")),
        data_dir=typed.data_dir,
        out=typed.out,
        device=typed.device,
        units=typed.units,
        quick=typed.quick,
        max_runs=typed.max_runs,
        engine=typed.engine.value,
        memory_budget=parse_bytes(typed.memory_budget),
    )
    check_folder("--out", typed.out)
    words = [word for word in sys.argv[1:] if word != RESUME]
    command = portable_command(["circurve", *words])
    tell = (lambda _: None) if typed.as_json else _show
    try:
        outputs = reproduce(chosen, asked, resume=typed.resume, command=command, tell=tell, progress=progress)
    except KeyboardInterrupt:
        runs = counted(len(read_records(typed.out / _file(chosen))), "run is", "runs are")
        print(
            f"circurve: interrupted; {runs} recorded in {typed.out}; to continue, add {RESUME}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED) from None
    _print_json(outputs, asked) if typed.as_json else _print_files(outputs, asked, _file(chosen))


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
