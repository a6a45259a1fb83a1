"""Rows that `fit` holds out for validation by itself."""

import numpy as np
import pytest

import circurve as cc
from circurve.errors import OptionError

X = np.random.default_rng(0).integers(0, 2, (300, 4))
CIRCUIT = cc.hclt(X, 2)
LARGE = cc.hclt(X, 40)


def train(circuit=CIRCUIT, x=X, **options):
    return cc.fit(circuit, x, **{"epochs": 2, "device": "cpu", "progress": False, **options})


@pytest.mark.parametrize(
    "options",
    [
        {"select": "best"},
        {"patience": 2},
        {"method": cc.Global("auto")},
        {"method": cc.Gated(cc.schedules.by_overfitting(1.0))},
        {"circuit": LARGE},
        {"valid": 0.1},
    ],
)
def test_a_tenth_is_set_aside_where_it_is_needed(options):
    result = train(**options)
    rows = result.rows
    assert sorted(np.concatenate([rows["train"], rows["valid"]])) == list(range(300))
    assert len(rows["valid"]) == 30
    assert result.valid_ll == pytest.approx(result.model.log_prob(X[rows["valid"]]).mean(), abs=1e-5)
    assert result.train_ll == pytest.approx(result.model.log_prob(X[rows["train"]]).mean(), abs=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"circuit": LARGE, "valid": False},
        {"circuit": LARGE, "select": "last"},
        {"circuit": LARGE, "x": X[:199]},
        {"circuit": LARGE, "valid": X[:20]},
        {"circuit": LARGE, "epochs": 1},
    ],
)
def test_all_rows_are_used_otherwise(options):
    rows = train(**options).rows
    assert list(rows) == ["train"]
    np.testing.assert_array_equal(rows["train"], np.arange(len(options.get("x", X))))


def test_the_result_is_that_of_the_same_parts_given_by_hand():
    own = train(LARGE)
    given = train(LARGE, X[own.rows["train"]], valid=X[own.rows["valid"]])
    assert (own.train_ll, own.valid_ll, own.epoch) == (given.train_ll, given.valid_ll, given.epoch)


def test_runs_of_a_fleet_share_the_rows():
    fleet = cc.fit_fleet(LARGE, X, [cc.Run(seed=seed) for seed in (0, 1)], epochs=2, device="cpu", progress=False)
    np.testing.assert_array_equal(fleet[0].rows["valid"], fleet[1].rows["valid"])
    larger = train(LARGE, valid=0.25)
    assert len(larger.rows["valid"]) == 75


def test_weights_and_labels_go_with_their_rows():
    weights = np.arange(300) + 1.0
    own = train(LARGE, weights=weights)
    parts = [cc.Examples(X[own.rows[name]], weights[own.rows[name]]) for name in ("train", "valid")]
    given = train(LARGE, parts[0], valid=parts[1])
    assert (own.train_ll, own.valid_ll) == (given.train_ll, given.valid_ll)


def test_one_line_says_how_many(capsys):
    train(LARGE, progress=None)
    expected = (
        "circurve: 30 of 300 training rows are held out for validation (result.rows); pass valid=False to train on all "
        "rows"
    )
    assert expected in capsys.readouterr().err
    train(LARGE)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"valid": 1.5}, "valid must be data, a share of the training rows between 0 and 1, or False, not 1.5"),
        ({"valid": True}, "valid must be data, a share .* not True"),
        ({"x": X[:9], "patience": 1}, "9 training rows are too few to hold some out for validation: pass valid="),
        ({"valid": False, "patience": 1}, "need validation data: pass valid=, or leave valid=False out"),
    ],
)
def test_wrong_values_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        train(**options)


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_set_aside_whatever_seed_made_the_data(seed):
    """With the seed of the data, the split would hold out the rows with the smallest numbers."""
    x = np.random.default_rng(seed).uniform(size=(400, 1))
    held = train(cc.fully_factorized([cc.Gaussian()]), x, valid=0.1).rows["valid"]
    assert abs(x[held].mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(held))
