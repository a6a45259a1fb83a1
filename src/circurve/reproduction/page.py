"""One Markdown page about a reproduction: which claims hold where, what we advise, all tables, all figures.

Nothing is typed in by hand: every verdict is computed from records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from circurve.reproduction import claims, selection_claims
from circurve.reproduction.advice import (
    WITHOUT_SMOOTHING,
    advice,
    both_structures,
    floor_summary,
    study_lines,
    study_summary,
)
from circurve.reproduction.claim import TERMS, Check, Claim, settings_in_words
from circurve.reproduction.outputs import FIGURE_NAMES, TABLES, Shelf
from circurve.reproduction.records import Record
from circurve.reproduction.spec import PROTOCOLS
from circurve.reproduction.table import Table, as_markdown, folded, markdown_table

__all__ = [
    "CLAIMS",
    "PAPER_AUTHORS",
    "PAPER_TITLE",
    "check_claims",
    "load_shelves",
    "opening",
    "reproduction_page",
]

SHARPNESS_FALLS = "sharpness falls under global and under gated."
OVERFITTING_FALLS = "the degree of overfitting falls under global and under gated, with all training rows."

BEST = ("best",)
LAST = (*WITHOUT_SMOOTHING, "smoothed")
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
    ListedClaim(
        FIT, "vanilla reaches the paper's scores on the large data sets", claims.vanilla_matches, WITHOUT_SMOOTHING
    ),
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
        WITHOUT_SMOOTHING,
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
        PENALTY_EFFECTS,
        "a penalty on the sharpest nodes (t) scores better than one on the nodes that contribute most (T)",
        selection_claims.few_sharp_nodes_cost_less,
        ALL,
    ),
    ListedClaim(
        PENALTY_EFFECTS,
        "a penalty on the nodes that contribute most (T) scores worse than one on all nodes",
        selection_claims.few_contributors_are_worse_than_all,
        ALL,
    ),
    ListedClaim(
        PENALTY_EFFECTS,
        "a penalty on the sharpest nodes (t) scores as well as vanilla on the large data sets",
        selection_claims.few_sharp_nodes_keep_the_fit,
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
    summary = [_counts(kinds), study_summary(study_lines(shelves)), floor_summary(shelves)]
    numbered = "\n".join(f"{n}. {sentence}" for n, sentence in enumerate(filter(None, summary), 1))
    parts = ["## Findings", numbered]
    recommended = advice(shelves)
    parts += ["**What we recommend**", "\n".join(f"- {line}" for line in recommended)] if recommended else []
    parts += ["**What the words mean**", TERMS, settings_in_words(shelves)]
    for kind, lines in kinds.items():
        parts += [f"**{kind}**", "\n".join(lines)] if lines else []
    return "\n\n".join(filter(None, [*parts, _details(claims)]))


def _counts(kinds: Mapping[str, Sequence[str]]) -> str:
    """How many claims hold, in part or not at all, in one sentence; empty without claims."""
    total = sum(map(len, kinds.values()))
    if not total:
        return ""
    holds, fails = len(kinds["Holds"]), len(kinds["Does not hold"])
    return (
        f"Of {total} claims that we checked, {holds} hold in all settings that we tried, {total - holds - fails} hold "
        f"in part or in some settings only, and {fails} do not hold."
    )


def kind_of(verdicts: Mapping[str, bool | None]) -> str:
    """Where a claim holds. verdicts: by protocol; None is in part."""
    values = set(verdicts.values())
    if values == {True}:
        return "Holds"
    if values == {False}:
        return "Does not hold"
    plain, smoothed, best = (
        [verdicts[name] for name in names if name in verdicts] for names in (WITHOUT_SMOOTHING, ("smoothed",), BEST)
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


INTRODUCTION = f"""# Reproduction

We computed the tables and figures of *{PAPER_TITLE}*
by {PAPER_AUTHORS}
again, and added experiments of our own.
"""

CLOSING = """## How this page is made

`python docs/make_reproduction.py` makes it from the result records next to it; every verdict and every number is
computed from them."""


def load_shelves(folder: Path) -> dict[str, Shelf]:
    """FOLDER/PROTOCOL for every protocol, each made by `circurve reproduce --out`; missing ones are left out."""
    shelves = {protocol: Shelf.load(folder / protocol) for protocol in PROTOCOLS}
    return {protocol: shelf for protocol, shelf in shelves.items() if shelf.records}


def reproduction_page(shelves: Mapping[str, Shelf], folder: Path, link: str) -> str:
    """The page. Figures are in `folder`/PROTOCOL, and `link` is how the page refers to that folder."""
    parts = [INTRODUCTION, opening(check_claims(shelves), shelves), both_structures(shelves)]
    parts += [_readings(shelves), _studies(shelves)]
    for protocol, shelf in shelves.items():
        parts.append(f"## Protocol {protocol}")
        for report in filter(None, (shelf.report(table) for table in TABLES)):
            parts += [as_markdown(replace(report, notes=()), level=3), folded(report.notes)]
        parts += [_figure(folder / protocol, f"{link}/{protocol}", name) for name in FIGURE_NAMES]
    return "\n\n".join(part.rstrip() for part in [*parts, CLOSING] if part) + "\n"


def _readings(shelves: Mapping[str, Shelf]) -> str:
    """Which reading of the paper gives its table; empty if none was tried."""
    reports = [shelf.report("readings") for shelf in shelves.values()]
    lines = [line for report in reports if report is not None for line in report.findings]
    if not lines:
        return ""
    about = "The paper leaves open some details of its gated method. Each was tried; the table is further down:"
    return "\n\n".join(["## Which reading of the paper gives its table", about, "\n".join(f"- {x}" for x in lines)])


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
