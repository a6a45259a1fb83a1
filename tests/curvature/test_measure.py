"""`hessian_trace` and `per_sample`: the decomposition sample by sample, against the oracle's own Hessian."""

import numpy as np
import pytest
import torch
from hessian_oracle import (
    all_paths,
    by_unit,
    far_below,
    measurable,
    model_of,
    oracle_hessians,
    path_flow,
    responsibilities,
    with_rows,
)
from hypothesis import given, settings

from circuits import Case, Truth, assert_close, cases
from circurve import (
    CircurveWarning,
    DataError,
    Model,
    OptionError,
    ParameterError,
    curvature,
    fit,
    hclt,
    hessian_trace,
)
from circurve.curvature import per_sample
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Gaussian, Indicator

pytestmark = pytest.mark.filterwarnings("ignore:.*no observed value:circurve.errors.CircurveWarning")
many = settings(max_examples=100, deadline=None)
some = settings(max_examples=40, deadline=None)
CONTINUOUS = ("real", "count")
"""Domains whose values all have positive probability."""


def trace_of(case: Case) -> torch.Tensor:
    return torch.from_numpy(hessian_trace(model_of(case), case.x, labels=case.labels))


def units_of(case: Case):
    return per_sample(model_of(case), case.x, labels=case.labels)


def oracle_traces(case: Case) -> torch.Tensor:  # (N,)
    return oracle_hessians(case).diagonal(dim1=1, dim2=2).sum(-1)


# --- the trace ---


@given(case=cases(units=2, depth=3))
@many
def test_trace_equals_the_trace_of_the_oracle_hessian(case):
    case = measurable(case)
    assert_close(trace_of(case), oracle_traces(case), 1e-9)


@given(case=cases(units=2, depth=3, domains=CONTINUOUS, zeros=True))
@some
def test_trace_equals_the_trace_of_the_oracle_hessian_with_weights_of_zero(case):
    """An edge of weight zero has a row in the Hessian like any other."""
    case = measurable(case)
    assert_close(trace_of(case), oracle_traces(case), 1e-9)


@pytest.mark.parametrize("chunk", [1, 4])
@given(case=cases())
@some
def test_trace_does_not_depend_on_the_chunks(chunk, case):
    case = measurable(case)
    whole = trace_of(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circurve.engine.memory.CPU_CHUNK", chunk)
        cut, units = trace_of(case), units_of(case)
    assert_close(cut, whole, 1e-13)
    assert_close(torch.from_numpy(units.total.sum(1)), whole, 1e-12)


@given(case=cases())
@some
def test_trace_of_a_row_does_not_depend_on_the_other_rows(case):
    case = measurable(case)
    together = trace_of(case)
    for row in range(len(case.x)):
        if not np.isnan(case.x[row]).all():
            assert_close(trace_of(with_rows(case, [row])), together[row : row + 1], 1e-13)


def test_trace_is_a_tensor_for_a_tensor_and_an_array_for_all_else():
    model = mixture([0.25, 0.75])
    wanted = [16, 16 / 9, 16 / 9]
    for x in (np.array([[0], [1], [1]]), [[0], [1], [1]], torch.tensor([[0], [1], [1]])):
        trace = hessian_trace(model, x)
        assert type(trace) is (torch.Tensor if isinstance(x, torch.Tensor) else np.ndarray)
        assert trace.tolist() == pytest.approx(wanted)
    assert hessian_trace(model, [[0], [-1]], missing=-1).tolist() == pytest.approx([16, 2])


def test_a_circuit_without_sums_has_trace_zero():
    node = Product([Input(0, Gaussian()), Input(1, Indicator((0,)))])
    model = Model.from_parameters(Circuit(node), {}, {node.children[0]: [[0.0, 1.0]]})
    x = [[0.5, 0], [1, 0]]
    assert hessian_trace(model, x).tolist() == [0, 0]
    found = per_sample(model, x)
    assert found.nodes == ()
    assert found.total.shape == found.local.shape == found.flow.shape == (2, 0)


# --- sum unit by sum unit ---


@given(case=cases(zeros=True))
@many
def test_per_sample_equals_the_definitions(case):
    """Also where p_n = 0 though the sample is possible: such a unit has neither t nor T."""
    case = measurable(case)
    truth, found = Truth.of(case), units_of(case)
    assert sorted((ref.node, ref.unit) for ref in found.nodes) == [
        (i, unit) for i, node in enumerate(case.circuit.nodes) if isinstance(node, Sum) for unit in range(node.units)
    ]
    sums = case.circuit.sums
    for values, wanted in [
        (found.flow, truth.flow),
        (found.local, {s: truth.local(s) for s in sums}),
        (found.total, {s: truth.total(s) for s in sums}),
    ]:
        if sums:
            assert_close(torch.from_numpy(values.T), by_unit(wanted, found.nodes, case.circuit), 1e-9)


@given(case=cases())
@some
def test_total_is_squared_flow_times_local_and_sums_to_the_trace(case):
    case = measurable(case)
    found = units_of(case)
    np.testing.assert_allclose(found.total, found.flow**2 * found.local, rtol=1e-12)
    np.testing.assert_allclose(found.total.sum(1), trace_of(case), rtol=1e-12)


@given(case=cases(units=2, depth=3))
@some
def test_flow_is_the_sum_over_paths_of_the_products_of_responsibilities(case):
    case = measurable(case)
    shares, found = responsibilities(Truth.of(case)), units_of(case)
    flow = {s: torch.zeros(s.units, len(case.x), dtype=torch.float64) for s in case.circuit.sums}
    for (node, unit), path in all_paths(case):
        flow[node][unit] += path_flow(path, case, shares)
    if flow:
        assert_close(torch.from_numpy(found.flow.T), by_unit(flow, found.nodes, case.circuit), 1e-9)


@given(case=cases(units=1, depth=6, shared=False, domains=CONTINUOUS, masks=False, roots=1))
@many
def test_flow_and_attenuation_on_trees(case):
    """One path leads to each unit: F_n is its product of responsibilities, and T_n <= rho^(2 d) t_n."""
    case = measurable(case)
    found, truth = units_of(case), Truth.of(case)
    shares, record = responsibilities(truth), curvature(model_of(case), case.x)
    column = {(case.circuit.nodes[ref.node], ref.unit): i for i, ref in enumerate(found.nodes)}
    paths = list(all_paths(case))
    assert len(paths) == len(column)
    for unit, path in paths:
        i, on_path = column[unit], [shares[s][u, c].numpy() for s, u, c in path.edges]
        np.testing.assert_allclose(found.flow[:, i], np.prod([np.ones(len(case.x)), *on_path], axis=0), rtol=1e-9)
        rho = np.max([np.zeros(len(case.x)), *on_path], axis=0)  # the smallest that bounds each responsibility
        assert record.depth_min[i] == record.depth_max[i] == record.depth_mean[i] == len(path.edges)
        bound = rho ** (2 * record.depth_min[i]) * found.local[:, i]
        assert (found.total[:, i] <= bound * (1 + 1e-9)).all()


@given(case=cases(roots=1))
@many
def test_totals_rank_as_local_curvature_against_squared_flow(case):
    """T_i > T_j iff t_i / t_j > (F_j / F_i)^2, with t and F from the definitions."""
    case = measurable(case)
    found, truth = units_of(case), Truth.of(case)
    if not found.nodes:
        return
    flow = by_unit(truth.flow, found.nodes, case.circuit).numpy()  # (M, N)
    local = by_unit({s: truth.local(s) for s in case.circuit.sums}, found.nodes, case.circuit).numpy()
    for total, f, t in zip(found.total, flow.T, local.T, strict=True):
        i, j = np.meshgrid(*[np.flatnonzero((f > 1e-100) & (t > 0))] * 2)
        lead, bar = t[i] / t[j], (f[j] / f[i]) ** 2
        clear = np.abs(lead / bar - 1) > 1e-8  # equal ones may fall either way by rounding
        assert ((total[i] > total[j]) == (lead > bar))[clear].all()


@given(case=cases())
@some
def test_local_curvature_is_at_least_one_over_the_squared_weights(case):
    """1 <= t_n sum_c theta_nc^2 (Cauchy-Schwarz), and rho_nc <= 1 / theta_nc, where p_n > 0."""
    case = measurable(case)
    found = units_of(case)
    for i, ref in enumerate(found.nodes):
        node = case.circuit.nodes[ref.node]
        theta = case.weights[node][ref.unit].numpy()
        alive = Truth.of(case).value[node][ref.unit].numpy() > 0
        assert (found.local[alive, i] * (theta**2).sum() >= 1 - 1e-12).all()
        assert (found.local[alive, i] <= (1 / theta[theta > 0] ** 2).sum() * (1 + 1e-12)).all()


def test_chosen_nodes_come_in_the_order_asked_for():
    case = far_below(1.0, masked=False)
    x = np.zeros((2, 2))
    every = per_sample(case, x)
    mixed, root = (next(s for s in case.circuit.sums if s.name == name) for name in ("mixed", "root"))
    for nodes in (["root", "mixed"], [root, mixed], ("root", mixed)):
        found = per_sample(case, x, nodes)
        assert [(ref.name, ref.unit) for ref in found.nodes] == [("root", 0), ("mixed", 0), ("mixed", 1)]
        columns = [every.nodes.index(ref) for ref in found.nodes]
        for name in ("total", "local", "flow"):
            np.testing.assert_array_equal(getattr(found, name), getattr(every, name)[:, columns])
    assert per_sample(case, x, "root").nodes == per_sample(case, x, root).nodes == found.nodes[:1]


def test_a_node_without_a_name_is_called_by_its_position():
    model = mixture([0.5, 0.5])
    (ref,) = per_sample(model, [[0]]).nodes
    assert (ref.node, ref.name, ref.unit) == (1, "Sum #1", 0)
    assert per_sample(model, [[0]], ["Sum #1"]).nodes == (ref,)


# --- beyond the floating range ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("gap", [50.0, 400.0, 2000.0])
def test_a_masked_unit_far_below_its_sibling_has_its_exact_trace(gap, dtype):
    """x1 = 0: root t = 4, unit 1 of 'mixed' has F = t = 1. x1 = 80: root and unit 0 have t = 4, unit 1 no flow."""
    model, x = far_below(gap, masked=True).to(dtype=dtype), np.array([[0.0, 0.0], [0.0, 80.0]])
    assert hessian_trace(model, x).tolist() == pytest.approx([5, 8], rel=1e-3 if dtype == torch.float32 else 1e-9)
    found = per_sample(model, x, ["mixed"])
    np.testing.assert_allclose(found.local, [[4, 1], [4, 1]], rtol=1e-3)
    np.testing.assert_allclose(found.total, [[0, 1], [4, 0]], rtol=1e-3, atol=1e-9)


def test_a_weight_of_zero_beyond_the_range_is_infinite_only_where_it_has_flow():
    """rho = exp(800): t and T of unit 1 are infinite at x1 = 0; at x1 = 80 the unit has no flow, and no T."""
    model, x = far_below(800.0, masked=False), np.array([[0.0, 0.0], [0.0, 80.0]])
    assert hessian_trace(model, x).tolist() == pytest.approx([np.inf, 8])
    found = per_sample(model, x, ["mixed"])
    assert found.local[:, 1].tolist() == [np.inf, np.inf]
    assert found.total[:, 1].tolist() == [np.inf, 0]


def test_float32_is_close_to_float64_on_a_trained_model():
    rng = np.random.default_rng(0)
    latent = rng.integers(0, 4, 400)
    x = (rng.random((400, 12)) < rng.random((4, 12))[latent]).astype(np.int64)
    trained = fit(hclt(x, 100), x, epochs=4, precision="float64", device="cpu", progress=False).model
    exact, single = curvature(trained, x), curvature(trained.to(dtype=torch.float32), x)
    for name in ("local", "total", "flow_squared", "local_mean_ratio"):
        assert getattr(single, name).sum() == pytest.approx(getattr(exact, name).sum(), rel=1e-3), name
    assert single.trace == pytest.approx(exact.trace, rel=1e-3)
    traces = hessian_trace(trained.to(dtype=torch.float32), x)
    np.testing.assert_allclose(traces, hessian_trace(trained, x), rtol=1e-3)
    assert traces.mean() == pytest.approx(exact.trace, rel=1e-3)


# --- rows of probability zero, and wrong input ---


def test_rows_of_probability_zero_give_nan_and_one_warning_that_counts_them():
    model = mixture([0.25, 0.75])
    with pytest.warns(CircurveWarning, match="2 rows have probability zero") as seen:
        trace = hessian_trace(model, [[0], [2], [1], [2]])
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert trace[[0, 2]].tolist() == pytest.approx([16, 16 / 9])
    assert np.isnan(trace[[1, 3]]).all()
    assert np.isnan(per_sample(model, [[2], [1]]).total).tolist() == [[True], [False]]


def test_rows_without_a_value_count_and_the_warning_says_so():
    model = mixture([0.25, 0.75])
    told = "^curvature data: 1 of 3 rows have no observed value; each adds a trace that the model alone decides; remove"
    with pytest.warns(CircurveWarning, match=told):
        found = curvature(model, [[0], [1], [np.nan]]).trace
    assert found == pytest.approx((16 + 16 / 9 + 2) / 3)  # without a value, 1 for each child of the sum


def test_only_rows_of_probability_zero_are_an_error():
    with pytest.raises(DataError, match="every row has probability zero"):
        hessian_trace(mixture([0.25, 0.75]), [[2], [2]])


def test_a_unit_of_probability_zero_in_a_possible_row_has_no_curvature():
    """At x = 1 'left' is impossible and 'right' carries the row; t of 'left' has no meaning there and is left out."""
    inputs = [Input(0, Indicator((0, 0)), 2), Input(0, Indicator((0, 1)), 2)]
    left, right = Sum(inputs[0], name="left"), Sum(inputs[1], name="right")
    model = Model.from_parameters(Circuit(Sum([left, right], name="root")))
    found = per_sample(model, [[1], [0]], ["left", "right", "root"])
    np.testing.assert_allclose(found.local, [[0, 4, 4], [2, 4, 20 / 9]], rtol=1e-12)
    np.testing.assert_allclose(found.total[0], [0, 4, 4], rtol=1e-12)
    np.testing.assert_allclose(curvature(model, [[1], [0]]).local, [1, 4, 28 / 9], rtol=1e-12)


@pytest.mark.parametrize("measure", [hessian_trace, per_sample, curvature])
def test_wrong_input_names_the_culprit(measure):
    model = mixture([0.25, 0.75])
    with pytest.raises(DataError, match="2 columns, the circuit has 1 variable"):
        measure(model, [[0, 1]])
    with pytest.raises(DataError, match="every value is missing"):
        measure(model, [[np.nan]])
    two = Model.from_parameters(Circuit(Sum(Input(0, Indicator((0, 1)), 2), 2)))
    with pytest.raises(DataError, match="2 outputs: pass labels="):
        measure(two, [[0]])
    with pytest.raises(DataError, match="label of row 2 is 2"):
        measure(two, [[0], [1]], labels=[0, 2])
    with pytest.raises(DataError, match="labels have shape"):
        measure(two, [[0], [1]], labels=[0])


def test_unknown_nodes_are_named():
    model = mixture([0.25, 0.75])
    for nodes in (["nobody"], "nobody"):
        with pytest.raises(OptionError, match="no Sum 'nobody'"):
            per_sample(model, [[0]], nodes)
    for node in (Sum(Input(0, Gaussian())), model.circuit.inputs[0]):
        with pytest.raises(OptionError, match="no Sum"):
            per_sample(model, [[0]], [node])


def mixture(weights: list[float]) -> Model:
    """A mixture of the indicators of 0 and 1."""
    node = Sum(Input(0, Indicator((0, 1)), 2))
    return Model.from_parameters(Circuit(node), {node: [weights]})


def test_a_broken_model_is_named_and_not_the_data():
    model = mixture([0.5, 0.5])
    params = model.params.clone()
    params.weights[0].view(-1)[0] = torch.nan
    broken = Model(model.circuit, params)
    for measure in (curvature, hessian_trace):
        with pytest.raises(ParameterError, match=r"^curvature: Sum .*: a parameter is not finite$"):
            measure(broken, [[0], [1]])
