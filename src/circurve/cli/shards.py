"""`circurve statistics` and `circurve merge`: an E-step over a share of the rows as a file, and files added up."""

from __future__ import annotations

import operator
import re
from functools import reduce
from typing import Any

from circurve.cli.commands.shards import Merge, Statistics
from circurve.cli.files import check_target, read_training
from circurve.cli.loading import Source, files_of, open_data, parts_for, source_for
from circurve.cli.parse import parse_bytes, parse_dropped
from circurve.cli.show import number, print_facts, print_json, significant
from circurve.curvature.shards import ShardStatistics, merge_files
from circurve.curvature.shards import statistics as measure
from circurve.data.convert import about
from circurve.errors import OptionError
from circurve.model import load as load_model

__all__ = ["merge", "statistics"]

SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


def statistics(typed: Statistics) -> None:
    """Measure a model on a share of the rows: sums of its E-step and its curvature."""
    place = None if typed.shard is None else _parse_shard(typed.shard)
    budget = parse_bytes(typed.memory_budget)
    source = Source(
        typed.data,
        typed.data_dir,
        typed.header,
        typed.missing,
        dropped=parse_dropped(typed.types),
        trust=typed.trust,
        memory_budget=budget,
    )
    check_target("--out", typed.out, (typed.model, *files_of(source)))
    loaded = load_model(typed.model, typed.device, trust=typed.trust, memory_budget=budget)
    dataset = open_data(source_for(loaded, source))
    training = {
        "columns": read_training(typed.model, typed.trust).get("columns")
    }  # a file is measured whole, however it was split
    rows = reduce(operator.add, parts_for(loaded, dataset, typed.split, training, typed.data).values())
    with about(typed.data):
        found = measure(loaded, rows, shard=place, memory_budget=budget)
    found.save(typed.out)
    report = {
        "command": "statistics",
        "model": str(typed.model),
        "dataset": dataset.name,
        **_facts(found),
        "out": str(typed.out),
    }
    print_json(report) if typed.as_json else _print(report)


def merge(typed: Merge) -> None:
    """Add up files of `circurve statistics`: log-likelihood and curvature of all rows, and one step of EM."""
    if (typed.step is None) != (typed.model is None):
        raise OptionError(
            "--step needs --model: pass both, --model for the model that was measured and --step for the file of the "
            "new one"
        )
    for option, target in (("--out", typed.out), ("--step", typed.step)):
        if target is not None:
            check_target(option, target, (*typed.files, typed.model))
    budget = parse_bytes(typed.memory_budget)
    merged = merge_files(typed.files, trust=typed.trust, memory_budget=budget)
    if typed.out is not None:
        merged.save(typed.out)
    if typed.model is not None and typed.step is not None:
        merged.maximize(load_model(typed.model, trust=typed.trust, memory_budget=budget)).save(typed.step)
    written = {
        "out": None if typed.out is None else str(typed.out),
        "step": None if typed.step is None else str(typed.step),
    }
    report = {"command": "merge", "files": [str(file) for file in typed.files], **_facts(merged), **written}
    print_json(report) if typed.as_json else _print(report)


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
