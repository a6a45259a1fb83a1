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
    message = run("fit", "big", "--report", "page.html", "--out", "n.safetensors").stderr.splitlines()[-1]
    assert "--report draws all rows, which must be in memory" in message


def both(run, monkeypatch, words, names=("whole.parquet", "whole.parquet")):
    """The document of a command on a file in memory, and on the same file as a stream."""
    found = []
    for name, most in zip(names, (1 << 27, 100), strict=True):
        monkeypatch.setattr("circurve.cli.streams.STREAMED_VALUES", most)
        result = run(*words.format(name).split(), "--json")
        assert result.exit_code == 0, result.output
        found.append(strict_json(result.stdout))
    return found


def test_curvature_of_a_stream_is_that_of_the_table(run, frame, monkeypatch):
    run("fit", "whole.parquet", "--out", "m.safetensors", *TRAIN)
    for split in ("train", "all", "valid"):
        words = f"curvature m.safetensors {{}} --split {split} --device cpu"
        table, stream = both(run, monkeypatch, words)
        assert stream["samples"] == table["samples"]
        assert stream["trace"] == pytest.approx(table["trace"], rel=1e-5)
        assert stream["findings"] == table["findings"]
    assert run("curvature", "m.safetensors", "big", "--csv", "t.csv").exit_code == 0
    message = error_line(run("curvature", "m.safetensors", "big", "--report", "page.html"))
    assert "--report draws all rows, which must be in memory" in message


def test_rows_with_unseen_values_are_left_out_of_the_curvature_of_a_stream(run, frame, monkeypatch):
    run("fit", "whole.parquet", "--out", "m.safetensors", "--no-split", *TRAIN)
    rows = np.array(frame.to_pandas())
    rows[::7, 2] = 5
    parquet.write_table(pa.table(dict(zip("abcd", rows.T, strict=True))), "odd.parquet", row_group_size=64)
    for unseen in ("impossible", "missing"):
        for command in ("curvature", "evaluate"):
            words = f"{command} m.safetensors {{}} --device cpu --unseen {unseen}"
            table, stream = both(run, monkeypatch, words, ("odd.parquet", "odd.parquet"))
            for name in {"trace", "samples", "sharpness", "test_ll", "unseen_rows", "empty_rows"} & table.keys():
                wanted = table[name]
                assert stream[name] == (wanted if wanted is None else pytest.approx(wanted, rel=1e-5)), name


def test_statistics_of_shards_of_a_stream_are_those_of_the_table(run, frame, monkeypatch):
    run("fit", "whole.parquet", "--out", "m.safetensors", *TRAIN)
    whole = strict_json(run("statistics", "m.safetensors", "whole.parquet", "--out", "whole.npz", "--json").stdout)
    read = []
    monkeypatch.setattr(cc.Stream, "__array__", None)
    original = pa.parquet.ParquetFile.read_row_groups
    monkeypatch.setattr(
        pa.parquet.ParquetFile, "read_row_groups", lambda f, g, **more: read.extend(g) or original(f, g, **more)
    )
    for number in (1, 2, 3):
        read.clear()
        words = ("statistics", "m.safetensors", "big", "--shard", f"{number}/3", "--out", f"s{number}.npz", "--json")
        assert strict_json(run(*words).stdout)["rows"] == 200
        assert 0 < len(set(read)) <= 5  # of the ten row groups
    merged = strict_json(run("merge", "s1.npz", "s2.npz", "s3.npz", "--json").stdout)
    for name in ("rows", "mean_ll", "sharpness"):
        assert merged[name] == pytest.approx(whole[name], rel=1e-12)
    one = strict_json(run("statistics", "m.safetensors", "big", "--out", "one.npz", "--json").stdout)
    assert one["shards"] == whole["shards"]  # the same rows, whatever they are read from
    assert "is given twice" in error_line(run("merge", "one.npz", "whole.npz"))
    assert "all rows of a table and its shard 2/3 are given" in error_line(run("merge", "one.npz", "s2.npz"))


def test_info_of_a_stream_is_that_of_the_table(run, frame, monkeypatch):
    town = ["Rome"] * 300 + [None] * 10 + ["Oslo"] * 290  # the same in every row group but one
    parquet.write_table(frame.append_column("town", pa.array(town)), "whole.parquet", row_group_size=64)
    table, stream = both(run, monkeypatch, "data info {}")
    assert stream.pop("read_by") == "pyarrow, piece by piece"
    table.pop("read_by")
    assert stream.pop("missing") == pytest.approx(table.pop("missing"))
    assert stream == table
    assert "600" in run("data", "info", "big").stdout


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_holes_of_a_stream_are_filled_as_those_of_the_table(run, frame, monkeypatch, suffix):
    rng = np.random.default_rng(1)
    town = pa.array([None if i % 7 == 0 else ["Rome", "Oslo"][i % 2] for i in range(600)])
    real = pa.array([None if i % 5 == 0 else round(x, 3) for i, x in enumerate(rng.normal(size=600).tolist())])
    wide = frame.append_column("town", town).append_column("real", real).append_column("note", pa.array(range(600)))
    parquet.write_table(wide, "whole.parquet", row_group_size=64)
    fitted = run("fit", "whole.parquet", "--types", "note=drop", "--out", "m.safetensors", "--units", "2")
    assert fitted.exit_code == 0, fitted.output
    monkeypatch.setattr("circurve.cli.streams.STREAMED_VALUES", 1 << 27)
    assert run("impute", "m.safetensors", "whole.parquet", "--out", f"a{suffix}").exit_code == 0
    monkeypatch.setattr("circurve.cli.streams.STREAMED_VALUES", 100)
    done = run("impute", "m.safetensors", "whole.parquet", "--out", f"b{suffix}")
    assert done.exit_code == 0, done.output
    assert "206 of 3,600 values" in done.stdout
    if suffix == ".parquet":
        assert parquet.read_table("b.parquet").equals(parquet.read_table("a.parquet"))
    else:
        with open(f"a{suffix}") as one, open(f"b{suffix}") as other:
            assert other.read() == one.read()
    drawn = [run("impute", "m.safetensors", "whole.parquet", "--how", "sample").stdout for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0].splitlines()) == 601


def test_large_arrays_are_mapped(run, frame, monkeypatch):
    np.save("rows.npy", np.array(frame.to_pandas()))
    table, stream = both(run, monkeypatch, f"fit {{}} --out m.safetensors {' '.join(TRAIN[:-1])}", ("rows.npy",) * 2)
    for name in ("rows", "train_ll", "valid_ll", "test_ll", "split"):
        assert stream[name] == table[name], name
    for command in ("evaluate m.safetensors", "curvature m.safetensors", "data info"):
        table, stream = both(run, monkeypatch, f"{command} {{}}", ("rows.npy",) * 2)
        assert stream["rows" if "samples" not in stream else "samples"] == table.get("samples", table.get("rows"))
    np.save("text.npy", np.array([["a", "b"]] * 200))  # what cannot be mapped is read as before
    assert "categories" in run("data", "info", "text.npy").stdout
    assert "no column 'x' to leave out" in error_line(run("evaluate", "m.safetensors", "rows.npy", "--types", "x=drop"))


def test_columns_that_are_left_out_of_a_stream_must_exist(run, frame):
    run("fit", "whole.parquet", "--out", "m.safetensors", *TRAIN)
    for data in ("big", "whole.parquet"):
        message = error_line(run("evaluate", "m.safetensors", data, "--types", "x=drop"))
        assert f"{data}: no column 'x' to leave out" in message


def test_well_packed_files_are_streamed_though_they_are_too_large_as_tables(run, folder, monkeypatch):
    frame = pa.table({name: np.arange(20_000) // 10_000 for name in "abcd"})
    parquet.write_table(frame, "packed.parquet")
    monkeypatch.setattr("circurve.bounds.FREE_BYTES", 800_000)
    described = strict_json(run("data", "info", "packed.parquet", "--json").stdout)
    assert described["read_by"] == "pyarrow, piece by piece"
    assert described["families"] == {"Bernoulli": 4}
    fitted = strict_json(run("fit", "packed.parquet", "--out", "m.safetensors", "--no-split", *TRAIN).stdout)
    scored = strict_json(run("evaluate", "m.safetensors", "packed.parquet", "--json").stdout)
    assert scored["test_ll"] == pytest.approx(fitted["train_ll"], rel=1e-5)
    trusted = strict_json(run("data", "info", "packed.parquet", "--json", "--trust").stdout)
    assert "piece by piece" not in trusted["read_by"]
