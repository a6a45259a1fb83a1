"""Circuits that are long, deep or wide: they compile, evaluate and give finite statistics in linear time."""

import sys

import numpy as np
import pytest
import torch

from circuits import ALL, all_sums, assert_close
from circurve.data import as_table, check
from circurve.engine import Batch, Request, Statistics, compile
from circurve.engine.program import ProductLayer
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli
from circurve.model import Model
from circurve.structures import hmm


def e_step(model: Model, x: np.ndarray, request: Request = ALL) -> Statistics:
    table = check(as_table(x), model.circuit.families)
    return model.backend.statistics(model.params, [Batch.rows(table, 0, len(x), model.dtype)], request)


def all_finite(sums: Statistics) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in all_sums(sums))


def stochastic(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    block = rng.gamma(1.0, size=(rows, columns)) + 0.1
    return block / block.sum(1, keepdims=True)


@pytest.mark.parametrize(("variables", "dtype"), [(500, torch.float64), (8_000, torch.float32)])
def test_a_long_chain(variables, dtype):
    """A hidden Markov model, against the forward algorithm."""
    units, samples = 2, 3
    rng = np.random.default_rng(0)
    circuit = hmm(variables, units)
    weights = {node: stochastic(rng, node.units, node.child_units) for node in circuit.sums}
    inputs = {node: rng.uniform(0.1, 0.9, (units, 1)) for node in circuit.inputs}
    x = rng.integers(0, 2, (samples, variables))
    model = Model.from_parameters(circuit, weights, inputs).to(dtype=dtype)

    by_variable = {node.variable: inputs[node][:, 0] for node in circuit.inputs}
    found = {node.name: node for node in circuit.sums}
    log_likelihood, message = np.zeros(samples), np.ones((units, samples))
    for t in reversed(range(variables)):
        seen = np.where(x[:, t] == 1, by_variable[t][:, None], 1 - by_variable[t][:, None])  # (units, N)
        block = weights[found["root" if t == 0 else f"sum {t}"]]
        message = block @ (seen * message)
        scale = message.max(0)
        log_likelihood, message = log_likelihood + np.log(scale), message / scale
    log_likelihood += np.log(message[0])

    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    sums = e_step(model, x, Request(curvature=True))
    np.testing.assert_allclose(sums.log_likelihood[0], log_likelihood.sum(), rtol=tolerance)
    assert all_finite(sums)
    # the flow of each sample passes through each sum whole
    passed_on = torch.stack([counts.sum() for counts in sums.counts])
    assert_close(passed_on, torch.full_like(passed_on, samples), 1e-3)


def test_4000_sums_in_a_row():
    """Only the product of all the weight blocks matters: the bottom sum receives the whole flow."""
    depth, units = 4_000, 2
    rng = np.random.default_rng(1)
    bottom = Input(0, Bernoulli(), units)
    nodes: list[Sum] = [Sum(bottom, units)]
    while len(nodes) < depth - 1:
        nodes.append(Sum(nodes[-1], units))
    nodes.append(Sum(nodes[-1]))
    weights = {node: stochastic(rng, node.units, node.child_units) for node in nodes}
    model = Model.from_parameters(Circuit(nodes[-1]), weights, {bottom: [[0.2], [0.9]]})
    assert model.circuit.describe().sum_depth == depth
    mixed = np.eye(units)
    for node in nodes:
        mixed = weights[node] @ mixed
    chance = mixed[0] @ [0.2, 0.9]
    x = np.array([[0], [1], [1]])
    np.testing.assert_allclose(np.exp(model.log_prob(x)), [1 - chance, chance, chance], rtol=1e-9)
    sums = e_step(model, x)
    assert all_finite(sums)
    assert all(abs(float(counts.sum()) - 3) < 1e-9 for counts in sums.counts)
    share = mixed[0] * [0.2, 0.9] / chance  # of a one: which unit explains it
    ones = sums.inputs[0][0, 0, :, 1]
    np.testing.assert_allclose(ones, 2 * share, rtol=1e-9)


def test_a_product_of_5000_children_in_single_precision():
    variables = 5_000
    rng = np.random.default_rng(2)
    probability = rng.uniform(0.01, 0.99, (variables, 3))
    inputs = [Input(v, Bernoulli(), 3) for v in range(variables)]
    circuit = Circuit(Sum(Product(inputs)))
    model = Model.from_parameters(circuit, None, {i: probability[i.variable][:, None] for i in inputs})
    layer = next(layer for layer in model.program.layers if isinstance(layer, ProductLayer))
    assert layer.children.tail is not None  # what lies beyond the columns
    x = rng.integers(0, 2, (4, variables))
    per_unit = np.where(x[:, :, None] == 1, np.log(probability), np.log1p(-probability)).sum(1)  # (N, units)
    wanted = np.logaddexp.reduce(per_unit - np.log(3), axis=1)
    np.testing.assert_allclose(model.log_prob(x), wanted, rtol=1e-12)
    np.testing.assert_allclose(model.to(dtype=torch.float32).log_prob(x), wanted, rtol=1e-5)
    sums = e_step(model.to(dtype=torch.float32), x)
    assert all_finite(sums)
    flow = np.exp(per_unit - np.logaddexp.reduce(per_unit, axis=1, keepdims=True))  # (N, units)
    np.testing.assert_allclose(sums.counts[0][0, 0, 0], flow.sum(0), atol=5e-3)  # logs of -7000 have four decimals
    ones = sums.inputs[0][0, :, :, 1]  # (variables, units)
    np.testing.assert_allclose(ones, x.T @ flow, atol=5e-3)


@pytest.mark.parametrize("kind", ["input", "sum", "product"])
def test_a_node_with_1000_parents_adds_up_all_their_flows(kind):
    parents, rng = 1_000, np.random.default_rng(3)
    leaf = Input(0, Bernoulli(), 2)
    shared = {"input": leaf, "sum": Sum(leaf, 2, name="shared"), "product": Product(leaf)}[kind]
    others = [Input(1, Bernoulli(), 2) for _ in range(parents)]
    root = Sum([Product([shared, other]) for other in others], name="root")
    inputs = {node: rng.uniform(0.1, 0.9, (2, 1)) for node in (leaf, *others)}
    weights = {root: stochastic(rng, 1, 2 * parents)}
    model = Model.from_parameters(Circuit(root), weights, inputs)
    x = np.array([[0, 1], [1, 1], [1, 0]])

    def seen(node: Input) -> np.ndarray:  # (units, N)
        return np.where(x[:, node.variable] == 1, inputs[node], 1 - inputs[node])

    below = np.full((2, 2), 0.5) @ seen(leaf) if kind == "sum" else seen(leaf)
    elements = np.concatenate([below * seen(other) for other in others])  # (2 x parents, N)
    value = weights[root][0] @ elements
    np.testing.assert_allclose(model.log_prob(x), np.log(value), rtol=1e-11)
    edge_flow = weights[root][0][:, None] * elements / value
    flow = edge_flow.reshape(parents, 2, 3).sum(0)  # of the shared units
    if kind == "sum":
        flow = seen(leaf) * (0.5 * flow / below).sum(0)
    sums = e_step(model, x)
    assert all_finite(sums)
    layer = next(i for i, inputs in enumerate(model.program.inputs) if leaf in inputs.nodes)
    place = model.program.inputs[layer].nodes.index(leaf)
    np.testing.assert_allclose(sums.inputs[layer][0, place, :, 0], flow.sum(1), rtol=1e-10)
    np.testing.assert_allclose(sums.inputs[layer][0, place, :, 1], flow @ x[:, 0], rtol=1e-10)


def test_folding_keeps_the_number_of_layers_at_the_depth_of_the_circuit():
    """Thousands of nodes of equal shape are a handful of matrix products."""
    nodes = [Input(v, Bernoulli(), 2) for v in range(1_024)]
    while len(nodes) > 1:
        pairs = zip(nodes[::2], nodes[1::2], strict=True)
        nodes = [Sum(Product([a, b]), 2) for a, b in pairs]
    program = compile(Circuit(nodes[0]))
    assert len(program.inputs) == 1
    assert len(program.layers) == 2 * 10
    assert all(layer.owns_children for layer in program.sums)


def test_compiling_a_sum_is_linear_in_its_children():
    """Calls are counted, not seconds: twice the children are twice the calls."""

    def calls(children: int) -> int:
        leaves = [Product([Input(0, Bernoulli(), 1), Input(1, Bernoulli(), 1)]) for _ in range(children)]
        circuit, counted = Circuit(Sum(leaves, 1)), [0]

        def count(*_: object) -> None:
            counted[0] += 1

        sys.setprofile(count)
        try:
            compile(circuit)
        finally:
            sys.setprofile(None)
        return counted[0]

    assert calls(400) < 2.2 * calls(200)
