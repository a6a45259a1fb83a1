"""Two processes that train together: the same result as one, equal bits in both, and a clear end if one dies."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from broken_off import assert_equal_fleets
from learning_helpers import assert_same_model, binary_rows, quick_fleet, small_circuit
from worker_group import together

from circurve import Gated, Global, Run, Vanilla, WorkerError

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo"
)

RUNS = (Run(Vanilla(0.1)), Run(Gated(0.1, gate_memory=0.5), seed=1), Run(Global(0.1, penalty="exact"), seed=2))
WEIGHTS = np.linspace(0.0, 2.0, 61)


def train(**options: Any) -> Any:
    rows = binary_rows(61)
    given = {"epochs": 4, "batch_size": 20, "progress": False, **options}
    return quick_fleet(small_circuit(rows), rows, list(RUNS), weights=WEIGHTS, valid=binary_rows(80)[61:], **given)


def test_two_workers_give_what_one_gives_and_all_of_them_the_same_bits(tmp_path):
    one, first, second = train(), together(train, tmp_path), together(train, tmp_path)
    assert_equal_fleets(first[0], first[1])
    assert_equal_fleets(first[0], second[0])
    for found, wanted in zip(first[0], one, strict=True):
        assert_same_model(found, wanted, 1e-10)
        assert found.train_ll == pytest.approx(wanted.train_ll, rel=1e-12)
        assert [r.valid_ll for r in found.history] == pytest.approx([r.valid_ll for r in wanted.history], rel=1e-12)


@pytest.mark.parametrize("options", [{"batch_size": None, "track": True}, {"batch_size": 1, "epochs": 1}])
def test_full_batches_and_batches_with_fewer_samples_than_workers(options, tmp_path):
    one, found = train(**options), together(train, tmp_path, **options)
    for a, b in zip(found[0], one, strict=True):
        assert_same_model(a, b, 1e-9)


def test_workers_stop_early_in_the_same_epoch_as_one_process(tmp_path):
    options = {"epochs": 60, "patience": 1, "step_size": 1.0}
    one, found = train(**options), together(train, tmp_path, **options)
    assert_equal_fleets(found[0], found[1])
    assert all(result.stopped == "patience" for result in one)
    assert [result.epoch for result in found[0]] == [result.epoch for result in one]
    for a, b in zip(found[0], one, strict=True):
        assert (a.train_ll, a.valid_ll) == pytest.approx((b.train_ll, b.valid_ll), rel=1e-12)


def test_the_death_of_a_worker_is_one_error_and_one_process_continues(tmp_path):
    checkpoint = {"checkpoint": tmp_path / "runs", "checkpoint_every": "1 epoch"}
    found = together(train, tmp_path / "group", death=3, **checkpoint)
    assert isinstance(found[0], WorkerError)
    assert "worker 0 of 2 lost the connection to another worker; training stops" in str(found[0])
    assert "with checkpoint the same call continues, with any number of workers" in str(found[0])
    epochs = []
    with pytest.warns(UserWarning, match=r"workers: was 2, is 1;.* results may differ by rounding"):
        again = train(**checkpoint, callbacks=[lambda event: epochs.append(event.epoch)])
    assert epochs[0] > 1
    for one, other in zip(again, train(), strict=True):
        assert_same_model(one, other, 1e-10)


def test_workers_with_different_trainings_are_refused(tmp_path):
    found = together(train, tmp_path, **{"only 1": {"epochs": 5}})
    assert [str(found[number]) for number in range(2)] == [
        "the workers of the process group have different arguments (epochs): give all of them the same arguments"
    ] * 2
