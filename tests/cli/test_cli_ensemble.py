"""`circurve fit --ensemble` and `circurve sweep --ensemble`: one saved mixture and the table of its members."""

from __future__ import annotations

import numpy as np
import pytest
from cli_helpers import FIELDS, error_line, strict_json

import circurve as cc
from circurve.cli import ensemble
from circurve.data import split_rows

TINY = "--units 2 --epochs 3 --precision float64"


def test_fit_saves_the_mixture_and_reports_its_members(answer, table, rows):
    report = answer(f"fit {table} {TINY} --ensemble 3 --out m.safetensors")
    assert all(field in report for field in FIELDS)
    model = cc.load("m.safetensors")
    for name, part in zip(("train", "valid", "test"), split_rows(rows, 0.1, 0.1, seed=0), strict=True):
        assert report[f"{name}_ll"] == pytest.approx(model.log_prob(part).mean())
    members = report["ensemble"]["members"]
    assert len(members) + len(report["ensemble"]["left_out"]) == 3
    assert sum(member["weight"] for member in members) == pytest.approx(1)
    assert report["ensemble"]["held_out_ll"] == pytest.approx(report["valid_ll"])
    assert report["parameters"] == model.circuit.describe().parameters
    assert report["step_size"] == "cosine:0.2:0.005"


def test_it_is_what_fit_ensemble_trains(answer, table, rows):
    report = answer(f"fit {table} {TINY} --ensemble 2 --pseudocount 0.5 --step-size 0.3 --init random --seed 4")
    train, valid, _ = split_rows(rows, 0.1, 0.1, seed=4)
    made = cc.fit_ensemble(
        train,
        valid=valid,
        members=2,
        units=2,
        epochs=3,
        pseudocounts=0.5,
        step_size=0.3,
        init="random",
        seed=4,
        precision="float64",
    )
    assert report["valid_ll"] == pytest.approx(made.valid_ll)
    assert [member["name"] for member in report["ensemble"]["members"]] == [member.name for member in made.members]


def test_the_report_and_the_file_say_what_each_member_has(answer, invoke, table):
    report = answer(f"fit {table} --units 2,3 --epochs 4 --ensemble 4 --out m.safetensors")
    members = report["ensemble"]["members"]
    assert len(members) > 1
    for member in members:
        units, pseudocount = ((2, 3)[member["run"] % 2], (0.003, 0.03)[member["run"] // 2])
        assert (member["units"], member["pseudocount"], member["seed"]) == (units, pseudocount, member["run"])
        assert member["epochs"] == 4
        assert 0 <= member["epoch"] <= 4
    assert report["units"] == sorted({member["units"] for member in members})
    assert report["pseudocount"] == sorted({member["pseudocount"] for member in members})
    assert (report["epochs"], report["epoch"]) == (4, None)
    found = answer("info m.safetensors")
    assert found["mixture"]["members"] == len(members)
    assert found["mixture"]["weights"] == pytest.approx([member["weight"] for member in members])
    assert found["training"]["ensemble"]["members"] == members
    shown = " ".join(invoke("info m.safetensors").stdout.split())
    assert f"mixture of {len(members)} members, weights 0." in shown
    assert f"units {' and '.join(map(str, report['units']))}, " in shown
    assert f"pseudocount {' and '.join(map(str, report['pseudocount']))}, seed 0, epochs 4" in shown


def test_info_calls_one_circuit_no_mixture(answer, invoke, table):
    answer(f"fit {table} {TINY} --out m.safetensors")
    assert answer("info m.safetensors")["mixture"] is None
    assert "mixture" not in invoke("info m.safetensors").stdout


def test_defaults_are_those_of_the_library_unless_typed(answer, table, monkeypatch):
    seen = []
    original = ensemble.fit_ensemble

    def spy(*data, **options):
        seen.append(options)
        return original(*data, **{**options, "epochs": 1})

    monkeypatch.setattr(ensemble, "fit_ensemble", spy)
    answer(f"fit {table} --units 2 --ensemble 1")
    assert not {"epochs", "batch_size", "step_size", "pseudocounts", "init"} & set(seen[0])
    answer(f"fit {table} --units 2 --ensemble 1 --epochs 7 --batch-size full")
    assert (seen[1]["epochs"], seen[1]["batch_size"]) == (7, None)


def test_without_validation_rows_weights_are_cross_validated(answer, table):
    report = answer(f"fit {table} {TINY} --ensemble 2 --no-split")
    assert report["rows"] == {"train": 100, "valid": None, "test": None}
    assert report["valid_ll"] is None
    assert np.isfinite(report["ensemble"]["held_out_ll"])


def test_people_see_a_table_of_members(invoke, table):
    shown = invoke(f"fit {table} {TINY} --ensemble 2 --out m.safetensors").stdout
    assert "member" in shown
    assert "adds" in shown
    assert "mixture of" in shown
    assert "saved in" in shown


def test_ctrl_c_keeps_the_mixture_so_far(invoke, table, monkeypatch):
    original = ensemble.fit_ensemble

    def stop(event):
        if event.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ensemble, "fit_ensemble", lambda data, **options: original(data, callbacks=[stop], **options))
    result = invoke(f"fit {table} {TINY} --ensemble 2 --out m.safetensors --json")
    assert result.exit_code == 130
    assert strict_json(result.stdout)["stopped"] == "interrupted"
    assert (
        result.stderr.splitlines()[-1] == "circurve: interrupted; the mixture trained so far is saved in m.safetensors"
    )
    assert cc.load("m.safetensors").circuit.variables == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--ensemble 0", "--ensemble must be a whole number >= 1, not 0"),
        ("--ensemble 2 --structure hmm", "--ensemble mixes trees of --structure hclt; leave out --structure hmm"),
        (
            "--ensemble 2 --method gated",
            "--ensemble trains its members by --method vanilla; for other methods use circurve sweep",
        ),
        ("--ensemble 2 --plot p.png", "--plot and --track show the epochs of one run"),
        ("--ensemble 2 --track", "--plot and --track show the epochs of one run"),
    ],
)
def test_what_an_ensemble_does_not_have_is_refused(invoke, table, options, message):
    assert message in error_line(invoke(f"fit {table} {TINY} {options}"))


def test_a_sweep_becomes_one_model(answer, table, rows):
    report = answer(f"sweep {table} {TINY} --methods vanilla,gated --mu 0.01 --seeds 2 --ensemble --out-dir models")
    mixed = report["ensemble"]
    assert mixed["out"] == "models/ensemble.safetensors"
    model = cc.load(mixed["out"])
    _, valid, test = split_rows(rows, 0.1, 0.1, seed=0)
    assert mixed["test_ll"] == pytest.approx(model.log_prob(test).mean())
    assert mixed["held_out_ll"] == pytest.approx(model.log_prob(valid).mean())
    best = max(run["valid_ll"] for run in report["runs"])
    assert mixed["held_out_ll"] >= best - 1e-6
    names = [run["name"] for run in report["runs"]]
    assert all(member["name"] == names[member["run"]] for member in mixed["members"])


def test_a_sweep_shows_its_mixture_to_people(invoke, table):
    shown = invoke(f"sweep {table} {TINY} --methods vanilla --seeds 2 --ensemble").stdout
    assert "members; adds: log-likelihood that the mixture loses without the member" in shown
    assert "not saved, because there is no --out-dir" in " ".join(shown.split())


def test_the_title_names_the_units_of_the_members_alone(answer, invoke, table):
    call = f"fit {table} --units 1,4 --epochs 20 --ensemble 2"
    assert answer(call)["units"] == [4]
    assert "table: mixture of 1 hclt, 4 units" in invoke(call).stdout


def test_a_sweep_without_the_option_reports_none(answer, table):
    assert answer(f"sweep {table} {TINY} --methods vanilla --seeds 1")["ensemble"] is None


def test_a_sweep_needs_validation_rows_to_mix(invoke, table):
    message = error_line(invoke(f"sweep {table} {TINY} --methods vanilla --no-split --ensemble"))
    assert message == "--ensemble finds its weights on validation rows: pass --valid FILE or a share in --split"


def test_members_take_units_in_turn_are_grown_and_trained_jointly(answer, table, rows):
    report = answer(f"fit {table} --epochs 3 --precision float64 --units 2,3 --ensemble 3 --boosted 1 --joint-epochs 2")
    train, valid, _ = split_rows(rows, 0.1, 0.1, seed=0)
    made = cc.fit_ensemble(
        train, valid=valid, members=3, units=(2, 3), boosted=1, joint_epochs=2, epochs=3, precision="float64"
    )
    assert report["valid_ll"] == pytest.approx(made.valid_ll)
    assert report["ensemble"]["units"] == [2, 3]
    assert [member["name"] for member in report["ensemble"]["members"]] == [member.name for member in made.members]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--boosted 1", "--boosted and --joint-epochs are for mixtures: add --ensemble N, or leave them out"),
        ("--joint-epochs 2", "--boosted and --joint-epochs are for mixtures: add --ensemble N, or leave them out"),
        ("--ensemble 2 --boosted 2", "--boosted 2 must be less than --ensemble 2"),
        ("--ensemble 2 --joint-epochs -1", "--joint-epochs must be a whole number >= 0, not -1"),
        ("--ensemble 1 --units 2,3", "--units lists 2 numbers, but --ensemble is only 1"),
        (
            "--ensemble 2 --units auto",
            "--units auto is for one circuit; with --ensemble list the numbers: --units 32,100",
        ),
        (
            "--ensemble 2 --joint-epochs 1 --no-split",
            "--boosted and --joint-epochs need validation rows: pass --valid FILE or a share in --split",
        ),
    ],
)
def test_options_of_mixtures_that_do_not_fit_are_refused(invoke, table, typed, message):
    units = "" if "--units" in typed else "--units 2"
    assert error_line(invoke(f"fit {table} --epochs 2 {units} {typed}")) == message
