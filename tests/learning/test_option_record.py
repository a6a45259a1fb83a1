"""One record of options: `fit`, `fit_fleet` and the command line take names, defaults and help texts from it."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest
import torch
import typer
from learning_helpers import binary_rows, quick, quick_fleet, small_circuit

import circurve as cc
from circurve.cli import app
from circurve.cli.options import Estimator, Init, MuScale, Penalty, Precision, Select, Simplex
from circurve.learning import FleetResult, Gated, Run, Vanilla, options
from circurve.learning.fitting import FleetOptions
from circurve.learning.option_texts import help_of
from circurve.learning.options import Settings, TrainingOptions

X = binary_rows(20)
NAMES = {"torch": torch, "Gate": cc.gates.Gate}
"""Types that the records import for type checkers alone."""

CIRCUIT = small_circuit(X)
ORDER = (
    *(
        "valid",
        "test",
        "weights",
        "labels",
        "missing",
        "schema",
        "unseen",
        "method",
        "seed",
        "init",
        "epochs",
        "batch_size",
        "step_size",
    ),
    *("tolerance", "patience", "select", "device", "precision", "backend", "memory_budget", "track"),
    *("checkpoint", "checkpoint_every", "refit", "start"),
    *("callbacks", "progress", "engine"),
)
"""The keywords of `fit` in the order in which they have always stood."""


def test_the_keywords_have_the_names_and_types_of_the_record():
    keywords = {name: kind.__forward_arg__ for name, kind in TrainingOptions.__annotations__.items()}
    assert keywords == {option.name: option.type for option in fields(Settings)}


def test_fit_hands_on_every_keyword_of_fit_fleet():
    names = {n for n, p in inspect.signature(cc.fit_fleet).parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert set(FleetOptions.__annotations__) == names


def test_the_signatures_show_every_option_with_its_default():
    alone, fleet = inspect.signature(cc.fit).parameters, inspect.signature(cc.fit_fleet).parameters
    assert tuple(alone) == ("circuit", "train", *ORDER)
    shared = (name for name in ORDER if name not in ("method", "seed", "init"))
    assert tuple(fleet) == ("circuit", "train", "runs", *shared)
    for option in fields(Settings):
        for shown in (alone[option.name], fleet[option.name]):
            assert shown.default == option.default
            assert shown.annotation == option.type
            assert shown.kind is shown.KEYWORD_ONLY
    assert (alone["seed"].default, alone["init"].default) == (Run().seed, Run().init)
    for name in ("valid", "missing", "refit", "start", "callbacks", "progress"):
        assert alone[name] == fleet[name]


def test_the_docstring_says_what_every_option_is():
    words = " ".join(cc.fit.__doc__.split())
    for option in (*fields(Settings), *fields(Run)):
        if option.name not in ("method", "step_size", "label") or "help" in option.metadata:
            entry = words[words.index(f" {option.name} : ") :]
            assert option.metadata["help"] in entry[:200]
    for name in ORDER:
        assert name in words
    assert not re.search(r"\{\w+\}", words)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quick(CIRCUIT, X, epoch=3), "^fit has no option 'epoch'; did you mean 'epochs'?"),
        (lambda: quick(CIRCUIT, X, metod=Vanilla()), "^fit has no option 'metod'; did you mean 'method'?"),
        (lambda: quick(CIRCUIT, X, zzz=1), r"^fit has no option 'zzz'; help\(fit\) lists all of them"),
        (lambda: quick_fleet(CIRCUIT, X, [Run()], patiens=1), "^fit_fleet has no option 'patiens'; did you mean"),
        (lambda: quick_fleet(CIRCUIT, X, [Run()], seed=1), r"^fit_fleet has no option 'seed'; it belongs to each"),
    ],
)  # fmt: skip
def test_an_unknown_option_is_one_error_with_the_nearest_name(call, message):
    with pytest.raises(cc.OptionError, match=message):
        call()


def test_settings_and_keywords_are_the_same_thing():
    settings = Settings(epochs=2, batch_size=None, track=True)
    assert Settings.of(settings.options()) == settings
    assert len(quick_fleet(CIRCUIT, X, [Run()], **{**settings.options(), "device": "cpu"})[0].history) == 2


# --- the command line ---


def shown_by(command: str) -> dict[str, typer.core.TyperOption]:
    program = typer.main.get_command(app)
    return {option.name: option for option in program.commands[command].params}


@pytest.mark.parametrize("command", ["fit", "sweep"])
def test_the_command_line_has_the_defaults_and_help_texts_of_the_record(command):
    found, seen = shown_by(command), 0
    for record in (Settings, Run, Gated):
        for option in fields(record):
            if option.name in found and option.name not in ("method", "mu", "gate", "step_size"):
                seen += 1
                shown = found[option.name]
                assert shown.help == option.metadata["help"]
                default = shown.show_default if isinstance(shown.show_default, str) else shown.default
                if option.default is not None:
                    assert same(getattr(default, "value", default), option.default)
    assert seen >= 13
    assert help_of(Settings, "step_size") in found["step_size"].help


def same(shown: object, default: object) -> bool:
    """Numbers may be shown shorter than Python writes them."""
    return str(shown) == str(default) or str(shown) == f"{default:g}"


@pytest.mark.parametrize(
    ("choices", "record", "name"),
    [(Precision, Settings, "precision"), (Init, Run, "init"), (Simplex, Gated, "simplex"), (Penalty, Gated, "penalty"),
     (MuScale, Gated, "mu_scale"), (Estimator, Gated, "estimator")],
)  # fmt: skip
def test_the_command_line_has_all_choices_of_the_record(choices, record, name):
    hints = get_type_hints(record, vars(options) | vars(cc.learning.methods) | NAMES)
    assert [choice.value for choice in choices] == list(get_args(hints[name]))


def test_select_has_all_choices_of_the_record():
    literal = get_args(get_type_hints(Settings, vars(options) | NAMES)["select"])[0]
    assert [choice.value for choice in Select] == list(get_args(literal))


# --- names of runs ---


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (Run(), "run 3 (vanilla, seed 0)"),
        (Run(cc.Global(0.1), seed=2), "run 3 (global, mu 0.1, seed 2)"),
        (Run(Gated("auto", "rank"), label="ours"), "ours (gated by rank, mu auto, seed 0)"),
        (Run(Gated(cc.schedules.linear(0.1, 0.2))), "run 3 (gated by max_norm, mu by schedule, seed 0)"),
        (Run(cc.Global(cc.Grid((0.1, 1.0)))), "run 3 (global, mu of a grid, seed 0)"),
        (Run(cc.Global(cc.schedules.by_overfitting(1.0))), "run 3 (global, mu by overfitting, seed 0)"),
    ],
)
def test_a_run_goes_by_its_label_or_its_number(run, name):
    assert run.name(3) == name


def test_callbacks_and_results_name_the_runs():
    told = []
    runs = [Run(label="first"), Run(seed=1)]
    fleet = quick_fleet(CIRCUIT, X, runs, epochs=1, callbacks=[lambda event: told.append(event.names)])
    names = {0: "first (vanilla, seed 0)", 1: "run 1 (vanilla, seed 1)"}
    assert told == [names]
    assert isinstance(fleet, FleetResult)
    assert [fleet.name(number) for number in range(2)] == list(names.values())
    assert "first (vanilla, seed 0)" in repr(fleet)
