"""`circurve data`: which data sets there are, what is in them, and downloads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from circurve.cli.commands.data import DataDownload, DataInfo, DataList
from circurve.cli.info import print_schema
from circurve.cli.loading import SPLITS, Source, common_schema, load, parts_of, rows_of
from circurve.cli.parse import parse_bytes, parse_types
from circurve.cli.show import family_label, print_facts, print_heading, print_json, print_table
from circurve.data import DatasetInfo, Table, cache_folder, download_dataset, list_datasets
from circurve.data.catalogue import ELSEWHERE, SOURCES, check_collected
from circurve.data.debd import COLLECTION
from circurve.data.need import check_inferred
from circurve.errors import OptionError
from circurve.structures import scan_columns

__all__ = ["describe", "download", "list_known"]

SHOWN = 8
"""How many columns are named in one line."""


def list_known(typed: DataList) -> None:
    """List the data sets that can be given by name."""
    listed = list_datasets(typed.data_dir)
    if typed.as_json:
        entries = [
            {**asdict(item), "rows": dict(zip(SPLITS, item.rows or (), strict=False)) or None} for item in listed
        ]
        found = {"data_dir": typed.data_dir, "cache": cache_folder(), "datasets": entries}
        print_json({"command": "data list", **found})
        return
    rows = [
        (
            item.name,
            _count(item.variables),
            *(_count(n) for n in item.rows or (None,) * 3),
            _where(item, typed.data_dir),
        )
        for item in listed
    ]
    print_table(("name", "variables", *SPLITS, "where"), rows, texts=["where"])


def describe(typed: DataInfo) -> None:
    """Show what is in a data set or a file."""
    budget = parse_bytes(typed.memory_budget)
    source = Source(
        typed.data,
        typed.data_dir,
        typed.header,
        typed.missing,
        parse_types(typed.types),
        trust=typed.trust,
        memory_budget=budget,
    )
    dataset = load(source)
    parts = parts_of(dataset)
    left = check_inferred("data info", budget, *parts.values())
    columns = scan_columns(*parts.values(), memory_budget=left)
    constant = np.flatnonzero(~(columns.low < columns.high))
    schema = common_schema(dataset, source.types, budget)
    families = [family_label(family) for family in schema.families]
    report: dict[str, Any] = {
        "command": "data info",
        "dataset": dataset.name,
        "rows": rows_of(parts),
        "variables": dataset.train.shape[1],
        "columns": dataset.columns,
        "families": dict(Counter(families)),
        "schema": schema.to_json() if typed.as_json and not schema.plain else None,
        "read_by": dataset.train.source,
        "missing": missing_share(list(parts.values())),
        "columns_with_missing": int(columns.missing.sum()),
        "constant_columns": [int(v) if dataset.columns is None else dataset.columns[v] for v in constant],
    }
    if typed.as_json:
        print_json(report)
        return
    print_heading(dataset.name)
    if not schema.plain:
        print_schema(schema)
    _print(report)


def download(typed: DataDownload) -> None:
    """Download data sets of the public collection DEBD into the cache."""
    if bool(typed.names) == typed.everything:
        raise OptionError(
            "name one or more data sets, or pass --all, not both"
            if typed.names
            else "name one or more data sets, or pass --all"
        )
    wanted = list(dict.fromkeys(typed.names or COLLECTION))
    check_collected(wanted)
    fetched = {name: download_dataset(name) for name in wanted}
    if typed.as_json:
        entries = [{"name": name, "downloaded": new} for name, new in fetched.items()]
        print_json({"command": "data download", "cache": cache_folder(), "datasets": entries})
        return
    rows = [(name, "downloaded" if new else "already there") for name, new in fetched.items()]
    print_table(("name", "what"), rows, texts=["what"])
    print_facts({"cache": str(cache_folder())})


def missing_share(parts: list[Table]) -> float:
    """The share of values that are missing."""
    missing = sum(int((~part.observed).sum()) for part in parts if part.observed is not None)
    return missing / sum(part.values.numel() for part in parts)


def _print(report: dict[str, Any]) -> None:
    rows = ", ".join(f"{count:,} {split}" for split, count in report["rows"].items() if count is not None)
    single = list(report["rows"].values())[1:] == [None, None]
    constant = report["constant_columns"]
    columns, holed = report["columns"], report["columns_with_missing"]
    facts = {
        "rows": rows.removesuffix(" train") if single else rows,
        "variables": f"{report['variables']:,}",
        "families": ", ".join(f"{count:,} x {name}" for name, count in report["families"].items()),
        "missing": f"{report['missing']:.2%} of values, in {holed:,} of {report['variables']:,} columns",
        "constant columns": f"{len(constant):,}: {_some(constant)}" if constant else "none",
        "column names": None if columns is None else _some(columns),
        "read by": report["read_by"],
    }
    print_facts(facts if holed else {**facts, "missing": "none"})


def _some(names: Sequence[str | int]) -> str:
    return ", ".join(str(name) for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _where(item: DatasetInfo, data_dir: Path | None) -> str:
    if item.available and data_dir is not None and item.source not in SOURCES:
        return os.path.relpath(item.source, data_dir.expanduser())
    return "not in --data-dir" if item.source == ELSEWHERE else item.source


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
