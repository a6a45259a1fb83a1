"""The study `estimators`: gates by every estimator of local curvature, at every mu, with and without smoothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from circurve.learning import Gated, Method, Vanilla
from circurve.learning.local_curvature import ESTIMATORS
from circurve.reproduction.plan import choice_note, provenance
from circurve.reproduction.records import Record, RunRecord, is_failed
from circurve.reproduction.spec import ReproduceOptions, Setting, Study, make_study, protocol_for
from circurve.reproduction.summary import Chosen, MeanStd, choose_rows, spread
from circurve.reproduction.table import Cell, Number, Report, Table, mark_best
from circurve.reproduction.tables import gap_to, p_text

__all__ = ["report_estimators", "study_estimators"]

VANILLA = "vanilla"
PSEUDOCOUNTS = {"": 0.0, ", smoothed": 0.1}
"""The end of a label -> the pseudocount of all its runs."""

IN_WORDS = {
    "mean_trace": "mean of t over samples",
    "mean_ratio": "sum over edges of the squared mean ratio",
    "flow_weighted": "mean of t weighted by the node's flow",
    "geometric": "geometric mean of t weighted by the node's flow",
    "clipped": "mean of t with weights of at least 1e-4 inside its ratios",
}
COLUMNS = (
    *("dataset", "estimator", "pseudocount", "mu", "mean", "std", "seeds", "valid_ll", "minus_vanilla"),
    *("gates_median", "gates_above_half", "nodes_99", "nodes_9999", "median_local", "largest_local"),
    *("floor_edges", "floor_share"),
)


def study_estimators(options: ReproduceOptions) -> Study:
    """Every estimator with every strength of the protocol, unsmoothed and smoothed: one fleet for each data set."""
    protocol = protocol_for(options)
    protocol = replace(protocol, inits=protocol.inits[:1], pseudocounts=tuple(PSEUDOCOUNTS.values()))
    settings: list[Setting] = []
    for ending, pseudocount in PSEUDOCOUNTS.items():
        methods: dict[str, list[Method]] = {VANILLA: [Vanilla(pseudocount)]}
        for name in ESTIMATORS:
            methods[name] = [
                Gated(mu, gate, estimator=name, pseudocount=pseudocount) for gate in options.gate for mu in protocol.mus
            ]
        settings += [
            Setting(f"{label}{ending}", method, protocol.inits[0]) for label, of in methods.items() for method in of
        ]
    return replace(make_study("estimators", options, settings), protocol=protocol)


def report_estimators(study: Study, records: Sequence[RunRecord]) -> Report:
    """Test log-likelihood at every mu, what validation chooses, and how each estimate is spread over nodes."""
    known = [record for record in records if not is_failed(record)]
    rows = choose_rows(known)
    notes = (
        study.protocol.in_words(),
        "Gates are " + " or ".join(dict.fromkeys(_gate(record) for record in known if record["method"]["gate"])) + ".",
        f"Smoothed: a pseudocount of {PSEUDOCOUNTS[', smoothed']:g} for each sum node and batch.",
        choice_note(study),
        "Spread over nodes: estimates on the training rows of the models that plain EM gives; the share of nodes that "
        "holds 99 and 99.99 % of their sum, and the gates t / max t that they would give. Gates of training: those of "
        "the last M-step at the chosen mu. p is that of a two-sided paired t-test over seeds against plain EM.",
        *(f"{name}: {text}." for name, text in IN_WORDS.items()),
        *provenance(records),
    )
    values = tuple(_values(dataset, label, rows, known) for dataset, label in _cases(rows))
    flat = tuple(value for part in values for value in part)
    tables = (_by_strength(study, rows, known), _chosen(rows), _spread_over_nodes(rows))
    return Report("estimators", "Estimators of local curvature", tables, notes, COLUMNS, flat)


def _gate(record: RunRecord) -> str:
    return str(record["method"]["gate"])


def _cases(rows: dict[str, dict[str, Chosen]]) -> list[tuple[str, str]]:
    return [(dataset, label) for dataset, row in rows.items() for label in row]


def _ending(label: str) -> str:
    return label[label.find(",") :] if "," in label else ""


def _at(records: Sequence[RunRecord], dataset: str, label: str, mu: float | None) -> list[RunRecord]:
    """The runs of one strength; of several gates all of them."""
    case = (dataset, label, mu)
    return [record for record in records if (record["dataset"], record["label"], record["method"]["mu"]) == case]


def _over_seeds(records: Sequence[RunRecord], name: str = "test_ll") -> MeanStd:
    """A score of the epoch that counts by the protocol, over runs."""
    scores = [record["best" if record["choose_epoch"] == "best" else "final"][name] for record in records]
    return spread([math.nan if score is None else float(score) for score in scores])


def _by_strength(study: Study, rows: dict[str, dict[str, Chosen]], records: Sequence[RunRecord]) -> Table:
    """Test log-likelihood of every estimator at every mu, plain EM first; best and second of a row marked."""
    mus = study.protocol.mus
    lines: list[tuple[Cell, ...]] = []
    for dataset, label in _cases(rows):
        if label.startswith(VANILLA):
            continue
        plain = _over_seeds(_at(records, dataset, VANILLA + _ending(label), None))
        numbers = [
            Number.of(values) for values in (plain, *(_over_seeds(_at(records, dataset, label, mu)) for mu in mus))
        ]
        lines.append((dataset, label, *mark_best(numbers)))
    heads = ("data set", "estimator", "plain EM", *(f"mu {mu:g}" for mu in mus))
    return Table(heads, tuple(lines), "Test log-likelihood at every strength", text_columns=(0, 1))


def _chosen(rows: dict[str, dict[str, Chosen]]) -> Table:
    """What validation chose for each estimator, against plain EM with the same smoothing, and its gates."""
    lines: list[tuple[Cell, ...]] = []
    for dataset, label in _cases(rows):
        chosen, base = rows[dataset][label], VANILLA + _ending(label)
        gap = gap_to(rows[dataset], label, base)
        cells: list[Cell] = ["-", "-"] if gap is None else [Number(gap.mean, gap.std, 3, signed=True), p_text(gap.p)]
        mu = chosen.method["mu"]
        gates = [_text(_gate_mean(chosen.records, name), ".3g") for name in ("median", "above_half")]
        strength = "-" if mu is None else f"{mu:g}"
        lines.append((dataset, label, strength, Number.of(chosen.spread()), *cells, *gates))
    heads = ("data set", "estimator", "mu", "test LL", "- plain EM", "p", "gates:\nmedian", "gates\nabove 0.5")
    return Table(heads, tuple(lines), "Strengths chosen by validation", text_columns=(0, 1))


def _gate_mean(records: Sequence[RunRecord], name: str) -> float:
    """A number of the gates of the last M-step, mean over runs; NaN for records that do not have it."""
    return _mean([(record.get("gates") or {}).get(name) for record in records])


def _text(value: float, form: str) -> str:
    """A dash for what records of earlier versions do not hold."""
    return "-" if math.isnan(value) else f"{value:{form}}"


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([math.nan if value is None else value for value in values])) if values else math.nan


def _spread_over_nodes(rows: dict[str, dict[str, Chosen]]) -> Table:
    """How few nodes hold an estimate in models of plain EM, its size, and the gates it would give."""
    lines: list[tuple[Cell, ...]] = []
    for dataset, row in rows.items():
        for ending in PSEUDOCOUNTS:
            if VANILLA + ending not in row:
                continue
            plain = row[VANILLA + ending].records
            floor = _text(_floor(plain, "edges"), ",.0f"), _text(_floor(plain, "share"), ".2%")
            for name in ESTIMATORS:
                found = _estimate(plain, name)
                forms = (".1%", ".1%", ".3g", ".3g", ".2g", ".1%")
                numbers = [_text(value, form) for value, form in zip(found.values(), forms, strict=True)]
                lines.append((dataset, f"{name}{ending}", *numbers, *floor))
    heads = (
        *("data set", "estimator", "nodes of\n99 %", "nodes of\n99.99 %", "median", "largest"),
        *("gates:\nmedian", "gates\nabove 0.5", "edges at\nthe floor", "their share\nof mean t"),
    )
    return Table(heads, tuple(lines), "Spread over nodes after plain EM", text_columns=(0, 1))


def _estimate(records: Sequence[RunRecord], name: str) -> dict[str, float]:
    """What the curvature of runs says about an estimator, mean over runs."""
    found = [((record["curvature"] or {}).get("estimates") or {}).get(name, {}) for record in records]
    keys = {"nodes_99": "0.99", "nodes_9999": "0.9999"}
    shares = {key: _mean([one.get("fractions", {}).get(share) for one in found]) for key, share in keys.items()}
    names = ("median_local", "largest_local", "gates_median", "gates_above_half")
    return shares | {key: _mean([one.get(key) for one in found]) for key in names}


def _floor(records: Sequence[RunRecord], name: str) -> float:
    return _mean([((record["curvature"] or {}).get("floor") or {}).get(name) for record in records])


def _values(dataset: str, label: str, rows: dict[str, dict[str, Chosen]], records: Sequence[RunRecord]) -> list[Record]:
    """The lines of the CSV file of one estimator: one for each mu."""
    estimator, ending = label.removesuffix(_ending(label)), _ending(label)
    of = [record for record in records if (record["dataset"], record["label"]) == (dataset, label)]
    plain = _at(records, dataset, VANILLA + ending, None)
    lines = []
    for mu in dict.fromkeys(record["method"]["mu"] for record in of):
        runs = _at(of, dataset, label, mu)
        score = _over_seeds(runs)
        lines.append(
            {
                **{"dataset": dataset, "estimator": estimator, "pseudocount": PSEUDOCOUNTS[ending], "mu": mu},
                **{"mean": score.mean, "std": score.std, "seeds": len(runs)},
                "valid_ll": _over_seeds(runs, "valid_ll").mean,
                "minus_vanilla": score.mean - _over_seeds(plain).mean if mu is not None else None,
                **_estimate(runs, "mean_trace" if mu is None else estimator),
                **{f"gates_{key}": _gate_mean(runs, key) for key in ("median", "above_half")},
                **{f"floor_{key}": _floor(runs, key) for key in ("edges", "share")},
            }
        )
    return lines
