"""Entropy, mutual information, explanations and imputations against sums over all states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from world import evidence_of, missing_columns, on_grid, possible_rows, probability, target_of, with_gap

from circuits import Case, cases
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian
from circurve.queries import (
    IMPUTATIONS,
    Target,
    distribution,
    entropy,
    explain,
    impute,
    modes,
    most_probable,
    mutual_information,
    no_evidence,
)

DISCRETE = ("binary", "ternary")


def empty(case: Case) -> Case:
    return replace(case, x=np.full((1, case.circuit.variables), np.nan), sample_weights=None, labels=None)


@settings(max_examples=25, deadline=None)
@given(case=cases(zeros=True, roots=1, samples=1, domains=DISCRETE), data=st.data())
def test_entropy_and_mutual_information_by_enumeration(case: Case, data: st.DataObject) -> None:
    case, target = empty(case), target_of(case)
    columns = data.draw(st.permutations(range(target.variables)))
    cut = data.draw(st.integers(1, len(columns)))
    _, joint = on_grid(case, 0, columns)
    a = joint.flatten(cut).sum(-1) if cut < len(columns) else joint
    b = joint.flatten(0, cut - 1).sum(0)

    def nats(p: torch.Tensor) -> torch.Tensor:
        return -torch.special.xlogy(p, p).sum()

    found = entropy(target, columns[:cut])
    assert found.exact
    assert found.standard_error.tolist() == [0.0]
    torch.testing.assert_close(found.value[0], nats(a), rtol=1e-9, atol=1e-9)
    if cut < len(columns):
        shared = mutual_information(target, columns[:cut], columns[cut:])
        assert shared.exact
        torch.testing.assert_close(shared.value[0], nats(a) + nats(b) - nats(joint), rtol=1e-7, atol=1e-9)


def test_draws_estimate_what_cannot_be_enumerated(simple: Target) -> None:
    for found, again in (
        (entropy(simple, [0, 3], 4000), entropy(simple, [0, 3], 4000, seed=1)),
        (mutual_information(simple, [2], [3], 4000), mutual_information(simple, [2], [3], 4000, seed=1)),
    ):
        assert not found.exact
        error = (found.standard_error.square() + again.standard_error.square()).sqrt()
        assert (error > 0).all()
        assert ((found.value - again.value).abs() < 6 * error).all()
    one = entropy(simple, [3], 20_000)
    grid = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    p = distribution(simple, 3, no_evidence(simple)).density(grid)[0, 0]
    wanted = -torch.special.xlogy(p, p).sum() * 0.005
    assert abs(one.value[0] - wanted) < 6 * one.standard_error[0]


def test_information_refuses_wrong_columns(simple: Target) -> None:
    with pytest.raises(OptionError, match="column 2 is on both sides"):
        mutual_information(simple, [0, 1], [1])
    with pytest.raises(OptionError, match="at least one"):
        entropy(simple, [])
    with pytest.raises(OptionError, match="draws must be a whole number >= 2, not 1"):
        entropy(simple, [3], draws=1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-7), (torch.float32, 1e-4)])
@settings(max_examples=30, deadline=None)
@given(case=cases(zeros=True, samples=4))
def test_each_cell_is_explained_by_the_rest_of_its_row(dtype: torch.dtype, tolerance: float, case: Case) -> None:
    target = target_of(case, dtype)
    found = explain(target, evidence_of(case, target))
    for row in range(len(case.x)):
        for column in range(target.variables):
            parts = [part[0, row, column] for part in (found.log_conditional, found.mean, found.variance)]
            if np.isnan(case.x[row, column]):
                assert all(part.isnan() for part in parts)
                continue
            one = replace(
                case, x=case.x[row : row + 1].copy(), labels=None if case.labels is None else case.labels[row : row + 1]
            )
            whole = probability(one, one.x, one.labels)[0]
            one.x[0, column] = np.nan
            rest = probability(one, one.x, one.labels)[0]
            if rest == 0:
                assert all(part.isnan() for part in parts)
                continue
            torch.testing.assert_close(parts[0], (whole / rest).log(), rtol=tolerance, atol=tolerance)
            (grid,), mass = on_grid(one, 0, [column])
            points, share = torch.from_numpy(grid), mass / mass.sum()
            mean = (points * share).sum()
            torch.testing.assert_close(parts[1], mean, rtol=tolerance, atol=tolerance)
            spread = ((points - mean).square() * share).sum()
            torch.testing.assert_close(parts[2], spread, rtol=10 * tolerance, atol=10 * tolerance)


def test_an_outlier_is_explained_however_far_it_lies() -> None:
    """The flow of the unit that the rest of the row calls for is lost in rounding; the answer is not."""
    circuit = Circuit(Sum(Product([Input(0, Gaussian(), 2), Input(1, Bernoulli(), 2)])))
    real, binary = circuit.inputs if circuit.inputs[0].variable == 0 else circuit.inputs[::-1]
    case = Case(
        circuit,
        ("real", "binary"),
        {circuit.sums[0]: torch.tensor([[0.5, 0.5]], dtype=torch.float64)},
        {
            real: torch.tensor([[0.0, 1.0], [60.0, 1.0]], dtype=torch.float64),
            binary: torch.tensor([[1 - 1e-9], [1e-9]], dtype=torch.float64),
        },
        np.array([[60.0, 1.0], [0.0, 1.0]]),
    )
    for dtype in (torch.float64, torch.float32):
        target = target_of(case, dtype)
        found = explain(target, evidence_of(case, target)).log_conditional[0, :, 0]
        wanted = np.log([1e-9, 1 - 1e-9]) - 0.5 * np.log(2 * np.pi)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6 if dtype == torch.float64 else 1e-2)


@settings(max_examples=15, deadline=None)
@given(case=cases(zeros=True, samples=3, domains=DISCRETE))
def test_modes_are_the_most_probable_states_of_single_columns(case: Case) -> None:
    case = possible_rows(with_gap(case))
    assume(len(case.x) > 0)
    target = target_of(case)
    evidence = evidence_of(case, target)
    found = modes(target, evidence)
    for row in range(len(case.x)):
        for column in missing_columns(case, row):
            (grid,), mass = on_grid(case, row, [column])
            own = mass[list(grid).index(float(found[0, row, column]))]
            assert own >= mass.max() * (1 - 1e-9)
    for how in IMPUTATIONS:
        filled = impute(target, evidence, how, seed=3)
        assert filled.shape == (1, 1, *case.x.shape)
        known = torch.from_numpy(~np.isnan(case.x))
        assert torch.equal(filled[0, 0].double()[known], torch.from_numpy(case.x)[known])
    assert torch.equal(impute(target, evidence, "mode")[:, 0], found)
    assert torch.equal(impute(target, evidence, "most_probable")[:, 0], most_probable(target, evidence).values)
    assert impute(target, evidence, "sample", draws=3).shape == (1, 3, *case.x.shape)


def test_imputation_refuses_what_has_no_effect(simple: Target) -> None:
    with pytest.raises(OptionError, match="how must be one of mean, mode, most_probable, sample, not 'median'"):
        impute(simple, no_evidence(simple), "median")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="draws=3 has no effect with how='mean'"):
        impute(simple, no_evidence(simple), "mean", draws=3)
