"""Random circuits, and their values and flows straight from the definitions: the oracle that the engine is compared
with.

`cases()` draws smooth decomposable circuits with parameters and samples. `Truth.of` evaluates one by recursion, in
plain probabilities and float64, and differentiates it with autograd: nothing of it goes through the engine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from circurve.data import Table, as_table, check
from circurve.engine import Batch, Params, Program, Reference, Request, Statistics, compile, from_nodes
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Indicator, Poisson

ALL = Request(curvature=True, mean_ratio=True, second_moment=True, flow_weighted=True, squared_ratio=True)

DOMAINS: dict[str, Callable[[random.Random], tuple[Family, int | None]]] = {
    "binary": lambda rng: rng.choice([*_units_free(Bernoulli(), Binomial(1), Categorical(2)), _pointer(rng, 2)]),
    "ternary": lambda rng: rng.choice([*_units_free(Categorical(3), Binomial(2)), _pointer(rng, 3)]),
    "count": lambda rng: (Poisson(), None),
    "real": lambda rng: (Gaussian(), None),
}
"""For each kind of variable, a family of one input and the number of units it insists on."""

SUPPORT = {"binary": (0, 1), "ternary": (0, 1, 2)}


def _units_free(*families: Family) -> list[tuple[Family, None]]:
    return [(family, None) for family in families]


def _pointer(rng: random.Random, states: int) -> tuple[Family, int]:
    values = tuple(rng.randrange(states) for _ in range(rng.randint(1, 3)))
    return Indicator(values), len(values)


@dataclass(frozen=True)
class Samples:
    """The rows of a checked table, cut into batches of one precision."""

    table: Table
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, start: int, stop: int) -> Batch:
        return Batch.rows(self.table, start, stop, self.dtype)

    def pick(self, index: torch.Tensor) -> Batch:
        return Batch.pick(self.table, index, self.dtype)


@dataclass(frozen=True)
class Case:
    """A circuit with parameters by node, and samples with weights and, for several outputs, labels."""

    circuit: Circuit
    domains: tuple[str, ...]
    weights: dict[Node, Tensor]  # (units, child units)
    inputs: dict[Node, Tensor]  # (units, parameters)
    x: np.ndarray  # (N, V), NaN is missing
    sample_weights: Tensor | None = None  # (N,)
    labels: Tensor | None = None  # (N,)

    @cached_property
    def program(self) -> Program:
        return compile(self.circuit)

    @cached_property
    def params(self) -> Params:
        return from_nodes(self.program, self.weights, self.inputs)

    @property
    def weight(self) -> Tensor:  # (N,)
        """The samples' weights, 1 where none are given."""
        return torch.ones(len(self.x), dtype=torch.float64) if self.sample_weights is None else self.sample_weights

    def backend(self, dtype: torch.dtype = torch.float64, runs: int = 1) -> Reference:
        return Reference(self.program, runs, torch.device("cpu"), dtype)

    def samples(self, dtype: torch.dtype = torch.float64) -> Samples:
        table = check(as_table(self.x), self.circuit.families)
        return Samples(replace(table, weights=self.sample_weights, labels=self.labels), dtype)

    def statistics(self, dtype: torch.dtype = torch.float64, chunk: int | None = None) -> Statistics:
        """The E-step's sums over all samples, everything asked for."""
        samples, size = self.samples(dtype), chunk or len(self.x)
        starts = range(0, len(samples), size)
        batches = [samples.rows(start, min(start + size, len(samples))) for start in starts]
        return self.backend(dtype).statistics(self.params.to(dtype=dtype), batches, ALL)

    def rows(self) -> dict[Node, np.ndarray]:
        """The engine's row of each unit of each node."""
        from circurve.engine.compiler import _place, fold

        space, rows = _place(fold(self.circuit).nodes)
        for layer in (*self.program.inputs, *self.program.sums):  # the folds are the program's own
            assert rows[layer.nodes[0]][0] == space.starts[layer.block] == self.program.values.starts[layer.block]
        return rows

    def with_x(self, x: np.ndarray) -> Case:
        """Other samples, without weights; all labels are 0."""
        labels = None if self.circuit.outputs == 1 else torch.zeros(len(x), dtype=torch.int64)
        return replace(self, x=x, sample_weights=None, labels=labels)


def all_sums(sums: Statistics) -> list[Tensor]:
    """All sums over samples that an E-step returns, each with a leading run axis."""
    kinds = [] if sums.curvature is None else [getattr(sums.curvature, f.name) for f in fields(sums.curvature)]
    curvature = [tensor for kind in kinds if kind is not None for tensor in kind]
    return [*sums.counts, *sums.inputs, *curvature, sums.log_likelihood, sums.weight]


# --- the oracle ---


def density(family: Family, parameters: Tensor, x: Tensor) -> Tensor:  # (K, P), (N,) -> (K, N)
    """p_k(x_n) by the textbook formula; a missing value has probability 1."""
    value = torch.nan_to_num(x)
    first = parameters[:, :1]  # (K, 1), or (K, 0)
    if isinstance(family, Bernoulli):
        p = torch.where(value == 1, first, 1 - first)
    elif isinstance(family, Categorical):
        p = parameters[:, value.long()]
    elif isinstance(family, Gaussian):
        variance = parameters[:, 1:]
        p = torch.exp(-((value - first) ** 2) / (2 * variance)) / torch.sqrt(2 * math.pi * variance)
    elif isinstance(family, Binomial):
        ways = torch.tensor([math.comb(family.trials, int(v)) for v in value], dtype=torch.float64)
        p = ways * first**value * (1 - first) ** (family.trials - value)
    elif isinstance(family, Poisson):
        factorials = torch.tensor([math.factorial(int(v)) for v in value], dtype=torch.float64)
        p = first**value * torch.exp(-first) / factorials
    else:
        assert isinstance(family, Indicator)
        p = (value == torch.tensor(family.values)[:, None]).double()
    return torch.where(x.isnan(), 1.0, p)


@dataclass(frozen=True)
class Truth:
    """What the definitions say, sample by sample. Samples of probability zero have no flow."""

    value: dict[Node, Tensor]  # p_n, (units, N)
    flow: dict[Node, Tensor]  # F_n = (p_n / p_r) dp_r/dp_n, (units, N)
    gradient: dict[Sum, Tensor]  # F_nc / theta_nc = d log p_r / d theta_nc, (units, child units, N)
    weights: dict[Sum, Tensor]  # theta_nc, zero where masked, (units, child units, 1)
    edges: dict[Sum, Tensor]  # 1 where an edge exists, (units, child units, 1)
    root: Tensor  # p_r of each sample's own output, (N,)
    outputs: Tensor  # (outputs, N)

    @classmethod
    def of(cls, case: Case) -> Truth:
        x = torch.from_numpy(np.asarray(case.x, dtype=np.float64))
        samples = len(x)
        # every sample has weights of its own, so that one derivative of the sum over samples holds all of them apart
        weights = {s: case.weights[s][:, :, None].repeat(1, 1, samples).requires_grad_() for s in case.circuit.sums}
        value: dict[Node, Tensor] = {}
        for root in case.circuit.roots:
            evaluate(root, case, x, weights, value)
        outputs = torch.cat([value[root] for root in case.circuit.roots])
        labels = torch.zeros(samples, dtype=torch.int64) if case.labels is None else case.labels
        root = outputs.gather(0, labels[None])[0]
        nodes, sums = list(value), list(weights)
        slopes = torch.autograd.grad(root.sum(), [*value.values(), *weights.values()], materialize_grads=True)
        scale = torch.where(root > 0, 1 / root, 0.0).detach()
        edges = {s: torch.ones(s.units, s.child_units) if s.mask is None else torch.tensor(s.mask) for s in sums}
        return cls(
            value={node: p.detach() for node, p in value.items()},
            flow={node: slope * value[node].detach() * scale for node, slope in zip(nodes, slopes, strict=False)},
            gradient={s: slope * scale for s, slope in zip(sums, slopes[len(nodes) :], strict=True)},
            weights={s: case.weights[s][:, :, None] for s in sums},
            edges={s: edges[s].double()[:, :, None] for s in sums},
            root=root.detach(),
            outputs=outputs.detach(),
        )

    def edge_flow(self, node: Sum) -> Tensor:  # F_nc, (units, child units, N)
        return self.weights[node] * self.gradient[node]

    def ratio(self, node: Sum) -> Tensor:  # (units, child units, N)
        """rho_nc = p_c / p_n on the edges that exist; nothing where p_n or p_r is zero, where it has no meaning."""
        children = torch.cat([self.value[child] for child in node.children])  # (C, N)
        own = self.value[node][:, None]
        known = (own > 0) & (self.root > 0)
        return torch.where(known, children / own, 0.0) * self.edges[node]

    def local(self, node: Sum) -> Tensor:  # t_n, (units, N)
        return self.ratio(node).square().sum(1)

    def total(self, node: Sum) -> Tensor:  # T_n, (units, N)
        return self.flow[node].square() * self.local(node)


def evaluate(node: Node, case: Case, x: Tensor, weights: dict[Sum, Tensor], found: dict[Node, Tensor]) -> Tensor:
    """p_n of each unit, (units, N), given each sum's weights (units, child units, N); remembered in `found`."""
    if node in found:
        return found[node]
    below = [evaluate(child, case, x, weights, found) for child in node.children]
    if isinstance(node, Input):
        value = density(node.family, case.inputs[node], x[:, node.variable]).requires_grad_()
    elif isinstance(node, Product):
        picked = [p if s is None else p[torch.tensor(s)] for p, s in zip(below, node.select, strict=True)]
        value = picked[0] * 1.0
        for factor in picked[1:]:
            value = value * factor
    else:
        value = torch.einsum("kcn,cn->kn", weights[node], torch.cat(below))
    found[node] = value
    return value


# --- random circuits ---


@dataclass(frozen=True)
class Shape:
    """What kind of circuits to draw."""

    variables: int = 5
    units: int = 3
    depth: int = 4
    domains: tuple[str, ...] = tuple(DOMAINS)
    shared: bool = True
    masks: bool = True
    roots: int = 3
    zeros: bool = False
    """Exact zeros among weights and probabilities."""

    missing: bool = True
    samples: int = 6


@dataclass
class Builder:
    """Builds nodes of a given scope, and sometimes uses an existing node again."""

    rng: random.Random
    shape: Shape
    domains: tuple[str, ...]
    pool: dict[frozenset[int], list[Node]] = field(default_factory=dict)
    made: int = 0

    def node(self, scope: Sequence[int], depth: int) -> Node:
        known = self.pool.setdefault(frozenset(scope), [])
        if self.shape.shared and known and self.rng.random() < 0.4:
            return self.rng.choice(known)
        made = self._new(scope, depth if self.made < 20 else 0)
        self.made += 1
        known.append(made)
        return made

    def _new(self, scope: Sequence[int], depth: int) -> Node:
        if depth > 0 and self.rng.random() < 0.6:
            return self.sum(scope, depth)
        if len(scope) > 1:
            return self.product(self._partition(scope), depth)
        if depth > 0 and self.rng.random() < 0.2:
            return self.product([scope], depth)
        family, units = DOMAINS[self.domains[scope[0]]](self.rng)
        return Input(scope[0], family, units or self.rng.randint(1, self.shape.units))

    def sum(self, scope: Sequence[int], depth: int) -> Sum:
        children = [self.node(scope, depth - 1) for _ in range(self.rng.randint(1, 3))]
        units, width = self.rng.randint(1, self.shape.units), sum(child.units for child in children)
        mask = None
        if self.shape.masks and self.rng.random() < 0.3:
            rows = [[self.rng.random() < 0.6 for _ in range(width)] for _ in range(units)]
            for row in rows:
                row[self.rng.randrange(width)] = True
            mask = np.array(rows)
        return Sum(children, units, mask)

    def product(self, parts: Sequence[Sequence[int]], depth: int) -> Product:
        children = [self.node(part, depth - 1) for part in parts]
        units = self.rng.choice([*(child.units for child in children), self.rng.randint(1, self.shape.units)])
        select = [
            None if child.units == units and self.rng.random() < 0.7 else self.rng.choices(range(child.units), k=units)
            for child in children
        ]
        return Product(children, select)

    def _partition(self, scope: Sequence[int]) -> list[list[int]]:
        parts: list[list[int]] = [[] for _ in range(self.rng.randint(2, len(scope)))]
        shuffled = self.rng.sample(list(scope), len(scope))
        for place, variable in enumerate(shuffled):
            parts[place if place < len(parts) else self.rng.randrange(len(parts))].append(variable)
        return parts

    def circuit(self) -> Circuit:
        scope = range(len(self.domains))
        roots: list[Node] = []
        for _ in range(self.rng.randint(1, self.shape.roots)):
            root = self.node(scope, self.rng.choice([0, *range(self.shape.depth), *[self.shape.depth] * 3]))
            if self.shape.roots == 1 and root.units > 1:
                root = Sum(root) if self.rng.random() < 0.5 else Product(root, [[root.units - 1]])
            roots += [] if root in roots else [root]
        return Circuit(roots)


def random_weights(node: Sum, zeros: bool, rng: np.random.Generator) -> Tensor:
    mask = np.ones((node.units, node.child_units), dtype=bool) if node.mask is None else node.mask
    block = rng.gamma(1.0, size=mask.shape) + 0.01
    if zeros:
        kept = mask & (rng.random(mask.shape) < 0.6)
        mask = np.where(kept.any(1, keepdims=True), kept, mask)
    block = block * mask
    return torch.from_numpy(block / block.sum(1, keepdims=True))


def random_parameters(node: Input, zeros: bool, rng: np.random.Generator) -> Tensor:
    family, units = node.family, node.units
    if isinstance(family, Bernoulli | Binomial):
        block = rng.uniform(0.05, 0.95, (units, 1))
        block = np.where(rng.random(block.shape) < 0.5, np.round(block), block) if zeros else block
    elif isinstance(family, Categorical):
        block = rng.gamma(1.0, size=(units, family.states)) + 0.02
        if zeros:
            kept = rng.random(block.shape) < 0.6
            kept[np.arange(units), rng.integers(0, family.states, units)] = True
            block = block * kept
        block = block / block.sum(1, keepdims=True)
    elif isinstance(family, Gaussian):
        block = np.stack([rng.uniform(-2, 2, units), rng.uniform(0.3, 2, units)], axis=1)
    elif isinstance(family, Poisson):
        block = rng.uniform(0.1, 4, (units, 1))
    else:
        block = np.zeros((units, 0))
    return torch.from_numpy(block)


def random_column(domain: str, samples: int, rng: np.random.Generator) -> np.ndarray:
    if domain in SUPPORT:
        return rng.choice(SUPPORT[domain], samples).astype(float)
    return rng.poisson(2, samples).astype(float) if domain == "count" else rng.normal(0, 1.5, samples)


@st.composite
def cases(draw: st.DrawFn, shape: Shape | None = None, **options: object) -> Case:
    """A circuit with parameters and samples; `options` are those of `Shape`."""
    wanted = replace(shape or Shape(), **options)
    choices = draw(st.randoms(use_true_random=False))
    variables = draw(st.integers(1, wanted.variables))
    domains = tuple(choices.choice(wanted.domains) for _ in range(variables))
    circuit = Builder(choices, wanted, domains).circuit()
    return with_parameters(circuit, domains, wanted, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))


def with_parameters(circuit: Circuit, domains: tuple[str, ...], shape: Shape, rng: np.random.Generator) -> Case:
    """Random parameters, samples, sample weights (some zero) and labels for a circuit."""
    x = np.stack([random_column(domain, shape.samples, rng) for domain in domains], axis=1)
    if shape.missing and rng.random() < 0.5:
        x[rng.random(x.shape) < 0.3] = np.nan
    labels = torch.from_numpy(rng.integers(0, circuit.outputs, shape.samples))
    weighted = rng.random() < 0.5
    return Case(
        circuit,
        domains,
        {node: random_weights(node, shape.zeros, rng) for node in circuit.sums},
        {node: random_parameters(node, shape.zeros, rng) for node in circuit.inputs},
        x,
        torch.from_numpy(rng.choice([0.0, 0.5, 1.0, 3.0], shape.samples)) if weighted else None,
        labels if circuit.outputs > 1 else None,
    )


def assert_close(found: Tensor, wanted: Tensor, tolerance: float = 1e-10) -> None:
    """Equal shapes, equal infinities, no NaN, and equal values to a relative `tolerance`."""
    torch.testing.assert_close(found.double(), wanted.double(), rtol=tolerance, atol=tolerance * 1e-3)
