"""The kernels of wide layers in tf32 give what float64 gives, up to the rounding of their factors to 10 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_fused import assert_same, batch_of, fused, on_device

from circuits import ALL, Case, Shape, with_parameters
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")

TF32 = 2e-3
"""Relative. Weights and elements are rounded to 2^-12 each, and again in each of a few layers."""

KERNELS = ("round_weights", "wide_sums", "wide_flows", "wide_counts")


@pytest.fixture
def small_work(monkeypatch):
    """Wide layers take their own kernels however few samples there are."""
    for module in ("buffers", "wide"):
        monkeypatch.setattr(f"circurve.engine.cuda.{module}.PROGRAMS", 0)


def launches(backend, monkeypatch) -> list[str]:
    """The names of the wide kernels that are launched from now on."""
    found: list[str] = []
    kernels = backend.engine.launch.wide.kernels

    def noted(name: str):
        kernel = getattr(kernels, name)

        class Noted:
            def __getitem__(self, grid):
                found.append(name)
                return kernel[grid]

        return Noted()

    for name in KERNELS:
        monkeypatch.setattr(kernels, name, noted(name))
    return found


def check(case: Case, monkeypatch) -> list[str]:
    """Log-probabilities and all sums; returns the wide kernels of the E-step."""
    backend, batch = fused(case, "tf32"), batch_of(case)
    wanted = case.backend().log_prob(case.params, case.samples().rows(0, len(case.x)))
    torch.testing.assert_close(backend.log_prob(on_device(case), batch).double().cpu(), wanted, rtol=0, atol=TF32)
    found = launches(backend, monkeypatch)
    assert_same(backend.statistics(on_device(case), [batch], ALL), case.statistics(), TF32)
    return found


def chain(units: tuple[int, int], samples: int, family=Bernoulli, kind: str = "binary", seed: int = 0) -> Case:
    """Two wide layers, one on top of the other: of K1 units over K0 children, and of K1 over K1."""
    low, high = units
    first = Sum(Product([Input(v, family(), low) for v in (0, 1)]), high)
    second = Sum(Product([first, Input(2, family(), high)]), high)
    circuit = Circuit(Sum(second))
    return with_parameters(circuit, (kind,) * 3, Shape(samples=samples, missing=False), np.random.default_rng(seed))


@pytest.mark.usefixtures("small_work")
@pytest.mark.parametrize("units", [(256, 256), (256, 384)])
def test_wide_layers(units, monkeypatch):
    found = check(chain(units, samples=20), monkeypatch)
    shapes = len({units, (units[1], units[1])})
    assert [found.count(name) for name in KERNELS] == [shapes, 2, 2, shapes]


@pytest.mark.usefixtures("small_work")
def test_inputs_without_a_table(monkeypatch):
    """Then the scaled sums are kept."""
    found = check(chain((256, 256), 20, Gaussian, "real"), monkeypatch)
    assert set(found) == set(KERNELS)
