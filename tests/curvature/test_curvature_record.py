"""`curvature` and its record: means over samples of the definitions' values, sums of records, tables and files."""

import dataclasses
import json
import zipfile

import numpy as np
import pytest
import torch
from hessian_oracle import by_unit, measurable, model_of, oracle_hessians, wide_case, with_rows
from hypothesis import given, settings

from circuits import Case, Truth, assert_close, cases
from circurve import (
    CircurveError,
    CircurveWarning,
    DataError,
    FileAccessError,
    FileFormatError,
    Model,
    OptionError,
    curvature,
    load_curvature,
)
from circurve.curvature import Curvature, NodeRef
from circurve.curvature.record import COLUMNS, ROBUST
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Gaussian, Indicator

pytestmark = pytest.mark.filterwarnings("ignore:.*no observed value:circurve.errors.CircurveWarning")
many = settings(max_examples=100, deadline=None)
some = settings(max_examples=40, deadline=None)


def record_of(case: Case) -> Curvature:
    return curvature(model_of(case), case.x, weights=case.sample_weights, labels=case.labels)


def weighted_mean(values: torch.Tensor, case: Case) -> torch.Tensor:  # (..., N) -> (...)
    return (values * case.weight).sum(-1) / case.weight.sum()


def check_columns(case: Case) -> None:
    """Per sample from the definitions, then the mean, for every column of measured values; and the structure's."""
    truth, record, circuit = Truth.of(case), record_of(case), case.circuit
    sums = circuit.sums
    wanted = {
        "flow": {s: weighted_mean(truth.flow[s], case) for s in sums},
        "flow_squared": {s: weighted_mean(truth.flow[s].square(), case) for s in sums},
        "local": {s: weighted_mean(truth.local(s), case) for s in sums},
        "local_mean_ratio": {s: weighted_mean(truth.ratio(s), case).square().sum(-1) for s in sums},
        "total": {s: weighted_mean(truth.total(s), case) for s in sums},
        "edges": {s: truth.edges[s].sum((1, 2)) for s in sums},
        "scope_size": {s: torch.full((s.units,), len(scope_of(s))) for s in sums},
    }
    for name, values in wanted.items():
        assert_close(torch.from_numpy(getattr(record, name)), by_unit(values, record.nodes, circuit), 1e-9)
    assert record.trace == pytest.approx(sum(float(t.sum()) for t in wanted["total"].values()), rel=1e-9)
    assert record.weight == pytest.approx(float(case.weight.sum()))
    assert (record.local_mean_ratio <= record.local * (1 + 1e-12)).all()


def scope_of(node: Sum) -> set[int]:
    seen, stack = set(), [node]
    while stack:
        top = stack.pop()
        stack += top.children
        seen |= {top.variable} if isinstance(top, Input) else set()
    return seen


# --- the columns ---


@given(case=cases())
@many
def test_columns_are_means_of_the_values_of_the_samples(case):
    check_columns(measurable(case, weighted=True))


@given(case=cases(zeros=True))
@some
def test_columns_are_means_of_the_values_of_the_samples_with_exact_zeros(case):
    check_columns(measurable(case, weighted=True))


@given(case=cases(units=2, depth=3))
@some
def test_trace_is_the_trace_of_the_mean_of_the_oracle_hessians(case):
    case = measurable(case, weighted=True)
    traces = oracle_hessians(case).diagonal(dim1=1, dim2=2).sum(-1)
    assert record_of(case).trace == pytest.approx(float(weighted_mean(traces, case)), rel=1e-9)


@given(case=cases())
@some
def test_every_sum_unit_is_listed_once_with_its_name_and_layer(case):
    case = measurable(case, weighted=True)
    record, nodes = record_of(case), case.circuit.nodes
    units = {(i, n, unit) for i, n in enumerate(nodes) if isinstance(n, Sum) for unit in range(n.units)}
    assert len(record) == len(record.nodes) == len(units)
    assert {(ref.node, nodes[ref.node], ref.unit) for ref in record.nodes} == units
    assert all(ref.name == (nodes[ref.node].name or f"Sum #{ref.node}") for ref in record.nodes)
    layers = [
        {nodes[ref.node] for ref, at in zip(record.nodes, record.layer, strict=True) if at == i} for i in range(99)
    ]
    assert [set(layer.nodes) for layer in case.program.sums] == [layer for layer in layers if layer]
    assert all(getattr(record, name).shape == (len(units),) for name in COLUMNS)


@pytest.mark.parametrize("chunk", [1, 4])
@given(case=cases())
@settings(max_examples=10, deadline=None)
def test_columns_do_not_depend_on_the_chunks(chunk, case):
    case = measurable(case, weighted=True)
    whole = record_of(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circurve.engine.memory.CPU_CHUNK", chunk)
        check_same(record_of(case), whole)


def test_squares_are_taken_sample_by_sample():
    """Indicators with theta = (1/2, 1/2), rows 0 and 1: rho is (2, 0), then (0, 2); t = 4 both times.

    Squaring what was summed over the batch first would give (1, 1): t = 2.
    """
    record = curvature(mixture(), [[0], [1]])
    assert (record.local, record.total, record.local_mean_ratio) == tuple(pytest.approx([v]) for v in (4, 4, 2))
    assert (record.flow, record.flow_squared) == (pytest.approx([1]), pytest.approx([1]))


def test_flow_is_squared_sample_by_sample():
    """Two components, each with the whole flow of one row: mean F^2 is 1/2, not (1/2)^2."""
    parts = [Sum(Input(0, Indicator((value, value)), 2), name=f"part {value}") for value in (0, 1)]
    record = curvature(Model.from_parameters(Circuit(Sum(parts, name="root"))), [[0], [1]])
    at = {ref.name: i for i, ref in enumerate(record.nodes)}
    for column in (record.flow, record.flow_squared):
        assert column[[at["part 0"], at["part 1"]]] == pytest.approx([0.5, 0.5])
    assert record.total.sum() == record.trace == pytest.approx(4 + 2)


def test_weights_repeat_rows():
    model = mixture([0.25, 0.75])
    weighted = curvature(model, [[0], [1], [0]], weights=[1, 3, 0])
    check_same(weighted, curvature(model, [[0], [1], [1], [1]]))
    assert weighted.weight == 4


@given(case=cases(roots=3))
@some
def test_several_roots_are_measured_by_label(case):
    """All rows given to one output have the curvature of the circuit with that output alone."""
    case = measurable(case, weighted=True)
    first = case.circuit.roots[0]
    if case.labels is None or first.units > 1:
        return
    chosen = np.flatnonzero((case.labels == 0).numpy() & (case.weight > 0).numpy() & ~np.isnan(case.x).all(1))
    if not len(chosen):
        return
    kept = with_rows(case, chosen)
    circuit = Circuit(first)
    below = [{n: p for n, p in part.items() if n in circuit.nodes} for part in (case.weights, case.inputs)]
    alone = Case(circuit, case.domains, *below, kept.x, kept.sample_weights)
    found, wanted = record_of(kept), record_of(alone)
    assert found.trace == pytest.approx(wanted.trace, rel=1e-9)
    place = {(case.circuit.nodes[ref.node], ref.unit): i for i, ref in enumerate(found.nodes)}
    columns = [place[alone.circuit.nodes[ref.node], ref.unit] for ref in wanted.nodes]
    np.testing.assert_allclose(found.total[columns], wanted.total, rtol=1e-9, atol=1e-12)
    assert np.delete(found.total, columns).tolist() == [0] * (len(found) - len(wanted))


# --- adding up ---


def check_same(found: Curvature, wanted: Curvature, but: tuple[str, ...] = ()) -> None:
    assert found.nodes == wanted.nodes
    for name in COLUMNS:
        if name not in but:
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-9, atol=1e-12, err_msg=name)
    for a, b in zip(found.mean_ratio, wanted.mean_ratio, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    assert found.weight == pytest.approx(wanted.weight)
    assert found.impossible == wanted.impossible


@given(case=cases())
@many
def test_records_of_two_parts_add_up_to_the_record_of_the_whole(case):
    """All columns; only depth_mean may differ, where paths of different lengths lead to a unit."""
    case = measurable(case, weighted=True)
    whole = record_of(case)
    usable = np.flatnonzero((case.weight > 0).numpy() & ~np.isnan(case.x).all(1))
    rest = np.setdiff1d(np.arange(len(case.x)), usable[:1])
    if not len(usable[1:]):
        return
    parts = record_of(with_rows(case, usable[:1])) + record_of(with_rows(case, rest))
    one_length = bool((whole.depth_min == whole.depth_max).all())
    check_same(parts, whole, but=() if one_length else ("depth_mean",))
    assert (parts.depth_mean >= whole.depth_min - 1e-9).all()
    assert (parts.depth_mean <= whole.depth_max + 1e-9).all()


def test_adding_keeps_units_without_path_and_weighs_depths_by_flow():
    case = wide_case()
    one, other = record_of(with_rows(case, [0, 1])), record_of(with_rows(case, [2, 3, 4]))
    both = one + other
    flow = one.flow * one.weight + other.flow * other.weight
    wanted = (one.depth_mean * one.flow * one.weight + other.depth_mean * other.flow * other.weight) / flow
    np.testing.assert_allclose(both.depth_mean, wanted)
    unused = Sum(Input(0, Gaussian()), 2)
    model = Model.from_parameters(Circuit(Product(unused, [[0]])), {}, {unused.children[0]: [[0.0, 1.0]]})
    twice = curvature(model, [[0.0]]) + curvature(model, [[1.0]])
    assert twice.depth_mean.tolist() == [0, np.inf]


def test_records_of_different_circuits_do_not_add():
    record = curvature(mixture(), [[0]])
    wider, masked = Sum(Input(0, Indicator((0, 1, 1)), 3)), Sum(Input(0, Indicator((0, 1)), 2), 1, [[True, False]])
    named = Sum(Input(0, Indicator((0, 1)), 2), name="other")
    for node in (wider, masked, named):
        with pytest.raises(CircurveError, match="different circuits"):
            record + curvature(Model.from_parameters(Circuit(node)), [[0]])
    with pytest.raises(TypeError):
        record + 1


# --- ranks, tables, text ---


def small() -> Curvature:
    """Three units: the root, and two parts that carry one row and three rows."""
    parts = [Sum(Input(0, Indicator((value, value)), 2), name=f"part {value}") for value in (0, 1)]
    return curvature(Model.from_parameters(Circuit(Sum(parts, name="root"))), [[0], [1], [1], [1]])


def test_ranks_go_from_largest_to_smallest_with_ties_in_order():
    record = small()
    assert [ref.name for ref in record.nodes] == ["part 0", "part 1", "root"]
    assert record.flow_squared == pytest.approx([0.25, 0.75, 1])
    np.testing.assert_array_equal(record.by("flow"), record.flow_squared)
    np.testing.assert_array_equal(record.by("total"), record.total)
    np.testing.assert_array_equal(record.by("local"), record.local)
    assert record.rank_by("flow").tolist() == [2, 1, 0]
    assert record.rank_by("total").tolist() == [2, 1, 0]
    tied = dataclasses.replace(record, local=np.array([1.0, 2.0, 2.0]))
    assert tied.rank_by("local").tolist() == [1, 2, 0]
    for wrong in ("trace", "", None):
        with pytest.raises(OptionError, match="by must be 'total', 'local', 'flow'"):
            record.by(wrong)
        with pytest.raises(OptionError):
            record.rank_by(wrong)


def test_a_data_frame_has_one_row_for_each_unit():
    record = small()
    frame = record.to_pandas()
    assert list(frame.columns) == ["node", "name", "unit", *COLUMNS, *ROBUST]
    assert [NodeRef(*row) for row in frame[["node", "name", "unit"]].itertuples(index=False)] == list(record.nodes)
    for name in COLUMNS:
        np.testing.assert_array_equal(frame[name], getattr(record, name))


def test_text_names_the_trace_and_the_largest_shares():
    """Root: t = 4. Parts: t = 2 where they carry the row. T is 0.5, 1.5 and 4."""
    lines = str(small()).splitlines()
    assert lines[0] == "trace (sharpness)   6 over 4 samples"
    assert lines[1].split() == ["sum", "nodes", "3"]
    assert lines[-1].endswith("root[0] 66.7%, part 1[0] 25.0%, part 0[0] 8.3%")


def test_circuits_without_sums_or_without_trace_can_be_measured_and_shown(tmp_path):
    leaf = Input(0, Indicator((0, 1)), 2)
    empty = curvature(Model.from_parameters(Circuit(Product(leaf, [[0]]))), [[0]])
    assert (len(empty), empty.trace) == (0, 0)
    assert str(empty).startswith("trace (sharpness)   0 over 1 samples")
    empty.save(tmp_path / "empty.npz")
    check_same(load_curvature(tmp_path / "empty.npz"), empty)
    check_same(empty + empty, dataclasses.replace(empty, weight=2.0))
    unused = curvature(Model.from_parameters(Circuit([leaf, Sum(leaf)])), [[0]], labels=[0])
    assert unused.trace == 0
    assert "none" in str(unused)


# --- files ---


def test_a_saved_record_comes_back_the_same(tmp_path):
    record = record_of(wide_case())
    record.save(tmp_path / "record")
    found = load_curvature(str(tmp_path / "record"))
    assert found.nodes == record.nodes
    for name in (*COLUMNS, "weight", "impossible"):
        np.testing.assert_array_equal(getattr(found, name), getattr(record, name))
    for a, b in zip(found.mean_ratio, record.mean_ratio, strict=True):
        np.testing.assert_array_equal(a, b)
    check_same(found + record, record + record)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "record.npz"
    record = small()
    record.save(path)
    whole = path.read_bytes()
    for end in [0, 1, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(FileFormatError, match=r"record\.npz: not a readable curvature file"):
            load_curvature(path)
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.choice(len(whole), 150, replace=False):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            check_same(load_curvature(path), record)  # a byte without meaning, such as a date
        except FileFormatError:
            refused += 1
    assert refused > 50


def rewritten(path, change) -> None:
    """Save the small record with some of its arrays changed."""
    small().save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("flow"),
        lambda arrays: arrays.pop("mean_ratio.1"),
        lambda arrays: arrays.update(format="circurve curvature 2"),
        lambda arrays: arrays.update(nodes="not json"),
        lambda arrays: arrays.update(nodes=json.dumps([[0, "a"]])),
        lambda arrays: arrays.update(total=np.zeros(2)),
        lambda arrays: arrays.update(total=np.array(["a", "b", "c"])),
        lambda arrays: arrays.update(weight=np.zeros(2)),
    ],
)
def test_a_foreign_file_is_refused(tmp_path, change):
    rewritten(tmp_path / "record.npz", change)
    with pytest.raises(FileFormatError, match=r"record\.npz: not a"):
        load_curvature(tmp_path / "record.npz")


def test_files_of_other_kinds_are_refused(tmp_path):
    path = tmp_path / "record.npz"
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(FileFormatError):
        load_curvature(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("text", "no array")
    with pytest.raises(FileFormatError):
        load_curvature(path)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path):
    for path in (tmp_path / "nowhere.npz", tmp_path):
        with pytest.raises(FileAccessError, match="cannot read"):
            load_curvature(path)
    with pytest.raises(FileAccessError, match="cannot write"):
        small().save(tmp_path / "nowhere" / "record.npz")


# --- rows of probability zero, and wrong input ---


def test_rows_of_probability_zero_are_counted_and_left_out():
    model = mixture([0.25, 0.75])
    with pytest.warns(CircurveWarning, match="2 rows have probability zero") as seen:
        record = curvature(model, [[0], [2], [1], [2], [1]], weights=[1, 1, 1, 5, 1])
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert record.impossible == 2
    check_same(dataclasses.replace(record, impossible=0), curvature(model, [[0], [1], [1]]))
    with pytest.raises(DataError, match="every row has probability zero"):
        curvature(model, [[2], [2]])


def test_wrong_weights_are_named():
    for weights, message in [([1], "weights have shape"), ([1, -1], "weight of row 2 is -1"), ([0, 0], "all weights")]:
        with pytest.raises(DataError, match=message):
            curvature(mixture(), [[0], [1]], weights=weights)


def mixture(weights: tuple[float, ...] | list[float] = (0.5, 0.5)) -> Model:
    """A mixture of the indicators of 0 and 1."""
    node = Sum(Input(0, Indicator((0, 1)), 2))
    return Model.from_parameters(Circuit(node), {node: [list(weights)]})
