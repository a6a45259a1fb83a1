"""The E-step kernels with the arithmetic of a GPU, on inputs at the edge of float32: finite, and what float64 gives.

Without a GPU the kernels run in the interpreter inside `gpu_arithmetic()`, with products of matrices as tensor cores
compute them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from extreme_cases import (
    FLOOR,
    bernoulli,
    equal_children,
    impossible_samples,
    outlier_chain,
    rare_child,
    rare_leaf,
    wide_product,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import ALL, Case, Samples
from circuits import all_sums as listed_sums
from circurve.engine import Params, Statistics, choose_backend
from circurve.engine.cuda import Fused
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli
from gpu_arithmetic import gpu_arithmetic

pytest.importorskip("triton")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FLOAT32 = 2e-4
"""Relative to the largest entry of a sum, as in `test_fused.py`."""

TENSOR_CORES = "tf32x3"
"""How the kernels multiply matrices on a GPU; in the interpreter they would multiply exactly."""


def as_on_a_gpu(case: Case) -> Statistics:
    """All sums of the E-step in float32."""
    backend, samples = prepared(case)
    with gpu_arithmetic():
        return backend.statistics(on_device(case), [samples.rows(0, len(samples))], ALL)


def all_sums(sums: Statistics) -> list[torch.Tensor]:
    """All sums, with that of F (1 + log t) for F log t: where t is nearly 1, log t has the relative error of t."""
    curvature = sums.curvature
    pairs = zip(curvature.flow_log_local, curvature.flow, strict=True)
    return listed_sums(replace(sums, curvature=replace(curvature, flow_log_local=tuple(a + b for a, b in pairs))))


def on_device(case: Case) -> Params:
    return case.params.to(DEVICE, torch.float32)


def prepared(case: Case) -> tuple[Fused, Samples]:
    backend = choose_backend(case.program, on_device(case), "fused")
    assert isinstance(backend, Fused)
    backend.engine.launch.dot = TENSOR_CORES
    found = case.samples(torch.float32)
    return backend, Samples(found.table.to(DEVICE), torch.float32)


def in_float64(case: Case) -> Statistics:
    """The same sums by the reference."""
    return case.backend().statistics(rounded(case), [case.samples().rows(0, len(case.x))], ALL)


def rounded(case: Case) -> Params:
    """The parameters as float32 holds them, in float64."""
    return case.params.to("cpu", torch.float32).to("cpu", torch.float64)


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    scale = max(float(wanted.abs().max()), 1e-3)
    return float((found.double().cpu() - wanted.double()).abs().max()) / scale


def assert_right(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> None:
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert bool(a.isfinite().all()), f"sum {number}: {a.flatten()[:4].tolist()}, not {b.flatten()[:4].tolist()}"
        assert difference(a, b) < FLOAT32, f"sum {number}: {a.flatten()[:4].tolist()}, not {b.flatten()[:4].tolist()}"


# -- what holds


@pytest.mark.parametrize("masked", [False, True], ids=["dense", "masked"])
@pytest.mark.parametrize("weight", [1e-36, 1e-20, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("floor", [FLOOR, 0.3], ids=["floor", "plain"])
def test_sample_weights(weight, floor, masked):
    case = rare_child(floor, weight, masked)
    assert_right(all_sums(as_on_a_gpu(case)), all_sums(in_float64(case)))


@pytest.mark.parametrize("weight", [1e-36, 1.0, 1e8])
@pytest.mark.parametrize("floor", [FLOOR, 0.3], ids=["floor", "plain"])
def test_sample_weights_of_sums_over_inputs(weight, floor):
    case = rare_leaf(floor, weight)
    assert_right(all_sums(as_on_a_gpu(case)), all_sums(in_float64(case)))


@pytest.mark.parametrize("weight", [1e-45, 1e-40, 1e8])
@pytest.mark.parametrize("build", [rare_child, lambda *a: rare_child(*a, masked=True), rare_leaf])
def test_counts_at_any_sample_weight(weight, build):
    """Flows and counts; only the squares of curvature sums leave the range of float32."""
    case = build(FLOOR, weight)
    found, wanted = as_on_a_gpu(case), in_float64(case)
    assert_right([*found.counts, *found.inputs, found.weight], [*wanted.counts, *wanted.inputs, wanted.weight])


@pytest.mark.parametrize("masked", [False, True], ids=["dense", "masked"])
def test_samples_of_probability_zero(masked):
    case = impossible_samples(masked)
    found, wanted = as_on_a_gpu(case), in_float64(case)
    assert_right(all_sums(found), all_sums(wanted))
    assert 0 < int(wanted.impossible) < len(case.x)
    assert torch.equal(found.impossible.cpu(), wanted.impossible)


def test_kernels_by_blocks(monkeypatch):
    monkeypatch.setattr("circurve.engine.cuda.launch.BUSY_SHARE", 0)
    for case in (rare_child(FLOOR, 1.0), impossible_samples()):
        assert_right(all_sums(as_on_a_gpu(case)), all_sums(in_float64(case)))


def test_wide_products():
    case = wide_product(1400 if DEVICE.type == "cuda" else 100)
    assert_right(all_sums(as_on_a_gpu(case)), all_sums(in_float64(case)))


def test_log_probabilities_of_very_wide_products():
    """Adding n logs one by one is off by at most n 2^-24 of their sum; log(1 - p) by 2^-24 for each factor."""
    case, bound = wide_product(1400), 1400 * 2.0**-24
    backend, samples = prepared(case)
    with gpu_arithmetic():
        found = backend.log_prob(on_device(case), samples.rows(0, 3)).cpu()
    wanted = case.backend().log_prob(rounded(case), case.samples().rows(0, 3))
    torch.testing.assert_close(found.double(), wanted.double(), rtol=bound, atol=bound)


probabilities = st.sampled_from([0.0, 1e-6, 0.02, 0.5, 1 - 1e-6, 1.0])
exponents = st.floats(-12, 0)


@st.composite
def extremes(draw) -> Case:
    """Two layers of three units with weights from the floor to one, inputs at their bounds, any sample weights."""
    masked = draw(st.booleans())
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=bool) if masked else None
    leaves = [Input(v, Bernoulli(), 3) for v in range(3)]
    inputs: dict[Node, torch.Tensor] = {leaf: bernoulli(*draw(st.tuples(*[probabilities] * 3))) for leaf in leaves}
    sums = [Sum(Product(leaves[:2]), 3, mask)]
    sums.append(Sum(Product([sums[0], leaves[2]])))
    weights: dict[Node, torch.Tensor] = {}
    for node in sums:
        rows = 10.0 ** torch.tensor(draw(st.lists(exponents, min_size=3 * node.units, max_size=3 * node.units)))
        rows = rows.view(node.units, 3).double() * torch.from_numpy(mask if node.mask is not None else np.ones((1, 3)))
        rows = (rows / rows.sum(1, keepdim=True)).clamp_min(FLOOR) * (rows > 0)
        weights[node] = rows / rows.sum(1, keepdim=True)
    x = np.array(list(np.ndindex(2, 2, 2)), dtype=float)
    sample_weights = 10.0 ** torch.tensor(
        draw(st.lists(st.floats(-36, 6), min_size=8, max_size=8)), dtype=torch.float64
    )
    return Case(Circuit(sums[-1]), ("binary",) * 3, weights, inputs, x, sample_weights)


@given(case=extremes())
@settings(max_examples=100 if DEVICE.type == "cuda" else 15, deadline=None)
def test_any_mixture_of_extremes(case):
    """Sample weights from 1e-36 to 1e6; single cases beyond that are below."""
    found, wanted = as_on_a_gpu(case), in_float64(case)
    assert_right(all_sums(found), all_sums(wanted))
    assert torch.equal(found.impossible.cpu(), wanted.impossible)


# -- single places that once failed


@dataclass(frozen=True)
class Place:
    """A place in the code, a case that strains it, and the sum that would be wrong."""

    name: str
    case: Case
    statistic: str
    """A field of `Statistics` or of its curvature."""

    layer: int = 0
    exact: bool = True
    """Whether float32 can hold the right number; else it only has to be finite."""


TINY_WEIGHT = "1 / w is infinite for a sample weight below 2.9e-39, and the square of its flow is 0: 0 inf = NaN"
TINY_PRODUCT = (
    "q / w is infinite for a sample weight of 1e-38 and 16 children, and the ratio's square is 0: 0 inf = NaN"
)
HUGE_SQUARE = "(F / S)^2 overflows at a sample weight of 1e8 and S = 1e-12, though (F / S)^2 / w does not"
HUGE_LOCAL = "w q / S^2 overflows in float32 at w = 1e8 and S = 2e-16: only float64, or a bound, holds it"
LOST_DIGITS = "1 / S = exp(m - log p): both logs are so large that their difference has lost its digits"

KERNEL_PLACES = [
    (TINY_WEIGHT, Place("kernels._ratio flow_squared", rare_child(0.3, 1e-40), "flow_squared")),
    (TINY_WEIGHT, Place("kernels._ratio total", rare_child(0.3, 1e-45), "total")),
    (TINY_PRODUCT, Place("kernels._ratio total of many children", equal_children(16, 1e-38), "total")),
    (TINY_WEIGHT, Place("kernels.counts MODE 2", rare_child(0.3, 1e-40), "second_moment")),
    (TINY_WEIGHT, Place("small_kernels.by_state, F^2 of leaves", rare_leaf(0.3, 1e-40), "flow_squared")),
    (TINY_WEIGHT, Place("small_kernels.by_state, T of leaves", rare_leaf(0.3, 1e-40), "total")),
    (TINY_WEIGHT, Place("small_kernels.by_state, S of leaves", rare_leaf(0.3, 1e-40), "second_moment")),
    (TINY_WEIGHT, Place("edge_kernels.edge_ratios flow_squared", rare_child(0.3, 1e-40, True), "flow_squared")),
    (TINY_WEIGHT, Place("edge_kernels.edge_ratios total", rare_child(0.3, 1e-40, True), "total")),
    (TINY_WEIGHT, Place("edge_kernels.edge_counts MODE 2", rare_child(0.3, 1e-40, True), "second_moment")),
    (HUGE_SQUARE, Place("kernels._ratio ratio * ratio", rare_child(FLOOR, 1e8), "total")),
    (HUGE_SQUARE, Place("kernels.counts MODE 2 a * a", rare_child(FLOOR, 1e8), "second_moment")),
    (HUGE_SQUARE, Place("edge_kernels.edge_counts MODE 2 scaled^2", rare_child(FLOOR, 1e8, True), "second_moment")),
    (HUGE_LOCAL, Place("kernels._ratio local", rare_child(2e-16, 1e8), "local", exact=False)),
    (HUGE_LOCAL, Place("edge_kernels.edge_ratios local", rare_child(2e-16, 1e8, True), "local", exact=False)),
    (HUGE_LOCAL, Place("edge_kernels.edge_ratios local * square", rare_child(2e-16, 1e8, True), "total", exact=False)),
    (HUGE_LOCAL, Place("small_kernels.leaf_units weight * here", rare_leaf(2e-16, 1e8, 1e-20), "local", exact=False)),
    (LOST_DIGITS, Place("kernels._ratio at -1e5", outlier_chain(4, 450.0), "counts")),
    (LOST_DIGITS, Place("kernels._ratio at -5e7", outlier_chain(4, 1e4), "counts")),
    (LOST_DIGITS, Place("kernels._ratio at -5e7, 60 levels", outlier_chain(60, 1e4), "counts", exact=False)),
    (LOST_DIGITS, Place("kernels._ratio local at -5e7", outlier_chain(4, 1e4), "local")),
    (LOST_DIGITS, Place("kernels.counts MODE 1 at -5e7", outlier_chain(4, 1e4), "ratio")),
    (HUGE_LOCAL, Place("kernels._ratio F t", rare_child(2e-16, 1e8), "flow_local", exact=False)),
    (HUGE_LOCAL, Place("edge_kernels.edge_ratios F t", rare_child(2e-16, 1e8, True), "flow_local", exact=False)),
    (HUGE_LOCAL, Place("kernels.counts MODE 3", rare_child(2e-16, 1e8), "squared_ratio", exact=False)),
    (HUGE_LOCAL, Place("edge_kernels.edge_counts MODE 3", rare_child(2e-16, 1e8, True), "squared_ratio", exact=False)),
    (LOST_DIGITS, Place("kernels.counts MODE 3 at -5e7", outlier_chain(4, 1e4), "squared_ratio")),
    (LOST_DIGITS, Place("kernels._ratio F log t at -5e7", outlier_chain(4, 1e4), "flow_log_local")),
    (LOST_DIGITS, Place("edge_kernels.edge_flows at -5e7", outlier_chain(2, 1e4, True), "counts", layer=1)),
    (LOST_DIGITS, Place("edge_kernels.edge_ratios at -5e7", outlier_chain(2, 1e4, True), "local")),
    (LOST_DIGITS, Place("edge_kernels.edge_counts MODE 1 at -5e7", outlier_chain(2, 1e4, True), "ratio")),
]


REFERENCE_PLACES = [
    (TINY_WEIGHT, Place("sums.inverse_weight flow_squared", rare_child(0.3, 1e-40), "flow_squared")),
    (TINY_WEIGHT, Place("sums.inverse_weight total", rare_child(0.3, 1e-40), "total")),
    (TINY_WEIGHT, Place("sums.inverse_weight second_moment", rare_child(0.3, 1e-40), "second_moment")),
    (TINY_WEIGHT, Place("sums.inverse_weight of masked sums", rare_child(0.3, 1e-40, True), "total")),
    (TINY_WEIGHT, Place("state_sums, T of leaves", rare_leaf(0.3, 1e-40), "total")),
    (HUGE_SQUARE, Place("second moments", rare_child(FLOOR, 1e8), "second_moment")),
    (HUGE_SQUARE, Place("second moments of masked sums", rare_child(FLOOR, 1e8, True), "second_moment")),
    (HUGE_LOCAL, Place("local", rare_child(2e-16, 1e8), "local", exact=False)),
    (HUGE_LOCAL, Place("local of masked sums", rare_child(2e-16, 1e8, True), "local", exact=False)),
    (HUGE_LOCAL, Place("squared ratios", rare_child(2e-16, 1e8), "squared_ratio", exact=False)),
    (HUGE_LOCAL, Place("squared ratios of masked sums", rare_child(2e-16, 1e8, True), "squared_ratio", exact=False)),
    (HUGE_LOCAL, Place("F t", rare_child(2e-16, 1e8), "flow_local", exact=False)),
    (HUGE_LOCAL, Place("state_sums, local of leaves", rare_leaf(2e-16, 1e8, 1e-20), "local", exact=False)),
]
"""The reference in float32, which shares no code with the kernels."""


def listed(places: list[tuple[str, Place]]) -> list[Any]:
    return [pytest.param(reason, place, id=place.name) for reason, place in places]


def sum_of(found: Statistics, place: Place) -> torch.Tensor:
    record = found if place.statistic == "counts" else found.curvature
    return getattr(record, place.statistic)[place.layer]


def assert_holds(found: Statistics, place: Place, reason: str) -> None:
    sums = sum_of(found, place)
    assert bool(sums.isfinite().all()), reason
    if place.exact:
        assert difference(sums, sum_of(in_float64(place.case), place)) < FLOAT32, reason


@pytest.mark.parametrize(("reason", "place"), listed(KERNEL_PLACES))
def test_sums_stay_finite_and_right(reason, place):
    assert_holds(as_on_a_gpu(place.case), place, reason)


@pytest.mark.parametrize(("reason", "place"), listed(REFERENCE_PLACES))
def test_the_reference_in_float32_stays_finite_and_right(reason, place):
    case = place.case
    batch = case.samples(torch.float32).rows(0, len(case.x))
    found = case.backend(torch.float32).statistics(case.params.to("cpu", torch.float32), [batch], ALL)
    assert_holds(found, place, reason)


@pytest.mark.parametrize("masked", [False, True], ids=["dense", "masked"])
def test_the_reference_keeps_the_digits_of_outliers(masked):
    """It divides by S itself: what the kernels are asked for above can be had in float32."""
    case = outlier_chain(4, 1e4, masked)
    batch = case.samples(torch.float32).rows(0, len(case.x))
    found = case.backend(torch.float32).statistics(case.params.to("cpu", torch.float32), [batch], ALL)
    assert_right(all_sums(found)[:-2], all_sums(in_float64(case))[:-2])
