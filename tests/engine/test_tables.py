"""Sums over discrete inputs, tabulated by state, against the same sums sample by sample."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

import circurve as cc
from circuits import ALL, Case, Samples, all_sums, assert_close, cases
from circurve.data import prepare
from circurve.engine import Batch, Engine, Params, compile, log_prob, stack, statistics
from circurve.learning.initialize import initial_params


def fleet(rows: np.ndarray, runs: int = 1, **options: object) -> tuple[list[Engine], Params, Samples]:
    """The same HCLT without and with tables, random parameters, and the rows as samples."""
    circuit = cc.hclt(rows, units=3)
    program = compile(circuit)
    table = prepare(cc.Examples(rows, **options), circuit, "train")
    params = stack([initial_params(program, seed, table) for seed in range(runs)])
    engines = [Engine(program, runs, torch.device("cpu"), torch.float64, tables=tables) for tables in (False, True)]
    return engines, params, Samples(table, torch.float64)


def compare(engines: list[Engine], params: Params, batches: list) -> None:
    assert engines[1].tabulated, "nothing was tabulated"
    plain, tabled = (statistics(engine, params, batches, ALL) for engine in engines)
    for found, wanted in zip(all_sums(tabled), all_sums(plain), strict=True):
        assert_close(found, wanted)
    for batch in batches:
        assert_close(log_prob(engines[1], params, batch), log_prob(engines[0], params, batch))


@pytest.mark.parametrize("states", [2, 3, 7])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_tabulated_sums_equal_sums_by_sample(states: int, missing: bool, weighted: bool):
    random = np.random.default_rng(states)
    rows = random.integers(0, states, (40, 6)).astype(float)
    rows[0] = states - 1
    if missing:
        rows[random.random(rows.shape) < 0.3] = np.nan
        rows[0] = states - 1
    weights = random.random(40) * (random.random(40) < 0.8) + (np.arange(40) == 0) if weighted else None
    engines, params, samples = fleet(rows, weights=weights)
    compare(engines, params, [samples.rows(0, 25), samples.rows(25, 40)])


def test_batches_with_and_without_missing_values_add_up():
    rows = np.random.default_rng(0).integers(0, 2, (30, 5)).astype(float)
    engines, params, whole = fleet(rows)
    rows[20:] = np.where(np.random.default_rng(1).random((10, 5)) < 0.5, np.nan, rows[20:])
    _, _, holed = fleet(rows)
    compare(engines, params, [whole.rows(0, 20), holed.rows(20, 30)])
    compare(engines, params, [holed.rows(20, 30), whole.rows(0, 20)])


def test_a_fleet_with_rows_of_its_own_for_each_run():
    rows = np.random.default_rng(0).integers(0, 3, (30, 5))
    engines, params, samples = fleet(rows, runs=3)
    orders = torch.stack([torch.randperm(30, generator=torch.Generator().manual_seed(s))[:12] for s in range(3)])
    compare(engines, params, [samples.pick(orders), samples.rows(0, 30)])


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_any_circuit_has_the_same_sums_with_tables(case: Case):
    engine = Engine(case.program, 1, torch.device("cpu"), torch.float64, case.careful, tables=True)
    samples = case.samples()
    found = statistics(engine, case.params, [samples.rows(0, len(samples))], ALL)
    for tabled, plain in zip(all_sums(found), all_sums(case.statistics()), strict=True):
        assert_close(tabled, plain)


def test_a_state_that_every_unit_excludes_is_impossible_and_gives_no_nan():
    node = cc.Input(0, cc.Bernoulli(), 2)
    circuit = cc.Circuit(cc.Sum(cc.Product([cc.Sum(node, 2), cc.Input(1, cc.Bernoulli(), 2)])))
    model = cc.Model.from_parameters(circuit, inputs={node: [[0.0], [0.0]], circuit.inputs[1]: [[0.3], [0.6]]})
    engine = model.engine(tables=True)
    assert engine.tabulated
    rows = np.array([[0, 1], [1, 1]])
    batch = Batch.rows(prepare(rows, circuit, "train"), 0, 2, torch.float64)
    sums = statistics(engine, model.params, [batch], ALL)
    assert int(sums.impossible[0]) == 1
    assert all(bool(torch.isfinite(total).all()) for total in all_sums(sums))
    assert model.log_prob(rows)[1] == -np.inf


def test_a_sum_over_two_inputs_of_one_variable_is_left_alone():
    inputs = [cc.Input(0, cc.Bernoulli(), 1), cc.Input(0, cc.Bernoulli(), 1)]
    circuit = cc.Circuit(cc.Sum(inputs))
    model = cc.Model.from_parameters(circuit, inputs={inputs[0]: [[0.2]], inputs[1]: [[0.6]]})
    assert not model.engine(tables=True).tabulated
    np.testing.assert_allclose(np.exp(model.log_prob([[1], [0]])), [0.4, 0.6])


def test_masked_careful_and_continuous_layers_are_left_alone():
    rows = np.random.default_rng(0).normal(size=(20, 4))
    program = compile(cc.hclt(rows, units=2))
    assert not Engine(program, 1, torch.device("cpu"), torch.float64, tables=True).tabulated
    binary = compile(cc.hclt((rows > 0).astype(int), units=2))
    assert not Engine(binary, 1, torch.device("cpu"), torch.float64, careful=True, tables=True).tabulated
