"""mu="auto", a Grid and gate="auto": all candidates are trained, and the best by validation likelihood is kept."""

import warnings

import numpy as np
import pytest
from learning_helpers import assert_same_model, binary_rows, quick, quick_fleet, small_circuit

from circurve import CircurveWarning, Examples, Gated, Global, Grid, Run, Vanilla, gates
from circurve.learning import auto
from circurve.learning.auto import MU_GRID

pytestmark = pytest.mark.filterwarnings("ignore:.*mu='auto' chose")

TRAIN, VALID, TEST = binary_rows(20, noise=0.25), binary_rows(80, noise=0.25)[20:], binary_rows(120, noise=0.25)[80:]
CIRCUIT = small_circuit(TRAIN)
OPTIONS = {"valid": VALID, "test": TEST, "batch_size": None, "epochs": 8}


def assert_best_of_its_path(result) -> None:
    assert result.valid_ll == max(candidate.valid_ll for candidate in result.path)
    assert any(result.model is candidate.model for candidate in result.path)


def assert_chosen_by_the_rule(result, valid, weights=None) -> None:
    """Plain EM unless the best is better by more than one standard error of the weighted mean of paired differences."""
    best = max(result.path, key=lambda candidate: candidate.valid_ll)
    plain = next(candidate for candidate in result.path if candidate.run.method.mu == 0)
    difference = best.model.log_prob(valid) - plain.model.log_prob(valid)
    weights = np.ones(len(valid)) if weights is None else np.asarray(weights)
    mean = np.average(difference, weights=weights)
    error = np.sqrt(np.sum(weights**2 * (difference - mean) ** 2)) / weights.sum()
    wanted = plain if mean <= error else best
    assert result.model is wanted.model
    assert result.run == wanted.run


@pytest.mark.parametrize("method", [Global, Gated])
def test_mu_auto_tries_the_whole_grid(method):
    result = quick(CIRCUIT, TRAIN, method=method("auto", pseudocount=0.1), seed=3, **OPTIONS)
    assert [candidate.run.method.mu for candidate in result.path] == list(MU_GRID.values)
    assert result.run.method.mu in MU_GRID.values
    assert all(candidate.run.method.pseudocount == 0.1 and candidate.run.seed == 3 for candidate in result.path)
    assert_chosen_by_the_rule(result, VALID)
    assert all(candidate.path == () for candidate in result.path)


def test_the_candidates_differ_and_the_strength_of_the_best_is_reported():
    result = quick(CIRCUIT, TRAIN, method=Global("auto"), **OPTIONS)
    scores = [candidate.valid_ll for candidate in result.path]
    assert len(set(scores)) == len(scores)
    assert_chosen_by_the_rule(result, VALID)


def test_each_candidate_equals_the_same_run_alone():
    result = quick(CIRCUIT, TRAIN, method=Global(Grid((0.0, 0.02, 0.5))), **OPTIONS)
    for mu, candidate in zip((0.0, 0.02, 0.5), result.path, strict=True):
        alone = quick(CIRCUIT, TRAIN, method=Global(mu), **OPTIONS)
        assert_same_model(candidate, alone, 1e-10)
        assert candidate.test_ll == pytest.approx(alone.test_ll, rel=1e-10)


def test_gate_auto_tries_every_gate_but_the_one_that_is_global():
    result = quick(CIRCUIT, TRAIN, method=Gated(0.1, gate="auto"), **OPTIONS)
    tried = [candidate.run.method.gate for candidate in result.path]
    assert tried == [gate for gate in gates.GATES.values() if gate is not gates.ones]
    assert_best_of_its_path(result)


def test_mu_and_gate_are_chosen_together():
    result = quick(CIRCUIT, TRAIN, method=Gated(Grid((0.01, 0.1)), gate="auto"), **OPTIONS)
    pairs = {(candidate.run.method.mu, candidate.run.method.gate) for candidate in result.path}
    assert len(pairs) == len(result.path) == 2 * (len(gates.GATES) - 1)
    assert_best_of_its_path(result)


def test_a_fleet_may_mix_runs_that_choose_with_runs_that_do_not():
    runs = [Run(Vanilla()), Run(Global(Grid((0.01, 0.1))), seed=1), Run(Gated(0.1)), Run(Gated(Grid((0.2,))), seed=2)]
    fleet = quick_fleet(CIRCUIT, TRAIN, runs, **OPTIONS)
    assert [len(result.path) for result in fleet] == [0, 2, 0, 1]
    assert [result.run.seed for result in fleet] == [0, 1, 0, 2]
    for result, run in ((fleet[0], runs[0]), (fleet[2], runs[2])):
        assert_same_model(result, quick_fleet(CIRCUIT, TRAIN, [run], **OPTIONS)[0], 1e-10)
    assert_best_of_its_path(fleet[1])


def test_a_choice_also_works_with_the_last_epoch_and_patience():
    result = quick(CIRCUIT, TRAIN, method=Global(Grid((0.0, 0.1))), select="last", patience=2, **OPTIONS)
    assert all(candidate.epoch == len(candidate.history) for candidate in result.path)
    assert_best_of_its_path(result)


def test_the_grid_of_auto_spans_the_papers_strengths():
    assert MU_GRID.values == tuple(sorted(set(MU_GRID.values)))
    assert MU_GRID.values[0] == 0
    assert MU_GRID.values[1] <= 1e-4
    assert MU_GRID.values[-1] >= 1.0


def test_plain_em_wins_a_tie_and_loses_what_is_no_tie():
    few, many = binary_rows(24, noise=0.25)[20:], binary_rows(4000, noise=0.25)[20:]
    options = {**OPTIONS, "epochs": 30, "select": "last"}
    chosen = {}
    for name, valid in (("few", few), ("many", many)):
        result = quick(CIRCUIT, TRAIN, method=Global("auto"), **{**options, "valid": valid})
        assert_chosen_by_the_rule(result, valid)
        assert result.run.method.mu == 0 or result.valid_ll == max(c.valid_ll for c in result.path)
        chosen[name] = result
    assert chosen["few"].run.method.mu == 0
    assert max(c.valid_ll for c in chosen["few"].path) > chosen["few"].valid_ll  # and yet it was not the best
    assert chosen["many"].run.method.mu > 0


def test_weights_and_labels_of_the_validation_rows_count():
    weights = np.linspace(0, 3, len(VALID))
    valid = Examples(VALID, weights=weights)
    result = quick(CIRCUIT, TRAIN, method=Global("auto"), **{**OPTIONS, "valid": valid})
    assert_chosen_by_the_rule(result, VALID, weights)


def test_a_grid_of_ones_own_gives_the_best_without_ties():
    result = quick(CIRCUIT, TRAIN, method=Global(Grid(MU_GRID.values)), **OPTIONS)
    assert_best_of_its_path(result)


def test_gate_auto_tries_plain_em_once():
    result = quick(CIRCUIT, TRAIN, method=Gated("auto", gate="auto"), **{**OPTIONS, "epochs": 2})
    plain = [candidate for candidate in result.path if candidate.run.method.mu == 0]
    assert len(plain) == 1
    assert len(result.path) == 1 + (len(MU_GRID.values) - 1) * (len(gates.GATES) - 1)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ((0.0, 0.001, 0.02), r"mu='auto' chose 0\.02, the largest strength .*: try mu=Grid\(\(0\.02, 0\.06, 0\.2\)\)"),
        ((0.0, 0.1, 1.0), r"chose 0\.1, the smallest positive strength .*: try mu=Grid\(\(0\.01, 0\.03, 0\.1\)\)"),
    ],
)
def test_a_choice_at_the_edge_of_the_grid_warns(grid, message, monkeypatch):
    monkeypatch.setattr(auto, "MU_GRID", Grid(grid))
    valid = binary_rows(4000, noise=0.25)[20:]
    options = {**OPTIONS, "valid": valid, "epochs": 30, "select": "last"}
    with pytest.warns(CircurveWarning, match=message):
        quick(CIRCUIT, TRAIN, method=Global("auto"), **options)


def test_plain_em_is_no_edge():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CircurveWarning)
        few = binary_rows(24, noise=0.25)[20:]
        result = quick(
            CIRCUIT, TRAIN, method=Global("auto"), **{**OPTIONS, "epochs": 30, "select": "last", "valid": few}
        )
    assert result.run.method.mu == 0
