"""Random binary trees: balanced splits, counts, seeds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.errors import OptionError
from circurve.graph import Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian
from circurve.structures import random_binary_trees


def splits(circuit):
    """The scope sizes of the two children of each product that splits a region."""
    sizes = dict(zip(circuit.nodes, circuit.scope_sizes, strict=True))
    halves = [n for n in circuit.nodes if isinstance(n, Product) and not all(isinstance(c, Input) for c in n.children)]
    return [tuple(sizes[c] for c in node.children) for node in halves]


@given(
    variables=st.integers(1, 20),
    units=st.integers(1, 3),
    repetitions=st.integers(1, 3),
    depth=st.one_of(st.none(), st.integers(0, 6)),
    product=st.sampled_from(["outer", "unitwise"]),
)
@settings(max_examples=60, deadline=None)
def test_every_shape_gives_a_circuit_of_balanced_splits(variables, units, repetitions, depth, product):
    circuit = random_binary_trees(variables, units, repetitions, depth, product=product)
    summary = circuit.describe()
    assert summary.variables == variables
    assert summary.inputs == repetitions * variables
    assert summary.input_units == repetitions * variables * units
    assert circuit.outputs == 1
    assert len(circuit.roots[0].children) == repetitions
    assert all(0 <= first - second <= 1 for first, second in splits(circuit))
    assert summary.sum_depth <= 1 + (5 if depth is None else depth)


def test_counts_of_a_full_tree():
    summary = random_binary_trees(8, units=3, repetitions=2).describe()
    # For each of two trees: 7 splits of 9 products; 6 regions below the top with 3 sums over them.
    assert (summary.products, summary.product_units) == (14, 14 * 9)
    assert (summary.sums, summary.sum_units) == (13, 12 * 3 + 1)
    assert summary.edges == 12 * 3 * 9 + 2 * 9
    assert summary.sum_depth == 3


def test_outer_products_pair_every_unit_with_every_other():
    circuit = random_binary_trees(2, units=3, repetitions=1)
    top = circuit.roots[0].children[0]
    pairs = set(zip(*(s.tolist() for s in top.select), strict=True))
    assert pairs == {(i, j) for i in range(3) for j in range(3)}
    assert top.units == 9


def test_unitwise_products_keep_the_number_of_units():
    circuit = random_binary_trees(8, units=3, repetitions=2, product="unitwise")
    assert all(node.units == 3 for node in circuit.nodes if isinstance(node, Product))
    assert circuit.describe().edges == 12 * 9 + 6


def test_depth_bounds_the_splits_and_leaves_are_factorised():
    circuit = random_binary_trees(8, units=2, repetitions=1, depth=1)
    top = circuit.roots[0].children[0]
    assert all(isinstance(leaf, Product) for leaf in top.children)
    assert all(isinstance(i, Input) and i.units == 2 for leaf in top.children for i in leaf.children)
    assert [len(leaf.children) for leaf in top.children] == [4, 4]
    assert len(circuit.sums) == 1


def test_depth_zero_is_a_mixture():
    circuit = random_binary_trees(5, units=4, repetitions=3, depth=0)
    assert circuit.describe().sums == 1
    assert circuit.describe().edges == 12


def test_one_variable_is_a_sum_over_inputs():
    assert [type(n) for n in random_binary_trees(1, 2, 2).nodes] == [Input, Input, Sum]


def test_the_seed_decides_the_splits_and_no_global_generator_is_touched():
    def shape(seed):
        return [node.name for node in random_binary_trees(12, 2, 2, seed=seed).nodes]

    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert shape(0) == shape(0)
    assert shape(0) != shape(1)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_names_are_unique_and_families_kept():
    families = [Bernoulli(), Gaussian(), Bernoulli(), Gaussian()]
    circuit = random_binary_trees(families, 2, 3)
    names = [node.name for node in circuit.nodes]
    assert len(set(names)) == len(names)
    assert [family.name for family in circuit.families] == [family.name for family in families]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"units": 0}, "units must be a whole number >= 1, not 0"),
        ({"repetitions": 0}, "repetitions must be a whole number >= 1, not 0"),
        ({"depth": -1}, "depth must be a whole number >= 0, not -1"),
        ({"seed": -1}, "seed must be a whole number >= 0, not -1"),
        ({"product": "inner"}, "product must be 'outer' or 'unitwise', not 'inner'"),
        ({"families": 0}, "families must be a whole number >= 1, not 0"),
    ],
)
def test_options_outside_their_range_are_named(options, message):
    with pytest.raises(OptionError, match=message):
        random_binary_trees(**{"families": 4, "units": 2, "repetitions": 2, **options})
