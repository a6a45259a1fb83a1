"""Random latent trees, and the backend for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from hypothesis import strategies as st

from circuits import Case, Shape, with_parameters
from circurve.engine.tree import LatentTree, tree_layout
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical

FAMILIES = {"binary": (Bernoulli(), Binomial(1), Categorical(2)), "ternary": (Categorical(3), Binomial(2))}


class TreeBuilder:
    """Random latent trees over given variables."""

    def __init__(self, rng: random.Random, domains: Sequence[str], units: int) -> None:
        self.rng, self.domains, self.units = rng, domains, units

    def product(self, scope: list[int], depth: int = 0) -> Product:
        parts: list[list[int]] = [[] for _ in range(self.rng.randint(min(2, len(scope)), len(scope)))]
        for place, variable in enumerate(self.rng.sample(scope, len(scope))):
            parts[place if place < len(parts) else self.rng.randrange(len(parts))].append(variable)
        return Product([self.child(part, depth + 1) for part in parts])

    def child(self, scope: list[int], depth: int) -> Node:
        if len(scope) > 1 or (depth < 3 and self.rng.random() < 0.2):
            return Sum(self.product(scope, depth), self.units)
        family = self.rng.choice(FAMILIES[self.domains[scope[0]]])
        if self.rng.random() < 0.5:
            return Input(scope[0], family, self.units)
        return Sum(Input(scope[0], family, self.rng.randint(1, 3)), self.units)


@st.composite
def trees(draw: st.DrawFn, **options: object) -> Case:
    """A latent tree with parameters, samples, and perhaps missing values, weights and several outputs.

    `options` are those of `Shape`; its units, depth, masks and roots have no effect.
    """
    rng = draw(st.randoms(use_true_random=False))
    shape = replace(Shape(variables=9, samples=draw(st.sampled_from([5, 31]))), **options)
    domains = tuple(rng.choice(list(FAMILIES)) for _ in range(draw(st.integers(1, shape.variables))))
    builder = TreeBuilder(rng, domains, draw(st.integers(1, 4)))
    circuit = Circuit(Sum(builder.product(list(range(len(domains)))), draw(st.integers(1, 3))))
    return with_parameters(circuit, domains, shape, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))


@st.composite
def tree_mixtures(draw: st.DrawFn, **options: object) -> Case:
    """A mixture of latent trees: some of them alike, others with other trees, units and outputs."""
    rng = draw(st.randoms(use_true_random=False))
    shape = replace(Shape(variables=5, samples=draw(st.sampled_from([5, 31]))), **options)
    domains = tuple(rng.choice(list(FAMILIES)) for _ in range(draw(st.integers(1, shape.variables))))
    members: list[Node] = []
    for kind in range(draw(st.integers(1, 3))):
        outputs, units = draw(st.integers(1, 2)), draw(st.integers(1, 3))
        for _ in range(draw(st.integers(1, 2))):
            builder = TreeBuilder(random.Random(kind), domains, units)
            members.append(Sum(builder.product(list(range(len(domains)))), outputs))
    rng.shuffle(members)
    circuit = Circuit(Sum(members, draw(st.integers(1, 2))))
    return with_parameters(circuit, domains, shape, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))


def with_samples(circuit: Circuit, samples: int, seed: int = 0) -> Case:
    """Random parameters and binary samples for a circuit."""
    domains = ("binary",) * circuit.variables
    return with_parameters(circuit, domains, Shape(samples=samples, missing=False), np.random.default_rng(seed))


def tree_of(case: Case, dtype: torch.dtype = torch.float64, runs: int = 1) -> LatentTree:
    layout = tree_layout(case.program)
    assert layout is not None
    return LatentTree(case.program, layout, runs, dtype)
