"""Mixtures of latent trees: what is recognised, how members are computed, and the edges of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from backends import INTERPRETED, no_triton
from expected import true_statistics
from hypothesis import given, settings
from latent_trees import tree_mixtures, with_samples

import circurve as cc
from circuits import ALL, Case, all_sums, assert_close
from circurve.engine import choose_backend, compile, explain_choice
from circurve.engine.tree import TreeMixture, mixture_layout
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Gaussian
from circurve.learning import mix
from circurve.structures import hmm, mixture

ROWS = np.random.default_rng(0).integers(0, 2, (60, 6))
CHAIN, STAR = [-1, 0, 1, 2, 3, 4], [-1, 0, 0, 0, 0, 0]


def member(units: int, tree: Sequence[int] = CHAIN, leaves: str = "own") -> Sum:
    (root,) = cc.hclt(ROWS, units, Bernoulli(), tree=tree, leaves=leaves).roots
    assert isinstance(root, Sum)
    return root


def mixture_of(case: Case, runs: int = 1) -> TreeMixture:
    layout = mixture_layout(case.program)
    assert layout is not None
    return TreeMixture(case.program, layout, runs, torch.float64)


def compare(case: Case, tolerance: float = 1e-10, dtype: torch.dtype = torch.float64) -> None:
    """The mixture against the reference in float64."""
    params, samples = case.params.to(dtype=dtype), case.samples(dtype)
    batch = samples.rows(0, len(samples))
    backend = choose_backend(case.program, params, "tree")
    assert isinstance(backend, TreeMixture)
    wanted = case.backend().log_prob(case.params, case.samples().rows(0, len(samples)))
    assert_close(backend.log_prob(params, batch), wanted, tolerance)
    found, expected = backend.statistics(params, [batch], ALL), case.statistics()
    for one, other in zip(all_sums(found), all_sums(expected), strict=True):
        assert_close(one, other, tolerance)
    assert torch.equal(found.impossible, expected.impossible)


# --- which circuits are mixtures of latent trees ---


def test_an_ensemble_of_hidden_trees_is_a_mixture_of_latent_trees():
    circuits = [cc.hclt(ROWS, 3), cc.hclt(ROWS, 4, leaves="shared"), cc.hclt(ROWS[:20], 3)]
    models = [cc.fit(circuit, ROWS, epochs=1, progress=False).model for circuit in circuits]
    mixed = mix(models)
    assert isinstance(mixed.backend, TreeMixture)
    assert explain_choice(mixed.program, mixed.params).startswith("mixture of latent trees: 3 members of")


def test_alike_members_are_one_fleet():
    alike = [member(3), member(3), member(3)]
    others = [member(4), member(3, STAR), member(3, leaves="shared")]
    layout = mixture_layout(compile(Circuit(Sum([alike[0], *others, *alike[1:]]))))
    assert layout is not None
    assert sorted(group.count for group in layout.groups) == [1, 1, 1, 3]
    assert layout.members == 6
    assert layout.groups[0].columns.tolist() == [0, 4, 5]


def two_leaves(units: int = 2) -> Product:
    return Product([Input(0, Bernoulli(), units), Input(1, Bernoulli(), units)])


SHARED = two_leaves()


def with_a_real_number(units: int = 2) -> Product:
    return Product([Input(0, Gaussian(), units), Input(1, Bernoulli(), units)])


OTHERS: dict[str, Node | list[Node]] = {
    "members share a node": Sum([Sum(SHARED), Sum(SHARED)]),
    "a member is a product": Sum([Sum(two_leaves()), two_leaves()]),
    "members have a continuous input": Sum([Sum(with_a_real_number()), Sum(with_a_real_number())]),
    "a member is a mixture": Sum([Sum(two_leaves()), Sum([Sum(two_leaves()), Sum(two_leaves())])]),
    "a mask": Sum([Sum(two_leaves()), Sum(two_leaves())], mask=[[True, False]]),
    "two roots": [Sum([Sum(two_leaves()), Sum(two_leaves())]), Sum(two_leaves())],
    "leaves alone": Sum([Sum(Input(0, Bernoulli(), 2)), Sum(Input(0, Bernoulli(), 2))]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_circuits_are_no_mixtures(name):
    assert mixture_layout(compile(Circuit(OTHERS[name]))) is None


# --- values and sums ---


@given(case=tree_mixtures(zeros=True))
@settings(max_examples=12, deadline=None)
def test_chunks_with_samples_that_one_member_finds_impossible_have_the_same_sums(case):
    """Zeros among the inputs; the weights of sums stay positive."""
    weights = {node: torch.full_like(block, 1 / block.shape[1]) for node, block in case.weights.items()}
    case = replace(case, weights=weights)
    backend, samples = mixture_of(case), case.samples()
    batches = [samples.rows(0, 2), samples.rows(2, len(samples))]
    found = backend.statistics(case.params, batches, ALL)
    for one, other in zip(all_sums(found), all_sums(case.statistics()), strict=True):
        assert_close(one, other)


def test_members_of_very_different_likelihood():
    """The share of the second member is about exp(-1000) in most samples, and 1 in the last one."""
    variables = 300
    roots = [Sum(Product([Input(v, Bernoulli(), 2) for v in range(variables)])) for _ in range(2)]
    case = with_samples(Circuit(Sum(roots)), 6)
    loud = {node: torch.full_like(block, 0.95) for node, block in case.inputs.items()}
    quiet = {child: torch.full((2, 1), 0.05).double() for child in roots[1].children[0].children}
    x = np.ones((6, variables))
    x[-1] = 0
    compare(replace(case, inputs={**loud, **quiet}, x=x), 1e-3, torch.float32)


@given(case=tree_mixtures(samples=31))
@settings(max_examples=15, deadline=None)
def test_members_that_score_in_the_same_memory_do_not_disturb_each_other(case):
    """Batches of several sizes in turns, alike members a few samples at a time."""
    backend, samples = mixture_of(case), case.samples()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circurve.engine.tree.mixture.CACHE_BYTES", 0)
        for stop in (31, 31, 4, 17, 31):
            batch = samples.rows(0, stop)
            assert_close(backend.log_prob(case.params, batch), case.backend().log_prob(case.params, batch))


def test_scores_take_the_memory_of_one_member_and_sums_that_of_all():
    alike, alone = (with_samples(Circuit(Sum([member(3) for _ in range(count)])), 5) for count in (6, 1))
    many, one = mixture_of(alike), mixture_of(alone)
    assert many.bytes_per_sample(backward=False) < 2 * one.bytes_per_sample(backward=False)
    assert many.bytes_per_sample(backward=True) > 5 * one.bytes_per_sample(backward=True)


@given(case=tree_mixtures(zeros=False))
@settings(max_examples=10, deadline=None)
def test_scores_follow_parameters_that_change_in_place(case):
    """The members' parameters are kept between scores with the same parameters, and with no others."""
    backend, params = mixture_of(case), case.params.clone()
    batch = case.samples().rows(0, len(case.x))
    first = backend.log_prob(params, batch)
    backend.statistics(params, [batch], ALL)
    torch.testing.assert_close(backend.log_prob(params, batch), first)
    for weights in params.weights:
        weights.copy_(weights.flip(-1))
    torch.testing.assert_close(backend.log_prob(params, batch), mixture_of(case).log_prob(params.clone(), batch))


def test_joint_training_on_a_cpu_and_on_the_reference_takes_the_same_path():
    """EM of the whole mixture, not of its members: the root's weights change too."""
    members = [cc.hclt(ROWS, 2, Bernoulli(), tree=tree) for tree in (CHAIN, STAR, CHAIN)]
    start = mix([cc.fit(c, ROWS, epochs=1, seed=s, progress=False).model for s, c in enumerate(members)])
    options = {"start": start, "epochs": 5, "batch_size": None, "precision": "float64", "progress": False}
    result = cc.fit(start.circuit, ROWS, **options)
    likelihoods = [record.train_ll for record in result.history]
    assert all(later >= earlier - 1e-12 for earlier, later in pairwise(likelihoods))
    reference = result.model.log_prob(ROWS, backend="reference")
    np.testing.assert_allclose(result.model.log_prob(ROWS), reference, rtol=1e-10)
    weights = result.model.weights(result.model.circuit.roots[0])
    assert not np.allclose(weights, 1 / 3)


@no_triton
@pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")
def test_the_kernels_compute_mixtures_too():
    case = with_samples(Circuit(Sum([hmm(2, 2).roots[0], mixture(2, 3).roots[0]])), 4)
    params = INTERPRETED.params(case.params)
    backend = INTERPRETED.make(case.program, case.params)
    INTERPRETED.assert_same(backend.statistics(params, [INTERPRETED.batch(case)], ALL), true_statistics(case))
