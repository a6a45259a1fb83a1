"""Inputs of very many states: their statistics are sums by state, without a column for each state and sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import circurve as cc
from circurve.engine.reference import sums


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(0, 9)), st.integers(1, 6), st.data()
)
@settings(max_examples=60, deadline=None)
def test_flow_by_state_is_added_sample_by_sample(shape, states, data):
    runs, groups, units, samples = shape
    missing, seed = data.draw(st.booleans()), data.draw(st.integers(0, 99))
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


@pytest.mark.parametrize(("states", "one_hot"), [(sums.MAX_ONE_HOT, True), (sums.MAX_ONE_HOT + 1, False)])
def test_only_few_states_get_a_column_each(monkeypatch, states, one_hot):
    calls, features = [], cc.Categorical.features

    def counted(family, x, observed):
        calls.append(family.states)
        return features(family, x, observed)

    monkeypatch.setattr(cc.Categorical, "features", counted)
    table = np.stack([np.arange(states), np.arange(states) % 2], axis=1)
    circuit = cc.hclt(table, units=2, families=[cc.Categorical(states), cc.Bernoulli()])
    model = cc.fit(circuit, table, epochs=1, valid=False, device="cpu").model
    assert (states in calls) is one_hot
    assert np.isfinite(model.log_prob(table)).all()
