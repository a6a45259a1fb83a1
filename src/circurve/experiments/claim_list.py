"""All claims in their groups, and which protocols they are judged by: every verdict is computed from records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from circurve.experiments import claims
from circurve.experiments.claim import Check, Claim
from circurve.experiments.outputs import Shelf

__all__ = ["CLAIMS", "check_claims"]

SHARPNESS_FALLS = "sharpness falls under global and under gated."
OVERFITTING_FALLS = "the degree of overfitting falls under global and under gated, with all training rows."

UNSMOOTHED, BEST = ("paper", "paper-own"), ("best",)
LAST = (*UNSMOOTHED, "smoothed")
ALL = (*LAST, *BEST)

FIT, PENALTIES, ANATOMY = "Fit", "What the penalties do", "Where the trace sits"


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
    ListedClaim(FIT, "our vanilla is the paper's", claims.vanilla_matches, UNSMOOTHED),
    ListedClaim(FIT, "the best method by validation reaches the paper", claims.best_reaches_the_paper, BEST),
    ListedClaim(FIT, "gated keeps the fit of vanilla", claims.gated_keeps_the_fit, ALL),
    ListedClaim(
        FIT,
        "gated keeps the fit if weaker penalties are allowed",
        partial(claims.weakly_gated_keeps_the_fit, "table-d", claims.PLAIN_OPENINGS),
        ALL,
    ),
    ListedClaim(
        FIT,
        "weakly gated keeps the fit of smoothed vanilla",
        partial(claims.weakly_gated_keeps_the_fit, "table-b", claims.SMOOTHED_OPENINGS),
        BEST,
    ),
    ListedClaim(FIT, "gated clearly helps on the small sets", claims.gated_helps_small_sets, ALL),
    ListedClaim(FIT, "global underfits", claims.global_underfits, ALL),
    ListedClaim(FIT, "weaker penalties undo most of global's loss", claims.smaller_strengths_rescue_global, ALL),
    ListedClaim(FIT, "gated is above global", claims.gated_beats_global, ALL),
    ListedClaim(FIT, "vanilla, stopped early, reaches every column", claims.early_stopping_wins, UNSMOOTHED),
    ListedClaim(FIT, "a penalty beats the best pseudocount", claims.penalties_beat_smoothing, ALL),
    ListedClaim(FIT, "exact updates beat the surrogate", claims.exact_updates_help, ALL),
    ListedClaim(FIT, "global helps on scarce data and harms on plenty", claims.low_data_helps, LAST),
    ListedClaim(FIT, "penalties still help on scarce data", claims.low_data_helps_beside_stopping, BEST),
    ListedClaim(PENALTIES, "sharpness falls", partial(claims.falls, "sharpness", "{:.0f} %", SHARPNESS_FALLS), ALL),
    ListedClaim(
        PENALTIES,
        "the degree of overfitting falls",
        partial(claims.falls, "dof_points", "{:.2f} points", OVERFITTING_FALLS),
        ALL,
    ),
    ListedClaim(
        ANATOMY, "less than 10 % of the nodes hold T, more than 60 % hold t", claims.trace_is_concentrated, ALL
    ),
    ListedClaim(ANATOMY, "T is more concentrated than t", claims.usage_concentrates, ALL),
    ListedClaim(ANATOMY, "the trace sits in the upper half", claims.shallow_nodes_dominate, ALL),
)
"""Each claim about our records."""

OF_THE_PAPER_ALONE = "the paper's two tables agree"


def check_claims(shelves: Mapping[str, Shelf]) -> list[Claim]:
    """All claims that the records of the protocols say anything about, each with its group, line and protocol."""
    found = []
    for listed in CLAIMS:
        for name in listed.protocols:
            claim = listed.check(shelves[name], name) if name in shelves else None
            if claim is not None:
                found.append(replace(claim, group=listed.group, line=listed.line, protocol=name))
    return [*found, replace(claims.tables_of_the_paper_agree(), group=FIT, line=OF_THE_PAPER_ALONE)]
