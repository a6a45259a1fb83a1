"""The kernels of the M-step over the whole range of floating numbers, as the interpreter and as a GPU compute."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from kernel_steps import DEVICE, Step, kernel_step

from circurve.engine.numerics import INPUT_FLOOR, LIMITS, effective_step
from circurve.inputs import Bernoulli, Categorical, Family
from circurve.learning import Vanilla
from circurve.learning.mstep import (
    LayerSums,
    Penalty,
    Target,
    moved_inputs,
    moved_weights,
    normalized_counts,
    regularised_weights,
)
from gpu_arithmetic import gpu_arithmetic
from mstep_cases import STEPS, Fleet, Layer, check_rows, draw_fleet, draw_mask, held, layer_of

Arithmetic = Callable[[], AbstractContextManager[None]]


def plain_arithmetic() -> AbstractContextManager[None]:
    """As the interpreter computes; overflow does not warn, as a GPU does not."""
    return np.errstate(all="ignore")


both_modes = pytest.mark.parametrize(
    "arithmetic", [plain_arithmetic, gpu_arithmetic], ids=["interpreter", "GPU arithmetic"]
)


def step_of(fleet: Fleet) -> Step:
    """What the kernels are told of each run."""
    forms, multiplier, scale = [], [], []
    for method, batch in zip(fleet.methods, fleet.batch.tolist(), strict=True):
        vanilla = isinstance(method, Vanilla)
        forms.append(0 if vanilla else 2 * (method.penalty == "exact") + (method.simplex == "exact"))
        multiplier.append(1.0 if vanilla else method.multiplier)
        scale.append(batch if not vanilla and method.mu_scale == "mean" else 1.0)
    numbers = (fleet.mus, fleet.steps, multiplier, scale, [m.pseudocount for m in fleet.methods])
    return Step(torch.tensor(forms, dtype=torch.int32), *(torch.tensor(n, dtype=torch.float64) for n in numbers))


def formulas(layer: Layer, step: Step) -> Tensor:  # (R, K, C) float64
    """The same steps by the torch formulas, in float64; second moments that float32 flushes count as zero."""
    counts, old = layer.counts.double().unsqueeze(1), layer.old.double().unsqueeze(1)
    moments = torch.where(layer.moments < LIMITS[torch.float32].smallest_normal, 0.0, layer.moments)
    moments = moments.double().unsqueeze(1)
    mask = layer.mask.unsqueeze(0)
    found = torch.empty_like(counts)
    for run, form in enumerate(step.forms.tolist()):
        at = slice(run, run + 1)
        sums = LayerSums(counts[at], moments[at] if form > 1 else None, mask)
        strength = (step.mu[run] * layer.gates[at])[:, None, :, None]
        multiplier, scale, pseudocount = (
            column[at].view(1, 1, 1, 1) for column in (step.multiplier, step.scale, step.pseudocount)
        )
        penalty = Penalty(strength, None if form % 2 else multiplier, scale)
        plain = form == 0 and float(step.mu[run]) == 0
        target = normalized_counts(sums, pseudocount) if plain else regularised_weights(sums, pseudocount, penalty)
        alpha = effective_step(step.alpha[at]).view(1, 1, 1, 1)
        found[at] = moved_weights(old[at], Target(target.weights, None), alpha)
    return found[:, 0]


def check_kernels(seed: int, children: int, masked: bool, arithmetic: Arithmetic, steps=STEPS) -> None:
    """Every row is on the simplex, and rows that move are where the formulas put them."""
    rng = np.random.default_rng(seed)
    fleet = draw_fleet(rng, steps)
    layer = layer_of(fleet, rng, draw_mask(rng, 8, children, masked))
    step = step_of(fleet)
    with arithmetic():
        found = kernel_step(layer.old, layer.counts, layer.moments, layer.gates, step, masked)
    check_rows(found, layer)
    limits = LIMITS[torch.float32]
    moves = ~held(layer.counts, torch.float32)[..., 0]
    lost = (limits.smallest_normal / limits.least_flow) ** 0.5  # what a flushed count can change
    torch.testing.assert_close(found[moves].double(), formulas(layer, step)[moves], rtol=2e-5, atol=lost)


@both_modes
@pytest.mark.parametrize(("children", "masked"), [(1, False), (5, True), (200, False)])
def test_rows_stay_on_the_simplex(children, masked, arithmetic):
    check_kernels(children, children, masked, arithmetic)


@both_modes
@given(seed=st.integers(0, 2**32), children=st.integers(1, 40), masked=st.booleans())
@settings(max_examples=3, deadline=None)
def test_rows_stay_on_the_simplex_for_any_seed(seed, children, masked, arithmetic):
    check_kernels(seed, children, masked, arithmetic)


@both_modes
def test_whole_steps_go_where_the_formulas_point(arithmetic):
    check_kernels(1, 6, False, arithmetic, steps=(1.0,))


@both_modes
def test_steps_too_small_for_float32_keep_the_rows_on_the_simplex(arithmetic):
    check_kernels(2, 6, True, arithmetic, steps=(1e-300, 1e-45, 1e-25))


# --- inputs ---


@both_modes
@pytest.mark.parametrize("family", [Bernoulli(), Categorical(4)], ids=["Bernoulli", "categorical"])
def test_input_units_stay_valid_and_follow_the_formulas(family, arithmetic):
    from circurve.learning.cuda.mstep_kernels import maximize_inputs

    rng = np.random.default_rng(0)
    bernoulli = isinstance(family, Bernoulli)
    runs, units, states = 12, 64, 2 if bernoulli else 4
    values = (0, 1e-45, 1e-38, 1e-30, 1e-20, 1e-12, 1.0, 1e8)
    flows = torch.from_numpy(np.float32(rng.choice(values, (runs, units, states))))
    old = torch.from_numpy(np.float32(rng.dirichlet(np.ones(states), (runs, units))))
    old = old[..., :1].contiguous() if bernoulli else old
    alphas, pseudocount = (torch.from_numpy(rng.choice(v, runs)) for v in (STEPS, (0, 1e-30, 0.01, 1e18)))
    moved = old.clone().to(DEVICE)
    with arithmetic():
        maximize_inputs[(1, runs)](
            parameters=moved, flows=flows.to(DEVICE), flow_stride=flows.stride(0), alphas=alphas.to(DEVICE),
            number=torch.zeros(1, dtype=torch.int64, device=DEVICE), pseudocount=pseudocount.float().to(DEVICE),
            units=units, R=runs, P=old.shape[-1], BERNOULLI=bernoulli, S=states, BU=64,
        )  # fmt: skip
    moved = moved.cpu()
    check_inputs(family, moved, old)
    used = flows.sum(-1) >= LIMITS[torch.float32].least_flow
    assert torch.equal(moved[~used], old[~used])
    assert 0.3 < float(used.double().mean()) < 1
    flow = flows.double()
    statistics = torch.stack([flow.sum(-1), flow[..., 1]], -1) if bernoulli else flow
    columns = (column.view(-1, 1, 1, 1) for column in (pseudocount, alphas))
    wanted = moved_inputs(family, old.double().unsqueeze(1), statistics.unsqueeze(1), *columns)[:, 0]
    torch.testing.assert_close(moved[used].double(), wanted[used], rtol=1e-5, atol=1e-10)


def check_inputs(family: Family, found: Tensor, old: Tensor) -> None:
    assert family.check_parameters(found) is None
    assert bool((found >= torch.minimum(old, torch.tensor(INPUT_FLOOR)) * 0.49).all())
