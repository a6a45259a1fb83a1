"""The paper's tables: improvements over vanilla by share of the data (A), and test log-likelihood by data set, with all
training rows (B) and with shares of them (C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circurve.reproduction.comparisons import IMPROVEMENTS, LABELS, not_compared, paper_test_ll
from circurve.reproduction.plan import choice_note, grid_notes, provenance
from circurve.reproduction.records import Record, RunRecord
from circurve.reproduction.spec import ReproduceOptions, Study, make_study, standard_settings
from circurve.reproduction.summary import TIE_RULE, Chosen, MeanStd, Paired, choose_all, count, paired, spread
from circurve.reproduction.table import Cell, Number, Report, Table, mark_best

__all__ = ["improvement", "paper_study", "report_a", "report_b"]

METHODS = LABELS[1:]
MEASURES = {"test_nll": "test_ll", "dof": "dof", "sharpness": "sharpness"}
"""Measure of Table A -> score of a run."""

CHOICES = ("mu", "gate", "pseudocount", "init")
COLUMNS_A = (
    *("dataset", "fraction", "label", *MEASURES, "dof_points", *CHOICES),
    *("vanilla_pseudocount", "vanilla_init", "seeds"),
)
PAIRS = (("global", "vanilla"), ("gated", "vanilla"), ("gated", "global"))
COLUMNS_B = (
    *("dataset", "fraction", "label", "mean", "std", "seeds", "paper_mean", "paper_std", *CHOICES),
    *("candidates", "valid_ll", "train_ll", "dof", "sharpness", "minus_vanilla", "p_value"),
)

TITLES = {
    "table-a": "Table A: improvement over vanilla by share of the training data",
    "table-b": "Table B: test log-likelihood by data set",
    "table-c": "Table C: test log-likelihood by share of the training data",
}

Case = tuple[str, float, str]
"""A data set, a share of its training rows and a label."""


def paper_study(name: str, fractions: Sequence[float], options: ReproduceOptions) -> Study:
    """Vanilla, global and gated on shares of the training rows."""
    return make_study(name, options, standard_settings(options), fractions)


def improvement(method: Chosen, vanilla: Chosen) -> dict[str, float]:
    """100 (vanilla - method) / |vanilla| for test NLL, DoF and sharpness: the mean over seeds of each one's change.

    The NLL of continuous columns may be negative; a lower one is an improvement then, too. `dof_points` is 100 (DoF of
    vanilla - DoF), in points of percent: DoF is itself a ratio, and close to zero with enough data, where its relative
    change says little.
    """
    changes = {}
    for measure, score in MEASURES.items():
        sign = -1 if measure == "test_nll" else 1  # the records hold log-likelihoods
        pairs = method.pairs(vanilla, score)
        changes[measure] = [sign * 100 * (b - a) / abs(b) if b else math.nan for a, b in pairs]
    changes["dof_points"] = [100 * (b - a) for a, b in method.pairs(vanilla, "dof")]
    return {measure: _known(values).mean for measure, values in changes.items()}


def _known(values: Sequence[float]) -> MeanStd:
    """Mean and standard deviation of those that are finite."""
    return spread([value for value in values if math.isfinite(value)])


def report_a(study: Study, records: Sequence[RunRecord]) -> Report:
    """The paper's table of mean improvements, with ours and a gated row for each of its rows."""
    chosen = {(item.dataset, item.fraction, item.label): item for item in choose_all(records)}
    found: dict[Case, dict[str, float]] = {
        case: improvement(item, chosen[case[0], case[1], "vanilla"])
        for case, item in chosen.items()
        if case[2] in METHODS and (case[0], case[1], "vanilla") in chosen
    }
    names, others = dict.fromkeys(case[0] for case in found), not_compared(records)
    lagging = (
        "DoF and sharpness of an epoch before the last are means over its batches, taken while the parameters moved: "
        "within a few percent those of the model at its end."
    )
    notes = (
        study.protocol.in_words(),
        "Improvement over vanilla in percent, 100 (vanilla - method) / |vanilla|: positive means a lower test NLL, a "
        "lower degree of overfitting, a flatter optimum. Mean ± standard deviation over data sets of each one's mean "
        "over seeds. DoF points: the difference of the degrees of overfitting themselves, in points of percent.",
        f"Ours: mean over {', '.join(names)}; the paper's: over its 20 data sets.",
        choice_note(study),
        *grid_notes(study),
        *(() if study.protocol.choose_epoch == "last" else (lagging,)),
        *others,
        *provenance(records),
    )
    values = tuple(_values_a(case, changes, chosen) for case, changes in found.items())
    tables = (_main_a(study, found, {} if others else IMPROVEMENTS), _by_dataset(study, found, chosen))
    return Report(study.name, TITLES[study.name], tables, notes, COLUMNS_A, values)


def _values_a(case: Case, changes: dict[str, float], chosen: dict[Case, Chosen]) -> Record:
    dataset, fraction, label = case
    vanilla = chosen[dataset, fraction, "vanilla"].method
    return {
        **{"dataset": dataset, "fraction": fraction, "label": label, **changes},
        **{name: chosen[case].method[name] for name in CHOICES},
        **{f"vanilla_{name}": vanilla[name] for name in ("pseudocount", "init")},
        "seeds": len(chosen[case].records),
    }


def _main_a(study: Study, found: dict[Case, dict[str, float]], papers: Mapping[float, Sequence[float]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for fraction in study.fractions:
        for label in METHODS:
            over = [changes for case, changes in found.items() if case[1:] == (fraction, label)]
            paper = papers.get(fraction) if label == "global" else None
            ours = {measure: Number.of(_known([of[measure] for of in over])) for measure in (*MEASURES, "dof_points")}
            cells: list[Cell] = [f"{fraction:.0%}", label]
            for place, measure in enumerate(MEASURES):
                cells += [ours[measure], "-" if paper is None else Number(paper[place])]
            rows.append((*cells, ours["dof_points"]))
    heads = ("data", "method", "test NLL %", "paper", "DoF %", "paper", "sharpness %", "paper", "DoF points")
    return Table(heads, tuple(rows), text_columns=(0, 1))


def _by_dataset(study: Study, found: dict[Case, dict[str, float]], chosen: dict[Case, Chosen]) -> Table:
    more = study.chooses_more_than_mu
    rows: list[tuple[Cell, ...]] = []
    for case, changes in found.items():
        method, vanilla = chosen[case].method, chosen[case[0], case[1], "vanilla"].method
        numbers = [Number(changes[measure]) for measure in (*MEASURES, "dof_points")]
        starts = (method["init"], vanilla["init"], f"{vanilla['pseudocount']:g}") if more else ()
        rows.append((case[0], f"{case[1]:.0%}", case[2], *numbers, setting_text(method), *starts))
    heads = ("data set", "data", "method", "test NLL %", "DoF %", "sharpness %", "DoF points", "mu")
    others = ("start", "vanilla's\nstart", "vanilla's\npseudocount") if more else ()
    return Table((*heads, *others), tuple(rows), "By data set", text_columns=(0, 1, 2))


@dataclass(frozen=True, eq=False)
class _Line:
    """A line of Table B or C: what it begins with, what validation chose and what the paper prints, by label."""

    lead: tuple[str, ...]
    chosen: dict[str, Chosen]
    paper: dict[str, MeanStd | None]


def report_b(study: Study, records: Sequence[RunRecord]) -> Report:
    """The paper's table of test log-likelihoods (B), or of data fractions (C), with our numbers next to it."""
    heads = ("data set", "rows") if study.name == "table-c" else ("data set",)
    lines = _lines(records, len(heads) > 1)
    tables = (
        _main(lines, heads),
        _comparison(lines, heads),
        *([_choices(lines, heads)] if study.chooses_more_than_mu else []),
        _counts(lines),
    )
    values = tuple(_values(chosen, line) for line in lines for chosen in line.chosen.values())
    notes = (
        study.protocol.in_words(),
        choice_note(study),
        *grid_notes(study),
        "Best of a row in bold, second underlined; mean ± standard deviation (n - 1) over seeds, in nats.",
        TIE_RULE + " p is that of a two-sided paired t-test over seeds.",
        *_edges(lines, study),
        *not_compared(records),
        *provenance(records),
    )
    return Report(study.name, TITLES[study.name], tables, notes, COLUMNS_B, values)


def _lines(records: Sequence[RunRecord], shares: bool) -> list[_Line]:
    """shares: with the share of the training rows, and compared with the paper's table of them."""
    cases: dict[tuple[str, float], dict[str, Chosen]] = {}
    for chosen in choose_all(records):
        cases.setdefault((chosen.dataset, chosen.fraction), {})[chosen.label] = chosen
    lines = []
    for (name, fraction), row in cases.items():
        known = all(chosen.of_debd for chosen in row.values())
        share = fraction if shares else None
        paper = {label: paper_test_ll(name, label, share) if known else None for label in LABELS}
        lines.append(_Line((name, f"{fraction:.0%}") if shares else (name,), row, paper))
    return lines


def _edges(lines: Sequence[_Line], study: Study) -> list[str]:
    """How often the weakest penalty of the grid was the best: then a wider grid might have found a better one."""
    weakest = min(study.protocol.mus)
    found = []
    for label in METHODS:
        chosen = [line.chosen[label] for line in lines if label in line.chosen and line.chosen[label].candidates > 1]
        weak = sum(item.method["mu"] == weakest for item in chosen)
        if weak:
            found.append(f"{label} in {weak} of {len(chosen)} cases")
    return [f"Validation chose the smallest strength there was, {weakest:g}, for {', '.join(found)}."] if found else []


def _main(lines: Sequence[_Line], heads: tuple[str, ...]) -> Table:
    printed = any(paper for line in lines for paper in line.paper.values())
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        known = [line.chosen[label].spread() if label in line.chosen else MeanStd(math.nan) for label in LABELS]
        cells: list[Cell] = [*line.lead]
        for number, paper in zip(mark_best([Number.of(values) for values in known]), line.paper.values(), strict=True):
            cells += [number, "-" if paper is None else Number(paper.mean)] if printed else [number]
        rows.append(tuple(cells))
    columns = [head for label in LABELS for head in ((label, "paper") if printed else (label,))]
    return Table((*heads, *columns), tuple(rows))


def _comparison(lines: Sequence[_Line], heads: tuple[str, ...]) -> Table:
    """Differences seed by seed, and the strengths that validation chose."""
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        cells: list[Cell] = [*line.lead]
        for label in METHODS:
            found = gap_to(line.chosen, label, "vanilla")
            cells += ["-", "-"] if found is None else [Number(found.mean, found.std, 3, signed=True), p_text(found.p)]
        chosen = [setting_text(line.chosen[label].method) if label in line.chosen else "-" for label in METHODS]
        rows.append((*cells, *chosen))
    columns = [head for label in METHODS for head in (f"{label}\n- vanilla", "p")]
    return Table((*heads, *columns, "mu of\nglobal", "mu of\ngated"), tuple(rows), "Paired over seeds")


def _choices(lines: Sequence[_Line], heads: tuple[str, ...]) -> Table:
    """What validation chose for each method: a difference may be that of two starts, or of smoothing."""
    rows = tuple(
        (*line.lead, *(_choice_text(line.chosen[label].method) if label in line.chosen else "-" for label in LABELS))
        for line in lines
    )
    kinds = {"vanilla": "pseudocount", "global": "mu", "gated": "mu"}
    heads = (*heads, *(f"{label}:\nstart, {kind}" for label, kind in kinds.items()))
    return Table(heads, rows, "Chosen by validation", text_columns=tuple(range(len(heads))))


def _choice_text(method: Record) -> str:
    chosen = f"{method['pseudocount']:g}" if method["mu"] is None else setting_text(method)
    return f"{method['init']}, {chosen}"


def _counts(lines: Sequence[_Line]) -> Table:
    rows = []
    for a, b in PAIRS:
        both = [line.chosen for line in lines if a in line.chosen and b in line.chosen]
        ours = count((row[a].spread(), row[b].spread()) for row in both)
        named = [(line.paper[a], line.paper[b]) for line in lines]
        printed = [(x, y) for x, y in named if x is not None and y is not None]
        rows.append((f"{a} against {b}", ours.text(), count(printed).text() if printed else "-"))
    return Table(("", "ours", "paper, same data"), tuple(rows), "Wins / ties / losses")


def gap_to(row: dict[str, Chosen], label: str, base: str) -> Paired | None:
    """A method minus another, seed by seed; None where one of them was not run, or both are the same."""
    return paired(row[label], row[base]) if label != base and label in row and base in row else None


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


def _values(chosen: Chosen, line: _Line) -> Record:
    paper, against = line.paper.get(chosen.label), gap_to(line.chosen, chosen.label, "vanilla")
    return describe_chosen(chosen) | {
        "init": chosen.method["init"],
        **{"paper_mean": paper and paper.mean, "paper_std": paper and paper.std},
        **{"minus_vanilla": against and against.mean, "p_value": against and against.p},
    }


def describe_chosen(chosen: Chosen) -> Record:
    """The columns of a CSV file about one method on one data set."""
    found = chosen.spread()
    return {
        **{"dataset": chosen.dataset, "fraction": chosen.fraction, "label": chosen.label},
        **{"mean": found.mean, "std": found.std, "seeds": len(chosen.records)},
        **{name: chosen.method[name] for name in ("mu", "gate", "pseudocount")},
        "candidates": chosen.candidates,
        **{name: chosen.spread(name).mean for name in ("valid_ll", "train_ll", "dof", "sharpness")},
    }
