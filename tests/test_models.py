"""Several models of one circuit as one object: a sequence, its log_prob, its refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings

import circurve as cc
from circuits import Case, cases
from circurve import Model, Models, OptionError


def coin(p: float, circuit: cc.Circuit | None = None) -> Model:
    leaf = cc.Input(0, cc.Bernoulli(), 1) if circuit is None else circuit.inputs[0]
    return Model.from_parameters(circuit or cc.Circuit(leaf), inputs={leaf: [[p]]})


@pytest.fixture
def coins() -> Models:
    first = coin(0.2)
    return Models([first, coin(0.5, first.circuit), coin(0.9, first.circuit)], ["a", "b", "c"])


@pytest.mark.parametrize("backend", ["auto", "reference"])
@settings(max_examples=15, deadline=None)
@given(case=cases(zeros=True))
def test_log_prob_has_a_run_axis_and_the_values_of_each_model(backend: str, case: Case) -> None:
    first = Model.from_parameters(case.circuit, case.weights, case.inputs)
    halves = {node: torch.full_like(value, 0.5) for node, value in case.inputs.items() if value.shape[1] == 1}
    models = Models([first, Model.from_parameters(case.circuit, {}, {**case.inputs, **halves})])
    found = models.log_prob(case.x, backend=backend)
    for run, model in enumerate(models):
        np.testing.assert_allclose(found[run], model.log_prob(case.x), rtol=1e-9, atol=1e-12)
    tensor = models.log_prob(torch.from_numpy(case.x))
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_allclose(tensor.numpy(), found, rtol=1e-9, atol=1e-12)


def test_models_are_a_sequence(coins: Models) -> None:
    assert len(coins) == 3
    assert coins[1].log_prob(np.ones((1, 1)))[0] == pytest.approx(np.log(0.5))
    assert coins[1:].labels == ("b", "c")
    np.testing.assert_allclose(coins[1:].marginal({0: 1}), [0.5, 0.9])
    assert repr(coins).startswith("<Models: 3 of ")


def test_models_survive_a_pickle(coins: Models) -> None:
    again = pickle.loads(pickle.dumps(coins))
    assert again.sample(1, seed=0)["run"].tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(again.marginal({0: 1}), coins.marginal({0: 1}))


def test_values_that_training_did_not_see_are_impossible_in_every_run() -> None:
    frame = pd.DataFrame({"city": ["Oslo", "Rome"] * 20})
    runs = [cc.Run(seed=seed) for seed in range(2)]
    models = cc.fit_fleet(cc.hclt(frame, 1), frame, runs, epochs=1, progress=False, valid=None).models
    with pytest.warns(cc.CircurveWarning, match="Paris"):
        found = models.log_prob(pd.DataFrame({"city": ["Rome", "Paris"]}))
    assert np.isfinite(found[:, 0]).all()
    assert (found[:, 1] == -np.inf).all()


def test_models_that_differ_in_more_than_parameters_are_refused(coins: Models) -> None:
    with pytest.raises(OptionError, match="model 1 has another circuit than model 0"):
        Models([coins[0], coin(0.2)])
    with pytest.raises(OptionError, match="model 1 has another dtype"):
        Models([coins[0], coins[1].to(dtype=torch.float32)])
    with pytest.raises(OptionError, match="at least one Model"):
        Models([])
    with pytest.raises(OptionError, match="2 labels do not fit 1 model"):
        Models([coins[0]], ["a", "b"])
    with pytest.raises(OptionError, match="model 1 is a int"):
        Models([coins[0], 3])


def test_a_gradient_that_would_be_lost_is_refused() -> None:
    leaf = cc.Input(0, cc.Gaussian(), 1)
    model = Model.from_parameters(cc.Circuit(leaf), inputs={leaf: [[0.0, 1.0]]})
    with pytest.raises(OptionError, match="gives no gradients"):
        Models([model]).log_prob(torch.zeros(2, 1, dtype=torch.float64, requires_grad=True))
