"""The cost model: fits recover known constants, units are right, and the page is what the result files say."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import circurve as cc
from circurve.data import prepare
from circurve.data.source import block_order
from circurve.engine import Batch, choose_backend, compile
from circurve.learning.initialize import initial_params

ROOT = Path(__file__).parents[1]
OURS = ("forecast", "cost_formula", "gpu_steps", "common", "peers_cpu", "pyjuice_peer", "cost_model", "network_cost")
KNOWN = (2e-6, 1e-5, 3e-9, 1e-11, 3e-11, 1e-11, 7e-14)


@pytest.fixture(scope="module")
def formula():
    """benchmarks/cost_formula.py."""
    yield from _imported("cost_formula")


@pytest.fixture(scope="module")
def forecast():
    """benchmarks/forecast.py."""
    yield from _imported("forecast")


@pytest.fixture(scope="module")
def network():
    """benchmarks/network_cost.py."""
    yield from _imported("network_cost")


def _imported(name):
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield import_module(name)
    sys.path.remove(str(ROOT / "benchmarks"))
    for each in OURS:
        sys.modules.pop(each, None)


def random_sizes(formula, count):
    """Sizes whose logarithms are uniform, as those that are measured."""
    ends = np.log([(50, 20_000), (8, 1000), (4, 300), (1, 16)])
    drawn = np.exp(np.random.default_rng(0).uniform(ends[:, 0], ends[:, 1], (count, 4)))
    return [formula.balanced(*(int(value) for value in size)) for size in drawn]


def test_fit_recovers_the_constants_that_made_the_measurements(formula):
    rows = [formula.terms(size) for size in random_sizes(formula, 60)]
    found = formula.fit(rows, [formula.predict(KNOWN, row) for row in rows])
    np.testing.assert_allclose(found, KNOWN, rtol=1e-5)


def test_noisy_measurements_are_predicted_at_sizes_that_were_held_out(formula):
    rng = np.random.default_rng(1)
    rows = [formula.terms(size) for size in random_sizes(formula, 90)]
    true = np.array([formula.predict(KNOWN, row) for row in rows])
    measured = true * np.exp(rng.normal(0, 0.05, len(true)))
    held_out = np.array(formula.parts(len(rows))) == "check"
    constants = formula.fit([row for row, out in zip(rows, held_out, strict=True) if not out], measured[~held_out])
    assert min(constants) >= 0
    errors = [formula.predict(constants, row) / seconds - 1 for row, seconds in zip(rows, true, strict=True)]
    summary = formula.error_summary(np.array(errors)[held_out])
    assert summary["sizes"] == 30
    assert summary["within_20_percent"] == 1


def test_every_third_size_is_held_out(formula):
    assert formula.parts(7) == ["fit", "fit", "check", "fit", "fit", "check", "fit"]


def test_errors_are_summed_up_by_their_size(formula):
    found = formula.error_summary([-0.5, 0.1, 0.2, -0.05])
    assert found == {"sizes": 4, "median": pytest.approx(0.15), "largest": 0.5, "within_20_percent": 0.75}


@given(columns=st.integers(2, 7), units=st.integers(1, 5), runs=st.integers(1, 3))
def test_exchanged_bytes_are_those_of_the_statistics_of_a_step(formula, columns, units, runs):
    rng = np.random.default_rng(columns)
    data = rng.integers(0, 2, (9, columns))
    circuit = cc.hclt(data, units=units, families=[cc.Bernoulli()] * columns, tree=(np.arange(columns) - 1) // 2)
    program, table = compile(circuit), prepare(data, circuit, "train")
    params = initial_params(program, 0, table).map(lambda values: values.repeat(runs, 1, 1, 1))
    sums = choose_backend(program, params).statistics(params, [Batch.rows(table, 0, 9, params.dtype)], None)
    tensors = [*sums.counts, *sums.inputs, sums.log_likelihood, sums.weight, sums.impossible, sums.broken]
    size = formula.balanced(9, columns, units, runs)
    assert formula.statistics_bytes(size) == 8 * sum(tensor.numel() for tensor in tensors)


@given(columns=st.integers(2, 40))
def test_the_balanced_tree_has_the_shape_that_it_is_said_to_have(formula, columns):
    data = np.random.default_rng(0).integers(0, 2, (4, columns))
    circuit = cc.hclt(data, units=2, families=[cc.Bernoulli()] * columns, tree=(np.arange(columns) - 1) // 2)
    size, found = formula.balanced(4, columns, 2), circuit.describe()
    assert (size.inner, size.levels) == (found.products, found.sum_depth)


def test_all_reduce_of_many_bytes_takes_twice_the_message_over_the_bandwidth(formula):
    assert formula.all_reduce_seconds(1e9, 1, 1e9, 1e-3) == 0
    assert formula.all_reduce_seconds(1e9, 2, 1e9, 0) == pytest.approx(1)
    assert formula.all_reduce_seconds(1e9, 1000, 1e9, 0) == pytest.approx(2, rel=0.01)
    assert formula.all_reduce_seconds(0, 64, 1e9, 1e-5) == pytest.approx(126e-5)


def made_up(forecast):
    """1 s for each weight-free step, 1 byte for each weight, 8 bytes copied in a second."""
    read = {"mapped": {"check": 2.0, "pick": 3.0}, "parquet": {"check": 5.0, "pick": 7.0, "decode": 11.0}}
    tree = {"per_pair": 1.0, "per_value": 10.0, "per_row_and_pair": 100.0}
    return forecast.Model((1.0, *[0.0] * 6), (1.0, 0.0, 0.0), 8.0, read, 0.5, tree)


def test_the_cost_of_an_exchange_is_found_from_its_seconds(network):
    sizes = network.draw(30, np.random.default_rng(1))
    assert all(network.LEAST <= size <= network.MOST and size % 8 == 0 for size in sizes)
    seconds = [2 * (1e-4 + size / 2 / 3e9) for size in sizes]
    found = network.fitted(sizes, seconds)
    assert found["hop_seconds"] == pytest.approx(1e-4)
    assert found["bytes_per_second"] == pytest.approx(3e9)
    assert found["errors"]["check"]["sizes"] == 10
    assert found["errors"]["check"]["largest"] < 1e-6


def test_epochs_are_steps_times_the_parts_of_a_step(forecast):
    model, job = made_up(forecast), forecast.Job(rows=1000, columns=10, workers=4)
    found = forecast.forecast(model, job, units=2, rows_per_gpu=50, network="NVLink")
    assert found["steps"] == 5
    assert found["message_bytes"] == 8 * (9 * 4 + 2 + 2 * 10 * 2 + 4)
    assert found["step_seconds"]["compute"] == 1
    assert found["step_seconds"]["cast"] == pytest.approx(24 * found["message_bytes"] / 8 / 8)
    assert found["epoch_seconds"]["compute"] == 5
    assert found["training_seconds"] == pytest.approx(5 * sum(found["step_seconds"].values()))
    assert found["compute_share"] == pytest.approx(5 / found["training_seconds"])
    assert found["rows_per_second"] == pytest.approx(1000 / found["training_seconds"])
    assert found["read_bytes_per_second"] == pytest.approx(10 * found["rows_per_second"])
    assert found["memory_bytes"] == {"step": 10 * 4, "worker": 16 * 10 * 4, "order": 8 * 1000}


def test_the_host_reads_its_own_rows_and_checks_all(forecast):
    found = forecast.host(made_up(forecast), forecast.Job(rows=1000, columns=10, workers=4))
    assert found["mapped_epoch"] == 3 * 250
    assert (found["check_mapped_once"], found["check_parquet_once"]) == (2000, 5000)
    assert found["order_epoch"] == 500
    assert found["tree_once"] == 1 * 10**2 + 10 * 1000 * 10 + 100 * 1000 * 10**2


def test_two_workers_that_share_a_window_both_decode_all_of_it(forecast):
    model, job = made_up(forecast), forecast.Job(rows=1000, columns=10, workers=2)
    assert forecast.parquet_seconds(model, job, rows_per_gpu=50) == 11 * 1000 + 7 * 500


@pytest.mark.parametrize(("rows_per_gpu", "workers"), [(8, 4), (40, 16), (100, 16), (300, 8)])
def test_the_share_of_decoded_rows_is_that_of_the_windows_of_a_workers_parts(forecast, rows_per_gpu, workers):
    """Of blocks with 16 rows in windows of 64, counted for one worker over an epoch."""
    rows, block, window = 24_000, 16, 64
    order = block_order([block] * (rows // block), window, torch.Generator().manual_seed(0))
    decoded, last = 0, set()
    for batch in order.split(rows_per_gpu * workers):
        part = batch.tensor_split(workers)[1]
        needed = {int(row) // block for row in part}
        decoded += block * len(needed - last)
        last = needed if len(batch) >= window else last | needed
    expected = forecast.decoded_share(rows_per_gpu, workers, window)
    assert decoded / rows == pytest.approx(expected, rel=0.25)


def test_recorded_steps_of_random_sizes_count_where_they_were_measured(forecast, tmp_path):
    for name in ("cost_of_benchmarks", "host_cost", "roofline"):
        shutil.copy(forecast.RESULTS / f"{name}.json", tmp_path)
    without, source = forecast.load_model(tmp_path, 1000)
    assert source == "cost_of_benchmarks"
    measured = json.loads((tmp_path / "cost_of_benchmarks.json").read_text())
    measured["results"]["fits"]["plain"] = {"constants": {}}
    (tmp_path / "cost_model_cuda.json").write_text(json.dumps(measured))
    found, source = forecast.load_model(tmp_path, 2000)
    assert source == "cost_model_cuda"
    assert found == replace(without, read=found.read)
    assert found.read["mapped"]["pick"] == pytest.approx(2 * without.read["mapped"]["pick"])


@pytest.fixture
def page(monkeypatch):
    """docs/scaling_pages.py."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield import_module("scaling_pages")
    for name in ("scaling_pages", "scaling_forecast", "pages"):
        sys.modules.pop(name, None)


def test_the_page_is_what_the_result_files_say(page):
    written = (ROOT / "docs" / "scaling.md").read_text()
    assert page.scaling_page() == written, "make it again: python docs/make_pages.py"


def test_parts_without_a_result_file_are_left_out(page, tmp_path, monkeypatch):
    shutil.copy(ROOT / "benchmarks" / "results" / "cost_model_cpu.json", tmp_path)
    monkeypatch.setattr("pages.RESULTS", tmp_path)
    text = page.scaling_page()
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert heads == ["## The formula", "## The check", "## How it was measured"]
    assert "GPU benchmarks" not in text
