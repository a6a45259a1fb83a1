"""The study `pseudocounts`: which of the paper's claims about curvature and gating hold at which smoothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from circurve.curvature.measure import DOMINANT_FLOOR_SHARE
from circurve.learning import Gated, Global, Method, Vanilla
from circurve.reproduction.comparisons import CLOSE, KEPT, LARGE, not_compared, paper_test_ll
from circurve.reproduction.plan import provenance
from circurve.reproduction.records import Record, RunRecord, is_failed
from circurve.reproduction.spec import ReproduceOptions, Setting, Study, make_study, protocol_for
from circurve.reproduction.summary import Chosen, choose_rows, paired, upper_half
from circurve.reproduction.table import Cell, Number, Report, Table

__all__ = ["PSEUDOCOUNTS", "report_pseudocounts", "study_pseudocounts"]

PSEUDOCOUNTS, QUICK_PSEUDOCOUNTS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2), (0.0, 0.1)
MU = 0.01
"""The smallest strength of the paper."""

METHODS = ("vanilla", "global", "gated")
COLUMNS = (
    *("dataset", "pseudocount", *METHODS, "gated_minus_vanilla", "global_minus_vanilla", "sharpness"),
    *("total_9999", "local_9999", "total_99", "local_99", "upper_half", "reversals", "largest_local"),
)


@dataclass(frozen=True, eq=False)
class Case:
    """One data set at one pseudocount."""

    dataset: str
    pseudocount: float
    runs: Mapping[str, Chosen]
    """vanilla, global and gated."""

    @property
    def of_debd(self) -> bool:
        """Whether all runs were trained and tested on the files of DEBD."""
        return all(chosen.of_debd for chosen in self.runs.values())

    def score(self, label: str) -> float:
        """Mean test log-likelihood; NaN if it was not run."""
        return self.runs[label].mean() if label in self.runs else math.nan

    def gap(self, first: str, second: str) -> float:
        """Mean difference over seeds; NaN if one of them was not run."""
        return paired(self.runs[first], self.runs[second]).mean if {first, second} <= self.runs.keys() else math.nan

    def measured(self, *path: str) -> float:
        """A number of the curvature of plain EM, mean over runs; NaN where it is not known."""
        values = []
        for found in self.runs["vanilla"].curvatures() if "vanilla" in self.runs else []:
            value: object = found
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            values.append(float(value) if isinstance(value, int | float) else math.nan)
        return float(np.mean(values)) if values else math.nan

    @property
    def upper(self) -> float:
        """The share of the trace in the upper half of the depths."""
        found = self.runs["vanilla"].curvatures() if "vanilla" in self.runs else []
        return float(np.mean([upper_half(one["depth"]) for one in found])) if found else math.nan


Counts = dict[float, tuple[int, int]]
"""Pseudocount -> on how many data sets a claim holds, and of how many."""


@dataclass(frozen=True)
class Evidence:
    """What a reason may rest on."""

    counts: Mapping[str, Counts]
    """Of each claim."""

    mu: str
    """The strength of global and gated, in words."""

    floor_share: float
    """Without smoothing: the share of the mean of t that edges at the floor of the weights make up; NaN if unknown."""

    smoothing_costs_more: bool
    """On all large sets, the largest pseudocount costs vanilla more than the gated penalty does without one."""


@dataclass(frozen=True)
class ListedClaim:
    """A claim that is tested at every pseudocount."""

    test: Callable[[Case], bool | None]
    """Whether it holds in a case; None where it does not apply."""

    reason: Callable[[Evidence, Counts], str]
    """Why it holds or does not; nothing where the records do not show the effect that the reason explains."""


def _share(counts: Counts, smoothed: bool) -> float:
    """On what share of the data sets a claim holds, with any smoothing or without; NaN where there are none."""
    found = [pair for pseudocount, pair in counts.items() if (pseudocount > 0) == smoothed]
    judged = sum(judged for _, judged in found)
    return sum(held for held, _ in found) / judged if judged else math.nan


def _rises(counts: Counts) -> bool:
    """Whether a claim holds more often with smoothing than without."""
    return _share(counts, smoothed=True) > _share(counts, smoothed=False)


def _falls(counts: Counts) -> bool:
    """Whether a claim holds less often with smoothing than without."""
    return _share(counts, smoothed=True) < _share(counts, smoothed=False)


def _holds(counts: Counts) -> bool:
    return any(held for held, _ in counts.values())


def _where(shown: Callable[[Counts], bool], text: str) -> Callable[[Evidence, Counts], str]:
    """A reason that depends on its own claim alone."""
    return lambda _, counts: text if shown(counts) else ""


def _why_spread(evidence: Evidence, counts: Counts) -> str:
    if not _rises(counts) or not evidence.floor_share > DOMINANT_FLOOR_SHARE:
        return ""
    return (
        f"Without smoothing, edges with weights at the floor make up {evidence.floor_share:.0%} of the sum of t, and "
        "few nodes have such edges; with it t of all nodes is of one size."
    )


def _why_both(evidence: Evidence, counts: Counts) -> str:
    both = all(_rises(evidence.counts[claim]) for claim in (FEW_FOR_TOTAL, MANY_FOR_LOCAL))
    return "Both of the above at once: smoothing concentrates T and spreads t." if both and _rises(counts) else ""


def _why_gated(evidence: Evidence, counts: Counts) -> str:
    if _rises(counts) and evidence.smoothing_costs_more:
        return (
            "Both draw the weights of rarely used edges together, and the largest pseudocount costs vanilla itself "
            "more than the gated penalty does without one: little is left for the penalty to take."
        )
    if not _falls(counts) or not evidence.floor_share > DOMINANT_FLOOR_SHARE:
        return ""
    return (
        "Gates of t that is spread over all nodes come near to 1, and gated then to global; gates of a t that a few "
        "dead edges make up are near 0 almost everywhere, and gated is then near to vanilla."
    )


def _why_global(evidence: Evidence, counts: Counts) -> str:
    if not _holds(counts):
        return ""
    return (
        f"The penalty of mu = {evidence.mu} acts on counts of about B / K^2 for each edge, with K units and batches of "
        "B rows, and so on all of them like strong smoothing; gates take some of it back."
    )


def _large(case: Case) -> bool:
    """Whether it is one of the large sets of DEBD."""
    return case.of_debd and case.dataset in LARGE


def _near(case: Case, label: str) -> bool | None:
    """Whether our score is close to the paper's."""
    paper = paper_test_ll(case.dataset, label)
    if paper is None or not _large(case):
        return None
    return _answer(lambda score: abs(score - paper.mean) <= CLOSE, case.score(label))


def _answer(test: Callable[..., bool], *numbers: float) -> bool | None:
    """Whether these numbers pass a test; None where one is not known, as after a run that failed."""
    return None if any(map(math.isnan, numbers)) else test(*numbers)


def _shares(case: Case, share: str) -> tuple[float, float]:
    """Which shares of the nodes hold this share of T and of t."""
    return case.measured("total", "fractions", share), case.measured("local", "fractions", share)


FEW_FOR_TOTAL = "less than 10 % of the nodes hold 99.99 % of T"
MANY_FOR_LOCAL = "more than 60 % are needed for as much of t"

CLAIMS: dict[str, ListedClaim] = {
    FEW_FOR_TOTAL: ListedClaim(
        lambda case: _answer(lambda total: total < 0.1, _shares(case, "0.9999")[0]),
        _where(
            _rises,
            "A pseudocount keeps the weights of unused sums near 1 / K, so that unused nodes stay unused and add "
            "nothing to T; without it every node specialises on some rows and adds a little.",
        ),
    ),
    MANY_FOR_LOCAL: ListedClaim(
        lambda case: _answer(lambda local: local > 0.6, _shares(case, "0.9999")[1]), _why_spread
    ),
    "T is more concentrated than t (99 %)": ListedClaim(
        lambda case: _answer(lambda total, local: total < local, *_shares(case, "0.99")),
        _why_both,
    ),
    "the upper half of the depths holds more than half of T": ListedClaim(
        lambda case: _answer(lambda upper: upper > 0.5, case.upper),
        _where(
            _holds,
            "Flow is divided at every sum on the way down, so that F^2 falls with depth where t does not rise against "
            "it.",
        ),
    ),
    f"gated is at or above vanilla minus {KEPT:g} (large sets)": ListedClaim(
        lambda case: _answer(lambda gap: gap >= -KEPT, case.gap("gated", "vanilla")) if _large(case) else None,
        _why_gated,
    ),
    "global is below vanilla, and gated above global (large sets)": ListedClaim(
        lambda case: (
            _answer(
                lambda loss, gain: loss < -KEPT and gain > 0, case.gap("global", "vanilla"), case.gap("gated", "global")
            )
            if _large(case)
            else None
        ),
        _why_global,
    ),
    f"vanilla is the paper's within {CLOSE:g} (large sets)": ListedClaim(
        lambda case: _near(case, "vanilla"),
        _where(
            _falls,
            "Smoothing costs likelihood where there are enough rows: the paper's vanilla column is that of EM without "
            "it.",
        ),
    ),
    f"global is the paper's within {CLOSE:g} (large sets)": ListedClaim(
        lambda case: _near(case, "global"),
        lambda _, counts: "" if _holds(counts) else "The penalty alone does not explain the paper's global column.",
    ),
}


def study_pseudocounts(options: ReproduceOptions) -> Study:
    """Vanilla, and global and gated with one strength, by default the paper's smallest, each at every pseudocount."""
    mu = options.mu[0] if options.mu else MU
    settings = []
    for pseudocount in QUICK_PSEUDOCOUNTS if options.quick else PSEUDOCOUNTS:
        methods: dict[str, Method] = {
            "vanilla": Vanilla(pseudocount),
            "global": Global(mu, pseudocount),
            "gated": Gated(mu, gate=options.gate[0], pseudocount=pseudocount),
        }
        init = protocol_for(options).inits[0]
        settings += [Setting(f"{label} {pseudocount:g}", method, init) for label, method in methods.items()]
    return make_study("pseudocounts", options, settings)


def report_pseudocounts(study: Study, records: Sequence[RunRecord]) -> Report:
    """Each claim by pseudocount, with the reason; and the numbers behind it."""
    cases = _cases([record for record in records if not is_failed(record)])
    counts = {claim: _by_pseudocount(listed.test, cases) for claim, listed in CLAIMS.items()}
    evidence = Evidence(counts, _strengths(records), _floor_share(cases), _smoothing_costs_more(cases))
    notes = (
        study.protocol.in_words(),
        "Every method has one strength: nothing is chosen by validation log-likelihood.",
        "The reason after a claim is our explanation, not a measurement. It is left out where the records do not show "
        "the effect.",
        f"Claim by pseudocount: on how many data sets it holds, of those it is about. Global and gated: mu = "
        f"{evidence.mu}. "
        "The pseudocount is for each sum node and batch, divided among its edges; it is the same for all methods of "
        "a column. Concentration, depth and reversals are those of vanilla.",
        "Reversals: the share of pairs of nodes that T and t put in opposite orders.",
        *not_compared(records),
        *provenance(records),
    )
    findings = tuple(
        _sentence(claim, counts[claim], listed.reason(evidence, counts[claim]))
        for claim, listed in CLAIMS.items()
        if counts[claim]
    )
    tables = (_claim_table(counts), _fit_table(cases), _anatomy_table(cases))
    values = tuple(_values(case) for case in cases)
    return Report("pseudocounts", "Claims by pseudocount", tables, notes, COLUMNS, values, findings)


def _strengths(records: Sequence[RunRecord]) -> str:
    """`0.01`: the strength of all penalties of these records."""
    found = dict.fromkeys(record["method"]["mu"] for record in records if record["method"]["mu"] is not None)
    return " or ".join(f"{mu:g}" for mu in found)


def _floor_share(cases: Sequence[Case]) -> float:
    found = [case.measured("floor", "share") for case in cases if case.pseudocount == 0]
    return float(np.mean(found)) if found else math.nan


def _smoothing_costs_more(cases: Sequence[Case]) -> bool:
    """See `Evidence`; False where one of the two costs is not known."""
    of_set: dict[str, dict[float, Case]] = {}
    for case in filter(_large, cases):
        of_set.setdefault(case.dataset, {})[case.pseudocount] = case
    compared = [_costs_more(found.get(0.0), found[max(found)]) for found in of_set.values()]
    return bool(compared) and all(compared)


def _costs_more(plain: Case | None, smoothed: Case) -> bool:
    if plain is None:
        return False
    return plain.score("vanilla") - smoothed.score("vanilla") > -plain.gap("gated", "vanilla")


def _cases(records: Sequence[RunRecord]) -> list[Case]:
    found = []
    for dataset, row in choose_rows(records).items():
        for pseudocount in dict.fromkeys(chosen.method["pseudocount"] for chosen in row.values()):
            runs = {label: row[f"{label} {pseudocount:g}"] for label in METHODS if f"{label} {pseudocount:g}" in row}
            found.append(Case(dataset, pseudocount, runs))
    return found


def _by_pseudocount(test: Callable[[Case], bool | None], cases: Sequence[Case]) -> Counts:
    counts: Counts = {}
    for case in cases:
        answer = test(case)
        if answer is not None:
            held, judged = counts.get(case.pseudocount, (0, 0))
            counts[case.pseudocount] = (held + bool(answer), judged + 1)
    return counts


def _sentence(claim: str, counts: Counts, why: str) -> str:
    """`CLAIM: holds on all sets at 0.1 and 0.2, on none at 0. WHY`."""
    groups: dict[str, list[str]] = {"all": [], "some": [], "none": []}
    for pseudocount, (held, judged) in counts.items():
        groups["all" if held == judged else "some" if held else "none"].append(f"{pseudocount:g}")
    told = [f"on {how} of the sets at pseudocount {', '.join(at)}" for how, at in groups.items() if at]
    return f"{claim[0].upper()}{claim[1:]}: {'; '.join(told)}. {why}".rstrip()


def _claim_table(counts: Mapping[str, Counts]) -> Table:
    columns = sorted({pseudocount for found in counts.values() for pseudocount in found})
    rows = tuple(
        (claim, *(f"{found[p][0]} of {found[p][1]}" if p in found else "-" for p in columns))
        for claim, found in counts.items()
    )
    heads = ("claim \\ pseudocount", *(f"{pseudocount:g}" for pseudocount in columns))
    return Table(heads, rows, "Claim by pseudocount: data sets on which it holds")


def _fit_table(cases: Sequence[Case]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        scores = [Number.of(case.runs[label].spread()) if label in case.runs else "-" for label in METHODS]
        gaps = [Number(case.gap(label, "vanilla"), None, 3, signed=True) for label in METHODS[1:]]
        paper = [paper_test_ll(case.dataset, label) if case.of_debd else None for label in METHODS]
        printed = ["-" if found is None else Number(found.mean) for found in paper]
        rows.append((case.dataset, f"{case.pseudocount:g}", *scores, *gaps, *printed))
    heads = ("data set", "pseudocount", *METHODS, "global\n- vanilla", "gated\n- vanilla")
    return Table((*heads, *(f"paper's\n{label}" for label in METHODS)), tuple(rows), "Test log-likelihood")


def _anatomy_table(cases: Sequence[Case]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for case in cases:
        values = _values(case)
        names = ("total_9999", "local_9999", "total_99", "local_99", "upper_half", "reversals")
        shares = ["-" if math.isnan(values[name]) else f"{values[name]:.1%}" for name in names]
        sizes = [f"{values[name]:.3g}" for name in ("largest_local", "sharpness")]
        rows.append((case.dataset, f"{case.pseudocount:g}", *shares, *sizes))
    heads = (
        *("data set", "pseudocount", "nodes of\n99.99 % of T", "of t", "nodes of\n99 % of T", "of t"),
        *("T in the\nupper half", "reversals", "largest t", "sharpness"),
    )
    return Table(heads, tuple(rows), "Where the trace is after plain EM")


def _values(case: Case) -> Record:
    shares = {
        f"{by}_{level[2:]}": case.measured(by, "fractions", level)
        for level in ("0.9999", "0.99")
        for by in ("total", "local")
    }
    return {
        **{"dataset": case.dataset, "pseudocount": case.pseudocount, **{m: case.score(m) for m in METHODS}},
        **{f"{label}_minus_vanilla": case.gap(label, "vanilla") for label in METHODS[1:]},
        "sharpness": case.runs["vanilla"].mean("sharpness") if "vanilla" in case.runs else math.nan,
        **shares,
        **{"upper_half": case.upper, "reversals": case.measured("reversals")},
        "largest_local": case.measured("estimates", "mean_trace", "largest_local"),
    }
