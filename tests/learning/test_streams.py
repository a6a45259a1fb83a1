"""Training, scores and curvature from streams are those of the same rows in memory."""

from importlib import import_module

import numpy as np
import pytest
import torch
from learning_helpers import assert_same_model, quick, quick_fleet

import circurve as cc
from circurve.data import Table
from circurve.data.source import block_order

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

INFORMATION = import_module("circurve.structures.mutual_information")
NAMES = ("a", "b", "c", "d", "e", "f")


def rows(count=900, missing=False):
    rng = np.random.default_rng(3)
    data = rng.integers(0, 2, (count, 6))
    for v in range(1, 6):
        data[:, v] = data[:, v - 1] ^ (rng.random(count) < 0.2)
    return np.where(rng.random(data.shape) < 0.1, np.nan, data) if missing else data.astype(np.uint8)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("circurve.data.readers.BLOCK_ROWS", 70)


def mapped(folder, data):
    np.save(folder / "x.npy", data)
    return np.load(folder / "x.npy", mmap_mode="r")


def parquet_file(folder, data, group=70):
    path = folder / "x.parquet"
    parquet.write_table(pa.table(dict(zip(NAMES, data.T, strict=True))), path, row_group_size=group)
    return path


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("batch_size", [50, None])
def test_a_mapped_array_trains_as_the_array_does_bit_by_bit(tmp_path, missing, batch_size):
    data = rows(missing=missing)
    stream, options = mapped(tmp_path, data), {"batch_size": batch_size, "epochs": 3, "valid": 0.2, "progress": False}
    circuit, other = cc.hclt(data, 3), cc.hclt(stream, 3)
    assert [n.name for n in circuit.nodes] == [n.name for n in other.nodes]
    wanted, found = quick(circuit, data, **options), quick(other, stream, **options)
    assert_same_model(found, wanted, 0.0)
    assert found.history[-1].valid_ll == wanted.history[-1].valid_ll
    assert found.train_ll == wanted.train_ll


@pytest.mark.parametrize("init", ["random", "prototypes"])
@pytest.mark.usefixtures("small_blocks")
def test_row_groups_train_as_a_table_in_memory_with_the_same_order(tmp_path, monkeypatch, init):
    data, buffer = rows(), 2 * 6 * 200  # windows of 200 rows: three row groups
    path = parquet_file(tmp_path, data)
    stream = cc.open_stream(path, buffer=buffer)
    frame = pa.table(dict(zip(NAMES, data.T, strict=True)))
    circuit = cc.hclt(stream, 3)
    assert circuit.schema == cc.hclt(frame, 3).schema
    found = quick(circuit, stream, batch_size=64, epochs=3, init=init)
    sizes = [70] * 12 + [60]
    monkeypatch.setattr(Table, "order", lambda self, generator: block_order(sizes, 200, generator))
    wanted = quick(circuit, frame, batch_size=64, epochs=3, init=init)
    assert_same_model(found, wanted, 0.0)
    assert found.train_ll == wanted.train_ll


@pytest.mark.usefixtures("small_blocks")
def test_runs_of_a_fleet_on_a_stream_equal_each_run_alone(tmp_path):
    stream = cc.open_stream(parquet_file(tmp_path, rows()), buffer=1000)
    circuit = cc.hclt(stream, 2)
    runs = [cc.Run(seed=seed, method=method) for seed in (0, 5) for method in (cc.Vanilla(), cc.Gated(0.1))]
    fleet = quick_fleet(circuit, stream, runs, batch_size=100, epochs=2)
    for run, found in zip(runs, fleet, strict=True):
        alone = quick(circuit, stream, method=run.method, seed=run.seed, batch_size=100, epochs=2)
        assert_same_model(found, alone, 1e-9)


def test_batches_are_taken_as_they_come_and_a_loader_may_shuffle():
    data = rows()
    orders = []

    def batches():
        order = np.random.default_rng(len(orders)).permutation(len(data))
        orders.append(order)
        return (data[order[start : start + 77]] for start in range(0, len(data), 77))

    circuit = cc.hclt(data, 3)
    found = quick(circuit, batches, batch_size=90, epochs=4)
    assert len(orders) > 6  # a new pass for each epoch
    assert found.train_ll == pytest.approx(quick(circuit, data, batch_size=90, epochs=4).train_ll, abs=0.05)
    with pytest.raises(cc.OptionError, match=r"rows of a batches cannot be held out.*pass valid="):
        quick(circuit, batches, valid=0.1)


def test_rows_in_the_order_of_an_iterable_train_as_a_table_that_is_not_shuffled(monkeypatch):
    data = rows()
    circuit = cc.hclt(data, 3)
    stream = cc.open_stream([data[:400], data[400:]])
    found = quick(circuit, stream, batch_size=90, epochs=3)
    monkeypatch.setattr(Table, "order", lambda self, _: torch.arange(len(self)))
    assert_same_model(found, quick(circuit, data, batch_size=90, epochs=3), 0.0)


@pytest.mark.usefixtures("small_blocks")
def test_scores_and_curvature_of_streams(tmp_path):
    data = rows()
    path = parquet_file(tmp_path, data)
    model = quick(cc.hclt(path, 3), path, epochs=2).model
    frame = pa.table(dict(zip(NAMES, data.T, strict=True)))
    wanted = model.log_prob(frame)
    np.testing.assert_allclose(model.log_prob(path), wanted, rtol=1e-12)
    out = np.lib.format.open_memmap(tmp_path / "scores.npy", mode="w+", shape=(900,))
    assert model.log_prob(path, out=out) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-12)
    np.testing.assert_allclose(model.marginal(path, log=True), wanted, rtol=1e-12)
    with pytest.raises(cc.DataError, match=r"out has shape \(5,\), expected \(900,\)"):
        model.log_prob(path, out=np.empty(5))
    one, other = cc.curvature(model, path), cc.curvature(model, frame)
    np.testing.assert_allclose(one.total, other.total, rtol=1e-9)
    np.testing.assert_allclose(cc.hessian_trace(model, path), cc.hessian_trace(model, frame), rtol=1e-9)


@pytest.mark.parametrize("kind", ["states", "mixed", "real"])
def test_trees_of_streams_are_those_in_memory(tmp_path, kind):
    rng = np.random.default_rng(1)
    data = rows().astype(float)
    if kind != "states":
        data[:, [1, 4] if kind == "mixed" else slice(None)] += rng.normal(size=(900, 2 if kind == "mixed" else 6))
    else:
        data += 2 * rng.integers(0, 2, data.shape)
    data[rng.random(data.shape) < 0.05] = np.nan
    wanted, found = cc.chow_liu_tree(data), cc.chow_liu_tree(mapped(tmp_path, data))
    np.testing.assert_array_equal(found.parents, wanted.parents)
    np.testing.assert_allclose(found.information, wanted.information, rtol=1e-9)


def test_it_says_whether_a_tree_comes_from_a_pass_or_from_a_sample(tmp_path, capsys, monkeypatch):
    path = parquet_file(tmp_path, rows())
    cc.hclt(path, 2)
    assert "tree from all 900 rows" in capsys.readouterr().err
    monkeypatch.setattr(INFORMATION, "MAX_PASSES", 0)
    monkeypatch.setattr(INFORMATION, "SAMPLE_BYTES", 6 * 300)
    cc.hclt(path, 2)
    assert "tree from 300 of 900 rows, evenly taken" in capsys.readouterr().err


def test_streams_have_no_weights_and_no_refit():
    stream = cc.open_stream(rows())
    circuit = cc.hclt(rows(), 2)
    with pytest.raises(cc.OptionError, match="a stream cannot have weights"):
        quick(circuit, stream, weights=np.ones(900))
    with pytest.raises(cc.OptionError, match="refit joins training and validation rows"):
        quick(circuit, stream, method=cc.Gated("auto"), refit=True)
