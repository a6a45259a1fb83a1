"""Parameters start at random or around rows of the data, by the run's seed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from learning_helpers import binary_rows, quick, quick_fleet, same_parameters, small_circuit

from circurve import (
    Bernoulli,
    Binomial,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    Input,
    OptionError,
    Poisson,
    Product,
    Run,
    Sum,
    mixture,
)
from circurve.data import prepare
from circurve.engine import Params, compile
from circurve.inputs import Family
from circurve.learning.initialize import PROTOTYPES, ROWS, initial_params

TRAIN = binary_rows(90)
CIRCUIT = small_circuit(TRAIN)


def start(circuit: Circuit, data: Any, seed: int = 0, init: Any = "prototypes") -> Params:
    return initial_params(compile(circuit), seed, prepare(data, circuit, "train"), init)


def test_one_unit_starts_around_a_row():
    """One row number must not be read as a scalar."""
    params = start(mixture([Gaussian(), Gaussian()], 1), np.array([[3.0, 5.0]]))
    means = params.inputs[0][0, :, 0, 0]
    torch.testing.assert_close(means, torch.tensor([3.0, 5.0], dtype=torch.float64), atol=0.5, rtol=0)


def weighted_start(circuit: Circuit, data: Any, weights: Any, init: Any) -> Params:
    return initial_params(compile(circuit), 0, prepare(data, circuit, "train", weights=weights), init)


def same(one: Params, other: Params) -> bool:
    return all(map(torch.equal, (*one.weights, *one.inputs), (*other.weights, *other.inputs)))


def column(family: Family, values: list[float], seed: int = 0) -> torch.Tensor:  # (K, P)
    """The inputs of a mixture with as many units as there are rows, in the order of their first parameter."""
    data = np.array(values)[:, None]
    inputs = start(mixture((family, 1), len(values)), data, seed).inputs[0][0, 0]
    return inputs[inputs[:, 0].argsort()]


class TestPrototypes:
    def test_all_variables_of_a_unit_start_around_the_same_row(self) -> None:
        """Rows are all zeros or all ones, so that unit k shows in every variable which row it is of."""
        data = np.repeat([[0], [1]], 10, axis=0) * np.ones(6, int)
        params = start(mixture(6, 8), data)
        above = torch.cat([layer[0, :, :, 0] for layer in params.inputs]) > 0.5  # (V, K)
        assert above.shape == (6, 8)
        assert (above == above[0]).all()
        assert 0 < above[0].sum() < 8

    def test_every_row_is_used_before_one_is_used_twice(self) -> None:
        found = column(Gaussian(), [-300.0, -200, -100, 100, 200, 300])
        assert found[:, 0].numpy() == pytest.approx([-300, -200, -100, 100, 200, 300], abs=90)
        data = np.array([[-1000.0], [1000.0]])
        means = start(mixture((Gaussian(), 1), 6), data).inputs[0][0, 0, :, 0]
        assert (means > 0).sum() == 3
        assert len(means.unique()) == 6

    def test_bernoulli(self) -> None:
        found = column(Bernoulli(), [0, 0, 0, 1, 1, 1])[:, 0].numpy()
        assert found == pytest.approx([0.2] * 3 + [0.8] * 3, abs=0.05)
        assert len(set(found)) == 6

    def test_binomial(self) -> None:
        assert column(Binomial(4), [0, 2, 4])[:, 0].numpy() == pytest.approx([0.2, 0.5, 0.8], abs=0.05)

    def test_categorical(self) -> None:
        found = start(mixture((Categorical(4), 1), 5), np.array([[0], [1], [2], [3], [3]])).inputs[0][0, 0]
        assert sorted(found.argmax(-1).tolist()) == [0, 1, 2, 3, 3]
        assert found.sum(-1).numpy() == pytest.approx(np.ones(5))
        assert found.max(-1).values.numpy() == pytest.approx(np.full(5, 0.7), abs=0.03)
        assert found.min(-1).values.numpy() == pytest.approx(np.full(5, 0.1), abs=0.03)
        assert len(found.max(-1).values.unique()) == 5

    def test_gaussian(self) -> None:
        values = [-3.0, 0.0, 9.0]
        found = column(Gaussian(), values)
        assert found[:, 0].numpy() == pytest.approx(values, abs=0.5 * np.std(values))
        assert found[:, 1].numpy() == pytest.approx(np.full(3, np.var(values)))
        assert column(Gaussian(min_variance=0.5), [2.0, 2.0])[:, 1].tolist() == [0.5, 0.5]

    def test_poisson(self) -> None:
        found = column(Poisson(), [0, 0, 60])[:, 0].numpy()
        assert found == pytest.approx([8, 8, 44], rel=0.11)
        assert column(Poisson(), [0, 0])[:, 0].min() > 0

    def test_families_without_a_place_for_a_value_start_at_random(self) -> None:
        circuit = Circuit(Sum(Input(0, Indicator((0, 1)), 2)))
        params = start(circuit, np.array([[0], [1]]))
        assert params.inputs[0].shape == (1, 1, 2, 0)

    @pytest.mark.parametrize("family", [Bernoulli(), Binomial(3), Categorical(3), Gaussian(), Poisson()], ids=repr)
    def test_a_missing_value_leaves_the_random_start(self, family: Family) -> None:
        """The only row has no second value."""
        data = np.array([[1.0, np.nan]])
        circuit = mixture((family, 2), 3)
        params = start(circuit, data).inputs[0][0]
        assert family.check_parameters(params) is None
        other = start(circuit, np.array([[1.0, 1.0]])).inputs[0][0]
        assert torch.equal(params[0], other[0])
        assert not torch.equal(params[1], other[1])
        if isinstance(family, Bernoulli):
            assert all((params[1] - place).abs().max() > 0.05 for place in (0.2, 0.8))

    def test_every_family_with_parameters_has_a_prototype(self) -> None:
        from circurve.inputs import FAMILIES

        assert set(FAMILIES.values()) - set(PROTOTYPES) == {Indicator}


class TestWeights:
    def test_square_sums_lean_to_the_child_unit_of_the_same_number(self) -> None:
        params = start(CIRCUIT, TRAIN)
        square = [weight for weight in params.weights if weight.shape[-1] == weight.shape[-2] > 1]
        assert square
        for weight in square:
            diagonal = weight.diagonal(dim1=-2, dim2=-1)
            assert (diagonal > 0.9).all()
            assert (weight > 0).all()
            assert weight.sum(-1).numpy() == pytest.approx(np.ones(weight.shape[:-1]))
        other = [weight for weight in params.weights if weight.shape[-1] != weight.shape[-2]]
        assert all(weight.max() < 0.9 for weight in other)

    def test_masked_edges_stay_away(self) -> None:
        a, b = Input(0, Bernoulli(), 2), Input(1, Bernoulli(), 2)
        mask = [[False, True], [True, True]]
        circuit = Circuit(Sum(Sum(Product([a, b]), 2, mask=mask)))
        weight = start(circuit, np.array([[0, 1], [1, 1]])).weights[0][0, 0]
        assert weight[0].tolist() == [0, 1]
        assert weight[1].sum() == pytest.approx(1)
        assert weight[1, 1] > 0.9


class TestRowsLookedAt:
    @pytest.mark.parametrize("init", ["random", "prototypes"])
    def test_rows_of_weight_zero_count_as_absent(self, init: Any) -> None:
        values = np.random.default_rng(0).standard_normal((40, 3))
        circuit = mixture((Gaussian(), 3), 4)
        odd = np.insert(values, [0, 17, 40], 1e6, axis=0)
        weights = np.where(odd[:, 0] == 1e6, 0.0, 0.5)
        expected, found = start(circuit, values, init=init), weighted_start(circuit, odd, weights, init)
        assert same(expected, found)
        assert not same(expected, start(circuit, odd, init=init))

    @pytest.mark.parametrize("init", ["random", "prototypes"])
    @pytest.mark.parametrize("weight", [1.0, 0.3, 7.0])
    def test_equal_weights_change_nothing(self, init: Any, weight: float) -> None:
        weights = np.full(len(TRAIN), weight)
        assert same(start(CIRCUIT, TRAIN, init=init), weighted_start(CIRCUIT, TRAIN, weights, init))

    @pytest.mark.parametrize("init", ["random", "prototypes"])
    def test_units_start_in_proportion_to_the_weights_of_rows(self, init: Any) -> None:
        """A quarter of the rows has three quarters of the weight; the others are too light to matter, or absent."""
        values = np.repeat([[-5.0], [5.0], [1e4], [1e6]], [250, 250, 250, 250], axis=0)
        weights = np.repeat([3.0, 1.0, 1e-9, 0.0], 250)
        means = weighted_start(mixture((Gaussian(), 1), 40), values, weights, init).inputs[0][0, 0]
        assert means[:, 0].abs().max() < 10
        assert 22 <= int((means[:, 0] < 0).sum()) <= 38
        assert means[0, 1] == pytest.approx(18.75, rel=0.02)  # the weighted variance

    def test_a_few_rows_of_unlike_weights_have_their_weighted_variance(self) -> None:
        params = weighted_start(mixture((Gaussian(), 1), 2), [[0.0], [1.0]], [1.0, 3.0], "random")
        assert params.inputs[0][0, 0, 0, 1] == pytest.approx(3 / 16)

    @pytest.mark.parametrize("init", ["random", "prototypes"])
    def test_a_fit_starts_without_rows_of_weight_zero(self, init: Any) -> None:
        rows = np.vstack([TRAIN, 1 - TRAIN])
        weights = np.repeat([1.0, 0.0], len(TRAIN))
        found = quick(CIRCUIT, rows, weights=weights, epochs=0, init=init)
        assert same_parameters(found, quick(CIRCUIT, TRAIN, epochs=0, init=init))

    def test_sorted_rows_show_the_whole_column(self) -> None:
        values = np.arange(3 * ROWS - 1.0)[:, None] / ROWS
        variance = start(mixture((Gaussian(), 1), 3), values, init="random").inputs[0][0, 0, :, 1]
        assert variance.numpy() == pytest.approx(np.full(3, values.var()), rel=1e-3)

    def test_a_column_missing_in_the_first_rows_starts_at_its_values(self) -> None:
        values = np.full((2 * ROWS, 2), 50.0)
        values[:ROWS, 1] = np.nan
        means = start(mixture((Gaussian(), 2), 3), values, init="random").inputs[0][0, :, :, 0]
        assert means.numpy() == pytest.approx(np.full((2, 3), 50), abs=1)

    def test_a_small_table_is_looked_at_row_by_row(self) -> None:
        values = np.random.default_rng(0).standard_normal((ROWS, 1))
        variance = start(mixture((Gaussian(), 1), 3), values, init="random").inputs[0][0, 0, :, 1]
        assert variance.tolist() == [values.var()] * 3


class TestRuns:
    def test_a_run_alone_starts_and_ends_as_in_a_fleet(self) -> None:
        runs = [Run(seed=s, init=i) for s in (0, 1) for i in ("random", "prototypes")]  # type: ignore[arg-type]
        fleet = quick_fleet(CIRCUIT, TRAIN, runs, batch_size=20, epochs=2)
        for run, found in zip(runs, fleet, strict=True):
            alone = quick(CIRCUIT, TRAIN, batch_size=20, epochs=2, seed=run.seed, init=run.init)
            assert alone.train_ll == pytest.approx(found.train_ll, rel=1e-9)
            assert found.run.init == run.init
        assert len({round(result.train_ll, 6) for result in fleet}) == 4

    def test_the_seed_decides_the_rows(self) -> None:
        one, same, other = (quick(CIRCUIT, TRAIN, epochs=0, seed=s, init="prototypes") for s in (3, 3, 4))
        assert same_parameters(one, same)
        assert not same_parameters(one, other)

    def test_random_is_the_default(self) -> None:
        default = quick(CIRCUIT, TRAIN, epochs=0)
        assert default.run.init == "random"
        assert same_parameters(default, quick(CIRCUIT, TRAIN, epochs=0, init="random"))
        assert not same_parameters(default, quick(CIRCUIT, TRAIN, epochs=0, init="prototypes"))

    def test_no_global_randomness_is_used(self) -> None:
        state = torch.get_rng_state()
        start(CIRCUIT, TRAIN)
        assert torch.equal(torch.get_rng_state(), state)

    def test_other_names_are_refused(self) -> None:
        with pytest.raises(OptionError, match="init must be one of random, prototypes, not 'kmeans'"):
            Run(init="kmeans")  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="init must be one of random, prototypes, not None"):
            quick(CIRCUIT, TRAIN, init=None)
