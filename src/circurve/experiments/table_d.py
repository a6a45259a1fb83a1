"""Table D: what goes beyond the paper. Exact penalty and exact simplex, other gates, and plain smoothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from circurve.experiments.provenance import choice_note, grid_notes, provenance
from circurve.experiments.records import Record
from circurve.experiments.spec import ReproduceOptions, Study, make_study, protocol_for, settings_for
from circurve.experiments.summary import TIE_RULE, Chosen, choose_rows, count
from circurve.experiments.table import Cell, Number, Report, Table, mark_best
from circurve.experiments.tables import describe_chosen, gap_to, p_text, setting_text
from circurve.learning import Gated, Global, Method, Vanilla

__all__ = ["LABELS", "SMOOTHED", "report_d", "study_d"]

SMOOTHED = "smoothed"
PSEUDOCOUNTS, QUICK_PSEUDOCOUNTS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1), (0.0, 0.01)
MUS, QUICK_MUS = (0.0001, 0.001, 0.01, 0.1, 1.0), (0.001, 0.1)
"""Decades, in either protocol: the paper's grid begins at 0.01, where most methods would rather have less."""

LOW_MUS, QUICK_LOW_MUS = (0.00001, 0.0001, 0.001, 0.01, 0.1), (0.0001, 0.01)
"""For the exact simplex: normalising afterwards undoes most of a penalty, the multiplier does not."""

MAX_COLUMNS = 6
"""Data sets in the overview; with more, it shows ranks and counts alone."""

LABELS = {
    "vanilla": "plain EM, with the pseudocount of global and gated: none but by the protocol `smoothed`",
    SMOOTHED: "plain EM with the best of several pseudocounts",
    "global": "surrogate penalty on all nodes, weights normalised (the paper's global)",
    "global-exact-both": "the true trace, solved for the multiplier: the stationary point of the paper's objective",
    "gated": "surrogate penalty gated by t / max t, weights normalised (the paper's gated)",
    "gated-exact-simplex": "the same, solved for the multiplier of each node",
    "gated-exact-penalty": "the gated true trace as penalty",
    "gated-exact-both": "the gated true trace, solved for the multiplier",
    "gated-flow_local": "joint gate: sharp and used",
    "gated-unused_sharp": "joint gate: sharp and unused",
}
COLUMNS = (
    *("dataset", "fraction", "label", "mean", "std", "seeds", "mu", "gate", "pseudocount", "candidates", "valid_ll"),
    *("train_ll", "dof", "sharpness", "minus_vanilla", "p_vanilla", "minus_smoothed", "p_smoothed", "seconds"),
)

Rows = dict[str, dict[str, Chosen]]


def study_d(options: ReproduceOptions) -> Study:
    """All variants on all training rows, each with its own grid of strengths; all from the protocol's first start."""
    protocol = protocol_for(options)
    protocol = replace(protocol, inits=protocol.inits[:1])
    mus = options.mu or (QUICK_MUS if options.quick else MUS)
    low = options.mu or (QUICK_LOW_MUS if options.quick else LOW_MUS)
    methods: dict[str, list[Method]] = {
        "vanilla": [Vanilla()],
        "global": [Global(mu) for mu in mus],
        "global-exact-both": [Global(mu, simplex="exact", penalty="exact") for mu in low],
        "gated": [Gated(mu) for mu in mus],
        "gated-exact-simplex": [Gated(mu, simplex="exact") for mu in low],
        "gated-exact-penalty": [Gated(mu, penalty="exact") for mu in mus],
        "gated-exact-both": [Gated(mu, simplex="exact", penalty="exact") for mu in low],
        "gated-flow_local": [Gated(mu, gate="flow_local") for mu in mus],
        "gated-unused_sharp": [Gated(mu, gate="unused_sharp") for mu in mus],
    }
    pseudocount = protocol.penalty_pseudocount
    methods = {label: [replace(method, pseudocount=pseudocount) for method in of] for label, of in methods.items()}
    methods[SMOOTHED] = [Vanilla(added) for added in (QUICK_PSEUDOCOUNTS if options.quick else PSEUDOCOUNTS)]
    settings = [setting for label in LABELS for setting in settings_for(label, methods[label], protocol)]
    return make_study("table-d", options, settings)


def report_d(study: Study, records: Sequence[Record]) -> Report:
    """All variants, each against plain EM and against plain EM with smoothing."""
    chosen = choose_rows(records)
    rows = {name: {label: row[label] for label in LABELS if label in row} for name, row in chosen.items()}
    labels = [label for label in LABELS if any(label in row for row in rows.values())]
    starts = study.protocol.inits
    notes = (
        study.protocol.in_words(),
        *([f"Of these starts all methods of this table have the first one, {starts[0]}."] if len(starts) > 1 else []),
        choice_note(study),
        *grid_notes(study),
        "Rank: by mean test log-likelihood among all methods, mean over data sets. " + TIE_RULE,
        "p is that of a two-sided paired t-test over seeds.",
        *(f"{label}: {LABELS[label]}." for label in labels),
        *provenance(records),
    )
    values = tuple(_values(label, row) for row in rows.values() for label in row)
    title = "Table D: exact updates, other gates and plain smoothing"
    return Report("table-d", title, (_overview(rows, labels), _main(rows)), notes, COLUMNS, values)


def _overview(rows: Rows, labels: Sequence[str]) -> Table:
    """One line for each method: its test log-likelihoods, mean rank, and counts against both baselines."""
    scores = _marked(rows)
    ranks: dict[str, list[float]] = {label: [] for label in labels}
    for row in rows.values():
        for label, rank in zip(row, _ranks([chosen.spread().mean for chosen in row.values()]), strict=True):
            ranks[label].append(rank)
    shown = tuple(rows) if len(rows) <= MAX_COLUMNS else ()
    lines: list[tuple[Cell, ...]] = []
    for label in labels:
        against = [_counts(rows, label, base) for base in ("vanilla", SMOOTHED)]
        cells = [scores.get((name, label), "-") for name in shown]
        lines.append((label, *cells, f"{np.mean(ranks[label]):.1f}", *against))
    return Table(("method", *shown, "rank", "w / t / l\nvanilla", "w / t / l\nsmoothed"), tuple(lines))


def _marked(rows: Rows) -> dict[tuple[str, str], Number]:
    """Test log-likelihood by data set and method, best and second of each data set marked."""
    marked: dict[tuple[str, str], Number] = {}
    for name, row in rows.items():
        numbers = mark_best([Number.of(chosen.spread()) for chosen in row.values()])
        marked |= {(name, label): number for label, number in zip(row, numbers, strict=True)}
    return marked


def _ranks(means: Sequence[float]) -> list[float]:
    """1 for the highest; equals share a rank, and what is not known comes last."""
    from scipy.stats import rankdata  # noqa: PLC0415 - slow to import

    ranks: list[float] = rankdata([math.inf if math.isnan(mean) else -mean for mean in means]).tolist()
    return ranks


def _counts(rows: Rows, label: str, base: str) -> str:
    if label == base:
        return "-"
    found = count((row[label].spread(), row[base].spread()) for row in rows.values() if label in row and base in row)
    return found.text()


def _main(rows: Rows) -> Table:
    scores = _marked(rows)
    lines: list[tuple[Cell, ...]] = []
    for name, row in rows.items():
        for label, chosen in row.items():
            gaps: list[Cell] = []
            for base in ("vanilla", SMOOTHED):
                found = gap_to(row, label, base)
                gaps += ["-", "-"] if found is None else [Number(found.mean, None, 3, signed=True), p_text(found.p)]
            grid = setting_text({**chosen.method, "gate": None})
            lines.append((name, label, scores[name, label], grid, *gaps, f"{chosen.spread('sharpness').mean:.4g}"))
    heads = ("data set", "method", "test LL", "mu", "- vanilla", "p", "- smoothed", "p", "sharpness")
    return Table(heads, tuple(lines), "By data set, with differences over seeds", text_columns=(0, 1))


def _values(label: str, row: dict[str, Chosen]) -> Record:
    gaps: Record = {}
    for base in ("vanilla", SMOOTHED):
        found = gap_to(row, label, base)
        gaps |= {f"minus_{base}": found and found.mean, f"p_{base}": found and found.p}
    return describe_chosen(row[label]) | gaps | {"seconds": sum(record["seconds"] for record in row[label].records)}
