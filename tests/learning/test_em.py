"""What EM promises: the likelihood rises, samples count by their weight, and known distributions are found again."""

import math
import warnings
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from learning_helpers import assert_same_model, binary_rows, learn, quick, quick_fleet, small_circuit

from circuits import cases
from circurve import (
    Bernoulli,
    Categorical,
    Circuit,
    CircurveWarning,
    Examples,
    Gaussian,
    Global,
    Input,
    Model,
    Poisson,
    Product,
    Run,
    Sum,
    Vanilla,
    hclt,
    mixture,
)
from circurve.engine.numerics import WEIGHT_FLOOR

some = settings(max_examples=40, deadline=None)
FAMILIES = [Bernoulli(), Categorical(3), Gaussian(), Poisson(), Bernoulli()]


def mixed_rows(rows: int, seed: int = 0, missing: float = 0.0) -> np.ndarray:
    """Columns for FAMILIES, driven by one hidden kind."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, rows)
    columns = [kind > 0, kind, rng.normal(kind, 0.5), rng.poisson(1 + 2 * kind), rng.random(rows) < 0.3 + 0.2 * kind]
    x = np.stack(columns, axis=1).astype(float)
    x[rng.random(x.shape) < missing] = np.nan
    return x


def assert_never_falls(likelihoods: list[float]) -> None:
    for before, after in pairwise(likelihoods):
        assert after >= before - 1e-9 * max(1.0, abs(before))


# --- the likelihood rises ---


@given(case=cases(samples=8))
@some
def test_full_batch_em_never_lowers_the_likelihood(case):
    result = learn(case, epochs=6)
    assert_never_falls([*(record.train_ll for record in result.history), result.train_ll])


@given(seed=st.integers(0, 10**6), units=st.integers(1, 4), missing=st.sampled_from([0.0, 0.3]))
@settings(max_examples=20, deadline=None)
def test_em_on_a_tree_of_mixed_families_with_weights_never_lowers_the_likelihood(seed, units, missing):
    x = mixed_rows(40, seed, missing)
    weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 4.0], 40)
    circuit = hclt(mixed_rows(40, seed), units, FAMILIES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CircurveWarning)
        result = quick(circuit, x, weights=weights, batch_size=None, epochs=10, seed=seed)
    likelihoods = [*(record.train_ll for record in result.history), result.train_ll]
    assert_never_falls(likelihoods)
    assert likelihoods[-1] > likelihoods[0]


@given(case=cases(samples=8))
@settings(max_examples=15, deadline=None)
def test_the_recorded_likelihood_is_that_of_the_epochs_first_parameters(case):
    before, after = learn(case, epochs=0), learn(case, epochs=1)
    assert after.history[0].train_ll == pytest.approx(before.train_ll, rel=1e-10, abs=1e-12)


FORMS = list(product(["surrogate", "exact"], [0.01, 1.0, 50.0]))


@given(case=cases(samples=8), form=st.sampled_from(FORMS))
@some
def test_the_exact_m_step_never_lowers_the_penalised_objective(case, form):
    """sum N log theta - mu sum S / theta^2 (or N / theta), node by node, with the statistics held fixed."""
    penalty, mu = form
    sums = case.statistics()
    assume(bool((sums.weight > 0).all()))
    new = learn(case, method=Global(mu, penalty=penalty, simplex="exact"), epochs=1).model.params
    for counts, moments, old, best in zip(
        sums.counts, sums.curvature.second_moment, case.params.weights, new.weights, strict=True
    ):
        penalised = (moments, 2) if penalty == "exact" else (counts, 1)
        before, after = (objective(counts, *penalised, mu, theta) for theta in (old, best))
        size = counts.sum(-1) + before.abs()
        assert bool((after >= before - 1e-9 * size).all())


def objective(counts, moments, power, mu, theta):
    """An edge that was not used has no effect, and may be masked."""
    safe = torch.where(counts > 0, theta, 1.0)
    return (torch.where(counts > 0, counts * safe.log(), 0.0) - mu * moments / safe**power).sum(-1)


@pytest.mark.parametrize("penalty", ["surrogate", "exact"])
def test_a_penalty_lowers_curvature_and_likelihood(penalty):
    x = binary_rows(60, noise=0.05)
    circuit = small_circuit(x, units=4)
    results = [
        quick(circuit, x, method=method, batch_size=None, epochs=15, track=True)
        for method in (Vanilla(), Global(0.2, penalty=penalty, simplex="exact"))
    ]
    plain, penalised = results
    assert penalised.sharpness < 0.8 * plain.sharpness
    assert penalised.train_ll < plain.train_ll


# --- known distributions ---


def all_rows(variables: int) -> np.ndarray:
    return np.array(list(product([0, 1], repeat=variables)))


def known_model() -> Model:
    """A mixture of two products of four binary variables."""
    inputs = [Input(v, Bernoulli(), 2) for v in range(4)]
    root = Sum(Product(inputs))
    chances = [[[0.9], [0.2]], [[0.15], [0.7]], [[0.8], [0.35]], [[0.1], [0.6]]]
    return Model.from_parameters(Circuit(root), {root: [[0.6, 0.4]]}, dict(zip(inputs, chances, strict=True)))


def test_em_finds_a_known_distribution_from_its_exact_table():
    model, rows = known_model(), all_rows(4)
    probability = np.exp(model.log_prob(rows))
    entropy = -float(probability @ np.log(probability))
    runs = [Run(seed=seed) for seed in range(3)]
    fleet = quick_fleet(model.circuit, rows, runs, weights=probability, batch_size=None, epochs=1500)
    assert fleet.best(by="train_ll").train_ll == pytest.approx(-entropy, abs=1e-5)
    assert all(result.train_ll <= -entropy + 1e-12 for result in fleet)


def test_em_finds_a_known_distribution_from_samples():
    model, rows = known_model(), all_rows(4)
    probability = np.exp(model.log_prob(rows))
    entropy = -float(probability @ np.log(probability))
    sample = rows[np.random.default_rng(0).choice(len(rows), 5000, p=probability / probability.sum())]
    test = Examples(rows, weights=probability)
    result = quick(model.circuit, sample, test=test, epochs=30, batch_size=500, step_size=0.3)
    assert -entropy - 0.005 < result.test_ll <= -entropy + 1e-12


def test_a_single_input_learns_the_moments_of_its_column():
    x = np.random.default_rng(0).normal(3.0, 2.0, (500, 1))
    node = Input(0, Gaussian())
    result = quick(Circuit(node), x, batch_size=None, epochs=2)
    np.testing.assert_allclose(result.model.input_parameters(node), [[x.mean(), x.var()]], rtol=1e-10)


def test_missing_values_are_summed_out_exactly():
    """Of two independent columns, one half missing: each is learned from what is there."""
    x = np.array([[1.0, np.nan], [0.0, 1.0], [1.0, 0.0], [np.nan, 1.0], [1.0, 1.0]])
    first, second = Input(0, Bernoulli()), Input(1, Bernoulli())
    result = quick(Circuit(Product([first, second])), x, batch_size=None, epochs=2)
    assert result.model.input_parameters(first)[0, 0] == pytest.approx(3 / 4, rel=1e-12)
    assert result.model.input_parameters(second)[0, 0] == pytest.approx(3 / 4, rel=1e-12)


# --- samples and their weights ---


@given(case=cases(samples=6))
@some
def test_a_row_of_weight_two_is_the_row_twice(case):
    case = replace(case, sample_weights=None)
    twice = [0, 1, 1, 2, 3, 4, 4, 5]
    weighted = replace(case, sample_weights=torch.tensor([1.0, 2, 1, 1, 2, 1], dtype=torch.float64))
    repeated = replace(case, x=case.x[twice], labels=None if case.labels is None else case.labels[twice])
    one, other = learn(weighted, epochs=3), learn(repeated, epochs=3)
    assert_same_model(one, other)
    assert one.train_ll == pytest.approx(other.train_ll, rel=1e-9)


@given(case=cases(samples=6))
@some
def test_a_row_of_weight_zero_is_left_out(case):
    kept = [0, 2, 3, 5]
    labels = None if case.labels is None else case.labels[kept]
    without = replace(case, x=case.x[kept], labels=labels, sample_weights=None)
    assume(not np.isnan(without.x).all())
    weighted = replace(case, sample_weights=torch.tensor([1.0, 0, 1, 1, 0, 1], dtype=torch.float64))
    one, other = learn(weighted, epochs=3), learn(without, epochs=3)
    assert_same_model(one, other)
    assert one.train_ll == pytest.approx(other.train_ll, rel=1e-9)


@pytest.mark.parametrize(
    "method", [Vanilla(), Global(0.01, penalty="exact", simplex="exact")], ids=["vanilla", "exact"]
)
def test_the_scale_of_all_weights_does_not_matter_without_a_scaled_penalty(method):
    x = binary_rows(50)
    circuit, weights = small_circuit(x), np.random.default_rng(0).random(50)
    one = quick(circuit, x, weights=weights, method=method, batch_size=None)
    other = quick(circuit, x, weights=1000 * weights, method=method, batch_size=None)
    assert_same_model(one, other)


def test_negligible_weights_count_as_zero():
    x = binary_rows(30)
    circuit, weights = small_circuit(x), np.ones(30)
    weights[::3] = 1e-42  # in float32 its inverse is infinite
    result = quick(circuit, x, weights=weights, method=Global(0.1, penalty="exact"), precision="float32")
    weights[::3] = 0
    assert (
        result.train_ll
        == quick(circuit, x, weights=weights, method=Global(0.1, penalty="exact"), precision="float32").train_ll
    )
    assert math.isfinite(result.train_ll)


# --- several roots ---


def two_classes() -> tuple[Circuit, Sum, Sum]:
    """Two mixtures over the same inputs."""
    body = Product([Input(v, Bernoulli(), 3) for v in range(6)])
    roots = Sum(body, name="first"), Sum(body, name="second")
    return Circuit(roots), *roots


def test_labels_train_the_root_of_their_class():
    circuit, first, second = two_classes()
    x = binary_rows(80, noise=0.1)
    start = quick(circuit, x, labels=np.zeros(80), epochs=0)
    result = quick(circuit, x, labels=np.zeros(80), start=start.model, batch_size=None)
    assert not np.allclose(result.model.weights(first), start.model.weights(first))
    np.testing.assert_array_equal(result.model.weights(second), start.model.weights(second))


def test_each_class_scores_its_own_rows_best_after_training():
    circuit, *_ = two_classes()
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    x = ((rng.random((200, 6)) < 0.15).astype(int) + labels[:, None]) % 2
    result = quick(circuit, x, labels=labels, valid=Examples(x, labels=labels), epochs=30, batch_size=None)
    scores = result.model.log_prob(x)
    assert (scores.argmax(1) == labels).mean() > 0.95
    assert result.valid_ll == pytest.approx(scores[np.arange(200), labels].mean(), rel=1e-12)


# --- floors and forms of data ---


@given(case=cases(samples=8, masks=True))
@settings(max_examples=15, deadline=None)
def test_no_weight_falls_below_the_floor(case):
    result = learn(case, epochs=8)
    for weights, layer in zip(result.model.params.weights, case.program.sums, strict=True):
        there = torch.ones(layer.shape, dtype=torch.bool) if layer.mask is None else torch.from_numpy(layer.mask)
        kept = weights[0][there]
        assert float(kept.min()) >= WEIGHT_FLOOR * (1 - 1e-9)
        assert torch.equal(weights[0][~there], torch.zeros_like(weights[0][~there]))


def test_all_forms_of_a_table_train_alike():
    x = binary_rows(50)
    circuit = small_circuit(x)
    wanted = quick(circuit, x)
    frame = pd.DataFrame(x, columns=list("abcdef"))
    forms = [x.tolist(), torch.from_numpy(x), frame, x.astype(np.float32), x.astype(bool), frame.astype("Int64")]
    for form in forms:
        found = quick(circuit, form)
        assert_same_model(found, wanted, 0)
        assert found.train_ll == wanted.train_ll


def test_all_marks_of_missing_values_train_alike():
    x = binary_rows(50).astype(float)
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    circuit = small_circuit()
    wanted = quick(circuit, x)
    marked = np.nan_to_num(x, nan=-1).astype(int)
    listed = [[None if np.isnan(v) else int(v) for v in row] for row in x]
    for form in (Examples(marked, missing=-1), listed, pd.DataFrame(x).astype("Int64"), torch.from_numpy(x)):
        assert_same_model(quick(circuit, form), wanted, 0)


def test_weights_and_labels_of_any_form_train_alike():
    circuit, *_ = two_classes()
    x, labels, weights = binary_rows(50), np.arange(50) % 2, 1 + np.arange(50) % 3
    wanted = quick(circuit, x, labels=labels, weights=weights)
    forms = [list, torch.from_numpy, pd.Series, lambda v: v.astype(np.float32)]
    for form in forms:
        assert_same_model(quick(circuit, x, labels=form(labels), weights=form(weights)), wanted, 0)
    assert_same_model(quick(circuit, Examples(x, weights, labels)), wanted, 0)


def test_a_mixture_of_one_component_is_learned_in_one_step():
    x = binary_rows(40)
    result = quick(mixture(6, 1), x, batch_size=None, epochs=1)
    share = x.mean(0).clip(1e-6, 1 - 1e-6)
    assert result.train_ll == pytest.approx(float((x * np.log(share) + (1 - x) * np.log(1 - share)).sum(1).mean()))
