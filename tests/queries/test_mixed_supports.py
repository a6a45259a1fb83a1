"""Columns whose inputs take different values: answers are those of a sum over all values that any of them takes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import circurve as cc

ROOT = np.array([0.3, 0.2, 0.1, 0.4])
COIN = np.array([0.2, 0.7, 0.6, 0.1])


def one_hot(values, size):
    return np.eye(size)[list(values)]


def binomial(p, size):
    table = np.zeros((2, size))
    table[:, :5] = [[_choose(4, x) * q**x * (1 - q) ** (4 - x) for x in range(5)] for q in p]
    return table


def _choose(n, k):
    return float(np.prod([(n - j) / (j + 1) for j in range(k)]))


KINDS = {
    "categorical": (cc.Categorical(3), [[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]),
    "wider": (cc.Categorical(7), np.random.default_rng(0).dirichlet(np.ones(7), 2)),
    "bernoulli": (cc.Bernoulli(), [[0.3], [0.8]]),
    "binomial": (cc.Binomial(4), [[0.3], [0.8]]),
    "indicator": (cc.Indicator((2, 6)), None),
}


def probabilities(name):
    """(2, 7), of each unit."""
    family, given = KINDS[name]
    if isinstance(family, cc.Indicator):
        return one_hot(family.values, 7)
    given = np.array(given)
    if isinstance(family, cc.Bernoulli):
        given = np.hstack([1 - given, given])
    if isinstance(family, cc.Binomial):
        return binomial(given[:, 0], 7)
    return np.pad(given, ((0, 0), (0, 7 - given.shape[1])))


def mixture(first, second):
    """A column of two families, and a coin that depends on it; and the table of both (7, 2)."""
    columns = [cc.Input(0, KINDS[name][0], units=2) for name in (first, second)]
    coins = [cc.Input(1, cc.Bernoulli(), units=2) for _ in columns]
    root = cc.Sum([cc.Product(list(pair)) for pair in zip(columns, coins, strict=True)])
    inputs = {coin: COIN[2 * k : 2 * k + 2, None] for k, coin in enumerate(coins)}
    inputs |= {c: KINDS[n][1] for c, n in zip(columns, (first, second), strict=True) if KINDS[n][1] is not None}
    table = np.einsum("u,us,uc->sc", ROOT, np.vstack([probabilities(first), probabilities(second)]), coin_table())
    return cc.Model.from_parameters(cc.Circuit(root), {root: [ROOT]}, inputs), table


def coin_table():
    return np.stack([1 - COIN, COIN], axis=1)


def entropy_of(table):
    p = table[table > 0]
    return -(p * np.log(p)).sum()


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(KINDS, 2)))
def test_entropy_and_information_are_sums_over_all_values(first, second):
    model, table = mixture(first, second)
    assert table.sum() == pytest.approx(1)
    both, column, coin = entropy_of(table), entropy_of(table.sum(1)), entropy_of(table.sum(0))
    assert model.entropy().value == pytest.approx(both, rel=1e-5)
    assert model.entropy([0]).value == pytest.approx(column, rel=1e-5)
    assert model.mutual_information([0], [1]).value == pytest.approx(column + coin - both, abs=1e-5)


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(KINDS, 2)))
def test_the_completion_has_the_probability_that_it_says(first, second):
    model, table = mixture(first, second)
    found = model.most_probable()
    value, coin = (int(cell) for cell in np.asarray(found.rows)[0])
    assert np.exp(float(found.log_prob[0])) == pytest.approx(table[value, coin], rel=1e-5)


def test_entropy_by_draws_allows_values_that_one_family_lacks():
    few, counts = cc.Input(0, cc.Bernoulli(), units=1), cc.Input(0, cc.Poisson(), units=1)
    root = cc.Sum([few, counts])
    model = cc.Model.from_parameters(cc.Circuit(root), {root: [[0.5, 0.5]]}, {few: [[0.5]], counts: [[9.0]]})
    x = np.arange(60.0)
    factorials = np.concatenate([[0.0], np.log(np.arange(1, 60)).cumsum()])
    p = 0.5 * np.exp(x * np.log(9) - 9 - factorials)
    p[:2] += 0.25
    found = model.entropy(seed=0)
    assert found.value == pytest.approx(entropy_of(p), abs=4 * found.standard_error)
