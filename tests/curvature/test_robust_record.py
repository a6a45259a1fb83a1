"""The robust columns of a curvature record: from the definitions, added up, saved, and missing in older files."""

import dataclasses
import io
import zipfile

import numpy as np
import pytest
import torch
from hessian_oracle import by_unit, model_of
from hypothesis import given, settings

from circuits import Case, Truth, assert_close, cases
from circurve import Model, OptionError, curvature, load_curvature
from circurve.curvature import Curvature, concentration
from circurve.curvature.record import COLUMNS, ROBUST
from circurve.engine.numerics import WEIGHT_FLOOR
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli

pytestmark = pytest.mark.filterwarnings("ignore:.*(no observed|probability zero):circurve.errors.CircurveWarning")
some = settings(max_examples=30, deadline=None)
FLOOR = 1e-4


def has_a_record(case: Case) -> bool:
    """Whether a row has a value, a weight and a probability above zero."""
    counted = case.weight * (Truth.of(case).root > 0) > 0
    return bool(counted.any()) and not np.isnan(case.x).all()


def record_of(case: Case) -> Curvature:
    return curvature(model_of(case), case.x, weights=case.sample_weights, labels=case.labels)


@given(case=cases().filter(has_a_record))
@some
def test_robust_columns_are_those_of_the_definition(case):
    truth, record = Truth.of(case), record_of(case)
    weight = case.weight * (truth.root > 0)

    def column(name: str) -> torch.Tensor:
        values = {}
        for node in case.circuit.sums:
            flow, theta, rho = truth.flow[node] * weight, truth.weights[node], truth.ratio(node)
            local, used = truth.local(node), flow.sum(-1)
            by_flow = torch.where(used > 0, used, 1.0)
            values[node] = {
                "local_flow_weighted": (flow * local).sum(-1) / by_flow,
                "local_geometric": (torch.xlogy(flow, local).sum(-1) / by_flow).exp() * (used > 0),
                "local_clipped": ((theta * rho / theta.clamp_min(FLOOR)).square().sum(1) * weight).sum(-1)
                / weight.sum(),
            }[name]
        return by_unit(values, record.nodes, case.circuit)

    for name in ("local_flow_weighted", "local_geometric", "local_clipped"):
        assert_close(torch.from_numpy(getattr(record, name)), column(name), 1e-9)


@given(case=cases(samples=7, missing=False).filter(has_a_record))
@some
def test_records_of_two_parts_have_the_robust_columns_of_the_whole(case):
    case = dataclasses.replace(case, sample_weights=None)
    parts = [
        dataclasses.replace(case, x=case.x[rows], labels=None if case.labels is None else case.labels[rows])
        for rows in (slice(0, 3), slice(3, None))
    ]
    if not all(has_a_record(part) for part in parts):
        return
    whole, added = record_of(case), record_of(parts[0]) + record_of(parts[1])
    for name in ROBUST:
        assert_close(torch.from_numpy(getattr(added, name)), torch.from_numpy(getattr(whole, name)), 1e-9)


def dead() -> Model:
    """Two units over two children; one edge at the floor explains one of 50 rows for its unit."""
    left, right = Input(0, Bernoulli(), 2), Input(1, Bernoulli(), 2)
    middle = Sum(Product([left, right]), 2, name="middle")
    root = Sum(middle, name="root")
    weights = {middle: [[1 - WEIGHT_FLOOR, WEIGHT_FLOOR], [0.5, 0.5]], root: [[0.5, 0.5]]}
    inputs = {left: [[1e-6], [1 - 1e-6]], right: [[1e-6], [1 - 1e-6]]}
    return Model.from_parameters(Circuit(root), weights, inputs)


ROWS = np.array([[0, 0]] * 49 + [[1, 1]])


def test_edges_at_the_floor_and_their_share_of_t_are_counted():
    record = curvature(dead(), ROWS)
    assert record.nodes[0].name == "middle"
    assert record.floor_edges.tolist() == [1, 0, 0]
    assert record.floor_share == pytest.approx(1, abs=1e-6)
    assert str(record).endswith("1 edge makes up 100.0% of t; they do not move `geometric`")
    assert record.local[0] == pytest.approx(record.floor_local[0], rel=1e-6)
    assert record.local[0] > 1e20
    assert record.local_geometric[0] == pytest.approx(1, rel=1e-6)
    assert record.local_clipped[0] < 1 / FLOOR**2 / len(ROWS) + 1.01


def test_a_model_without_such_edges_has_no_share_at_the_floor():
    model = dead()
    weights = tuple(torch.full_like(layer, 0.5) for layer in model.params.weights)
    smooth = Model(model.circuit, dataclasses.replace(model.params, weights=weights), model.program, model.schema)
    record = curvature(smooth, ROWS)
    assert (record.floor_edges.sum(), record.floor_share) == (0, 0)
    np.testing.assert_allclose(record.local_clipped, record.local)


def test_rankings_and_concentrations_go_by_every_estimate():
    record = curvature(dead(), ROWS)
    for estimator, name in (("mean_trace", "local"), *((n.removeprefix("local_"), n) for n in ROBUST[:3])):
        np.testing.assert_array_equal(record.by(estimator), getattr(record, name))
        np.testing.assert_array_equal(record.with_local(estimator).by("local"), getattr(record, name))
    assert concentration(record, "local").gini > concentration(record, "geometric").gini
    with pytest.raises(OptionError, match=r"^estimator must be .*not 'total'"):
        record.with_local("total")


def test_robust_columns_are_saved_and_older_files_load_without_them(tmp_path):
    record = curvature(dead(), ROWS)
    record.save(tmp_path / "new.npz")
    back = load_curvature(tmp_path / "new.npz")
    for name in ROBUST:
        np.testing.assert_array_equal(getattr(back, name), getattr(record, name))
    older = tmp_path / "old.npz"
    with zipfile.ZipFile(tmp_path / "new.npz") as file, zipfile.ZipFile(older, "w") as left:
        for name in file.namelist():
            if name.removesuffix(".npy") not in ROBUST:
                left.writestr(name, io.BytesIO(file.read(name)).getvalue())
    old = load_curvature(older)
    assert old.columns == COLUMNS
    assert (old.local_geometric, old.floor_share) == (None, None)
    assert list(old.to_pandas().columns)[3:] == list(COLUMNS)
    np.testing.assert_array_equal(old.local, record.local)
    with pytest.raises(OptionError, match="by='geometric': this record was saved by an earlier version"):
        old.by("geometric")
    both = old + record
    assert both.local_clipped is None
    assert both.weight == 2 * record.weight
