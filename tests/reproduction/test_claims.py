from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_records import Rule, made_records

import circurve as cc
from circurve.learning.gates import top_fraction
from circurve.reproduction import ReproduceOptions
from circurve.reproduction.claim import Claim
from circurve.reproduction.outputs import TABLES, Shelf, records_of
from circurve.reproduction.page import check_claims, load_shelves, reproduction_page
from circurve.reproduction.records import line_of
from circurve.reproduction.selection import selection_study

NAMES = ("nltcs", "dna")
BOTH = ("paper", "best")
PAPER = {"nltcs": -6.0, "dna": -87.78}

OF_TABLE_B = (
    "gated is clearly",
    "global underfits",
    "gated is above global",
    "sharpness falls",
    "degree of overfitting falls",
    "less than 10 % of the sum nodes",
    "T is more concentrated than t",
)
"""Parts of claims that the scores and the curvature of Table B decide."""


def options(protocol: str) -> ReproduceOptions:
    return ReproduceOptions(protocol=protocol, datasets=NAMES, seeds=(0, 1))


def shelf(protocol: str, rule: Rule, *tables: str) -> Shelf:
    made = {t: made_records(TABLES[t].study(options(protocol)), rule) for t in tables}
    known = {record["id"]: record for records in made.values() for record in records}
    return Shelf(tuple(known.values()), dict.fromkeys(tables, options(protocol)))


def as_the_paper_says(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
    """Global underfits on nltcs, gated does not, and both help dna, where stopping early is better still."""
    kind, mu = type(method).__name__.lower(), getattr(method, "mu", None)
    gain = {
        "nltcs": {"vanilla": 0.0, "global": -0.5, "gated": 0.0},
        "dna": {"vanilla": 0.0, "global": 6.0, "gated": 6.5},
    }
    best = PAPER[dataset] + gain[dataset][kind] + 0.01 * seed
    if mu is not None and mu > 0.1:
        best -= 1.0
    if fraction < 0.05 and kind == "global":
        best += 1.0
    scores = {"test_ll": best, "valid_ll": best, "train_ll": best + 0.5, "best_test_ll": best, "best_valid_ll": best}
    if kind == "vanilla":
        return {**scores, "best_test_ll": best + 10.0}
    return {**scores, "sharpness": 50.0, "dof": 0.05}


def the_other_way_round(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
    """Vanilla far from the paper, global above it, gated below, and curvature rising."""
    kind = type(method).__name__.lower()
    best = -50.0 + {"vanilla": 0.0, "global": 2.0, "gated": -2.0}[kind] + 0.01 * seed
    if getattr(method, "pseudocount", 0.0):
        best += 5.0
    scores = {"test_ll": best, "valid_ll": best, "train_ll": best, "best_test_ll": best - 1, "best_valid_ll": best}
    if kind != "vanilla":
        scores |= {"sharpness": 500.0, "dof": 0.5}
    return {**scores, "total_share": 0.9, "local_share": 0.1}


def with_depth(made: Shelf, depth: list[float]) -> Shelf:
    """The shelf, with this share of the trace at each depth in every record."""
    for record in made.records:
        record["curvature"]["depth"] = depth
    return made


def by_text(claims: list[Claim], part: str) -> Claim:
    (found,) = [claim for claim in claims if part in claim.text]
    return found


def test_claims_hold_where_records_say_what_the_paper_says() -> None:
    claims = check_claims({"paper": shelf("paper", as_the_paper_says, "table-a", "table-b")})
    for part in (
        "comes within 0.1 nats of the paper's vanilla column on nltcs",
        "at or above vanilla minus 0.05 nats on nltcs",
        "With the last epoch (protocol `paper`), gated is clearly",
        "global underfits",
        "gated is above global",
        "sharpness falls",
        "degree of overfitting falls",
        "less than 10 % of the sum nodes",
        "T is more concentrated than t",
        "the upper half of the depths",
        "when data are scarce (1%)",
    ):
        assert by_text(claims, part).verdict == "holds", part
    stopped = by_text(claims, "stopped at its best epoch")
    assert stopped.verdict == "holds"
    assert "dna -77.78 against -81.28" in stopped.evidence
    assert "nltcs +0.00" not in by_text(claims, "minus 0.05").evidence
    assert by_text(claims, "gated is above global").evidence == "Gated minus global: nltcs +0.50, dna +0.50."


def test_the_same_claims_fail_where_records_say_otherwise() -> None:
    claims = check_claims({"paper": shelf("paper", the_other_way_round, "table-a", "table-b")})
    for part in (
        "comes within 0.1 nats",
        "at or above vanilla minus 0.05",
        *OF_TABLE_B,
    ):
        assert by_text(claims, part).verdict == "does not hold", part


def test_a_claim_that_holds_on_some_data_holds_in_part() -> None:
    def mixed(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        return (as_the_paper_says if dataset == "nltcs" else the_other_way_round)(dataset, fraction, method, seed)

    claims = check_claims({"paper": shelf("paper", mixed, "table-b")})
    assert by_text(claims, "gated is above global").verdict == "holds in part"
    assert by_text(claims, "sharpness falls").verdict == "holds in part"


def test_smoothing_and_exact_updates_are_judged_only_where_they_were_run() -> None:
    without = check_claims({"paper": shelf("paper", as_the_paper_says, "table-b")})
    assert not [claim for claim in without if "pseudocounts" in claim.text or "exact penalty" in claim.text]

    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        scores = the_other_way_round(dataset, fraction, method, seed)
        if getattr(method, "penalty", "") == "exact":
            scores |= {"test_ll": -10.0 + 0.01 * seed, "valid_ll": -10.0}
            scores |= {"best_test_ll": -10.0 + 0.01 * seed, "best_valid_ll": -10.0}
        return scores

    both = check_claims({name: shelf(name, rule, "table-d") for name in BOTH})
    claims = [claim for claim in both if "`best`" not in claim.text]
    told = [claim for claim in both if "With the best epoch (protocol `best`), " in claim.text]
    assert [claim.verdict for claim in told] == ["does not hold", "holds"]
    assert by_text(claims, "best of several pseudocounts").verdict == "does not hold"
    exact = by_text(claims, "exact penalty or the exact simplex")
    assert exact.verdict == "holds"
    assert "exact" in exact.evidence


@pytest.mark.parametrize(("rescued", "expected"), [(True, "holds"), (False, "does not hold")])
def test_how_much_of_the_loss_is_the_grids(rescued: bool, expected: str) -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        loss = 0.0
        if isinstance(method, cc.Global):
            small = isinstance(method.mu, float) and method.mu < 0.01
            loss = 0.1 if small and rescued else 0.9 if small else 1.0
        best = -10.0 - loss
        return {"best_test_ll": best, "best_valid_ll": best, "test_ll": best, "valid_ll": best}

    claim = by_text(check_claims({"best": shelf("best", rule, "table-b")}), "underfitting comes from the grid")
    assert claim.verdict == expected
    assert "nltcs -1.00 to" in claim.evidence


@pytest.mark.parametrize(("gain", "expected"), [(0.0, "holds"), (-0.02, "does not hold")])
def test_the_method_that_validation_chooses_is_held_against_the_papers_best(gain: float, expected: str) -> None:
    top = {"nltcs": -6.0, "dna": -81.28}

    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        ours = top[dataset] + gain
        if isinstance(method, cc.Gated):  # better on test rows, but validation does not know
            return {"best_test_ll": ours + 1, "best_valid_ll": ours - 1}
        return {"best_test_ll": ours, "best_valid_ll": ours}

    claim = by_text(check_claims({"best": shelf("best", rule, "table-b")}), "at or above all of the paper's")
    assert claim.verdict == expected
    assert f"dna {top['dna'] + gain:.2f} (vanilla) against -81.28" in claim.evidence


def test_scarce_data_are_judged_once_more_where_vanilla_is_smoothed() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        gain = 1.0 if isinstance(method, cc.Global) and fraction < 0.05 else -1.0 if isinstance(method, cc.Gated) else 0
        return {"best_test_ll": -10.0 + gain, "best_valid_ll": -10.0}

    claim = by_text(check_claims({"best": shelf("best", rule, "table-a")}), "still lower the test NLL")
    assert claim.verdict == "holds in part"
    assert "global +10.00 % at 1%" in claim.evidence
    assert "gated -10.00 % at 1%" in claim.evidence


def test_gating_is_judged_with_the_papers_strengths_and_with_smaller_ones() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        weak = getattr(method, "mu", 0.0) < 0.01
        return {"test_ll": -10.0 if weak else -11.0, "valid_ll": -10.0 if weak else -11.0}

    claims = check_claims({"paper": shelf("paper", rule, "table-b", "table-d")})
    assert by_text(claims, "from 0.01 up, as in the paper, gated is at or above").verdict == "does not hold"
    assert by_text(claims, "to choose from, gated is at or above").verdict == "holds"


@pytest.mark.parametrize(
    ("by_t", "by_total", "verdicts"),
    [
        (0.0, -2.0, ("holds", "holds", "holds")),
        (-1.0, -0.5, ("does not hold", "does not hold", "does not hold")),
    ],
)
def test_where_a_penalty_acts_is_judged_by_the_runs_of_figure_5(
    by_t: float, by_total: float, verdicts: tuple[str, ...]
) -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        gate = getattr(method, "gate", None)
        change = 0.0 if isinstance(method, cc.Vanilla) else -1.0 if gate is None else 0.0
        if isinstance(gate, top_fraction):
            change = {"local": by_t, "total": by_total}[gate.by]
        return {"test_ll": -6.0 + change + 0.01 * seed}

    made = made_records(selection_study(options("smoothed")), rule)
    claims = check_claims({"smoothed": Shelf(tuple(made), {})})
    parts = ("largest t scores better than one on", "largest T scores worse than one on", "as vanilla minus")
    assert tuple(by_text(claims, part).verdict for part in parts) == verdicts
    gap = f"{by_t - by_total:+.2f}"
    assert by_text(claims, parts[0]).evidence == f"By t minus by T: dna {gap}, nltcs {gap}."
    assert by_text(claims, parts[2]).evidence.startswith("Those minus vanilla: nltcs")
    some = [record for record in made if record["dataset"] == "nltcs"]
    whole = made_records(TABLES["table-b"].study(options("smoothed")), rule)
    partial = check_claims({"smoothed": Shelf((*some, *whole), {"table-b": options("smoothed")})})
    assert not any(part in claim.text for part in parts for claim in partial)  # dna is missing


def test_each_protocol_is_judged_by_its_own_records() -> None:
    def unsmoothed(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        plain = cc.Vanilla() if isinstance(method, cc.Vanilla) else method
        return the_other_way_round(dataset, fraction, plain, seed)

    claims = check_claims(
        {
            "paper": shelf("paper", as_the_paper_says, "table-b"),
            "best": with_depth(shelf("best", unsmoothed, "table-b"), [0.1, 0.2, 0.3, 0.4]),
        }
    )
    for part in (
        "from 0.01 up, as in the paper, gated is at or above",
        *OF_TABLE_B,
        "the upper half of the depths",
    ):
        paper, best = (by_text([c for c in claims if f"(protocol `{name}`)" in c.text], part) for name in BOTH)
        assert (paper.verdict, best.verdict) == ("holds", "does not hold"), part


def test_every_claim_about_our_records_names_its_protocol() -> None:
    claims = check_claims({name: shelf(name, as_the_paper_says, *TABLES) for name in BOTH})
    assert len(claims) > 30
    unnamed = [claim.text for claim in claims if "protocol `paper`" not in claim.text and "`best`" not in claim.text]
    assert unnamed == ["The paper's table of data fractions agrees, at 100 %, with its main table (within 0.5 nats)."]


@pytest.mark.parametrize(
    ("depth", "share", "expected"),
    [
        ([0.2, 0.2, 0.3, 0.2, 0.1], "55%", "holds"),
        ([0.1, 0.2, 0.3, 0.3, 0.1], "45%", "does not hold"),  # three of five are more than a half of them
        ([0.1, 0.5, 0.3, 0.1], "60%", "holds"),
    ],
)
def test_the_middle_one_of_an_odd_number_of_depths_counts_half(depth: list[float], share: str, expected: str) -> None:
    made = with_depth(shelf("paper", as_the_paper_says, "table-b"), depth)
    claim = by_text(check_claims({"paper": made}), "the upper half of the depths")
    assert claim.verdict == expected
    assert f"nltcs {share}" in claim.evidence


def test_numbers_that_compare_different_starts_say_so() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        loss = 0.0
        if isinstance(method, cc.Global):
            loss = 0.1 if isinstance(method.mu, float) and method.mu < 0.01 else 1.0
        return {"best_test_ll": -10.0 - loss, "best_valid_ll": -10.0 - loss, "sharpness": 50.0}

    def claims(gain: float) -> list[Claim]:
        made = shelf("best", rule, "table-b")
        for record in made.records:
            if record["method"]["name"] == "global" and record["method"]["init"] == "prototypes":
                record["best"] = {**record["best"], "test_ll": record["best"]["test_ll"] + gain}
                record["best"]["valid_ll"] += gain
        return check_claims({"best": made})

    mixed = claims(0.5)
    grid = by_text(mixed, "underfitting comes from the grid").evidence
    assert (
        "all strengths: nltcs -0.50 to +0.40 (mu 0.0001), dna -0.50 to +0.40 (mu 0.0001). Starts differ: nltcs " in grid
    )
    assert grid.endswith(
        "Starts differ: nltcs (vanilla random, global prototypes), dna (vanilla random, global prototypes). "
        "With vanilla's start for both: nltcs -1.00 to -0.10, dna -1.00 to -0.10."
    )
    for part in ("sharpness falls", "degree of overfitting falls"):
        assert "Starts differ: nltcs (vanilla random, global prototypes, gated random)" in by_text(mixed, part).evidence
    assert "Starts differ: nltcs (global prototypes, gated random)" in by_text(mixed, "gated is above global").evidence
    assert not [
        claim.text for claim in claims(0.0) if "tarts differ" in claim.evidence or "start for" in claim.evidence
    ]


def test_weak_gating_by_the_best_epoch_is_held_against_vanilla_with_and_without_smoothing() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        best = -9.8 if isinstance(method, cc.Vanilla) and method.pseudocount else -10.0
        return {"best_test_ll": best, "best_valid_ll": best}

    claims = check_claims({"best": shelf("best", rule, "table-b", "table-d")})
    part = "with strengths below 0.01 to choose from, gated"
    assert by_text(claims, f"and vanilla not smoothed, {part}").verdict == "holds"
    assert by_text(claims, f"and vanilla smoothed, {part}").verdict == "does not hold"


def test_the_grids_part_in_the_loss_is_judged_by_the_paper_too_where_table_d_has_weaker_penalties() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        loss = (0.1 if method.mu < 0.01 else 1.0) if isinstance(method, cc.Global) else 0.0
        return {"test_ll": -10.0 - loss, "valid_ll": -10.0 - loss}

    without = check_claims({"paper": shelf("paper", rule, "table-b")})
    assert not [claim for claim in without if "underfitting comes from the grid" in claim.text]
    claim = by_text(check_claims({"paper": shelf("paper", rule, "table-d")}), "underfitting comes from the grid")
    assert claim.verdict == "holds"
    assert "nltcs -1.00 to -0.10 (mu 0.0001)" in claim.evidence


def test_the_papers_own_tables_are_compared() -> None:
    claim = by_text(check_claims({}), "agrees, at 100 %")
    assert claim.verdict == "does not hold"
    assert "gated on dna (-5.83)" in claim.evidence


def test_records_of_a_study_are_found_by_what_they_say() -> None:
    study = TABLES["table-b"].study(options("paper"))
    records = made_records(study, as_the_paper_says)
    other = made_records(
        TABLES["table-b"].study(ReproduceOptions(datasets=NAMES, seeds=(0, 1), units=7)), as_the_paper_says
    )
    later = made_records(TABLES["table-b"].study(ReproduceOptions(datasets=NAMES, seeds=(5,))), as_the_paper_says)
    found = records_of(study, [*other, *later, *records])
    assert {r["id"] for r in found} == {r["id"] for r in records}
    assert len(found) == len(records)
    assert [r["label"] for r in found if r["dataset"] == "nltcs"][:2] == ["vanilla", "vanilla"]


def write(folder: Path, made: Mapping[str, Any], packed: bool) -> None:
    folder.mkdir(parents=True)
    content = b"".join(line_of(record) for record in made["records"])
    name = "records.jsonl.gz" if packed else "records.jsonl"
    (folder / name).write_bytes(gzip.compress(content) if packed else content)
    (folder / "table-b.json").write_text(json.dumps({"options": made["options"]}))


@pytest.mark.parametrize("packed", [True, False])
def test_the_page_is_made_from_what_lies_in_the_folder(tmp_path: Path, packed: bool) -> None:
    study = TABLES["table-b"].study(options("paper"))
    made = {
        "records": made_records(study, as_the_paper_says),
        "options": {"protocol": "paper", "datasets": list(NAMES), "seeds": [0, 1]},
    }
    write(tmp_path / "paper", made, packed)
    about = {"title": "A figure", "reading": "It shows.", "findings": ["Found this."], "notes": ["Made so."]}
    (tmp_path / "paper" / "fig-1.json").write_text(json.dumps(about))
    (tmp_path / "paper" / "fig-1.svg").write_text("<svg/>")
    page = reproduction_page(load_shelves(tmp_path), tmp_path, "results")
    assert "gated is above global. | holds |" in page
    assert "### Table B" in page
    assert "### Table D" not in page
    assert "![A figure](results/paper/fig-1.svg)" in page
    for part in ("It shows.", "- Found this.", "- Made so.", "## Protocol paper", "circurve 1.0 (abc)"):
        assert part in page
    assert "## Protocol best" not in page


def test_an_empty_folder_gives_a_page_without_tables(tmp_path: Path) -> None:
    page = reproduction_page(load_shelves(tmp_path), tmp_path, "results")
    assert "## Findings" in page
    assert "## Protocol" not in page
