"""Results as data frames: the history by epoch, and the runs of a fleet with their settings and scores."""

import sys

import numpy as np
import pandas as pd
import pytest
from learning_helpers import binary_rows, quick, quick_fleet, small_circuit

import circurve as cc
from circurve import Gated, Global, Run, Vanilla, schedules
from circurve.errors import OptionError

TRAIN, VALID = binary_rows(40), binary_rows(60)[40:]
CIRCUIT = small_circuit(TRAIN)


def test_the_history_of_a_result():
    result = quick(CIRCUIT, TRAIN, method=Gated(0.1), valid=VALID, track=True, epochs=3)
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["epoch"].tolist() == [1, 2, 3]
    assert frame["train_ll"].tolist() == [record.train_ll for record in result.history]
    assert frame["valid_ll"].tolist() == [record.valid_ll for record in result.history]
    assert frame["dof"].tolist() == [record.dof for record in result.history]
    assert frame["sharpness"].tolist() == [record.sharpness for record in result.history]
    assert frame["gates_median"].tolist() == [record.gates.median for record in result.history]
    assert frame["test_ll"].isna().all()
    assert frame["test_ll"].dtype == np.float64
    assert "gates" not in frame


def test_the_runs_of_a_fleet():
    runs = [
        Run(Vanilla(), seed=3),
        Run(Global(schedules.linear(0.1, 0.2)), label="mine"),
        Run(Gated(0.1, gate="rank"), step_size=0.5),
    ]
    fleet = quick_fleet(CIRCUIT, TRAIN, runs, valid=VALID, epochs=2)
    frame = fleet.to_frame()
    assert frame["run"].tolist() == [0, 1, 2]
    assert frame["method"].tolist() == ["vanilla", "global", "gated"]
    assert frame["seed"].tolist() == [3, 0, 0]
    assert frame["label"].tolist()[1] == "mine"
    assert frame["mu"].tolist()[0] == 0
    assert frame["mu"].tolist()[2] == 0.1
    assert frame["gate"].tolist()[2] == "rank"
    assert frame["epochs"].tolist() == [2, 2, 2]
    for name in ("train_ll", "valid_ll", "dof", "epoch", "stopped", "seconds"):
        assert frame[name].tolist() == [getattr(result, name) for result in fleet]
    assert frame.loc[frame["valid_ll"].idxmax(), "run"] == fleet.results.index(fleet.best())
    assert frame["failure"].isna().all()


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    result = quick(CIRCUIT, TRAIN, epochs=1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(OptionError, match=r"to_frame needs pandas: pip install 'circurve\[pandas\]'"):
        result.to_frame()


def test_training_rows_with_a_value_that_the_circuit_lacks_are_told_what_helps():
    frame = pd.DataFrame({"town": ["a", "b"] * 20, "x": np.linspace(0, 1, 40)})
    circuit = cc.hclt(frame, units=2)
    frame.loc[3, "town"] = "new"
    for unseen in ("missing", "error"):
        with pytest.raises(cc.DataError) as caught:
            cc.fit(circuit, frame, epochs=1, valid=False, unseen=unseen)
        assert str(caught.value) == (
            "train data: column 1 ('town'), row 4: 'new' was not seen in training ('a', 'b'); make the circuit from "
            "rows that have it, or leave the cell empty"
        )
    with pytest.raises(cc.DataError, match="pass missing=-1"):
        cc.fit(cc.hclt([[0, 1], [1, 0]] * 9, units=2), [[0, -1]] * 9, epochs=1, valid=False)
