"""Reports of the studies of curvature: each method against tuned plain EM, paired over seeds; outcomes in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from circurve.reproduction import studies as specs
from circurve.reproduction.plan import choice_note, grid_notes, provenance
from circurve.reproduction.records import Record, RunRecord, as_run, is_failed
from circurve.reproduction.spec import ReproduceOptions, Study
from circurve.reproduction.studies import BASE, LABELS, RULES, stopped_scores
from circurve.reproduction.study_data import CHANGES, TEST_NOISE
from circurve.reproduction.summary import TIE, Chosen, Paired, choose_all, paired
from circurve.reproduction.table import Cell, Number, Report, Table
from circurve.reproduction.tables import p_text, setting_text

__all__ = [
    "STUDIES",
    "Outcome",
    "TableSpec",
    "judge",
    "report_ensembles",
    "report_plain",
    "report_stopping",
    "report_test_noise",
    "report_weights",
]

COLUMNS = (
    *("case", "dataset", "fraction", "label", "test_ll", "std", "seeds", "mu", "pseudocount", "candidates"),
    *("minus_base", "standard_error", "p_value"),
)
SIGNIFICANT = 0.05
CHANGED_GRID = (
    "The grid was changed after a first run, whose test scores had been seen: validation had nearly always chosen the "
    "weakest strength, so weaker ones took the place of the strongest; and plain EM had pseudocounts that penalties "
    "lacked."
)
TESTS = (
    "Differences are paired over seeds: mean ± standard error, p of a two-sided paired t-test, not corrected for the "
    f"number of tests. A clear difference is one above {TIE:g} nats with p below {SIGNIFICANT:g}."
)


@dataclass(frozen=True)
class Outcome:
    """A method against the base on one data set."""

    dataset: str
    label: str
    gap: Paired

    @property
    def clear(self) -> int:
        """1 for a clear gain, -1 for a clear loss, else 0."""
        if self.gap.p is None or self.gap.p >= SIGNIFICANT or abs(self.gap.mean) <= TIE:
            return 0
        return 1 if self.gap.mean > 0 else -1

    @property
    def error(self) -> float | None:
        """The standard error of the mean difference."""
        return None if self.gap.std is None else self.gap.std / math.sqrt(self.gap.seeds)

    def text(self) -> str:
        """`dna +0.31`."""
        return f"{self.dataset} {Number(self.gap.mean, None, 2, signed=True).text()}"


Lines = dict[tuple[str, str, float], dict[str, Chosen]]
"""Case, data set and share of the rows -> label -> what validation chose."""


def lines_of(records: Sequence[RunRecord], case: str = "") -> Lines:
    """What validation chose for each label, on each data set and share of its rows."""
    found: Lines = {}
    for chosen in choose_all(records):
        found.setdefault((case, chosen.dataset, chosen.fraction), {})[chosen.label] = chosen
    return found


def judge(label: str, outcomes: Sequence[Outcome], base: str = "tuned plain EM") -> str:
    """One sentence about a method: whether it helps, where, and by how much."""
    known = [outcome for outcome in outcomes if not math.isnan(outcome.gap.mean)]
    if not known:
        return f"{label} cannot be compared with {base}: there is no seed for which the scores of both are known."
    gains, losses = ([o for o in known if o.clear == sign] for sign in (1, -1))
    if gains and losses:
        verdict = "helps on some sets and harms on others"
    else:
        verdict = "helps" if gains else "harms" if losses else "makes no clear difference"
    told = [
        *([f"clearly above on {', '.join(o.text() for o in gains)}"] if gains else []),
        *([f"clearly below on {', '.join(o.text() for o in losses)}"] if losses else []),
    ]
    others = len(known) - len(gains) - len(losses)
    told += [f"no clear difference on {others} of {len(known)} sets"] if others else []
    mean = Number(float(np.mean([o.gap.mean for o in known])), None, 3, signed=True).text()
    return f"{label} {verdict} against {base}: {'; '.join(told)}; mean difference {mean} nats."


def _outcomes(lines: Lines, base: str) -> dict[tuple[str, str], list[Outcome]]:
    """Case and label -> an outcome for each data set."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for (case, dataset, fraction), row in lines.items():
        for label, chosen in row.items():
            if label != base and base in row:
                share = "" if fraction == 1 else f" {fraction:.0%}"
                outcome = Outcome(dataset + share, label, paired(chosen, row[base]))
                found.setdefault((case, label), []).append(outcome)
    return found


def _table(lines: Lines, base: str, case_head: str = "") -> Table:
    """A line for each data set: the base, and each method's difference to it."""
    labels = list(dict.fromkeys(label for row in lines.values() for label in row if label != base))
    shares = len({fraction for _, _, fraction in lines}) > 1
    leads = [case_head] * bool(case_head) + ["data set"] + ["rows"] * shares
    rows: list[tuple[Cell, ...]] = []
    for (case, dataset, fraction), row in lines.items():
        cells: list[Cell] = [*[case] * bool(case_head), dataset, *[f"{fraction:.0%}"] * shares]
        cells += [Number.of(row[base].spread()) if base in row else "-"]
        for label in labels:
            if label not in row or base not in row:
                cells += ["-", "-"]
                continue
            outcome = Outcome(dataset, label, paired(row[label], row[base]))
            cells += [Number(outcome.gap.mean, outcome.error, 3, signed=True), p_text(outcome.gap.p)]
        rows.append(tuple(cells))
    heads = (*leads, base, *(head for label in labels for head in (f"{label}\n- {base}", "p")))
    return Table(heads, tuple(rows), "Test log-likelihood, and differences to it", tuple(range(len(leads))))


def _chosen_table(lines: Lines) -> Table:
    labels = list(dict.fromkeys(label for row in lines.values() for label in row))
    shares = len({fraction for _, _, fraction in lines}) > 1
    rows = []
    for (_, dataset, fraction), row in lines.items():
        texts = [setting_text(row[label].method) if label in row else "-" for label in labels]
        rows.append((dataset, *([f"{fraction:.0%}"] if shares else []), *texts))
    heads = ("data set", *(["rows"] if shares else []), *labels)
    return Table(heads, tuple(rows), "Chosen by validation: mu +pseudocount", tuple(range(len(heads))))


def _values(lines: Lines, base: str) -> tuple[Record, ...]:
    values = []
    for (case, dataset, fraction), row in lines.items():
        for label, chosen in row.items():
            found, gap = chosen.spread(), paired(chosen, row[base]) if label != base and base in row else None
            outcome = None if gap is None else Outcome(dataset, label, gap)
            what = {"case": case, "dataset": dataset, "fraction": fraction, "label": label}
            what |= {"test_ll": found.mean, "std": found.std, "seeds": found.count, "candidates": chosen.candidates}
            what |= {name: chosen.method.get(name) for name in ("mu", "pseudocount")}
            error = None if outcome is None else outcome.error
            values.append(what | {"minus_base": gap and gap.mean, "standard_error": error, "p_value": gap and gap.p})
    return tuple(values)


def _report(  # noqa: PLR0913 - what a report is made of
    study: Study,
    records: Sequence[RunRecord],
    title: str,
    lines: Lines,
    about: str,
    *,
    base: str = BASE,
    case_head: str = "",
) -> Report:
    """base: the label that others are compared with; case_head: what the first column is, where there are cases."""
    sentences = []
    for (case, label), outcomes in _outcomes(lines, base).items():
        against = "tuned plain EM" if base == BASE else base
        sentences.append((f"{case}: " if case else "") + judge(label, outcomes, against))
    tables = [_table(lines, base, case_head)]
    if base == BASE and not case_head:
        tables.append(_chosen_table(lines))
    notes = (
        about,
        study.protocol.in_words(),
        choice_note(study),
        *grid_notes(study),
        _candidates(study),
        CHANGED_GRID,
        TESTS,
        *(f"{label}: {text}." for label, text in LABELS.items()),
        *provenance(records),
    )
    return Report(study.name, title, tuple(tables), notes, COLUMNS, _values(lines, base), tuple(sentences))


def _candidates(study: Study) -> str:
    counts = {label: sum(setting.label == label for setting in study.settings) for label in study.labels}
    if len(set(counts.values())) == 1:
        return f"Every method has {next(iter(counts.values()))} candidates.{_other_pseudocounts(study)}"
    return f"Candidates: {', '.join(f'{label} {count}' for label, count in counts.items())}."


def _other_pseudocounts(study: Study) -> str:
    """A warning where plain EM may choose a pseudocount that a penalised method does not have."""
    by_label = {label: {s.method.pseudocount for s in study.settings if s.label == label} for label in study.labels}
    if all(by_label[BASE] <= found for found in by_label.values()):
        return ""
    return (
        " Plain EM has more pseudocounts to choose from, and penalties have strengths instead. Where plain EM chose a"
        " pseudocount that penalties do not have, part of the difference comes from that."
    )


def report_plain(title: str, about: str, study: Study, records: Sequence[RunRecord]) -> Report:
    """Scores as they are, of whatever data the study has."""
    return _report(study, records, title, lines_of(records), about)


def _with_score(record: RunRecord, score: float | None) -> RunRecord:
    """The record with another test log-likelihood; what validation says stays."""
    return _with_scores(record, {"test_ll": score})


def _with_scores(record: RunRecord, scores: Mapping[str, float | None]) -> RunRecord:
    best, final = {**record["best"], **scores}, {**record["final"], **scores}
    return as_run({**record, "best": best, "final": final})


def _probed(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if not is_failed(record) and record.get("probe")]


def report_scores(
    title: str, about: str, names: Sequence[str], loss: bool, study: Study, records: Sequence[RunRecord]
) -> Report:
    """Scores that the probe measured. loss: minus the model's own score, so that a difference is what is lost less."""
    lines: Lines = {}
    for name in names:
        changed = []
        for record in _probed(records):
            score, own = record["probe"]["scores"][name], record["best"]["test_ll"]
            known = score is not None and own is not None
            changed.append(_with_score(record, None if not known else score - own if loss else score))
        lines |= lines_of(changed, name)
    return _report(study, records, title, lines, about, case_head="change")


def report_test_noise(study: Study, records: Sequence[RunRecord]) -> Report:
    """Test rows with noise that training did not have."""
    about = (
        "A share of the cells of the test rows has the value of another row of the same column; training and "
        "validation rows are clean."
    )
    names = [f"test noise {share:g}" for share in TEST_NOISE]
    return report_scores("Study: noise in test rows", about, names, False, study, records)


def report_weights(study: Study, records: Sequence[RunRecord]) -> Report:
    """What coarse and noisy weights cost."""
    about = (
        "Test log-likelihood with changed sum weights minus that of the model itself: what is lost. A positive "
        "difference to plain EM is less lost. Bits: of the log of each weight, from its sum's largest down by 1e6. "
        "Relative noise: theta exp(0.3 e); added noise: theta + 0.01 e, e standard normal, three draws, the same for "
        "all runs; weights are normalised afterwards."
    )
    return report_scores("Study: coarse and noisy weights", about, list(CHANGES), True, study, records)


def report_ensembles(study: Study, records: Sequence[RunRecord]) -> Report:
    """Mixtures of the runs of a method, as many members each."""
    found: dict[tuple[str, str, int], RunRecord] = {}
    members = set()
    for record in _probed(records):
        mixed = record["probe"]["ensemble"]
        scores = {"test_ll": mixed["test_ll"], "valid_ll": mixed["valid_ll"]}
        members.add(mixed["members"])
        case = (record["dataset"], record["label"], mixed["number"])
        method = {**record["method"], "mu": None, "gate": None, "pseudocount": None, "name": "ensemble"}
        made = {**record, "seed": mixed["number"], "method": {**method, "estimator": None}}
        found[case] = _with_scores(as_run(made), scores)
    counts = " or ".join(str(count) for count in sorted(members))
    about = (
        f"Mixtures of {counts} models: one of each candidate of a method, seeds in turn, each at its best "
        "epoch, weighted by EM on the validation rows. No model is in two mixtures, and mixtures of two methods with "
        "the same seeds are compared."
    )
    lines = lines_of(list(found.values()))
    report = _report(study, records, "Study: ensembles of flat members", lines, about)
    return replace(report, tables=report.tables[:1])


def report_stopping(study: Study, records: Sequence[RunRecord]) -> Report:
    """Rules that need no validation rows, on the histories of plain EM."""
    lines: Lines = {}
    plain = [r for r in records if r["label"] == BASE and not is_failed(r)]
    for pseudocount in dict.fromkeys(record["method"]["pseudocount"] for record in plain):
        made = []
        for record in plain:
            if record["method"]["pseudocount"] == pseudocount:
                made += [
                    as_run({**_with_score(record, s), "label": name}) for name, s in stopped_scores(record).items()
                ]
        lines |= lines_of(made, f"pseudocount {pseudocount:g}")
    about = (
        "Test log-likelihood of plain EM where a rule stops it. Rules see training rows alone: the last epoch; the "
        "epoch before the trace first rises again; the smallest trace after a tenth of the epochs; the largest train "
        "likelihood minus trace / (2 rows). Validation: the best epoch by validation rows, for reference."
    )
    base = next(iter(RULES))
    title = "Study: stopping without validation rows"
    return _report(study, records, title, lines, about, base=base, case_head="plain EM with")


@dataclass(frozen=True)
class TableSpec:
    """One table, of the paper or in addition to it: the study that it needs, and how it summarises the records."""

    study: Callable[[ReproduceOptions], Study]
    report: Callable[[Study, Sequence[RunRecord]], Report]


def _plain(study: Callable[[str, ReproduceOptions], Study], name: str, title: str, about: str) -> TableSpec:
    return TableSpec(partial(study, name), partial(report_plain, f"Study: {title}", about))


def _models(name: str, report: Callable[[Study, Sequence[RunRecord]], Report]) -> TableSpec:
    return TableSpec(partial(specs.clean_study, name), report)


STUDIES = {
    "study-clean": _plain(specs.clean_study, "study-clean", "all rows, as they are", "All training rows, clean."),
    "study-scarce": _plain(
        specs.scarce_study, "study-scarce", "scarce data", "Small shares of the training rows, drawn by the seed."
    ),
    "study-corrupted": _plain(
        specs.corrupted_study,
        "study-corrupted",
        "corrupted training rows",
        f"In {specs.CORRUPTED_ROWS:.0%} of the training and validation rows, {specs.CORRUPTED_CELLS:.0%} of the cells "
        "have the value of another row of the same column; test rows are clean.",
    ),
    "study-selected": _plain(
        specs.selected_study,
        "study-selected",
        "training rows selected by a column",
        "Of the training and validation rows with the rarer value of the most balanced column, one in ten is left; "
        "test rows are as they were.",
    ),
    "study-test-noise": _models("study-test-noise", report_test_noise),
    "study-units": _plain(
        specs.large_study, "study-units", "far too many units", "All training rows, clean; many units and few epochs."
    ),
    "study-ensembles": _models("study-ensembles", report_ensembles),
    "study-stopping": _models("study-stopping", report_stopping),
    "study-weights": _models("study-weights", report_weights),
}
"""The studies of the protocol `fair`; study-clean, -test-noise, -ensembles, -stopping and -weights share their runs."""
