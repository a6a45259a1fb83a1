"""Beyond the paper: Table D (exact penalty and simplex, other gates, smoothing), and the study `readings`, in which the
gated method of the paper is read in several ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from circurve.learning import Gated, Global, Method, Vanilla
from circurve.learning.gates import top_fraction
from circurve.reproduction.comparisons import KEPT, LARGE, not_compared, paper_test_ll
from circurve.reproduction.plan import choice_note, grid_notes, provenance
from circurve.reproduction.records import Record, RunRecord, is_failed
from circurve.reproduction.spec import ReproduceOptions, Setting, Study, make_study, protocol_for, settings_for
from circurve.reproduction.summary import TIE_RULE, Chosen, choose_rows, count, paired
from circurve.reproduction.table import Cell, Number, Report, Table, mark_best
from circurve.reproduction.tables import describe_chosen, gap_to, p_text, setting_text

__all__ = [
    "LABELS",
    "READINGS",
    "SMOOTHED",
    "report_d",
    "report_readings",
    "study_d",
    "study_readings",
]

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


def report_d(study: Study, records: Sequence[RunRecord]) -> Report:
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


MU = 0.01
"""The smallest strength of the paper."""

BASE = "vanilla"


@dataclass(frozen=True)
class Reading:
    """One way to read the paper."""

    column: str
    """Which column of the paper it is compared with: global or gated."""

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
"""Label -> what it means."""

READINGS_COLUMNS = (
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


def report_readings(study: Study, records: Sequence[RunRecord]) -> Report:
    """Each reading's difference to plain EM compared with that of the paper, and which one is nearest to it."""
    rows = choose_rows([record for record in records if not is_failed(record)])
    values = tuple(
        _reading_values(name, label, row) for name, row in rows.items() for label in READINGS if label in row
    )
    notes = (
        study.protocol.in_words(),
        choice_note(study),
        "Numbers are differences of test log-likelihood to vanilla of the same seed; the paper's are those of its main "
        "table. Distance: root mean square of ours minus the paper's over data sets.",
        "On dna and bbc the paper's gated column may have a larger mu, chosen by validation: the distance over "
        f"{', '.join(LARGE)} is the one that decides.",
        *(f"{label}: {reading.text}." for label, reading in READINGS.items()),
        "A node without flow keeps its weights, and so its t, however large, in all readings but 'used'.",
        *_fewer_seeds(values),
        *not_compared(records),
        *provenance(records),
    )
    found = _findings(values)
    tables = (_table(rows, values), _tests(rows, values))
    return Report("readings", "Readings of the gated method", tables, notes, READINGS_COLUMNS, values, found)


PAIRS = (("gated", "global"), ("data", "global+data"), ("smoothed", "global+smoothed"))
"""The same reading for the gated and for the global column."""

NEAR = 0.1
"""How far from the paper a reading may be in both columns, in nats."""


def _fewer_seeds(values: Sequence[Record]) -> list[str]:
    """For each data set whose readings have different numbers of seeds, which have how many."""
    notes = []
    for dataset in dict.fromkeys(v["dataset"] for v in values):
        seeds = {v["reading"]: v["seeds"] for v in values if v["dataset"] == dataset}
        most, least = max(seeds.values()), min(seeds.values())
        if least < most:
            full = ", ".join(label for label, count in seeds.items() if count == most)
            notes.append(f"On {dataset}, {full}: {most} seeds; of the other readings, some have only {least}.")
    return notes


def _reading_values(dataset: str, label: str, row: dict[str, Chosen]) -> Record:
    chosen, reading = row[label], READINGS[label]
    gap = paired(chosen, row[BASE]) if BASE in row else None
    paper, plain = (paper_test_ll(dataset, name) if chosen.of_debd else None for name in (reading.column, BASE))
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
    sets = [name for name in LARGE if any(v["dataset"] == name and v["off"] is not None for v in values)]
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
    return (*told, *_both_columns(values))


def _both_columns(values: Sequence[Record]) -> list[str]:
    """Whether a reading that was tried for both columns is near to the paper in both."""
    off = {pair: [distance(values, label, large=True) for label in pair] for pair in PAIRS}
    known = {pair[0]: far for pair, far in off.items() if not any(map(math.isnan, far))}
    if not known:
        return []
    near = [label for label, far in known.items() if max(far) <= NEAR]
    told = ", ".join(f"'{label}' {gated:.3f} and {plain:.3f}" for label, (gated, plain) in known.items())
    found = f"{', '.join(near)} within {NEAR:g} in both" if near else f"none is within {NEAR:g} in both"
    return [f"Readings that were tried for both columns, nats off in gated and in global: {told}; {found}."]


def _table(rows: dict[str, dict[str, Chosen]], values: Sequence[Record]) -> Table:
    """A line for each reading, a column for each data set; the paper's own line is above those of its column."""
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
