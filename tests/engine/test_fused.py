"""The fused kernels give what the reference gives: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import gc
from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
import torch

from circuits import ALL, Case, Shape, all_sums, assert_close, with_parameters
from circurve.engine import Batch, Request, Statistics, choose_backend, compile, stack
from circurve.engine.cuda import Fused, blueprint_for, why_not
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian
from circurve.structures import hclt
from shapes import SHAPES, case_of

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FLOAT32 = 2e-4
"""Relative; a sum of a few hundred terms in float32, and logs of them."""


def fused(case: Case, precision: str = "float32") -> Fused:
    backend = choose_backend(case.program, on_device(case), "fused", precision)
    assert isinstance(backend, Fused)
    return backend


def on_device(case: Case):
    return case.params.to(DEVICE, torch.float32)


def batch_of(case: Case, dtype: torch.dtype = torch.float32) -> Batch:
    table = case.samples().table.to(DEVICE)
    return Batch.rows(table, 0, len(table), dtype)


def assert_same(found: Statistics, wanted: Statistics, tolerance: float = FLOAT32) -> None:
    for a, b in zip(all_sums(found), all_sums(wanted), strict=True):
        scale = float(b.abs().max()) if b.numel() else 0.0
        torch.testing.assert_close(a.double().cpu(), b.double(), rtol=tolerance, atol=tolerance * max(scale, 1e-3))
    assert torch.equal(found.impossible.cpu(), wanted.impossible)


def check(case: Case) -> None:
    backend, batch = fused(case), batch_of(case)
    wanted = case.backend().log_prob(case.params, case.samples().rows(0, len(case.x)))
    assert_close(backend.log_prob(on_device(case), batch).cpu(), wanted, FLOAT32)
    assert_same(backend.statistics(on_device(case), [batch], ALL), case.statistics())


@pytest.mark.parametrize("name", SHAPES)
def test_awkward_shapes(name):
    case = case_of(name)
    reason = why_not(case.program, DEVICE, torch.float32)
    if reason is not None:
        assert "output" in reason
        return
    check(case)


def tree(units: int, samples: int = 5, variables: int = 4, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    rows = (rng.random((50, variables)) < 0.5).astype(np.int64)
    circuit = hclt(rows, units)
    return with_parameters(circuit, ("binary",) * variables, Shape(samples=samples, missing=False), rng)


@pytest.mark.parametrize("units", [1, 7, 16, 20, 130])
def test_any_number_of_units(units):
    check(tree(units, samples=3, variables=3))


@pytest.mark.parametrize("samples", [1, 16, 17, 70])
def test_any_number_of_samples(samples):
    check(tree(5, samples))


def test_much_work_takes_other_kernels(monkeypatch):
    monkeypatch.setattr("circurve.engine.cuda.launch.BUSY_SHARE", 0)
    case = tree(5, samples=40)
    engine = fused(case).engine
    assert not any(engine.launch.fuses(plan) for plan in engine.blueprint.sums)
    check(case)


def test_sums_over_parts_of_the_samples_add_up(monkeypatch):
    monkeypatch.setattr("circurve.engine.cuda.sizes.LEAST_PART", 16)
    case = tree(4, samples=100)
    engine = fused(case).engine
    engine.reserve(100, backward=True)
    assert engine.launch.state_splits() > 1
    check(case)


def test_batches_with_and_without_missing_values_add_up():
    whole = tree(3, samples=6)
    holed = replace(whole, x=np.where(np.random.default_rng(1).random(whole.x.shape) < 0.4, np.nan, whole.x))
    wanted = whole.statistics() + holed.statistics()
    for order in ((whole, holed), (holed, whole)):
        assert_same(fused(whole).statistics(on_device(whole), [batch_of(case) for case in order], ALL), wanted)


def test_an_engine_goes_with_its_last_user():
    case = tree(3)
    gc.disable()  # nobody knows when it would come; until then the buffers would stay on the GPU
    try:
        backend = fused(case)
        backend.statistics(on_device(case), [batch_of(case)], ALL)
        left = ref(backend.engine)
        del backend
        assert left() is None
    finally:
        gc.enable()


def test_each_run_of_a_fleet_has_its_own_data_and_parameters():
    one, other = tree(6, samples=9, seed=0), tree(6, samples=9, seed=0)
    rng = np.random.default_rng(5)
    flipped = {node: weights.flip(1) for node, weights in other.weights.items()}
    other = replace(other, weights=flipped, x=rng.integers(0, 2, one.x.shape) * 1.0)
    params = stack([one.params, other.params]).to(DEVICE, torch.float32)
    backend = choose_backend(one.program, params, "fused")
    parts = [batch_of(one), batch_of(other)]
    batch = Batch(
        torch.cat([part.x for part in parts]),
        None,
        torch.stack([one.weight, other.weight]).to(DEVICE, torch.float32),
        None,
    )
    found = backend.statistics(params, [batch], ALL)
    for run, case in enumerate((one, other)):
        wanted = case.statistics()
        for a, b in zip(all_sums(found), all_sums(wanted), strict=True):
            torch.testing.assert_close(a[run].double().cpu(), b[0].double(), rtol=FLOAT32, atol=1e-5)


def test_a_sample_of_probability_zero_is_left_out():
    circuit = Circuit(Sum(Product([Input(0, Bernoulli(), 2), Input(1, Bernoulli(), 2)])))
    case = with_parameters(circuit, ("binary", "binary"), Shape(samples=4, missing=False), np.random.default_rng(0))
    impossible = {node: torch.ones_like(values) for node, values in case.inputs.items()}
    case = replace(case, inputs=impossible, x=np.array([[1.0, 1.0], [0.0, 1.0], [1, 1], [0, 0]]), sample_weights=None)
    found = fused(case).statistics(on_device(case), [batch_of(case)], Request(curvature=True))
    assert found.impossible.tolist() == [2]
    assert found.weight.tolist() == [2.0]
    assert all(bool(tensor.isfinite().all()) for tensor in all_sums(found))
    values = fused(case).log_prob(on_device(case), batch_of(case))[0, 0].tolist()
    assert [value == -np.inf for value in values] == [False, True, False, True]


def masked_circuit(units: int, rng: np.random.Generator) -> Circuit:
    """Two layers of sums over four variables; every unit has some of the children, and all have the first one."""

    def mask(rows: int, columns: int) -> np.ndarray:
        edges = rng.random((rows, columns)) < 0.4
        edges[:, 0] = True
        return edges

    leaves = [Sum(Input(v, Bernoulli(), units), units, mask(units, units)) for v in range(4)]
    pairs = [Sum(Product(leaves[i : i + 2]), units, mask(units, units)) for i in (0, 2)]
    return Circuit(Sum(Product(pairs)))


@pytest.mark.parametrize("units", [3, 33 if torch.cuda.is_available() else 17])  # the interpreter is slow
def test_masked_sums_go_edge_by_edge(units):
    rng = np.random.default_rng(units)
    case = with_parameters(masked_circuit(units, rng), ("binary",) * 4, Shape(samples=33), rng)
    assert "edge by edge" in fused(case).describe()
    check(case)


def test_a_unit_of_a_masked_sum_keeps_its_value_where_its_neighbours_are_far_more_probable():
    """Scaled by the largest child of all units, a probability of exp(-200) would be lost in float32."""
    leaf = Input(0, Gaussian(), 2)
    circuit = Circuit(Sum(Sum(leaf, 2, np.eye(2, dtype=bool))))
    case = with_parameters(circuit, ("real",), Shape(samples=3, missing=False), np.random.default_rng(0))
    inputs = {node: torch.tensor([[0.0, 1.0], [20.0, 1.0]], dtype=torch.float64) for node in case.inputs}
    case = replace(case, inputs=inputs, x=np.array([[0.0], [20.0], [10.0]]), sample_weights=None)
    check(case)
    assert float(case.statistics().curvature.local[0].max()) > 0


def test_weights_of_zero_are_left_to_the_reference():
    case = tree(3)
    zero = {node: torch.eye(*w.shape, dtype=torch.float64)[:, : w.shape[1]] for node, w in case.weights.items()}
    case = replace(case, weights=zero)
    with pytest.raises(OptionError, match="weights of zero"):
        choose_backend(case.program, on_device(case), "fused")


def test_a_product_at_the_root_is_left_to_the_reference():
    program = compile(Circuit(Product([Input(0, Gaussian()), Input(1, Gaussian())])))
    assert blueprint_for(program) == "an output is a product or a single input"


def test_float64_is_left_to_the_reference():
    case = tree(3)
    with pytest.raises(OptionError, match="compute in float32"):
        choose_backend(case.program, case.params.to(DEVICE), "fused")


def test_the_kernels_are_named():
    text = fused(tree(5)).describe()
    assert text.startswith("fused: CUDA kernels on")
    assert "one kernel" in text
