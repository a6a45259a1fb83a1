"""A run of a fleet is the run trained alone, whoever its neighbours are and whenever they stop."""

from dataclasses import astuple, dataclass

import pytest
import torch
from learning_helpers import assert_same_model, binary_rows, quick_fleet, same_parameters, small_circuit

from circurve import Examples, Gated, Global, Model, OptionError, Run, Vanilla, gates
from circurve.learning import EpochRecord, FitResult, FleetResult
from circurve.learning.schedules import by_overfitting, linear, warm_up

TRAIN, VALID = binary_rows(90, seed=0), binary_rows(60, seed=0)[::-1].copy()
CIRCUIT = small_circuit(TRAIN)


def own_gate(curvature: gates.NodeCurvature) -> torch.Tensor:
    return curvature.local / (1 + curvature.local)


@dataclass
class Steady:
    """A gate with state of its own, and so without a hash."""

    value: float

    def __call__(self, curvature: gates.NodeCurvature) -> torch.Tensor:
        return torch.full_like(curvature.local, self.value)


RUNS = [
    Run(),
    Run(seed=1),
    Run(Vanilla(pseudocount=2.0), seed=1, step_size=0.5),
    Run(Global(0.1), seed=2),
    Run(Global(0.1, penalty="exact", simplex="exact"), seed=2, step_size=linear(1.0, 0.1)),
    Run(Global(0.05, simplex="exact", mu_scale="mean")),
    Run(Global(warm_up(0.2), penalty="exact", multiplier=2.0), seed=3),
    Run(Gated(0.1), seed=4),
    Run(Gated(0.3), seed=5),
    Run(Gated(0.1, gate_memory=0.9), seed=6),
    Run(Gated(0.2, gate_memory=0.9), seed=7),
    Run(Gated(0.1, estimator="mean_ratio", gate_memory=0.5), seed=6),
    Run(Gated(0.1, "rank", estimator="mean_ratio", simplex="exact"), seed=8),
    Run(Gated(0.1, "top_fraction:0.3:total", penalty="exact"), seed=9),
    Run(Gated(0.1, own_gate, gate_memory=0.5, penalty="exact", simplex="exact"), seed=9),
    Run(Gated(0.3, Steady(0.5)), seed=9),
    Run(Gated(0.3, Steady(0.1)), seed=9),
    Run(Gated(by_overfitting(0.5, full_at=0.01), pseudocount=0.5), seed=10),
]


def records(result: FitResult) -> list[tuple[float, ...]]:
    return [(r.train_ll, r.valid_ll, r.mu, r.step_size) for r in result.history]


def gate_numbers(record: EpochRecord) -> list[float]:
    return [] if record.gates is None else list(astuple(record.gates))


def assert_same_result(one: FitResult, other: FitResult) -> None:
    assert_same_model(one, other)
    assert (one.epoch, one.stopped, one.run) == (other.epoch, other.stopped, other.run)
    assert (one.train_ll, one.valid_ll) == pytest.approx((other.train_ll, other.valid_ll), rel=1e-9)
    assert len(one.history) == len(other.history)
    for a, b in zip(records(one), records(other), strict=True):
        assert a == pytest.approx(b, rel=1e-9)


@pytest.mark.parametrize("batch_size", [20, None], ids=["mini-batches", "full batch"])
def test_a_run_of_a_fleet_equals_the_same_run_alone(batch_size):
    options = {"valid": VALID, "batch_size": batch_size, "epochs": 6}
    fleet = quick_fleet(CIRCUIT, TRAIN, RUNS, **options)
    for run, found in zip(RUNS, fleet, strict=True):
        assert_same_result(found, quick_fleet(CIRCUIT, TRAIN, [run], **options)[0])


def test_a_run_goes_on_unchanged_when_its_neighbours_stop():
    """Patience stops runs one after the other; each still equals the same run alone."""
    train, valid = binary_rows(25, noise=0.25), binary_rows(60, noise=0.25)
    options = {"valid": valid, "batch_size": 10, "epochs": 25, "patience": 2, "track": True}
    fleet = quick_fleet(CIRCUIT, train, RUNS, **options)
    lengths = {len(result.history) for result in fleet}
    assert len(lengths) > 3  # they did stop at different times
    memories = [len(r.history) for r in fleet if isinstance(r.run.method, Gated) and r.run.method.gate_memory > 0]
    assert max(memories) > min(lengths)  # a running curvature outlived a neighbour
    for run, found in zip(RUNS, fleet, strict=True):
        alone = quick_fleet(CIRCUIT, train, [run], **options)[0]
        assert_same_result(found, alone)
        assert found.sharpness == pytest.approx(alone.sharpness, rel=1e-9)
        for one, other in zip(found.history, alone.history, strict=True):
            assert gate_numbers(one) == pytest.approx(gate_numbers(other), rel=1e-9)


def test_select_last_survives_a_shrinking_fleet():
    train, valid = binary_rows(25, noise=0.25), binary_rows(60, noise=0.25)
    options = {"valid": valid, "batch_size": 10, "epochs": 20, "patience": 2, "select": "last"}
    fleet = quick_fleet(CIRCUIT, train, RUNS[:6], **options)
    assert len({len(result.history) for result in fleet}) > 1
    for run, found in zip(RUNS, fleet, strict=False):
        assert found.epoch == len(found.history)
        assert_same_result(found, quick_fleet(CIRCUIT, train, [run], **options)[0])


def test_weights_and_labels_belong_to_the_rows_that_each_run_draws():
    weights = torch.linspace(0, 3, len(TRAIN)).double()
    train = Examples(TRAIN, weights=weights)
    options = {"batch_size": 20, "epochs": 3, "valid": VALID}
    fleet = quick_fleet(CIRCUIT, train, RUNS[:4], **options)
    for run, found in zip(RUNS, fleet, strict=False):
        assert_same_result(found, quick_fleet(CIRCUIT, train, [run], **options)[0])


def test_training_is_reproducible_from_the_seed():
    runs = [Run(seed=3), Run(Gated(0.1), seed=4)]
    one, other = (quick_fleet(CIRCUIT, TRAIN, runs, batch_size=20) for _ in range(2))
    for a, b in zip(one, other, strict=True):
        assert same_parameters(a, b)
        assert a.train_ll == b.train_ll


def test_training_takes_no_number_from_the_global_generators():
    torch.manual_seed(0)
    one = quick_fleet(CIRCUIT, TRAIN, [Run(seed=3)], batch_size=20)[0]
    torch.manual_seed(1)
    state = torch.get_rng_state()
    other = quick_fleet(CIRCUIT, TRAIN, [Run(seed=3)], batch_size=20)[0]
    assert same_parameters(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_different_seeds_start_and_shuffle_differently():
    first, second = quick_fleet(CIRCUIT, TRAIN, [Run(seed=0), Run(seed=1)], epochs=0)
    assert not same_parameters(first, second)
    start = first.model
    first, second = quick_fleet(CIRCUIT, TRAIN, [Run(seed=0), Run(seed=1)], batch_size=20, start=start)
    assert not same_parameters(first, second)  # from one start: only the order of the rows differs
    first, second = quick_fleet(CIRCUIT, TRAIN, [Run(seed=0), Run(seed=1)], batch_size=None, start=start)
    assert same_parameters(first, second)


def test_runs_of_one_seed_start_alike_and_see_the_same_batches():
    plain, gated = quick_fleet(CIRCUIT, TRAIN, [Run(seed=5), Run(Gated(0.0), seed=5)], batch_size=20)
    assert_same_model(plain, gated, 1e-12)
    assert plain.train_ll != quick_fleet(CIRCUIT, TRAIN, [Run(seed=6)], batch_size=20)[0].train_ll


def test_runs_of_one_seed_are_those_trained_alone_when_some_of_them_stop_early():
    """They share the order of their rows: those that continue must not draw it again."""
    train, valid = binary_rows(25, noise=0.25), binary_rows(60, noise=0.25)
    runs = [
        Run(method, seed=seed, step_size=step)
        for seed in (3, 4)
        for method, step in ((Vanilla(), 1.0), (Vanilla(pseudocount=3.0), 0.05), (Gated(0.3), linear(0.5, 0.1)))
    ]
    options = {"valid": valid, "batch_size": 10, "epochs": 20, "patience": 2, "track": True}
    fleet = quick_fleet(CIRCUIT, train, runs, **options)
    for same_seed in (fleet[:3], fleet[3:]):
        assert len({len(result.history) for result in same_seed}) > 1
    for run, found in zip(runs, fleet, strict=True):
        assert_same_result(found, quick_fleet(CIRCUIT, train, [run], **options)[0])


def test_runs_share_a_start_if_they_have_both_seed_and_init_in_common():
    runs = [Run(seed=s, init=i) for s in (1, 2) for i in ("random", "prototypes")]
    starts = quick_fleet(CIRCUIT, TRAIN, [*runs, *runs[::-1]], epochs=0)
    for run, one, again in zip(runs, starts[:4], starts[:3:-1], strict=True):
        assert same_parameters(one, again)
        assert same_parameters(one, quick_fleet(CIRCUIT, TRAIN, [run], epochs=0)[0])
    assert not any(same_parameters(starts[0], other) for other in starts[1:4])


def test_a_schedule_that_runs_share_is_asked_once_a_step():
    asked: dict[str, list[float]] = {"step": [], "mu": []}

    def step(progress: float) -> float:
        asked["step"].append(progress)
        return 0.5 - 0.4 * progress

    def mu(progress: float) -> float:
        asked["mu"].append(progress)
        return 0.1 * progress

    runs = [Run(Global(mu)), Run(Gated(mu), seed=1), Run(Gated(0.3), step_size=0.25), Run()]
    fleet = quick_fleet(CIRCUIT, TRAIN, runs, batch_size=30, epochs=3, step_size=step)
    for calls in asked.values():
        within = [at for at in calls if 0 < at < 1]  # the ends are also asked for when options are checked
        assert within == pytest.approx([i / 8 for i in range(1, 8)])  # three epochs of three steps
    last = [result.history[-1] for result in fleet]
    assert [record.step_size for record in last] == pytest.approx([0.1, 0.1, 0.25, 0.1])
    assert [record.mu for record in last] == pytest.approx([0.1, 0.1, 0.3, 0.0])


def test_a_strength_that_leaves_its_range_is_refused_when_it_does():
    runs = [Run(), Run(Global(lambda progress: 1.0 if progress in (0, 1) else -1.0))]
    with pytest.raises(OptionError, match=r"mu must be a finite number >= 0, not -1\.0"):
        quick_fleet(CIRCUIT, TRAIN, runs, batch_size=30)


# --- the result ---


def test_a_fleet_result_is_a_sequence_of_its_results():
    fleet = quick_fleet(CIRCUIT, TRAIN, [Run(seed=s, label=f"run {s}") for s in range(3)], valid=VALID, epochs=2)
    assert isinstance(fleet, FleetResult)
    assert len(fleet) == 3
    assert [result.run.label for result in fleet] == ["run 0", "run 1", "run 2"]
    assert fleet[-1] is fleet.results[2]
    assert fleet[:2] == fleet.results[:2]
    assert fleet.best() is max(fleet, key=lambda result: result.valid_ll)
    assert fleet.best(by="train_ll") is max(fleet, key=lambda result: result.train_ll)
    assert all(isinstance(result.model, Model) for result in fleet)


def test_the_best_needs_scores_to_go_by():
    fleet = quick_fleet(CIRCUIT, TRAIN, [Run()], epochs=1)
    with pytest.raises(OptionError, match="by='valid_ll', but the fleet was trained without these rows"):
        fleet.best()
    with pytest.raises(OptionError, match="by must be 'train_ll', 'valid_ll' or 'test_ll', not 'seconds'"):
        fleet.best(by="seconds")


def test_runs_agree_in_single_precision_too():
    options = {"valid": VALID, "batch_size": 20, "epochs": 4, "precision": "float32"}
    fleet = quick_fleet(CIRCUIT, TRAIN, RUNS[:9], **options)
    for run, found in zip(RUNS, fleet, strict=False):
        assert found.model.dtype == torch.float32
        assert found.train_ll == pytest.approx(quick_fleet(CIRCUIT, TRAIN, [run], **options)[0].train_ll, rel=1e-4)
