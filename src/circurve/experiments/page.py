"""One Markdown page about a reproduction: which claims hold where, what we advise, all tables, all figures.

Nothing is typed in by hand: every verdict is computed from records.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from circurve.experiments import claims
from circurve.experiments.claim import TERMS, Check, Claim, best_of, rows_with, settings_in_words, signed
from circurve.experiments.claims import PENALTIES
from circurve.experiments.outputs import FIGURE_NAMES, TABLES, Shelf
from circurve.experiments.records import Record
from circurve.experiments.spec import PROTOCOLS
from circurve.experiments.studies import BY_VALIDATION
from circurve.experiments.study_report import SIGNIFICANT, STUDIES
from circurve.experiments.summary import TIE, Rows, paired
from circurve.experiments.table import Cell, Number, Report, Table, as_markdown, folded, markdown_table
from circurve.experiments.tables_beyond import SMOOTHED

__all__ = [
    "CLAIMS",
    "PAPER_AUTHORS",
    "PAPER_TITLE",
    "StudyLine",
    "both_structures",
    "check_claims",
    "load_shelves",
    "opening",
    "reproduction_page",
    "study_lines",
]

SHARPNESS_FALLS = "sharpness falls under global and under gated."
OVERFITTING_FALLS = "the degree of overfitting falls under global and under gated, with all training rows."

UNSMOOTHED, BEST = ("paper", "paper-own"), ("best",)
LAST = (*UNSMOOTHED, "smoothed")
ALL = (*LAST, *BEST)

FIT, PENALTY_EFFECTS, ANATOMY = "Fit", "What the penalties do", "Where the trace is"


@dataclass(frozen=True)
class ListedClaim:
    """A claim to check."""

    group: str
    line: str
    """The claim in a few words, for the overview."""

    check: Check
    protocols: tuple[str, ...]
    """By which it is judged."""


CLAIMS = (
    ListedClaim(FIT, "vanilla reaches the paper's scores on the large data sets", claims.vanilla_matches, UNSMOOTHED),
    ListedClaim(
        FIT,
        "the method that validation chooses scores at least as well as every method of the paper",
        claims.best_reaches_the_paper,
        BEST,
    ),
    ListedClaim(
        FIT,
        "with the paper's strengths, gated scores as well as vanilla on the large data sets",
        claims.gated_keeps_the_fit,
        ALL,
    ),
    ListedClaim(
        FIT,
        "with weaker penalties, gated scores as well as vanilla on the large data sets",
        partial(claims.weakly_gated_keeps_the_fit, "table-d", claims.PLAIN_OPENINGS),
        ALL,
    ),
    ListedClaim(
        FIT,
        "with weaker penalties, gated scores as well as smoothed vanilla on the large data sets",
        partial(claims.weakly_gated_keeps_the_fit, "table-b", claims.SMOOTHED_OPENINGS),
        BEST,
    ),
    ListedClaim(
        FIT, "gated scores clearly better than vanilla on the small data sets", claims.gated_helps_small_sets, ALL
    ),
    ListedClaim(FIT, "with the paper's strengths, global underfits the large data sets", claims.global_underfits, ALL),
    ListedClaim(
        FIT, "weaker penalties undo at least half of global's loss", claims.smaller_strengths_rescue_global, ALL
    ),
    ListedClaim(FIT, "gated scores better than global", claims.gated_beats_global, ALL),
    ListedClaim(
        FIT,
        "vanilla, stopped early, scores at least as well as every method at its last epoch",
        claims.early_stopping_wins,
        UNSMOOTHED,
    ),
    ListedClaim(
        FIT, "a penalty scores better than vanilla with the best pseudocount", claims.penalties_beat_smoothing, ALL
    ),
    ListedClaim(
        FIT, "exact updates score better than the approximate ones of the paper", claims.exact_updates_help, ALL
    ),
    ListedClaim(FIT, "global helps if rows are scarce, and harms with all rows", claims.low_data_helps, LAST),
    ListedClaim(FIT, "both penalties help if rows are scarce", claims.low_data_helps_beside_stopping, BEST),
    ListedClaim(
        PENALTY_EFFECTS,
        "both penalties make the model less sharp",
        partial(claims.falls, "sharpness", "{:.0f} %", SHARPNESS_FALLS),
        ALL,
    ),
    ListedClaim(
        PENALTY_EFFECTS,
        "both penalties reduce overfitting, the gap between training and validation scores",
        partial(claims.falls, "dof_points", "{:.2f} points", OVERFITTING_FALLS),
        ALL,
    ),
    ListedClaim(
        ANATOMY,
        "less than 10 % of the nodes hold almost all of T, but almost all of t needs more than 60 %",
        claims.trace_is_concentrated,
        ALL,
    ),
    ListedClaim(ANATOMY, "T is concentrated in fewer nodes than t", claims.usage_concentrates, ALL),
    ListedClaim(
        ANATOMY, "the upper half of the circuit holds more than half of the trace", claims.shallow_nodes_dominate, ALL
    ),
)
"""Each claim about our records."""

OF_THE_PAPER_ALONE = "two tables of the paper agree with each other"


def check_claims(shelves: Mapping[str, Shelf]) -> list[Claim]:
    """All claims that can be checked with the records of the protocols, each with its group, line and protocol."""
    found = []
    for listed in CLAIMS:
        for name in listed.protocols:
            claim = listed.check(shelves[name], name) if name in shelves else None
            if claim is not None:
                found.append(replace(claim, group=listed.group, line=listed.line, protocol=name))
    return [*found, replace(claims.tables_of_the_paper_agree(), group=FIT, line=OF_THE_PAPER_ALONE)]


PAPER_TITLE = "A Compositional Theory of Curvature in Probabilistic Circuits"
PAPER_AUTHORS = (
    "Hrithik Suresh, Sahil Sidheekh, Shelar Parth Vijay, Yasir Z, Sriraam Natarajan and Narayanan Chatapuram Krishnan"
)
WITHOUT, WITH = ("paper", "paper-own"), ("smoothed",)
SHORT = {True: "yes", False: "no", None: "in part"}
KINDS = (
    "Holds",
    "Holds only without smoothing",
    "Holds only with smoothing",
    "Holds for the last epoch, but not if validation chooses the epoch",
    "Holds in part",
    "Does not hold",
)


def opening(claims: Sequence[Claim], shelves: Mapping[str, Shelf]) -> str:
    """Findings on one screen; the numbers are folded away."""
    by_line: dict[str, dict[str, Claim]] = {}
    for claim in claims:
        by_line.setdefault(claim.line, {})[claim.protocol] = claim
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for line, found in by_line.items():
        verdicts = {protocol: claim.holds for protocol, claim in found.items()}
        kinds[kind_of(verdicts)].append(f"- {line[0].upper()}{line[1:]}{_told(verdicts)}")
    parts = ["## Findings", TERMS, settings_in_words(shelves)]
    for kind, lines in kinds.items():
        parts += [f"**{kind}**", "\n".join(lines)] if lines else []
    advice = _advice(shelves)
    parts += ["**What we recommend**", "\n".join(f"- {line}" for line in advice)] if advice else []
    return "\n\n".join(filter(None, [*parts, _details(claims)]))


def kind_of(verdicts: Mapping[str, bool | None]) -> str:
    """Where a claim holds. verdicts: by protocol; None is in part."""
    values = set(verdicts.values())
    if values == {True}:
        return "Holds"
    if values == {False}:
        return "Does not hold"
    plain, smoothed, best = (
        [verdicts[name] for name in names if name in verdicts] for names in (WITHOUT, WITH, ("best",))
    )
    if plain and smoothed and all(plain) and not any(smoothed):
        return "Holds only without smoothing"
    if plain and smoothed and all(smoothed) and not any(plain):
        return "Holds only with smoothing"
    if plain and best and all([*plain, *smoothed]) and best == [False]:
        return "Holds for the last epoch, but not if validation chooses the epoch"
    return "Holds in part"


def _told(verdicts: Mapping[str, bool | None]) -> str:
    """` (paper: yes, best: in part)`; nothing for a claim that needs no records."""
    told = ", ".join(f"{protocol}: {SHORT[holds]}" for protocol, holds in verdicts.items() if protocol)
    return f" ({told})" if told else ""


def _details(claims: Sequence[Claim]) -> str:
    """All claims in full with their numbers, in groups."""
    parts = ["<details><summary>Each claim with its numbers</summary>"]
    for group, members in groupby(sorted(claims, key=lambda claim: claim.group), key=lambda claim: claim.group):
        rows = tuple((claim.text, claim.verdict, claim.evidence) for claim in members)
        table = Table(("claim", "verdict", "numbers"), rows, text_columns=(0, 1, 2))
        parts += [f"**{group}**", markdown_table(table)]
    return "\n\n".join([*parts, "</details>"])


def _advice(shelves: Mapping[str, Shelf]) -> list[str]:
    found: list[str] = []
    if "best" in shelves:
        rows = rows_with(shelves["best"], "table-d", SMOOTHED, *PENALTIES)
        gaps = {n: paired(row[best_of(row, PENALTIES)], row[SMOOTHED]).mean for n, row in rows.items()}
        if gaps:
            told = ", ".join(f"{name} {signed(gap)}" for name, gap in gaps.items())
            found.append(
                f"Before you try a penalty, choose the epoch and a small pseudocount by validation. With both, the "
                f"better of global and gated minus plain EM is: {told} (protocol `best`, Table D)."
            )
    for protocol in WITHOUT:
        if protocol in shelves:
            found += _stopping(rows_with(shelves[protocol], "table-b", "vanilla", "gated"), protocol)
            break
    structures = _structure_advice(shelves)
    helps = [f"Try a curvature penalty in this case. {o.text()}." for o in study_lines(shelves).values() if o.helps]
    return [*found, *structures, *helps]


def _stopping(rows: Rows, protocol: str) -> list[str]:
    gaps = {}
    for name, row in rows.items():
        stopped = float(np.mean([record["best"]["test_ll"] for record in row["vanilla"].records]))
        gaps[name] = stopped - max(row[label].mean() for label in row)
    if not gaps:
        return []
    told = ", ".join(f"{name} {signed(gap)}" for name, gap in gaps.items())
    return [
        f"If you train without smoothing, stop by validation. Plain EM at its best epoch, minus the best method at "
        f"its last epoch: {told} (protocol `{protocol}`)."
    ]


def _structure_advice(shelves: Mapping[str, Shelf]) -> list[str]:
    lines = _structure_lines(shelves)
    if not lines:
        return []
    better = [name for name, line in lines.items() if line["gap"] > TIE]
    nodes = float(np.mean([line["nodes shared"] / line["nodes own"] for line in lines.values()]))
    return [
        f"Circuits in which leaves share the hidden variable of their parent need {1 - nodes:.0%} fewer sum nodes on "
        f"average, and score better on {', '.join(better) or 'none'} of {', '.join(lines)} (vanilla, by more than "
        f"{TIE:g} nats)."
    ]


def _structure_lines(shelves: Mapping[str, Shelf]) -> dict[str, dict[str, float]]:
    """Data set -> vanilla and gated of both structures, and how many sum nodes each has."""
    if not {"paper", "paper-own"} <= shelves.keys():
        return {}
    shared, own = (rows_with(shelves[name], "table-b", "vanilla", "gated") for name in ("paper", "paper-own"))
    lines = {}
    for name in shared:
        if name in own:
            parts = {"shared": shared[name], "own": own[name]}
            line = {f"vanilla {kind}": row["vanilla"].mean() for kind, row in parts.items()}
            line |= {f"gated {kind}": paired(row["gated"], row["vanilla"]).mean for kind, row in parts.items()}
            for kind, row in parts.items():
                counts = [found.get("sum_nodes", math.nan) for found in row["vanilla"].curvatures()]
                line[f"nodes {kind}"] = float(np.mean(counts)) if counts else math.nan
            lines[name] = line | {"gap": line["vanilla shared"] - line["vanilla own"]}
    return lines


def both_structures(shelves: Mapping[str, Shelf]) -> str:
    """A table of both structures by the paper's protocol; nothing unless both were run."""
    lines = _structure_lines(shelves)
    if not lines:
        return ""
    rows: list[tuple[Cell, ...]] = []
    for name, line in lines.items():
        scores = [
            Number(line["vanilla shared"]),
            Number(line["vanilla own"]),
            Number(line["gap"], None, 3, signed=True),
        ]
        gaps = [Number(line[f"gated {kind}"], None, 3, signed=True) for kind in ("shared", "own")]
        nodes = [Number(line[f"nodes {kind}"], None, 0) for kind in ("shared", "own")]
        rows.append((name, *scores, *gaps, *nodes))
    heads = (
        *("data set", "vanilla,\nshared leaves", "vanilla,\nown latents", "shared\n- own"),
        *("gated - vanilla,\nshared", "gated - vanilla,\nown", "sum nodes,\nshared", "sum nodes,\nown"),
    )
    return f"## Both structures\n\n{markdown_table(Table(heads, tuple(rows)))}"


@dataclass(frozen=True)
class StudyLine:
    """The outcome of a study."""

    title: str
    counts: Mapping[str, tuple[int, int, int]]
    """Method or rule -> clear gains, clear losses, and of how many cases."""

    @property
    def helps(self) -> bool:
        """Whether some method, or some rule by the trace, has more clear gains than losses."""
        return any(gains > losses for label, (gains, losses, _) in self.counts.items() if label != BY_VALIDATION)

    def text(self) -> str:
        """`Scarce data: global 1 clear gain, 2 losses of 10; gated ...`."""
        told = []
        for label, (gains, losses, cases) in self.counts.items():
            ends = ("" if gains == 1 else "s", "" if losses == 1 else "es")
            told.append(f"{label} {gains} clear gain{ends[0]}, {losses} loss{ends[1]} of {cases}")
        return f"{self.title[0].upper()}{self.title[1:]}: {'; '.join(told)}"


def study_lines(shelves: Mapping[str, Shelf]) -> dict[str, StudyLine]:
    """Study -> its outcome; {} if none was run."""
    found = {}
    for shelf in shelves.values():
        for name in STUDIES:
            report = shelf.report(name)
            if report is not None:
                found[name] = _study_line(report)
    return found


def _study_line(report: Report) -> StudyLine:
    counts = {}
    for label in dict.fromkeys(value["label"] for value in report.values if value["minus_base"] is not None):
        of = [v for v in report.values if v["label"] == label and v["minus_base"] is not None]
        clear = [v["minus_base"] for v in of if v["p_value"] is not None and v["p_value"] < SIGNIFICANT]
        gains, losses = (sum(sign * gap > TIE for gap in clear) for sign in (1, -1))
        counts[label] = (gains, losses, len(of))
    return StudyLine(report.title.removeprefix("Study: "), counts)


INTRODUCTION = f"""# Reproduction

We computed the tables and figures of *{PAPER_TITLE}*
by {PAPER_AUTHORS}
again, and added experiments of our own. `python docs/make_reproduction.py` makes this page from the result records next
to it; every verdict and every number is computed from them.
"""


def load_shelves(folder: Path) -> dict[str, Shelf]:
    """FOLDER/PROTOCOL for every protocol, each made by `circurve reproduce --out`; missing ones are left out."""
    shelves = {protocol: Shelf.load(folder / protocol) for protocol in PROTOCOLS}
    return {protocol: shelf for protocol, shelf in shelves.items() if shelf.records}


def reproduction_page(shelves: Mapping[str, Shelf], folder: Path, link: str) -> str:
    """The page. Figures are in `folder`/PROTOCOL, and `link` is how the page refers to that folder."""
    parts = [INTRODUCTION, opening(check_claims(shelves), shelves), both_structures(shelves), _studies(shelves)]
    for protocol, shelf in shelves.items():
        parts.append(f"## Protocol {protocol}")
        for report in filter(None, (shelf.report(table) for table in TABLES)):
            parts += [as_markdown(replace(report, notes=()), level=3), folded(report.notes)]
        parts += [_figure(folder / protocol, f"{link}/{protocol}", name) for name in FIGURE_NAMES]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _studies(shelves: Mapping[str, Shelf]) -> str:
    """Where curvature helps after fair tuning: a line for each study; empty if none was run."""
    lines = study_lines(shelves)
    if not lines:
        return ""
    title = "## Where curvature helps after fair tuning"
    about = "Compared with tuned plain EM (stopping rules: with its last epoch); counts are data sets and cases:"
    return "\n\n".join([title, about, "\n".join(f"- {line.text()}" for line in lines.values())])


def _figure(folder: Path, link: str, name: str) -> str:
    """A figure with its caption, findings and origin; empty if it was not drawn."""
    path = folder / f"{name}.json"
    if not path.exists():
        return ""
    about: Record = json.loads(path.read_text(encoding="utf-8"))
    found = "\n".join(f"- {line}" for line in about["findings"])
    picture = f"![{about['title']}]({link}/{name}.svg)" if (folder / f"{name}.svg").exists() else ""
    parts = [f"### {name}: {about['title']}", picture, about["reading"], found, folded(about["notes"])]
    return "\n\n".join(part for part in parts if part)
