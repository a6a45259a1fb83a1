"""A signal after the epochs of a training: what was trained is saved, and the report says what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import strict_json
from killed import struck

import circurve as cc
from circurve.cli.files import read_training

pytestmark = pytest.mark.linux

SCORES = "circurve.learning.score:Scorer.score"
SHARPNESS = "circurve.cli.measures:_trace"
WRITING = "os:fsync"
TRAIN = "fit table.csv --units 3 --epochs 2 --device cpu --json"
FIT = f"{TRAIN} --no-split --out m.safetensors"  # scores are computed at the end only
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


def interrupted(folder: Path, words: str, *strikes: tuple[str, str]) -> tuple[dict[str, Any], str]:
    """The report, and the last line of errors."""
    assert struck(folder, words.split(), strikes) == CODES[strikes[-1][0]]
    said = (folder / "stderr.txt").read_text()
    document, end = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert strict_json(json.dumps(document))
    return document, said[said.index("{") + end :].splitlines()[-1]


@pytest.fixture
def undisturbed(table, folder, invoke) -> cc.Model:
    assert invoke(FIT).exit_code == 0
    model = cc.load("m.safetensors")
    Path("m.safetensors").unlink()
    return model


def same(one: cc.Model, other: cc.Model) -> bool:
    pairs = [zip(getattr(one.params, kind), getattr(other.params, kind), strict=True) for kind in ("weights", "inputs")]
    return all(bool((mine == its).all()) for pair in pairs for mine, its in pair)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize(("place", "missing"), [(SCORES, "train_ll, sharpness"), (SHARPNESS, "sharpness")])
def test_a_signal_during_the_scores_leaves_them_out(undisturbed, folder, name, place, missing):
    report, said = interrupted(folder, FIT, (name, place))
    assert report["notes"] == [f"{missing}: not computed, because the command was interrupted"]
    assert [report["train_ll"] is None, report["sharpness"]] == [place == SCORES, None]
    assert (report["stopped"], report["epochs"]) == ("interrupted", 2)
    assert said == "circurve: interrupted after 2 complete epochs; the model trained so far is saved in m.safetensors"
    assert same(cc.load("m.safetensors"), undisturbed)
    assert read_training(Path("m.safetensors"))["notes"] == report["notes"]


FIRST = "fit table.csv --units 3 --epochs 2 --batch-size 20 --device cpu --json --out m.safetensors"
M_STEP = "circurve.learning.plan:Plan.maximize"


@pytest.mark.parametrize("name", CODES)
def test_a_signal_in_the_first_epoch_saves_its_steps(table, folder, name):
    words = f"{FIRST} --checkpoint runs"
    report, said = interrupted(folder, words, ("SIGCONT", M_STEP), (name, M_STEP))
    assert (report["stopped"], report["epochs"], report["epoch"]) == ("interrupted", 0, 1)
    assert said == (
        "circurve: interrupted after 0 complete epochs; the model trained so far is saved in m.safetensors; "
        "the folder runs has no checkpoint yet, so the same command begins again"
    )
    assert cc.load("m.safetensors").circuit.variables == 5


def test_people_read_which_scores_are_missing(table, folder):
    words = FIT.replace("--epochs 2", "--epochs 1").replace(" --json", "").split()
    assert struck(folder, words, [("SIGTERM", SCORES)]) == 143
    said = Path("stderr.txt").read_text()
    assert " ".join(said.split()).count("train_ll, sharpness: not computed, because the command was interrupted") == 1
    assert "interrupted after 1 complete epoch; the model" in said
    assert "nan" not in said


@pytest.mark.parametrize(
    "strikes",
    [
        [("SIGINT", SCORES), ("SIGINT", "circurve.cli.training:describe_job")],
        [("SIGINT", SCORES), ("SIGINT", WRITING)],
        [("SIGTERM", "circurve.learning.loop:Trainer._tell"), ("SIGINT", SCORES), ("SIGINT", WRITING)],
        [("SIGINT", SCORES), ("SIGINT", "circurve.model:Model.save"), ("SIGTERM", WRITING), ("SIGINT", "os:replace")],
    ],
    ids=len,
)
def test_further_signals_lose_nothing(undisturbed, folder, strikes):
    report, said = interrupted(folder, FIT, *strikes)
    assert "is saved in m.safetensors" in said
    assert report["out"] == "m.safetensors"
    assert cc.load("m.safetensors").circuit.variables == 5
    assert not list(folder.glob(".circurve-*"))
    if strikes[0][1] == SCORES:
        assert same(cc.load("m.safetensors"), undisturbed)


def test_a_signal_while_the_model_is_written_waits_for_its_end(undisturbed, folder):
    report, said = interrupted(folder, FIT, ("SIGTERM", WRITING))
    assert (report["stopped"], report["notes"]) == ("epochs", [])
    assert said.endswith("is saved in m.safetensors")
    assert same(cc.load("m.safetensors"), undisturbed)


def test_a_signal_while_the_page_is_made_leaves_it_out(table, folder):
    report, _ = interrupted(folder, f"{FIT} --report page.html", ("SIGINT", "circurve.cli.fit:_write_page"))
    assert (report["out"], report["report"], Path("page.html").exists()) == ("m.safetensors", None, False)
    report, _ = interrupted(folder, f"{FIT} --overwrite --report page.html", ("SIGINT", SCORES))
    assert (report["out"], report["report"], Path("page.html").exists()) == ("m.safetensors", None, False)


def test_a_finished_training_with_a_checkpoint_has_all_scores_when_it_is_repeated(table, folder, answer):
    interrupted(folder, f"{FIT} --checkpoint runs", ("SIGTERM", SCORES))
    report = answer(f"{FIT.replace(' --json', '')} --checkpoint runs --overwrite")
    assert (report["stopped"], report["notes"], report["train_ll"] is None) == ("epochs", [], False)


@pytest.mark.parametrize("place", [SCORES, SHARPNESS])
def test_a_sweep_saves_all_models(table, folder, place):
    words = "sweep table.csv --units 2 --epochs 1 --no-split --seeds 2 --mu 0.1 --device cpu --json --out-dir models"
    report, said = interrupted(folder, words, ("SIGTERM", place), ("SIGINT", WRITING))
    assert len(report["runs"]) == len(list(Path("models").glob("*.safetensors"))) > 2
    assert all(Path(run["out"]).exists() for run in report["runs"])
    assert [run["sharpness"] for run in report["runs"]] == [None] * len(report["runs"])
    assert report["notes"][0].endswith("not computed, because the command was interrupted")
    assert said.startswith("circurve: interrupted")


def test_a_sweep_saves_no_model_without_a_step(table, folder):
    words = "sweep table.csv --units 2 --epochs 1 --seeds 2 --mu 0.1 --device cpu --json --out-dir models"
    report, _ = interrupted(folder, words, ("SIGINT", M_STEP))
    assert [(run["epoch"], run["out"]) for run in report["runs"]] == [(0, None)] * len(report["runs"])
    assert not list(Path("models").iterdir())


def test_a_sweep_saves_its_models_without_their_mixture(table, folder):
    words = "sweep table.csv --units 2 --epochs 1 --seeds 2 --mu 0.1 --device cpu --json --out-dir models --ensemble"
    report, _ = interrupted(folder, words, ("SIGINT", "circurve.cli.sweep:_mixed"))
    assert (report["ensemble"], len(list(Path("models").iterdir()))) == (None, len(report["runs"]))
    assert report["notes"] == ["ensemble: not computed, because the command was interrupted"]


@pytest.mark.parametrize("place", ["circurve.learning.fitting_ensembles:held_out_scores", SHARPNESS])
def test_an_ensemble_saves_its_mixture(table, folder, place):
    words = f"{TRAIN} --ensemble 2 --out m.safetensors"
    report, said = interrupted(folder, words, ("SIGTERM", place), ("SIGINT", WRITING))
    assert report["stopped"] == "interrupted"
    assert said == "circurve: interrupted; the mixture trained so far is saved in m.safetensors"
    assert cc.load("m.safetensors").circuit.variables == 5
    assert [member["weight"] for member in report["ensemble"]["members"]] == [0.5, 0.5] or place == SHARPNESS
    assert ("sharpness" in "".join(report["notes"])) == (place == SHARPNESS)
