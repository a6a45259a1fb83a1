"""The regularised M-step of one sum node, in its four forms, against the definitions and against scipy."""

from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from torch import Tensor

from circurve.learning.simplex import Roots, cubic, quadratic, solve_multiplier, target_weights

FORMS = list(product(["surrogate", "exact"], ["normalize", "exact"]))
forms = pytest.mark.parametrize(("penalty", "simplex"), FORMS, ids=[f"{p} penalty, {s} simplex" for p, s in FORMS])
penalties = pytest.mark.parametrize("penalty", ["surrogate", "exact"])

NODES = 300
WIDTHS = [2, 3, 10, 100, 1000]
widths = pytest.mark.parametrize("children", WIDTHS)


def problems(children: int, nodes: int = NODES, seed: int = 0, decades: float = 12.0) -> tuple[Tensor, Tensor, Tensor]:
    """Counts from 1e-12 to 1e12 (nodes, C), moments below them, and strengths from 0 to 1e6 (nodes, 1)."""
    rng = np.random.default_rng([seed, children])
    centre = rng.uniform(-decades, decades, (nodes, 1))
    spread = rng.uniform(0, decades, (nodes, 1))
    exponents = np.clip(centre + spread * rng.uniform(-1, 1, (nodes, children)), -decades, decades)
    counts = 10.0**exponents
    moments = counts * 10.0 ** rng.uniform(-6, 0, counts.shape)
    strength = 10.0 ** rng.uniform(-8, 6, (nodes, 1))
    strength[:20] = 0
    return torch.from_numpy(counts), torch.from_numpy(moments), torch.from_numpy(strength)


def solve(penalty: str, simplex: str, counts: Tensor, moments: Tensor, strength: Tensor) -> Tensor:
    multiplier = None if simplex == "exact" else torch.ones_like(strength)
    return target_weights(counts, strength, moments if penalty == "exact" else None, multiplier)


def equations(penalty: str, counts: Tensor, moments: Tensor, strength: Tensor) -> Roots:
    if penalty == "surrogate":
        return quadratic(counts, strength)
    return cubic(counts, (2 * strength * moments) ** (1 / 3))


def multipliers(penalty: str, theta: Tensor, counts: Tensor, moments: Tensor, strength: Tensor) -> Tensor:
    """The derivative of the penalised objective in each weight: all equal to lambda where it is stationary."""
    pull = counts / theta
    if penalty == "surrogate":
        return pull + strength * counts / theta.square()
    return pull + 2 * strength * moments / theta**3


def terms(penalty: str, theta: Tensor, counts: Tensor, moments: Tensor, strength: Tensor) -> tuple[Tensor, Tensor]:
    """The penalised objective of each node is the difference of the sums of these two."""
    penalised = counts / theta if penalty == "surrogate" else moments / theta.square()
    return counts * theta.log(), strength * penalised


# --- all four forms ---


@forms
@widths
def test_weights_are_positive_and_sum_to_one(penalty, simplex, children):
    theta = solve(penalty, simplex, *problems(children))
    assert theta.shape == (NODES, children)
    assert bool((theta > 0).all())
    torch.testing.assert_close(theta.sum(-1), torch.ones(NODES, dtype=torch.float64), rtol=0, atol=1e-12)


@forms
@widths
def test_no_strength_gives_the_counts_normalised(penalty, simplex, children):
    counts, moments, strength = problems(children)
    theta = solve(penalty, simplex, counts, moments, torch.zeros_like(strength))
    torch.testing.assert_close(theta, counts / counts.sum(-1, keepdim=True), rtol=1e-13, atol=0)


@forms
def test_endless_strength_forgets_all_but_a_root_of_the_statistics(penalty, simplex):
    counts, moments, strength = problems(7, decades=2)
    theta = solve(penalty, simplex, counts, moments, torch.full_like(strength, 1e40))
    limit = counts.sqrt() if penalty == "surrogate" else moments ** (1 / 3)
    torch.testing.assert_close(theta, limit / limit.sum(-1, keepdim=True), rtol=1e-9, atol=0)


@forms
def test_a_count_of_zero_gives_a_weight_of_zero_and_leaves_the_rest_alone(penalty, simplex):
    counts, moments, strength = problems(5)
    nothing = torch.zeros(NODES, 2, dtype=torch.float64)
    theta = solve(penalty, simplex, torch.cat([counts, nothing], 1), torch.cat([moments, nothing], 1), strength)
    assert torch.equal(theta[:, 5:], nothing)
    torch.testing.assert_close(theta[:, :5], solve(penalty, simplex, counts, moments, strength), rtol=1e-13, atol=0)


@forms
def test_nodes_of_a_fleet_are_solved_as_if_alone(penalty, simplex):
    counts, moments, strength = problems(6, nodes=24)
    fleet = solve(
        penalty, simplex, counts.view(2, 3, 4, 6), moments.view(2, 3, 4, 6), strength.view(2, 3, 4, 1)
    )  # (R, G, K, C)
    alone = [solve(penalty, simplex, counts[i], moments[i], strength[i]) for i in range(24)]
    torch.testing.assert_close(fleet.view(24, 6), torch.stack(alone), rtol=1e-14, atol=0)


@forms
def test_the_order_of_the_children_does_not_matter(penalty, simplex):
    counts, moments, strength = problems(9)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    permuted = solve(penalty, simplex, counts[:, order], moments[:, order], strength)
    torch.testing.assert_close(
        permuted, solve(penalty, simplex, counts, moments, strength)[:, order], rtol=1e-12, atol=0
    )


@forms
def test_a_larger_count_gets_a_larger_weight_and_the_penalty_evens_weights_out(penalty, simplex):
    counts = torch.tensor([[1.0, 2.0, 4.0, 40.0]], dtype=torch.float64)
    largest = 1.0
    for strength in (0.0, 0.1, 1.0, 10.0, 100.0):
        theta = solve(penalty, simplex, counts, counts / 2, torch.tensor([[strength]], dtype=torch.float64))[0]
        assert bool((theta.diff() > 0).all())
        assert theta[-1] < largest
        largest = float(theta[-1])


@forms
@widths
def test_single_precision_loses_its_rounding_and_no_more(penalty, simplex, children):
    statistics = [values.float() for values in problems(children)]
    wanted = solve(penalty, simplex, *(values.double() for values in statistics))
    theta = solve(penalty, simplex, *statistics)
    seen = wanted > 1e-30
    torch.testing.assert_close(theta[seen].double(), wanted[seen], rtol=2e-5, atol=0)


# --- the exact simplex ---


@penalties
@widths
def test_exact_weights_are_stationary(penalty, children):
    statistics = problems(children)
    theta = solve(penalty, "exact", *statistics)
    found = multipliers(penalty, theta, *statistics)
    spread = (found.amax(-1) - found.amin(-1)) / found.amax(-1)
    assert float(spread.max()) < 1e-8


@penalties
@widths
def test_roots_at_the_multiplier_sum_to_one_before_any_division(penalty, children):
    roots = equations(penalty, *problems(children))
    theta = roots.at(solve_multiplier(roots))
    assert float((theta.sum(-1) - 1).abs().max()) < 1e-10


@penalties
@widths
def test_the_start_is_below_the_solution_and_near_it(penalty, children):
    roots = equations(penalty, *problems(children))
    ratio = solve_multiplier(roots) / roots.start
    assert float(ratio.min()) > 1 - 1e-12
    assert float(ratio.max()) < 3.2


@penalties
@widths
def test_exact_weights_equal_those_of_a_bracketing_search(penalty, children):
    counts, moments, strength = problems(children, nodes=60)
    theta = solve(penalty, "exact", counts, moments, strength)
    for n, s, m, found in zip(counts.numpy(), moments.numpy(), strength[:, 0].numpy(), theta.numpy(), strict=True):
        at = partial(_roots, n, s if penalty == "exact" else None, float(m))
        log_multiplier = brentq(lambda u, at=at: np.log(at(np.exp(u)).sum()), -60, 120, xtol=1e-14, rtol=1e-15)
        np.testing.assert_allclose(found, at(np.exp(log_multiplier)), rtol=1e-9)


def _roots(counts: np.ndarray, moments: np.ndarray | None, strength: float, multiplier: float) -> np.ndarray:
    """The positive root of each child's equation, by the textbook or by plain bisection of its logarithm."""
    if moments is None:
        return (counts + np.sqrt(counts**2 + 4 * multiplier * strength * counts)) / (2 * multiplier)
    low = np.log(counts / multiplier)
    high = np.logaddexp(low, np.log(2 * strength * moments / multiplier) / 3) if strength else low
    low = np.maximum(low, np.log(2 * strength * moments / multiplier) / 3) if strength else low
    for _ in range(60):
        middle = (low + high) / 2
        theta = np.exp(middle)
        above = multiplier * theta**3 > counts * theta**2 + 2 * strength * moments
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.exp((low + high) / 2)


@penalties
@pytest.mark.parametrize("children", [2, 3, 6])
def test_no_optimiser_finds_a_higher_objective(penalty, children):
    counts, moments, _ = problems(children, nodes=40, decades=1)
    strength = torch.logspace(-3, 1, 40, dtype=torch.float64)[:, None]
    theta = solve(penalty, "exact", counts, moments, strength)
    gained, paid = terms(penalty, theta, counts, moments, strength)
    for i in range(40):

        def loss(logits, i=i):
            weights = torch.softmax(torch.from_numpy(logits), 0)
            gain, pay = terms(penalty, weights, counts[i], moments[i], strength[i])
            return float(pay.sum() - gain.sum())

        found = minimize(loss, np.zeros(children), method="BFGS", options={"gtol": 1e-7})
        ours = float(paid[i].sum() - gained[i].sum())
        assert ours <= found.fun + 1e-10 * abs(found.fun)
        assert found.fun == pytest.approx(ours, rel=1e-6)
        np.testing.assert_allclose(torch.softmax(torch.from_numpy(found.x), 0), theta[i], rtol=1e-2, atol=1e-4)


@penalties
@widths
def test_the_exact_update_is_never_worse_than_the_normalised_one(penalty, children):
    statistics = problems(children)
    exact, normalised = (
        terms(penalty, solve(penalty, simplex, *statistics), *statistics) for simplex in ("exact", "normalize")
    )
    difference = (exact[0] - normalised[0]).sum(-1) - (exact[1] - normalised[1]).sum(-1)
    size = statistics[0].sum(-1) + sum(part.abs().sum(-1) for part in exact)  # N (1 + |log theta|) + penalty
    assert bool((difference >= -1e-12 * size).all())
    assert float((difference / size).max()) > 1e-6  # and often it is better


@penalties
def test_the_scale_of_the_statistics_does_not_matter_to_the_exact_simplex(penalty):
    counts, moments, strength = problems(8)
    theta = solve(penalty, "exact", counts, moments, strength)
    torch.testing.assert_close(
        solve(penalty, "exact", counts / 200, moments / 200, strength), theta, rtol=1e-11, atol=0
    )


# --- single roots ---


def test_the_quadratic_root_is_the_formula_of_the_paper():
    counts, strength, multiplier = 3.0, 0.5, 2.0
    n, m, at = (torch.tensor([v], dtype=torch.float64) for v in (counts, strength, multiplier))
    theta = quadratic(n, m).at(at)
    assert float(theta) == pytest.approx((3 + np.sqrt(9 + 4 * 2 * 0.5 * 3)) / 4, rel=1e-15)


def test_the_cubic_has_one_positive_root_and_it_is_found():
    rng = np.random.default_rng(0)
    for _ in range(1000):
        counts, multiplier, strength = 10.0 ** rng.uniform(-3, 3, 3)
        moments = counts * 10.0 ** rng.uniform(-3, 0)
        every = np.roots([multiplier, -counts, 0, -2 * strength * moments])
        positive = every.real[(np.abs(every.imag) < 1e-9 * np.abs(every)) & (every.real > 0)]
        assert len(positive) == 1
        n, s, m, at = (torch.tensor([v], dtype=torch.float64) for v in (counts, moments, strength, multiplier))
        assert float(cubic(n, (2 * m * s) ** (1 / 3)).at(at)) == pytest.approx(positive[0], rel=1e-9)


def test_the_cubic_root_holds_over_all_magnitudes():
    rng = np.random.default_rng(0)
    counts, moments, strength, multiplier = torch.from_numpy(10.0 ** rng.uniform(-30, 30, (4, 20_000)))
    part = (2 * strength * moments) ** (1 / 3)
    theta = cubic(counts[:, None], part[:, None]).at(multiplier[:, None])[:, 0]
    largest = multiplier * theta**3
    residual = (largest - counts * theta.square() - 2 * strength * moments) / largest
    assert float(residual.abs().max()) < 1e-12


@penalties
def test_the_slope_of_a_root_is_its_derivative(penalty):
    counts, moments, strength = problems(5, decades=3)
    roots = equations(penalty, counts, moments, strength)
    multiplier, step = counts.sum(-1, keepdim=True), 1e-5
    falls = roots.slope(multiplier, roots.at(multiplier))
    above, below = roots.at(multiplier * np.exp(step)), roots.at(multiplier * np.exp(-step))
    torch.testing.assert_close(falls, (below - above) / (2 * step), rtol=1e-7, atol=0)
