"""On the fused kernels a break changes no bit either: on a GPU with recorded steps, else in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from broken_off import BreakOffError, assert_equal_fleets, break_off_at, broken_and_continued
from learning_helpers import binary_rows, small_circuit

from circurve import Gated, Global, Run, Vanilla, fit_fleet, schedules

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

FLEETS = {
    "gates": [Run(Vanilla(0.1)), Run(Gated(0.1, gate_memory=0.5), seed=1), Run(Gated(0.2, gates_from="epoch"), seed=2)],
    "exact": [Run(Global(0.1, simplex="exact", penalty="exact")), Run(seed=1, step_size=schedules.cosine(0.3, 0.01))],
}


def test_a_break_changes_no_bit_on_the_fused_kernels(tmp_path):
    rows = binary_rows(12, variables=3)
    circuit = small_circuit(rows, 2)
    options = {"epochs": 2, "batch_size": 6, "device": DEVICE, "backend": "fused", "progress": False}

    def train(**more):
        return fit_fleet(circuit, rows, FLEETS["gates"][1:], **options, **more)

    assert_equal_fleets(broken_and_continued(train, tmp_path, 2), train())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("epoch", [1, 7, 12])
@pytest.mark.parametrize("batch_size", [200, None])
def test_a_break_changes_no_bit_of_recorded_steps(batch_size, epoch, precision, tmp_path):
    """Larger circuits, several tiles for each kernel, runs that stop at different times, but none before epoch 13."""
    rows, held = binary_rows(3000, variables=24), binary_rows(500, seed=1, variables=24)
    circuit = small_circuit(rows, 40)
    runs = [run for name in FLEETS for run in FLEETS[name]]
    options = {"epochs": 20, "batch_size": batch_size, "device": "cuda", "precision": precision, "patience": 12}

    def train(**more):
        return fit_fleet(circuit, rows, runs, valid=held, progress=False, **options, **more)

    assert_equal_fleets(broken_and_continued(train, tmp_path, epoch), train())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_training_moves_from_a_gpu_to_a_cpu_with_a_warning(tmp_path):
    rows = binary_rows(300, variables=8)
    circuit = small_circuit(rows, 8)

    def train(device, **more):
        return fit_fleet(circuit, rows, [Run()], epochs=6, device=device, backend="reference", progress=False, **more)

    options = {"checkpoint": tmp_path, "checkpoint_every": "1 epoch"}
    with pytest.raises(BreakOffError):
        train("cuda", callbacks=[break_off_at(4)], **options)
    with pytest.warns(UserWarning, match=r"device: was .*, is cpu.*; results may differ by rounding"):
        found = train("cpu", **options)
    assert found[0].train_ll == pytest.approx(train("cpu")[0].train_ll, rel=1e-4)
