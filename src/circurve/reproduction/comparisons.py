"""Numbers to compare with ours: those of the paper, other published ones, and a Chow-Liu tree as a baseline.

Of published numbers only those that were checked at their source are listed: those in `published.tsv`, computed from
the logs that their authors published, and the best column of the paper's own table. Better ones may have been published
elsewhere.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from circurve.data import Dataset, Table, align, infer_schema
from circurve.errors import OptionError
from circurve.learning import Run, Vanilla, fit_fleet
from circurve.learning.recipe import CHOW_LIU_SMOOTHING
from circurve.reproduction.plan import digest, training_rows
from circurve.reproduction.records import Record, RecordFile, identify, of_debd
from circurve.reproduction.spec import Study
from circurve.reproduction.summary import MeanStd, spread
from circurve.reproduction.table import Cell, Number, Report
from circurve.reproduction.table import Table as Shown
from circurve.schema import Schema
from circurve.structures import chow_liu

__all__ = [
    "BASELINES_FILE",
    "CLEAR",
    "CLOSE",
    "FRACTIONS",
    "IMPROVEMENTS",
    "KEPT",
    "LARGE",
    "LEAD_COLUMNS",
    "SMALL",
    "TEST_LL",
    "Parts",
    "Published",
    "baseline_records",
    "best_published",
    "chow_liu_scores",
    "not_compared",
    "paper_test_ll",
    "published",
    "rounded",
    "with_baseline",
]

IMPROVEMENTS = {
    0.01: (7.12, 8.81, 23.04),
    0.05: (2.19, 5.79, 15.32),
    0.1: (0.27, 2.73, 10.42),
    0.5: (-0.48, 0.21, 5.55),
    1.0: (-0.31, 0.06, 4.04),
}
"""Share of the training data -> improvement of test NLL, DoF and sharpness in percent, global over vanilla, mean over
20 data sets and 5 runs (tab:mean_improvements)."""

TEST_LL = {
    "accidents": ((-26.64, 0.02), (-29.79, 0.13), (-26.55, 0.01)),
    "ad": ((-18.4, 0.09), (-20.36, 0.05), (-18.1, 0.04)),
    "baudio": ((-39.62, 0.02), (-42.45, 0.02), (-39.62, 0.01)),
    "bbc": ((-269.58, 0.41), (-256.4, 0.1), (-260.07, 0.26)),
    "bnetflix": ((-56.22, 0.02), (-59.67, 0.02), (-56.21, 0.02)),
    "book": ((-34.34, 0.04), (-36.35, 0.03), (-34.16, 0.01)),
    "c20ng": ((-151.99, 0.13), (-157.64, 0.05), (-152.22, 0.13)),
    "cr52": ((-99.09, 1.15), (-102.23, 1.45), (-97.99, 0.7)),
    "cwebkb": ((-154.71, 0.33), (-157.3, 0.02), (-152.9, 0.15)),
    "dna": ((-87.78, 0.24), (-81.33, 0.0), (-81.28, 0.08)),
    "jester": ((-52.82, 0.03), (-55.74, 0.05), (-52.82, 0.03)),
    "kdd": ((-2.22, 0.01), (-2.36, 0.0), (-2.22, 0.0)),
    "kosarek": ((-10.59, 0.01), (-11.08, 0.04), (-10.59, 0.02)),
    "msnbc": ((-6.12, 0.01), (-6.47, 0.01), (-6.08, 0.0)),
    "msweb": ((-9.73, 0.01), (-10.4, 0.02), (-9.73, 0.01)),
    "nltcs": ((-6.0, 0.0), (-6.48, 0.0), (-6.0, 0.0)),
    "plants": ((-12.68, 0.03), (-15.99, 0.02), (-12.67, 0.01)),
    "pumsb_star": ((-22.78, 0.06), (-28.29, 0.06), (-22.75, 0.04)),
    "tmovie": ((-42.16, 0.03), (-48.84, 0.04), (-42.21, 0.06)),
    "tretail": ((-10.84, 0.01), (-10.98, 0.01), (-10.85, 0.01)),
}
"""Data set -> mean and standard deviation over 5 seeds of vanilla, global, gated (tab:debd_test_ll)."""

FRACTIONS = {
    "accidents": ((-28.59, -29.83, -28.64), (-27.13, -29.84, -27.12), (-26.63, -29.69, -26.64)),
    "ad": ((-28.55, -29.64, -28.86), (-20.51, -22.07, -20.47), (-18.3, -20.37, -18.22)),
    "baudio": ((-41.13, -42.46, -41.16), (-39.99, -42.4, -40.01), (-39.63, -42.45, -39.63)),
    "bbc": ((-379.3, -281.33, -377.54), (-312.26, -262.64, -309.58), (-269.69, -256.43, -269.39)),
    "bnetflix": ((-59.06, -59.87, -59.24), (-56.85, -59.83, -56.95), (-56.22, -59.67, -56.21)),
    "book": ((-37.91, -37.48, -37.45), (-35.44, -36.75, -35.29), (-34.37, -36.31, -34.23)),
    "c20ng": ((-162.01, -160.21, -161.97), (-154.92, -158.67, -154.94), (-151.97, -157.6, -152.04)),
    "cr52": ((-107.98, -103.75, -106.04), (-102.79, -102.07, -101.0), (-99.35, -102.15, -100.26)),
    "cwebkb": ((-204.8, -164.74, -202.88), (-171.74, -159.32, -170.11), (-154.78, -157.34, -154.89)),
    "dna": ((-93.73, -82.61, -93.44), (-90.35, -81.76, -90.07), (-87.7, -81.35, -87.11)),
    "jester": ((-57.38, -55.65, -57.43), (-54.05, -55.9, -54.26), (-52.82, -55.81, -52.88)),
    "kdd": ((-2.22, -2.37, -2.21), (-2.22, -2.36, -2.21), (-2.23, -2.37, -2.22)),
    "kosarek": ((-10.83, -11.11, -10.79), (-10.64, -11.06, -10.67), (-10.59, -11.09, -10.59)),
    "msnbc": ((-6.1, -6.46, -6.08), (-6.11, -6.47, -6.08), (-6.12, -6.46, -6.08)),
    "msweb": ((-10.0, -10.45, -9.97), (-9.82, -10.39, -9.81), (-9.72, -10.4, -9.74)),
    "nltcs": ((-6.09, -6.5, -6.1), (-6.02, -6.47, -6.02), (-6.0, -6.48, -6.0)),
    "plants": ((-12.97, -15.9, -12.96), (-12.77, -15.97, -12.77), (-12.67, -15.98, -12.66)),
    "pumsb_star": ((-23.82, -28.75, -23.65), (-22.79, -28.35, -22.77), (-22.79, -28.35, -22.78)),
    "tmovie": ((-51.23, -50.51, -50.89), (-44.55, -49.57, -44.58), (-42.17, -48.84, -42.11)),
    "tretail": ((-11.31, -11.03, -11.27), (-10.96, -11.0, -10.98), (-10.84, -10.98, -10.85)),
}
"""Data set -> (vanilla, global, best gated) at 25, 50 and 100 % of the training data (tab:summary)."""

LARGE, SMALL = ("nltcs", "plants", "baudio"), ("dna", "bbc")
"""The data sets that claims are judged on: those with many training rows and those with few."""

KEPT, CLEAR, CLOSE = 0.05, 0.5, 0.1
"""Nats: a negligible loss, a clear gain, close to the paper."""

LABELS = ("vanilla", "global", "gated")
SHARES = (0.25, 0.5, 1.0)


def paper_test_ll(dataset: str, label: str, fraction: float | None = None) -> MeanStd | None:
    """The paper's test log-likelihood; `fraction` None is the table of full data, else that of data fractions."""
    if label not in LABELS:
        return None
    column = LABELS.index(label)
    if fraction is None:
        return MeanStd(*TEST_LL[dataset][column], 5) if dataset in TEST_LL else None
    if dataset not in FRACTIONS or fraction not in SHARES:
        return None
    return MeanStd(FRACTIONS[dataset][SHARES.index(fraction)][column])


def not_compared(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note about data sets that have the name of a published one, but other files."""
    names = dict.fromkeys(r["dataset"] for r in records if r["dataset"] in TEST_LL and not of_debd(r))
    told = f"{', '.join(names)}: the files are not those of DEBD: not compared with published numbers."
    return [told] if names else []


PAPER = "Suresh et al., A Compositional Theory of Curvature in Probabilistic Circuits"


@dataclass(frozen=True)
class Published:
    """The mean test log-likelihood of a model on a data set, in nats."""

    dataset: str
    test_ll: float
    std: float | None
    seeds: int
    model: str
    source: str
    checked_in: str
    """Where the number was checked."""


def published(dataset: str) -> list[Published]:
    """All that is listed for a data set, the best first; none for one that is not in the literature."""
    return sorted(_all().get(dataset, ()), key=lambda item: -item.test_ll)


def best_published(dataset: str) -> Published | None:
    """The best that is listed for a data set."""
    return next(iter(published(dataset)), None)


@lru_cache
def _all() -> dict[str, list[Published]]:
    found: dict[str, list[Published]] = {}
    for item in (*_of_file(), *_of_paper()):
        found.setdefault(item.dataset, []).append(item)
    return found


def _of_file() -> Iterator[Published]:
    text = files("circurve.reproduction").joinpath("published.tsv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        numbers = (float(row["test_ll"]), float(row["std"]) if row["std"] else None, int(row["seeds"]))
        yield Published(row["dataset"], *numbers, row["model"], row["source"], row["checked_in"])


def _of_paper() -> Iterator[Published]:
    for dataset, columns in TEST_LL.items():
        label, (mean, std) = max(zip(LABELS, columns, strict=True), key=lambda column: column[1][0])
        yield Published(dataset, mean, std, 5, f"HCLT, {label} EM", PAPER, "its table of test log-likelihoods")


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


def chow_liu_scores(parts: Parts, device: Any, memory_budget: int | None = None) -> Record | None:
    """The Chow-Liu tree by one EM step, smoothed as validation prefers; None for columns that it cannot have."""
    started = time.perf_counter()
    try:
        circuit = chow_liu(parts.train, schema=parts.schema, memory_budget=memory_budget)
    except OptionError:
        return None
    runs = [Run(Vanilla(pseudocount)) for pseudocount in CHOW_LIU_SMOOTHING]
    options: dict[str, Any] = {"epochs": 1, "batch_size": None, "select": "last", "device": device, "progress": False}
    options["memory_budget"] = memory_budget
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
                    scores = chow_liu_scores(Parts.of(rows), study.device, study.memory_budget)
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


Means = Mapping[tuple[str, float], MeanStd]
"""Data set and share of its rows -> test log-likelihood."""


def _means(records: Sequence[Record]) -> Means:
    found: dict[tuple[str, float], list[float]] = {}
    for record in records:
        scores = record["scores"]
        if scores is not None and scores["test_ll"] is not None:
            found.setdefault((record["dataset"], record["fraction"]), []).append(scores["test_ll"])
    return {case: spread(values) for case, values in found.items()}


def _known(values: Means, dataset: str, fraction: float) -> MeanStd:
    return values.get((dataset, fraction), MeanStd(math.nan))


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
