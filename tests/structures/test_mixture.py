"""Mixtures and factorised distributions."""

import pytest

from circurve.errors import OptionError
from circurve.graph import Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian
from circurve.structures import fully_factorized, mixture


def test_a_mixture_is_one_sum_over_products_of_inputs():
    circuit = mixture([Bernoulli(), Gaussian(), Bernoulli()], components=5)
    summary = circuit.describe()
    assert (summary.inputs, summary.products, summary.sums) == (3, 1, 1)
    assert (summary.input_units, summary.product_units, summary.edges) == (15, 5, 5)
    assert isinstance(circuit.roots[0], Sum)
    assert {node.name for node in circuit.nodes} == {"input 0", "input 1", "input 2", "product", "root"}


def test_a_factorised_distribution_has_no_sum():
    circuit = fully_factorized((Gaussian(), 4))
    assert isinstance(circuit.roots[0], Product)
    assert (circuit.describe().inputs, circuit.describe().sums, circuit.outputs) == (4, 0, 1)


def test_one_variable_needs_no_product():
    assert [type(node) for node in mixture(1, 3).nodes] == [Input, Sum]
    assert [type(node) for node in fully_factorized(1).nodes] == [Input]


def test_many_variables_build():
    assert mixture(20_000, 3).describe().inputs == 20_000


def test_components_outside_their_range_are_named():
    with pytest.raises(OptionError, match="components must be a whole number >= 1, not 0"):
        mixture(3, 0)
