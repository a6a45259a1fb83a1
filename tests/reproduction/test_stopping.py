"""Rules that stop without validation rows, on histories made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from circurve.reproduction.studies import (
    RULES,
    History,
    first_rise,
    last_epoch,
    penalised_likelihood,
    smallest_trace,
    stopped_scores,
)


def history(trace: list[float], train: list[float] | None = None, rows: int = 10) -> History:
    return History(train or [0.0] * len(trace), trace, rows)


@pytest.mark.parametrize(
    ("trace", "epoch"),
    [([5, 4, 3, 4, 1], 2), ([5, 4, 3, 2], 3), ([1, 2, 3], 2), ([1, 2, 1, 0.5, 0.7, 0.1], 3)],
)
def test_the_first_rise_counts_only_after_a_fall(trace: list[float], epoch: int) -> None:
    assert first_rise(history(trace)) == epoch


def test_the_smallest_trace_is_looked_for_after_a_tenth_of_the_epochs() -> None:
    assert smallest_trace(history([0.1, 0.2, *[5.0] * 10, 3.0, *[4.0] * 7])) == 12
    assert smallest_trace(history([3, 1, 2])) == 1


def test_the_penalised_likelihood_weighs_the_trace_by_the_rows() -> None:
    trace, train = [0.0, 20.0, 200.0], [-10.0, -8.0, -7.0]
    assert penalised_likelihood(history(trace, train, rows=10)) == 1  # -10, -9, -17
    assert penalised_likelihood(history(trace, train, rows=10**6)) == 2
    assert penalised_likelihood(history(trace, train, rows=1)) == 0
    assert last_epoch(history(trace)) == 2


def record(**changes: Any) -> dict[str, Any]:
    told = {"train_ll": [-9.0, -8.0, -7.0], "sharpness": [3.0, 2.0, 4.0], "test_ll": [-9.5, -8.5, -9.0]}
    return {"history": {**told, **changes}, "settings": {"rows": 10}, "best": {"test_ll": -8.5}}


def test_scores_are_those_of_the_epoch_of_each_rule() -> None:
    found = stopped_scores(record())
    assert set(found) == {*RULES, "validation"}
    assert found["last epoch"] == -9.0
    assert found["first rise of the trace"] == found["smallest trace"] == found["validation"] == -8.5


def test_a_history_that_is_not_known_has_no_scores() -> None:
    assert stopped_scores(record(sharpness=[None, 2.0, 4.0])) == {}
