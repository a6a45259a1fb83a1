"""A small model for tests of options and messages."""

from __future__ import annotations

import numpy as np
import pytest
from world import target_of

from circuits import Shape, with_parameters
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Gaussian, Poisson
from circurve.queries import Target


@pytest.fixture
def simple() -> Target:
    """A mixture of two over a binary, a ternary, a count and a real column."""
    families = (Bernoulli(), Categorical(3), Poisson(), Gaussian())
    circuit = Circuit(Sum(Product([Input(v, family, 2) for v, family in enumerate(families)])))
    domains = ("binary", "ternary", "count", "real")
    return target_of(with_parameters(circuit, domains, Shape(samples=4), np.random.default_rng(0)))
