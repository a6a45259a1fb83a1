"""Every wrong option has an error that names it; schedules and strengths give the values they promise."""

import math
import re

import numpy as np
import pytest
import torch
from learning_helpers import binary_rows, quick, quick_fleet, shown, small_circuit

from circurve import CircurveError, Gated, Global, Grid, Model, OptionError, Run, Vanilla
from circurve.learning.options import Settings
from circurve.learning.schedules import by_overfitting, constant, cosine, exponential, linear, warm_up

X = binary_rows(40)
CIRCUIT = small_circuit(X)

NO_STRENGTHS = [-1, -1e-9, math.nan, math.inf, True, "0.1", None, 10**400, [0.1], torch.tensor(0.1), np.array([0.1])]
NO_COUNTS = [-1, 1.5, True, "3", math.nan, [1], 2.0]


def refuses(message: str):
    return pytest.raises(OptionError, match=message)


# --- methods ---


@pytest.mark.parametrize("method", [Global, Gated])
@pytest.mark.parametrize("mu", NO_STRENGTHS, ids=shown)
def test_mu_must_be_a_finite_number_of_at_least_zero(method, mu):
    with refuses(r"^mu must be a finite number >= 0, not " + re.escape(repr(mu))):
        method(mu)


@pytest.mark.parametrize("value", [*NO_STRENGTHS, 1e19], ids=shown)
def test_pseudocount_must_be_a_number_that_can_be_added_to_counts(value):
    for method in (Vanilla, lambda pseudocount: Global(0.1, pseudocount), lambda pc: Gated(0.1, pseudocount=pc)):
        with refuses(r"^pseudocount must be a number from 0 to 1e\+18, not"):
            method(value)


@pytest.mark.parametrize("value", [*NO_STRENGTHS, 0], ids=shown)
def test_multiplier_must_be_positive(value):
    with refuses(r"^multiplier must be (positive|a finite number >= 0), not"):
        Global(0.1, multiplier=value)


@pytest.mark.parametrize("value", [-0.1, 1, 1.5, math.nan, True, False, "0.5", None], ids=shown)
def test_gate_memory_must_be_a_share_below_one(value):
    with refuses(r"^gate_memory must be from 0 to below 1, not"):
        Gated(0.1, gate_memory=value)


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("simplex", "normalize, exact"),
        ("penalty", "surrogate, exact"),
        ("mu_scale", "count, mean, data"),
        ("gates_from", "batch, epoch, first"),
        ("estimator", "mean_trace, mean_ratio, flow_weighted, geometric, clipped"),
    ],
)
@pytest.mark.parametrize("value", ["Exact", "", None, 1, ["exact"]], ids=shown)
def test_a_choice_must_be_one_of_the_choices(option, choices, value):
    with refuses(rf"^{option} must be one of {choices}, not {re.escape(repr(value))}"):
        Gated(0.1, **{option: value})


@pytest.mark.parametrize("values", [(), [], 0.1, None], ids=shown)
def test_a_grid_must_be_a_list_of_strengths(values):
    with refuses("^Grid needs a list of at least one mu, not"):
        Grid(values)


@pytest.mark.parametrize("values", [(0.1, -1), (math.nan,), ("a",), (True,), "auto"], ids=shown)
def test_each_strength_of_a_grid_is_checked(values):
    with refuses("^mu must be a finite number >= 0, not"):
        Grid(values)


def test_numbers_of_numpy_are_numbers():
    assert Grid(np.array([0.1, 0.2])).values == (0.1, 0.2)
    run = Run(Global(np.float32(0.5), pseudocount=np.float64(1)), seed=np.int64(3), step_size=np.float32(0.5))
    assert isinstance(run.seed, int)
    assert quick(CIRCUIT, X, epochs=np.int32(2), batch_size=np.int64(10)).epoch == 2
    assert quick_fleet(CIRCUIT, X, [run], epochs=1)[0].history[0].mu == 0.5


@pytest.mark.parametrize("mu", [lambda progress: -progress, lambda progress: 1 / progress if progress else math.inf])
def test_a_schedule_of_mu_is_checked_at_both_ends(mu):
    with refuses("^mu must be a finite number >= 0, not"):
        Global(mu)


def bad_in_the_middle(value: float):
    return lambda progress: value if 0 < progress < 1 else 0.5


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_schedule_that_goes_wrong_later_is_stopped_there(value):
    with refuses("^mu must be a finite number >= 0, not"):
        quick(CIRCUIT, X, method=Global(bad_in_the_middle(value)))
    with refuses(r"^step_size must be above 0 and at most 1, not"):
        quick(CIRCUIT, X, step_size=bad_in_the_middle(value))


# --- runs and settings ---


@pytest.mark.parametrize("seed", [*NO_COUNTS, None], ids=shown)
def test_the_seed_must_be_a_whole_number(seed):
    with refuses("^seed must be a whole number >= 0, not"):
        Run(seed=seed)
    with refuses("^seed must be a whole number >= 0, not"):
        quick(CIRCUIT, X, seed=seed)


@pytest.mark.parametrize("method", [Vanilla, "vanilla", 0.1, None], ids=shown)
def test_a_run_needs_a_method(method):
    with refuses(r"^method must be Vanilla\(\), Global\(mu\) or Gated\(mu\), not"):
        Run(method=method)


@pytest.mark.parametrize("step", [0, -0.1, 1.1, math.nan, math.inf, True, "0.1", lambda progress: progress], ids=shown)
def test_step_sizes_must_lie_above_zero_and_up_to_one(step):
    with refuses(r"^step_size must be above 0 and at most 1, not"):
        Run(step_size=step)
    with refuses(r"^step_size must be above 0 and at most 1, not"):
        Settings(step_size=step)


@pytest.mark.parametrize("option", ["epochs", "batch_size", "patience", "memory_budget"])
@pytest.mark.parametrize("value", NO_COUNTS, ids=shown)
def test_counts_must_be_whole_numbers(option, value):
    with refuses(rf"^{option} must be a whole number >= [01], not"):
        quick(CIRCUIT, X, valid=X, **{option: value})


@pytest.mark.parametrize("option", ["batch_size", "patience", "memory_budget"])
def test_only_epochs_may_be_zero(option):
    with refuses(rf"^{option} must be a whole number >= 1, not 0"):
        quick(CIRCUIT, X, valid=X, **{option: 0})


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, "0.1", True], ids=shown)
def test_tolerance_must_be_a_finite_number_of_at_least_zero(value):
    with refuses("^tolerance must be a finite number >= 0, not"):
        quick(CIRCUIT, X, tolerance=value)


@pytest.mark.parametrize("value", ["first", 1, True, ["best"]], ids=shown)
def test_select_must_be_best_or_last(value):
    with refuses("^select must be one of best, last, not"):
        quick(CIRCUIT, X, valid=X, select=value)


@pytest.mark.parametrize("value", ["float16", 64, None, torch.float64, ["float32"]], ids=shown)
def test_precision_must_be_known(value):
    with refuses("^precision must be one of float32, float64, tf32, not"):
        quick(CIRCUIT, X, precision=value)


@pytest.mark.parametrize("value", ["gpu", "tpu:0", None, 1.5], ids=shown)
def test_an_unknown_device_is_refused(value):
    with refuses("^device must be 'auto', 'cpu', 'cuda' or a torch device, not"):
        quick(CIRCUIT, X, device=value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": "best"}, "^patience and select='best' need validation data: give valid="),
        ({"patience": 3}, "^patience and select='best' need validation data: give valid="),
        ({"method": Global("auto")}, "^mu='auto' and gate='auto' choose by validation likelihood: give valid="),
        ({"method": Gated(Grid((0.1,)))}, "choose by validation likelihood: give valid="),
        ({"method": Gated(0.1, gate="auto")}, "choose by validation likelihood: give valid="),
        ({"method": Gated(by_overfitting(1.0))}, r"^mu=by_overfitting\(...\) needs validation data: give valid="),
    ],
)
def test_what_validation_decides_needs_validation_data(options, message):
    with refuses(message):
        quick(CIRCUIT, X, valid=False, **options)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], r"^runs must be a list of at least one Run, not \[\]"),
        (Run(), r"^runs must be a list of at least one Run, not Run\("),
        ([Run(), Global(0.1)], r"^runs must hold Run\(...\) only, not Global\("),
    ],
)
def test_a_fleet_needs_a_list_of_runs(runs, message):
    with refuses(message):
        quick_fleet(CIRCUIT, X, runs)


@pytest.mark.parametrize("callbacks", [print, [3], None], ids=shown)
def test_callbacks_must_be_a_list_of_functions(callbacks):
    with refuses("^callbacks must be a list of functions, not"):
        quick(CIRCUIT, X, callbacks=callbacks)


def test_the_circuit_must_be_a_circuit():
    model = quick(CIRCUIT, X, epochs=0).model
    with refuses("^circuit must be a Circuit, not Model"):
        quick(model, X)
    with refuses("^circuit must be a Circuit, not ndarray"):
        quick(X, CIRCUIT)


def test_start_must_be_a_model_of_the_same_circuit():
    result = quick(CIRCUIT, X, epochs=0)
    with refuses("^start must be a Model, not FitResult"):
        quick(CIRCUIT, X, start=result)
    twin = small_circuit(X)
    with refuses(r"^start: the model has another circuit; pass model.circuit as the circuit"):
        quick(twin, X, start=result.model)
    assert isinstance(quick(result.model.circuit, X, start=result.model).model, Model)


def test_all_of_these_are_errors_of_ours_and_value_errors():
    assert issubclass(OptionError, CircurveError)
    assert issubclass(OptionError, ValueError)


# --- schedules ---


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (constant(0.3), (0.3, 0.3, 0.3)),
        (linear(1.0, 0.2), (1.0, 0.6, 0.2)),
        (cosine(1.0, 0.2), (1.0, 0.6, 0.2)),
        (exponential(1.0, 0.01), (1.0, 0.1, 0.01)),
        (warm_up(2.0, until=0.25), (0.0, 2.0, 2.0)),
        (warm_up(2.0, until=1.0), (0.0, 1.0, 2.0)),
        (warm_up(2.0, until=0.0), (2.0, 2.0, 2.0)),
    ],
    ids=shown,
)
def test_schedules_start_pass_and_end_where_they_say(schedule, values):
    assert [schedule(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx(values, rel=1e-12)


def test_a_cosine_is_slow_at_its_ends_and_a_warm_up_rises_evenly():
    assert cosine(1.0, 0.0)(0.1) > 0.97
    assert cosine(1.0, 0.0)(0.9) < 0.03
    assert warm_up(1.0, until=0.4)(0.1) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: linear("a", 0.1), "linear: start must be a finite number >= 0, not 'a'"),
        (lambda: linear(0.1, -1), "linear: end must be a finite number >= 0, not -1"),
        (lambda: cosine(math.nan, 0.1), "cosine: start must be a finite number >= 0, not nan"),
        (lambda: exponential(0.0, 0.1), "exponential: start and end must be positive, not 0.0 and 0.1"),
        (lambda: exponential(0.1, 0), "exponential: start and end must be positive, not 0.1 and 0"),
        (lambda: exponential(0.1, math.inf), "exponential: end must be a finite number >= 0, not inf"),
        (lambda: warm_up("a"), "warm_up: value must be a finite number >= 0, not 'a'"),
        (lambda: warm_up(0.1, until=2), r"warm_up: until must be from 0 to 1, not 2"),
        (lambda: warm_up(0.1, until=math.nan), r"warm_up: until must be from 0 to 1, not nan"),
        (lambda: by_overfitting("a"), "by_overfitting: maximum must be a finite number >= 0, not 'a'"),
        (lambda: by_overfitting(-1), "by_overfitting: maximum must be a finite number >= 0, not -1"),
        (lambda: by_overfitting(1, full_at=0), "by_overfitting: full_at must be a finite number > 0, not 0"),
        (lambda: by_overfitting(1, full_at=math.inf), "by_overfitting: full_at must be a finite number > 0, not inf"),
    ],
)
def test_a_wrong_schedule_is_refused_when_it_is_made(make, message):
    with refuses(message):
        make()


def test_by_overfitting_grows_with_the_degree_of_overfitting_up_to_its_maximum():
    strength = by_overfitting(2.0, full_at=0.1)
    assert [strength.value(dof) for dof in (None, 0.0, 0.05, 0.1, 5.0)] == pytest.approx([0, 0, 1, 2, 2])


def test_by_overfitting_follows_the_epoch_before():
    train, valid = binary_rows(15, noise=0.3), binary_rows(200, seed=1, noise=0.3)
    method = Global(by_overfitting(0.5, full_at=0.8))
    result = quick(CIRCUIT, train, valid=valid, epochs=6, batch_size=None, method=method)
    assert result.history[0].mu == 0.0
    for before, after in zip(result.history, result.history[1:], strict=False):
        dof = before.dof if before.valid_ll < before.train_ll else 0.0
        assert after.mu == pytest.approx(0.5 * min(1.0, dof / 0.8))
    assert 0 < result.history[-1].mu < 0.5


def test_a_schedule_is_read_from_the_first_step_to_the_last():
    seen = []

    def mu(progress):
        seen.append(progress)
        return 0.1

    quick(CIRCUIT, X, method=Global(mu), step_size=linear(1.0, 0.5), batch_size=10, epochs=3)
    steps = seen[2:]  # the first two are the check of its ends
    assert steps == pytest.approx(np.linspace(0, 1, 12))


def test_the_step_size_is_a_tenth_for_mini_batches_and_one_for_the_full_batch():
    assert quick(CIRCUIT, X, batch_size=10, epochs=1).history[0].step_size == 0.1
    assert quick(CIRCUIT, X, batch_size=None, epochs=1).history[0].step_size == 1.0
    assert quick(CIRCUIT, X, batch_size=10, epochs=4, step_size=linear(1.0, 0.5)).history[-1].step_size == 0.5
