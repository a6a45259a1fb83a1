"""Completions against all completions."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from world import GRIDS, evidence_of, possible_rows, probability, target_of, with_gap

from circuits import Case, Shape, cases, with_parameters
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Indicator
from circurve.queries import most_probable
from circurve.queries.determinism import deterministic_runs


def best_completion(case: Case, row: int) -> float:
    """max_x log p(x, e), over all states or the points of a grid."""
    gaps = np.flatnonzero(np.isnan(case.x[row]))
    points = list(itertools.product(*(GRIDS[case.domains[c]][0] for c in gaps)))
    x = np.repeat(case.x[row : row + 1], len(points), axis=0)
    x[:, gaps] = np.array(points).reshape(len(points), len(gaps))
    labels = None if case.labels is None else case.labels[row].expand(len(points))
    return float(probability(case, x, labels).max().log())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@settings(max_examples=30, deadline=None)
@given(case=cases(zeros=True, samples=3, domains=("binary", "ternary")))
def test_the_optimum_lies_between_the_completion_and_its_bound(
    dtype: torch.dtype, tolerance: float, case: Case
) -> None:
    case = possible_rows(with_gap(case))
    assume(len(case.x) > 0)
    target = target_of(case, dtype)
    found = most_probable(target, evidence_of(case, target))
    for row in range(len(case.x)):
        x = found.values[0, row].double().numpy()
        known = ~np.isnan(case.x[row])
        assert (x[known] == case.x[row, known]).all()
        labels = None if case.labels is None else case.labels[row : row + 1]
        own = float(probability(case, x[None], labels).log())
        slack = tolerance * (1 + abs(own))
        assert abs(float(found.log_prob[0, row]) - own) <= slack
        optimum = best_completion(case, row)
        assert own <= optimum + slack
        assert optimum <= float(found.upper_bound[0, row]) + slack
        if bool(found.exact[0, row]):
            assert own >= optimum - 2 * slack


@settings(max_examples=15, deadline=None)
@given(case=cases(samples=2, variables=2, domains=("real", "count")))
def test_densities_and_counts_are_bounded_too(case: Case) -> None:
    case = possible_rows(with_gap(case))
    target = target_of(case)
    found = most_probable(target, evidence_of(case, target))
    for row in range(len(case.x)):
        optimum = best_completion(case, row)
        assert optimum <= float(found.upper_bound[0, row]) + 1e-6
        labels = None if case.labels is None else case.labels[row : row + 1]
        own = float(probability(case, found.values[0, row].numpy()[None], labels).log())
        assert abs(float(found.log_prob[0, row]) - own) < 1e-9
        if bool(found.exact[0, row]):
            assert own >= optimum - 1e-6


def decision_tree(seed: int) -> Case:
    """A deterministic circuit: each sum decides by the state of one column."""
    rng = np.random.default_rng(seed)

    def below(columns: list[int]) -> Sum | Product:
        if len(columns) == 1:
            return Sum(Input(columns[0], Indicator((0, 1)), 2))
        first, rest = columns[0], columns[1:]
        return Sum([Product([Input(first, Indicator((state,))), below(rest)]) for state in (0, 1)])

    circuit = Circuit(below([0, 1, 2, 3]))
    case = with_parameters(circuit, ("binary",) * 4, Shape(samples=6), rng)
    x = case.x.copy()
    x[rng.random(x.shape) < 0.5] = np.nan
    return replace(case, x=x)


@pytest.mark.parametrize("seed", range(4))
def test_max_product_is_exact_in_deterministic_circuits(seed: int) -> None:
    case = decision_tree(seed)
    target = target_of(case)
    found = most_probable(target, evidence_of(case, target))
    assert bool(found.exact.all())
    for row in range(len(case.x)):
        assert abs(float(found.log_prob[0, row]) - best_completion(case, row)) < 1e-9


def test_zero_probabilities_make_a_circuit_deterministic() -> None:
    leaf = Input(0, Categorical(3), 2)
    circuit = Circuit(Sum(Product([leaf, Input(1, Bernoulli(), 2)])))
    case = with_parameters(circuit, ("ternary", "binary"), Shape(samples=3), np.random.default_rng(0))
    case = replace(case, x=np.full((1, 2), np.nan), sample_weights=None)
    apart = replace(case, inputs=case.inputs | {leaf: torch.tensor([[0.4, 0.6, 0.0], [0.0, 0.0, 1.0]]).double()})
    together = replace(case, inputs=case.inputs | {leaf: torch.tensor([[0.4, 0.6, 0.0], [0.0, 0.1, 0.9]]).double()})
    assert deterministic_runs(target_of(apart)).tolist() == [True]
    assert deterministic_runs(target_of(together)).tolist() == [False]
    assert bool(most_probable(target_of(apart), evidence_of(apart, target_of(apart))).exact.all())


@settings(max_examples=10, deadline=None)
@given(case=cases(samples=2, variables=3, domains=("binary", "ternary")), data=st.data())
def test_a_likelihood_counts_in_the_completion(case: Case, data: st.DataObject) -> None:
    x = case.x.copy()
    x[:, 0] = np.nan
    case = replace(case, x=x, sample_weights=None)
    target = target_of(case)
    states = target.states[0]
    assert states is not None
    worth = data.draw(st.lists(st.sampled_from([0.0, 0.2, 3.0]), min_size=len(states), max_size=len(states)))
    fixed = [replace(case, x=np.where(np.arange(x.shape[1]) == 0, state, x)) for state in states]
    sums = torch.stack([w * probability(f, f.x, f.labels) for w, f in zip(worth, fixed, strict=True)]).sum(0)
    assume(bool((sums > 0).all()))
    found = most_probable(target, evidence_of(case, target, likelihoods={0: worth}))
    for row in range(len(x)):
        own = int(found.values[0, row, 0])
        labels = None if case.labels is None else case.labels[row : row + 1]
        score = float(probability(case, found.values[0, row].numpy()[None], labels).log()) + np.log(
            worth[states.index(own)]
        )
        assert abs(float(found.log_prob[0, row]) - score) < 1e-9
        possible = [(w, f) for w, f in zip(worth, fixed, strict=True) if w > 0]
        optimum = max(np.log(w) + best_completion(f, row) for w, f in possible)
        assert score <= optimum + 1e-9 <= float(found.upper_bound[0, row]) + 2e-9
