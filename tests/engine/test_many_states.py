"""Inputs of very many states: their statistics are sums by state, without a column for each state and sample."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import circurve as cc
from circurve.engine.reference import sums


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(0, 9), st.integers(1, 6), st.booleans(),
    st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_flow_by_state_is_added_sample_by_sample(runs, groups, units, samples, states, missing, seed):
    drawn = np.random.default_rng(seed)
    flow = drawn.random((runs, groups, units, samples))
    x = drawn.integers(0, states, (1, groups, samples)).astype(float)
    observed = drawn.random((1, groups, samples)) < 0.6 if missing else None
    expected = np.zeros((runs, groups, units, states))
    for run, group, unit, n in np.ndindex(flow.shape):
        if observed is None or observed[0, group, n]:
            expected[run, group, unit, int(x[0, group, n])] += flow[run, group, unit, n]
    if observed is not None:
        x[~observed] = np.nan
    marks = None if observed is None else torch.from_numpy(observed)
    found = sums.flow_by_state(torch.from_numpy(flow), torch.from_numpy(x), marks, states)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_training_is_that_with_one_hot_columns(monkeypatch, dtype):
    drawn = np.random.default_rng(0)
    table = drawn.integers(0, 9, (200, 3)).astype(float)
    table[:, 1:][drawn.random((200, 2)) < 0.2] = np.nan
    weights = drawn.random(200)
    circuit = cc.hclt(table, units=3, families=[cc.Categorical(9)] * 3)
    runs = [cc.Run(seed=0), cc.Run(seed=1, method=cc.Gated(mu=0.1))]
    options = {"backend": "reference", "epochs": 3, "weights": weights, "valid": False, "precision": dtype}
    found = []
    for most in (100, 2):
        monkeypatch.setattr(sums, "MAX_ONE_HOT", most)
        models = cc.fit_fleet(circuit, table, runs=runs, **options).models
        found.append(np.stack([model.log_prob(table) for model in models]))
    np.testing.assert_allclose(*found, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_a_column_of_very_many_categories_is_learnt_quickly():
    states = 20_000
    table = np.stack([np.arange(states), np.arange(states) % 2], axis=1)
    circuit = cc.hclt(table, units=2, families=[cc.Categorical(states), cc.Bernoulli()])
    start = time.process_time()
    model = cc.fit(circuit, table, epochs=1, batch_size=5_000, valid=False).model
    assert time.process_time() - start < 4  # 0.1 on an idle machine; 30 with a column for each state and sample
    assert np.isfinite(model.log_prob(table[:10])).all()
