from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from standin_pyjuice import add_passing_sums, below, compiled, draw, log_values

import circurve as cc
from circurve.interop import from_pyjuice


def binary(samples: int, variables: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (samples, variables))


def assert_same_likelihoods(root: Any, model: cc.Model, x: np.ndarray) -> None:
    expected = log_values(root, x.astype(float))
    actual = model.log_prob(x)
    np.testing.assert_allclose(actual.reshape(len(x), -1), expected, rtol=1e-6)


def tree(juice: ModuleType, units: int, size: int, dist: Any) -> Any:
    """Variables 1 and 2 below 0, and 3 below 2, each with a latent of its own but the leaf 1."""

    def leaf(variable: int) -> Any:
        return juice.inputs(variable, num_node_blocks=units // size, dist=dist(variable), block_size=size)

    deepest = juice.summate(leaf(3), num_node_blocks=units // size, block_size=size)
    middle = juice.summate(juice.multiply(leaf(2), deepest), num_node_blocks=units // size, block_size=size)
    return draw(juice.summate(juice.multiply(leaf(0), leaf(1), middle), num_node_blocks=1, block_size=1))


@pytest.mark.parametrize(("units", "size"), [(4, 4), (6, 2), (3, 1)])
def test_a_tree_of_latents_keeps_its_likelihoods(juice: ModuleType, units: int, size: int) -> None:
    root = tree(juice, units, size, lambda _: juice.distributions.Bernoulli())
    model = from_pyjuice(root)
    assert [type(n).__name__ for n in model.circuit.nodes].count("Sum") == 3
    assert_same_likelihoods(root, model, binary(16, 4))


def test_parameters_are_those_of_pyjuice(juice: ModuleType) -> None:
    root = tree(juice, 4, 2, lambda _: juice.distributions.Bernoulli())
    model = from_pyjuice(root)
    assert isinstance(model.circuit.roots[0], cc.Sum)
    given = root.get_params().double().numpy().reshape(-1)
    np.testing.assert_allclose(model.weights(model.circuit.roots[0]).reshape(-1), given, atol=1e-6)
    for theirs in below(root):
        if theirs.is_input():
            (ours,) = (n for n in model.circuit.inputs if n.variable in theirs.scope)
            np.testing.assert_allclose(model.input_parameters(ours)[:, 0], theirs.get_params().double().numpy())


def test_families_that_both_have(juice: ModuleType) -> None:
    kinds = juice.distributions
    dists = [
        kinds.Categorical(num_cats=3),
        kinds.Gaussian(0.0, 1.0, min_sigma=0.1),
        kinds.Bernoulli(),
        kinds.Literal(2),
    ]
    root = tree(juice, 4, 2, lambda variable: dists[variable])
    model = from_pyjuice(root)
    expected = (cc.Categorical(3), cc.Gaussian(0.1**2), cc.Bernoulli(), cc.Indicator((2,) * 4))
    assert model.circuit.families == expected
    random = np.random.default_rng(1)
    x = np.stack([random.integers(0, 3, 12), random.normal(size=12), random.integers(0, 2, 12), [2] * 12], axis=1)
    assert_same_likelihoods(root, model, x)


def test_block_sparse_sums_become_masks(juice: ModuleType) -> None:
    leaves = [juice.inputs(0, num_node_blocks=3, dist=juice.distributions.Bernoulli(), block_size=2) for _ in range(2)]
    edges = torch.tensor([[0, 1, 1, 0], [0, 2, 5, 4]])
    inner = juice.summate(*leaves, num_node_blocks=2, block_size=2, edge_ids=edges)
    root = draw(juice.summate(juice.multiply(inner), num_node_blocks=1, block_size=1))
    model = from_pyjuice(root)
    mask = model.circuit.sums[0].mask
    assert mask is not None
    blocks = [[True, False, False, False, True, False], [False, False, True, False, False, True]]
    np.testing.assert_array_equal(mask, np.repeat(np.repeat(blocks, 2, axis=0), 2, axis=1))
    assert_same_likelihoods(root, model, binary(2, 1))


def test_an_edge_given_twice_counts_twice(juice: ModuleType) -> None:
    leaf = juice.inputs(0, num_node_blocks=2, dist=juice.distributions.Bernoulli(), block_size=2)
    root = draw(juice.summate(leaf, num_node_blocks=1, block_size=2, edge_ids=torch.tensor([[0, 0, 0], [0, 1, 0]])))
    assert_same_likelihoods(root, from_pyjuice(root), np.array([[0], [1]]))


@pytest.mark.parametrize("sparse", [False, True])
def test_products_take_the_units_that_their_edges_name(juice: ModuleType, sparse: bool) -> None:
    dist = juice.distributions.Bernoulli
    leaves = [juice.inputs(v, num_node_blocks=2, dist=dist(), block_size=2) for v in range(2)]
    edges = torch.tensor([[0, 3], [1, 0], [1, 1], [3, 2]] if sparse else [[0, 1], [1, 1], [1, 0]])
    product = juice.multiply(*leaves, edge_ids=edges, sparse_edges=sparse)
    root = draw(juice.summate(product, num_node_blocks=1, block_size=1))
    model = from_pyjuice(root)
    (ours,) = (n for n in model.circuit.nodes if isinstance(n, cc.Product))
    assert ours.units == (4 if sparse else 6)
    assert_same_likelihoods(root, model, np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))


def test_a_root_of_several_units_has_several_outputs(juice: ModuleType) -> None:
    leaf = juice.inputs(0, num_node_blocks=2, dist=juice.distributions.Bernoulli(), block_size=2)
    root = draw(juice.summate(leaf, num_node_blocks=3, block_size=1))
    model = from_pyjuice(root)
    assert model.circuit.outputs == 3
    assert_same_likelihoods(root, model, np.array([[0], [1]]))


def test_shared_nodes_stay_shared(juice: ModuleType) -> None:
    leaf = juice.inputs(0, num_node_blocks=1, dist=juice.distributions.Bernoulli(), block_size=2)
    other = juice.inputs(1, num_node_blocks=1, dist=juice.distributions.Bernoulli(), block_size=2)
    tops = [juice.multiply(juice.summate(leaf, num_node_blocks=1, block_size=2), other) for _ in range(2)]
    root = draw(juice.summate(*tops, num_node_blocks=1, block_size=1))
    model = from_pyjuice(root)
    assert len(model.circuit.inputs) == 2
    assert_same_likelihoods(root, model, binary(4, 2))


def test_weights_are_normalised_as_compiling_does(juice: ModuleType) -> None:
    root = tree(juice, 4, 4, lambda _: juice.distributions.Bernoulli())
    root.set_params(root.get_params() * 3, normalize=False)
    assert_same_likelihoods(root, from_pyjuice(root), binary(8, 4))


def test_sums_that_compiling_adds_are_left_out(juice: ModuleType) -> None:
    root = tree(juice, 4, 2, lambda _: juice.distributions.Bernoulli())
    plain = from_pyjuice(root)
    add_passing_sums(root, juice)
    model = from_pyjuice(root)
    assert len(model.circuit.nodes) == len(plain.circuit.nodes)
    assert_same_likelihoods(root, model, binary(8, 4))


def test_a_compiled_circuit_gives_its_parameters_back_first(juice: ModuleType) -> None:
    root = tree(juice, 4, 2, lambda _: juice.distributions.Bernoulli())
    expected = from_pyjuice(root).log_prob(binary(8, 4))
    np.testing.assert_array_equal(from_pyjuice(compiled(root)).log_prob(binary(8, 4)), expected)


def test_a_deep_chain_is_no_recursion(juice: ModuleType) -> None:
    dist, length = juice.distributions.Bernoulli, 1100
    node = juice.inputs(0, num_node_blocks=1, dist=dist(), block_size=1)
    for variable in range(1, length):
        leaf = juice.inputs(variable, num_node_blocks=1, dist=dist(), block_size=1)
        node = juice.multiply(leaf, juice.summate(node, num_node_blocks=1, block_size=1))
    root = draw(juice.summate(node, num_node_blocks=1, block_size=1))
    model = from_pyjuice(root)
    assert model.circuit.variables == length
    assert_same_likelihoods(root, model, binary(2, length))


def hidden_chain(juice: ModuleType, tied: bool) -> Any:
    first = juice.inputs(2, num_node_blocks=1, dist=juice.distributions.Categorical(num_cats=3), block_size=2)
    transition = juice.summate(first, num_node_blocks=1, block_size=2)
    node = juice.multiply(first.duplicate(1, tie_params=tied), transition)
    node = juice.multiply(first.duplicate(0, tie_params=tied), transition.duplicate(node, tie_params=tied))
    return draw(juice.summate(node, num_node_blocks=1, block_size=1))


def test_tied_parameters_are_copied_only_on_request(juice: ModuleType) -> None:
    x = np.random.default_rng(0).integers(0, 3, (12, 3))
    root = hidden_chain(juice, tied=True)
    with pytest.raises(cc.StructureError, match=r"InputNodes #\d+: it shares its parameters .* untie=True"):
        from_pyjuice(root)
    assert_same_likelihoods(root, from_pyjuice(root, untie=True), x)
    free = hidden_chain(juice, tied=False)
    assert_same_likelihoods(free, from_pyjuice(free), x)


def leaf_only(juice: ModuleType, variable: Any, dist: Any) -> Any:
    leaf = juice.inputs(variable, num_node_blocks=1, dist=dist, block_size=2)
    return draw(juice.summate(leaf, num_node_blocks=1, block_size=1))


def test_an_unknown_distribution_is_an_error(juice: ModuleType) -> None:
    logistic = juice.distributions.DiscreteLogistic
    dist = logistic() if logistic.__module__ == "standin_pyjuice" else logistic(val_range=[0, 4], num_cats=4)
    with pytest.raises(cc.StructureError, match=r"InputNodes #0: the distribution DiscreteLogistic has no counterpart"):
        from_pyjuice(leaf_only(juice, 0, dist))


def test_an_input_over_several_variables_is_an_error(juice: ModuleType) -> None:
    root = leaf_only(juice, [0, 1], juice.distributions.Bernoulli())
    with pytest.raises(cc.StructureError, match=r"InputNodes #0: it has the variables \[0, 1\]"):
        from_pyjuice(root)


def test_missing_parameters_are_an_error(juice: ModuleType) -> None:
    leaf = juice.inputs(0, num_node_blocks=1, dist=juice.distributions.Bernoulli(), block_size=2)
    root = juice.summate(leaf, num_node_blocks=1, block_size=1)
    with pytest.raises(cc.ParameterError, match="InputNodes #0: no parameters yet"):
        from_pyjuice(root)
    leaf.set_params(torch.tensor([0.2, 0.4]))
    with pytest.raises(cc.ParameterError, match="SumNodes #2: no parameters yet"):
        from_pyjuice(root)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[[-0.1, 1.1]]], "SumNodes #2: a weight is negative or not finite"),
        ([[[0.0, 0.0]]], "SumNodes #2: all weights of unit 0 are zero"),
    ],
)
def test_impossible_weights_are_an_error(juice: ModuleType, weights: Any, message: str) -> None:
    root = leaf_only(juice, 0, juice.distributions.Bernoulli())
    root.set_params(torch.tensor(weights), normalize=False)
    with pytest.raises(cc.ParameterError, match=message):
        from_pyjuice(root)


def test_parameters_of_the_wrong_size_are_an_error(juice: ModuleType) -> None:
    root = leaf_only(juice, 0, juice.distributions.Bernoulli())
    root._params = torch.ones(1, 1, 3)
    with pytest.raises(cc.ParameterError, match=r"SumNodes #2: parameters of shape \(1, 1, 3\), expected \(1, 1, 2\)"):
        from_pyjuice(root)
    root.chs[0].chs[0]._params = torch.ones(5)
    with pytest.raises(cc.ParameterError, match="InputNodes #0: 5 parameters for 2 units of Bernoulli, expected 2"):
        from_pyjuice(root)


@pytest.mark.parametrize(
    ("dist", "values", "message"),
    [
        ("Gaussian", [0.0, 1.0, 0.0, -1.0], "InputNodes #0: a standard deviation is not above zero"),
        ("Categorical", [0.5, 0.6, 0.5, 0.5], "the probabilities of a unit do not sum to one"),
        ("Bernoulli", [0.5, 1.5], r"a probability is not between 0 and 1"),
    ],
)
def test_wrong_input_parameters_are_an_error(juice: ModuleType, dist: str, values: list[float], message: str) -> None:
    options = {"Gaussian": {"mu": 0.0, "sigma": 1.0}, "Categorical": {"num_cats": 2}, "Bernoulli": {}}[dist]
    root = leaf_only(juice, 0, getattr(juice.distributions, dist)(**options))
    root.chs[0].chs[0].set_params(torch.tensor(values), normalize=False)
    with pytest.raises(cc.ParameterError, match=message):
        from_pyjuice(root)


def test_sums_with_parameters_from_outside_are_an_error(juice: ModuleType) -> None:
    root = leaf_only(juice, 0, juice.distributions.Bernoulli())
    root.external_params = object()
    with pytest.raises(cc.StructureError, match="SumNodes #2: its parameters are given from outside"):
        from_pyjuice(root)


def test_blocks_that_do_not_fit_are_an_error(juice: ModuleType) -> None:
    root = leaf_only(juice, 0, juice.distributions.Bernoulli())
    leaf = root.chs[0].chs[0]
    leaf.block_size, leaf.num_node_blocks = 1, 2
    with pytest.raises(cc.StructureError, match="ProdNodes #1: it has blocks of 2 units, its child 0 of 1"):
        from_pyjuice(root)


def test_a_cycle_is_an_error(juice: ModuleType) -> None:
    root = leaf_only(juice, 0, juice.distributions.Bernoulli())
    root.chs[0].chs.append(root)
    with pytest.raises(cc.StructureError, match="it is its own descendant"):
        from_pyjuice(root)


def test_something_else_than_pyjuice_is_an_error() -> None:
    with pytest.raises(cc.OptionError, match=r"takes the root nodes or the compiled circuit of PyJuice, not 3"):
        from_pyjuice(3)


# --- PyJuice's own structures ---


@pytest.mark.parametrize("inputs", ["Bernoulli", "Categorical"])
def test_hclt_of_pyjuice(inputs: str) -> None:
    structures = pytest.importorskip("pyjuice.structures")
    kinds = pytest.importorskip("pyjuice.distributions")
    dist = kinds.Bernoulli() if inputs == "Bernoulli" else kinds.Categorical(num_cats=2)
    x = binary(60, 7)
    root = draw(structures.HCLT(torch.from_numpy(x).float(), num_latents=6, num_bins=2, input_dist=dist))
    assert_same_likelihoods(root, from_pyjuice(root), x)


@pytest.mark.parametrize("homogeneous", [False, True])
def test_hmm_of_pyjuice(homogeneous: bool) -> None:
    structures = pytest.importorskip("pyjuice.structures")
    root = draw(structures.HMM(seq_length=5, num_latents=4, num_emits=3, homogeneous=homogeneous))
    x = np.random.default_rng(0).integers(0, 3, (10, 5))
    assert_same_likelihoods(root, from_pyjuice(root, untie=homogeneous), x)


def test_rat_of_pyjuice() -> None:
    structures = pytest.importorskip("pyjuice.structures")
    kinds = pytest.importorskip("pyjuice.distributions")
    dist = kinds.Gaussian(mu=0.0, sigma=1.0)
    root = draw(structures.RAT_SPN(num_vars=7, num_latents=4, depth=2, num_repetitions=3, input_dist=dist))
    assert_same_likelihoods(root, from_pyjuice(root), np.random.default_rng(0).normal(size=(10, 7)))


def test_layers_of_pyjuice_add_nothing() -> None:
    """PyJuice puts passing sums into the nodes when it sorts them into layers."""
    tensorcircuit = pytest.importorskip("pyjuice.model.tensorcircuit")
    juice = pytest.importorskip("pyjuice")
    leaf = [juice.inputs(v, num_node_blocks=1, dist=juice.distributions.Bernoulli(), block_size=2) for v in range(2)]
    shallow = juice.multiply(*leaf)
    deep = juice.multiply(juice.summate(leaf[0], num_node_blocks=1, block_size=2), leaf[1])
    root = draw(juice.summate(shallow, deep, num_node_blocks=1, block_size=1))
    before, size = from_pyjuice(root), len(below(root))
    holder = tensorcircuit.TensorCircuit.__new__(tensorcircuit.TensorCircuit)
    torch.nn.Module.__init__(holder)
    holder.root_ns = root
    holder._create_node_layers()
    assert len(below(root)) == size + 2, "PyJuice was to add a sum and a product"
    after = from_pyjuice(root)
    assert len(after.circuit.nodes) == len(before.circuit.nodes)
    assert_same_likelihoods(root, after, binary(4, 2))
