"""Scores that workers compute together: the parts of all workers add up to the scores of one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from learning_helpers import binary_rows, small_circuit

import circurve as cc
from circurve.data import prepare_source
from circurve.engine import Batch, choose_backend, compile, stack
from circurve.learning import parallel, steps_choice
from circurve.learning.initialize import initial_params
from circurve.learning.score import log_likelihood_sums, mean_log_likelihood

ROWS = binary_rows(23)
CIRCUIT = small_circuit(ROWS)


def source(kind: str):
    """The same rows as a table, with weights, as a mapped array and as batches."""
    if kind == "weighted":
        return prepare_source(ROWS, CIRCUIT, "valid", weights=np.linspace(0, 2, len(ROWS)))
    given = {"table": ROWS, "rows": cc.open_stream(ROWS), "batches": cc.open_stream([ROWS[:9], ROWS[9:]])}
    return prepare_source(given[kind], CIRCUIT, "valid")


def fleet():
    """A backend and the parameters of two runs."""
    program = compile(CIRCUIT)
    params = stack([initial_params(program, seed, source("table")) for seed in range(2)])
    return choose_backend(program, params), params


def shares(monkeypatch, table, workers: int, chunk: int = 4) -> list[torch.Tensor]:
    """What each worker gives to the all-reduce, (2, R) each."""
    given: list[torch.Tensor] = []
    backend, params = fleet()
    monkeypatch.setattr(parallel, "workers", lambda: workers)
    monkeypatch.setattr(parallel.dist, "all_reduce", lambda sums: given.append(sums.clone()))
    for number in range(workers):
        monkeypatch.setattr(parallel, "worker", lambda number=number: number)
        parallel.shared_sums(backend, params, table, chunk)
    return given


@pytest.mark.parametrize("kind", ["table", "weighted", "rows"])
@pytest.mark.parametrize("workers", [2, 3, 40])
def test_parts_add_up_to_the_score_of_one_process(kind, workers, monkeypatch):
    table, (backend, params) = source(kind), fleet()
    given = shares(monkeypatch, table, workers)
    total, weight = sum(given)
    alone = backend.log_prob(params, Batch.rows(table, 0, len(table), params.dtype))[:, 0]  # (R, N)
    weights = torch.ones(len(ROWS)) if table.weights is None else table.weights
    expected = (alone.double() * weights).sum(-1) / weights.sum()
    torch.testing.assert_close(total / weight, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(mean_log_likelihood(backend, params, table, 5), expected, rtol=1e-6, atol=0)


def test_no_worker_scores_more_than_its_part(monkeypatch):
    weights = [int(sums[1, 0]) for sums in shares(monkeypatch, source("table"), 5)]
    assert sum(weights) == len(ROWS)
    assert max(weights) - min(weights) <= 1


def test_rows_with_values_that_training_never_saw_count_once(monkeypatch):
    """Such a value has log-probability -inf: the part that holds it says so, and the sum does."""
    rows = ROWS.astype(float)
    rows[20, 1] = 7
    with pytest.warns(cc.CircurveWarning, match="not seen in training"):
        table = prepare_source(rows, CIRCUIT, "valid", schema=source("table").schema, unseen="impossible")
    given = shares(monkeypatch, table, 2)
    assert given[0].isfinite().all()
    assert given[1][0].isneginf().all()


def test_batches_of_an_iterable_are_scored_by_every_worker(monkeypatch):
    table, (backend, params) = source("batches"), fleet()
    assert shares(monkeypatch, table, 2) == []
    torch.testing.assert_close(
        parallel.shared_sums(backend, params, table, 4),
        log_likelihood_sums(backend, params, source("table"), 4),
    )


def test_a_score_after_an_interrupt_waits_for_no_other_worker(monkeypatch):
    backend, _ = fleet()
    assert steps_choice.scorer_for(backend, None, alone=False).sums is log_likelihood_sums
    monkeypatch.setattr(steps_choice, "workers", lambda: 2)
    assert steps_choice.scorer_for(backend, None, alone=False).sums is parallel.shared_sums
    assert steps_choice.scorer_for(backend, None, alone=True).sums is log_likelihood_sums
