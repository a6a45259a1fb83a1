"""A leaderboard that was cut off goes on inside a data set, with the scores of an undisturbed one."""

from __future__ import annotations

import pytest
from test_leaderboard import folder, options  # noqa: F401 - a fixture

from circurve.reproduction import leaderboard, reproduce
from circurve.reproduction.leaderboard import FILE
from circurve.reproduction.leaderboard_report import leaderboard_report
from circurve.reproduction.records import read_records
from circurve.reproduction.runner import CHECKPOINTS


@pytest.mark.parametrize("stage", ["train_ensemble", "train_jointly"])
def test_what_was_trained_is_not_trained_again(folder, monkeypatch, stage):  # noqa: F811
    wanted = {"datasets": ("nltcs",), "seeds": (0,)}
    reproduce(["leaderboard"], options(folder, **wanted, out=folder / "whole"))
    whole = read_records(folder / "whole" / FILE)[0]
    assert not (folder / "whole" / CHECKPOINTS).exists()

    def cut_off(*_):
        raise RuntimeError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(leaderboard, stage, cut_off)
        with pytest.raises(RuntimeError, match="cut off"):
            reproduce(["leaderboard"], options(folder, **wanted))
    kept = folder / "out" / CHECKPOINTS
    assert {path.name for path in next(kept.iterdir()).iterdir()} >= {"single"}
    reproduce(["leaderboard"], options(folder, **wanted), resume=True)
    (record,) = read_records(folder / "out" / FILE)
    assert not kept.exists()
    for kind, scores in whole["scores"].items():
        again = record["scores"][kind]
        assert {**again, "seconds": None} == {**scores, "seconds": None}
        assert kind == "chow_liu" or again["seconds"] is None  # how long it took in all is not known
    assert record["seconds"] is None
    assert leaderboard_report([record]).values
