"""Hessians, paths and depths straight from their definitions, on the oracle of `circuits` and on nothing of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import assume
from torch import Tensor

from circuits import Case, Shape, Truth, evaluate, with_parameters
from circurve import Model
from circurve.curvature import Edge, NodeRef
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Gaussian

Unit = tuple[Node, int]


def model_of(case: Case) -> Model:
    return Model(case.circuit, case.params, case.program)


def with_rows(case: Case, rows: Sequence[int] | np.ndarray) -> Case:
    """The same circuit with some of the samples."""
    pick = torch.as_tensor(np.asarray(rows, dtype=np.int64))
    weights = None if case.sample_weights is None else case.sample_weights[pick]
    labels = None if case.labels is None else case.labels[pick]
    return replace(case, x=case.x[pick.numpy()], sample_weights=weights, labels=labels)


def measurable(case: Case, weighted: bool = False) -> Case:
    """The rows of positive probability, at least one of them observed; with `weighted`, one of positive weight too."""
    kept = with_rows(case, np.flatnonzero((Truth.of(case).root > 0).numpy()))
    assume(len(kept.x) > 0 and not np.isnan(kept.x).all())
    assume(not weighted or bool(kept.weight.any()))
    return kept


# --- the Hessian ---


def oracle_edges(case: Case) -> list[Edge]:
    """The edges that exist, in an order of the oracle's own."""
    place = {node: i for i, node in enumerate(case.circuit.nodes)}
    return [
        Edge(place[s], unit, child)
        for s in case.circuit.sums
        for unit in range(s.units)
        for child in range(s.child_units)
        if s.mask is None or s.mask[unit, child]
    ]


def oracle_loss(case: Case) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """-log p_r of each sample as a function of the free weights (E,), in plain probabilities, and the weights."""
    edges, nodes = oracle_edges(case), case.circuit.nodes
    x = torch.from_numpy(np.asarray(case.x, dtype=np.float64))
    labels = torch.zeros(len(x), dtype=torch.int64) if case.labels is None else case.labels
    inputs = {node: evaluate(node, case, x, {}, {}).detach() for node in case.circuit.inputs}
    sizes = [s.units * s.child_units for s in case.circuit.sums]
    starts = dict(zip(case.circuit.sums, np.cumsum([0, *sizes]).tolist(), strict=False))
    at = torch.tensor(
        [starts[nodes[e.node]] + e.unit * nodes[e.node].child_units + e.child for e in edges], dtype=torch.int64
    )

    def loss(free: Tensor) -> Tensor:  # (E,) -> (N,)
        full = torch.zeros(sum(sizes), dtype=torch.float64).index_put((at,), free)
        parts = torch.split(full, sizes) if sizes else ()
        weights = {
            s: part.view(s.units, s.child_units, 1).expand(-1, -1, len(x))
            for s, part in zip(case.circuit.sums, parts, strict=True)
        }
        found: dict[Node, Tensor] = dict(inputs)
        outputs = torch.cat([evaluate(root, case, x, weights, found) for root in case.circuit.roots])
        return -outputs.gather(0, labels[None])[0].log()

    theta = [case.weights[nodes[e.node]][e.unit, e.child] for e in edges]
    return loss, torch.stack(theta) if theta else torch.zeros(0, dtype=torch.float64)


def oracle_hessians(case: Case) -> Tensor:  # (N, E, E)
    """The Hessian of -log p_r of each sample, by differentiating the oracle twice."""
    loss, free = oracle_loss(case)
    if not len(free):
        return torch.zeros(len(case.x), 0, 0, dtype=torch.float64)
    return torch.func.hessian(loss)(free).detach()


def in_order(edges: Sequence[Edge], case: Case) -> np.ndarray:
    """Where each of `edges` lies in the oracle's order."""
    place = {edge: i for i, edge in enumerate(oracle_edges(case))}
    assert len(edges) == len(set(edges)) == len(place)
    return np.array([place[edge] for edge in edges], dtype=np.int64)


# --- units and paths ---


def by_unit(values: dict[Sum, Tensor], refs: Sequence[NodeRef], circuit: Circuit) -> Tensor:  # (M, ...)
    """Values (units, ...) by node, listed in the order of the references."""
    listed = [values[circuit.nodes[ref.node]][ref.unit] for ref in refs]
    return torch.stack(listed) if listed else torch.zeros(0, dtype=torch.float64)


def output_units(case: Case) -> list[Unit]:
    return [(root, unit) for root in case.circuit.roots for unit in range(root.units)]


def child_units(node: Sum) -> list[Unit]:
    return [(child, unit) for child in node.children for unit in range(child.units)]


@dataclass(frozen=True)
class Path:
    """A way from an output unit down to a sum unit, by the sum edges (sum, unit, child) it takes."""

    output: int
    edges: tuple[tuple[Sum, int, int], ...]


def all_paths(case: Case) -> Iterator[tuple[Unit, Path]]:
    """Every path from an output unit to a sum unit, one after the other."""
    stack = [(unit, Path(number, ())) for number, unit in enumerate(output_units(case))]
    while stack:
        (node, unit), path = stack.pop()
        if isinstance(node, Sum):
            yield (node, unit), path
            for place, child in enumerate(child_units(node)):
                if node.mask is None or node.mask[unit, place]:
                    stack.append((child, Path(path.output, (*path.edges, (node, unit, place)))))
        elif isinstance(node, Product):
            for child, select in zip(node.children, node.select, strict=True):
                stack.append(((child, unit if select is None else int(select[unit])), path))


def path_flow(path: Path, case: Case, responsibility: dict[Sum, Tensor]) -> Tensor:  # (N,)
    """The product of the responsibilities along a path; zero for samples of another output."""
    flow = torch.ones(len(case.x), dtype=torch.float64)
    if case.labels is not None:
        flow = (case.labels == path.output).double()
    for node, unit, child in path.edges:
        flow = flow * responsibility[node][unit, child]
    return flow


def responsibilities(truth: Truth) -> dict[Sum, Tensor]:
    return {node: truth.weights[node] * truth.ratio(node) for node in truth.gradient}


# --- a unit far below its sibling ---


def far_below(gap: float, masked: bool) -> Model:
    """A sum 'mixed' of two units over Gaussians at 0 and `gap` nats below at x0 = 0; only unit 0 uses the near one.

    x1 = 0 makes unit 1 of 'mixed' carry the sample, x1 = 80 makes it carry nothing.
    """
    near, other = Input(0, Gaussian(), 2), Input(1, Gaussian(), 2)
    mask = np.array([[True, True], [False, True]]) if masked else None
    mixed = Sum(near, 2, mask, name="mixed")
    root = Sum(Product([mixed, other]), name="root")
    inputs = {near: [[0.0, 1.0], [np.sqrt(2 * gap), 1.0]], other: [[80.0, 1.0], [0.0, 1.0]]}
    return Model.from_parameters(Circuit(root), {mixed: [[0.5, 0.5], [0.0, 1.0]], root: [[0.5, 0.5]]}, inputs)


def wide_case() -> Case:
    """Products of up to 12 children, nodes with up to 14 parents, and paths of one to three sum edges."""
    leaves = [Input(v, Bernoulli(), 2) for v in range(12)]
    mixed = [Sum(leaf, 2) for leaf in leaves]
    products = [Product([*mixed[:v], *leaves[v:]]) for v in range(12)]
    nested = Product([Product(leaves[:10]), Sum(mixed[10], 2), leaves[11]], [[1, 0, 1]] * 3)
    circuit = Circuit([Sum([*products, nested]), Sum([nested, *products[::3]], 2)])
    return with_parameters(circuit, ("binary",) * 12, Shape(), np.random.default_rng(0))
