"""Workers on the fused kernels: the result of one process, sums exchanged once in a step, on a GPU and without one."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from broken_off import BreakOffError, assert_equal_fleets, break_off_at
from in_turns import Turns
from learning_helpers import assert_same_model, binary_rows, parameters, small_circuit
from worker_group import Group, together

from circurve import Examples, Gated, Global, Run, Vanilla, WorkerError, fit_fleet, hclt
from circurve.engine.cuda import Fused
from circurve.learning import graph_steps, steps_choice

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

ALL_SUMS = [
    Gated(0.1, gate_memory=0.5, estimator="mean_ratio"),
    Gated(0.1, estimator="clipped", ratio_floor=0.1),
    Gated(0.1, estimator="geometric"),
    Global(0.1, penalty="exact"),
]
"""Methods that together ask for every sum that an E-step can collect."""


def scores(result) -> list[float]:
    """All scores, those of each epoch included."""
    found = [result.train_ll, result.valid_ll, result.sharpness]
    found += [value for record in result.history for value in (record.train_ll, record.valid_ll, record.sharpness)]
    return [value for value in found if value is not None]


def assert_close(found, wanted, tolerance: float = 1e-4) -> None:
    """Equal up to the rounding of float32 sums in another order."""
    for one, other in zip(found, wanted, strict=True):
        assert_same_model(one, other, tolerance)
        assert scores(one) == pytest.approx(scores(other), rel=tolerance)


def in_turns_and_alone(monkeypatch, rows, methods, circuit=None, **options: Any):
    """A fleet trained by two workers in turns (both results), by one process, and the sizes of the all-reduces."""
    circuit = circuit or small_circuit(binary_rows(25, variables=3), 2)
    runs = [Run(method=method, seed=seed) for seed, method in enumerate(methods)]
    options = {"epochs": 1, "batch_size": 5, "device": DEVICE, "backend": "fused", "progress": False, **options}

    def train():
        return fit_fleet(circuit, rows, runs, **options)

    alone = train()
    turns = Turns(monkeypatch)
    return turns.run(train), alone, turns.calls


def test_two_workers_give_what_one_gives_with_every_kind_of_sum(monkeypatch):
    rows, held = binary_rows(13, variables=3), binary_rows(5, seed=1, variables=3)
    found, alone, calls = in_turns_and_alone(monkeypatch, rows, ALL_SUMS, valid=held, track=True)
    assert_equal_fleets(*found)
    assert_close(found[0], alone)
    steps, scores = 3, 3  # the validation rows after the epoch, training and validation rows in the end
    assert len(calls) == steps + scores
    assert len(set(calls[:steps])) == 1
    assert set(calls[steps:]) == {2 * len(ALL_SUMS)}


@pytest.mark.parametrize("options", [{"batch_size": None}, {"batch_size": 1}], ids=repr)
def test_full_batches_and_batches_with_fewer_samples_than_workers(options, monkeypatch):
    rows = binary_rows(3, variables=3)
    found, alone, _ = in_turns_and_alone(monkeypatch, rows, [Vanilla(0.1), Gated(0.1)], **options)
    assert_equal_fleets(*found)
    assert_close(found[0], alone)


def test_other_inputs_weights_and_missing_values(monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.column_stack([binary_rows(11, variables=2).astype(float), rng.normal(size=11), rng.integers(0, 4, 11)])
    circuit = hclt(rows, 2)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    examples = Examples(rows, rng.random(len(rows)))
    found, alone, _ = in_turns_and_alone(monkeypatch, examples, [Vanilla(0.1), Gated(0.1)], circuit)
    assert_equal_fleets(*found)
    assert_close(found[0], alone)


def test_a_gate_of_the_user_never_sees_the_sums_of_one_worker(monkeypatch):
    """A worker without samples has sums of zero, which a gate may divide by."""

    def gate(curvature):
        return curvature.local / curvature.local.amax(-1, keepdim=True)

    found, alone, _ = in_turns_and_alone(
        monkeypatch, binary_rows(3, variables=3), [Gated(0.1, gate=gate)], batch_size=1
    )
    assert_close(found[0], alone)


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU records real graphs")
def test_recorded_pieces_are_replayed_around_the_all_reduce(monkeypatch):
    """With a recorder that notes what is replayed, and does the same again."""
    events: list[str] = []

    class Replayed:
        def __init__(self, work) -> None:
            self.work, self.name = work, work.__name__
            work()

        def replay(self) -> None:
            events.append(self.name)
            self.work()

    monkeypatch.setattr(Fused, "records", True)
    monkeypatch.setattr(graph_steps, "recorded", Replayed)
    monkeypatch.setattr(graph_steps, "on_a_stream_of_its_own", lambda device, work: work())
    rows = binary_rows(13, variables=3)
    found, alone, calls = in_turns_and_alone(monkeypatch, rows, [Gated(0.1, gate_memory=0.5)], epochs=2)
    assert_equal_fleets(*found)
    assert_close(found[0], alone)
    steps = 2 * 3
    assert len(calls) == steps + 1  # and the score of the training rows
    assert events[:steps] == ["_step"] * steps
    each = [name for name in events[steps:] if name == "_collect"]
    assert len(each) == 2 * steps  # of two workers
    assert sorted(events[steps:]) == sorted(each + ["_maximize"] * len(each))


GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE != "cuda", reason="needs a CUDA device"),
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo"),
]
SPAWNED = multiprocessing.get_context("spawn")
TWO = Group(context=SPAWNED)
NCCL = Group(1, "cpu:gloo,cuda:nccl", SPAWNED)
"""NCCL refuses two workers on one GPU."""

RUNS = [Run(Vanilla(0.1)), Run(Gated(0.1, gate_memory=0.5), seed=1), Run(Global(0.1, penalty="exact"), seed=2)]


def on_gpu(test):
    for mark in GPU:
        test = mark(test)
    return test


def train_on_gpu(**options: Any):
    rows = binary_rows(3001, variables=24)
    given = {"epochs": 4, "batch_size": 200, "progress": False, "device": "cuda", "track": True, **options}
    return fit_fleet(small_circuit(rows, 40), rows, RUNS, valid=binary_rows(500, seed=1, variables=24), **given)


def train_as_a_worker(**options: Any):
    """The steps of workers, even in a group of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_choice, "workers", lambda: 2)
        return train_on_gpu(**options)


@on_gpu
@pytest.mark.parametrize(
    "options", [{}, {"batch_size": None}, {"precision": "tf32"}, {"backend": "reference"}], ids=repr
)
def test_one_worker_with_nccl_gives_the_bits_of_no_group(options, tmp_path):
    found, alone = together(train_as_a_worker, tmp_path, group=NCCL, **options)[0], train_on_gpu(**options)
    for one, other in zip(found, alone, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(parameters(one), parameters(other), strict=True))
    assert_close(found, alone)


@on_gpu
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"backend": "reference"}], ids=repr)
def test_two_workers_on_one_gpu_give_what_one_gives_and_the_same_bits_each_time(options, tmp_path):
    first, second = (together(train_on_gpu, tmp_path, group=TWO, **options) for _ in range(2))
    assert_equal_fleets(first[0], first[1])
    assert_equal_fleets(first[0], second[0])
    assert_close(first[0], train_on_gpu(**options))


@on_gpu
def test_a_killed_worker_is_one_error_and_one_process_continues_on_the_gpu(tmp_path):
    checkpoint = {"checkpoint": tmp_path / "runs", "checkpoint_every": "1 epoch"}
    found = together(train_on_gpu, tmp_path / "group", death=3, group=TWO, **checkpoint)
    assert isinstance(found[0], WorkerError)
    assert "worker 0 of 2 lost the connection to another worker; training stops" in str(found[0])
    epochs: list[int] = []
    with pytest.warns(UserWarning, match=r"workers: was 2, is 1;.* results may differ by rounding"):
        again = train_on_gpu(**checkpoint, callbacks=[lambda event: epochs.append(event.epoch)])
    assert epochs[0] > 1
    assert_close(again, train_on_gpu())


@on_gpu
def test_a_checkpoint_of_one_process_is_continued_by_two_workers(tmp_path):
    checkpoint = {"checkpoint": tmp_path / "runs", "checkpoint_every": "1 epoch"}
    with pytest.raises(BreakOffError):
        train_on_gpu(**checkpoint, callbacks=[break_off_at(2)])
    found = together(train_on_gpu, tmp_path / "group", group=TWO, **checkpoint)
    assert_equal_fleets(found[0], found[1])
    assert_close(found[0], train_on_gpu())
