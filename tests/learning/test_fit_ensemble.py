"""`fit_ensemble`: its members, held-out rows, cross-validation, growing and joint training."""

from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from learning_helpers import binary_rows

import circurve as cc
from circurve.data import as_table
from circurve.errors import OptionError
from circurve.learning.ensemble_options import EnsembleOptions
from circurve.learning.fitting_ensembles import train_ensemble, train_jointly
from circurve.learning.members import Rows, plan_members
from circurve.learning.options import Settings
from circurve.learning.recipe import JointRecipe

DOCS = Path(__file__).parents[2] / "docs"
TRAIN, VALID = binary_rows(120, variables=5), binary_rows(80, seed=1, variables=5)
FAST = {"members": 3, "units": (2, 3), "epochs": 4, "device": "cpu", "precision": "float64", "progress": False}


def test_members_take_units_pseudocounts_and_trees_in_turn():
    plans = plan_members(EnsembleOptions(members=9, units=(32, 100), pseudocounts=(0.003, 0.03), seed=5))
    assert [plan.units for plan in plans] == [32, 100] * 4 + [32]
    assert [plan.run.method.pseudocount for plan in plans[:5]] == [0.003, 0.003, 0.03, 0.03, 0.003]
    assert [plan.tree for plan in plans] == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert [plan.run.seed for plan in plans] == list(range(5, 14))
    assert {plan.tree for plan in plan_members(EnsembleOptions(members=9, trees="same"))} == {0}
    grown = plan_members(EnsembleOptions(members=9, boosted=3))
    assert [plan.run.label.partition(",")[0] for plan in grown] == ["tree 0"] * 6 + ["grown"] * 3


def test_pages_say_how_many_trees_there_are():
    def trees(**options):
        return len({plan.tree for plan in plan_members(EnsembleOptions(**options))})

    counts = {1: "one", 2: "two", 4: "four", 8: "eight"}
    eight = counts[EnsembleOptions().members]
    choose, estimators = ((DOCS / name).read_text() for name in ("howto/choose.md", "estimators.md"))
    assert f"trains {eight} circuits on {counts[trees()]} trees, that of all rows and one of resampled" in choose
    assert f"With one number, `units=100`, the {eight} circuits have {counts[trees(units=100)]} trees." in choose
    assert f"With `ensemble=8`, eight circuits on {counts[trees(members=8, units=32)]} trees" in estimators
    assert f"By default, {eight} circuits on {counts[trees()]} trees" in cc.fit_ensemble.__doc__
    for members, units in ((4, (4, 8)), (7, (4, 8)), (8, (4, 8)), (12, 4), (1, 4)):
        numbers = len(units) if isinstance(units, tuple) else 1
        assert trees(members=members, units=units) == max(1, members // (numbers * 2))  # as `trees` documents it
    assert "max(1, M // (U P)) trees" in cc.fit_ensemble.__doc__


def test_a_member_is_the_run_that_fit_trains():
    made = cc.fit_ensemble(TRAIN, valid=VALID, **{**FAST, "members": 1, "units": 3}, pseudocounts=0.01, seed=4)
    alone = cc.fit(
        cc.hclt(TRAIN, 3),
        TRAIN,
        valid=VALID,
        method=cc.Vanilla(0.01),
        seed=4,
        init="prototypes",
        step_size=cc.schedules.cosine(0.2, 0.005),
        **{name: FAST[name] for name in ("epochs", "device", "precision", "progress")},
    )
    np.testing.assert_allclose(made.model.log_prob(VALID), alone.model.log_prob(VALID), rtol=1e-9)
    assert made.valid_ll == pytest.approx(alone.valid_ll)


def test_the_report_says_what_the_model_does():
    made = cc.fit_ensemble(TRAIN, valid=VALID, **FAST, weighting="uniform")
    assert made.model.log_prob(VALID).mean() == pytest.approx(made.valid_ll)
    assert [member.name for member in made.members] == [
        "tree 0, 2 units, pseudocount 0.003 (vanilla, seed 0)",
        "tree 0, 3 units, pseudocount 0.003 (vanilla, seed 1)",
        "tree 0, 2 units, pseudocount 0.03 (vanilla, seed 2)",
    ]
    assert [member.run for member in made.members] == [0, 1, 2]


def test_the_same_seed_gives_the_same_model_and_another_one_another():
    made = [cc.fit_ensemble(TRAIN, valid=VALID, **FAST, seed=seed).model.log_prob(VALID) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(made[0], made[1])
    assert not np.allclose(made[0], made[2])


def test_bootstrap_trees_differ():
    wide = binary_rows(60, variables=9, noise=0.45)
    made = cc.fit_ensemble(wide, valid=0.2, **{**FAST, "members": 4}, pseudocounts=0.1, weighting="uniform")
    by_member = [node.name for node in made.model.circuit.nodes if node.name and node.name.startswith("product")]
    inner = [{n.rpartition(" of model ")[0] for n in by_member if n.endswith(f"of model {m}")} for m in range(4)]
    assert inner[0] == inner[1]
    assert inner[2] == inner[3] != inner[0]


class TestHeldOutRows:
    def test_a_tenth_is_set_aside_where_none_are_given(self, capsys):
        made = cc.fit_ensemble(TRAIN, **{**FAST, "progress": None})
        assert {name: len(rows) for name, rows in made.rows.items()} == {"train": 108, "valid": 12}
        assert not set(made.rows["train"]) & set(made.rows["valid"])
        assert made.model.log_prob(TRAIN[made.rows["valid"]]).mean() == pytest.approx(made.valid_ll)
        assert "12 of 120 training rows are held out" in capsys.readouterr().err

    def test_a_share_and_weights_of_rows(self):
        weights = np.where(np.arange(120) < 100, 1.0, 0.0)
        made = cc.fit_ensemble(TRAIN, valid=0.25, weights=weights, **FAST)
        held = made.rows["valid"]
        assert len(held) == 30
        expected = np.average(made.model.log_prob(TRAIN[held]), weights=weights[held])
        assert made.valid_ll == pytest.approx(expected)

    def test_frames_with_text_and_missing_values(self):
        frame = pd.DataFrame({"sky": ["blue", None, "grey"] * 30, "rain": [0, 1, 1] * 30, "t": np.linspace(0, 1, 90)})
        made = cc.fit_ensemble(frame, **{**FAST, "units": 2})
        assert np.isfinite(made.model.log_prob(frame)).all()
        assert made.model.schema.names == ("sky", "rain", "t")

    def test_cross_validation_weights_members_by_rows_that_they_did_not_see(self, monkeypatch):
        seen = []
        original = cc.learning.members.fit_fleet

        def spy(circuit, train, runs, **options):
            held = options["valid"]
            seen.append((np.asarray(train), None if held is False else np.asarray(held)))
            return original(circuit, train, runs, **options)

        monkeypatch.setattr("circurve.learning.members.fit_fleet", spy)
        made = cc.fit_ensemble(TRAIN, valid=False, **FAST, folds=3, patience=2)
        in_order = np.sort(TRAIN @ (2 ** np.arange(5)))

        def same_rows(*parts):
            return np.array_equal(np.sort(np.concatenate(parts) @ (2 ** np.arange(5))), in_order)

        assert len(seen) == 3 * 2 + 2
        assert all(same_rows(train, held) for train, held in seen[:6])
        assert same_rows(*(held for _, held in seen[:6:2]))
        assert all(same_rows(train) and held is None for train, held in seen[6:])
        assert made.rows == {}
        assert made.weights.sum() == pytest.approx(1)

    def test_training_rows_are_refused(self):
        with pytest.raises(OptionError, match="these are the rows that the members were trained on"):
            cc.fit_ensemble(TRAIN, valid=TRAIN, **FAST)

    def test_rows_held_out_are_no_training_rows_though_they_score_alike(self):
        made = cc.fit_ensemble(np.repeat([[0, 0], [1, 1]], 40, 0), **FAST, seed=3)
        assert np.isfinite(made.valid_ll)
        assert set(made.rows) == {"train", "valid"}
        made = cc.fit_ensemble(np.repeat([[0, 0], [1, 1]], 40, 0), valid=[[0, 0], [1, 1]], **FAST)
        assert np.isfinite(made.valid_ll)

    def test_too_few_rows_are_refused(self):
        with pytest.raises(OptionError, match="9 training rows are too few to hold some out"):
            cc.fit_ensemble(TRAIN[:9], **FAST)
        with pytest.raises(OptionError, match="9 training rows are too few for folds=5"):
            cc.fit_ensemble(TRAIN[:9], valid=False, **FAST)


class TestJointTraining:
    def test_it_is_kept_only_where_it_helps(self):
        before = cc.fit_ensemble(TRAIN, valid=VALID, **FAST)
        after = cc.fit_ensemble(TRAIN, valid=VALID, **FAST, joint_epochs=10)
        assert after.valid_ll >= before.valid_ll
        assert after.model.log_prob(VALID).mean() == pytest.approx(after.valid_ll)
        kept = cc.fit_ensemble(TRAIN, valid=VALID, **{**FAST, "epochs": 1}, step_size=1e-6, joint_epochs=1)
        start = cc.fit_ensemble(TRAIN, valid=VALID, **{**FAST, "epochs": 1}, step_size=1e-6)
        assert kept.valid_ll == pytest.approx(start.valid_ll, abs=1e-4)

    def test_members_before_and_after_it_are_candidates(self):
        before, after = trained_jointly("em")
        names = [member.name for member in before.members]
        found = {member.name for member in after.members} | set(after.left_out)
        assert found == {*names, *(f"{name}, jointly trained" for name in names), *before.left_out}
        assert after.valid_ll > before.valid_ll

    def test_with_uniform_weights_only_members_after_it_are_mixed(self):
        before, after = trained_jointly("uniform")
        assert [member.name for member in after.members] == [f"{m.name}, jointly trained" for m in before.members]
        assert after.weights == pytest.approx([1 / 3] * 3)


def trained_jointly(weighting):
    """Ensembles before and after joint training, whichever is better."""
    digits = cc.load_dataset("digits")
    schema, settings = cc.infer_schema(digits.train), Settings(epochs=3, precision="float64", device="cpu")
    rows = Rows(as_table(digits.train), as_table(digits.valid), schema, settings, progress=False)
    options = EnsembleOptions(members=3, units=(2, 3), weighting=weighting)
    before = train_ensemble(rows, options)
    return before, train_jointly(before, rows, JointRecipe(epochs=5, step=0.3), options)


def interrupting(epoch):
    """A callback that acts like Ctrl-C once, after this many epochs in all."""
    calls = []

    def callback(event):
        calls.append(event.epoch)
        if len(calls) == epoch:
            raise KeyboardInterrupt

    return callback


@pytest.mark.parametrize(("epoch", "members"), [(2, {0, 2}), (6, {0, 1, 2})])
def test_ctrl_c_mixes_what_is_there(epoch, members):
    made = cc.fit_ensemble(
        TRAIN, valid=VALID, **FAST, callbacks=[interrupting(epoch)], joint_epochs=5, weighting="uniform"
    )
    assert made.stopped == "interrupted"
    assert {member.run for member in made.members} == members
    assert np.isfinite(made.valid_ll)


def test_ctrl_c_during_cross_validation_mixes_the_members_of_that_fold():
    made = cc.fit_ensemble(TRAIN, valid=False, **FAST, folds=3, callbacks=[interrupting(11)], weighting="uniform")
    assert made.stopped == "interrupted"
    assert {member.run for member in made.members} == {0, 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 0}, "members must be a whole number >= 1, not 0"),
        ({"units": (4, 0)}, "units must be a whole number >= 1, not 0"),
        ({"units": ()}, r"units must list at least one, not \(\)"),
        ({"pseudocounts": (-1.0,)}, "pseudocounts must be a finite number >= 0, not -1.0"),
        ({"trees": "random"}, "trees must be one of bootstrap, same, not 'random'"),
        ({"weighting": "best"}, "weighting must be one of em, uniform, stacked"),
        ({"boosted": 3}, "boosted=3 must be less than members=3"),
        ({"unit": 3}, "fit_ensemble has no option 'unit'; did you mean 'units'?"),
        ({"valid": False, "joint_epochs": 3}, "boosted and joint_epochs need validation rows"),
        ({"valid": True}, "valid must be data, a share of the training rows between 0 and 1, or False, not True"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        cc.fit_ensemble(TRAIN, **{**FAST, **options})


def test_the_signature_and_the_docstring_list_all_options():
    shown = signature(cc.fit_ensemble).parameters
    assert {"train", "valid", "members", "units", "trees", "boosted", "joint_epochs", "device", "patience"} <= set(
        shown
    )
    assert shown["members"].default == 8
    words = " ".join(cc.fit_ensemble.__doc__.split())
    assert "boosted : int, default 0 This many members are trained one after another" in words
