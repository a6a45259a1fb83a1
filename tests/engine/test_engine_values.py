"""Values: every unit of random circuits against the definitions, and probabilities that add up to one."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings

from circuits import SUPPORT, Case, Truth, assert_close, cases
from circurve.engine.numerics import IMPOSSIBLE
from shapes import SHAPES, case_of

many = settings(max_examples=120, deadline=None)
some = settings(max_examples=30, deadline=None)

GRID = np.arange(-16, 16, 0.25)
"""Dense enough that a sum over it integrates Gaussians of variance >= 0.3 to rounding (error exp(-2 pi^2 v / h^2))."""

POINTS = {**SUPPORT, "count": tuple(range(60)), "real": tuple(GRID)}
VOLUME = {"binary": 1.0, "ternary": 1.0, "count": 1.0, "real": 0.25}


def log_outputs(case: Case, x: np.ndarray | None = None) -> torch.Tensor:  # (outputs, N)
    case = case if x is None else case.with_x(x)
    return case.backend().log_prob(case.params, case.samples().rows(0, len(case.x)))[0]


@given(case=cases())
@many
def test_every_unit_has_the_value_of_its_definition(case):
    check_all_units(case)


@given(case=cases(zeros=True))
@many
def test_every_unit_has_the_value_of_its_definition_with_exact_zeros(case):
    check_all_units(case)


def check_all_units(case):
    samples = case.samples().rows(0, len(case.x))
    blocks = case.backend().upward(case.params, samples).values.blocks
    truth, rows, space = Truth.of(case), case.rows(), case.program.values
    for node, value in truth.value.items():
        block = int(space.block_of(rows[node][:1])[0])
        found = blocks[block][0, torch.from_numpy(rows[node] - space.starts[block])]
        assert (found[value == 0] < IMPOSSIBLE).all(), node
        assert_close(found[value > 0], value[value > 0].log())


@given(case=cases(domains=("binary", "ternary")))
@some
def test_probabilities_of_all_states_sum_to_one(case):
    states = np.array(list(itertools.product(*(SUPPORT[d] for d in case.domains))), dtype=float)
    assert_close(log_outputs(case, states).exp().sum(-1), torch.ones(case.circuit.outputs).double())


@given(case=cases(variables=2, depth=3))
@some
def test_densities_integrate_to_one(case):
    assume("real" in case.domains)
    points = np.array(list(itertools.product(*(POINTS[d] for d in case.domains))))
    volume = np.prod([VOLUME[d] for d in case.domains])
    assert_close(log_outputs(case, points).exp().sum(-1) * volume, torch.ones(case.circuit.outputs).double())


@given(case=cases(variables=4, depth=3, missing=False, samples=4))
@some
def test_a_missing_value_is_summed_or_integrated_out(case):
    hidden = range(min(2, len(case.domains)))
    holes = case.x.copy()
    holes[:, list(hidden)] = np.nan
    points = np.array(list(itertools.product(*(POINTS[case.domains[v]] for v in hidden))))  # (M, hidden)
    full = np.repeat(case.x, len(points), axis=0)  # (N x M, V)
    full[:, list(hidden)] = np.tile(points, (len(case.x), 1))
    volume = np.prod([VOLUME[case.domains[v]] for v in hidden])
    summed = log_outputs(case, full).exp().view(-1, len(case.x), len(points)).sum(-1) * volume
    assert_close(log_outputs(case, holes).exp(), summed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SHAPES)
def test_every_unit_of_a_special_shape_has_the_value_of_its_definition(name, seed):
    case = case_of(name, seed)
    check_all_units(case)
    assert_close(log_outputs(case), Truth.of(case).outputs.log())
