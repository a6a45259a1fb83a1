"""Tables B and C: test log-likelihood by data set, with all training rows, and with shares of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from circurve.experiments.compare import TIE_RULE, Count, count, paired
from circurve.experiments.options import ReproduceOptions
from circurve.experiments.paper_numbers import SHARES, paper_test_ll
from circurve.experiments.provenance import choice_note, grid_notes, provenance
from circurve.experiments.spec import Study, make_study, standard_settings
from circurve.experiments.summary import Chosen, Spread, choose_all
from circurve.experiments.table import Cell, Number, Report, Table, mark_best

__all__ = ["report_b", "report_c", "study_b", "study_c"]

LABELS = ("vanilla", "global", "gated")
PAIRS = (("global", "vanilla"), ("gated", "vanilla"), ("gated", "global"))
COLUMNS = (
    *("dataset", "fraction", "label", "mean", "std", "seeds", "paper_mean", "paper_std"),
    *("mu", "gate", "pseudocount", "init", "candidates", "valid_ll", "train_ll", "dof", "sharpness"),
    *("minus_vanilla", "p_value"),
)

Record = dict[str, Any]
Case = tuple[str, float]
"""A data set and a share of its training rows."""


def study_b(options: ReproduceOptions) -> Study:
    """Vanilla, global and gated on all training rows."""
    return make_study("table-b", options, standard_settings(options))


def study_c(options: ReproduceOptions) -> Study:
    """The same with a quarter and a half of the training rows beside."""
    return make_study("table-c", options, standard_settings(options), fractions=SHARES)


def report_b(study: Study, records: Sequence[Record]) -> Report:
    """The paper's table of test log-likelihoods, ours beside it."""
    return _report("table-b", "Table B: test log-likelihood by data set", study, records)


def report_c(study: Study, records: Sequence[Record]) -> Report:
    """The paper's table of data fractions, ours beside it."""
    return _report("table-c", "Table C: test log-likelihood by share of the training data", study, records)


def _report(name: str, title: str, study: Study, records: Sequence[Record]) -> Report:
    cases: dict[Case, dict[str, Chosen]] = {}
    for chosen in choose_all(records):
        cases.setdefault((chosen.dataset, chosen.fraction), {})[chosen.label] = chosen
    shares = name == "table-c"
    tables = (
        _main(cases, shares),
        _comparison(cases, shares),
        *([_choices(cases, shares)] if chooses_more_than_mu(study) else []),
        _counts(cases, shares),
    )
    values = tuple(_values(chosen, row, shares) for row in cases.values() for chosen in row.values())
    notes = (
        study.protocol.in_words(),
        choice_note(study),
        *grid_notes(study),
        "Best of a row in bold, second underlined; mean ± standard deviation (n - 1) over seeds, in nats.",
        TIE_RULE + " p is that of a two-sided paired t-test over seeds.",
        *_edges(cases, study),
        *provenance(records),
    )
    return Report(name, title, tables, notes, COLUMNS, values)


def _edges(cases: dict[Case, dict[str, Chosen]], study: Study) -> list[str]:
    """How often the weakest penalty of the grid was the best: then a wider grid might have found a better one."""
    weakest = min(study.protocol.mus)
    found = []
    for label in LABELS[1:]:
        chosen = [row[label] for row in cases.values() if label in row and row[label].candidates > 1]
        weak = sum(item.method["mu"] == weakest for item in chosen)
        if weak:
            found.append(f"{label} in {weak} of {len(chosen)} cases")
    return [f"Validation chose the smallest strength there was, {weakest:g}, for {', '.join(found)}."] if found else []


def _lead(case: Case, shares: bool) -> tuple[str, ...]:
    return (case[0], f"{case[1]:.0%}") if shares else (case[0],)


def _heads(shares: bool) -> tuple[str, ...]:
    return ("data set", "rows") if shares else ("data set",)


def _paper(case: Case, label: str, shares: bool) -> Spread | None:
    return paper_test_ll(case[0], label, case[1] if shares else None)


def _main(cases: dict[Case, dict[str, Chosen]], shares: bool) -> Table:
    rows: list[tuple[Cell, ...]] = []
    printed = any(_paper(case, label, shares) for case in cases for label in LABELS)
    for case, row in cases.items():
        ours = mark_best([Number.of(row[label].spread()) if label in row else Number(float("nan")) for label in LABELS])
        cells: list[Cell] = list(_lead(case, shares))
        for label, number in zip(LABELS, ours, strict=True):
            paper = _paper(case, label, shares)
            cells += [number, "-" if paper is None else Number(paper.mean)] if printed else [number]
        rows.append(tuple(cells))
    heads = [head for label in LABELS for head in ((label, "paper") if printed else (label,))]
    return Table((*_heads(shares), *heads), tuple(rows))


def _comparison(cases: dict[Case, dict[str, Chosen]], shares: bool) -> Table:
    """Differences seed by seed, and the strengths that validation chose."""
    rows: list[tuple[Cell, ...]] = []
    for case, row in cases.items():
        cells: list[Cell] = list(_lead(case, shares))
        for a, b in PAIRS[:2]:
            if a in row and b in row:
                found = paired(row[a], row[b])
                cells += [Number(found.mean, found.std, 3, signed=True), p_text(found.p)]
            else:
                cells += ["-", "-"]
        rows.append((*cells, *(setting_text(row[label].method) if label in row else "-" for label in LABELS[1:])))
    heads = [head for a, b in PAIRS[:2] for head in (f"{a}\n- {b}", "p")]
    return Table((*_heads(shares), *heads, "mu of\nglobal", "mu of\ngated"), tuple(rows), "Paired over seeds")


def _choices(cases: dict[Case, dict[str, Chosen]], shares: bool) -> Table:
    """What validation chose for each method: a difference may be that of two starts, or of smoothing."""
    rows = tuple(
        (*_lead(case, shares), *(_choice_text(row[label].method) if label in row else "-" for label in LABELS))
        for case, row in cases.items()
    )
    kinds = ("pseudocount", "mu", "mu")
    heads = (*_heads(shares), *(f"{label}:\nstart, {kind}" for label, kind in zip(LABELS, kinds, strict=True)))
    return Table(heads, rows, "Chosen by validation", text_columns=tuple(range(len(heads))))


def chooses_more_than_mu(study: Study) -> bool:
    """Whether there are several starts, or several pseudocounts of vanilla, to choose from."""
    return len(study.starts) > 1 or len(study.protocol.pseudocounts) > 1


def _choice_text(method: Record) -> str:
    chosen = f"{method['pseudocount']:g}" if method["mu"] is None else setting_text(method)
    return f"{method['init']}, {chosen}"


def _counts(cases: dict[Case, dict[str, Chosen]], shares: bool) -> Table:
    rows = []
    for a, b in PAIRS:
        both = [row for row in cases.values() if a in row and b in row]
        ours = count((row[a].spread(), row[b].spread()) for row in both)
        named = [(_paper(case, a, shares), _paper(case, b, shares)) for case in cases]
        printed = count((x, y) for x, y in named if x is not None and y is not None)
        rows.append((f"{a} against {b}", _count_text(ours), _count_text(printed)))
    return Table(("", "ours", "paper, same data"), tuple(rows), "Wins / ties / losses")


def _count_text(found: Count) -> str:
    return f"{found.wins} / {found.ties} / {found.losses}"


def p_text(p: float | None) -> str:
    """A p-value for a table."""
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def setting_text(method: Record) -> str:
    """The strength that was chosen, with the gate and the pseudocount where they are not the usual ones."""
    text = "" if method["mu"] is None else f"{method['mu']:g}" if isinstance(method["mu"], float) else str(method["mu"])
    if method["gate"] not in (None, "max_norm"):
        text += f" {method['gate']}"
    if method["pseudocount"]:
        text += f" +{method['pseudocount']:g}"
    return text.strip() or "-"


def _values(chosen: Chosen, row: dict[str, Chosen], shares: bool) -> Record:
    paper = _paper((chosen.dataset, chosen.fraction), chosen.label, shares)
    against = paired(chosen, row["vanilla"]) if "vanilla" in row and chosen.label != "vanilla" else None
    return describe_chosen(chosen) | {
        "init": chosen.method["init"],
        "paper_mean": None if paper is None else paper.mean,
        "paper_std": None if paper is None else paper.std,
        "minus_vanilla": None if against is None else against.mean,
        "p_value": None if against is None else against.p,
    }


def describe_chosen(chosen: Chosen) -> Record:
    """The columns of a CSV file about one method on one data set."""
    means = {name: chosen.spread(name).mean for name in ("valid_ll", "train_ll", "dof", "sharpness")}
    return {
        "dataset": chosen.dataset,
        "fraction": chosen.fraction,
        "label": chosen.label,
        **{key: value for key, value in asdict(chosen.spread()).items() if key != "count"},
        "seeds": len(chosen.records),
        **{name: chosen.method[name] for name in ("mu", "gate", "pseudocount")},
        "candidates": chosen.candidates,
        **means,
    }
