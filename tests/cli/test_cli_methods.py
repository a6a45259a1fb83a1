"""The methods of learning on the command line, and the demo that compares them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cli_helpers import error_line

import circurve as cc
from circurve.cli import demo
from circurve.cli.methods import describe_method, gate_name, method_label, parse_mu
from circurve.learning.gates import GATES, top_fraction
from circurve.persistence import read_metadata

TINY = "--units 3 --epochs 2"
REGULARISED = {"simplex": "exact", "penalty": "exact", "mu_scale": "mean", "pseudocount": 0.5}


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ("--method global --mu 0.3", cc.Global(0.3)),
        ("--method gated --mu 0.3", cc.Gated(0.3)),
        (
            "--method global --mu 0.3 --simplex exact --penalty exact --mu-scale mean --pseudocount 0.5",
            cc.Global(0.3, **REGULARISED),
        ),
        (
            "--method gated --mu 0.3 --gate top_fraction:0.2:total --estimator mean_ratio --gate-memory 0.5 "
            "--simplex exact --penalty exact --mu-scale mean --pseudocount 0.5",
            cc.Gated(0.3, "top_fraction:0.2:total", "mean_ratio", gate_memory=0.5, **REGULARISED),
        ),
        ("--method gated --mu 0.3 --estimator flow_weighted", cc.Gated(0.3, estimator="flow_weighted")),
        ("--method gated --mu 0.3 --estimator geometric", cc.Gated(0.3, estimator="geometric")),
        (
            "--method gated --mu 0.3 --estimator clipped --ratio-floor 0.3",
            cc.Gated(0.3, estimator="clipped", ratio_floor=0.3),
        ),
    ],
)
def test_options_of_the_method_reach_the_library(answer, table, rows, options, method):
    report = answer(f"fit {table} --no-split --structure mixture {TINY} {options} --precision float64")
    result = cc.fit(cc.mixture(5, 3), rows, method=method, epochs=2, precision="float64", device="cpu")
    assert report["train_ll"] == pytest.approx(result.train_ll, abs=1e-12)
    assert report["sharpness"] == pytest.approx(cc.curvature(result.model, rows).trace)
    described = describe_method(method)
    assert {key: report[key] for key in described} == described
    assert report["mu"] == 0.3
    assert "path" not in report


@pytest.mark.parametrize("gate", [*GATES, "top_fraction:0.5"])
def test_every_gate_has_a_name(answer, table, gate):
    assert answer(f"fit {table} {TINY} --method gated --mu 0.1 --gate {gate}")["gate"] == gate


def test_mu_is_chosen_by_validation_unless_it_is_given(answer, invoke, table):
    report = answer(f"fit {table} {TINY} --method global --out m.safetensors")
    path = report["path"]
    assert len(path) == 10
    (chosen,) = [candidate for candidate in path if candidate["chosen"]]
    assert chosen["mu"] == report["mu"] == 0  # a tie on so few rows: plain EM wins it
    assert chosen["valid_ll"] < max(candidate["valid_ll"] for candidate in path)
    assert (report["valid_ll"], report["test_ll"]) == (chosen["valid_ll"], chosen["test_ll"])
    assert cc.load("m.safetensors").circuit.variables == 5
    assert answer("info m.safetensors")["training"]["path"] == path
    alone = answer(f"fit {table} {TINY} --method global --mu {report['mu']}")
    assert alone["train_ll"] == pytest.approx(report["train_ll"], abs=1e-6)


def test_the_path_of_a_choice_is_shown(invoke, table):
    result = invoke(f"fit {table} {TINY} --method gated --mu 0.01,0.2 --gate auto --out m.safetensors")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    candidates = [line.split() for line in lines if any(f" {name} " in line for name in GATES)]
    assert len(candidates) == 2 * (len(GATES) - 1)
    (chosen,) = [words[1:3] for words in candidates if words[0] == "*"]
    assert f"table: hclt, 3 units, gated by {chosen[1]}, mu {chosen[0]}" in result.stdout


def test_tracking_gives_a_history(answer, invoke, table):
    options = f"fit {table} --units 3 --epochs 30 --method gated --mu 0.1 --track --out m.safetensors"
    report = answer(options)
    assert [record["epoch"] for record in report["history"]] == list(range(1, 31))
    last = report["history"][-1]
    assert last["sharpness"] > 0
    assert 0 <= last["gates"]["median"] <= last["gates"]["max"] == 1
    assert "history" not in read_metadata("m.safetensors")["training"]
    lines = invoke(options).stdout.splitlines()
    above = [line.split() for line in lines[: lines.index("table: hclt, 3 units, gated by max_norm, mu 0.1")]]
    assert [int(words[0]) for words in above if words and words[0].isdigit()] == list(range(3, 31, 3))
    assert max(len(line) for line in lines) <= 80


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--mu 0.1", "--mu has no effect with vanilla; use global or gated"),
        ("--mu-scale mean", "--mu-scale has no effect with vanilla; use global or gated"),
        ("--method global --gate rank", "--gate has no effect with global; use gated"),
        ("--method global --gate-memory 0.5", "--gate-memory has no effect with global; use gated"),
        ("--method gated --mu much", "--mu must be a number, or numbers with commas between them, not 'much'"),
        ("--method gated --mu 0.1,", "--mu has a gap between its commas: '0.1,'"),
        ("--method gated --mu -1", "--mu must be finite and >= 0, not -1"),
        ("--method gated --mu nan", "--mu must be finite and >= 0, not nan"),
        ("--method gated --mu 0.1 --gate max", "--gate must be one of ones, max_norm"),
        ("--method gated --mu 0.1 --gate top_fraction:2", "q must be above 0 and at most 1"),
        ("--method gated --mu 0.1 --gate top_fraction:0.1:flow", "by must be 'local' or 'total'"),
        ("--method gated --mu 0.1 --gate-memory 1", "--gate-memory must be from 0 to below 1, not 1"),
        ("--method gated --mu 0.1 --estimator mode", "'mode' is not one of 'mean_trace', 'mean_ratio'"),
        ("--method gated --mu 0.1 --ratio-floor 0.1", "--ratio-floor has no effect without --estimator clipped"),
        (
            "--method gated --mu 0.1 --estimator clipped --ratio-floor 2",
            "--ratio-floor must be above 0 and at most 1, not 2",
        ),
        ("--method gated --mu 0.1 --simplex off", "'off' is not one of 'normalize', 'exact'"),
        ("--method gated --mu 0.1 --penalty l2", "'l2' is not one of 'surrogate', 'exact'"),
        ("--method gated --no-split", "several --mu or --gate, and auto, need validation rows"),
        ("--method gated --mu 0.1 --gate auto --no-split", "need validation rows"),
    ],
)
def test_wrong_options_of_the_method(invoke, table, options, expected):
    assert expected in error_line(invoke(f"fit {table} {TINY} {options}"))


def test_strengths_are_numbers_or_a_choice():
    assert parse_mu("0.1") == 0.1
    assert parse_mu("auto") == "auto"
    assert parse_mu("0.1, 1e-3,0.1") == cc.Grid((0.1, 0.001))


def test_gates_and_methods_have_words_for_reports():
    assert gate_name(top_fraction(0.1, "total")) == "top_fraction:0.1:total"
    assert gate_name(test_strengths_are_numbers_or_a_choice) == "test_strengths_are_numbers_or_a_choice"
    assert method_label(describe_method(cc.Vanilla())) == "vanilla"
    assert method_label(describe_method(cc.Gated(0.25, "rank"))) == "gated by rank, mu 0.25"


@pytest.fixture
def small_demo(monkeypatch):
    for name, value in (("UNITS", 4), ("EPOCHS", 3), ("ROWS", 100)):
        monkeypatch.setattr(demo, name, value)


@pytest.mark.usefixtures("small_demo")
def test_demo_compares_three_methods_in_one_fleet(invoke, answer, monkeypatch):
    fleets = []
    train = demo.train_fleet
    monkeypatch.setattr(demo, "train_fleet", lambda *args: fleets.append(args[2]) or train(*args))
    report = answer("demo --seed 1")
    assert [run.seed for run in fleets[0]] == [1, 1, 1]
    assert len(fleets) == 1
    assert [m["method"] for m in report["methods"]] == ["vanilla", "global", "gated"]
    assert (report["units"], report["seed"], report["epochs"], report["rows"]["train"]) == (4, 1, 3, 100)
    for record in report["methods"]:
        assert record["test_ll"] < 0 < record["sharpness"]
        assert all(0 < record["concentration"][by] <= 1 for by in ("total", "local"))
    result = invoke("demo --seed 1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    told = " ".join(result.stdout.split())
    assert all(sentence in told for sentence in report["findings"])


def test_the_sentences_of_the_demo_follow_the_numbers():
    def record(method, test_ll):
        return {
            "method": method,
            "train_ll": -1.0,
            "valid_ll": -3.0,
            "test_ll": test_ll,
            "sharpness": 1234.5,
            "concentration": {"total": 0.5, "local": 0.25},
            "best_by_validation": {"epoch": 7, "valid_ll": -2.0, "test_ll": test_ll + 1},
        }

    told = demo.findings([record("vanilla", -2.0), record("global", -4.0), record("gated", -3.0)], 40)
    assert told[0] == (
        "On unseen images vanilla does best with -2.00 nats per image, then gated with -3.00, then global with -4.00."
    )
    assert "2.00, 2.00 and 2.00 nats above validation rows" in told[1]
    assert "99% of the trace is in 50% of its 40 sum nodes" in told[2]
    assert "7, 7 and 7, they score -1.00, -3.00 and -2.00" in told[3]


@pytest.mark.usefixtures("small_demo")
def test_an_interrupted_demo_shows_what_it_has(invoke, monkeypatch):
    def interrupted(*args):
        results = train(*args)
        return cc.learning.FleetResult(tuple(replace(r, stopped="interrupted") for r in results))

    train = demo.train_fleet
    monkeypatch.setattr(demo, "train_fleet", interrupted)
    result = invoke("demo --json")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert np.isfinite(float(result.stdout.split('"train_ll": ')[1].split(",")[0]))


def test_a_demo_whose_scores_were_interrupted_shows_nothing(invoke, monkeypatch):
    def interrupted(circuit, data, runs, settings):
        results = train(circuit, data, runs, replace(settings, epochs=1))
        return cc.learning.FleetResult(tuple(replace(r, stopped="interrupted", train_ll=float("nan")) for r in results))

    train = demo.train_fleet
    monkeypatch.setattr(demo, "train_fleet", interrupted)
    result = invoke("demo")
    assert (result.exit_code, result.stderr, result.stdout) == (130, "circurve: interrupted\n", "")
