"""Parquet files that are read piece by piece: training, splits that are found again, scores in a file."""

import numpy as np
import pytest
from cli_helpers import error_line, strict_json

import circurve as cc

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402


@pytest.fixture
def run(invoke):
    return lambda *words: invoke(" ".join(words))


@pytest.fixture
def frame(folder, monkeypatch):
    """A folder of two Parquet files, 600 rows in all."""
    monkeypatch.setattr("circurve.data.readers.BLOCK_ROWS", 64)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, (600, 4))
    rows[:, 1] = rows[:, 0] ^ (rng.random(600) < 0.1)
    (folder / "big").mkdir()
    frame = pa.table({name: rows[:, v] for v, name in enumerate("abcd")})
    parquet.write_table(frame[:400], "big/0.parquet", row_group_size=64)
    parquet.write_table(frame[400:], "big/1.parquet", row_group_size=64)
    parquet.write_table(frame, "whole.parquet")
    return frame


TRAIN = ["--units", "2", "--epochs", "3", "--device", "cpu", "--json"]


def test_a_folder_trains_and_its_split_is_found_again(run, frame):
    fitted = strict_json(run("fit", "big", "--out", "m.safetensors", *TRAIN).stdout)
    assert fitted["rows"] == {"train": 480, "valid": 60, "test": 60}
    scored = strict_json(run("evaluate", "m.safetensors", "big", "--json", "--scores", "scores.csv").stdout)
    for name in ("train_ll", "valid_ll", "test_ll"):
        assert scored[name] == pytest.approx(fitted[name], rel=1e-5)
    assert scored["sharpness"] == pytest.approx(fitted["sharpness"], rel=1e-4)
    table = cc.load_data("scores.csv").train
    assert table.columns == ("split", "row", "log_likelihood")
    np.testing.assert_allclose(table[:, 2], cc.load("m.safetensors").log_prob(frame), rtol=1e-4)


def test_another_stream_is_scored_whole(run, frame):
    run("fit", "whole.parquet", "--out", "m.safetensors", "--no-split", *TRAIN)
    scored = strict_json(run("evaluate", "m.safetensors", "big", "--json").stdout)
    assert scored["rows"] == {"train": None, "valid": None, "test": 600}
    wanted = strict_json(run("evaluate", "m.safetensors", "whole.parquet", "--json").stdout)
    assert scored["test_ll"] == pytest.approx(wanted["test_ll"], rel=1e-6)


def test_large_files_are_streamed_and_small_ones_are_not(run, frame, monkeypatch):
    small = run("fit", "whole.parquet", *TRAIN)
    assert "tree from all 480 rows" not in small.stderr
    monkeypatch.setattr("circurve.cli.streams.STREAMED_VALUES", 100)
    large = run("fit", "whole.parquet", *TRAIN)
    assert "tree from all 480 rows" in large.stderr
    assert strict_json(large.stdout)["rows"] == strict_json(small.stdout)["rows"]


def test_a_memory_budget_is_read_and_kept(run, frame):
    large = ["--memory-budget", "5MB", *TRAIN, "--units", "300"]
    message = run("fit", "whole.parquet", *large).stderr.splitlines()[-1]
    assert "but --memory-budget 5000000 is less: use fewer units" in message
    assert message.endswith("or a larger --memory-budget")
    assert "such as 500MB or 2GB, not 'much'" in error_line(run("fit", "whole.parquet", "--memory-budget", "much"))
    run("fit", "whole.parquet", "--out", "m.safetensors", "--memory-budget", "1GB", *TRAIN)
    for command, data in (("evaluate", "big"), ("evaluate", "whole.parquet"), ("curvature", "whole.parquet")):
        assert run(command, "m.safetensors", data, "--memory-budget", "50MB", "--json").exit_code == 0
        assert "is less" in error_line(run(command, "m.safetensors", data, "--memory-budget", "10"))


def test_what_needs_all_rows_in_memory_is_refused(run, frame):
    run("fit", "big", "--out", "m.safetensors", *TRAIN)
    assert "--explain compares all rows" in error_line(run("evaluate", "m.safetensors", "big", "--explain"))
    message = run("fit", "big", "--ensemble", "2", "--device", "cpu").stderr.splitlines()[-1]
    assert "--ensemble resamples rows" in message
