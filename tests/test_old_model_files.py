"""Model files of every released version load and give the log-probabilities that version gave.

The files in `fixtures/` were made by `fixtures/make_models.py` with the sources of the version in their names; the
command is written there. Those in `fixtures/models/` stand for states of the format between versions, by the names that
`fixtures/models/make.py` explains. They are never made again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import circurve as cc
from fixtures.models.make import rows_of

STATES = sorted((Path(__file__).parent / "fixtures" / "models").glob("*.safetensors"))
FILES = sorted((Path(__file__).parent / "fixtures").glob("*.safetensors"))
TOLERANCE = {"torch.float32": 1e-6, "torch.float64": 1e-12}


def test_there_are_three_files_of_version_0_1_0():
    assert [path.name for path in FILES if path.stem.endswith("-0.1.0")] == [
        "hidden_tree-0.1.0.safetensors",
        "masks_and_roots-0.1.0.safetensors",
        "mixed_inputs-0.1.0.safetensors",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_old_file_loads_with_the_same_log_probabilities(path):
    record = json.loads(path.with_suffix(".json").read_text())
    model = cc.load(path)
    assert str(model.dtype) == record["dtype"]
    found = model.log_prob(np.array(record["rows"], dtype=float))  # null becomes NaN, which is missing
    np.testing.assert_allclose(found, record["log_prob"], rtol=TOLERANCE[record["dtype"]], atol=0)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_old_file_saved_again_keeps_its_parameters(path, tmp_path):
    old = cc.load(path)
    old.save(tmp_path / "new.safetensors")
    new = cc.load(tmp_path / "new.safetensors")
    for kind in ("weights", "inputs"):
        for before, after in zip(getattr(old.params, kind), getattr(new.params, kind), strict=True):
            assert before.dtype == after.dtype
            assert before.equal(after)


def test_every_state_of_the_format_has_a_file():
    names = ["named-ordered", "named-schema", "numbers-first", "numbers-ordered", "numbers-schema"]
    assert [path.stem for path in STATES] == names


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_state_loads_with_the_same_log_probabilities(path, tmp_path):
    record = json.loads(path.with_suffix(".json").read_text())
    model = cc.load(path)
    assert str(model.dtype) == record["dtype"]
    found = model.log_prob(rows_of(record))
    np.testing.assert_allclose(found, record["log_prob"], rtol=TOLERANCE[record["dtype"]], atol=0)
    model.save(tmp_path / "again")
    np.testing.assert_array_equal(cc.load(tmp_path / "again").log_prob(rows_of(record)), found)


TRAINING = """
import sys
import circurve as cc
rows = {"colour": ["red", "blue", "green", "red"] * 8, "warm": [True, False] * 16, "n": [k % 5 for k in range(32)]}
result = cc.fit(cc.hclt(rows, units=3), rows, epochs=3, batch_size=8, seed=4, device="cpu", progress=False)
result.model.save(sys.argv[1], {"note": "one", "also": "two"})
cc.curvature(result.model, rows).save(sys.argv[2])
"""


def test_the_same_training_gives_the_same_bytes(tmp_path, monkeypatch):
    """Here and in another process: hash seeds of Python and of other libraries differ between them."""
    here, there = ([str(tmp_path / f"{kind} {place}") for kind in ("model", "curvature")] for place in ("a", "b"))
    env = {**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"}
    with subprocess.Popen([sys.executable, "-c", TRAINING, *there], env=env) as process:
        monkeypatch.setattr(sys, "argv", ["-c", *here])
        exec(TRAINING, {})
    assert process.returncode == 0
    assert [Path(name).read_bytes() for name in here] == [Path(name).read_bytes() for name in there]
