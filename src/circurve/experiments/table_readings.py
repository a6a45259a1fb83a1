"""The study `readings`: the gated method of the paper, read in several ways, beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from circurve.experiments.paper_numbers import KEPT, LARGE, paper_test_ll
from circurve.experiments.provenance import choice_note, provenance
from circurve.experiments.records import Record, is_failed
from circurve.experiments.spec import ReproduceOptions, Setting, Study, make_study, protocol_for
from circurve.experiments.summary import Chosen, choose_rows, paired
from circurve.experiments.table import Cell, Number, Report, Table
from circurve.experiments.tables import p_text
from circurve.learning import Gated, Global, Vanilla
from circurve.learning.gates import top_fraction

__all__ = ["READINGS", "report_readings", "study_readings"]

MU = 0.01
"""The smallest strength of the paper."""

BASE = "vanilla"


@dataclass(frozen=True)
class Reading:
    """One way to read the paper."""

    column: str
    """Whose numbers of the paper stand beside it: global or gated."""

    method: Global | Gated
    text: str


READINGS = {
    "gated": Reading("gated", Gated(MU), "gates of each batch, mean of t over its samples"),
    "ratio": Reading(
        "gated", Gated(MU, estimator="mean_ratio"), "gates of each batch, t of mean ratios, as in Algorithm 1"
    ),
    "epoch": Reading("gated", Gated(MU, gates_from="epoch"), "gates of the whole epoch before, as in Algorithm 1"),
    "epoch+ratio": Reading(
        "gated",
        Gated(MU, estimator="mean_ratio", gates_from="epoch"),
        "both, as Algorithm 1 has it, but in mini-batches",
    ),
    "first": Reading("gated", Gated(MU, gates_from="first"), "gates of the first epoch, kept"),
    "first+ratio": Reading(
        "gated", Gated(MU, estimator="mean_ratio", gates_from="first"), "the same with t of mean ratios"
    ),
    "data": Reading("gated", Gated(MU, mu_scale="data"), "mu against the counts of all rows, not of a batch"),
    "used": Reading("gated", Gated(MU, estimator="flow_weighted"), "t weighted by flow: nodes without flow have none"),
    "smoothed": Reading("gated", Gated(MU, pseudocount=0.1), "gated alone smoothed, by a pseudocount of 0.1"),
    "top 0.3 %": Reading("gated", Gated(MU, top_fraction(0.003)), "the whole penalty on 0.3 % of the nodes, by t"),
    "global": Reading("global", Global(MU), "the penalty on all nodes"),
    "global+data": Reading("global", Global(MU, mu_scale="data"), "the same against the counts of all rows"),
    "global+smoothed": Reading("global", Global(MU, pseudocount=0.1), "the same with a pseudocount of 0.1"),
}
"""Label -> what it stands for."""

COLUMNS = (
    *("dataset", "reading", "mean", "std", "seeds", "mu", "minus_vanilla", "p_value"),
    *("paper_mean", "paper_minus_vanilla", "off"),
)


def study_readings(options: ReproduceOptions) -> Study:
    """Plain EM and every reading; with several strengths asked for, validation chooses, as in the paper."""
    init = protocol_for(options).inits[0]
    settings = [Setting(BASE, Vanilla(), init)]
    for label, reading in READINGS.items():
        for mu in options.mu or (MU,):
            settings.append(Setting(label, replace(reading.method, mu=mu), init))
    return make_study("readings", options, settings)


def report_readings(study: Study, records: Sequence[Record]) -> Report:
    """Each reading's difference to plain EM beside that of the paper, and which one comes nearest to it."""
    rows = choose_rows([record for record in records if not is_failed(record)])
    values = tuple(_values(name, label, row) for name, row in rows.items() for label in READINGS if label in row)
    notes = (
        study.protocol.in_words(),
        choice_note(study),
        "Numbers are differences of test log-likelihood to vanilla of the same seed; the paper's are those of its main "
        "table. Distance: root mean square of ours minus the paper's over data sets.",
        "On dna and bbc the paper's gated column may have a larger mu, chosen by validation: the distance over "
        f"{', '.join(LARGE)} is the one that decides.",
        *(f"{label}: {reading.text}." for label, reading in READINGS.items()),
        "A node without flow keeps its weights, and so its t, however large, in all readings but 'used'.",
        *provenance(records),
    )
    found = _findings(values)
    tables = (_table(rows, values), _tests(rows, values))
    return Report("readings", "Readings of the gated method", tables, notes, COLUMNS, values, found)


def _values(dataset: str, label: str, row: dict[str, Chosen]) -> Record:
    chosen, reading = row[label], READINGS[label]
    gap = paired(chosen, row[BASE]) if BASE in row else None
    paper, plain = (paper_test_ll(dataset, name) for name in (reading.column, BASE))
    printed = paper.mean - plain.mean if paper is not None and plain is not None else None
    spread = chosen.spread()
    return {
        **{"dataset": dataset, "reading": label, "mean": spread.mean, "std": spread.std, "seeds": spread.count},
        **{"mu": chosen.method["mu"], "minus_vanilla": gap and gap.mean, "p_value": gap and gap.p},
        **{"paper_mean": paper and paper.mean, "paper_minus_vanilla": printed},
        "off": None if gap is None or printed is None else gap.mean - printed,
    }


def distance(values: Sequence[Record], label: str, large: bool) -> float:
    """Root mean square of ours minus the paper's, over the large sets or over all; NaN where nothing is known."""
    of = [v for v in values if v["reading"] == label and v["off"] is not None]
    offs = [v["off"] for v in of if not large or v["dataset"] in LARGE]
    return float(np.sqrt(np.mean(np.square(offs)))) if offs else math.nan


def _findings(values: Sequence[Record]) -> tuple[str, ...]:
    """Which reading is nearest to each column of the paper, and which keep the fit."""
    told = []
    sets = [name for name in LARGE if any(v["dataset"] == name for v in values)]
    for column in ("gated", "global"):
        labels = [label for label, reading in READINGS.items() if reading.column == column]
        known = {label: far for label in labels if not math.isnan(far := distance(values, label, large=True))}
        if known:
            best = min(known, key=lambda label: known[label])
            told.append(
                f"Nearest to the paper's {column} column on {', '.join(sets)} is the reading '{best}' "
                f"({READINGS[best].text}): {known[best]:.3f} nats off, root mean square; '{labels[0]}' is "
                f"{known.get(labels[0], math.nan):.3f} off."
            )
    gated = [v for v in values if v["dataset"] in LARGE and READINGS[v["reading"]].column == "gated"]
    kept = {
        label: all(
            v["minus_vanilla"] >= -KEPT for v in gated if v["reading"] == label and v["minus_vanilla"] is not None
        )
        for label in dict.fromkeys(v["reading"] for v in gated)
    }
    if kept:
        yes = [label for label, holds in kept.items() if holds]
        no = [label for label, holds in kept.items() if not holds]
        told.append(
            f"Gated keeps the fit of vanilla (minus {KEPT:g} nats) on all large sets in the readings "
            f"{', '.join(yes) or 'none'}; it does not in {', '.join(no) or 'none'}."
        )
    return tuple(told)


def _table(rows: dict[str, dict[str, Chosen]], values: Sequence[Record]) -> Table:
    """A line for each reading, a column for each data set; the paper's own line stands above those of its column."""
    shown: dict[tuple[str, str], Record] = {(v["reading"], v["dataset"]): v for v in values}
    lines: list[tuple[Cell, ...]] = [
        (
            "vanilla (test LL)",
            *(Number.of(row[BASE].spread()) if BASE in row else "-" for row in rows.values()),
            "-",
            "-",
        )
    ]
    for column in ("gated", "global"):
        labels = [label for label, reading in READINGS.items() if reading.column == column]
        papers = [next((v for v in values if v["dataset"] == name and v["reading"] in labels), None) for name in rows]
        printed = [None if value is None else value["paper_minus_vanilla"] for value in papers]
        lines.append((f"paper's {column}", *map(_gap, printed), "-", "-"))
        for label in labels:
            gaps = [_gap(shown[label, n]["minus_vanilla"] if (label, n) in shown else None) for n in rows]
            far = (Number(distance(values, label, large), None, 3) for large in (True, False))
            lines.append((label, *gaps, *far))
    heads = ("reading", *rows, "distance,\nlarge sets", "distance,\nall sets")
    return Table(heads, tuple(lines), "Differences to vanilla")


def _gap(value: float | None) -> Cell:
    return "-" if value is None else Number(value, None, 3, signed=True)


def _tests(rows: dict[str, dict[str, Chosen]], values: Sequence[Record]) -> Table:
    lines = []
    for label in READINGS:
        found = {v["dataset"]: v for v in values if v["reading"] == label}
        if found:
            lines.append((label, *(p_text(found[name]["p_value"]) if name in found else "-" for name in rows)))
    return Table(("reading", *rows), tuple(lines), "p of a two-sided paired t-test over seeds against vanilla")
