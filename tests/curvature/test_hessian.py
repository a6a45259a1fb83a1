"""Hessians of one sum, the diagonal, the whole matrix and its top, against the oracle differentiated twice."""

import importlib
import warnings

import numpy as np
import pytest
import torch
from hessian_oracle import (
    far_below,
    in_order,
    measurable,
    model_of,
    oracle_edges,
    oracle_hessians,
    wide_case,
)
from hypothesis import given, settings

from circuits import Case, Truth, assert_close, cases
from circurve import (
    CircurveWarning,
    DataError,
    Model,
    OptionError,
    hclt,
    hessian,
    hessian_diagonal,
    hessian_trace,
    local_hessian,
    top_eigenvalues,
)
from circurve.curvature import Edge
from circurve.engine import by_node, compile, random_weights
from circurve.engine.params import Params
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Gaussian, Indicator

pytestmark = pytest.mark.filterwarnings("ignore:.*no observed value:circurve.errors.CircurveWarning")
some = settings(max_examples=40, deadline=None)
SMALL = {"units": 2, "depth": 3}
module = importlib.import_module("circurve.curvature.hessian")  # the package has a function of that name


def check_whole(case: Case) -> None:
    """The matrix, its edges, its symmetry and its diagonal."""
    model, wanted = model_of(case), oracle_hessians(case).mean(0).numpy()
    found = hessian(model, case.x, labels=case.labels)
    order = in_order(found.edges, case)
    wanted = wanted[order][:, order]
    scale = np.abs(wanted).max(initial=1.0)
    np.testing.assert_allclose(found.matrix, wanted, rtol=1e-9, atol=1e-12 * scale)
    np.testing.assert_allclose(found.matrix, found.matrix.T, rtol=1e-9, atol=1e-12 * scale)
    diagonal = hessian_diagonal(model, case.x, labels=case.labels)
    assert set(diagonal) == set(case.circuit.sums)
    assert all(block.shape == (node.units, node.child_units) for node, block in diagonal.items())
    blocks = [diagonal[case.circuit.nodes[e.node]][e.unit, e.child] for e in found.edges]
    np.testing.assert_allclose(blocks, np.diag(wanted), rtol=1e-9, atol=1e-12)
    masked = [block[~node.mask] for node, block in diagonal.items() if node.mask is not None]
    assert not any(entries.any() for entries in masked)


@given(case=cases(**SMALL))
@some
def test_hessian_equals_the_oracle_in_the_order_of_its_edges(case):
    check_whole(measurable(case))


@given(case=cases(**SMALL, domains=("real", "count"), zeros=True))
@some
def test_hessian_equals_the_oracle_with_weights_of_zero(case):
    check_whole(measurable(case))


@pytest.mark.parametrize("gap", [40.0, 72.0, 250.0, 600.0])
def test_where_only_a_weight_of_zero_would_give_a_node_flow(gap):
    """rho = exp(gap) on an edge of weight zero, F = exp(-gap): d log p / d theta = 2. See `far_below`."""
    model, x = far_below(gap, masked=False), np.array([[0.0, 40.0]])
    mixed = next(s for s in model.circuit.sums if s.name == "mixed")
    assert hessian_diagonal(model, x)[mixed][1, 0] == pytest.approx(4, rel=1e-9)
    found = hessian(model, x)
    number = found.edges.index(Edge(model.circuit.nodes.index(mixed), 1, 0))
    assert found.matrix[number, number] == pytest.approx(4, rel=1e-9)
    assert top_eigenvalues(model, x, 1) == pytest.approx(np.linalg.eigvalsh(found.matrix)[-1:], rel=1e-9)


def test_hessian_equals_the_oracle_on_products_of_many_children():
    check_whole(wide_case())


@given(case=cases(**SMALL, domains=("binary", "ternary"), zeros=True))
@some
def test_zeros_among_weights_and_inputs_leave_the_hessian_finite(case):
    """A unit of probability zero is a constant: the diagonal still is mean F^2 rho^2, whatever else is zero."""
    case = measurable(case)
    model, truth = model_of(case), Truth.of(case)
    found = hessian(model, case.x, labels=case.labels)
    assert np.isfinite(found.matrix).all()
    squares = {s: (truth.flow[s][:, None] * truth.ratio(s)).square().mean(-1) for s in case.circuit.sums}
    wanted = [squares[case.circuit.nodes[e.node]][e.unit, e.child].item() for e in found.edges]
    np.testing.assert_allclose(np.diag(found.matrix), wanted, rtol=1e-9, atol=1e-12)
    diagonal = hessian_diagonal(model, case.x, labels=case.labels)
    for node, block in diagonal.items():
        np.testing.assert_allclose(block, squares[node], rtol=1e-9, atol=1e-12)


@given(case=cases(**SMALL))
@some
def test_trace_of_the_matrix_is_the_mean_of_the_traces_of_the_rows(case):
    case = measurable(case)
    model = model_of(case)
    traces = hessian_trace(model, case.x, labels=case.labels)
    assert np.trace(hessian(model, case.x, labels=case.labels).matrix) == pytest.approx(traces.mean(), rel=1e-9)
    diagonal = hessian_diagonal(model, case.x, labels=case.labels)
    assert sum(block.sum() for block in diagonal.values()) == pytest.approx(traces.mean(), rel=1e-9)


@given(case=cases())
@settings(max_examples=10, deadline=None)
def test_diagonal_does_not_depend_on_the_chunks(case):
    case = measurable(case)
    whole = hessian_diagonal(model_of(case), case.x, labels=case.labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circurve.engine.memory.CPU_CHUNK", 1)
        cut = hessian_diagonal(model_of(case), case.x, labels=case.labels)
    for node, block in whole.items():
        np.testing.assert_allclose(cut[node], block, rtol=1e-12)


# --- one sum node ---


@given(case=cases(zeros=True))
@some
def test_local_hessian_is_the_rank_one_matrix_of_the_ratios(case):
    """rho rho^T, whose only eigenvalue is t_n; NaN where p_n = 0. The root's own probability plays no part."""
    case = measurable(case)
    model, truth = model_of(case), Truth.of(case)
    for node in case.circuit.sums:
        found = local_hessian(model, case.x, node)
        assert found.shape == (len(case.x), node.units, node.child_units, node.child_units)
        ratio, local = truth.ratio(node).numpy(), truth.local(node).numpy()  # (K, C, N), (K, N)
        alive = truth.value[node].numpy().T > 0  # (N, K)
        wanted = np.einsum("kcn,kdn->nkcd", ratio, ratio)
        np.testing.assert_allclose(found[alive], wanted[alive], rtol=1e-9, atol=1e-12)
        assert np.isnan(found[~alive]).all()
        eigenvalues = np.linalg.eigvalsh(found[alive])  # (rows, C), ascending
        np.testing.assert_allclose(eigenvalues[:, -1], local.T[alive], rtol=1e-9)
        assert (np.abs(eigenvalues[:, :-1]) <= 1e-9 * eigenvalues[:, -1:]).all()


@given(case=cases(**SMALL, roots=1, domains=("real", "count")))
@settings(max_examples=10, deadline=None)
def test_local_hessian_is_that_of_the_circuit_below_the_node(case):
    """Cut at a sum of one unit, the circuit's own Hessian has the local one as its block."""
    case = measurable(case)
    for node in [s for s in case.circuit.sums if s.units == 1][-1:]:
        try:
            below = Circuit(node)
        except ValueError:  # it has not all variables
            continue
        part = Case(below, case.domains, case.weights, case.inputs, case.x)
        rows = [i for i, edge in enumerate(oracle_edges(part)) if below.nodes[edge.node] is node]
        kept = np.flatnonzero(np.ones(node.child_units) if node.mask is None else node.mask[0])
        found = local_hessian(model_of(case), case.x, node)[:, 0][:, kept][:, :, kept]
        assert_close(torch.from_numpy(found), oracle_hessians(part)[:, rows][:, :, rows], 1e-9)


def test_local_hessian_takes_a_node_or_a_name():
    model, x = far_below(1.0, masked=False), np.zeros((1, 2))
    node = next(s for s in model.circuit.sums if s.name == "mixed")
    np.testing.assert_array_equal(local_hessian(model, x, "mixed"), local_hessian(model, x, node))
    nameless = Model.from_parameters(Circuit(Sum(Input(0, Indicator((0, 1)), 2))))
    assert local_hessian(nameless, [[0]], "Sum #1").tolist() == [[[[4, 0], [0, 0]]]]


def test_local_hessian_of_one_output_of_several_needs_no_labels():
    node = Sum(Input(0, Indicator((0, 1)), 2), 2, name="classes")
    model = Model.from_parameters(Circuit(node), {node: [[0.5, 0.5], [0.25, 0.75]]})
    found = local_hessian(model, [[0], [1]], "classes")
    np.testing.assert_allclose(found[:, :, 0, 0], [[4, 16], [0, 0]])
    np.testing.assert_allclose(found[:, :, 1, 1], [[0, 0], [4, 16 / 9]])


# --- the top of the spectrum ---


def random_hclt(variables: int, units: int) -> tuple[Model, np.ndarray]:
    rng = np.random.default_rng(variables)
    x = rng.integers(0, 2, (30, variables))
    circuit = hclt(x, units)
    program, generator = compile(circuit), torch.Generator().manual_seed(0)
    inputs = tuple(torch.rand(1, *i.shape, 1, generator=generator, dtype=torch.float64) for i in program.inputs)
    params = Params(random_weights(program, generator), inputs)
    assert set(by_node(program, params)) == {n for n in circuit.nodes if not isinstance(n, Product)}
    return Model(circuit, params, program), x


@pytest.mark.parametrize(("variables", "units", "k"), [(3, 2, 3), (6, 4, 5), (12, 8, 6)])
def test_top_eigenvalues_are_those_of_the_whole_matrix(variables, units, k):
    model, x = random_hclt(variables, units)
    wanted = np.linalg.eigvalsh(hessian(model, x).matrix)[::-1]
    np.testing.assert_allclose(top_eigenvalues(model, x, k), wanted[:k], rtol=1e-7, atol=1e-9 * wanted[0])


@given(case=cases(**SMALL, zeros=True))
@settings(max_examples=15, deadline=None)
def test_top_eigenvalues_for_every_k(case):
    """From one to all of them; masks, zero weights, several outputs."""
    case = measurable(case)
    edges = len(oracle_edges(case))
    wanted = np.linalg.eigvalsh(hessian(model_of(case), case.x, labels=case.labels).matrix)[::-1]
    for k in {1, 2, edges // 2, edges - 2, edges - 1, edges} & set(range(1, edges + 1)):
        found = top_eigenvalues(model_of(case), case.x, k, labels=case.labels)
        assert found.shape == (k,)
        np.testing.assert_allclose(found, wanted[:k], rtol=1e-7, atol=1e-9 * max(1, np.abs(wanted).max()))


def test_top_eigenvalues_where_lanczos_gives_up(monkeypatch):
    """The rows belong to an output without sums: the Hessian is zero, and ARPACK raises an error for it."""
    monkeypatch.setattr(module, "SMALL", 0)
    leaf = Input(0, Indicator((0, 1)), 2)
    model = Model.from_parameters(Circuit([leaf, Sum(leaf, 3)]))
    assert top_eigenvalues(model, [[0], [0]], 2, labels=[0, 0]).tolist() == [0, 0]
    assert top_eigenvalues(model, [[0], [1]], 2, labels=[2, 2]) == pytest.approx([2, 2])


def test_hessian_does_not_depend_on_how_the_work_is_cut(monkeypatch):
    model, x = random_hclt(4, 2)
    whole, top = hessian(model, x).matrix, top_eigenvalues(model, x, 3)
    monkeypatch.setattr(module, "AT_ONCE", 7 * model.program.values.rows)  # 7 rows, one vector at a time
    np.testing.assert_allclose(hessian(model, x).matrix, whole, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(module, "SMALL", 0)
    np.testing.assert_allclose(top_eigenvalues(model, x, 3), top, rtol=1e-9)


def test_hessian_of_a_mixture_by_hand():
    """theta = (1/4, 3/4) over indicators: H = diag(16, 0) at x = 0 and diag(0, 16/9) at x = 1."""
    node = Sum(Input(0, Indicator((0, 1)), 2))
    model = Model.from_parameters(Circuit(node), {node: [[0.25, 0.75]]})
    found = hessian(model, [[0], [1], [1], [1]])
    np.testing.assert_allclose(found.matrix, [[4, 0], [0, 4 / 3]], atol=1e-15)
    assert found.edges == (Edge(1, 0, 0), Edge(1, 0, 1))
    assert top_eigenvalues(model, [[0], [1], [1], [1]], 1) == pytest.approx([4])
    assert hessian_diagonal(model, [[0], [1], [1], [1]])[node].tolist() == [pytest.approx([4, 4 / 3])]


@pytest.mark.parametrize("gap", [50.0, 400.0, 2000.0])
def test_a_masked_unit_far_below_its_sibling_is_in_the_hessian(gap):
    """One row each where unit 1 and unit 0 of 'mixed' carry the sample; see `far_below`. The two are H1 and H2, halved.

    At x1 = 0: d log p = 2 d omega_1 + d theta_11. At x1 = 80: d log p = 2 d omega_0 + 2 d theta_00 + ~0 d theta_01.
    """
    model, x = far_below(gap, masked=True), np.array([[0.0, 0.0], [0.0, 80.0]])
    found = hessian(model, x)
    slopes = {("mixed", 1, 1): [1, 0], ("root", 0, 1): [2, 0], ("mixed", 0, 0): [0, 2], ("root", 0, 0): [0, 2]}
    names = [(model.circuit.nodes[e.node].name, e.unit, e.child) for e in found.edges]
    assert set(slopes) | {("mixed", 0, 1)} == set(names)
    squares = [sum(g**2 for g in slopes.get(name, [0])) / 2 for name in names]
    np.testing.assert_allclose(np.diag(found.matrix), squares, rtol=1e-9, atol=1e-9)
    diagonal = hessian_diagonal(model, x)
    blocks = [diagonal[model.circuit.nodes[e.node]][e.unit, e.child] for e in found.edges]
    np.testing.assert_allclose(blocks, squares, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(local_hessian(model, x, "mixed")[0, 1], [[0, 0], [0, 1]], atol=1e-12)


def test_a_weight_of_zero_far_below_without_flow_adds_nothing():
    """rho = exp(800) at x1 = 80, where the unit has no flow; another row of probability zero changes nothing."""
    model, x = far_below(800.0, masked=False), np.array([[0.0, 80.0]])
    mixed = next(s for s in model.circuit.sums if s.name == "mixed")
    np.testing.assert_allclose(hessian_diagonal(model, x)[mixed], [[4, 0], [0, 0]], atol=1e-9)
    assert np.isfinite(hessian(model, x).matrix).all()


# --- rows of probability zero, and wrong input ---


def top(model: Model, x: object, **options: object) -> np.ndarray:
    with warnings.catch_warnings(record=True) as caught:
        found = top_eigenvalues(model, x, 1, **options)
    for warning in caught:  # they would name this line, not the test's
        warnings.warn(warning.message, stacklevel=2)
    return found


MEASURES = pytest.mark.parametrize("measure", [hessian, hessian_diagonal, top])


def two_values(outputs: int = 1) -> Model:
    return Model.from_parameters(Circuit(Sum(Input(0, Indicator((0, 1)), 2), outputs, name="root")))


def entries(found: object) -> np.ndarray:
    found = getattr(found, "matrix", found)
    return np.concatenate([b.ravel() for b in found.values()]) if isinstance(found, dict) else found.ravel()


@MEASURES
def test_rows_of_probability_zero_are_counted_and_left_out(measure):
    model = two_values()
    with pytest.warns(CircurveWarning, match="2 rows have probability zero") as seen:
        found = measure(model, [[0], [2], [1], [2]])
    assert len(seen) == 1
    assert seen[0].filename == __file__
    np.testing.assert_allclose(entries(found), entries(measure(model, [[0], [1]])))
    with pytest.raises(DataError, match="every row has probability zero"):
        measure(model, [[2]])


@MEASURES
def test_wrong_data_is_named(measure):
    with pytest.raises(DataError, match="3 columns, the circuit has 1 variable"):
        measure(two_values(), [[0, 1, 0]])
    with pytest.raises(DataError, match="3 outputs: pass labels="):
        measure(two_values(3), [[0]])


@MEASURES
def test_labels_choose_the_output(measure):
    node = Sum(Input(0, Indicator((0, 1)), 2), 2)
    model = Model.from_parameters(Circuit(node), {node: [[0.5, 0.5], [0.25, 0.75]]})
    assert entries(measure(model, [[0]], labels=[0])).max() == pytest.approx(4)
    assert entries(measure(model, [[0]], labels=[1])).max() == pytest.approx(16)


@MEASURES
def test_missing_values_are_marked_as_everywhere(measure):
    model = two_values()
    found, wanted = measure(model, [[0], [-1]], missing=-1), measure(model, [[0], [np.nan]])
    np.testing.assert_allclose(entries(found), entries(wanted))
    assert not np.allclose(entries(found), entries(measure(model, [[0]])))


def test_a_matrix_that_is_too_large_is_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(module, "LARGEST", 3)
    model, _ = random_hclt(3, 2)
    with pytest.raises(OptionError, match="10 edges, but the whole Hessian is limited to 3: use hessian_diagonal"):
        hessian(model, "no data at all")
    with pytest.raises(OptionError, match="10 edges"):
        top_eigenvalues(model, "no data at all", 10)


@pytest.mark.parametrize("k", [0, -1, 3, 1.0, True, None, "1"])
def test_k_must_be_a_number_of_edges(k):
    with pytest.raises(OptionError, match="k must be a whole number from 1 to the 2 edges"):
        top_eigenvalues(two_values(), [[0]], k)


def test_unknown_and_ambiguous_nodes_are_refused():
    model = two_values()
    for node in ("nobody", Sum(Input(0, Gaussian())), model.circuit.inputs[0]):
        with pytest.raises(OptionError, match="no Sum"):
            local_hessian(model, [[0]], node)
    leaf = Input(0, Indicator((0, 1)), 2)
    twins = Model.from_parameters(Circuit(Sum([Sum(leaf, name="twin"), Sum(leaf, name="twin")])))
    with pytest.raises(OptionError, match="more than one Sum 'twin'"):
        local_hessian(twins, [[0]], "twin")


def test_a_circuit_without_sums_has_an_empty_hessian():
    model = Model.from_parameters(Circuit(Input(0, Indicator((0,)))))
    found = hessian(model, [[0]])
    assert found.matrix.shape == (0, 0)
    assert found.edges == ()
    assert hessian_diagonal(model, [[0]]) == {}
    with pytest.raises(OptionError, match="k must be a whole number from 1 to the 0 edges"):
        top_eigenvalues(model, [[0]])


def test_a_model_in_float32_has_its_hessian_in_float64():
    model, x = random_hclt(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.func's own, on its first use in a process
        found = hessian(model.to(dtype=torch.float32), x)
    assert found.matrix.dtype == np.float64
    np.testing.assert_allclose(found.matrix, hessian(model, x).matrix, rtol=1e-4, atol=1e-6)
