"""The M-step over the whole range of floating numbers: every row is finite, on the simplex and without zeros."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from circurve.engine import CurvatureSums, Params, Program, Statistics, compile
from circurve.engine.numerics import LIMITS, MIN_STEP, WEIGHT_FLOOR, effective_step
from circurve.graph import Circuit, Input, Sum
from circurve.inputs import Bernoulli
from circurve.learning import Gated, Global, Vanilla
from circurve.learning.gates import NodeCurvature
from circurve.learning.mstep import LayerSums, Penalty, Target, moved_weights, normalized_counts, regularised_weights
from circurve.learning.plan import Plan
from mstep_cases import Fleet, Layer, check_rows, draw_fleet, draw_mask, flush, held, layer_of

DTYPES = [torch.float32, torch.float64]
both_types = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
both_modes = pytest.mark.parametrize("flushed", [False, True], ids=["subnormals kept", "subnormals flushed"])


def program_of(rng: np.random.Generator, units: int, children: int, masked: bool) -> Program:
    mask = draw_mask(rng, units, children, masked)
    return compile(Circuit(Sum(Sum(Input(0, Bernoulli(), children), units, mask if masked else None))))


def layers_of(program: Program, fleet: Fleet, rng: np.random.Generator) -> list[Layer]:
    masks = [np.ones(s.shape, dtype=bool) if s.mask is None else s.mask for s in program.sums]
    return [layer_of(fleet, rng, mask.reshape(-1, mask.shape[-1])) for mask in masks]


def step(
    program: Program, fleet: Fleet, layers: list[Layer], dtype: torch.dtype, flushed: bool
) -> list[Tensor]:  # (R, K, C) each
    """One M-step of the plan."""
    runs, gates = fleet.runs, torch.cat([layer.gates for layer in layers], dim=1)  # (R, M)
    methods = [_with_gate(method, gates[run]) for run, method in enumerate(fleet.methods)]
    shapes = [(runs, *s.shape) for s in program.sums]

    def parts(values: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(value.to(dtype).view(shape) for value, shape in zip(values, shapes, strict=True))

    units = tuple(torch.ones(shape[:-1], dtype=torch.float64) for shape in shapes)
    moments = parts([layer.moments for layer in layers])
    inputs = torch.full((runs, *program.inputs[0].shape, 1), 0.5, dtype=dtype)
    sums = Statistics(
        counts=parts([layer.counts for layer in layers]),
        inputs=(torch.ones(*inputs.shape[:-1], 2, dtype=dtype),),
        log_likelihood=torch.zeros(runs, dtype=torch.float64),
        weight=fleet.batch,
        impossible=torch.zeros(runs, dtype=torch.int64),
        broken=torch.zeros(runs, dtype=torch.int64),
        curvature=CurvatureSums(units, units, units, second_moment=moments),
    )
    plan = Plan(program, methods, inputs)
    params = Params(parts([layer.old for layer in layers]), (inputs,))
    with flush(flushed):
        moved = plan.maximize(params, sums, fleet.steps, fleet.mus)
    return [weights.flatten(1, 2) for weights in moved.weights]


def _with_gate(method: Vanilla | Global | Gated, gates: Tensor) -> Vanilla | Global | Gated:
    """`Gated` with these gates, whatever the curvature."""
    if not isinstance(method, Gated):
        return method

    def fixed(curvature: NodeCurvature) -> Tensor:
        return gates

    options = {name: value for name, value in vars(method).items() if name not in ("mu", "gate")}
    return Gated(method.mu, fixed, **options)


def check_step(seed: int, children: int, masked: bool, dtype: torch.dtype, flushed: bool) -> None:
    rng = np.random.default_rng(seed)
    program = program_of(rng, 6, children, masked)
    fleet = draw_fleet(rng)
    layers = layers_of(program, fleet, rng)
    found = step(program, fleet, layers, dtype, flushed)
    for weights, layer in zip(found, layers, strict=True):
        check_rows(weights, layer, dtype)


@both_types
@both_modes
@pytest.mark.parametrize("masked", [False, True], ids=["all edges", "masked"])
@pytest.mark.parametrize("children", [1, 2, 5, 33, 200])
def test_rows_stay_on_the_simplex(children, masked, flushed, dtype):
    check_step(children, children, masked, dtype, flushed)


@both_types
@both_modes
@given(seed=st.integers(0, 2**32), children=st.integers(1, 200), masked=st.booleans())
@settings(max_examples=12, deadline=None)
def test_rows_stay_on_the_simplex_for_any_seed(seed, children, masked, flushed, dtype):
    check_step(seed, children, masked, dtype, flushed)


@both_modes
def test_single_precision_follows_double_precision(flushed):
    """Up to flushed counts: a weight changes by at most sqrt(tiny / least flow), see engine/numerics.py."""
    rng = np.random.default_rng(7)
    limits = LIMITS[torch.float32]
    program = program_of(rng, 40, 9, False)
    fleet = draw_fleet(rng, steps=(1.0,))
    layers = layers_of(program, fleet, rng)
    for layer in layers:
        layer.moments[layer.moments < limits.smallest_normal] = 0
    single, double = (step(program, fleet, layers, dtype, flushed) for dtype in DTYPES)
    for found, wanted, layer in zip(single, double, layers, strict=True):
        moves = ~held(layer.counts, torch.float32)[..., 0]
        assert 0.3 < float(moves.double().mean()) < 1
        lost = (limits.smallest_normal / limits.least_flow) ** 0.5
        torch.testing.assert_close(found[moves].double(), wanted[moves], rtol=1e-5, atol=lost)


# --- limits of the penalty ---


@both_types
@pytest.mark.parametrize("size", [1e-20, 1e-12, 1.0, 1e8])
@pytest.mark.parametrize("simplex", ["normalize", "exact"])
@pytest.mark.parametrize("penalty", ["surrogate", "exact"])
def test_endless_strength_leaves_a_root_of_the_statistics_at_every_size_of_the_counts(penalty, simplex, size, dtype):
    drawn = torch.rand(1, 3, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    counts = drawn * size
    moments = counts * drawn.flip(-1)
    limit = counts.sqrt() if penalty == "surrogate" else moments ** (1 / 3)
    found = _regularised(counts.to(dtype), moments.to(dtype) if penalty == "exact" else None, 1e300, simplex)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), limit / limit.sum(-1, keepdim=True), rtol=40 * eps, atol=0)


def _regularised(counts: Tensor, moments: Tensor | None, strength: float, simplex: str) -> Tensor:
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    strengths = torch.full((*counts.shape[:-1], 1), strength, dtype=torch.float64)
    penalty = Penalty(strengths, None if simplex == "exact" else one, None)
    return regularised_weights(LayerSums(counts, moments, None), None, penalty).weights


# --- the edge of the rule ---


def targets() -> list[Callable[[Tensor], Target]]:
    """Plain EM, and the strongest of each penalty."""
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)

    def plain(counts: Tensor) -> Target:
        return normalized_counts(LayerSums(counts, None, None), None)

    def penalised(exact: bool) -> Callable[[Tensor], Target]:
        return lambda counts: regularised_weights(
            LayerSums(counts, counts if exact else None, None), None, Penalty(1e300 * one, one, None)
        )

    return [plain, penalised(False), penalised(True)]


@both_types
@both_modes
@pytest.mark.parametrize("target", targets(), ids=["plain", "surrogate", "exact"])
def test_a_row_moves_from_the_least_flow_on(target, flushed, dtype):
    least = LIMITS[dtype].least_flow
    edge = torch.tensor(least, dtype=dtype)
    below = torch.nextafter(edge, torch.zeros((), dtype=dtype))
    counts = torch.zeros(1, 1, 2, 3, dtype=dtype)
    counts[0, 0, 0, 1], counts[0, 0, 1, 1] = below, edge
    old = torch.full((1, 1, 2, 3), 1 / 3, dtype=dtype)
    with flush(flushed):
        found = moved_weights(old, target(counts), torch.ones(1, 1, 1, 1, dtype=dtype))
    assert torch.equal(found[0, 0, 0], old[0, 0, 0])
    assert bool((found[0, 0, 1] > 0).all())
    assert float(found[0, 0, 1, 1]) == pytest.approx(1.0, rel=1e-6)


@both_types
@both_modes
@pytest.mark.parametrize("size", [1e-300, 1e-45, 1e-30, MIN_STEP, 1e-3, 0.1, 0.4999, 0.5, 0.9, 1.0])
def test_no_step_makes_a_weight_zero_or_leaves_the_simplex(size, flushed, dtype):
    tiny, floor = LIMITS[dtype].smallest_normal / 8, WEIGHT_FLOOR
    old = torch.tensor([[[[tiny, floor, 0.25, 0.75 - floor]]]], dtype=dtype)
    best = torch.tensor([[[[floor, 1 - 3 * floor, floor, floor]]]], dtype=dtype)
    with flush(flushed):
        step = effective_step(torch.full((1, 1, 1, 1), size, dtype=torch.float64)).to(dtype)
        forth = moved_weights(old, Target(best, None), step)
        back = moved_weights(best, Target(best.flip(-1), None), step)
    for found in (forth, back):
        assert bool((found > 0).all())
        assert float(found.double().sum()) == pytest.approx(1, abs=4 * torch.finfo(dtype).eps)
