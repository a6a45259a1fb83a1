"""mu="auto", a Grid and gate="auto": all candidates are trained, and the best by validation likelihood is kept."""

import pytest
from learning_helpers import assert_same_model, binary_rows, quick, quick_fleet, small_circuit

from circurve import Gated, Global, Grid, Run, Vanilla, gates
from circurve.learning.auto import MU_GRID

TRAIN, VALID, TEST = binary_rows(20, noise=0.25), binary_rows(80, noise=0.25)[20:], binary_rows(120, noise=0.25)[80:]
CIRCUIT = small_circuit(TRAIN)
OPTIONS = {"valid": VALID, "test": TEST, "batch_size": None, "epochs": 8}


def assert_best_of_its_path(result) -> None:
    assert result.valid_ll == max(candidate.valid_ll for candidate in result.path)
    assert any(result.model is candidate.model for candidate in result.path)


@pytest.mark.parametrize("method", [Global, Gated])
def test_mu_auto_tries_the_whole_grid(method):
    result = quick(CIRCUIT, TRAIN, method=method("auto", pseudocount=0.1), seed=3, **OPTIONS)
    assert [candidate.run.method.mu for candidate in result.path] == list(MU_GRID.values)
    assert result.run.method.mu in MU_GRID.values
    assert all(candidate.run.method.pseudocount == 0.1 and candidate.run.seed == 3 for candidate in result.path)
    assert_best_of_its_path(result)
    assert all(candidate.path == () for candidate in result.path)


def test_the_candidates_differ_and_the_strength_of_the_best_is_reported():
    result = quick(CIRCUIT, TRAIN, method=Global("auto"), **OPTIONS)
    scores = [candidate.valid_ll for candidate in result.path]
    assert len(set(scores)) == len(scores)
    assert result.run.method.mu == MU_GRID.values[scores.index(max(scores))]


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
    assert MU_GRID.values[0] <= 1e-4
    assert MU_GRID.values[-1] >= 1.0
