"""`circurve statistics` and `circurve merge`: an E-step over a share of the rows as a file, and files added up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from circurve.cli import options
from circurve.cli.files import check_target, read_training
from circurve.cli.loading import Part, Source, files_of, load, parts_for, source_for
from circurve.cli.parse import parse_bytes, parse_dropped
from circurve.cli.show import number, print_facts, print_json, significant
from circurve.curvature.shards import ShardStatistics, load_statistics, merge_statistics
from circurve.curvature.shards import statistics as measure
from circurve.data.convert import about
from circurve.errors import OptionError
from circurve.model import load as load_model

__all__ = ["merge", "statistics"]

SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


def statistics(  # noqa: PLR0913 - each parameter is an option
    model: options.ModelArgument,
    data: options.DataArgument,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The statistics file to write, .npz.")],
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Use the I-th of N equal shards of the rows, counted from 1. Without it, all rows."
        ),
    ] = None,
    split: options.PartOption = Part.train,
    device: options.DeviceOption = options.DEVICE,
    memory_budget: options.BudgetOption = None,
    data_dir: options.DataDirOption = None,
    missing: options.MissingOption = None,
    types: options.DroppedOption = None,
    header: options.HeaderOption = None,
    trust: options.TrustOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Measure a model on a share of the rows: sums of its E-step and its curvature.

    Each machine measures its own rows; `circurve merge` adds the files up.
    """
    place = None if shard is None else _parse_shard(shard)
    source = Source(data, data_dir, header, missing, dropped=parse_dropped(types), trust=trust)
    check_target("--out", out, (model, *files_of(source)))
    loaded = load_model(model, device, trust=trust)
    dataset = load(source_for(loaded, source))
    if split is Part.all:
        raise OptionError("--split all: statistics are measured on one part; choose train, valid or test")
    training = {"columns": read_training(model, trust).get("columns")}  # a file is measured whole, however it was split
    part = next(iter(parts_for(loaded, dataset, split, training, data).values()))
    with about(data):
        found = measure(loaded, part, shard=place, memory_budget=parse_bytes(memory_budget))
    found.save(out)
    report = {"command": "statistics", "model": str(model), "dataset": dataset.name, **_facts(found), "out": str(out)}
    print_json(report) if as_json else _print(report)


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Statistics files.")],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the sum of all statistics to this file.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="The model that was measured; needed for --step.")
    ] = None,
    step: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the model after one step of EM on all rows to this file.")
    ] = None,
    trust: options.TrustOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Add up files of `circurve statistics`: log-likelihood and curvature of all rows, and one step of EM.

    The order of the files does not matter. It is an error to give the same
    shard twice, or shards of different models.
    """
    if (step is None) != (model is None):
        raise OptionError(
            "--step needs --model: pass both, --model for the model that was measured and --step for the file of the "
            "new one"
        )
    for option, target in (("--out", out), ("--step", step)):
        if target is not None:
            check_target(option, target, (*files, model))
    merged = merge_statistics([load_statistics(file, trust=trust) for file in files])
    if out is not None:
        merged.save(out)
    if model is not None and step is not None:
        merged.maximize(load_model(model, trust=trust)).save(step)
    written = {"out": None if out is None else str(out), "step": None if step is None else str(step)}
    report = {"command": "merge", "files": [str(file) for file in files], **_facts(merged), **written}
    print_json(report) if as_json else _print(report)


def _parse_shard(text: str) -> tuple[int, int]:
    found = SHARD.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise OptionError(f"--shard must be I/N with whole numbers 1 <= I <= N, such as 2/4, not {text!r}")
    return int(found[1]), int(found[2])


def _facts(found: ShardStatistics) -> dict[str, Any]:
    return {
        "shards": list(found.shards),
        "rows": found.rows,
        "impossible_rows": int(found.sums.impossible[0]),
        "mean_ll": found.mean_log_likelihood,
        "sharpness": found.curvature.trace,
        "sum_units": len(found.curvature),
    }


def _print(report: dict[str, Any]) -> None:
    print_facts(
        {
            "shards": ", ".join(report["shards"]),
            "rows": f"{report['rows']:,}",
            "log-likelihood": number(report["mean_ll"]),
            "sharpness": significant(report["sharpness"]),
            "sum units": f"{report['sum_units']:,}",
            "statistics in": report["out"],
            "next model in": report.get("step"),
        }
    )
