"""Out of memory on a device: half as many samples at once, the same answer, and one warning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import circurve as cc
from circurve.data import prepare
from circurve.engine import Batch, Params, Reference, compile
from circurve.engine.memory import free_memory, within_memory
from circurve.engine.reference import FRESH, Memory, UpwardPass
from circurve.errors import CircurveWarning, MemoryLimitError
from circurve.learning.need import compiling_need, training_need
from circurve.learning.options import Settings

pytestmark = pytest.mark.filterwarnings("ignore:out of memory")

ROWS = np.random.default_rng(0).integers(0, 2, size=(60, 5)).astype(np.int64)


@pytest.fixture
def short_of_memory(monkeypatch):
    """Batches of more than 10 samples do not fit."""
    asked: list[int] = []
    upward = Reference.upward

    def refuse(self: Reference, params: Params, batch: Batch, memory: Memory = FRESH) -> UpwardPass:
        asked.append(batch.size)
        if batch.size > 10:
            raise torch.OutOfMemoryError("pretended")
        return upward(self, params, batch, memory)

    monkeypatch.setattr(Reference, "upward", refuse)
    monkeypatch.setattr("circurve.engine.choice.tree_layout", lambda _: None)
    return asked


def model() -> cc.Model:
    return cc.fit(cc.hclt(ROWS, units=3), ROWS, epochs=2, batch_size=8, progress=False).model


@pytest.mark.parametrize("reason", ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"])
def test_a_library_that_runs_out_of_memory_counts_as_well(monkeypatch, reason):
    sizes: list[int] = []
    backend = model().backend

    def work(chunk: int) -> int:
        sizes.append(chunk)
        if chunk > 10:
            raise RuntimeError(reason)
        return chunk

    assert within_memory(backend, 40, work) == 10
    assert sizes == [40, 20, 10]
    backend.max_samples = None
    reason = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(RuntimeError, match="illegal memory access"):
        within_memory(backend, 40, work)
    assert sizes[3:] == [40]


def test_scores_go_on_with_fewer_samples(short_of_memory):
    trained = model()
    del short_of_memory[:]
    with pytest.warns(CircurveWarning, match="continuing with 7 samples at once") as caught:
        found = trained.log_prob(ROWS, backend="reference")
    assert short_of_memory[:4] == [60, 30, 15, 7]
    assert len(caught) == 3
    np.testing.assert_allclose(found, [trained.log_prob(row[None])[0] for row in ROWS], rtol=1e-5)


def test_training_goes_on_and_keeps_in_mind_what_was_too_much(short_of_memory):
    circuit = cc.hclt(ROWS, units=3)
    tables = {name: prepare(part, circuit, name) for name, part in (("train", ROWS), ("valid", ROWS[:30]))}
    need = training_need(circuit, [cc.Run()], Settings.of({"batch_size": 16}), tables, compile(circuit)).total
    need = max(need, compiling_need(circuit, tables).total)
    with pytest.warns(CircurveWarning) as caught:
        found = cc.fit(circuit, ROWS, valid=ROWS[:30], epochs=3, batch_size=16, progress=False)
    texts = [str(warning.message) for warning in caught]
    assert texts[0].endswith("continuing with 7 samples at once")
    assert len(texts) <= 4  # once in training, a few times for the final scores of an engine of their own
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = cc.fit(circuit, ROWS, valid=ROWS[:30], epochs=3, batch_size=16, progress=False, memory_budget=need)
    assert found.train_ll == pytest.approx(wanted.train_ll, rel=1e-5)
    assert found.valid_ll == pytest.approx(wanted.valid_ll, rel=1e-5)


def test_curvature_goes_on_with_fewer_samples(short_of_memory):
    trained = model()
    with pytest.warns(CircurveWarning, match="continuing with 7 samples at once"):
        found = cc.curvature(trained, ROWS)
    parts = [cc.curvature(trained, ROWS[start : start + 6]).trace for start in range(0, 60, 6)]
    assert found.trace == pytest.approx(np.mean(parts), rel=1e-5)


def test_a_single_sample_that_does_not_fit_is_an_error(monkeypatch):
    trained = model()

    def refuse(self: Reference, params: Params, batch: Batch, memory: Memory) -> UpwardPass:
        raise torch.OutOfMemoryError("pretended")

    monkeypatch.setattr(Reference, "upward", refuse)
    monkeypatch.setattr("circurve.engine.choice.tree_layout", lambda _: None)
    with pytest.warns(CircurveWarning), pytest.raises(torch.OutOfMemoryError):
        trained.log_prob(ROWS, backend="reference")


def test_too_many_units_are_refused_before_memory_is_taken():
    circuit = cc.hclt(ROWS, units=200_000)
    with pytest.raises(MemoryLimitError, match=r"training needs [\d.]+ TB \(parameters .*: use fewer units"):
        cc.fit(circuit, ROWS, epochs=1, progress=False)


def test_a_budget_covers_parameters_and_data_and_says_what_they_take():
    circuit = cc.hclt(ROWS, units=3)
    with pytest.raises(MemoryLimitError, match=r"parameters .* kB.*data .*but memory_budget=2000 is less"):
        cc.fit(circuit, ROWS.astype(np.int8), epochs=1, progress=False, memory_budget=2000)
    with pytest.raises(
        MemoryLimitError, match=r"training needs 2.4 kB \(data 2.4 kB\), but memory_budget=2000 is less"
    ):
        cc.fit(circuit, ROWS, epochs=1, progress=False, memory_budget=2000)
    assert issubclass(MemoryLimitError, MemoryError)


@pytest.mark.parametrize("kept", [0, 1 << 40])
def test_large_buffers_do_not_stay_with_a_model(monkeypatch, kept):
    trained, released = model(), []
    monkeypatch.setattr("circurve.engine.memory.MAX_KEPT_BYTES", kept)
    kinds = {type(trained.backend), Reference}
    for kind in kinds:
        monkeypatch.setattr(kind, "release", lambda backend: released.append(type(backend)))
    cc.curvature(trained, ROWS)
    trained.impute(np.where(np.arange(5) < 3, ROWS, np.nan))
    assert set(released) == (set() if kept else kinds)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_models_that_were_asked_hold_no_memory_of_the_gpu():
    rows = np.random.default_rng(0).integers(0, 2, size=(20_000, 40))
    fleet = cc.fit_fleet(
        cc.hclt(rows, units=32), rows, [cc.Run(seed=seed) for seed in range(4)], epochs=1, device="cuda"
    )
    used = []
    for result in fleet:
        cc.curvature(result.model, rows)
        result.model.log_prob(rows)
        used.append(torch.cuda.memory_allocated())
    assert used[-1] - used[0] < 3 * (64 << 20)


def test_a_device_that_others_have_filled_has_no_free_memory(monkeypatch):
    def refuse(_: torch.device) -> tuple[int, int]:
        raise RuntimeError(reason)

    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    reason = "CUDA error: out of memory"
    assert free_memory(torch.device("cuda")) == 0
    reason = "CUDA error: no kernel image is available"
    with pytest.raises(RuntimeError, match="no kernel image"):
        free_memory(torch.device("cuda"))
