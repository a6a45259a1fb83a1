"""Steps give their memory back when they end, and a training on a GPU stays within its budget."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import circurve as cc
from circurve.data import prepare
from circurve.engine import compile
from circurve.learning.need import COPIES, compiling_need, training_need
from circurve.learning.options import Settings
from circurve.learning.steps import PlainSteps

ROWS = np.random.default_rng(0).integers(0, 2, size=(64, 6)).astype(np.int64)
RUNS = [cc.Run(cc.Vanilla(0.1), seed=seed) for seed in range(3)]


def test_steps_give_their_memory_back_before_others_take_it(monkeypatch):
    events: list[str] = []
    start, release = PlainSteps.__init__, PlainSteps.release
    monkeypatch.setattr(PlainSteps, "__init__", lambda self, *a: [events.append("new"), start(self, *a)][1])
    monkeypatch.setattr(PlainSteps, "release", lambda self: [events.append("released"), release(self)][1])
    fleet = cc.fit_fleet(
        cc.hclt(ROWS, 2), ROWS, RUNS, valid=ROWS[:9], epochs=30, patience=2, device="cpu", progress=False
    )
    lengths = {len(result.history) for result in fleet}
    assert len(lengths) > 1  # the runs stopped at different times
    assert events == ["new", "released"] * len(lengths)


def test_a_single_run_keeps_its_parameters_without_a_copy():
    result = cc.fit(cc.hclt(ROWS, 2), ROWS, epochs=2, valid=False, device="cpu", progress=False)
    longer = cc.fit_fleet(cc.hclt(ROWS, 2), ROWS, RUNS[:1] * 2, epochs=2, valid=False, device="cpu", progress=False)
    assert all(tensor.is_contiguous() for tensor in (*result.model.params.weights, *longer[0].model.params.weights))


@pytest.mark.parametrize(("components", "budget"), [(10**6, 2 * 10**8), (10**8, 2 * 10**8), (10**9, None)])
def test_a_circuit_whose_training_does_not_fit_is_not_compiled(monkeypatch, components, budget):
    def compiled(circuit):
        raise AssertionError("compiled")

    monkeypatch.setattr("circurve.learning.fitting.compile", compiled)
    rows = np.zeros((20, 16), dtype=np.uint8)
    with pytest.raises(cc.MemoryLimitError, match=r"^training needs .*circuit .*: use fewer units"):
        cc.fit(cc.mixture(16, components=components), rows, memory_budget=budget, device="cpu", progress=False)


def test_compiling_is_checked_where_it_takes_more_than_the_training():
    circuit = cc.mixture([cc.Indicator((0,))] * 2, components=1)
    for _ in range(2000):
        circuit = cc.Circuit(cc.Product([circuit.roots[0]]))
    need = compiling_need(circuit, {}).total
    train = prepare(np.zeros((20, 2)), circuit, "train")
    assert need > training_need(circuit, [cc.Run()], Settings(), {"train": train}).total
    with pytest.raises(cc.MemoryLimitError, match=r"^compiling the circuit needs .* is less: use fewer units"):
        cc.fit(circuit, np.zeros((20, 2)), memory_budget=need - 1, device="cpu", progress=False)


def test_the_parameters_of_a_circuit_are_counted_as_those_of_its_program():
    circuit = cc.hclt(ROWS, 3)
    parts = training_need(circuit, [cc.Run()], Settings(device="cpu"), {"train": prepare(ROWS, circuit, "train")}).parts
    assert parts["parameters"] == compile(circuit).parameters * 4 * COPIES["cpu"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("runs", [1, 3])
def test_a_training_on_a_gpu_stays_within_its_budget(runs):
    data = np.random.default_rng(1).integers(0, 2, size=(2000, 100)).astype(np.int64)
    circuit = cc.hclt(data, 256)
    fleet = [cc.Run(cc.Vanilla(0.1), seed=seed) for seed in range(runs)]
    options = {"epochs": 3, "batch_size": 200, "device": "cuda"}
    need = training_need(circuit, fleet, Settings.of(options), {"train": prepare(data, circuit, "train")})
    budget = need.total + (300 << 20)
    for _ in range(2):  # kernels are loaded the first time
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = cc.fit_fleet(circuit, data, fleet, valid=data[:500], **options, memory_budget=budget, progress=False)
        peak = torch.cuda.max_memory_allocated() - before
        assert peak <= budget
        del result
