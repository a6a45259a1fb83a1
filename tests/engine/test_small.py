"""A few rows in numpy give what the reference backend gives, or leave them to it."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from extreme_cases import impossible_samples, outlier_chain, rare_child, wide_product
from hypothesis import given, settings
from hypothesis import strategies as st
from latent_trees import trees

from circuits import Case, Truth, cases
from circurve.data import QuickCheck
from circurve.engine import Params, Reference, SmallBatches, compile, from_nodes
from circurve.engine.numerics import WEAK_SUM
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Poisson
from shapes import SHAPES, case_of


def found_and_wanted(case: Case, dtype: torch.dtype) -> tuple[np.ndarray | None, np.ndarray]:
    params = case.params.to(dtype=dtype)
    columns = QuickCheck(case.circuit.families)(case.x)
    assert columns is not None
    batch = case.samples(dtype).rows(0, len(case.x))
    wanted = Reference.of(case.program, params).log_prob(params, batch)[0].double().numpy()
    return SmallBatches(case.program, params).log_prob(*columns), wanted


def assert_same_as_reference(case: Case, dtype: torch.dtype, tolerance: float) -> bool:
    """Whether numpy computed it at all."""
    found, wanted = found_and_wanted(case, dtype)
    if found is not None:
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    return found is not None


@given(case=st.one_of(cases(zeros=False), trees(zeros=False)))
@settings(max_examples=150, deadline=None)
def test_equals_the_reference_in_both_precisions(case):
    assert_same_as_reference(case, torch.float32, 2e-4)
    computed = assert_same_as_reference(case, torch.float64, 1e-10)
    assert computed or case.params.may_underflow()


@given(case=cases(zeros=False))
@settings(max_examples=40, deadline=None)
def test_log_prob_is_that_of_the_definition(case):
    """What the contract asks of every backend. This is none: it belongs to one set of parameters and may give up."""
    found, _ = found_and_wanted(case, torch.float64)
    if found is not None:
        np.testing.assert_allclose(found, Truth.of(case).outputs.log(), rtol=1e-11, atol=1e-13)


@given(case=cases(zeros=True))
@settings(max_examples=150, deadline=None)
def test_weights_of_zero_give_the_same_or_nothing(case):
    assert_same_as_reference(case, torch.float64, 1e-10)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_circuit(name):
    assert assert_same_as_reference(case_of(name), torch.float64, 1e-10)


@pytest.mark.parametrize(
    "case",
    [rare_child(1e-30, 1.0), rare_child(0.0, 1.0, masked=True), outlier_chain(3, 200.0, masked=True), wide_product(40)],
)
def test_sums_that_lose_their_children_are_left_to_a_backend(case):
    for dtype in WEAK_SUM:
        assert_same_as_reference(case, dtype, 1e-4)


def test_impossible_rows_have_minus_infinity():
    case = impossible_samples()
    found, wanted = found_and_wanted(case, torch.float64)
    assert found is not None
    assert np.isneginf(wanted).any()
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(wanted))


def small(circuit: Circuit, inputs: Mapping[Node, list[list[float]]]) -> SmallBatches:
    program = compile(circuit)
    return SmallBatches(program, from_nodes(program, {}, inputs))


def test_products_of_very_different_width_are_left_to_a_backend():
    leaves = [Input(v, Bernoulli()) for v in range(120)]
    pairs = [Product(leaves[v : v + 2]) for v in range(60, 120, 2)]
    half = {leaf: [[0.5]] for leaf in leaves}
    assert small(Circuit(Product([Product(leaves[:60]), *pairs])), half).max_samples == 0
    assert small(Circuit(Product([Product(leaves[:4]), Product(leaves[4:])])), half).max_samples > 0


def test_inputs_with_a_table_and_without():
    for family, parameters in ((Poisson(), [[3.0]]), (Binomial(5000), [[0.001]]), (Categorical(3), [[0.2, 0.3, 0.5]])):
        leaf = Input(0, family)
        found = small(Circuit(leaf), {leaf: parameters}).log_prob(np.array([[2.0, 1.0]]), None)
        given_ = torch.tensor(parameters, dtype=torch.float64)[None, None]
        wanted = family.log_prob(given_, torch.tensor([[[2.0, 1.0]]], dtype=torch.float64))
        np.testing.assert_allclose(found, wanted[0, 0], rtol=1e-12)


def test_fleets_are_left_to_a_backend():
    leaf = Input(0, Bernoulli())
    program = compile(Circuit(leaf))
    params = from_nodes(program, {}, {leaf: [[0.5]]})
    two = Params((), tuple(torch.cat([p, p]) for p in params.inputs))
    assert SmallBatches(program, two).max_samples == 0


def test_results_share_no_memory_and_later_calls_change_nothing():
    leaf = Input(0, Bernoulli(), 2)
    few = small(Circuit(Sum(leaf)), {leaf: [[0.25], [0.75]]})
    first = few.log_prob(np.array([[1.0, 0.0]]), None)
    kept = first.copy()
    second = few.log_prob(np.array([[0.0, 1.0]]), np.array([[True, False]]))
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, kept)
