"""Nodes: what they accept, what they refuse and in which words, and that nothing about them changes later."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from circurve.errors import StructureError
from circurve.graph import Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian, Indicator


def inputs(*units: int) -> list[Input]:
    return [Input(v, Bernoulli(), u, name="abcd"[v]) for v, u in enumerate(units)]


a, b, c = inputs(2, 2, 3)

REFUSED = {
    "a negative variable": (lambda: Input(-1, Bernoulli()), r"Input: variable must be a column number >= 0, not -1"),
    "a variable that is no number": (lambda: Input("x", Bernoulli(), name="i"), r"Input 'i': variable .* not 'x'"),
    "a boolean variable": (lambda: Input(True, Bernoulli()), r"not True"),
    "a family that is none": (lambda: Input(0, "bernoulli"), r"family must be an input family, not 'bernoulli'"),
    "a family's class": (lambda: Input(0, Bernoulli), r"family must be an input family"),
    "no input units": (lambda: Input(0, Bernoulli(), 0), r"Input: units must be a whole number >= 1, not 0"),
    "half a unit": (lambda: Sum(a, 0.5, name="s"), r"Sum 's': units must be a whole number >= 1, not 0\.5"),
    "no sum units": (lambda: Sum(a, 0), r"Sum: units must be a whole number >= 1, not 0"),
    "indicators for other units": (lambda: Input(0, Indicator((0, 1)), 3), r"indicator values name 2 units, not 3"),
    "a sum without children": (lambda: Sum([], name="s"), r"Sum 's': needs at least one child"),
    "a product without children": (lambda: Product([]), r"Product: needs at least one child"),
    "a child that is no node": (lambda: Sum([a, 3]), r"Sum: a child must be an Input, Product or Sum, not 3"),
    "different units": (
        lambda: Product([a, c], name="p"),
        r"Product 'p': child 'c' gives 3 units, child 'a' gives 2",
    ),
    "too few selections": (lambda: Product([a, b], [None]), r"Product: select has 1 entries for 2 children"),
    "a selection of another length": (
        lambda: Product([a, b], [[0], None]),
        r"Product: child 'b' gives 2 units, child 'a' gives 1",
    ),
    "a unit that is not there": (
        lambda: Product([a, b], [[0, 2], None]),
        r"Product: select names unit 2 of child 'a', which has 2",
    ),
    "a unit before the first": (lambda: Product([a, b], [[0, -1], None]), r"select names unit -1 of child 'a'"),
    "an empty selection": (lambda: Product([a], [[]]), r"select must list unit numbers, not \[\]"),
    "a selection of fractions": (lambda: Product([a], [[0.5, 1]]), r"select must list unit numbers, not \[0\.5, 1\]"),
    "a selection in two dimensions": (lambda: Product([a], [[[0, 1]]]), r"select must list unit numbers"),
    "a mask of another shape": (
        lambda: Sum([a, b], 1, [[True, True]], name="s"),
        r"Sum 's': mask must be boolean of shape \(1, 4\), not bool of shape \(1, 2\)",
    ),
    "a mask of numbers": (
        lambda: Sum(a, 1, np.ones((1, 2))),
        r"mask must be boolean of shape \(1, 2\), not float64 of shape \(1, 2\)",
    ),
    "a unit without edges": (
        lambda: Sum(a, 2, [[True, False], [False, False]]),
        r"Sum: unit 1 has no edge left by the mask",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    build, message = REFUSED[what]
    with pytest.raises(StructureError, match=message):
        build()


def test_a_single_child_needs_no_list():
    assert Sum(a).children == Product(a).children == (a,)


def test_children_may_come_from_a_generator():
    assert Product(node for node in (a, b)).children == (a, b)


def test_a_product_has_the_units_of_its_children_or_of_its_selection():
    assert Product([a, b]).units == 2
    assert Product([a, c], [[0, 1, 1], None]).units == 3
    assert Product([a, c], [[1], [2]]).units == 1


def test_a_sum_counts_its_edges():
    assert (Sum([a, c], 3).child_units, Sum([a, c], 3).edges) == (5, 15)
    assert Sum(a, 2, [[True, False], [True, True]]).edges == 3


@pytest.mark.parametrize(
    ("node", "field"),
    [
        (a, "units"),
        (a, "variable"),
        (Sum(a), "children"),
        (Sum(a), "mask"),
        (Product(a), "select"),
        (Product(a), "units"),
    ],
)
def test_nodes_are_frozen(node, field):
    with pytest.raises(FrozenInstanceError):
        setattr(node, field, 3)


def test_masks_and_selections_are_copies_and_cannot_be_written():
    mask, select = np.ones((1, 2), dtype=bool), np.array([0, 1])
    node, product = Sum(a, 1, mask), Product(a, [select])
    mask[0, 0], select[0] = False, 1
    assert node.mask.all()
    assert product.select[0].tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        node.mask[0, 0] = False
    with pytest.raises(ValueError, match="read-only"):
        product.select[0][0] = 1


def test_two_nodes_are_equal_only_if_they_are_the_same():
    assert Input(0, Bernoulli()) != Input(0, Bernoulli())
    assert len({a, Input(0, Bernoulli(), 2, name="a"), a}) == 2


def test_numpy_numbers_are_taken_as_numbers():
    node = Input(np.int64(1), Bernoulli(), np.int32(3))
    assert (type(node.variable), type(node.units)) == (int, int)
    assert type(Sum(node, np.int64(2)).units) is int


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Input(3, Gaussian(), 2, name="i"), "<Input 'i': variable 3, Gaussian(min_variance=0.0001), 2 units>"),
        (Input(0, Bernoulli()), "<Input: variable 0, Bernoulli(), 1 unit>"),
        (Sum([a, c], 4, name="s"), "<Sum 's': 2 children, 4 x 5 weights>"),
        (Product([a, b]), "<Product: 2 children, 2 units>"),
    ],
)
def test_repr(node, text):
    assert repr(node) == text


def test_repr_of_a_deep_node_does_not_recurse():
    node = Sum(Input(0, Bernoulli()))
    for _ in range(5_000):
        node = Sum(node)
    assert repr(node) == "<Sum: 1 child, 1 x 1 weights>"
