"""Hidden Chow-Liu trees and hidden Markov models: which nodes stand where."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.errors import OptionError, StructureError
from circurve.graph import Input, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Gaussian
from circurve.model import Model
from circurve.structures import Tree, chow_liu_tree, hclt, hmm


@given(variables=st.integers(1, 12), units=st.integers(1, 5), seed=st.integers(0, 2**16))
@settings(max_examples=40, deadline=None)
def test_counts_follow_from_the_tree(variables, units, seed):
    data = np.random.default_rng(seed).integers(0, 2, (20, variables))
    circuit, tree = hclt(data, units), chow_liu_tree(data)
    inner = len(set(tree.parents.tolist()) - {-1})
    summary = circuit.describe()
    assert (summary.variables, summary.roots, circuit.outputs) == (variables, 1, 1)
    assert (summary.inputs, summary.sums, summary.products) == (variables, variables, inner)
    assert summary.input_units == variables * units
    assert summary.sum_units == (variables - 1) * units + 1
    assert summary.edges == (variables - 1) * units**2 + units
    assert summary.sum_depth == tree.depth + 1


def test_nodes_mirror_the_tree():
    #     1
    #    / \
    #   0   3
    #       |
    #       2
    circuit = hclt(np.zeros((1, 4)), 3, tree=[1, -1, 3, 1])
    by_name = {node.name: node for node in circuit.nodes}
    assert set(by_name) == {
        *(f"input {v}" for v in range(4)),
        "sum 0",
        "sum 2",
        "sum 3",
        "product 1",
        "product 3",
        "root",
    }
    root = circuit.roots[0]
    assert root is by_name["root"]
    assert root.children == (by_name["product 1"],)
    assert set(by_name["product 1"].children) == {by_name["input 1"], by_name["sum 0"], by_name["sum 3"]}
    assert set(by_name["product 3"].children) == {by_name["input 3"], by_name["sum 2"]}
    assert by_name["sum 0"].children == (by_name["input 0"],)  # no product with one child
    assert all((s.units, s.child_units) == (3, 3) for s in circuit.sums if s is not root)
    assert (root.units, root.child_units) == (1, 3)
    assert all(node.select == (None,) * len(node.children) for node in circuit.nodes if isinstance(node, Product))


@pytest.mark.parametrize("leaves", ["own", "shared"])
def test_one_variable_is_a_sum_over_its_input(leaves):
    circuit = hclt([[0], [1]], 4, leaves=leaves)
    assert [type(node) for node in circuit.nodes] == [Input, Sum]


# --- leaves on the latent of their parent ---


def drawn_parents(variables: int, kind: str, rng: np.random.Generator) -> list[int]:
    """A star, a chain or any tree, with the numbers of its variables shuffled."""
    above = {"star": lambda v: 0, "chain": lambda v: v - 1, "any": lambda v: int(rng.integers(0, v))}[kind]
    names = rng.permutation(variables)
    parents = np.full(variables, -1)
    for v in range(1, variables):
        parents[names[v]] = names[above(v)]
    return parents.tolist()


def log_prob_by_states(circuit, parents, parameters, x):
    """log p of binary rows (N, V) from the tables p(z_v | z_parent) and p(x_v = 1 | z), by a sum over all z."""
    children = {v: [c for c, above in enumerate(parents) if above == v] for v in range(len(parents))}
    inner = [v for v in children if children[v] or parents[v] < 0]
    total, root = np.zeros(len(x)), parents.index(-1)
    units = circuit.inputs[0].units
    for states in itertools.product(range(units), repeat=len(inner)):
        z = dict(zip(inner, states, strict=True))
        p = np.full(len(x), parameters["root"][0, z[root]])
        for v in inner:
            p = p * (1.0 if v == root else parameters[f"sum {v}"][z[parents[v]], z[v]])
        for v, above in enumerate(parents):
            success = parameters[f"input {v}"][z[v] if v in z else z[above], 0]
            p = p * np.where(x[:, v] == 1, success, 1 - success)
        total += p
    return np.log(total)


@given(
    variables=st.integers(1, 6),
    kind=st.sampled_from(["star", "chain", "any"]),
    units=st.integers(1, 3),
    seed=st.integers(0, 999),
)
@settings(max_examples=30, deadline=None)
def test_shared_leaves_are_the_distribution_of_latents_for_variables_with_children(variables, kind, units, seed):
    rng = np.random.default_rng(seed)
    parents = drawn_parents(variables, kind, rng)
    circuit = hclt(np.zeros((1, variables)), units, Bernoulli(), tree=parents, leaves="shared")
    drawn = {node.name: rng.dirichlet(np.ones(node.child_units), node.units) for node in circuit.sums}
    drawn |= {node.name: rng.random((units, 1)) for node in circuit.inputs}
    model = Model.from_parameters(
        circuit,
        {node: drawn[node.name] for node in circuit.sums},
        {node: drawn[node.name] for node in circuit.inputs},
        dtype=torch.float64,
    )
    x = rng.integers(0, 2, (5, variables))
    expected = log_prob_by_states(circuit, parents, drawn, x)
    np.testing.assert_allclose(model.log_prob(x), expected, rtol=1e-10)
    inner = len(set(parents) - {-1}) or 1
    summary = circuit.describe()
    assert (summary.inputs, summary.sums, summary.products) == (variables, inner, inner if variables > 1 else 0)
    assert summary.edges == (inner - 1) * units**2 + units


def test_leaves_are_own_or_shared():
    with pytest.raises(OptionError, match="leaves must be 'own' or 'shared', not 'none'"):
        hclt([[0, 1]], 2, leaves="none")


def test_one_sample_and_one_unit_work():
    assert hclt([[0, 1, 1]], 1).describe().parameters == 3 + 3


@pytest.mark.filterwarnings("ignore:column 6. whole numbers from -1")
def test_families_are_inferred_column_by_column():
    nan = float("nan")
    data = [[0, 2, 0.5, nan, 5.0, -1], [1, 0, 1.0, nan, 5.0, 3], [nan, 1, 2.0, nan, 5.0, 2]]
    families = hclt(data, 2).families
    assert families[:2] == (Bernoulli(), Categorical(3))
    assert families[3:5] == (Bernoulli(), Categorical(6))
    assert isinstance(families[2], Gaussian)
    assert isinstance(families[5], Gaussian)


def test_families_can_be_given():
    data = np.random.default_rng(0).integers(0, 2, (10, 3))
    assert hclt(data, 2, Categorical(4)).families == (Categorical(4),) * 3
    mixed = (Bernoulli(), Categorical(2), Bernoulli())
    assert hclt(data, 2, mixed).families == mixed


def test_data_frames_and_marks_for_missing_values_are_understood():
    data = np.random.default_rng(0).integers(0, 3, (60, 4)).astype(float)
    data[::5, 1] = np.nan
    marked = np.nan_to_num(data, nan=-1).astype(int)
    expected = hclt(data, 2)
    for table in (marked, pd.DataFrame(marked), marked.tolist(), torch.from_numpy(marked)):
        circuit = hclt(table, 2, missing=-1)
        assert circuit.families == expected.families == (Categorical(3),) * 4
        assert [node.name for node in circuit.nodes] == [node.name for node in expected.nodes]


def test_arrays_tensors_and_lists_give_the_same_circuit():
    data = np.random.default_rng(1).integers(0, 2, (50, 8))
    forms = [data, data.tolist(), torch.from_numpy(data), torch.from_numpy(data).to(torch.bfloat16), data.astype(bool)]
    names = [[node.name for node in hclt(form, 2).nodes] for form in forms]
    assert all(other == names[0] for other in names)


def test_moderately_large_data_works():
    rng = np.random.default_rng(2)
    assert hclt(rng.integers(0, 2, (20_000, 100)), 50).describe().sums == 100
    assert hclt(rng.integers(0, 2, (500, 600)), 10).describe().sums == 600


def test_a_long_chain_as_the_tree_works():
    summary = hclt(np.zeros((1, 20_000)), 2, Bernoulli(), Tree(np.arange(20_000) - 1)).describe()
    assert summary.sum_depth == 20_000


@pytest.mark.parametrize("units", [0, -3, 2.5, True, "4", None])
def test_units_outside_their_range_are_named(units):
    for build in (lambda: hclt([[0, 1]], units), lambda: hmm(3, units)):
        with pytest.raises(OptionError, match=f"units must be a whole number >= 1, not {units!r}"):
            build()


def test_a_tree_of_another_size_is_refused():
    with pytest.raises(OptionError, match="tree has 3 variables, the data has 2"):
        hclt([[0, 1]], 2, tree=[-1, 0, 0])
    with pytest.raises(StructureError, match="one root"):
        hclt([[0, 1]], 2, tree=[0, 1])


def test_an_hmm_is_a_chain_from_the_first_variable():
    circuit = hmm([Bernoulli(), Gaussian(), Bernoulli()], units=4)
    by_name = {node.name: node for node in circuit.nodes}
    assert by_name["root"].children == (by_name["product 0"],)
    assert by_name["product 0"].children == (by_name["input 0"], by_name["sum 1"])
    assert by_name["sum 1"].children == (by_name["product 1"],)
    assert by_name["sum 2"].children == (by_name["input 2"],)
    assert circuit.describe().edges == 2 * 16 + 4
    assert isinstance(circuit.families[1], Gaussian)


def test_an_hmm_of_20000_variables_builds():
    summary = hmm((Categorical(3), 20_000), units=4).describe()
    assert (summary.variables, summary.sums, summary.products) == (20_000, 20_000, 19_999)


def test_an_hmm_of_one_variable_is_a_sum_over_its_input():
    assert [type(node) for node in hmm(1, 3).nodes] == [Input, Sum]
