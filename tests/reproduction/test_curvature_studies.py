"""The studies of curvature: which runs they have, and that their reports say what the records say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from made_records import made_records

from circurve.learning import Gated, Global, Method, Vanilla
from circurve.reproduction import ReproduceOptions, Study
from circurve.reproduction.study_report import STUDIES, Outcome, judge
from circurve.reproduction.summary import Paired
from circurve.reproduction.table import Number, Report

OPTIONS = ReproduceOptions(protocol="fair", datasets=("nltcs", "dna"), seeds=(0, 1, 2))


def study(name: str) -> Study:
    return STUDIES[name].study(OPTIONS)


def rule(dataset: str, fraction: float, method: Method, seed: int) -> dict[str, float]:
    """Gated gains 0.2 on dna and loses 0.3 on nltcs, a little more or less with the seed; global is like vanilla."""
    score = -10.0 - (0.0 if method.pseudocount == 0.03 else 1.0)
    if isinstance(method, Gated) and method.estimator == "mean_trace":
        score += (0.2 if dataset == "dna" else -0.3) + 0.001 * seed
    return {"best_test_ll": score - 0.01 * seed, "best_valid_ll": score, "test_ll": -99.0}


def report(name: str) -> Report:
    made = study(name)
    return STUDIES[name].report(made, made_records(made, rule))


@pytest.mark.parametrize("name", STUDIES)
def test_every_method_has_as_many_candidates_and_is_smoothed(name: str) -> None:
    made = study(name)
    counts = {label: sum(s.label == label for s in made.settings) for label in made.labels}
    assert len(set(counts.values())) == 1
    assert {"vanilla", "global", "gated", "geometric"} == set(counts)
    assert all(setting.method.pseudocount > 0 for setting in made.settings)
    assert made.protocol.choose_epoch == "best"
    assert any(isinstance(s.method, Global) for s in made.settings)


def test_parts_that_look_at_models_share_their_runs() -> None:
    shared = [study(name) for name in STUDIES if study(name).probe is not None]
    assert len(shared) == 5
    assert len({(made.settings, made.protocol, made.variant, made.fractions) for made in shared}) == 1
    assert study("study-units").protocol.units == 256
    assert study("study-scarce").fractions == (0.01, 0.1)
    assert len({study(name).variant for name in ("study-corrupted", "study-selected", "study-clean")}) == 3


def test_differences_are_paired_and_every_outcome_is_a_sentence() -> None:
    made = report("study-corrupted")
    table = made.tables[0]
    assert table.heads[:3] == ("data set", "vanilla", "global\n- vanilla")
    row = next(row for row in table.rows if row[0] == "dna")
    gap = row[4]
    assert isinstance(gap, Number)
    assert gap.mean == pytest.approx(0.201)
    assert gap.std == pytest.approx(0.001 / 3**0.5)  # the standard error over three seeds
    assert made.findings == (
        "global makes no clear difference against tuned plain EM: no clear difference on 2 of 2 sets; mean difference "
        "0.000 nats.",
        "gated helps on some sets and harms on others against tuned plain EM: clearly above on dna +0.20; clearly "
        "below on nltcs -0.30; mean difference -0.049 nats.",
        "geometric makes no clear difference against tuned plain EM: no clear difference on 2 of 2 sets; mean "
        "difference 0.000 nats.",
    )
    chosen = {row[0]: row[1:] for row in made.tables[1].rows}
    assert chosen["dna"][0] == "+0.03"
    assert all(set(value) == set(made.columns) for value in made.values)


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([(0.5, 0.01)], "helps"),
        ([(0.5, 0.2)], "makes no clear difference"),
        ([(0.005, 0.001)], "makes no clear difference"),
        ([(-0.5, 0.01), (0.1, 0.5)], "harms"),
        ([(-0.5, None)], "makes no clear difference"),
    ],
)
def test_a_clear_difference_is_large_and_significant(gaps: list[tuple[float, float | None]], verdict: str) -> None:
    outcomes = [Outcome("set", "gated", Paired(mean, 0.1, p, 5)) for mean, p in gaps]
    assert judge("gated", outcomes).startswith(f"gated {verdict} against tuned plain EM")


def test_a_method_without_known_scores_is_not_compared() -> None:
    outcomes = [Outcome("set", "gated", Paired(math.nan, None, None, 0))]
    expected = "gated cannot be compared with tuned plain EM: there is no seed for which the scores of both are known."
    assert judge("gated", outcomes) == expected


def test_what_is_lost_is_held_against_the_models_own_score() -> None:
    made = report("study-weights")
    row = next(value for value in made.values if value["case"] == "4 bits" and value["label"] == "vanilla")
    assert row["test_ll"] == pytest.approx(-0.5)
    gaps = [value["minus_base"] for value in made.values if value["label"] == "gated"]
    assert gaps == pytest.approx([0.0] * len(gaps))


def test_noise_in_test_rows_is_the_score_itself() -> None:
    row = next(v for v in report("study-test-noise").values if (v["dataset"], v["label"]) == ("nltcs", "gated"))
    assert row["test_ll"] == pytest.approx(-10.0 - 0.3 + 0.001 - 0.01 - 0.5)
    assert row["minus_base"] == pytest.approx(-0.299)


def test_an_ensemble_counts_once_for_each_seed() -> None:
    made = report("study-ensembles")
    assert {value["seeds"] for value in made.values} == {3}
    assert "Mixtures of 4 models" in made.notes[0]
    assert len(made.tables) == 1


def test_rules_are_held_against_the_last_epoch() -> None:
    made = report("study-stopping")
    assert {value["label"] for value in made.values if value["minus_base"] is None} == {"last epoch"}
    validation = [v for v in made.values if v["label"] == "validation" and v["case"] == "pseudocount 0.03"]
    assert [v["minus_base"] for v in validation] == pytest.approx([-0.01, -0.01])


def test_shares_of_the_rows_have_lines_of_their_own() -> None:
    made = report("study-scarce")
    assert [row[:2] for row in made.tables[0].rows[:2]] == [("nltcs", "1%"), ("nltcs", "10%")]
    assert "dna 1% +0.20" in " ".join(made.findings)


def test_a_first_look_and_own_strengths_are_smaller_studies() -> None:
    options: dict[str, Any] = {"protocol": "fair", "datasets": ("nltcs",)}
    quick = STUDIES["study-clean"].study(ReproduceOptions(**options, quick=True))
    assert len(quick.settings) < len(study("study-clean").settings)
    (counts,) = [note for note in report("study-clean").notes if note.startswith("Every method has 8 candidates.")]
    assert "a pseudocount that penalties do not have" in counts  # 0.2, for instance
    (counts,) = [note for note in report("study-units").notes if "candidates" in note]
    assert counts == "Every method has 2 candidates."  # the same pseudocounts for all
    one = STUDIES["study-clean"].study(ReproduceOptions(**options, mu=(0.5,)))
    notes = STUDIES["study-clean"].report(one, made_records(one, rule)).notes
    assert "Candidates: vanilla 8, global 4, gated 4, geometric 4." in notes
    assert {s.method.mu for s in one.settings if not isinstance(s.method, Vanilla)} == {0.5}
