"""The M-step of a layer: floors, masks, pseudocounts, sums without use; and of a fleet: methods, gates, scales."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from circuits import Case, Truth, assert_close, cases
from circurve import Circuit, Indicator, Input, Sum
from circurve.engine import Params, Statistics, stack
from circurve.engine.numerics import WEIGHT_FLOOR
from circurve.learning import Gated, Global, Vanilla
from circurve.learning.gates import NodeCurvature
from circurve.learning.mstep import LayerSums, Penalty, moved_weights, normalized_counts, regularised_weights
from circurve.learning.plan import Plan

some = settings(max_examples=30, deadline=None)

R, G, K, C = 2, 3, 4, 5
FORMS = list(product([False, True], [False, True]))
forms = pytest.mark.parametrize(("exact_penalty", "exact_simplex"), FORMS)
UPDATES = ["vanilla", *FORMS]
updates = pytest.mark.parametrize("update", UPDATES)


def random_sums(mask: Tensor | None = None) -> LayerSums:
    source = torch.Generator().manual_seed(0)
    counts = torch.rand(R, G, K, C, generator=source, dtype=torch.float64).pow(4) * 100
    counts = counts if mask is None else counts * mask
    return LayerSums(counts, counts * torch.rand(R, G, K, C, generator=source, dtype=torch.float64), mask)


def some_mask() -> Tensor:
    mask = torch.rand(G, K, C, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[..., 0] = True
    return mask


def old_weights(mask: Tensor | None = None) -> Tensor:
    weights = torch.rand(R, G, K, C, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    weights = weights if mask is None else weights * mask
    return weights / weights.sum(-1, keepdim=True)


def column(*values: float) -> Tensor:  # (R, 1, 1, 1)
    return torch.tensor(values, dtype=torch.float64).view(-1, 1, 1, 1)


def update_of(update, sums: LayerSums, weights: Tensor, pseudocount: Tensor | None = None, strength: float = 0.7):
    """The weights after a whole step."""
    pseudocount = column(0.0, 0.0) if pseudocount is None else pseudocount
    whole = torch.ones(1, 1, 1, 1, dtype=weights.dtype)
    if update == "vanilla":
        return moved_weights(weights, normalized_counts(sums, pseudocount), whole)
    exact_penalty, exact_simplex = update
    sums = sums if exact_penalty else LayerSums(sums.counts, None, sums.mask)
    multiplier = None if exact_simplex else column(1.0, 1.0)
    strengths = torch.full((R, G, K, 1), strength, dtype=torch.float64)
    target = regularised_weights(sums, pseudocount, Penalty(strengths, multiplier, column(1.0, 1.0)))
    return moved_weights(weights, target, whole)


# --- one layer ---


@updates
def test_rows_lie_on_the_simplex_and_masked_edges_stay_away(update):
    mask = some_mask()
    best = update_of(update, random_sums(mask), old_weights(mask))
    assert_close(best.sum(-1), torch.ones(R, G, K), 1e-14)
    assert torch.equal(best > 0, mask.expand(R, -1, -1, -1))


@forms
@pytest.mark.parametrize("masked", [False, True])
def test_no_strength_is_vanilla_to_rounding(exact_penalty, exact_simplex, masked):
    mask = some_mask() if masked else None
    sums, weights, pseudocount = random_sums(mask), old_weights(mask), column(0.0, 2.5)
    found = update_of((exact_penalty, exact_simplex), sums, weights, pseudocount, strength=0.0)
    assert_close(found, update_of("vanilla", sums, weights, pseudocount), 1e-13)


@updates
def test_an_edge_without_use_gets_the_floor(update):
    sums = random_sums()
    sums.counts[..., 1:3] = 0
    sums.second_moment[..., 1:3] = 0
    best = update_of(update, sums, old_weights())
    torch.testing.assert_close(
        best[..., 1:3], torch.full((R, G, K, 2), WEIGHT_FLOOR, dtype=torch.float64), rtol=1e-9, atol=0
    )


@updates
@pytest.mark.parametrize("pseudocount", [0.0, 3.0])
def test_a_sum_without_use_keeps_its_weights(update, pseudocount):
    sums, weights = random_sums(), old_weights()
    sums.counts[1, 2, 3] = 0
    sums.second_moment[1, 2, 3] = 0
    best = update_of(update, sums, weights, column(pseudocount, pseudocount))
    assert torch.equal(best[1, 2, 3], weights[1, 2, 3])
    assert not torch.equal(best[1, 2, 2], weights[1, 2, 2])


def test_the_pseudocount_is_shared_out_among_existing_edges():
    mask = torch.tensor([[[True, True, False, True]]])
    counts = torch.tensor([[[[1.0, 2.0, 0.0, 3.0]]]], dtype=torch.float64)
    best = normalized_counts(LayerSums(counts, None, mask), column(3.0)).weights
    assert_close(best.flatten(), torch.tensor([2.0, 3.0, 0.0, 4.0]).double() / 9, 1e-15)


@updates
def test_weights_keep_their_precision(update):
    sums, weights = random_sums(), old_weights()
    single = LayerSums(sums.counts.float(), sums.second_moment.float(), None)
    best = update_of(update, single, weights.float(), column(0.0, 0.0).float())
    assert best.dtype == torch.float32
    assert_close(best, update_of(update, sums, weights), 1e-5)


@forms
def test_a_strength_beyond_single_precision_does_no_harm(exact_penalty, exact_simplex):
    sums = random_sums()
    single = LayerSums(sums.counts.float(), sums.second_moment.float(), None)
    best = update_of((exact_penalty, exact_simplex), single, old_weights().float(), strength=1e60)
    assert_close(best.sum(-1), torch.ones(R, G, K), 1e-6)
    if not exact_penalty:
        assert_close(best, sums.counts.sqrt() / sums.counts.sqrt().sum(-1, keepdim=True), 1e-5)


# --- a fleet ---


def maximize(case: Case, methods, mu, params: Params | None = None, statistics: Statistics | None = None) -> Params:
    """One M-step with step size 1 for runs that start alike."""
    runs = len(methods)
    params = stack([case.params] * runs) if params is None else params
    sums = case.statistics() if statistics is None else statistics
    fleet = sums if runs == 1 else _repeated(sums, runs)
    plan = Plan(case.program, methods, params.inputs[0])
    return plan.maximize(params, fleet, [1.0] * runs, mu)


def _repeated(value, runs: int):
    if isinstance(value, Tensor):
        return value.expand(runs, *value.shape[1:]).contiguous()
    if isinstance(value, tuple):
        return tuple(_repeated(part, runs) for part in value)
    if value is None:
        return None
    return type(value)(**{name: _repeated(part, runs) for name, part in vars(value).items()})


def half(curvature):
    return torch.full_like(curvature.local, 0.5)


def none(curvature):
    return torch.zeros_like(curvature.local)


OPTIONS = [{"penalty": p, "simplex": s} for p, s in product(["surrogate", "exact"], ["normalize", "exact"])]


@given(case=cases(), options=st.sampled_from(OPTIONS))
@some
def test_gates_scale_the_strength_from_vanilla_to_global(case, options):
    methods = [
        Vanilla(),
        Gated(0.3, none, **options),
        Global(0.3, **options),
        Gated(0.3, "ones", **options),
        Global(0.15, **options),
        Gated(0.3, half, **options),
    ]
    params = maximize(case, methods, [0.0, 0.3, 0.3, 0.3, 0.15, 0.3])
    for weights in params.weights:
        for closed, opened in ((0, 1), (2, 3), (4, 5)):
            assert_close(weights[opened], weights[closed], 1e-12)


@given(case=cases(), options=st.sampled_from(OPTIONS))
@some
def test_with_a_mean_scale_a_strength_means_the_same_at_every_batch_size(case, options):
    once = case.statistics()
    method = Global(0.02, mu_scale="mean", **options)
    small = maximize(case, [method], [0.02], statistics=once)
    large = maximize(case, [method], [0.02], statistics=once + once + once)
    for one, other in zip(small.weights, large.weights, strict=True):
        assert_close(one, other, 1e-11)


@given(case=cases())
@some
def test_a_mean_scale_divides_the_counts_by_the_weight_of_the_possible_samples(case):
    rows = float(case.statistics().weight)
    found = maximize(case, [Global(0.02, mu_scale="mean"), Global(0.02)], [0.02, 0.02 * rows])
    for weights in found.weights:
        assert_close(weights[0], weights[1], 1e-10)


def measured(case: Case, estimator: str) -> NodeCurvature:
    """t^, T^ and F^2 of all sum units, from the definitions; samples of probability zero are left out."""
    truth = Truth.of(case)
    weight = case.weight * (truth.root > 0)
    share = weight / weight.sum().clamp_min(1e-300)
    nodes = [node for layer in case.program.sums for node in layer.nodes]
    local = [truth.local(node) @ share for node in nodes]
    if estimator == "mean_ratio":
        local = [(truth.ratio(node) @ share).square().sum(-1) for node in nodes]
    total = [truth.total(node) @ share for node in nodes]
    flow = [truth.flow[node].square() @ share for node in nodes]
    return NodeCurvature(*(torch.cat([*parts, torch.zeros(0).double()]) for parts in (local, total, flow)))


@given(case=cases(), memory=st.sampled_from([0.0, 0.75]), estimator=st.sampled_from(["mean_trace", "mean_ratio"]))
@some
def test_a_gate_is_shown_the_mean_curvature_or_its_running_mean(case, memory, estimator):
    seen: list[NodeCurvature] = []

    def spy(curvature):
        seen.append(curvature)
        return none(curvature)

    other = case.with_x(case.x[:3])
    plan = Plan(case.program, [Gated(0.1, spy, estimator=estimator, gate_memory=memory)], case.params.inputs[0])
    for batch in (case, other):
        plan.maximize(case.params, batch.statistics(), [1.0], [0.1])
    assume(case.circuit.sums)
    first, second = measured(case, estimator), measured(other, estimator)
    share_of_past = expected_share_of_past(memory, case, other)
    for name in ("local", "total", "flow_squared"):
        then, now = getattr(first, name), getattr(second, name)
        assert_close(getattr(seen[0], name), then, 1e-9)
        assert_close(getattr(seen[1], name), share_of_past * then + (1 - share_of_past) * now, 1e-9)


def expected_share_of_past(memory: float, first: Case, second: Case) -> float:
    """A batch without a possible sample measures nothing: it neither begins a running mean nor changes it."""
    begun, goes_on = (bool((case.weight * (Truth.of(case).root > 0)).any()) for case in (first, second))
    if not memory:
        return 0.0
    return memory * begun if goes_on else 1.0


def test_a_batch_of_impossible_samples_leaves_the_running_mean_as_it_is():
    seen: list[NodeCurvature] = []

    def spy(curvature):
        seen.append(curvature)
        return none(curvature)

    zero, other = (Input(0, Indicator((0,))) for _ in range(2))
    mixture = Sum((zero, other))
    weights = {mixture: torch.tensor([[0.3, 0.7]], dtype=torch.float64)}
    inputs = {node: torch.zeros(1, 0, dtype=torch.float64) for node in (zero, other)}
    case = Case(Circuit(mixture), ("binary",), weights, inputs, np.zeros((4, 1)))
    plan = Plan(case.program, [Gated(0.1, spy, gate_memory=0.75)], case.params.inputs[0])
    for batch in (case, case.with_x(np.ones((4, 1)))):
        plan.maximize(case.params, batch.statistics(), [1.0], [0.1])
    assert_close(seen[0].local, torch.full_like(seen[0].local, 2.0))  # each child's ratio p_child / p_sum is 1
    assert_close(seen[1].local, seen[0].local)


@given(case=cases())
@some
def test_a_multiplier_acts_as_a_factor_of_the_strength(case):
    found = maximize(case, [Global(0.2, multiplier=3.0), Global(0.6)], [0.2, 0.6])
    for weights in found.weights:
        assert_close(weights[0], weights[1], 1e-11)


@given(case=cases())
@some
def test_second_moments_lie_between_their_bounds(case):
    sums = case.statistics()
    rows = float(sums.weight)
    for counts, moments in zip(sums.counts, sums.curvature.second_moment, strict=True):
        assert bool((moments <= counts * (1 + 1e-12)).all())  # a flow is at most 1
        assert bool((moments * rows >= counts.square() * (1 - 1e-12)).all())  # Cauchy and Schwarz


@given(case=cases())
@some
def test_an_m_step_leaves_its_arguments_alone(case):
    params, sums = case.params.clone(), case.statistics()
    kept = [tensor.clone() for tensor in (*sums.counts, *sums.inputs)]
    maximize(case, [Gated(0.3, penalty="exact")], [0.3], params, sums)
    for before, after in zip(
        (*case.params.weights, *case.params.inputs), (*params.weights, *params.inputs), strict=True
    ):
        assert torch.equal(before, after)
    for before, after in zip(kept, (*sums.counts, *sums.inputs), strict=True):
        assert torch.equal(before, after)


@given(case=cases(), step=st.floats(0.01, 1))
@some
def test_the_step_size_blends_old_and_new_weights(case, step):
    plan = Plan(case.program, [Global(0.3)], case.params.inputs[0])
    sums = case.statistics()
    whole = plan.maximize(case.params, sums, [1.0], [0.3])
    part = plan.maximize(case.params, sums, [step], [0.3])
    for old, new, found in zip(case.params.weights, whole.weights, part.weights, strict=True):
        assert_close(found, (1 - step) * old + step * new, 1e-12)
