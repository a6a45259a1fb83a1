"""d_Sigma, the number of sum edges above a unit: fewest, most and mean, against the paths one by one."""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hessian_oracle import Unit, all_paths, child_units, measurable, model_of, output_units, wide_case
from hypothesis import given, settings

from circuits import Case, Truth, cases
from circurve import Model, curvature, hclt
from circurve.curvature import Curvature
from circurve.curvature.depth import fixed_depths, sum_depths
from circurve.engine import compile
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Gaussian

pytestmark = pytest.mark.filterwarnings("ignore:.*no observed value:circurve.errors.CircurveWarning")
many = settings(max_examples=100, deadline=None)
SMALL = {"units": 2, "depth": 3}


def record_of(case: Case) -> Curvature:
    return curvature(model_of(case), case.x, weights=case.sample_weights, labels=case.labels)


def depths(case: Case, record: Curvature) -> dict[Unit, tuple[float, float, float]]:
    listed = zip(record.depth_min, record.depth_max, record.depth_mean, strict=True)
    units = [(case.circuit.nodes[ref.node], ref.unit) for ref in record.nodes]
    return dict(zip(units, listed, strict=True))


def mean_flow(values: torch.Tensor, case: Case) -> float:
    return float((values * case.weight).sum() / case.weight.sum())


def mean_depths(case: Case) -> dict[Unit, float]:
    """D_n = sum over parents of (flow from the parent / flow of n) (D_parent + 1 for a sum), from the outputs down.

    The flows are means over samples of the definitions' own; units without flow are left out.
    """
    truth = Truth.of(case)
    flow: dict[Unit, float] = defaultdict(float)
    weighted: dict[Unit, float] = defaultdict(float)
    labels = torch.zeros(len(case.x), dtype=torch.int64) if case.labels is None else case.labels
    for number, unit in enumerate(output_units(case)):
        flow[unit] += mean_flow((labels == number).double(), case)
    found: dict[Unit, float] = {}
    for node in reversed(case.circuit.nodes):
        for number in range(node.units):
            unit = (node, number)
            if flow[unit] > 0:
                found[unit] = weighted[unit] / flow[unit]
                for child, share, step in shares(node, number, flow[unit], truth, case):
                    flow[child] += share
                    weighted[child] += share * (found[unit] + step)
    return found


def shares(node: Node, unit: int, flow: float, truth: Truth, case: Case) -> list[tuple[Unit, float, int]]:
    """The child units of a unit, the flow each gets from it, and whether that is along a sum edge."""
    if isinstance(node, Product):
        chosen = [unit if s is None else int(s[unit]) for s in node.select]
        return [((child, u), flow, 0) for child, u in zip(node.children, chosen, strict=True)]
    if isinstance(node, Sum):
        edges = truth.edge_flow(node)[unit]  # (C, N)
        return [(child, mean_flow(edge, case), 1) for child, edge in zip(child_units(node), edges, strict=True)]
    return []


@given(case=cases(**SMALL))
@many
def test_fewest_and_most_are_those_of_all_paths(case):
    """Whatever the data; a unit that no path reaches (never selected, or masked out) is infinitely deep."""
    case = measurable(case, weighted=True)
    lengths: dict[Unit, list[int]] = defaultdict(list)
    for unit, path in all_paths(case):
        lengths[unit].append(len(path.edges))
    for unit, (low, high, mean) in depths(case, record_of(case)).items():
        if unit not in lengths:
            assert low == high == mean == math.inf
        else:
            assert (low, high) == (min(lengths[unit]), max(lengths[unit]))
            assert low <= mean <= high


@given(case=cases())
@many
def test_mean_follows_the_shares_of_flow(case):
    """Weights, labels and several roots included; where a unit has no flow, the fewest."""
    case = measurable(case, weighted=True)
    wanted = mean_depths(case)
    for unit, (low, _, mean) in depths(case, record_of(case)).items():
        assert mean == pytest.approx(wanted.get(unit, low), rel=1e-9, abs=1e-9)


def test_depths_with_products_of_many_children():
    case = wide_case()
    lengths: dict[Unit, set[int]] = defaultdict(set)
    for unit, path in all_paths(case):
        lengths[unit].add(len(path.edges))
    wanted = mean_depths(case)
    assert {1, 2} in lengths.values()
    for unit, (low, high, mean) in depths(case, record_of(case)).items():
        assert (low, high) == (min(lengths[unit]), max(lengths[unit]))
        assert mean == pytest.approx(wanted[unit], rel=1e-9)


def diamond(share: float) -> Model:
    """The sum 'low' is reached by an edge of weight `share` from the root, and by way of 'middle' (two edges)."""
    low = Sum(Input(0, Gaussian(), 2), name="low")
    middle = Sum(low, name="middle")
    root = Sum([low, middle], name="root")
    inputs = {low.children[0]: [[0.0, 1.0], [1.0, 1.0]]}
    return Model.from_parameters(Circuit(root), {root: [[share, 1 - share]]}, inputs)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_diamond_by_hand(share):
    """Both ways have the same value, so the flow splits as the weights do: 1 share + 2 (1 - share)."""
    record = curvature(diamond(share), [[0.3], [2.0]])
    at = {ref.name: i for i, ref in enumerate(record.nodes)}
    assert [record.depth_min[at[name]] for name in ("root", "middle", "low")] == [0, 1, 1]
    assert [record.depth_max[at[name]] for name in ("root", "middle", "low")] == [0, 1, 2]
    assert record.depth_mean[at["low"]] == pytest.approx(2 - share)


def test_a_root_below_another_root_counts_the_rows_of_its_own():
    """'inner' is output 0 and half of output 1; one row of three belongs to 0: its flow is 1/3 from each."""
    leaf = Input(0, Gaussian())
    inner = Sum(leaf, name="inner")
    outer = Sum([inner, leaf], name="outer")
    model = Model.from_parameters(Circuit([inner, outer]), {outer: [[0.5, 0.5]]}, {leaf: [[0.0, 1.0]]})
    record = curvature(model, [[0.0], [0.5], [1.0]], labels=[0, 1, 1])
    at = {ref.name: i for i, ref in enumerate(record.nodes)}
    assert record.depth_mean[at["inner"]] == pytest.approx(1 / 2)
    weighted = curvature(model, [[0.0], [0.5], [1.0]], labels=[0, 1, 1], weights=[4, 1, 1])
    assert weighted.depth_mean[at["inner"]] == pytest.approx(1 / 5)


def test_a_unit_that_is_never_selected_does_not_deepen_those_below():
    """Unit 1 of 'top' is not used; 'deep' hangs below it alone, and 'leaf' has one path: two edges, not four."""
    leaf = Sum(Input(0, Gaussian()), name="leaf")
    deep = Sum(Sum(Sum(leaf)), name="deep")
    top = Sum([leaf, deep], 2, [[True, False], [True, True]], name="top")
    root = Sum(Product(top, [[0]]), name="root")
    record = curvature(Model.from_parameters(Circuit(root), {}, {leaf.children[0]: [[0.0, 1.0]]}), [[0.0]])
    found = {(ref.name, ref.unit): i for i, ref in enumerate(record.nodes)}
    for column in (record.depth_min, record.depth_max, record.depth_mean):
        assert column[found["root", 0]] == 0
        assert column[found["top", 0]] == 1
        assert column[found["leaf", 0]] == 2
        assert column[found["top", 1]] == column[found["deep", 0]] == math.inf


def test_depths_of_a_hidden_tree_are_those_of_its_latents():
    rng = np.random.default_rng(0)
    x, parents = rng.integers(0, 2, (40, 5)), [-1, 0, 1, 1, 3]
    circuit = hclt(x, 3, families=[Bernoulli()] * 5, tree=parents)
    inputs = {node: rng.uniform(0.2, 0.8, (3, 1)) for node in circuit.inputs}
    weights = {node: rng.dirichlet(np.ones(node.child_units), node.units) for node in circuit.sums}
    record = curvature(Model.from_parameters(circuit, weights, inputs), x)
    wanted = {"root": 0, "sum 1": 1, "sum 2": 2, "sum 3": 2, "sum 4": 3}
    assert len(record) == 1 + 4 * 3
    for column in (record.depth_min, record.depth_max, record.depth_mean):
        assert column.tolist() == [wanted[ref.name] for ref in record.nodes]


def test_depths_need_no_flows_where_all_paths_to_a_unit_are_as_long():
    rng = np.random.default_rng(0)
    program = compile(hclt(rng.integers(0, 2, (40, 6)), 3, families=[Bernoulli()] * 6))
    found = fixed_depths(program)
    assert found is not None
    wanted = sum_depths(program, [rng.random(layer.shape) for layer in program.sums], np.ones(1))
    for one, other in zip(found, wanted, strict=True):
        for name in ("low", "high", "mean"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
    assert fixed_depths(diamond(0.5).program) is None
