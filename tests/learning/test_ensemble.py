"""The mixture of several models is one model."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_helpers import binary_rows, model_of, quick, small_circuit
from scipy.special import logsumexp

from circuits import Case, cases
from circurve.learning.ensemble import ensemble

TRAIN = binary_rows(60)


@settings(max_examples=30, deadline=None)
@given(cases(roots=1).filter(lambda case: case.circuit.outputs == 1), st.integers(2, 3))
def test_mixture_of_any_models_is_the_mean_of_their_probabilities(case: Case, members: int):
    """Shared children, masks, selections and all families; the members differ in their weights."""
    shuffled = {node: weights.flip(0) for node, weights in case.weights.items() if node.mask is None}
    other = replace(case, weights={**case.weights, **shuffled})
    models = [model_of(case), *[model_of(other)] * (members - 1)]
    expected = logsumexp([model.log_prob(case.x) for model in models], axis=0) - np.log(members)
    np.testing.assert_allclose(ensemble(models).log_prob(case.x), expected, rtol=1e-9, atol=1e-9)


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
