"""The estimators on a GPU give the answers of a CPU."""

import numpy as np
import pytest
import torch

import circurve as cc

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    x = rng.normal(size=(300, 4)) + 2 * y[:, None]
    x[rng.random(x.shape) < 0.1] = np.nan
    return x, y


@pytest.mark.parametrize("name", ["DensityEstimator", "OutlierDetector", "CircuitImputer", "CircuitClassifier"])
def test_an_estimator_on_a_gpu_gives_the_answers_of_a_cpu(name: str) -> None:
    x, y = table()
    here, there = (
        getattr(cc, name)(n_units=4, max_epochs=10, random_state=0, device=device).fit(x, y)
        for device in ("cpu", "cuda")
    )
    method = {"CircuitImputer": "transform", "CircuitClassifier": "predict_proba"}.get(name, "score_samples")
    expected, found = (getattr(estimator, method)(x) for estimator in (here, there))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
