from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circurve as cc
from circurve.errors import DataError, OptionError
from circurve.learning.gates import top_fraction
from circurve.reproduction import BEST, PAPER, PAPER_OWN, SMOOTHED, ReproduceOptions, Setting, Study
from circurve.reproduction.figures import FIGURES
from circurve.reproduction.outputs import FIGURE_NAMES, PAPER_TABLES, TABLES, targets_of, usual_protocol
from circurve.reproduction.plan import describe_settings
from circurve.reproduction.spec import (
    DEFAULT_DATASETS,
    FAIR,
    chosen_datasets,
    describe_method,
    protocol_for,
    standard_settings,
)
from circurve.reproduction.study_report import STUDIES
from circurve.reproduction.tables_beyond import LABELS


def folder_with(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).mkdir()
        for split in ("train", "valid", "test"):
            np.savetxt(tmp_path / name / f"{name}.{split}.data", np.eye(3), fmt="%d", delimiter=",")
    return tmp_path


def test_the_paper_protocol_is_the_one_of_the_specification() -> None:
    assert (PAPER.units, PAPER.batch_size, PAPER.step, PAPER.choose_epoch) == (100, 200, 0.1, "last")
    assert PAPER.mus == (0.01, 0.05, 0.1, 0.5, 1.0)
    assert PAPER.seeds == (0, 1, 2, 3, 4)
    assert (PAPER.epochs_for(15000), PAPER.epochs_for(1600)) == (100, 300)
    assert {0.0001, 0.001} < set(BEST.mus)
    assert BEST.choose_epoch == "best"
    assert BEST.step_name == "cosine:0.2:0.005"


def test_protocols_differ_in_leaves_and_smoothing_alone() -> None:
    assert (PAPER.leaves, BEST.leaves) == ("shared", "own")
    assert replace(PAPER_OWN, name="paper", leaves="shared") == PAPER
    smoothed = standard_settings(ReproduceOptions(protocol="smoothed"))
    assert {setting.method.pseudocount for setting in smoothed} == {0.1}
    plain = standard_settings(ReproduceOptions())
    assert [replace(s.method, pseudocount=0.0) for s in smoothed] == [s.method for s in plain]
    assert "leaves that share their parent's latent" in SMOOTHED.in_words()
    assert "a pseudocount of 0.1 in every method" in SMOOTHED.in_words()


@pytest.mark.parametrize("name", ["table-d", "fig-5"])
def test_every_method_of_a_smoothed_table_is_smoothed(name: str) -> None:
    spec = TABLES.get(name) or FIGURES[name]
    study = spec.study(ReproduceOptions(protocol="smoothed"))
    assert study is not None
    assert {s.method.pseudocount for s in study.settings if s.label != "smoothed"} == {0.1}


def test_the_ids_of_committed_records_depend_on_what_they_name_alone() -> None:
    study = TABLES["table-b"].study(ReproduceOptions(protocol="paper-own"))
    assert describe_settings(study, 100) == {
        **{"structure": "hclt", "units": 100, "epochs": 100, "batch_size": 200, "step": "0.1", "precision": "float32"}
    }


def test_options_change_the_protocol() -> None:
    options = ReproduceOptions(seeds=(3,), epochs=7, mu=(0.2,), units=5)
    protocol = protocol_for(options)
    assert (protocol.seeds, protocol.mus, protocol.units) == ((3,), (0.2,), 5)
    assert protocol.epochs_for(10) == protocol.epochs_for(10**6) == 7


def test_a_first_look_is_small_and_can_still_be_changed() -> None:
    quick = protocol_for(ReproduceOptions(quick=True))
    assert quick.units < PAPER.units / 4
    assert len(quick.seeds) < len(PAPER.seeds)
    assert set(quick.mus) < set(PAPER.mus)
    assert protocol_for(ReproduceOptions(quick=True, units=50)).units == 50
    assert 0.001 in protocol_for(ReproduceOptions(protocol="best", quick=True)).mus


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "mine"}, "protocol must be"),
        ({"seeds": ()}, "seeds must list at least one"),
        ({"seeds": (-1,)}, "seeds must be"),
        ({"mu": (-0.1,)}, "mu must be"),
        ({"gate": ("nosuch",)}, "gate must be"),
        ({"epochs": 0}, "epochs must be"),
        ({"units": 0}, "units must be"),
        ({"max_runs": 0}, "max_runs must be"),
        ({"datasets": ()}, "datasets must list at least one"),
        ({"device": "abacus"}, "device must be"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ReproduceOptions(**options)


def test_default_data_sets_are_those_of_the_paper_at_hand(tmp_path: Path) -> None:
    assert chosen_datasets(ReproduceOptions()) == DEFAULT_DATASETS
    assert len(DEFAULT_DATASETS) == 20
    assert chosen_datasets(ReproduceOptions(quick=True)) == ("digits",)
    assert chosen_datasets(ReproduceOptions(datasets=("mine", "mine", "x.csv"))) == ("mine", "x.csv")
    there = ReproduceOptions(data_dir=folder_with(tmp_path, "plants", "nltcs", "mine"))
    assert chosen_datasets(there) == ("nltcs", "plants")
    assert chosen_datasets(there, ("plants", "baudio")) == ("plants",)


def test_a_folder_of_other_data_sets_is_taken_whole(tmp_path: Path) -> None:
    options = ReproduceOptions(data_dir=folder_with(tmp_path, "zoo", "mine"))
    assert chosen_datasets(options) == ("mine", "zoo")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        chosen_datasets(ReproduceOptions(data_dir=tmp_path / "nowhere"))


def test_standard_settings_are_three_labels_over_the_grid() -> None:
    settings = standard_settings(ReproduceOptions(mu=(0.1, 0.2), gate=("max_norm", "rank")))
    assert [s.label for s in settings] == ["vanilla", "global", "global", *["gated"] * 4]
    best = standard_settings(ReproduceOptions(protocol="best"))
    starts = len(BEST.inits)
    assert sum(s.label == "vanilla" for s in best) == starts * len(BEST.pseudocounts)
    assert sum(s.label == "global" for s in best) == starts * len(BEST.mus)


@pytest.mark.parametrize(
    "method",
    [cc.Global("auto"), cc.Gated(cc.Grid((0.1, 0.2))), cc.Gated(0.1, gate="auto")],
    ids=["mu auto", "grid", "gate auto"],
)
def test_a_setting_leaves_nothing_to_be_chosen(method: Any) -> None:
    with pytest.raises(OptionError, match="does not leave them to be chosen"):
        Setting("gated", method)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": ()}, "datasets must list at least one"),
        ({"settings": ()}, "settings must list at least one"),
        ({"fractions": ()}, "fractions must list at least one"),
        ({"fractions": (1.5,)}, "fractions must be above 0"),
        ({"protocol": replace(PAPER, seeds=())}, "seeds must list at least one"),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else value,
)
def test_an_empty_study_is_refused(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {
        "name": "mine",
        "datasets": ("digits",),
        "settings": (Setting("vanilla", cc.Vanilla()),),
        "protocol": PAPER,
    }
    with pytest.raises(OptionError, match=f"study mine: {message}"):
        Study(**{**options, **changes})


def test_functions_that_records_could_not_tell_apart_are_refused() -> None:
    def half(curvature: Any) -> Any:
        return curvature.local * 0 + 0.5

    settings = [Setting("gated", cc.Gated(0.1, gate=half)), Setting("gated", cc.Gated(0.1, gate=lambda c: c.local * 0))]
    assert len(Study("mine", ("digits",), tuple(settings), PAPER).settings) == 2
    third = Setting("gated", cc.Gated(0.1, gate=lambda c: c.local * 0 + 1))
    with pytest.raises(OptionError, match="is the text of two methods; give their functions names"):
        Study("mine", ("digits",), (*settings, third), PAPER)


def test_a_method_is_described_by_plain_values_that_tell_it_apart() -> None:
    methods = [
        cc.Vanilla(),
        cc.Vanilla(0.01),
        cc.Global(0.1),
        cc.Global(0.1, simplex="exact"),
        cc.Global(0.1, penalty="exact"),
        cc.Gated(0.1),
        cc.Gated(0.1, gate="rank"),
        cc.Gated(0.1, gate=top_fraction(0.1)),
        cc.Gated(0.1, gate=top_fraction(0.1, by="total")),
        cc.Gated(0.1, estimator="mean_ratio"),
        cc.Gated(cc.schedules.linear(0.1, 0.2)),
        cc.Gated(cc.schedules.by_overfitting(0.1)),
    ]
    described = [str(describe_method(method)) for method in methods]
    assert len(set(described)) == len(methods)
    assert describe_method(cc.Gated(0.1, gate=top_fraction(0.1, by="total")))["gate"] == "top_fraction:0.1:total"


def test_studies_have_a_protocol_of_their_own() -> None:
    studies = targets_of(["studies"])
    assert set(studies) == set(STUDIES)
    assert usual_protocol(studies) == "fair"
    assert usual_protocol(["study-scarce", "table-b"]) == "paper"
    assert usual_protocol(["leaderboard"]) == "record"
    assert FAIR.choose_epoch == "best"


def test_all_is_every_table_and_figure_once() -> None:
    assert targets_of(["fig-2", "all", "table-a"]) == ("fig-2", *PAPER_TABLES, "fig-1", *FIGURE_NAMES[2:])
    with pytest.raises(OptionError, match="no table or figure 'table-z'; there are table-a"):
        targets_of(["table-z"])


@pytest.mark.parametrize("table", [name for name in TABLES if name.startswith("table-")])
def test_every_table_of_methods_has_a_study(table: str) -> None:
    study = TABLES[table].study(ReproduceOptions())
    assert study.name == table
    assert {"vanilla", "global", "gated"} <= set(study.labels)
    assert set(study.labels) <= set(LABELS)


def test_table_d_tries_smaller_strengths_for_exact_updates_unless_told() -> None:
    study = TABLES["table-d"].study(ReproduceOptions())

    def mus(study: Study, label: str) -> set[Any]:
        return {describe_method(s.method)["mu"] for s in study.settings if s.label == label}

    assert min(mus(study, "gated")) < min(PAPER.mus)
    assert min(mus(study, "gated-exact-both")) < min(mus(study, "gated"))
    told = TABLES["table-d"].study(ReproduceOptions(mu=(0.3,)))
    assert mus(told, "gated-exact-both") == mus(told, "global") == {0.3}


def test_table_d_has_one_start_where_the_protocol_has_several() -> None:
    assert len(BEST.inits) > 1
    study = TABLES["table-d"].study(ReproduceOptions(protocol="best"))
    assert {setting.init for setting in study.settings} == {BEST.inits[0]}
