"""The opening of the page: where claims hold, both structures side by side, studies in one line each."""

from __future__ import annotations

from typing import Any

import pytest
from made_records import Rule, made_records

import circurve as cc
from circurve.reproduction import ReproduceOptions
from circurve.reproduction.advice import StudyLine, both_structures, floor_summary, study_lines, study_summary
from circurve.reproduction.claim import Claim
from circurve.reproduction.outputs import TABLES, Shelf
from circurve.reproduction.page import (
    INTRODUCTION,
    PAPER_TITLE,
    check_claims,
    kind_of,
    opening,
)

NAMES = ("nltcs", "dna")


def shelf(protocol: str, rule: Rule, *tables: str) -> Shelf:
    options = ReproduceOptions(protocol=protocol, datasets=NAMES, seeds=(0, 1, 2))
    made = [record for t in tables for record in made_records(TABLES[t].study(options), rule)]
    known = {record["id"]: record for record in made}
    return Shelf(tuple(known.values()), dict.fromkeys(tables, options))


@pytest.mark.parametrize(
    ("verdicts", "kind"),
    [
        ({"paper": True, "best": True}, "Holds"),
        ({"": False}, "Does not hold"),
        ({"paper": True, "paper-own": True, "smoothed": False, "best": True}, "Holds only without smoothing"),
        ({"paper": False, "paper-own": None, "smoothed": True, "best": False}, "Holds only with smoothing"),
        (
            {"paper": True, "smoothed": True, "best": False},
            "Holds for the last epoch, but not if validation chooses the epoch",
        ),
        ({"paper": True, "smoothed": None, "best": False}, "Holds only without smoothing"),
        ({"paper": None, "best": False}, "Holds in part"),
        ({"paper": True, "paper-own": False, "smoothed": True}, "Holds in part"),
    ],
)
def test_claims_are_sorted_by_where_they_hold(verdicts: dict[str, bool | None], kind: str) -> None:
    assert kind_of(verdicts) == kind


def test_each_claim_has_one_line_and_its_numbers_are_folded_away() -> None:
    claims = [
        Claim("With A, gated wins.", True, "by 3.", "Fit", "gated wins", "paper"),
        Claim("With B, gated wins.", False, "by -3.", "Fit", "gated wins", "smoothed"),
        Claim("T sits above.", True, "80 %.", "Where", "the trace sits above", "paper"),
    ]
    page = opening(claims, {})
    assert page.startswith(
        "## Findings\n\n1. Of 2 claims that we checked, 1 hold in all settings that we tried, 1 hold in part or in "
        "some settings only, and 0 do not hold."
    )
    above, folded = page.split("<details>")
    assert "**Holds only without smoothing**\n\n- Gated wins (paper: yes, smoothed: no)" in above
    assert "**Holds**\n\n- The trace sits above (paper: yes)" in above
    assert "by 3." not in above
    assert "| With A, gated wins. | holds | by 3. |" in folded
    assert folded.index("**Fit**") < folded.index("**Where**")


def test_every_line_is_said_once_for_each_protocol() -> None:
    rule: Rule = lambda *_: {"test_ll": -6.0, "valid_ll": -6.0}  # noqa: E731
    names = ("paper", "paper-own", "smoothed", "best")
    claims = check_claims({name: shelf(name, rule, "table-b", "table-d") for name in names})
    said = [(claim.line, claim.protocol) for claim in claims]
    assert len(set(said)) == len(said)
    assert all(claim.line and claim.group for claim in claims)
    assert {protocol for _, protocol in said} == {*names, ""}


def test_both_structures_stand_side_by_side() -> None:
    def rule(gain: float) -> Rule:
        def scores(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
            gated = -0.1 * gain if isinstance(method, cc.Gated) else 0.0
            score = -6.0 + (gain if dataset == "dna" else -gain) + gated
            return {"test_ll": score, "valid_ll": score}

        return scores

    shelves = {"paper": shelf("paper", rule(0.5), "table-b"), "paper-own": shelf("paper-own", rule(0.0), "table-b")}
    for name, nodes in (("paper", 60), ("paper-own", 100)):
        for record in shelves[name].records:
            record["curvature"]["sum_nodes"] = nodes
    table = both_structures(shelves)
    assert "| dna | -5.50 | -6.00 | +0.500 | -0.050 | 0.000 | 60 | 100 |" in table
    assert both_structures({"paper": shelves["paper"]}) == ""
    advice = opening([], shelves)
    assert "need 40% fewer sum nodes on average, and score better on dna of nltcs, dna" in advice


def test_weights_near_zero_that_dominate_t_are_a_finding() -> None:
    shelves = {"paper": shelf("paper", lambda *_: {}, "table-b")}
    assert floor_summary(shelves) == ""  # records of earlier versions do not say
    for number, record in enumerate(shelves["paper"].records):
        record["curvature"]["floor"] = {"edges": 9, "share": 0.98 + 0.001 * number}
        record["curvature"]["estimates"] = {"geometric": {"fractions": {"0.9999": 0.9 + 0.001 * number}}}
    page = opening([], shelves)
    assert "1. Without smoothing, edges with weights near zero make up at least 98.0% of the mean of t" in page
    assert "99.99 % need at least 90.0% of the nodes" in page
    shelves["paper"].records[0]["curvature"]["floor"]["share"] = 0.2
    assert floor_summary(shelves) == ""


def test_a_study_is_one_line_and_a_gain_is_advice() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        gain = 0.3 if isinstance(method, cc.Global) and dataset == "dna" else 0.0
        score = -10.0 + gain + 0.001 * seed * (gain > 0)
        return {"best_test_ll": score, "best_valid_ll": score}

    helps = {"fair": shelf("fair", rule, "study-corrupted")}
    (line,) = study_lines(helps).values()
    assert line.text() == (
        "Corrupted training rows: global 1 clear gain, 0 losses of 2; gated 0 clear gains, 0 losses of 2; geometric 0 "
        "clear gains, 0 losses of 2"
    )
    page = opening([], helps)
    assert f"- Try a curvature penalty in this case. {line.text()}." in page
    assert (
        "1. After fair tuning, a method that uses curvature has more clear gains than clear losses in 1 of 1 " in page
    )
    assert study_summary({}) == ""
    alike = {"fair": shelf("fair", lambda *_: {}, "study-corrupted")}
    (line,) = study_lines(alike).values()
    assert not line.helps
    assert "Try a curvature penalty" not in opening([], alike)
    assert not StudyLine("stopping", {"validation": (5, 0, 5), "smallest trace": (1, 1, 5)}).helps


def test_the_paper_is_cited_by_title_and_authors() -> None:
    assert PAPER_TITLE in INTRODUCTION
    assert "Hrithik Suresh, Sahil Sidheekh" in INTRODUCTION
