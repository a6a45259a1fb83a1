"""What answers look like when they are printed."""

import numpy as np
import pytest

from circurve.queries.questions import Completion, Estimate


@pytest.mark.parametrize(
    ("bound", "exact", "expected"),
    [
        ([-1.0], [True], "<Completion: 1 row, exact>"),
        ([-1.0, -2.0], [True, True], "<Completion: 2 rows, exact>"),
        ([-0.75], [False], "<Completion: 1 row, not exact; log p at most 0.25 below the optimum>"),
        ([-1.0, -1.5], [True, False], "<Completion: 2 rows, 1 of them exact; log p at most 0.5 below the optimum>"),
    ],
)
def test_a_completion_says_how_good_it_is(bound, exact, expected):
    log_prob = np.array([-1.0, -2.0])[: len(bound)]
    assert repr(Completion(None, log_prob, np.array(bound), np.array(exact))) == expected


def test_an_estimate_says_how_certain_it_is():
    assert repr(Estimate(1.0986122, 0.0, True)) == "<Estimate: 1.099, exact>"
    assert repr(Estimate(0.98764, 0.00512, False)) == "<Estimate: 0.9876 ± 0.005>"
    runs = Estimate(np.array([1.0, 2.0]), np.array([0.1, 0.2]), False)
    assert repr(runs) == "<Estimate: 1 ± 0.1, 2 ± 0.2>"
