"""The mixture of a fleet, its report, and what is refused."""

import numpy as np
import pytest
from learning_helpers import binary_rows, quick_fleet, small_circuit

import circurve as cc
from circurve.errors import OptionError
from circurve.learning.mixture_weights import Scores, find_weights

TRAIN, VALID = binary_rows(80), binary_rows(60, seed=1)


@pytest.fixture(scope="module")
def fleet():
    runs = [cc.Run(seed=seed, label=f"seed {seed}") for seed in range(4)]
    return quick_fleet(small_circuit(TRAIN), TRAIN, runs, valid=VALID, epochs=20)


def scores_of(results, rows=VALID, weights=None):
    log_prob = np.stack([result.model.log_prob(rows) for result in results])
    return Scores(log_prob, np.ones(len(rows)) if weights is None else weights)


@pytest.mark.parametrize("weighting", ["em", "stacked", "uniform"])
def test_the_report_says_what_the_model_does(fleet, weighting):
    made = fleet.ensemble(VALID, weights=weighting)
    assert made.model.log_prob(VALID).mean() == pytest.approx(made.valid_ll)
    assert made.weights.sum() == pytest.approx(1)
    for member in made.members:
        result = fleet[member.run]
        assert member.name == fleet.name(member.run)
        assert member.valid_ll == pytest.approx(result.model.log_prob(VALID).mean())
        others = [fleet[other.run] for other in made.members if other is not member]
        rest = scores_of(others)
        how = "uniform" if weighting == "uniform" else "em"
        assert member.adds == pytest.approx(made.valid_ll - rest.mean_mixed(find_weights(rest, how)), abs=1e-5)
    assert len(made.members) + len(made.left_out) == 4


def test_em_is_at_least_as_good_as_uniform_and_as_the_best_run(fleet):
    em, uniform = fleet.ensemble(VALID), fleet.ensemble(VALID, weights="uniform")
    assert em.valid_ll >= uniform.valid_ll - 1e-9
    assert em.valid_ll >= fleet.best().valid_ll - 1e-9
    assert [member.weight for member in uniform.members] == [0.25] * 4


def test_rows_count_by_their_weights(fleet):
    weights = np.where(np.arange(60) < 30, 2.0, 0.0)
    weighted, half = fleet.ensemble(cc.Examples(VALID, weights=weights)), fleet.ensemble(VALID[:30])
    assert weighted.valid_ll == pytest.approx(half.valid_ll)
    np.testing.assert_allclose(weighted.weights, half.weights, rtol=1e-6)


def test_size_limits_the_members(fleet):
    two = fleet.ensemble(VALID, size=2)
    assert len(two.members) <= 2
    assert fleet.ensemble(VALID, size=1).model is fleet.best().model
    assert fleet.ensemble(VALID, size=1).members[0].adds is None


def test_frame_and_repr(fleet):
    made = fleet.ensemble(VALID, weights="uniform")
    frame = made.to_frame()
    assert list(frame.columns) == ["run", "name", "weight", "valid_ll", "adds", "epoch", "epochs"]
    assert frame["run"].tolist() == [0, 1, 2, 3]
    lines = repr(made).splitlines()
    assert lines[0] == f"<Ensemble: 4 members, weights uniform, valid_ll {made.valid_ll:.4f}>"
    assert lines[1].startswith("  0.250  seed 0 (vanilla, seed 0), valid_ll -")
    assert len(lines) == 5


def test_uniform_weights_need_no_rows(fleet):
    made = fleet.ensemble(weights="uniform")
    assert made.valid_ll is None
    assert {member.adds for member in made.members} == {None}
    assert made.to_frame()["adds"].isna().all()
    np.testing.assert_allclose(
        made.model.log_prob(VALID), fleet.ensemble(VALID, weights="uniform").model.log_prob(VALID)
    )


def test_weights_are_never_found_on_training_rows(fleet):
    with pytest.raises(OptionError, match="these are the rows that the members were trained on; pass valid="):
        fleet.ensemble(TRAIN)
    with pytest.raises(OptionError, match="weights='em' must be found on held-out rows: pass valid="):
        fleet.ensemble()
    with pytest.raises(OptionError, match="size=2 needs held-out rows to choose members: pass valid="):
        fleet.ensemble(weights="uniform", size=2)


@pytest.mark.parametrize(
    ("options", "message"), [({"weights": "best"}, "weights must be one of em, uniform"), ({"size": 0}, "size must be")]
)
def test_options_are_checked(fleet, options, message):
    with pytest.raises(OptionError, match=message):
        fleet.ensemble(VALID, **options)


def test_unseen_values_count_as_missing_with_one_warning(fleet):
    strange = VALID.copy()
    strange[0, 0] = 7
    with pytest.warns(cc.CircurveWarning, match="7 was not seen in training") as caught:
        made = fleet.ensemble(strange)
    assert len(caught) == 1
    assert np.isfinite(made.valid_ll)
