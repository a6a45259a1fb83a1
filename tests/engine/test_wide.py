"""The kernels of wide layers in tf32 give what float64 gives, up to the rounding of their factors to 10 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_fused import DEVICE, assert_same, batch_of, fused, on_device

from circuits import ALL, Case, Shape, all_sums, with_parameters
from circurve.engine import Request, choose_backend, stack
from circurve.engine.cuda.sizes import Blocks
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


@pytest.fixture
def small_blocks(small_work, monkeypatch):
    """Layers are wide from 64 units and children on: the interpreter is slow."""
    monkeypatch.setattr("circurve.engine.cuda.launch.FUSED", 32)
    monkeypatch.setattr("circurve.engine.cuda.sizes.WIDE", 64)
    for module in ("buffers", "sizes"):
        monkeypatch.setattr(f"circurve.engine.cuda.{module}.WIDE_TILE", 32)
    for product in ("sum", "flow", "count"):
        blocks = Blocks(32 if product == "flow" else 16, 32, 16, warps=4, stages=1)
        monkeypatch.setattr(f"circurve.engine.cuda.wide.wide_{product}_blocks", lambda *_, blocks=blocks: blocks)


def launches(backend, monkeypatch) -> list[str]:
    """The names of the wide kernels that are launched from now on."""
    found: list[str] = []
    kernels = backend.engine.launch.wide.kernels
    # on a GPU, work is first done without running kernels, to compile them
    monkeypatch.setattr("circurve.engine.cuda.backend.compile_ahead", lambda *_: None)

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


def check(case: Case, monkeypatch, request: Request = ALL) -> list[str]:
    """Log-probabilities and sums; returns the wide kernels of the E-step."""
    backend, batch = fused(case, "tf32"), batch_of(case)
    samples = case.samples().rows(0, len(case.x))
    wanted = case.backend().log_prob(case.params, samples)
    torch.testing.assert_close(backend.log_prob(on_device(case), batch).double().cpu(), wanted, rtol=0, atol=TF32)
    found = launches(backend, monkeypatch)
    sums = case.backend().statistics(case.params, [samples], request)
    assert_same(backend.statistics(on_device(case), [batch], request), sums, TF32)
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
def test_blocks_as_they_are_on_a_gpu(units, monkeypatch):
    found = check(chain(units, samples=20), monkeypatch, Request())
    shapes = len({units, (units[1], units[1])})
    assert [found.count(name) for name in KERNELS] == [shapes, 2, 2, shapes]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("samples", [5, 32, 70])
def test_any_number_of_samples(samples, monkeypatch):
    found = check(chain((128, 64), samples), monkeypatch)
    assert set(found) == set(KERNELS)


@pytest.mark.usefixtures("small_blocks")
def test_inputs_without_a_table(monkeypatch):
    """Then the scaled sums are kept."""
    found = check(chain((64, 128), 20, Gaussian, "real"), monkeypatch)
    assert set(found) == set(KERNELS)


@pytest.mark.usefixtures("small_blocks")
def test_batches_of_a_fleet_add_up():
    cases = [chain((64, 64), 40, seed=seed) for seed in (0, 1)]
    params = stack([case.params for case in cases]).to(DEVICE, torch.float32)
    batches = [batch_of(replace(cases[0], x=x, sample_weights=None)) for x in (cases[0].x[:9], cases[0].x[9:])]
    backend = choose_backend(cases[0].program, params, "fused", "tf32")
    found = backend.statistics(params, batches, ALL)
    for run, case in enumerate(cases):
        wanted = replace(case, x=cases[0].x, sample_weights=None).statistics()
        for a, b in zip(all_sums(found), all_sums(wanted), strict=True):
            scale = float(b.abs().max())
            torch.testing.assert_close(a[run].double().cpu(), b[0].double(), rtol=TF32, atol=TF32 * max(scale, 1e-3))


@pytest.mark.usefixtures("small_blocks")
def test_weights_are_rounded_again_when_they_change(monkeypatch):
    one, other = chain((64, 64), 10, seed=0), chain((64, 64), 10, seed=1)
    backend, batch = fused(one, "tf32"), batch_of(one)
    found = launches(backend, monkeypatch)
    backend.log_prob(on_device(one), batch)
    wanted = other.backend().log_prob(other.params, one.samples().rows(0, len(one.x)))
    torch.testing.assert_close(backend.log_prob(on_device(other), batch).double().cpu(), wanted, rtol=0, atol=TF32)
    assert found.count("round_weights") == 2


@pytest.mark.usefixtures("small_blocks")
def test_parameters_that_never_change_are_rounded_once(monkeypatch):
    case = chain((64, 64), 10)
    params = on_device(case)
    backend = choose_backend(case.program, params, "fused", "tf32", fixed=True)
    found = launches(backend, monkeypatch)
    first = backend.log_prob(params, batch_of(case))
    assert torch.equal(backend.log_prob(params, batch_of(case)), first)
    assert found.count("round_weights") == 1
    assert [len(copies) for copies in backend.engine.copies.values()] == [1]
    backend.statistics(params, [batch_of(case)])  # the backward pass reads other copies
    assert found.count("round_weights") == 2
    assert [len(copies) for copies in backend.engine.copies.values()] == [2]
    backend.release()
    assert not backend.engine.copies
    assert torch.equal(backend.log_prob(params, batch_of(case)), first)


@pytest.mark.usefixtures("small_work")
@pytest.mark.parametrize(
    ("units", "precision", "wide"),
    [
        *(((256, 256), "tf32", [(256, 256)]), ((384, 256), "tf32", [(256, 384), (256, 256)])),
        *(((256, 256), "float32", []), ((128, 128), "tf32", []), ((300, 300), "tf32", [])),
    ],
)
def test_shapes_that_are_wide(units, precision, wide):
    engine = fused(chain(units, samples=1), precision).engine
    engine.reserve(20, backward=False)
    assert list(engine.wide_groups) == wide
    assert engine.wide == bool(wide)
    assert engine.width == (128 if wide else 32)


def test_few_samples_take_the_other_kernels(monkeypatch):
    case = chain((256, 256), samples=20)
    backend = fused(case, "tf32")
    found = launches(backend, monkeypatch)
    backend.statistics(on_device(case), [batch_of(case)])
    assert not found
    assert not backend.engine.copies
    assert backend.engine.width == 32
    backend.engine.reserve(264 // 2 * 128, backward=False)  # two blocks of units for each tile of samples
    assert backend.engine.wide
