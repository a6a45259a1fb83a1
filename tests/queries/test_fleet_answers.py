"""Each run of a fleet answers as it does alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from torch import Tensor
from world import evidence_of, fleet, possible_rows, probability, target_of, with_gap

from circuits import Case, cases, random_parameters, random_weights
from circurve.queries import (
    Evidence,
    Target,
    covariance,
    distribution,
    entropy,
    explain,
    marginal,
    mean_and_variance,
    modes,
    most_probable,
)


def _shape_of(target: Target, given_rows: Evidence) -> list[Tensor]:
    found = distribution(target, 0, given_rows.hide([0]))
    return [found.mean(), found.variance(), found.quantile(0.3), found.density(torch.arange(3.0).double())]


ANSWERS: dict[str, Callable[[Target, Evidence], list[Tensor]]] = {
    "marginal": lambda target, rows: [marginal(target, rows)],
    "moments": lambda target, rows: list(mean_and_variance(target, rows)),
    "covariance": lambda target, rows: [covariance(target, rows)],
    "distribution": _shape_of,
    "modes": lambda target, rows: [modes(target, rows)],
    "completion": lambda target, rows: [most_probable(target, rows).log_prob, most_probable(target, rows).upper_bound],
    "explanation": lambda target, rows: [explain(target, rows).log_conditional, explain(target, rows).mean],
}


@pytest.mark.parametrize("ask", ANSWERS.values(), ids=ANSWERS)
@settings(max_examples=8, deadline=None)
@given(case=cases(samples=3))
def test_a_run_of_a_fleet_answers_as_it_does_alone(ask: Callable, case: Case) -> None:
    case = possible_rows(with_gap(case))
    assume(len(case.x) > 0)
    rng = np.random.default_rng(1)
    second = replace(
        case,
        weights={node: random_weights(node, False, rng) for node in case.circuit.sums},
        inputs={node: random_parameters(node, False, rng) for node in case.circuit.inputs},
    )
    assume(bool((probability(second, case.x, case.labels) > 0).all()))
    both = target_of(case, params=fleet(case, second))
    together = ask(both, evidence_of(case, both))
    for run, alone in enumerate((case, second)):
        target = target_of(alone)
        for one, all_runs in zip(ask(target, evidence_of(case, target)), together, strict=True):
            assert len(all_runs) == 2
            torch.testing.assert_close(all_runs[run], one[0], rtol=1e-7, atol=1e-8, equal_nan=True)


def test_information_of_a_fleet_is_that_of_its_runs(simple: Target) -> None:
    params = simple.params.map(lambda values: torch.cat([values, values.flip(1 if values.dim() < 3 else 2)]))
    both = replace(simple, params=params, backend=Target.of(simple.program, params).backend)
    for columns in ([0, 1], [3]):
        found = entropy(both, columns, 500)
        assert found.value.shape == (2,)
        torch.testing.assert_close(found.value[:1], entropy(simple, columns, 500).value)
