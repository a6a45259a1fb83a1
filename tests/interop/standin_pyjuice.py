"""A stand-in for PyJuice's nodes, and an evaluator for either.

The stand-in has the constructors, the attributes and the rules of PyJuice 2.6 that the importer and the exporter rely
on, and nothing that computes: no PyJuice in the environment is needed to test them. `log_values` evaluates nodes of
both libraries straight from their documented meaning, one unit at a time, in float64.
"""

from __future__ import annotations

import math
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch


class Distribution:
    parameters = 0

    def num_parameters(self) -> int:
        return self.parameters


class Bernoulli(Distribution):
    parameters = 1


class Categorical(Distribution):
    def __init__(self, num_cats: int) -> None:
        self.num_cats = self.parameters = num_cats


class Gaussian(Distribution):
    parameters = 2

    def __init__(self, mu: float | None = None, sigma: float | None = None, min_sigma: float = 0.01) -> None:
        self.min_sigma = min_sigma


class Literal(Distribution):
    def __init__(self, lit: int) -> None:
        self.lit = int(lit)


class DiscreteLogistic(Distribution):
    parameters = 2


class CircuitNodes:
    kind = ""

    def __init__(self, num_node_blocks: int, block_size: int, chs: list[Any], source: Any = None) -> None:
        assert num_node_blocks > 0
        assert block_size > 0
        assert block_size & (block_size - 1) == 0
        self.num_node_blocks, self.block_size, self.chs = num_node_blocks, block_size, chs
        self._source_node, self._params = source, None

    @property
    def num_nodes(self) -> int:
        return self.num_node_blocks * self.block_size

    def is_input(self) -> bool:
        return self.kind == "input"

    def is_prod(self) -> bool:
        return self.kind == "prod"

    def is_sum(self) -> bool:
        return self.kind == "sum"

    def is_tied(self) -> bool:
        return self._source_node is not None

    def get_source_ns(self) -> Any:
        return self._source_node or self

    def get_params(self) -> Any:
        return self._params

    def __iter__(self) -> Any:
        return iter(below(self))


class InputNodes(CircuitNodes):
    kind = "input"

    def __init__(
        self, scope: list[int], dist: Distribution, num_node_blocks: int, block_size: int, source: Any
    ) -> None:
        super().__init__(num_node_blocks, block_size, [], source)
        self.scope, self.dist = set(scope), dist

    def set_params(self, params: torch.Tensor, normalize: bool = True) -> None:
        assert params.numel() == self.num_nodes * self.dist.num_parameters()
        self._params = params.reshape(-1)

    def duplicate(self, scope: int, tie_params: bool = False) -> InputNodes:
        return InputNodes([scope], self.dist, self.num_node_blocks, self.block_size, self if tie_params else None)


class ProdNodes(CircuitNodes):
    kind = "prod"

    def __init__(self, num_node_blocks: int, chs: list[Any], edge_ids: Any, block_size: int) -> None:
        super().__init__(num_node_blocks, block_size, chs)
        assert not set.intersection(*(c.scope for c in chs)) or len(chs) == 1
        if edge_ids is None:
            assert all(c.num_node_blocks == num_node_blocks and c.block_size == block_size for c in chs)
            edge_ids = torch.arange(num_node_blocks).unsqueeze(1).repeat(1, len(chs))
        assert edge_ids.shape in ((num_node_blocks, len(chs)), (self.num_nodes, len(chs)))
        whole = len(edge_ids) == num_node_blocks
        for place, child in enumerate(chs):
            assert int(edge_ids[:, place].max()) < (child.num_node_blocks if whole else child.num_nodes)
        self.edge_ids = edge_ids
        self.scope = set.union(*(c.scope for c in chs))


class SumNodes(CircuitNodes):
    kind = "sum"

    def __init__(self, num_node_blocks: int, chs: list[Any], edge_ids: Any, block_size: int, source: Any) -> None:
        assert len({c.block_size for c in chs}) == 1
        wrapped = [ProdNodes(c.num_node_blocks, [c], None, c.block_size) if c.is_input() else c for c in chs]
        super().__init__(num_node_blocks, block_size, wrapped, source)
        self.num_ch_node_blocks = sum(c.num_node_blocks for c in chs)
        self.ch_block_size = chs[0].block_size
        self.num_ch_nodes = self.num_ch_node_blocks * self.ch_block_size
        self.scope = chs[0].scope
        if edge_ids is None:
            edge_ids = torch.ones(num_node_blocks, self.num_ch_node_blocks).nonzero().T
        assert edge_ids.shape[0] == 2
        assert set(edge_ids[0].tolist()) == set(range(num_node_blocks))
        assert int(edge_ids[1].max()) < self.num_ch_node_blocks
        self.edge_ids = edge_ids
        self._zero_param_mask = None

    def set_params(self, params: torch.Tensor, normalize: bool = True) -> None:
        assert params.shape == (self.edge_ids.shape[1], self.block_size, self.ch_block_size)
        self._params = params.clone()

    def set_zero_param_mask(self, mask: torch.Tensor) -> None:
        assert mask.shape == (self.edge_ids.shape[1], self.block_size, self.ch_block_size)
        assert mask.dtype == torch.bool
        self._zero_param_mask = mask

    def get_zero_param_mask(self) -> Any:
        return self._zero_param_mask

    def duplicate(self, *chs: Any, tie_params: bool = False) -> SumNodes:
        source = self if tie_params else None
        return SumNodes(self.num_node_blocks, list(chs), self.edge_ids.clone(), self.block_size, source)


def inputs(var: Any, num_node_blocks: int = 0, dist: Any = None, block_size: int = 1) -> InputNodes:
    return InputNodes([var] if isinstance(var, int) else var, dist, num_node_blocks, block_size, None)


def multiply(*chs: Any, edge_ids: Any = None, sparse_edges: bool = False) -> ProdNodes:
    assert all(c.is_input() or c.is_sum() for c in chs)
    assert len({c.block_size for c in chs}) == 1
    size = chs[0].block_size
    rows = chs[0].num_node_blocks if edge_ids is None else len(edge_ids)
    return ProdNodes(rows // size if sparse_edges else rows, list(chs), edge_ids, size)


def summate(*chs: Any, num_node_blocks: int = 0, edge_ids: Any = None, block_size: int = 1) -> SumNodes:
    assert all(c.is_input() or c.is_prod() for c in chs)
    assert all(c.scope == chs[0].scope for c in chs)
    return SumNodes(num_node_blocks, list(chs), edge_ids, block_size, None)


def as_module() -> ModuleType:
    """The stand-in under the name of the real one."""
    module = ModuleType("pyjuice")
    kinds = (Bernoulli, Categorical, Gaussian, Literal, DiscreteLogistic)
    distributions = ModuleType("pyjuice.distributions")
    distributions.__dict__.update({kind.__name__: kind for kind in kinds})
    module.__dict__.update(inputs=inputs, multiply=multiply, summate=summate, distributions=distributions)
    return module


# --- for the nodes of both ---


def below(root: Any) -> list[Any]:
    """All nodes below a root, children first."""
    found: dict[Any, None] = {}
    stack = [root]
    while stack:
        missing = [child for child in stack[-1].chs if child not in found]
        if missing:
            stack.extend(missing)
        else:
            found[stack.pop()] = None
    return list(found)


def draw(root: Any, seed: int = 0) -> Any:
    """Random parameters for all nodes that have some of their own; returns the root."""
    random = np.random.default_rng(seed)
    for node in below(root):
        if node.is_tied() or node.is_prod():
            continue
        if node.is_sum():
            shape = (node.edge_ids.shape[1], node.block_size, node.ch_block_size)
            weights = torch.from_numpy(random.exponential(size=shape).astype(np.float32))
            total = torch.zeros(node.num_node_blocks, node.block_size)
            total.index_add_(0, node.edge_ids[0], weights.sum(2))
            node.set_params(weights / total[node.edge_ids[0]][:, :, None], normalize=False)
            continue
        kind, units = type(node.dist).__name__, node.num_nodes
        values = {
            "Bernoulli": lambda units=units: random.uniform(0.05, 0.95, units),
            "Categorical": lambda node=node, units=units: random.dirichlet(np.ones(node.dist.num_cats), units),
            "Gaussian": lambda units=units: np.stack([random.normal(size=units), random.uniform(0.5, 2, units)], 1),
        }
        if kind in values:
            flat = torch.from_numpy(values[kind]().astype(np.float32)).reshape(-1)
            node.set_params(flat, normalize=False)
    return root


def log_values(root: Any, x: np.ndarray) -> np.ndarray:  # (N, V) -> (N, units of the root)
    """Log-probabilities of the samples, with the weights of each sum unit normalised as PyJuice does on compiling."""
    values: dict[Any, np.ndarray] = {}  # (N, units)
    with np.errstate(divide="ignore"):
        for node in below(root):
            if node.is_input():
                values[node] = _input_values(node, x)
            elif node.is_prod():
                values[node] = _product_values(node, [values[child] for child in node.chs])
            else:
                values[node] = _sum_values(node, np.concatenate([values[child] for child in node.chs], axis=1))
    return values[root]


def _input_values(node: Any, x: np.ndarray) -> np.ndarray:
    (variable,) = node.scope
    column = x[:, variable]
    owner = node.get_source_ns()
    kind = type(node.dist).__name__
    result = np.empty((len(x), node.num_nodes))
    flat = None if kind == "Literal" else owner.get_params().double().numpy().reshape(node.num_nodes, -1)
    for unit in range(node.num_nodes):
        if kind == "Bernoulli":
            result[:, unit] = np.log(np.where(column > 0, flat[unit, 0], 1 - flat[unit, 0]))
        elif kind == "Categorical":
            result[:, unit] = np.log(flat[unit, column.astype(int)])
        elif kind == "Gaussian":
            mean, deviation = flat[unit]
            result[:, unit] = -0.5 * ((column - mean) / deviation) ** 2 - math.log(deviation * math.sqrt(2 * math.pi))
        else:
            result[:, unit] = np.log((column == node.dist.lit).astype(float))
    return result


def _product_values(node: Any, children: list[np.ndarray]) -> np.ndarray:
    result = np.zeros((len(children[0]), node.num_nodes))
    whole = len(node.edge_ids) == node.num_node_blocks
    for unit in range(node.num_nodes):
        for place, child in enumerate(children):
            if whole:
                block, within = divmod(unit, node.block_size)
                taken = int(node.edge_ids[block, place]) * node.block_size + within
            else:
                taken = int(node.edge_ids[unit, place])
            result[:, unit] += child[:, taken]
    return result


def _sum_values(node: Any, children: np.ndarray) -> np.ndarray:
    parameters = node.get_source_ns().get_params().double().numpy()
    numerator = np.full((len(children), node.num_nodes), -np.inf)
    total = np.zeros(node.num_nodes)
    for edge, (parent, child) in enumerate(node.edge_ids.T.tolist()):
        for i in range(node.block_size):
            for j in range(node.ch_block_size):
                unit, weight = parent * node.block_size + i, parameters[edge, i, j]
                total[unit] += weight
                term = np.log(weight) + children[:, child * node.ch_block_size + j]
                numerator[:, unit] = np.logaddexp(numerator[:, unit], term)
    return numerator - np.log(total)


def add_passing_sums(root: Any, juice: Any) -> None:
    """What PyJuice's compilation does to a sum with children of different depths, here to each child of the root."""
    for place, child in enumerate(root.chs):
        blocks, size = child.num_node_blocks, child.block_size
        diagonal = torch.arange(blocks).repeat(2, 1)
        passing = juice.summate(child, num_node_blocks=blocks, block_size=size, edge_ids=diagonal)
        passing.set_params(torch.eye(size).repeat(blocks, 1, 1), normalize=False)
        root.chs[place] = juice.multiply(passing)


def compiled(root: Any) -> Any:
    """A compiled circuit as the importer sees it, which gives its parameters back only when asked."""
    kept = {node: node.get_params() for node in below(root) if not node.is_prod() and not node.is_tied()}
    for node in kept:
        node._params = None
    circuit = SimpleNamespace(root_ns=root)

    def update_parameters() -> None:
        for node, values in kept.items():
            node._params = values

    circuit.update_parameters = update_parameters
    return circuit
