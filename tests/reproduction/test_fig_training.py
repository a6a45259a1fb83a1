from __future__ import annotations

from dataclasses import replace

from figure_records import OPTIONS, record, round_trip

from circurve.reproduction.figures import FIGURES

SPEC = FIGURES["fig-1"]


def test_study_has_vanilla_and_global_at_every_strength() -> None:
    study = SPEC.study(OPTIONS)
    assert study is not None
    assert study.labels == ("vanilla", "global")
    assert [s.method.mu for s in study.settings if s.label == "global"] == list(study.protocol.mus)  # type: ignore[union-attr]


def test_histories_of_all_seeds_of_the_strength_that_validation_chooses() -> None:
    records = [record("nltcs", "vanilla", seed, test=-1.0 - seed) for seed in (0, 1)]
    records += [record("nltcs", "global", seed, mu=0.5, test=-1.5, valid=-9.0) for seed in (0, 1)]
    records += [record("nltcs", "global", seed, mu=0.1, test=-2.5, valid=-2.0) for seed in (0, 1)]
    records += [record("plants", "vanilla", 0)]
    data = round_trip(SPEC, records)
    assert list(data["panels"]) == ["nltcs", "plants"]
    assert data["panels"]["nltcs"]["vanilla"]["test"] == [[-5.0, -4.0, -1.0], [-5.0, -4.0, -2.0]]
    assert data["panels"]["nltcs"]["global"]["train"] == [[-4.0, -3.0, -2.0]] * 2
    assert list(data["panels"]["plants"]) == ["vanilla"]
    assert data["notes"][0] == (
        "nltcs, train / test log-likelihood: vanilla -1.00 / -1.50, global (mu 0.1) -2.00 / -2.50."
    )


def test_epochs_without_a_finite_likelihood_can_be_drawn() -> None:
    broken = record("nltcs", "vanilla", 0)
    broken["history"]["test_ll"] = [None, -2.0, None]
    assert round_trip(SPEC, [broken])["panels"]["nltcs"]["vanilla"]["test"] == [[None, -2.0, None]]


def test_the_caption_says_when_training_rows_are_scored() -> None:
    assert "of training rows during the epoch (dashed), each batch scored just before its M-step" in SPEC.reading
    assert "after each epoch" not in SPEC.reading


def test_starts_are_told_where_there_was_a_choice() -> None:
    records = [record("nltcs", "vanilla", 0, method={"mu": None, "init": "random"})]
    records += [record("nltcs", "global", 0, method={"mu": 0.1, "init": "prototypes"})]
    note = round_trip(SPEC, records, replace(OPTIONS, protocol="best"))["notes"][0]
    assert "vanilla (random start) -1.50 / -2.00, global (mu 0.1, prototypes start) -1.50 / -2.00." in note
    assert "start" not in round_trip(SPEC, records)["notes"][0]
