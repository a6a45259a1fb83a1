"""The spanning tree against brute force, the centre against all eccentricities, known structures recovered."""

from importlib import import_module
from itertools import combinations, combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree

from circurve.errors import DataError, StructureError
from circurve.structures import Tree, chow_liu_tree, mutual_information
from circurve.structures.spanning import Forest
from circurve.structures.tree import root_at_centre

MODULE = import_module("circurve.structures.mutual_information")


def maximum_spanning_tree(weights, cuts=()):
    """The links of the tree, from the blocks between the cuts."""
    ends = [0, *cuts, len(weights)]
    blocks = [slice(a, b) for a, b in pairwise(ends)]
    forest = Forest.empty(len(weights))
    for a, b in combinations_with_replacement(blocks, 2):
        forest = forest.with_block(a, b, weights[a, b])
    return forest.links()


def connected(variables, links):
    group = list(range(variables))
    for u, v in links:
        group = [group[u] if g == group[v] else g for g in group]
    return len(set(group)) == 1


def joined(variables, links, u, v):
    group = list(range(variables))
    for a, b in links:
        group = [group[a] if g == group[b] else g for g in group]
    return group[u] == group[v]


def eccentricities(variables, links):
    distance = np.full((variables, variables), np.inf)
    np.fill_diagonal(distance, 0)
    for u, v in links:
        distance[u, v] = distance[v, u] = 1
    for k in range(variables):
        distance = np.minimum(distance, distance[:, k, None] + distance[k])
    return distance.max(axis=1)


def random_links(rng, variables):
    names = rng.permutation(variables)
    return [(int(names[rng.integers(v)]), int(names[v])) for v in range(1, variables)]


def noisy_copies(rng, parents, rows, flip=0.15):
    """Binary data of a tree: each variable is its parent's value, flipped sometimes; parents come first."""
    data = rng.integers(0, 2, (rows, len(parents)))
    for v, parent in enumerate(parents):
        if parent >= 0:
            data[:, v] = data[:, parent] ^ (rng.random(rows) < flip)
    return data


def undirected(tree):
    return {frozenset(edge[:2]) for edge in tree.edges}


@given(variables=st.integers(1, 6), ties=st.booleans(), seed=st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_no_spanning_tree_weighs_more(variables, ties, seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 3, (variables,) * 2).astype(float) if ties else rng.random((variables,) * 2)
    weights = weights + weights.T
    links = maximum_spanning_tree(weights)
    pairs = combinations(range(variables), 2)
    trees = (t for t in combinations(pairs, variables - 1) if connected(variables, t))
    best = max(sum(weights[u, v] for u, v in tree) for tree in trees)
    assert connected(variables, links)
    assert sum(weights[u, v] for u, v in links) == pytest.approx(best)


def test_a_large_spanning_tree_has_the_weight_of_the_lightest_one_of_the_costs():
    weights = np.random.default_rng(0).random((200, 200))
    weights = weights + weights.T
    links = maximum_spanning_tree(weights)
    reference = -minimum_spanning_tree(-weights).sum()
    assert sum(weights[u, v] for u, v in links) == pytest.approx(reference)


@given(
    variables=st.integers(2, 8), cuts=st.sets(st.integers(1, 7)), levels=st.integers(1, 9), seed=st.integers(0, 2**16)
)
@settings(max_examples=80, deadline=None)
def test_of_links_of_equal_weight_the_first_ones_are_taken_however_the_matrix_is_cut(variables, cuts, levels, seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, levels, (variables, variables)).astype(float)
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    expected = []
    for u, v in sorted(combinations(range(variables), 2), key=lambda pair: -weights[pair]):  # a stable sort
        if not joined(variables, expected, u, v):
            expected.append((u, v))
    assert maximum_spanning_tree(weights, sorted(c for c in cuts if c < variables)) == sorted(expected)


@given(
    width=st.integers(2, 40),
    missing=st.booleans(),
    kind=st.sampled_from(["binary", "states", "real"]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=40, deadline=None)
def test_small_blocks_give_the_tree_of_the_whole_matrix(width, missing, kind, seed):
    rng = np.random.default_rng(seed)
    data = noisy_copies(rng, [-1, *(int(rng.integers(v)) for v in range(1, 9))], 40).astype(float)
    data = data + rng.integers(0, 2, data.shape) * 2 if kind == "states" else data
    data = data + rng.standard_normal(data.shape) if kind == "real" else data
    data = np.where(rng.random(data.shape) < 0.1, np.nan, data) if missing else data
    weights = mutual_information(data)
    rounded = np.round(weights, 12)
    expected = []
    for link in sorted(combinations(range(9), 2), key=lambda pair: -rounded[pair]):
        if not joined(9, expected, *link):
            expected.append(link)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "BLOCK_WIDTH", width)
        tree = chow_liu_tree(data)
    assert undirected(tree) == {frozenset(link) for link in expected}
    np.testing.assert_allclose(tree.information[tree.order[1:]], weights[tree.order[1:], tree.parents[tree.order[1:]]])


@given(variables=st.integers(1, 12), seed=st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_the_root_is_a_centre(variables, seed):
    links = random_links(np.random.default_rng(seed), variables)
    tree = Tree(root_at_centre(links))
    far = eccentricities(variables, links)
    assert tree.root == int(np.argmin(far))  # the lower of two centres
    assert tree.depth == far.min()
    assert undirected(tree) == {frozenset(link) for link in links}


def test_a_chain_is_recovered_and_rooted_in_its_middle():
    data = noisy_copies(np.random.default_rng(1), [-1, 0, 1, 2, 3, 4, 5], 3000)
    tree = chow_liu_tree(data)
    assert undirected(tree) == {frozenset((v, v + 1)) for v in range(6)}
    assert tree.root == 3
    assert tree.depth == 3


def test_a_star_is_recovered_and_rooted_at_its_hub():
    data = noisy_copies(np.random.default_rng(2), [-1] + [0] * 7, 3000)
    data = data[:, [3, 1, 2, 0, 4, 5, 6, 7]]  # the hub is column 3
    tree = chow_liu_tree(np.where(np.random.default_rng(3).random(data.shape) < 0.1, np.nan, data))
    assert tree.root == 3
    assert tree.parents.tolist() == [3, 3, 3, -1, 3, 3, 3, 3]
    assert tree.depth == 1


def test_a_gaussian_chain_is_recovered():
    data = np.random.default_rng(4).standard_normal((2000, 6)).cumsum(axis=1)
    assert undirected(chow_liu_tree(data)) == {frozenset((v, v + 1)) for v in range(5)}


def test_edges_carry_their_mutual_information():
    data = noisy_copies(np.random.default_rng(5), [-1, 0, 0, 1, 1], 500)
    tree, weights = chow_liu_tree(data), mutual_information(data)
    assert len(tree.edges) == len(tree) - 1
    for parent, child, information in tree.edges:
        assert tree.parents[child] == parent
        assert information == weights[parent, child] == tree.information[child]
    assert tree.information[tree.root] == 0


def test_parents_come_before_children_in_the_order():
    tree = chow_liu_tree(np.random.default_rng(6).integers(0, 3, (40, 25)))
    position = np.argsort(tree.order)
    assert sorted(tree.order) == list(range(25))
    assert all(position[p] < position[v] for v, p in enumerate(tree.parents) if p >= 0)


def test_columns_that_share_nothing_still_give_a_tree():
    tree = chow_liu_tree(np.zeros((1, 5)))
    assert tree.parents.tolist() == [-1, 0, 0, 0, 0]
    assert chow_liu_tree([[1]]).parents.tolist() == [-1]


def test_the_same_data_gives_the_same_tree():
    data = np.random.default_rng(7).integers(0, 2, (30, 40))
    trees = [chow_liu_tree(x) for x in (data, data.astype(float), np.asfortranarray(data), data.astype(bool))]
    assert all(np.array_equal(tree.parents, trees[0].parents) for tree in trees)


def test_a_chain_of_20000_variables_is_rooted_without_recursion():
    tree = Tree(root_at_centre([(v, v + 1) for v in range(19_999)]))
    assert tree.root == 9_999
    assert tree.depth == 10_000
    assert Tree(np.arange(20_000) - 1).depth == 19_999


def test_a_tree_cannot_be_changed():
    tree = Tree([-1, 0])
    with pytest.raises(AttributeError):
        tree.depth = 3
    with pytest.raises(ValueError, match="read-only"):
        tree.parents[0] = 1


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([], "parents must be a list"),
        ([[0, 1]], "parents must be a list"),
        ([0.5, -1], "parents must be a list"),
        ([-1, -1, 0], r"one root .* not 2: \[0, 1\]"),
        ([1, 0], "one root .* not 0"),
        ([-1, 2, 1], r"variables \[1, 2\] are not connected to the root"),
        ([-1, 5], "variable 1 has parent 5, which is not among the 2 variables"),
        ([-1, -2], "variable 1 has parent -2"),
    ],
)
def test_parents_that_are_no_tree_are_named(parents, message):
    with pytest.raises(StructureError, match=message):
        Tree(parents)


def test_information_needs_one_number_for_each_variable():
    with pytest.raises(StructureError, match=r"information has shape \(1,\) for 2 variables"):
        Tree([-1, 0], [0.0])


@pytest.mark.parametrize(
    "data", [[1, 2], np.zeros((0, 3)), np.zeros((3, 0)), [["a"], [1]], [[1j]], np.zeros((2, 2, 2))]
)
def test_data_that_is_no_matrix_is_refused(data):
    with pytest.raises(DataError, match=r"data|column 1"):
        chow_liu_tree(data)
