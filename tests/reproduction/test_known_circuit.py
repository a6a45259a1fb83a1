"""Samples follow the circuit that they are drawn from, and its likelihood is what the record says."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from circurve import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    Input,
    Model,
    OptionError,
    Poisson,
    Product,
    Sum,
    fully_factorized,
)
from circurve.reproduction.study_data import known_circuit, random_model, sample_rows


def awkward_circuit() -> Circuit:
    """A shared child, unit selections, a mask, sums in a row, indicators."""
    a, b = Input(0, Bernoulli(), 2), Input(1, Categorical(3), 3)
    c = Input(2, Indicator((2, 0)), 2)
    pairs = Product([a, b], select=[[0, 1, 0], None])
    first = Sum([pairs], 2, mask=[[True, False, True], [True, True, True]])
    second = Sum([Product([a, Sum(b, 2)]), pairs], 2)
    return Circuit(Sum([Product([Sum([first, second], 2), c]), Product([second, c], select=[[1], [0]])]))


@pytest.mark.parametrize("seed", range(3))
def test_every_value_comes_as_often_as_its_probability_says(seed: int) -> None:
    model = random_model(awkward_circuit(), seed)
    rows = sample_rows(model, 20_000, seed)
    assert rows.dtype == np.int64
    assert rows.shape == (20_000, 3)
    values = np.array(list(product(range(2), range(3), (0, 2))))
    probability = np.exp(model.log_prob(values))
    assert probability.sum() == pytest.approx(1)
    found = np.array([(rows == value).all(axis=1).mean() for value in values])
    assert found.sum() == pytest.approx(1)
    spread = np.sqrt(probability * (1 - probability) / len(rows))
    assert (np.abs(found - probability) < 5 * spread + 1e-9).all()


def test_real_values_and_counts_follow_their_units() -> None:
    circuit = Circuit(Sum(Product([Input(0, Gaussian(), 2), Input(1, Poisson(), 2)])))
    inputs = dict(zip(circuit.inputs, ([[-10.0, 0.25], [10.0, 1.0]], [[0.5], [20.0]]), strict=True))
    model = Model.from_parameters(circuit, {circuit.sums[0]: [[0.25, 0.75]]}, inputs)
    rows = sample_rows(model, 8000)
    low = rows[:, 0] < 0
    assert low.mean() == pytest.approx(0.25, abs=0.03)
    assert rows[low].mean(axis=0) == pytest.approx([-10, 0.5], abs=0.1)
    assert rows[~low].mean(axis=0) == pytest.approx([10, 20], abs=0.3)
    assert rows[low, 0].std() == pytest.approx(0.5, abs=0.05)


def test_the_record_holds_the_exact_likelihood_of_each_part() -> None:
    known = known_circuit(6, units=3, rows=(300, 40, 200), seed=1)
    assert known.data.valid is not None
    assert known.data.test is not None
    assert [len(part) for part in (known.data.train, known.data.valid, known.data.test)] == [300, 40, 200]
    for split, mean in known.log_likelihood.items():
        assert mean == pytest.approx(known.model.log_prob(getattr(known.data, split)).mean())
    assert set(known.log_likelihood) == {"train", "valid", "test"}


def test_the_truth_beats_a_model_that_knows_no_dependence() -> None:
    known = known_circuit((Categorical(3), 30), units=4, rows=(1500, 100, 1500))
    assert known.data.test is not None
    shares = np.stack([(known.data.train == state).mean(axis=0) for state in range(3)])  # (states, V)
    alone = np.log(np.take_along_axis(shares, known.data.test, axis=0)).sum(axis=1).mean()
    assert known.log_likelihood["test"] > alone + 0.5


def test_the_seed_decides_everything() -> None:
    one, same, other = (known_circuit(5, 2, (50, 10, 10), seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.data.train, same.data.train)
    assert one.log_likelihood == same.log_likelihood
    assert one.log_likelihood != other.log_likelihood


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match="rows must be a whole number >= 1, not 0"):
        known_circuit(3, rows=(5, 0, 5))
    with pytest.raises(OptionError, match=r"rows must be three numbers, for train, valid, test, not \(5, 5\)"):
        known_circuit(3, rows=(5, 5))  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="rows must be a whole number >= 1, not 0"):
        sample_rows(random_model(fully_factorized(2)), 0)
    two = Circuit(Sum(Input(0, Bernoulli(), 2), 2))
    with pytest.raises(OptionError, match="sampling needs a circuit with one output, not 2"):
        sample_rows(random_model(two), 5)
