"""One model asked from several threads: each gets its own answers."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import circurve as cc
from circurve.inputs import Gaussian


@pytest.mark.parametrize("kind", ["numbers", "binary"])
def test_threads_that_share_a_model_get_their_own_answers(kind):
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(400, 6)) if kind == "numbers" else rng.integers(0, 2, (400, 6)) for _ in range(8)]
    families = [Gaussian()] * 6 if kind == "numbers" else None
    circuit = cc.hclt(tables[0], 16, families)
    model = cc.fit(circuit, tables[0], epochs=1, batch_size=None, progress=False).model
    alone = [model.log_prob(table) for table in tables]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for found, expected in zip(pool.map(model.log_prob, tables), alone, strict=True):
                np.testing.assert_array_equal(found, expected)
