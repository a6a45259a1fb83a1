"""Model files of every released version load and give the log-probabilities that version gave.

The files in `fixtures/` were made by `fixtures/make_models.py` with the sources of the version in their names; the
command is written there. They are never made again.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import circurve as cc

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
