from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from standin_pyjuice import below, log_values

import circurve as cc
from circuits import Case, cases
from circurve.data import prepare
from circurve.engine import compile
from circurve.interop import from_pyjuice, to_pyjuice
from circurve.learning.initialize import initial_params


def trained(circuit: cc.Circuit, data: np.ndarray, seed: int = 0) -> cc.Model:
    """A model with random parameters, as training starts from."""
    program = compile(circuit)
    return cc.Model(circuit, initial_params(program, seed, prepare(data, circuit, "test")), program)


def assert_goes_both_ways(model: cc.Model, x: np.ndarray) -> Any:
    root = to_pyjuice(model)
    expected = model.log_prob(x).reshape(len(x), -1)
    np.testing.assert_allclose(log_values(root, x.astype(float)), expected, rtol=1e-5, atol=1e-5)
    back = from_pyjuice(root)
    np.testing.assert_allclose(back.log_prob(x).reshape(len(x), -1), expected, rtol=1e-5, atol=1e-5)
    return root


def binary(samples: int, variables: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (samples, variables))


@pytest.mark.parametrize("units", [1, 6, 8])
def test_hclt(juice: ModuleType, units: int) -> None:
    x = binary(40, 7)
    root = assert_goes_both_ways(trained(cc.hclt(x, units=units), x), x)
    sizes = {node.block_size for node in below(root) if node is not root}
    assert sizes == {units & -units}, "the largest power of two that divides the units"


def test_round_trip_of_an_hclt_gives_the_same_circuit(juice: ModuleType) -> None:
    x = binary(40, 7)
    model = trained(cc.hclt(x, units=4), x)
    back = from_pyjuice(to_pyjuice(model))
    assert back.circuit.describe() == model.circuit.describe()
    for mine, theirs in zip(model.circuit.sums, back.circuit.sums, strict=True):
        np.testing.assert_allclose(back.weights(theirs), model.weights(mine), atol=1e-6)


def test_a_mixture_of_models(juice: ModuleType) -> None:
    x = binary(40, 7)
    members = [trained(cc.hclt(x, units=units), x, seed=units) for units in (2, 4)]
    assert_goes_both_ways(cc.mix([*members, trained(cc.fully_factorized(7), x)], [0.5, 0.3, 0.2]), x)


def test_hmm_mixture_and_factorized(juice: ModuleType) -> None:
    x = np.random.default_rng(0).integers(0, 3, (20, 5))
    families = (cc.Categorical(3), 5)
    for circuit in (cc.hmm(families, units=4), cc.mixture(families, 5), cc.fully_factorized(families)):
        assert_goes_both_ways(trained(circuit, x), x)


@pytest.mark.parametrize("product", ["outer", "unitwise"])
def test_random_trees(juice: ModuleType, product: Any) -> None:
    x = binary(20, 6)
    circuit = cc.random_binary_trees(6, units=4, repetitions=2, depth=2, product=product)
    assert_goes_both_ways(trained(circuit, x), x)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases(domains=("real",), roots=1, missing=False))
def test_any_circuit(juice: ModuleType, case: Case) -> None:
    assert_goes_both_ways(cc.Model.from_parameters(case.circuit, case.weights, case.inputs), case.x)


def test_families_keep_their_options(juice: ModuleType) -> None:
    families = (cc.Bernoulli(), cc.Categorical(4), cc.Gaussian(0.25), cc.Indicator((1, 1)))
    leaves = [cc.Input(v, family, 2) for v, family in enumerate(families)]
    circuit = cc.Circuit(cc.Sum(cc.Product(leaves)))
    inputs = {
        leaves[0]: [[0.2], [0.7]],
        leaves[1]: [[0.1, 0.2, 0.3, 0.4], [0.25] * 4],
        leaves[2]: [[0.5, 2.0], [-1.0, 0.5]],
    }
    model = cc.Model.from_parameters(circuit, inputs=inputs)
    x = np.array([[0, 3, 0.25, 1], [1, 0, -2.0, 1]])
    root = assert_goes_both_ways(model, x)
    assert from_pyjuice(root).circuit.families == families


def test_masks_come_back(juice: ModuleType) -> None:
    leaf = cc.Input(0, cc.Bernoulli(), 4)
    mask = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]], dtype=bool)
    circuit = cc.Circuit(cc.Sum(cc.Sum(leaf, 4, mask)))
    model = cc.Model.from_parameters(circuit, inputs={leaf: [[0.1], [0.3], [0.6], [0.8]]})
    root = assert_goes_both_ways(model, np.array([[0], [1]]))
    np.testing.assert_array_equal(from_pyjuice(root).circuit.sums[0].mask, mask)


def test_noted_zeros_of_pyjuice_become_a_mask(juice: ModuleType) -> None:
    x = binary(8, 2)
    root = to_pyjuice(trained(cc.hclt(x, units=2), x))
    (inner,) = (n for n in below(root) if n.is_sum() and n is not root)
    zeros = torch.tensor([[[True, False], [False, False]]])
    inner.set_params(torch.tensor([[[0.0, 1.0], [0.5, 0.5]]]), normalize=False)
    inner.set_zero_param_mask(zeros)
    np.testing.assert_array_equal(from_pyjuice(root).circuit.sums[0].mask, ~zeros[0].numpy())


def test_blocks_without_edges_are_left_out(juice: ModuleType) -> None:
    leaves = [cc.Input(0, cc.Bernoulli(), 2) for _ in range(2)]
    mask = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]], dtype=bool)
    inner = cc.Sum(leaves, 4, mask)
    model = cc.Model.from_parameters(cc.Circuit(cc.Sum(inner)), inputs={leaf: [[0.1], [0.6]] for leaf in leaves})
    root = assert_goes_both_ways(model, np.array([[0], [1]]))
    (theirs,) = (n for n in below(root) if n.is_sum() and n is not root)
    assert theirs.edge_ids.shape[1] * theirs.block_size * theirs.ch_block_size == 8


def test_the_same_child_twice(juice: ModuleType) -> None:
    leaf = cc.Input(0, cc.Bernoulli(), 2)
    circuit = cc.Circuit(cc.Sum([leaf, leaf]))
    root = cc.Model.from_parameters(circuit, {circuit.sums[0]: [0.1, 0.2, 0.3, 0.4]}, {leaf: [[0.2], [0.9]]})
    made = assert_goes_both_ways(root, np.array([[0], [1]]))
    assert len(set(made.chs)) == 2


def test_a_deep_chain_is_exported_without_recursion(juice: ModuleType) -> None:
    node: cc.Input | cc.Product | cc.Sum = cc.Input(0, cc.Bernoulli(), 1)
    for variable in range(1, 1100):
        node = cc.Sum(cc.Product([cc.Input(variable, cc.Bernoulli(), 1), node]))
    circuit = cc.Circuit(node)
    x = binary(2, 1100)
    assert_goes_both_ways(trained(circuit, x), x)


def test_parameters_are_float32_of_pyjuice_shape(juice: ModuleType) -> None:
    x = binary(20, 3)
    for node in below(to_pyjuice(trained(cc.hclt(x, units=4), x))):
        if not node.is_prod():
            assert node.get_params().dtype == torch.float32


@pytest.mark.parametrize("family", [cc.Binomial(3), cc.Poisson()])
def test_a_family_without_counterpart_is_an_error(juice: ModuleType, family: Any) -> None:
    leaf = cc.Input(0, family, 1, name="counts")
    model = cc.Model.from_parameters(cc.Circuit(cc.Sum(leaf)), inputs={leaf: [0.5]})
    with pytest.raises(cc.StructureError, match=r"Input 'counts': .* does not exist in PyJuice; it has Bernoulli"):
        to_pyjuice(model)


def test_an_indicator_of_several_values_is_an_error(juice: ModuleType) -> None:
    model = cc.Model.from_parameters(cc.Circuit(cc.Sum(cc.Input(0, cc.Indicator((0, 2)), 2, name="which"))))
    with pytest.raises(cc.StructureError, match=r"Input 'which': the units name the values \[0, 2\]"):
        to_pyjuice(model)


def test_several_roots_are_an_error(juice: ModuleType) -> None:
    leaf = cc.Input(0, cc.Bernoulli(), 1)
    model = cc.Model.from_parameters(cc.Circuit([cc.Sum(leaf), cc.Sum(leaf)]), inputs={leaf: [0.5]})
    with pytest.raises(cc.StructureError, match="the circuit has 2 roots; a PyJuice circuit has one"):
        to_pyjuice(model)


def test_without_pyjuice_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyjuice", None)
    leaf = cc.Input(0, cc.Bernoulli(), 1)
    model = cc.Model.from_parameters(cc.Circuit(cc.Sum(leaf)), inputs={leaf: [0.5]})
    with pytest.raises(cc.CircurveError, match=r"needs PyJuice \(pip install pyjuice\)"):
        to_pyjuice(model)
