"""Bad evidence is refused with a message that names row and column; impossible evidence is an error, never NaN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from world import target_of

from circuits import Shape, with_parameters
from circurve.data import as_table, check
from circurve.engine import stack
from circurve.errors import DataError, OptionError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Indicator
from circurve.queries import (
    Target,
    conditional,
    covariance,
    distribution,
    explain,
    impute,
    make_evidence,
    mean,
    modes,
    most_probable,
    no_evidence,
    sample,
    sampling,
)
from circurve.queries.evidence import Evidence

NAN = np.nan


def evidence(target: Target, rows: list[list[float]], **soft: object) -> Evidence:
    return make_evidence(target, check(as_table(np.array(rows)), target.program.circuit.families), **soft)


@pytest.fixture
def exclusive() -> Target:
    """Two columns that are always equal, and a third that is always 0."""
    equal = Product([Input(0, Indicator((0, 1)), 2), Input(1, Indicator((0, 1)), 2)])
    circuit = Circuit(Sum(Product([equal, Sum(Input(2, Indicator((0,))), 2)])))
    return target_of(with_parameters(circuit, ("binary",) * 3, Shape(samples=2), np.random.default_rng(0)))


QUESTIONS: dict[str, Callable[[Target, Evidence], object]] = {
    "mean": mean,
    "covariance": covariance,
    "modes": modes,
    "most probable": most_probable,
    "one draw": sample,
    "many draws": lambda target, given: sample(target, given, 100),
    "imputed": lambda target, given: impute(target, given, "sample"),
    "conditional": lambda target, given: conditional(target, no_evidence(target), given),
    "distribution": lambda target, given: distribution(target, 1, given.hide([1])),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_impossible_evidence_is_an_error_that_names_row_and_column(ask: Callable, exclusive: Target) -> None:
    rows = [[0, NAN, NAN]] * 300 + [[0, NAN, 1]]
    with pytest.raises(DataError, match=r"^row 301: column 3 = 1 has probability zero$"):
        ask(replace(exclusive, memory_budget=100_000), evidence(exclusive, rows))


@pytest.mark.parametrize("ask", [mean, most_probable, QUESTIONS["one draw"], QUESTIONS["many draws"]])
def test_contradictory_evidence_is_an_error(ask: Callable, exclusive: Target) -> None:
    with pytest.raises(DataError, match=r"^row 2: the evidence has probability zero$"):
        ask(exclusive, evidence(exclusive, [[1, 1, NAN], [0, 1, NAN]]))


def test_the_run_is_named_in_a_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = Circuit(Input(0, Bernoulli()))
    case = with_parameters(circuit, ("binary",), Shape(samples=2), np.random.default_rng(0))
    sure = replace(case, inputs={circuit.roots[0]: torch.tensor([[0.0]], dtype=torch.float64)})
    target = target_of(case, params=stack([case.params, sure.params]))
    with pytest.raises(DataError, match=r"^row 2, run 1: column 1 = 1 has probability zero$"):
        mean(target, evidence(target, [[0], [1]]))
    monkeypatch.setattr(sampling, "RUNS_AT_ONCE", 1)
    with pytest.raises(DataError, match=r"^row 2, run 1: column 1 = 1 has probability zero$"):
        sample(target, evidence(target, [[0], [1]]))


def test_impossible_rows_are_explained_not_refused(exclusive: Target) -> None:
    found = explain(exclusive, evidence(exclusive, [[0, 1, 0], [1, 1, 0]]))
    assert found.log_conditional[0, 0, 0] == -torch.inf
    assert found.mean[0, 0, 0] == 1
    assert found.log_conditional[0, 0, 2].isnan()  # the rest of the row is impossible already
    assert found.log_conditional[0, 1, 2] == 0


def test_names_of_columns_are_used(exclusive: Target) -> None:
    named = replace(exclusive, columns=("left", "right", "rest"))
    with pytest.raises(DataError, match=r"row 1: column 3 \('rest'\) = 1 has probability zero"):
        mean(named, evidence(named, [[NAN, NAN, 1]]))


def test_soft_evidence_is_checked(simple: Target) -> None:
    row = [[NAN, NAN, NAN, NAN]]
    for soft, message in (
        ({"likelihoods": {0: [1, 2, 3]}}, r"column 1: the likelihood has shape \(3,\).* each of the 2 states"),
        ({"likelihoods": {1: [1, -2, 3]}}, "column 2: likelihoods must be finite and >= 0"),
        ({"likelihoods": {3: [1.0]}}, "column 4 has no finite list of states: give an interval"),
        ({"intervals": {3: (2, 1)}}, "column 4, row 1: the interval from 2 to 1 has its ends in the wrong order"),
        ({"intervals": {3: (NAN, 1)}}, "column 4: an end of an interval is NaN"),
        ({"intervals": {3: ([0, 1], 2)}}, "column 4: each end of an interval is a number, or 1 of them by row"),
        ({"likelihoods": {1: [1, 1, 0]}, "intervals": {1: (0, 1)}}, "column 2 has both a likelihood and an interval"),
    ):
        with pytest.raises(DataError, match=message):
            evidence(simple, row, **soft)
    with pytest.raises(DataError, match="column 4, row 2: it has both a value and an interval"):
        evidence(simple, [*row, [0, 0, 0, 1.5]], intervals={3: (0, 1)})
    with pytest.raises(DataError, match="column 1, row 1: it has both a value and a likelihood or an interval"):
        evidence(simple, [[1, NAN, NAN, NAN]], likelihoods={0: [0.5, 0.2]})


def test_an_interval_without_states_is_impossible(simple: Target) -> None:
    nothing = evidence(simple, [[NAN] * 4], intervals={1: (0.2, 0.8)})
    with pytest.raises(DataError, match="row 1: what is given of column 2 has probability zero"):
        mean(simple, nothing)


def test_what_is_given_is_not_asked_for(simple: Target) -> None:
    known = evidence(simple, [[1, NAN, NAN, NAN], [NAN, NAN, NAN, NAN]])
    with pytest.raises(DataError, match="column 1, row 1: its value is given; leave it out"):
        distribution(simple, 0, known)
    with pytest.raises(DataError, match="column 1, row 1: this column is both asked for and given"):
        conditional(simple, known, known)
    with pytest.raises(DataError, match="there are 2 rows of one kind of evidence and 3 of the other"):
        conditional(simple, known, no_evidence(simple, 3))


def test_options_are_checked(simple: Target) -> None:
    with pytest.raises(OptionError, match="draws must be a whole number >= 1, not 0"):
        sample(simple, no_evidence(simple), 0)
    with pytest.raises(OptionError, match="seed must be a whole number >= 0, not -1"):
        sample(simple, no_evidence(simple), seed=-1)
    with pytest.raises(OptionError, match="level must be a number above 0 and below 1, not 1"):
        distribution(simple, 3, no_evidence(simple)).quantile(1)


def test_several_outputs_need_labels() -> None:
    leaf = Input(0, Bernoulli(), 2)
    case = with_parameters(Circuit([Sum(leaf), Sum(leaf)]), ("binary",), Shape(samples=2), np.random.default_rng(0))
    target = target_of(case)
    with pytest.raises(DataError, match="the circuit has 2 outputs: pass labels= to say which one to use"):
        no_evidence(target)
    with pytest.raises(DataError, match="the circuit has 2 outputs: pass labels= to say which one each row belongs to"):
        evidence(target, [[1.0]])
