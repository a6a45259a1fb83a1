"""The loop: which epoch is kept, when runs stop, what is recorded, how rows become batches."""

import math
import sys
import warnings

import numpy as np
import pytest
import torch
from learning_helpers import (
    assert_same_model,
    binary_rows,
    quick,
    quick_fleet,
    same_parameters,
    small_circuit,
)

from circurve import (
    Bernoulli,
    Circuit,
    CircurveWarning,
    Gated,
    Gaussian,
    Global,
    Indicator,
    Input,
    Model,
    Product,
    Run,
    Sum,
    Vanilla,
    fully_factorized,
    gates,
    hessian_trace,
)
from circurve.data import prepare
from circurve.engine import Batch, compile
from circurve.learning.local_curvature import ESTIMATORS
from circurve.learning.need import training_need
from circurve.learning.options import Settings
from circurve.learning.plan import GateSummary
from circurve.learning.schedules import linear

TRAIN, VALID, TEST = binary_rows(90), binary_rows(150)[90:], binary_rows(200)[150:]
CIRCUIT = small_circuit(TRAIN)


def overfitting(**options):
    """Few rows and full steps: validation likelihood peaks early."""
    return quick(CIRCUIT, TRAIN[:12], valid=VALID, batch_size=None, **{"epochs": 30, **options})


# --- which epoch is kept ---


def test_the_best_epoch_by_validation_is_kept_by_default():
    result = overfitting()
    scores = [record.valid_ll for record in result.history]
    assert result.epoch == 1 + int(np.argmax(scores)) < 30
    assert result.valid_ll == pytest.approx(max(scores), rel=1e-12)
    assert_same_model(result, quick(CIRCUIT, TRAIN[:12], batch_size=None, epochs=result.epoch), 1e-12)


def test_select_last_keeps_the_last_epoch():
    result = overfitting(select="last")
    assert result.epoch == 30
    assert result.valid_ll == pytest.approx(result.history[-1].valid_ll, rel=1e-12)
    assert result.valid_ll < overfitting().valid_ll


def test_without_validation_the_last_epoch_is_kept():
    result = quick(CIRCUIT, TRAIN, test=TEST, epochs=7)
    assert result.epoch == 7
    assert result.valid_ll is None
    assert result.dof is None
    assert result.test_ll == pytest.approx(result.history[-1].test_ll, rel=1e-12)


def test_the_scores_are_those_of_the_model_that_is_returned():
    result = quick(CIRCUIT, TRAIN, valid=VALID, test=TEST, batch_size=20, track=True)
    for score, rows in ((result.train_ll, TRAIN), (result.valid_ll, VALID), (result.test_ll, TEST)):
        assert score == pytest.approx(result.model.log_prob(rows).mean(), rel=1e-12)
    assert result.sharpness == pytest.approx(hessian_trace(result.model, TRAIN).mean(), rel=1e-9)
    assert result.dof == pytest.approx(abs(result.valid_ll - result.train_ll) / abs(result.valid_ll))


# --- when a run stops ---


def test_patience_ends_a_run_after_so_many_epochs_without_progress():
    result = overfitting(patience=3)
    assert result.stopped == "patience"
    assert len(result.history) == result.epoch + 3
    assert_same_model(result, overfitting(), 1e-12)


def test_tolerance_ends_a_run_that_gains_less():
    result = quick(CIRCUIT, TRAIN, batch_size=None, epochs=500, tolerance=1e-3)
    assert result.stopped == "tolerance"
    gains = np.diff([record.train_ll for record in result.history])
    assert gains[-1] < 1e-3
    assert (gains[:-1] >= 1e-3).all()


def test_a_run_that_nothing_ends_takes_all_epochs():
    result = quick(CIRCUIT, TRAIN, epochs=4)
    assert result.stopped == "epochs"
    assert [record.epoch for record in result.history] == [1, 2, 3, 4]


def test_no_epochs_return_the_start():
    result = quick(CIRCUIT, TRAIN, valid=VALID, epochs=0, track=True)
    assert (result.epoch, result.history, result.stopped) == (0, (), "epochs")
    assert math.isfinite(result.valid_ll)
    assert result.sharpness > 0
    again = quick(CIRCUIT, TRAIN, start=result.model, epochs=0)
    assert same_parameters(again, result)


# --- callbacks ---


def test_callbacks_are_called_after_each_epoch():
    events = []
    result = quick(CIRCUIT, TRAIN, valid=VALID, epochs=3, callbacks=[events.append])
    assert [(event.epoch, event.epochs) for event in events] == [(1, 3), (2, 3), (3, 3)]
    assert [event.records for event in events] == [{0: record} for record in result.history]


def test_a_callback_sees_the_present_model():
    scores = []
    result = quick(
        CIRCUIT, TRAIN, valid=VALID, epochs=3, callbacks=[lambda e: scores.append(e.model(0).log_prob(VALID).mean())]
    )
    assert scores == pytest.approx([record.valid_ll for record in result.history], rel=1e-12)


def test_a_callback_that_returns_true_ends_the_training():
    seen = []
    stop = [lambda event: event.epoch == 2, lambda event: seen.append(event.epoch)]
    result = quick(CIRCUIT, TRAIN, epochs=9, callbacks=stop)
    assert (result.stopped, result.epoch, len(result.history)) == ("callback", 2, 2)
    assert seen == [1, 2]  # the others are still told


def test_a_callback_is_told_of_the_runs_that_still_train():
    active = []
    fleet = quick_fleet(
        CIRCUIT,
        TRAIN[:12],
        [Run(), Run(step_size=0.1)],
        valid=VALID,
        batch_size=None,
        epochs=12,
        patience=2,
        callbacks=[lambda event: active.append(sorted(event.records))],
    )
    ends = [len(result.history) for result in fleet]
    assert ends[0] < ends[1]
    assert active == [[0, 1]] * ends[0] + [[1]] * (ends[1] - ends[0])


def test_an_error_of_a_callback_reaches_the_caller():
    def fail(event):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        quick(CIRCUIT, TRAIN, callbacks=[fail])


# --- records ---


def test_track_records_sharpness_and_gates_of_each_epoch():
    plain, gated = quick_fleet(
        CIRCUIT, TRAIN, [Run(), Run(Gated(linear(0.0, 0.4)))], valid=VALID, track=True, epochs=5, batch_size=None
    )
    for record in (*plain.history, *gated.history):
        assert record.sharpness > 0
        assert record.dof == pytest.approx(abs(record.valid_ll - record.train_ll) / abs(record.valid_ll))
    assert [record.mu for record in gated.history] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
    assert all(record.mu == 0 and record.gates is None for record in plain.history)
    for record in gated.history:
        gate = record.gates
        assert 0 <= gate.min <= gate.median <= gate.max == 1
        assert 0 < gate.above_half <= 1
    assert [r.seconds for r in gated.history] == sorted(r.seconds for r in gated.history)


def test_gates_are_summed_up_for_each_gated_run():
    """Of an even number of gates, the median is the lower one in the middle."""

    def rising(curvature):
        return torch.arange(len(curvature.local)) / len(curvature.local)

    def half(curvature):
        return (torch.arange(len(curvature.local)) < 4).double()

    circuit = small_circuit(TRAIN, units=3)
    units = sum(node.units for node in circuit.sums)
    assert units % 2 == 0
    runs = [Run(Gated(0.1, rising)), Run(Global(0.1)), Run(Gated(0.1, half)), Run()]
    found = [result.history[-1].gates for result in quick_fleet(circuit, TRAIN, runs, track=True, epochs=1)]
    middle = (units - 1) // 2
    above = sum(i / units > 0.5 for i in range(units)) / units
    assert found[0] == GateSummary(0.0, middle / units, (units - 1) / units, above)
    assert found[2] == GateSummary(0.0, 0.0, 1.0, 4 / units)
    assert found[1] is found[3] is None


def test_sharpness_of_the_first_epoch_is_that_of_the_start():
    start = quick(CIRCUIT, TRAIN, epochs=0)
    result = quick(CIRCUIT, TRAIN, epochs=1, batch_size=None, track=True)
    assert result.history[0].sharpness == pytest.approx(hessian_trace(start.model, TRAIN).mean(), rel=1e-9)


def test_without_track_nothing_is_measured():
    result = quick(CIRCUIT, TRAIN, method=Gated(0.1), valid=VALID)
    assert result.sharpness is None
    assert all(record.sharpness is None and record.gates is None for record in result.history)


def test_tracking_changes_nothing():
    for method in (Vanilla(), Gated(0.1)):
        options = {"method": method, "batch_size": 20}
        assert_same_model(quick(CIRCUIT, TRAIN, track=True, **options), quick(CIRCUIT, TRAIN, **options), 1e-12)


# --- start, batches, memory ---


def test_start_continues_where_a_training_ended():
    whole = quick(CIRCUIT, TRAIN, batch_size=None, epochs=6)
    half = quick(CIRCUIT, TRAIN, batch_size=None, epochs=3)
    assert_same_model(quick(CIRCUIT, TRAIN, batch_size=None, epochs=3, start=half.model), whole, 1e-12)


def test_training_leaves_the_start_alone():
    start = quick(CIRCUIT, TRAIN, epochs=1).model
    before = [tensor.clone() for tensor in (*start.params.weights, *start.params.inputs)]
    quick(CIRCUIT, TRAIN, start=start)
    assert all(map(torch.equal, before, (*start.params.weights, *start.params.inputs)))


def test_a_batch_size_beyond_the_data_is_one_batch_of_all_rows():
    one = quick(CIRCUIT, TRAIN, batch_size=10_000, step_size=0.5)
    other = quick(CIRCUIT, TRAIN, batch_size=None, step_size=0.5)
    assert_same_model(one, other, 1e-12)


@pytest.mark.parametrize(("size", "sizes"), [(40, [30, 30, 30]), (89, [45, 45]), (1, [1] * 90), (25, [22, 23, 22, 23])])
def test_rows_are_shared_evenly_among_the_batches_and_each_is_seen_once(monkeypatch, size, sizes):
    drawn, pick = [], Batch.pick
    monkeypatch.setattr(Batch, "pick", lambda table, index, dtype: (drawn.append(index), pick(table, index, dtype))[1])
    quick(CIRCUIT, TRAIN, batch_size=size, epochs=2)
    for epoch in (drawn[: len(sizes)], drawn[len(sizes) :]):
        assert [index.shape[1] for index in epoch] == sizes
        assert torch.cat(epoch, 1)[0].sort().values.tolist() == list(range(90))
    assert not torch.equal(torch.cat(drawn[: len(sizes)], 1), torch.cat(drawn[len(sizes) :], 1))


@pytest.mark.parametrize("batch_size", [30, None])
@pytest.mark.parametrize(
    "method", [Vanilla(), Gated(0.1, penalty="exact", estimator="mean_ratio")], ids=["plain", "gated"]
)
def test_a_small_memory_budget_changes_nothing(batch_size, method):
    settings = Settings(batch_size=batch_size, track=True, precision="float64")
    tables = {"train": prepare(TRAIN, CIRCUIT, "train"), "valid": prepare(VALID, CIRCUIT, "valid")}
    options = {"batch_size": batch_size, "method": method, "valid": tables["valid"], "track": True, "epochs": 3}
    least = training_need(CIRCUIT, [Run(method)], settings, tables, compile(CIRCUIT)).total
    tight, free = (quick(CIRCUIT, tables["train"], memory_budget=budget, **options) for budget in (least, None))
    assert_same_model(tight, free, 1e-10)
    assert tight.train_ll == pytest.approx(free.train_ll, rel=1e-12)
    assert tight.sharpness == pytest.approx(free.sharpness, rel=1e-10)


# --- samples of probability zero, sums without use ---


def twins() -> tuple[Circuit, Sum]:
    """Two binary variables that must be equal."""
    root = Sum(Product([Input(v, Indicator((0, 1)), 2) for v in range(2)]))
    return Circuit(root), root


def test_impossible_samples_are_counted_once_and_left_out():
    circuit, root = twins()
    x = np.array([[0, 0], [1, 1], [1, 1], [0, 1], [1, 1], [1, 0]])
    with pytest.warns(CircurveWarning) as caught:
        result = quick(circuit, x, batch_size=None, epochs=3)
    assert [str(w.message) for w in caught] == [
        "2 training rows have probability zero under the current parameters; EM ignores such rows"
    ]
    np.testing.assert_allclose(result.model.weights(root), [[0.25, 0.75]], rtol=1e-12)
    assert result.train_ll == -math.inf
    assert [record.train_ll for record in result.history] == [-math.inf] * 3


def test_where_validation_is_impossible_throughout_the_last_epoch_is_kept():
    circuit, root = twins()
    result = quick(circuit, np.array([[0, 0], [1, 1], [1, 1]]), valid=np.array([[0, 1]]), batch_size=None, epochs=3)
    assert (result.epoch, result.valid_ll, result.dof) == (3, -math.inf, None)
    np.testing.assert_allclose(result.model.weights(root), [[1 / 3, 2 / 3]], rtol=1e-12)


def test_possible_samples_raise_no_warning():
    circuit, _ = twins()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(circuit, np.array([[0, 0], [1, 1]]), batch_size=1)


def test_an_impossible_sample_without_weight_is_nothing_to_warn_of():
    circuit, _ = twins()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = quick(circuit, np.array([[0, 0], [0, 1]]), weights=[1, 0], batch_size=None)
    assert result.train_ll == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    "method", [Vanilla(), Vanilla(1.0), Global(0.1), Gated(0.1, penalty="exact", simplex="exact")], ids=repr
)
def test_a_sum_that_no_sample_reaches_keeps_its_weights(method):
    """Of two branches told apart by an indicator, the data only ever take the first."""
    switch = Input(0, Indicator((0, 1)), 2)
    branches = [Sum(Input(1, Bernoulli(), 2)) for _ in range(2)]
    parts = [Product([switch, branch], [[side], None]) for side, branch in enumerate(branches)]
    root = Sum(parts)
    circuit = Circuit(root)
    start = quick(circuit, np.array([[0, 0], [1, 1]]), epochs=0).model
    result = quick(circuit, np.array([[0, 0], [0, 1], [0, 1]]), start=start, method=method, batch_size=2)
    np.testing.assert_array_equal(result.model.weights(branches[1]), start.weights(branches[1]))
    assert not np.array_equal(result.model.weights(branches[0]), start.weights(branches[0]))


@pytest.mark.parametrize("gate", [*gates.GATES, "top_fraction:0.5"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_gates_survive_infinite_curvature_of_an_edge_of_weight_zero(gate, estimator):
    node = Input(0, Gaussian(), 2)
    root = Sum(node)
    start = Model.from_parameters(Circuit(root), {root: [[1.0, 0.0]]}, {node: [[0, 1e-4], [100, 1e-4]]})
    x = np.array([[0.0], [100.0], [100.01]])
    method = Gated(0.1, gate, estimator=estimator, gate_memory=0.5)
    result = quick(start.circuit, x, start=start, method=method, batch_size=None, track=True)
    assert math.isfinite(result.train_ll)


@pytest.mark.parametrize(
    "method", [Vanilla(), Global(0.1, penalty="exact", simplex="exact"), *(Gated(0.1, gate) for gate in gates.GATES)]
)
def test_a_circuit_without_sums_is_trained_by_every_method(method):
    result = quick(fully_factorized(6), TRAIN, method=method, track=True, batch_size=None)
    assert result.sharpness == 0
    assert same_parameters(result, quick(fully_factorized(6), TRAIN, batch_size=None))


# --- progress ---


def test_training_is_quiet_where_nobody_looks(capsys):
    assert not sys.stderr.isatty()
    quick(CIRCUIT, TRAIN)
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_on_standard_error_when_asked_for(capsys):
    quick(CIRCUIT, TRAIN, valid=VALID, epochs=3, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/3" in err
    assert "train -" in err
    assert "valid -" in err
    quick_fleet(CIRCUIT, TRAIN, [Run(), Run(seed=1)], epochs=2, progress=True)
    assert "2 runs: train -" in capsys.readouterr().err


def test_progress_can_be_turned_off(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    quick(CIRCUIT, TRAIN, progress=False)
    assert capsys.readouterr() == ("", "")
