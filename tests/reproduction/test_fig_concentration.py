from __future__ import annotations

from dataclasses import replace

import pytest
from figure_records import OPTIONS, Record, curvature, record, round_trip

from circurve.reproduction.figures import FIGURES

RECORDS = [
    record("nltcs", "vanilla", 0, curvature=curvature(0.1, [0.5, 0.3, 0.2])),
    record("nltcs", "vanilla", 1, curvature=curvature(0.2, [0.7, 0.1, 0.2])),
    record("dna", "vanilla", 0, curvature=curvature(0.1, [1.0])),
    record("bbc", "vanilla", 0),
]


@pytest.mark.parametrize("name", ["fig-2", "fig-3", "fig-4"])
def test_only_models_without_a_penalty_are_looked_at(name: str) -> None:
    study = FIGURES[name].study(OPTIONS)
    assert study is not None
    assert study.labels == ("vanilla",)


@pytest.mark.parametrize("name", ["fig-2", "fig-3"])
def test_curves_of_every_seed_rise_and_pass_through_the_exact_fractions(name: str) -> None:
    data = round_trip(FIGURES[name], RECORDS)
    assert list(data["panels"]) == ["nltcs", "dna"]  # the curvature of bbc is not known
    first, second = data["panels"]["nltcs"]["total"]
    assert first[0] == [0.0, 0.0]
    assert [0.1, 0.9] in first
    assert [0.8, 0.9999] in second
    for curve in (first, second, *data["panels"]["nltcs"]["local"]):
        assert curve == sorted(curve)
        assert [share for _, share in curve] == sorted(share for _, share in curve)
    assert data["notes"][0] == (
        "nltcs: 99.99 % of the sum of T^ in 60.0% of the nodes, 99.99 % of the sum of t^ in 30.0% of the nodes."
    )


def with_floor(share: float) -> list[Record]:
    """Records of nltcs in which edges at the floor make up this share of the mean of t."""
    spread = {"geometric": {"fractions": {"0.9": 0.7, "0.99": 0.9, "0.9999": 0.95}}}
    floor = {"edges": 1200, "share": share}
    return [{**one, "curvature": {**one["curvature"], "floor": floor, "estimates": spread}} for one in RECORDS[:2]]


@pytest.mark.parametrize("name", ["fig-2", "fig-3"])
def test_edges_at_the_floor_that_dominate_t_are_named_with_an_estimate_that_they_cannot_move(name: str) -> None:
    told = round_trip(FIGURES[name], with_floor(0.98))["notes"][0]
    assert told.endswith(
        "1,200 edges with weights at the floor make up 98.0% of the mean of t^; they cannot move its geometric mean, "
        "of which 99.99 % are in 95.0% of the nodes."
    )
    assert "floor" not in round_trip(FIGURES[name], with_floor(0.3))["notes"][0]


def test_figure_3_shows_both_rankings_and_figure_2_one() -> None:
    data = round_trip(FIGURES["fig-2"], RECORDS)
    lines = [
        [line.get_label() for line in FIGURES[name].draw(data).axes[0].lines if line.get_label() in ("total", "local")]
        for name in ("fig-2", "fig-3")
    ]
    assert lines == [["total"] * 2, ["total"] * 2 + ["local"] * 2]


def test_depth_shares_of_every_seed() -> None:
    data = round_trip(FIGURES["fig-4"], RECORDS)
    assert data["panels"] == {"nltcs": {"share": [[0.5, 0.3, 0.2], [0.7, 0.1, 0.2]]}, "dna": {"share": [[1.0]]}}
    # of three partitions the second counts half: 0.5 + 0.15 and 0.7 + 0.05
    assert data["notes"][0] == "nltcs: 70% of the trace is in the upper half of the partitions."
    assert data["notes"][1] == "dna: 50% of the trace is in the upper half of the partitions."


def test_the_caption_says_what_becomes_of_a_middle_partition() -> None:
    assert "If their number is odd, the middle one counts half to the upper half." in FIGURES["fig-4"].reading


@pytest.mark.parametrize("name", ["fig-2", "fig-3", "fig-4"])
def test_where_the_best_epoch_counts_curvature_is_said_to_be_the_last_ones(name: str) -> None:
    note = "Curvature is that of each run's last epoch, not of the one whose scores count."
    assert note not in round_trip(FIGURES[name], RECORDS)["notes"]
    assert round_trip(FIGURES[name], RECORDS, replace(OPTIONS, protocol="best"))["notes"][-1] == note
