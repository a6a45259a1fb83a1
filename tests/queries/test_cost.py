"""How many passes questions take, in parts of any size, on shapes that are awkward to walk, and on a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from world import evidence_of, on_grid, target_of

import circurve as cc
from circurve.data import as_table, check
from circurve.engine import Batch, Params, Program, choose_backend, compile
from circurve.learning.initialize import initial_params
from circurve.queries import (
    Evidence,
    Target,
    conditional,
    covariance,
    distribution,
    explain,
    make_evidence,
    marginal,
    mean_and_variance,
    modes,
    most_probable,
    sample,
)
from shapes import SHAPES, case_of


class Counting:
    """A backend that counts the rows of its upward passes."""

    def __init__(self, program: Program, params: Params) -> None:
        self.inner, self.rows = choose_backend(program, params), 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def log_prob(self, params: Params, batch: Batch) -> torch.Tensor:
        self.rows += batch.size
        return self.inner.log_prob(params, batch)


def hidden_tree(variables: int = 16, units: int = 100, rows: int = 500) -> tuple[Target, np.ndarray]:
    rng = np.random.default_rng(0)
    data = (rng.random((rows, variables)) < rng.random((rows, 1))).astype(np.int64)
    circuit = cc.hclt(data, units=units)
    program = compile(circuit)
    params = initial_params(program, 0, check(as_table(data), circuit.families)).to(dtype=torch.float32)
    return Target(program, params, Counting(program, params)), data


def test_ten_thousand_conditionals_take_two_upward_passes() -> None:
    target, data = hidden_tree()
    rng = np.random.default_rng(1)
    rows = data[rng.integers(0, len(data), 10_000)]
    evidence = make_evidence(target, check(as_table(rows), target.program.circuit.families))
    column = rng.integers(0, rows.shape[1], len(rows))
    asked_cells = torch.zeros_like(evidence.observed)
    asked_cells[0, column, np.arange(len(rows))] = 1
    asked = Evidence(evidence.x, asked_cells)
    given = Evidence(evidence.x, evidence.observed - asked_cells)
    assert bool((given.batch().x[asked_cells > 0] == 0).all())  # as the backends demand of missing values
    found = conditional(target, asked, given)
    assert target.backend.rows == 2 * len(rows)
    some = slice(0, 50)
    states = [(given.rows(some), c) for c in range(rows.shape[1])]
    for part, c in states:
        chosen = torch.from_numpy(column[some] == c)
        if bool(chosen.any()):
            probability = distribution(target, c, part.rows(chosen.nonzero()[:, 0])).probability[0]
            own = torch.from_numpy(rows[some][chosen.numpy(), c])
            wanted = probability.gather(1, own[:, None])[:, 0].log()
            torch.testing.assert_close(found[0, some][chosen].double(), wanted, rtol=1e-3, atol=1e-4)


def test_a_fleet_is_asked_in_the_passes_of_one_model() -> None:
    x = np.random.default_rng(0).integers(0, 2, (200, 5))
    runs = [cc.Run(seed=seed) for seed in range(4)]
    models = cc.fit_fleet(cc.hclt(x, 3), x, runs, epochs=1, progress=False, valid=False).models
    models.backend = Counting(models.program, models.params)
    assert models.conditional({0: 1}, {1: x[:, 1].tolist()}).shape == (4, 200)
    assert models.backend.rows == 2 * 200
    assert models.log_prob(x).shape == (4, 200)
    assert models.backend.rows == 3 * 200


def test_parts_of_any_size_give_the_same_answers() -> None:
    target, data = hidden_tree(variables=6, units=4, rows=40)
    x = data.astype(float)
    x[np.random.default_rng(2).random(x.shape) < 0.4] = np.nan
    evidence = make_evidence(target, check(as_table(x), target.program.circuit.families))
    small = replace(target, memory_budget=3 * target.reference.bytes_per_sample(backward=True))
    for ask in (mean_and_variance, lambda t, e: (covariance(t, e), modes(t, e), most_probable(t, e).log_prob)):
        for one, other in zip(ask(target, evidence), ask(small, evidence), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("given", [False, True])
def test_draws_on_awkward_shapes(name: str, given: bool) -> None:
    case = case_of(name)
    x = np.full((1, case.circuit.variables), np.nan)
    if given:
        x[0, 0] = 1
    labels = None if case.circuit.outputs == 1 else torch.tensor([case.circuit.outputs - 1])
    case = replace(case, x=x, labels=labels, sample_weights=None)
    target, count = target_of(case), 3000
    columns = list(range(case.circuit.variables))[-3:]
    _, mass = on_grid(case, 0, [c for c in columns if np.isnan(x[0, c])] or [0])
    share = (mass / mass.sum()).flatten()
    one = evidence_of(case, target)
    for found in (sample(target, one, count)[0, :, 0], sample(target, one.rows(torch.zeros(count).long()))[0, 0]):
        free = [c for c in columns if np.isnan(x[0, c])]
        if not free:
            assert (found == 1).all()
            continue
        code = torch.zeros(count, dtype=torch.int64)
        for c in free:
            code = 2 * code + found[:, c].long()
        counts = torch.bincount(code, minlength=len(share)).double()
        kept = share * count >= 5
        statistic = ((counts - share * count).square() / (share * count))[kept].sum()
        assert stats.chi2.sf(float(statistic), int(kept.sum())) > 1e-7


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_answers_on_a_gpu_are_those_of_a_cpu() -> None:
    target, data = hidden_tree(variables=8, units=6, rows=60)
    x = data.astype(float)
    x[np.random.default_rng(3).random(x.shape) < 0.4] = np.nan
    table = check(as_table(x), target.program.circuit.families)
    there = Target.of(target.program, target.params.to("cuda"))
    evidence, far = make_evidence(target, table), make_evidence(there, table)
    pairs = zip(mean_and_variance(target, evidence), mean_and_variance(there, far), strict=True)
    pairs = [*pairs, (covariance(target, evidence), covariance(there, far))]
    pairs += [(most_probable(target, evidence).log_prob, most_probable(there, far).log_prob)]
    pairs += [(explain(target, evidence).mean, explain(there, far).mean)]
    for here, other in pairs:
        torch.testing.assert_close(here.double(), other.double().cpu(), rtol=1e-3, atol=1e-3, equal_nan=True)
    wanted = mean_and_variance(target, evidence.rows(slice(0, 1)))[0][0, 0]
    for draws in (
        sample(there, far.rows(slice(0, 1)), 20_000),
        sample(there, far.rows(torch.zeros(20_000).long().cuda())),
    ):
        found = draws.reshape(20_000, -1).double().mean(0).cpu()
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.02)


def test_columns_that_are_hidden_from_evidence_are_summed_out_by_the_tree_backend() -> None:
    target, data = hidden_tree(variables=7, units=5)
    assert target.backend.name == "latent tree"
    table = check(as_table(data), target.program.circuit.families)
    some = make_evidence(target, table).hide([1, 4, 6])
    wanted = marginal(target.exact, some.to(torch.float64))
    torch.testing.assert_close(marginal(target, some).double(), wanted, rtol=1e-4, atol=1e-5)
