"""Sums whose own children underflow next to a larger one that they do not use.

The circuit: an input a, whose units 0, 1, 2 lie 0, gap and gap + 1 nats below the largest at x0 = 0; a sum of two units
over them, of which unit 1 does not use a_0; a product with b, which decides whether unit 1 matters. Written out,

    log p = log sum_u omega_u S_u(x0) b_u(x1) c(x2),    S_u = sum_c theta_uc a_c,

in logs, so that the reference does not underflow whatever the gap.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from circuits import ALL, all_sums, assert_close
from circurve.data import as_table, check
from circurve.engine import Batch, Reference, Statistics, from_nodes, stack
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian, Indicator
from circurve.model import Model
from circurve.structures import mixture

USED = torch.tensor([[True, False, True], [False, True, True]])
THETA = torch.tensor([[0.75, 0.0, 0.25], [0.0, 0.375, 0.625]], dtype=torch.float64)
OMEGA = torch.tensor([0.625, 0.375], dtype=torch.float64)


@dataclass(frozen=True)
class Example:
    """The model, samples (N, 3), and the reference."""

    gap: float
    masked: bool

    @property
    def model(self) -> Model:
        a, b, c = Input(0, Gaussian(), 3), Input(1, Gaussian(), 2), Input(2, Indicator((0, 0)), 2)
        mixed = Sum(a, 2, USED.numpy() if self.masked else None, name="mixed")
        root = Sum(Product([mixed, b, c]), name="root")
        weights = {mixed: THETA, root: OMEGA}
        return Model.from_parameters(Circuit(root), weights, {a: self.at(self.far), b: self.at([30.0, 0.0])})

    @property
    def far(self) -> list[float]:
        """Means whose log-densities at 0 lie 0, gap and gap + 1 below the largest."""
        return [0.0, math.sqrt(2 * self.gap), math.sqrt(2 * self.gap + 2)]

    def at(self, means: list[float]) -> torch.Tensor:
        return torch.tensor([[mean, 1.0] for mean in means], dtype=torch.float64)

    @property
    def x(self) -> np.ndarray:
        """Unit 1 matters; unit 1 does not; nothing underflows; something between; unit 1 matters again."""
        return np.array([[0, 0, 0], [0, 30, 0], [self.far[1], 0, 0], [0.5, 1, 0], [0, 0.25, 0]], dtype=float)

    def statistics(self, dtype: torch.dtype, x: np.ndarray, weights: torch.Tensor | None = None) -> Statistics:
        model = self.model.to(dtype=dtype)
        table = check(as_table(x, weights=weights), model.circuit.families)
        return model.backend.statistics(model.params, [Batch.rows(table, 0, len(x), dtype)], ALL)


def log_normal(x: torch.Tensor, means: list[float]) -> torch.Tensor:  # (N,) -> (units, N)
    return -0.5 * (x - torch.tensor(means, dtype=torch.float64)[:, None]) ** 2 - 0.5 * math.log(2 * math.pi)


def reference(example: Example, x: np.ndarray) -> dict[str, torch.Tensor]:
    """log p (N,), and per sample of the inner sum: flow (2, N), gradients and ratios (2, 3, N)."""
    columns = torch.from_numpy(x).T
    theta = THETA[:, :, None].repeat(1, 1, len(x)).requires_grad_()
    log_a, log_b = log_normal(columns[0], example.far), log_normal(columns[1], [30.0, 0.0])
    log_s = torch.where(USED[:, :, None], theta.log() + log_a, -torch.inf).logsumexp(1)  # (2, N)
    log_s.retain_grad()
    log_p = (OMEGA.log()[:, None] + log_s + log_b).logsumexp(0)
    log_p.sum().backward()
    seen = USED[:, :, None] if example.masked else torch.ones(2, 3, 1, dtype=torch.bool)
    return {
        "log_p": log_p.detach(),
        "flow": log_s.grad,
        "edge_flow": torch.where(USED[:, :, None], theta.grad * theta, 0.0).detach(),
        "ratio": torch.where(seen, (log_a - log_s[:, None]).exp(), 0.0).detach(),
    }


GAPS = [20.0, 37.0, 50.0, 68.0, 75.0, 300.0]


@pytest.mark.parametrize("masked", [True, False], ids=["mask", "zero weight"])
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_unit_far_below_its_sibling_is_exact(gap, masked, dtype):
    check_example(Example(gap, masked), dtype)


@pytest.mark.parametrize("gap", [353.0, 400.0, 620.0, 660.0, 700.0, 2000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_masked_unit_is_exact_however_far_below(gap, dtype):
    check_example(Example(gap, masked=True), dtype)


def check_example(example: Example, dtype: torch.dtype) -> None:
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4 + 1e-6 * example.gap
    wanted = reference(example, example.x)
    model = example.model.to(dtype=dtype)
    assert_close(torch.from_numpy(model.log_prob(example.x)), wanted["log_p"], tolerance)
    found = example.statistics(dtype, example.x, weights := torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]).double())
    total = wanted["flow"].square() * wanted["ratio"].square().sum(1)
    curvature = found.curvature
    for got, want in [
        (found.counts[0][0, 0], wanted["edge_flow"]),
        (found.unit_flow()[0][0, 0], wanted["flow"]),
        (curvature.flow_squared[0][0, 0], wanted["flow"].square()),
        (curvature.local[0][0, 0], wanted["ratio"].square().sum(1)),
        (curvature.total[0][0, 0], total),
        (curvature.second_moment[0][0, 0], wanted["edge_flow"].square()),
    ]:
        assert_close(got, (want * weights).sum(-1), 2 * tolerance)
    if example.masked or dtype == torch.float64 or example.gap < 80:  # else the ratio itself is beyond float32
        assert_close(curvature.ratio[0][0, 0], (wanted["ratio"] * weights).sum(-1), 2 * tolerance)
    features = torch.stack([torch.ones(5).double(), *(torch.from_numpy(example.x[:, 0]) ** p for p in (1, 2))])
    assert_close(found.inputs[0][0, 0], (wanted["edge_flow"].sum(0) * weights) @ features.T, 2 * tolerance)


@pytest.mark.parametrize("gap", [300.0, 400.0, 800.0, 5000.0])
@pytest.mark.parametrize("masked", [True, False], ids=["mask", "zero weight"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_impossible_sample_that_underflows_is_left_out_without_a_trace(gap, masked, dtype):
    example = Example(gap, masked)
    impossible = np.array([[0.0, 0.0, 1.0], [example.far[1], 0.0, 1.0]])
    possible = example.x[2:3]
    found = example.statistics(dtype, np.concatenate([impossible, possible]))
    alone = example.statistics(dtype, possible)
    assert found.impossible.tolist() == [2]
    assert found.weight.tolist() == [1.0]
    for a, b in zip(all_sums(found), all_sums(alone), strict=True):
        assert not a.isnan().any()
        assert_close(a, b, 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_curvature_of_a_zero_weight_beyond_all_range_is_infinite_but_never_nan(dtype):
    """rho^2 = exp(2 x 800) has no floating number: t is infinite; a flow that is zero still has T = 0."""
    example = Example(800.0, masked=False)
    found = example.statistics(dtype, example.x)
    assert not any(tensor.isnan().any() for tensor in all_sums(found))
    assert found.curvature.local[0][0, 0, 1] == torch.inf
    alone = example.statistics(dtype, example.x[1:2])  # unit 1 has no flow
    assert alone.unit_flow()[0][0, 0, 1] == 0
    assert alone.curvature.total[0][0, 0, 1] == 0


def test_a_repair_is_split_when_it_has_very_many_entries(monkeypatch):
    example = Example(300.0, masked=True)
    whole = example.statistics(torch.float32, np.repeat(example.x, 3, axis=0))
    monkeypatch.setattr("circurve.engine.reference.upward.ENTRIES_AT_ONCE", 3)
    parts = example.statistics(torch.float32, np.repeat(example.x, 3, axis=0))
    for a, b in zip(all_sums(whole), all_sums(parts), strict=True):
        assert_close(a, b, 1e-6)


def test_a_fleet_repairs_each_run_with_its_own_weights():
    example = Example(300.0, masked=False)
    first = example.model.params.to(dtype=torch.float32)
    model = example.model
    mixed = next(node for node in model.circuit.sums if node.name == "mixed")
    root, inputs = model.circuit.roots[0], {node: model.input_parameters(node) for node in model.circuit.inputs}
    other = {mixed: [[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]], root: [0.5, 0.5]}
    second = from_nodes(model.program, other, inputs).to(dtype=torch.float32)
    fleet = stack([first, second])
    batch = Batch.rows(check(as_table(example.x), model.circuit.families), 0, 5, torch.float32)
    together, single = (Reference.of(model.program, params) for params in (fleet, first))
    both, values = together.statistics(fleet, [batch], ALL), together.log_prob(fleet, batch)
    for run, params in enumerate((first, second)):
        assert_close(values[run], single.log_prob(params, batch)[0], 1e-6)
        for a, b in zip(all_sums(both), all_sums(single.statistics(params, [batch], ALL)), strict=True):
            assert_close(a[run], b[0], 1e-6)


def test_a_flushed_element_matters_where_the_others_have_the_smallest_weights():
    # s1[0] hears, with all its weight, an element that float32 flushes; the others reach it with weights of 1e-12
    floor, near = 1e-12, 0.999
    first = Input(0, Bernoulli(), 3)
    others = [Input(v, Bernoulli(), 3) for v in range(1, 17)]
    mixed = Sum(Product(others), 3)
    root = Sum(Product([first, mixed]), 1)
    fours = [
        (2.6e-12, 1.8e-18, near**4),
        (1e-13, 0.9e-19, near**4),
        (near**4, near**4, 1e-12),
        (near**4, near**4, 1e-13),
    ]
    inputs = {node: np.array([[p**0.25] for p in fours[(node.variable - 1) // 4]]) for node in others}
    rest = 1 - 2 * floor
    weights = {
        mixed: np.array([[floor, rest, floor], [rest, floor, floor], [rest, floor, floor]]),
        root: np.array([[rest, floor, floor]]),
    }
    model = Model.from_parameters(Circuit(root), weights, inputs | {first: np.full((3, 1), 0.5)})
    x = np.ones((1, 17))
    assert model.to(dtype=torch.float32).log_prob(x) == pytest.approx(model.log_prob(x), rel=1e-6)


@pytest.mark.parametrize("far", [1e-8, 1e-10])
def test_very_improbable_states_multiply(far):
    circuit = mixture(12, 2)
    columns = [[far] * 4 + [0.5] * 8, [0.5] * 4 + [10**-5.5] * 8]
    inputs = {node: np.array([[column[node.variable]] for column in columns]) for node in circuit.inputs}
    model = Model.from_parameters(circuit, {}, inputs)
    exact = np.logaddexp(*(np.log(column).sum() for column in columns)) + np.log(0.5)
    assert model.log_prob(np.ones((1, 12)))[0] == pytest.approx(exact, rel=1e-12)
    assert model.to(dtype=torch.float32).log_prob(np.ones((1, 12)))[0] == pytest.approx(exact, rel=1e-6)
