"""Checks of the paper's claims about figure 5: on which nodes a penalty should act."""

from __future__ import annotations

from circurve.reproduction.claim import Claim, judged, rows_with, signed
from circurve.reproduction.claims import OPENINGS, wins
from circurve.reproduction.comparisons import KEPT, LARGE
from circurve.reproduction.outputs import Shelf, records_of
from circurve.reproduction.selection import label_of, selection_study
from circurve.reproduction.spec import ReproduceOptions
from circurve.reproduction.summary import Rows, choose_rows, paired

__all__ = ["few_contributors_are_worse_than_all", "few_sharp_nodes_cost_less", "few_sharp_nodes_keep_the_fit"]

FEW = 0.1
"""The share of the nodes at which the claims are judged."""

EVERY, SHARP, CONTRIBUTING = "all", label_of("local", FEW), label_of("total", FEW)


def few_sharp_nodes_cost_less(shelf: Shelf, protocol: str) -> Claim | None:
    """The paper: t is the better ranking."""
    return judged(
        f"{OPENINGS[protocol]}, a penalty on the {FEW:.0%} of the nodes with the largest t scores better than one on "
        f"the {FEW:.0%} with the largest T.",
        wins(_selected(shelf, protocol, SHARP, CONTRIBUTING), (SHARP,), (CONTRIBUTING,)),
        "By t minus by T",
    )


def few_contributors_are_worse_than_all(shelf: Shelf, protocol: str) -> Claim | None:
    """The paper: the fewer nodes of large T are penalised, the worse."""
    return judged(
        f"{OPENINGS[protocol]}, a penalty on the {FEW:.0%} of the nodes with the largest T scores worse than one on "
        "all nodes.",
        wins(_selected(shelf, protocol, EVERY, CONTRIBUTING), (EVERY,), (CONTRIBUTING,)),
        "All nodes minus those",
    )


def few_sharp_nodes_keep_the_fit(shelf: Shelf, protocol: str) -> Claim | None:
    """The paper: selecting by t preserves the fit."""
    rows = {name: row for name, row in _selected(shelf, protocol, SHARP, "vanilla").items() if name in LARGE}
    gaps = {name: paired(row[SHARP], row["vanilla"]).mean for name, row in rows.items()}
    return judged(
        f"{OPENINGS[protocol]}, a penalty on the {FEW:.0%} of the nodes with the largest t scores at least as well as "
        f"vanilla minus {KEPT:g} nats on {', '.join(rows)}.",
        {name: ([gap >= -KEPT], signed(gap, 3)) for name, gap in gaps.items()},
        "Those minus vanilla",
    )


def _selected(shelf: Shelf, protocol: str, *labels: str) -> Rows:
    """Data sets on which all these labels of figure 5 were run; none if some of those of Table B are missing."""
    study = selection_study(ReproduceOptions(protocol=protocol))
    chosen = choose_rows(records_of(study, shelf.records))
    rows = {name: row for name, row in chosen.items() if set(labels) <= row.keys()}
    return rows if rows_with(shelf, "table-b", "vanilla").keys() <= rows.keys() else {}
