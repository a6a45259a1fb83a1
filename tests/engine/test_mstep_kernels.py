"""The kernels of the M-step: exact forms against the torch formulas, and weights that nearly vanish in one step."""

import pytest
import torch

pytest.importorskip("triton")

from circurve.engine.cuda.mstep_kernels import maximize
from circurve.engine.cuda.simplex_kernels import maximize_exactly
from circurve.learning.simplex import target_weights

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # without a GPU: Triton's interpreter, see conftest.py
SUMS, CHILDREN, WIDTH = 6, 5, 16
FORMS = {1: "exact simplex", 2: "exact penalty", 3: "both"}


def numbers(generator: torch.Generator, low: float, high: float) -> torch.Tensor:
    exponent = torch.rand(1, SUMS, WIDTH, generator=generator) * (high - low) + low
    return 10**exponent


@pytest.mark.parametrize("mu", [0.0, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("form", FORMS, ids=FORMS.values())
def test_same_targets_as_the_formulas(form, mu):
    generator = torch.Generator().manual_seed(form)
    counts, moments = numbers(generator, -8, 6), numbers(generator, -8, 6)
    counts[0, 2] = 0  # not used: its weights stay
    old = torch.full((1, SUMS, WIDTH), 0.125)
    gates = torch.rand(1, SUMS, dtype=torch.float64, generator=generator)
    one = torch.ones(1, dtype=torch.float64)
    weights = old.clone().to(DEVICE)
    arrays = (counts, moments, gates, torch.arange(SUMS, dtype=torch.int32), one, mu * one, torch.zeros(1).long())
    columns = (torch.tensor([form], dtype=torch.int32), 2 * one, 4 * one, torch.zeros(1))
    maximize_exactly[(2, 1)](
        weights, *(array.to(DEVICE) for array in (*arrays, *columns)),
        SUMS * WIDTH, SUMS, SUMS, 1, CHILDREN, WIDTH, FLOOR=1e-12, C2=16, BR=4, MASKED=False,
    )  # fmt: skip
    wanted = target_weights(
        counts[..., :CHILDREN].double().clamp_min(1e-30) / 4,
        mu * gates.unsqueeze(-1),
        moments[..., :CHILDREN].double() / 4 if form > 1 else None,
        2 * one.view(1, 1, 1) if form == 2 else None,
    ).clamp_min(1e-12)
    wanted[0, 2] = 0.125
    torch.testing.assert_close(weights[..., :CHILDREN].cpu().double(), wanted, rtol=1e-6, atol=0)
    assert bool((weights[..., CHILDREN:] == 0.125).all())


def step(kernel, form: int, counts: torch.Tensor, *more: torch.Tensor, mu: float = 0.0) -> torch.Tensor:
    """Weights of 1/8 after a whole step of a run with that form, and gates of one."""
    weights = torch.full((1, SUMS, WIDTH), 0.125, device=DEVICE)
    one, zero = torch.ones(1, dtype=torch.float64, device=DEVICE), torch.zeros(1, device=DEVICE)
    gates = torch.ones(1, SUMS, dtype=torch.float64, device=DEVICE)
    units = torch.arange(SUMS, dtype=torch.int32, device=DEVICE)
    kernel[(2, 1)](
        weights, counts, *more, gates, units, one, mu * one, zero.long(), zero.int() + form, one, one, zero,
        SUMS * WIDTH, SUMS, SUMS, 1, CHILDREN, WIDTH, FLOOR=1e-12, C2=16, BR=4, MASKED=False,
    )  # fmt: skip
    return weights[..., :CHILDREN].cpu()


def test_each_kernel_leaves_the_other_s_runs_alone():
    counts = torch.arange(float(SUMS * WIDTH), device=DEVICE).view(1, SUMS, WIDTH)
    assert bool((step(maximize, 1, counts) == 0.125).all())
    assert bool((step(maximize_exactly, 0, counts, counts) == 0.125).all())
    assert not bool((step(maximize, 0, counts) == 0.125).all())
    assert not bool((step(maximize_exactly, 1, counts, counts) == 0.125).all())


@pytest.mark.parametrize("form", [0, 1, 2, 3])
def test_a_strength_beyond_single_precision_does_no_harm(form):
    counts = torch.arange(1.0, SUMS * WIDTH + 1, device=DEVICE).view(1, SUMS, WIDTH)
    kernel, more = (maximize_exactly, (counts,)) if form else (maximize, ())
    found = step(kernel, form, counts, *more, mu=1e60)
    torch.testing.assert_close(found.sum(-1), torch.ones(1, SUMS))
    if form < 2:
        limit = counts[..., :CHILDREN].sqrt().cpu()
        torch.testing.assert_close(found, limit / limit.sum(-1, keepdim=True), rtol=1e-5, atol=0)


@pytest.mark.parametrize("exact", [False, True])
def test_a_weight_that_all_but_vanishes_in_one_step_stays_positive(exact):
    counts = torch.zeros(1, SUMS, WIDTH, device=DEVICE)
    counts[..., 0] = 3.0
    found = step(maximize_exactly, 1, counts, counts) if exact else step(maximize, 0, counts)
    torch.testing.assert_close(found[..., 1:], torch.full_like(found[..., 1:], 1e-12))


@pytest.mark.parametrize("form", [0, 1, 2, 3])
def test_edges_of_weight_zero_stay_out_of_masked_sums(form):
    counts = torch.rand(1, SUMS, WIDTH, device=DEVICE) + 0.1
    weights = torch.full((1, SUMS, WIDTH), 0.25, device=DEVICE)
    weights[..., 1] = weights[..., CHILDREN:] = 0
    counts[weights == 0] = 0
    one, zero = torch.ones(1, dtype=torch.float64, device=DEVICE), torch.zeros(1, device=DEVICE)
    gates = torch.ones(1, SUMS, dtype=torch.float64, device=DEVICE)
    units = torch.arange(SUMS, dtype=torch.int32, device=DEVICE)
    kernel, more = (maximize_exactly, (counts,)) if form else (maximize, ())
    smoothing = zero + 2.0
    kernel[(2, 1)](
        weights, counts, *more, gates, units, one, 0 * one, zero.long(), zero.int() + form, one, one, smoothing,
        SUMS * WIDTH, SUMS, SUMS, 1, CHILDREN, WIDTH, FLOOR=1e-12, C2=16, BR=4, MASKED=True,
    )  # fmt: skip
    wanted = torch.where(counts > 0, counts + 2.0 / (CHILDREN - 1), 0)
    torch.testing.assert_close(weights, wanted / wanted.sum(-1, keepdim=True), rtol=1e-5, atol=0)
