"""`circurve data`: which data sets there are, what is in them, and downloads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from circurve.cli.commands.data import DataDownload, DataInfo, DataList
from circurve.cli.info import print_schema
from circurve.cli.loading import SPLITS, Source, common_schema, open_data, parts_of, rows_of
from circurve.cli.parse import parse_bytes, parse_types
from circurve.cli.show import family_label, print_facts, print_heading, print_json, print_table
from circurve.data import (
    Dataset,
    DatasetInfo,
    Stream,
    Table,
    align_source,
    cache_folder,
    download_dataset,
    is_streamed,
    list_datasets,
)
from circurve.data.catalogue import ELSEWHERE, SOURCES, check_collected
from circurve.data.convert import Names, about
from circurve.data.debd import COLLECTION
from circurve.data.need import check_inferred
from circurve.data.readers import ArrayReader
from circurve.data.scan import Columns
from circurve.errors import OptionError
from circurve.schema import Schema
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
    dataset = open_data(source)
    found = _found_in_stream(dataset, source) if is_streamed(dataset.train) else _found_in_tables(dataset, source)
    columns, schema = found.columns, found.schema
    constant = np.flatnonzero(~(columns.low < columns.high))
    families = [family_label(family) for family in schema.families]
    report: dict[str, Any] = {
        "command": "data info",
        "dataset": dataset.name,
        "rows": rows_of(parts_of(dataset)),
        "variables": dataset.train.shape[1],
        "columns": dataset.columns,
        "families": dict(Counter(families)),
        "schema": schema.to_json() if typed.as_json and not schema.plain else None,
        "read_by": found.read_by,
        "missing": found.missing,
        "columns_with_missing": int(columns.missing.sum()),
        "constant_columns": [int(v) if found.names is None else found.names[v] for v in constant],
    }
    if typed.as_json:
        print_json(report)
        return
    print_heading(dataset.name)
    if not schema.plain:
        print_schema(schema)
    _print(report)


@dataclass(frozen=True)
class _Found:
    """What a look at all rows finds."""

    schema: Schema
    columns: Columns
    names: Names
    """Of the columns that were looked at."""

    missing: float
    """The share of values that are missing."""

    read_by: str | None


def _found_in_tables(dataset: Dataset, source: Source) -> _Found:
    parts = list(parts_of(dataset).values())
    left = check_inferred("data info", source.memory_budget, *parts)
    columns = scan_columns(*parts, memory_budget=left)
    schema = common_schema(dataset, source.types, source.memory_budget)
    return _Found(schema, columns, dataset.columns, missing_share(parts), dataset.train.source)


def _found_in_stream(dataset: Dataset, source: Source) -> _Found:
    """Text has the same codes in all pieces once it is in a schema, which has no columns that --types leaves out."""
    with about(source.data):
        schema = common_schema(dataset, source.types, source.memory_budget)
        stream = cast("Stream", align_source(dataset.train, schema, unseen="error"))
    columns = scan_columns(stream, memory_budget=source.memory_budget)
    missing = 1 - stream.known_values / (stream.shape[0] * stream.shape[1])
    reader = "numpy" if isinstance(stream.reader, ArrayReader) else "pyarrow"
    return _Found(schema, columns, stream.columns, missing, f"{reader}, piece by piece")


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
