"""Flows: of every unit and every edge against autograd, finite differences and the enumeration of all paths."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from circuits import Case, Shape, Truth, assert_close, cases, with_parameters
from circurve.engine import Batch, Params, Reference
from circurve.engine.numerics import WEAK_SUM
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli
from shapes import SHAPES, case_of

many = settings(max_examples=120, deadline=None)
some = settings(max_examples=30, deadline=None)


class Recorder:
    """What the passes give: the flows of sums and inputs, and what each sum sent to its children."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.flow: dict[Node, torch.Tensor] = {}  # (units, N)
        self.sent: dict[Sum, torch.Tensor] = {}  # (child units, N)
        self.weak = 0
        down = case.backend().passes(case.params, case.samples().rows(0, len(case.x)))
        self.log_value, self.weight, self.possible = down.root.log_value, down.root.weight, down.root.possible
        steps = list(down.sums())
        for step in steps:
            assert step.layer is case.program.sums[step.number]
            g, _, c = step.layer.shape
            self.flow.update(zip(step.layer.nodes, step.flow[0], strict=True))
            sent = down.flows.blocks[step.layer.flow_block][0].view(g, c, -1)
            self.sent.update(zip(step.layer.nodes, sent, strict=True))
            self.weak += sum(len(entries.flow) for entries in step.weak())
        for number, flow in down.inputs():
            self.flow.update(zip(case.program.inputs[number].nodes, flow[0], strict=True))

    def product_flows(self) -> dict[Product, torch.Tensor]:
        """What a product received: from the outputs, from sums as recorded, from products undivided."""
        circuit, n = self.case.circuit, len(self.case.x)
        received = {node: torch.zeros(node.units, n, dtype=torch.float64) for node in circuit.nodes}
        labels = torch.zeros(n, dtype=torch.int64) if self.case.labels is None else self.case.labels
        outputs = torch.zeros(circuit.outputs, n, dtype=torch.float64).scatter_(0, labels[None], self.weight)
        for root, part in zip(circuit.roots, outputs.split([r.units for r in circuit.roots]), strict=True):
            received[root] += part
        for node in reversed(circuit.nodes):
            if isinstance(node, Sum):
                parts = self.sent[node].split([child.units for child in node.children])
                for child, part in zip(node.children, parts, strict=True):
                    received[child] += part
            elif isinstance(node, Product):
                for child, select in zip(node.children, node.select, strict=True):
                    at = torch.arange(node.units) if select is None else torch.tensor(select)
                    received[child].index_add_(0, at, received[node])
        return {node: received[node] for node in circuit.nodes if isinstance(node, Product)}


def check_flows(case: Case) -> Recorder:
    found, truth, weight = Recorder(case), Truth.of(case), case.weight
    assert_close(found.log_value[0][truth.root > 0], truth.root[truth.root > 0].log())
    assert torch.equal(found.possible[0], truth.root > 0)
    assert_close(found.weight[0], weight * (truth.root > 0))
    for node, flow in (found.flow | found.product_flows()).items():
        assert_close(flow, weight * truth.flow[node], 1e-9)
    for node, sent in found.sent.items():
        assert_close(sent, weight * truth.edge_flow(node).sum(0), 1e-9)
    assert set(found.flow) | set(found.product_flows()) == set(case.circuit.nodes)
    return found


@given(case=cases())
@many
def test_flow_of_every_unit_is_the_derivative_of_log_p(case):
    check_flows(case)


@given(case=cases(zeros=True))
@many
def test_flow_of_every_unit_is_the_derivative_of_log_p_with_exact_zeros(case):
    check_flows(case)


@given(case=cases(zeros=True))
@some
def test_flows_are_the_same_where_every_sum_is_computed_in_logs(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WEAK_SUM, torch.float64, 2.0)
        patch.setattr("circurve.engine.reference.backend.never_weak", lambda weights: False)
        found = check_flows(case)
    alive = sum(int((Truth.of(case).value[node] > 0).sum()) for node in case.circuit.sums)
    assert found.weak == alive


@given(case=cases(samples=3, depth=3))
@settings(max_examples=12, deadline=None)
def test_counts_over_weights_are_finite_differences_of_the_log_likelihood(case):
    """d/dtheta of sum_n w_n log p(x_n) = sum_n w_n F_nc / theta_nc, with the weights taken as free variables."""
    samples, backend = case.samples(), case.backend()
    batch = samples.rows(0, len(samples))
    counts = backend.statistics(case.params, [batch]).counts
    for number, weights in enumerate(case.params.weights):
        for at in (weights[0] > 0).nonzero().tolist():
            slope = finite_difference(case.params, backend, batch, number, (0, *at))
            edge = (0, *at)
            assert_close(counts[number][edge] / weights[edge], slope, 1e-5)


def finite_difference(
    params: Params, backend: Reference, batch: Batch, number: int, edge: tuple[int, ...]
) -> torch.Tensor:
    step = 1e-4 * float(params.weights[number][edge])
    results = []
    for sign in (1, -1):
        moved = params.clone()
        moved.weights[number][edge] += sign * step
        values = backend.log_prob(moved, batch)[0]
        chosen = values[0] if batch.labels is None else values.gather(0, batch.labels)[0]
        finite = torch.where(chosen.isfinite(), chosen, 0.0)
        results.append((finite if batch.weights is None else finite * batch.weights[0]).sum())
    return (results[0] - results[1]) / (2 * step)


def path_products(case: Case, truth: Truth, sample: int) -> dict[tuple[Node, int], list[float]]:
    """For each unit, the product of the responsibilities along every path from the output of a sample to it."""
    found: dict[tuple[Node, int], list[float]] = defaultdict(list)
    label = 0 if case.labels is None else int(case.labels[sample])
    units = [(root, u) for root in case.circuit.roots for u in range(root.units)]
    stack = [(*units[label], 1.0)]
    while stack:
        node, unit, product = stack.pop()
        found[node, unit].append(product)
        if isinstance(node, Product):
            for child, select in zip(node.children, node.select, strict=True):
                stack.append((child, unit if select is None else int(select[unit]), product))
        elif isinstance(node, Sum):
            elements = [(child, u) for child in node.children for u in range(child.units)]
            for weight, (child, u) in zip(case.weights[node][unit], elements, strict=True):
                ratio = truth.value[child][u, sample] / truth.value[node][unit, sample]
                if weight > 0 and ratio > 0:
                    stack.append((child, u, product * float(weight * ratio)))
    return found


@given(case=cases(units=2, depth=3, variables=3, samples=2))
@some
def test_flow_is_the_sum_over_all_paths(case):
    flows, truth = Recorder(case), Truth.of(case)
    for sample in (truth.root > 0).nonzero().flatten().tolist():
        paths = path_products(case, truth, sample)
        for node, flow in flows.flow.items():
            for unit in range(node.units):
                wanted = sum(paths[node, unit]) * case.weight[sample]
                assert_close(flow[unit, sample], torch.as_tensor(wanted), 1e-9)


@given(case=cases(units=1, shared=False, roots=1, domains=("real", "count"), samples=2))
@some
def test_flow_on_a_tree_is_the_product_of_the_responsibilities_on_its_path(case):
    flows, truth = Recorder(case), Truth.of(case)
    for sample in range(2):
        paths = path_products(case, truth, sample)
        for node, flow in flows.flow.items():
            on_path = paths[node, 0]
            assert len(on_path) <= 1  # none where the mask cuts it off
            wanted = sum(on_path) * case.weight[sample]
            assert_close(flow[0, sample], torch.as_tensor(wanted), 1e-9)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SHAPES)
def test_flow_of_every_unit_of_a_special_shape(name, seed):
    check_flows(case_of(name, seed))


def test_a_diamond_adds_the_flows_of_both_its_paths():
    shared = Sum(Input(0, Bernoulli(), 2), name="shared")
    left, right = Product([shared, Input(1, Bernoulli())]), Product([shared, Input(1, Bernoulli())])
    case = with_parameters(
        Circuit(Sum([left, right])), ("binary", "binary"), Shape(missing=False), np.random.default_rng(1)
    )
    flows, truth = Recorder(case), Truth.of(case)
    assert all(len(path_products(case, truth, n)[shared, 0]) == 2 for n in range(6))
    assert_close(flows.flow[shared][0], case.weight)


def test_labels_send_the_flow_to_the_output_they_name():
    shared = Input(0, Bernoulli(), 2)
    roots = [Sum(shared, 2), Sum(shared)]
    case = with_parameters(Circuit(roots), ("binary",), Shape(missing=False), np.random.default_rng(2))
    flows = Recorder(case)
    for output, (root, unit) in enumerate([(roots[0], 0), (roots[0], 1), (roots[1], 0)]):
        assert_close(flows.flow[root][unit], case.weight * (case.labels == output))
