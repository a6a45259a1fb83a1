"""Data whose true likelihood is known: samples of a random circuit, with that circuit as the yardstick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circurve.data import Dataset
from circurve.data.convert import Array
from circurve.data.dataset import SPLITS
from circurve.engine import compile
from circurve.engine.params import by_node, from_nodes
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.learning.initialize import generator
from circurve.model import Model
from circurve.structures import random_binary_trees
from circurve.structures.arguments import Families, check_count

__all__ = ["KnownCircuit", "known_circuit", "random_model", "sample_rows"]

CONTRAST, LOYALTY = 6.0, 0.9
"""Weights are proportional to exp(CONTRAST u), u uniform: each sum has a few children that matter, not all alike. Where
a sum has as many units as child units, unit k gives LOYALTY of its weight to child unit k, so that variables far apart
in the tree depend on one another."""

PARAMETERS, ROWS = 2, 3
"""The streams of a seed; training uses 0 and 1, so that a run of the same seed knows nothing of the truth."""


@dataclass(frozen=True, eq=False)
class KnownCircuit:
    """Samples and what they were sampled from."""

    data: Dataset
    model: Model
    """The truth."""

    log_likelihood: Mapping[str, float]
    """The mean log-likelihood of each split under the truth, exactly: the best that learning can hope for."""


def known_circuit(
    families: Families, units: int = 8, rows: tuple[int, int, int] = (2000, 500, 2000), seed: int = 0
) -> KnownCircuit:
    """Samples of a random circuit: two random binary trees over the variables, with random parameters.

    families: one for each variable, `(family, count)`, or a count of binary variables. rows: for training, validation
    and test. The seed decides structure, parameters and samples.
    """
    counts = [check_count("rows", count) for count in rows]
    if len(counts) != len(SPLITS):
        raise OptionError(f"rows must be three numbers, for {', '.join(SPLITS)}, not {rows!r}")
    circuit = random_binary_trees(families, units, repetitions=2, seed=seed, product="unitwise")
    model = random_model(circuit, seed)
    values = sample_rows(model, sum(counts), seed)
    parts = np.split(values, np.cumsum(counts)[:-1])
    means = {split: float(model.log_prob(part).mean()) for split, part in zip(SPLITS, parts, strict=True)}
    train, valid, test = parts
    return KnownCircuit(Dataset(f"random circuit {seed}", train, valid, test), model, means)


def random_model(circuit: Circuit, seed: int = 0) -> Model:
    """The circuit with random parameters, float64: inputs as a training without data would start, uneven weights."""
    source = generator(seed, PARAMETERS)
    weights: dict[Node, Tensor] = {node: _random_weights(node, source) for node in circuit.sums}
    inputs: dict[Node, Tensor] = {n: n.family.initialize(np.empty(0), n.units, source) for n in circuit.inputs}
    program = compile(circuit)
    return Model(circuit, from_nodes(program, weights, inputs), program)


def _random_weights(node: Sum, source: torch.Generator) -> Tensor:  # (K, C)
    weight = (CONTRAST * torch.rand(node.units, node.child_units, generator=source, dtype=torch.float64)).exp()
    weight /= weight.sum(-1, keepdim=True)
    if node.units == node.child_units:
        weight = (1 - LOYALTY) * weight + LOYALTY * torch.eye(node.units, dtype=torch.float64)
    if node.mask is not None:
        weight *= torch.from_numpy(node.mask.copy())
    return weight / weight.sum(-1, keepdim=True)


def sample_rows(model: Model, rows: int, seed: int = 0) -> Array:  # (N, V)
    """Ancestral samples: from the root down, a sum follows one child unit by its weights, a product all its children.

    A sample comes to a node once at most, because the children of a product have no variable in common. Integers if all
    variables are discrete, else float64. O(rows x nodes) memory.
    """
    check_count("rows", rows)
    circuit = model.circuit
    if circuit.outputs != 1:
        raise OptionError(f"sampling needs a circuit with one output, not {circuit.outputs}")
    source = generator(seed, ROWS)
    parameters = by_node(model.program, model.params.to("cpu", torch.float64))
    unit = {node: torch.full((rows,), -1) for node in circuit.nodes}  # -1: the sample does not come here
    unit[circuit.roots[0]].fill_(0)
    values = torch.zeros(rows, circuit.variables, dtype=torch.float64)
    for node in reversed(circuit.nodes):
        here = (unit[node] >= 0).nonzero()[:, 0]
        if not len(here):
            continue
        at = unit[node][here]
        if isinstance(node, Sum):
            picked = torch.multinomial(parameters[node][at], 1, generator=source)[:, 0]
            _follow(node, picked, here, unit)
        elif isinstance(node, Product):
            for child, select in zip(node.children, node.select, strict=True):
                unit[child][here] = at if select is None else torch.from_numpy(select.copy())[at]
        else:
            values[here, node.variable] = _draw(node, parameters[node], at, source)
    whole = all(family.discrete for family in circuit.families)
    return values.numpy().astype(np.int64) if whole else values.numpy()


def _follow(node: Sum, picked: Tensor, here: Tensor, unit: Mapping[Node, Tensor]) -> None:
    """Send each sample to the child that its picked child unit belongs to."""
    start = 0
    for child in node.children:
        inside = (picked >= start) & (picked < start + child.units)
        unit[child][here[inside]] = picked[inside] - start
        start += child.units


def _draw(node: Input, parameters: Tensor, at: Tensor, source: torch.Generator) -> Tensor:  # (n,)
    if not parameters.shape[-1]:  # the units of an Indicator differ in value, not in parameters
        return node.family.mean(parameters)[at]
    return node.family.sample(parameters[at], source)
