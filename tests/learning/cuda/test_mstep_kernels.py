"""The kernels of the M-step: exact forms against the torch formulas, and weights that nearly vanish in one step."""

import pytest
import torch

pytest.importorskip("triton")

from kernel_steps import Step, kernel_step

from circurve.learning.simplex import target_weights

SUMS, CHILDREN = 6, 5
FORMS = {1: "exact simplex", 2: "exact penalty", 3: "both"}
ALL_FORMS = {0: "plain", **FORMS}
every_form = pytest.mark.parametrize("form", ALL_FORMS, ids=ALL_FORMS.values())


def numbers(generator: torch.Generator, low: float, high: float) -> torch.Tensor:
    exponent = torch.rand(1, SUMS, CHILDREN, generator=generator) * (high - low) + low
    return 10**exponent


def step(form: int, counts: torch.Tensor, mu: float = 0.0) -> torch.Tensor:
    """Weights of 1/8 after a whole step of a run with that form; counts as second moments, and gates of one."""
    weights = torch.full((1, SUMS, CHILDREN), 0.125)
    return kernel_step(weights, counts, counts, torch.ones(1, SUMS, dtype=torch.float64), Step.of(form, mu))


@pytest.mark.parametrize("mu", [0.0, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("form", FORMS, ids=FORMS.values())
def test_same_targets_as_the_formulas(form, mu):
    generator = torch.Generator().manual_seed(form)
    counts, moments = numbers(generator, -8, 6), numbers(generator, -8, 6)
    counts[0, 2] = 0  # not used: its weights stay
    gates = torch.rand(1, SUMS, dtype=torch.float64, generator=generator)
    old = torch.full((1, SUMS, CHILDREN), 0.125)
    found = kernel_step(old, counts, moments, gates, Step.of(form, mu, multiplier=2.0, scale=4.0))
    wanted = target_weights(
        counts.double().clamp_min(1e-30) / 4,
        mu * gates.unsqueeze(-1),
        moments.double() / 4 if form > 1 else None,
        torch.full((1, 1, 1), 2.0) if form == 2 else None,
    ).clamp_min(1e-12)
    wanted[0, 2] = 0.125
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=0)


@every_form
def test_runs_of_all_forms_move_side_by_side(form):
    """Each kernel leaves the other's runs alone."""
    counts = torch.arange(1.0, SUMS * CHILDREN + 1).view(1, SUMS, CHILDREN).expand(4, -1, -1).contiguous()
    numbers = [torch.full((4,), value, dtype=torch.float64) for value in (0.3, 1.0, 1.0, 1.0, 0.0)]
    fleet = Step(torch.arange(4, dtype=torch.int32), *numbers)
    weights, gates = torch.full((4, SUMS, CHILDREN), 0.125), torch.ones(4, SUMS, dtype=torch.float64)
    together = kernel_step(weights, counts, counts, gates, fleet)
    torch.testing.assert_close(together[form : form + 1], step(form, counts[:1], mu=0.3), rtol=0, atol=0)
    assert len({float(run[0, 0]) for run in together}) == 4


@every_form
def test_a_strength_beyond_single_precision_does_no_harm(form):
    counts = torch.arange(1.0, SUMS * CHILDREN + 1).view(1, SUMS, CHILDREN)
    found = step(form, counts, mu=1e60)
    torch.testing.assert_close(found.sum(-1), torch.ones(1, SUMS))
    limit = counts.sqrt() if form < 2 else counts ** (1 / 3)
    torch.testing.assert_close(found, limit / limit.sum(-1, keepdim=True), rtol=1e-5, atol=0)


@pytest.mark.parametrize("form", [0, 1])
def test_a_weight_that_nearly_vanishes_in_one_step_stays_positive(form):
    counts = torch.zeros(1, SUMS, CHILDREN)
    counts[..., 0] = 3.0
    found = step(form, counts)
    torch.testing.assert_close(found[..., 1:], torch.full_like(found[..., 1:], 1e-12))


@every_form
def test_edges_of_weight_zero_stay_out_of_masked_sums(form):
    counts = torch.rand(1, SUMS, CHILDREN, generator=torch.Generator().manual_seed(0)) + 0.1
    weights = torch.full((1, SUMS, CHILDREN), 0.25)
    weights[..., 1] = counts[..., 1] = 0
    gates = torch.ones(1, SUMS, dtype=torch.float64)
    found = kernel_step(weights, counts, counts, gates, Step.of(form, pseudocount=2.0), masked=True)
    wanted = torch.where(counts > 0, counts + 2.0 / (CHILDREN - 1), 0)
    torch.testing.assert_close(found, wanted / wanted.sum(-1, keepdim=True), rtol=1e-5, atol=0)
