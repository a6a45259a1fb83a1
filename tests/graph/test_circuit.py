"""Circuits: the structural checks with their messages, the order of nodes, the counts."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings

from circuits import cases
from circurve.errors import StructureError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson
from circurve.structures import hmm


def binary(variable: int, units: int = 1, name: str | None = None) -> Input:
    return Input(variable, Bernoulli(), units, name)


def product(*variables: int, name: str | None = None) -> Product:
    return Product([binary(v) for v in variables], name=name)


LEAF = binary(0, name="leaf")


def cycle() -> Sum:
    """A sum below its own child: nodes are frozen, so it takes force to make one."""
    top = Sum(binary(0), name="top")
    middle = Sum(top, name="middle")
    object.__setattr__(top, "children", (middle,))
    return middle


REFUSED = {
    "children of a sum with other scopes": (
        lambda: Circuit(Sum([binary(0, name="a"), Product([binary(0), binary(1)], name="p")], name="s")),
        r"Sum 's' is not smooth: children Input 'a' and Product 'p' have different variables: \{1\}",
    ),
    "nodes without names": (
        lambda: Circuit(Sum([binary(0), binary(1)])),
        r"Sum #2 is not smooth: children Input #0 and Input #1 have different variables: \{0, 1\}",
    ),
    "children of a product that share variables": (
        lambda: Circuit(Product([product(2, 0, 5, name="a"), product(5, 2, name="b")], name="p3")),
        r"Product 'p3': children Product 'a' and Product 'b' share variables \{2, 5\}",
    ),
    "the second of three that clashes with the third": (
        lambda: Circuit(Product([binary(0, name="a"), binary(1, name="b"), binary(1, name="c")], name="p")),
        r"Product 'p': children Input 'b' and Input 'c' share variables \{1\}",
    ),
    "the same child twice in a product": (
        lambda: Circuit(Product([LEAF, LEAF])),
        r"children Input 'leaf' and Input 'leaf' share variables \{0\}",
    ),
    "very many shared variables": (
        lambda: Circuit(Product([product(*range(20)), product(*range(20))])),
        r"share variables \{0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\}",
    ),
    "roots with other scopes": (
        lambda: Circuit([binary(0, name="a"), Product([binary(0), binary(1)], name="p")]),
        r"Product 'p' and Input 'a' are both roots, but have different variables: \{1\}",
    ),
    "a gap in the variables": (
        lambda: Circuit(Product([binary(0), binary(3)])),
        r"no input has variables \{1, 2\}: number the variables from 0 without gaps",
    ),
    "a first variable that is not 0": (lambda: Circuit(binary(1)), r"no input has variables \{0\}"),
    "a cycle": (lambda: Circuit(cycle()), r"Sum '(top|middle)': it is its own descendant \(a cycle\)"),
    "a node that no root reaches": (
        lambda: Circuit(LEAF, nodes=[LEAF, binary(0, name="lost")]),
        r"Input 'lost': it is not below any root",
    ),
    "a nameless node that no root reaches": (
        lambda: Circuit(LEAF, nodes=[LEAF, binary(0)]),
        r"Input #1: it is not below any root",
    ),
    "the same root twice": (lambda: Circuit([LEAF, LEAF]), r"the same node is given twice as a root"),
    "no roots": (lambda: Circuit([]), r"a circuit needs at least one root"),
    "a root that is no node": (lambda: Circuit(["root"]), r"a root must be an Input, Product or Sum, not 'root'"),
    "a column that is discrete and is not": (
        lambda: Circuit(Sum([Input(0, Gaussian(), name="g"), Input(0, Poisson(), name="p")])),
        r"variable 0 is given to Gaussian\(.*\) by Input 'g' and to Poisson\(\) by Input 'p': one is discrete",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    build, message = REFUSED[what]
    with pytest.raises(StructureError, match=message):
        build()


def test_one_root_needs_no_list_and_several_may_come_from_a_generator():
    i = binary(0, 2)
    assert Circuit(i).roots == (i,)
    assert len(Circuit(Sum(i) for _ in range(3)).roots) == 3


def test_given_nodes_may_be_a_part_of_all():
    i = binary(0)
    root = Sum(i)
    assert Circuit(root, nodes=[i]).nodes == (i, root)


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_children_come_before_parents_and_every_node_once(case):
    nodes = case.circuit.nodes
    place = {node: i for i, node in enumerate(nodes)}
    assert len(place) == len(nodes)
    assert all(place[child] < place[node] for node in nodes for child in node.children)
    assert set(case.circuit.roots) <= set(nodes)
    reached = set(case.circuit.roots) | {child for node in nodes for child in node.children}
    assert reached == set(nodes)


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_scope_sizes_count_the_variables_below(case):
    scopes = {}
    for node, size in zip(case.circuit.nodes, case.circuit.scope_sizes, strict=True):
        own = {node.variable} if isinstance(node, Input) else set()
        scopes[node] = own.union(*(scopes[child] for child in node.children))
        assert len(scopes[node]) == size
    assert case.circuit.variables == len(case.domains)


def test_describe_counts_what_is_there():
    a, b = binary(0, 2), Input(1, Categorical(3), 2)
    shared = Sum(a, 2, name="shared")
    masked = Sum(Product([shared, b]), 3, [[True, False], [True, True], [False, True]])
    roots = [Sum([masked, Product([a, b])]), Sum(Product([shared, b]), 2)]
    summary = Circuit(roots).describe()
    assert (summary.variables, summary.roots, Circuit(roots).outputs) == (2, 2, 3)
    assert (summary.inputs, summary.input_units) == (2, 4)
    assert (summary.products, summary.product_units) == (3, 6)
    assert (summary.sums, summary.sum_units) == (4, 2 + 3 + 1 + 2)
    assert summary.edges == 4 + 4 + 5 + 4
    assert summary.parameters == summary.edges + 2 * 1 + 2 * 3
    assert (summary.depth, summary.sum_depth) == (4, 3)


def test_a_described_circuit_reads_as_text():
    nodes = [Sum(binary(v, 40), 40) for v in range(3)]
    lines = str(Circuit(Sum(Product(nodes))).describe()).splitlines()
    assert lines == [
        "variables   3",
        "roots       1",
        "inputs      3 nodes, 120 units",
        "products    1 node, 40 units",
        "sums        4 nodes, 121 units",
        "sum edges   4,840",
        "parameters  4,960",
        "depth       3 (2 sums)",
    ]


def test_a_circuit_is_frozen_and_its_repr_short():
    circuit = Circuit(Sum(binary(0, 2), 3))
    assert repr(circuit) == "<Circuit: 1 variable, 2 nodes, 3 outputs>"
    with pytest.raises(FrozenInstanceError):
        circuit.variables = 2


def test_names_of_nodes():
    i, s = binary(0), Sum(binary(0), name="s")
    circuit = Circuit(Sum([i, s]))
    assert circuit.name_of(s) == "Sum 's'"
    assert circuit.name_of(i) == "Input #0"


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ((Bernoulli(), Bernoulli()), Bernoulli()),
        ((Categorical(3), Bernoulli()), Bernoulli()),
        ((Categorical(2), Categorical(5)), Categorical(2)),
        ((Poisson(), Binomial(4), Indicator((9,))), Binomial(4)),
        ((Indicator((0,)), Poisson()), Indicator((0,))),
    ],
)
def test_of_several_families_of_a_variable_the_one_with_the_fewest_values_stands_for_it(families, expected):
    assert Circuit(Sum([Input(0, family) for family in families])).families == (expected,)


def test_families_follow_the_order_of_the_variables():
    circuit = Circuit(Product([Input(1, Gaussian()), Input(0, Poisson()), Input(2, Bernoulli())]))
    assert circuit.families == (Poisson(), Gaussian(), Bernoulli())


def test_a_deep_circuit_is_checked_without_recursion():
    node = Sum(binary(0))
    for _ in range(20_000):
        node = Sum(node)
    assert Circuit(node).describe().depth == 20_001


def test_a_deep_circuit_is_pickled_and_copied_without_recursion():
    circuit = hmm(500, 2)
    for again in (pickle.loads(pickle.dumps(circuit)), copy.deepcopy(circuit)):
        assert [repr(node) for node in again.nodes] == [repr(node) for node in circuit.nodes]
        assert again.roots[0] is again.nodes[-1]
        assert again.families == circuit.families


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_a_pickled_circuit_has_its_nodes_in_the_same_order(case):
    again = pickle.loads(pickle.dumps(case.circuit))
    place = {node: i for i, node in enumerate(case.circuit.nodes)}
    new = {node: i for i, node in enumerate(again.nodes)}
    assert [[new[c] for c in n.children] for n in again.nodes] == [
        [place[c] for c in n.children] for n in case.circuit.nodes
    ]
    assert [new[r] for r in again.roots] == [place[r] for r in case.circuit.roots]
