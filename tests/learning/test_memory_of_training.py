"""Steps give their memory back when they end, and a training on a GPU stays within its budget."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import circurve as cc
from circurve.data import prepare
from circurve.engine import compile
from circurve.learning.need import training_need
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("runs", [1, 3])
def test_a_training_on_a_gpu_stays_within_its_budget(runs):
    data = np.random.default_rng(1).integers(0, 2, size=(2000, 100)).astype(np.int64)
    circuit = cc.hclt(data, 256)
    fleet = [cc.Run(cc.Vanilla(0.1), seed=seed) for seed in range(runs)]
    options = {"epochs": 3, "batch_size": 200, "device": "cuda"}
    need = training_need(compile(circuit), fleet, Settings.of(options), {"train": prepare(data, circuit, "train")})
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
