"""The mixture of several models is one model."""

import numpy as np
from learning_helpers import binary_rows, quick, small_circuit
from scipy.special import logsumexp

from circuits import Case
from circurve import Model
from circurve.learning.ensemble import ensemble

TRAIN = binary_rows(60)


def as_model(case: Case) -> Model:
    return Model(case.circuit, case.params)


def test_mixture_of_runs_of_one_circuit():
    circuit = small_circuit(TRAIN)
    models = [quick(circuit, TRAIN, seed=seed).model for seed in range(3)]
    mixed = ensemble(models)
    expected = logsumexp([model.log_prob(TRAIN) for model in models], axis=0) - np.log(3)
    np.testing.assert_allclose(mixed.log_prob(TRAIN), expected, rtol=1e-5)
    assert mixed.dtype == models[0].dtype
    assert mixed.circuit.free_parameters == 2 + 3 * circuit.free_parameters


def test_one_model_is_its_own_mixture():
    model = quick(small_circuit(TRAIN), TRAIN).model
    assert ensemble([model]) is model
