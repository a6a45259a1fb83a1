"""The Chow-Liu tree as a baseline in the paper's tables: one EM step, nothing random, recorded beside the runs."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from circurve.data import Dataset, Table, align, infer_schema
from circurve.errors import OptionError
from circurve.experiments.plan import digest, training_rows
from circurve.experiments.records import Record, RecordFile, identify
from circurve.experiments.spec import Study
from circurve.experiments.summary import Spread, spread
from circurve.experiments.table import Cell, Number, Report
from circurve.experiments.table import Table as Shown
from circurve.learning import Run, Vanilla, fit_fleet
from circurve.learning.recipe import CHOW_LIU_SMOOTHING
from circurve.schema import Schema
from circurve.structures import chow_liu

__all__ = ["BASELINES_FILE", "LEAD_COLUMNS", "Parts", "baseline_records", "chow_liu_scores", "rounded", "with_baseline"]

BASELINES_FILE = "baselines.jsonl"
NAME, HEAD = "chow_liu", "Chow-Liu\ntree"

LEAD_COLUMNS = {"table-b": 1, "table-c": 2, "table-d": 0}
"""Tables that show the baseline -> after how many columns; 0 is a row of its own."""

NOTE = (
    "Chow-Liu tree: the tree of the training rows without latents, by one EM step, smoothed as validation prefers; for "
    "reference."
)
DIGITS = 5
"""Digits after the point of log-likelihoods in nats."""


@dataclass(frozen=True)
class Parts:
    """The rows of a data set in a schema that takes the values of all of them."""

    schema: Schema
    train: Table
    valid: Table
    test: Table

    @classmethod
    def of(cls, data: Dataset) -> Parts:
        """All parts of a data set."""
        assert data.valid is not None
        assert data.test is not None
        schema = infer_schema(data.train, data.valid, data.test)
        return cls(schema, *(align(part, schema, unseen="error") for part in (data.train, data.valid, data.test)))


def chow_liu_scores(parts: Parts, device: Any) -> Record | None:
    """The Chow-Liu tree by one EM step, smoothed as validation prefers; None for columns that it cannot have."""
    started = time.perf_counter()
    try:
        circuit = chow_liu(parts.train, schema=parts.schema)
    except OptionError:
        return None
    runs = [Run(Vanilla(pseudocount)) for pseudocount in CHOW_LIU_SMOOTHING]
    options: dict[str, Any] = {"epochs": 1, "batch_size": None, "select": "last", "device": device, "progress": False}
    fleet = fit_fleet(circuit, parts.train, runs, valid=parts.valid, test=parts.test, **options)
    if any(result.stopped == "interrupted" for result in fleet):
        raise KeyboardInterrupt
    best = fleet.best(by="valid_ll")
    return {
        "pseudocount": best.run.method.pseudocount,
        **{name: rounded(getattr(best, name)) for name in ("train_ll", "valid_ll", "test_ll")},
        "parameters": circuit.describe().parameters,
        "seconds": round(time.perf_counter() - started, 3),
    }


def rounded(value: float | None) -> float | None:
    """None for minus infinity, which JSON does not have: some row has probability zero."""
    return None if value is None or not math.isfinite(value) else round(value, DIGITS)


def baseline_records(study: Study, data: Mapping[str, Dataset], file: RecordFile) -> list[Record]:
    """The baseline for each data set and share of its rows; a share is drawn by the seed, and has one for each."""
    found = []
    for part in data.values():
        known = digest(part)
        for fraction in study.fractions:
            for seed in study.seeds[:1] if fraction == 1 else study.seeds:
                facts = {"baseline": NAME, "data": known, "fraction": fraction, "seed": seed if fraction < 1 else None}
                name = identify(facts)
                if name not in file.by_id:
                    rows = replace(part, train=training_rows(part, fraction, seed))
                    what = {"dataset": part.name, "fraction": fraction, "seed": seed, "data_hash": known}
                    scores = chow_liu_scores(Parts.of(rows), study.device)
                    file.append([{"id": name, "study": NAME, **what, "scores": scores}])
                found.append(file.by_id[name])
    return found


def with_baseline(report: Report, records: Sequence[Record]) -> Report:
    """The report with the baseline in its main table and in its values; as it is where there is none to show."""
    values = _means(records)
    if report.name not in LEAD_COLUMNS or not values:
        return report
    lead, main = LEAD_COLUMNS[report.name], report.tables[0]
    shown = _with_column(main, lead, values) if lead else _with_row(main, values)
    rows = tuple({**row, NAME: _known(values, row["dataset"], row["fraction"]).mean} for row in report.values)
    notes = (*report.notes[:1], NOTE, *report.notes[1:])
    return replace(
        report, tables=(shown, *report.tables[1:]), notes=notes, columns=(*report.columns, NAME), values=rows
    )


Means = Mapping[tuple[str, float], Spread]
"""Data set and share of its rows -> test log-likelihood."""


def _means(records: Sequence[Record]) -> Means:
    found: dict[tuple[str, float], list[float]] = {}
    for record in records:
        scores = record["scores"]
        if scores is not None and scores["test_ll"] is not None:
            found.setdefault((record["dataset"], record["fraction"]), []).append(scores["test_ll"])
    return {case: spread(values) for case, values in found.items()}


def _known(values: Means, dataset: str, fraction: float) -> Spread:
    return values.get((dataset, fraction), Spread(math.nan))


def _with_column(table: Shown, lead: int, values: Means) -> Shown:
    """A column after those that say of what data a row is: the data set, and its share as `25%`."""
    shares = {f"{fraction:.0%}": fraction for _, fraction in values}
    rows: list[tuple[Cell, ...]] = []
    for row in table.rows:
        fraction = 1.0 if lead == 1 else shares.get(str(row[1]), math.nan)
        rows.append((*row[:lead], Number.of(_known(values, str(row[0]), fraction)), *row[lead:]))
    texts = tuple(place if place < lead else place + 1 for place in table.text_columns)
    return replace(table, heads=(*table.heads[:lead], HEAD, *table.heads[lead:]), rows=tuple(rows), text_columns=texts)


def _with_row(table: Shown, values: Means) -> Shown:
    """A row of the data sets' columns; nothing in the others."""
    named = {name for name, _ in values}
    cells: list[Cell] = [Number.of(_known(values, head, 1.0)) if head in named else "-" for head in table.heads[1:]]
    return replace(table, rows=(*table.rows, ("Chow-Liu tree", *cells)))
