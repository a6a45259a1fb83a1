"""Chow-Liu trees as circuits: one EM step against counts, completions against enumeration, published likelihoods."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import circurve as cc
from circurve.errors import OptionError

FULL = {"batch_size": None, "epochs": 1, "precision": "float64", "device": "cpu", "progress": False}

PUBLISHED = {"nltcs": -6.76, "plants": -16.52, "baudio": -44.37}
"""Test log-likelihoods of Chow-Liu trees on DEBD, as printed beside sum-product and cutset networks."""


def rows_of(rng, rows, states):
    """Columns that depend on the one before, all states present."""
    data = np.stack([rng.integers(0, count, rows) for count in states], axis=1)
    for v in range(1, len(states)):
        copied = rng.random(rows) < 0.6
        data[copied, v] = data[copied, v - 1] % states[v]
    data[: max(states)] = np.arange(max(states))[:, None] % np.array(states)
    return data


def log_prob_by_counts(data, tree, states, pseudocount, x):
    """log p(x) from tables of smoothed counts, row by row."""
    total = np.zeros(len(x))
    for v, parent in enumerate(tree.parents):
        for n, row in enumerate(x):
            alike = np.ones(len(data), dtype=bool) if parent < 0 else data[:, parent] == row[parent]
            count = np.sum(alike & (data[:, v] == row[v]))
            total[n] += np.log((count + pseudocount / states[v]) / (alike.sum() + pseudocount))
    return total


@settings(max_examples=25, deadline=None)
@given(
    states=st.lists(st.integers(2, 4), min_size=1, max_size=5),
    pseudocount=st.sampled_from([0.1, 1.0, 3.0]),
    seed=st.integers(0, 2**16),
)
def test_one_em_step_gives_the_smoothed_counts(states, pseudocount, seed):
    data = rows_of(np.random.default_rng(seed), 40, states)
    tree = cc.chow_liu_tree(data)
    fitted = cc.fit(cc.chow_liu(data), data, method=cc.Vanilla(pseudocount), seed=seed, **FULL)
    every = np.array(list(product(*map(range, states))))
    expected = log_prob_by_counts(data, tree, states, pseudocount, every)
    np.testing.assert_allclose(fitted.model.log_prob(every), expected, rtol=1e-9)
    assert np.exp(expected).sum() == pytest.approx(1)


def test_a_second_step_and_another_start_change_nothing():
    data = rows_of(np.random.default_rng(0), 200, [2, 3, 2, 4])
    circuit = cc.chow_liu(data)
    once = cc.fit(circuit, data, **FULL)
    again = cc.fit(circuit, data, **{**FULL, "epochs": 3}, valid=False, seed=5)
    np.testing.assert_allclose(once.model.log_prob(data), again.model.log_prob(data), rtol=1e-9)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_most_probable_completions_are_exact_and_say_so(seed):
    rng = np.random.default_rng(seed)
    data = rows_of(rng, 60, [2, 3, 2, 2, 3])
    model = cc.fit(cc.chow_liu(data), data, method=cc.Vanilla(0.5), **FULL).model
    every = np.array(list(product(range(2), range(3), range(2), range(2), range(3))))
    scores = model.log_prob(every)
    holes = data[:8].astype(float)
    holes[rng.random(holes.shape) < 0.5] = np.nan
    found = model.most_probable(holes)
    assert found.exact.all()
    for row, best in zip(holes, found.log_prob, strict=True):
        fits = np.all(np.isnan(row) | (every == row), axis=1)
        assert best == pytest.approx(scores[fits].max())


def test_missing_values_are_learned_by_more_steps():
    rng = np.random.default_rng(1)
    whole = rows_of(rng, 400, [2, 3, 3, 2])
    data = whole.astype(float)
    data[rng.random(data.shape) < 0.2] = np.nan
    circuit = cc.chow_liu(data)
    results = [cc.fit(circuit, data, **{**FULL, "epochs": n}, valid=False) for n in (1, 5, 30, 60)]
    likelihoods = [result.train_ll for result in results]
    assert likelihoods[0] < likelihoods[1] < likelihoods[2]
    assert likelihoods[3] - likelihoods[2] < 1e-4
    assert results[3].model.log_prob(whole).mean() == pytest.approx(
        cc.fit(cc.chow_liu(whole, tree=cc.chow_liu_tree(data)), whole, **FULL).train_ll, abs=0.05
    )


def test_nodes_mirror_the_tree():
    circuit = cc.chow_liu([[0, 2, 1], [1, 0, 0], [0, 1, 3]], tree=[1, -1, 1])
    by_name = {node.name: node for node in circuit.nodes}
    assert {name: node.units for name, node in by_name.items()} == {
        **{"input 0": 2, "input 1": 3, "input 2": 4},
        **{"sum 0": 3, "sum 2": 3, "product 1": 3, "root": 1},
    }
    assert circuit.families == (cc.Indicator((0, 1)), cc.Indicator((0, 1, 2)), cc.Indicator((0, 1, 2, 3)))


def test_frames_with_text_keep_their_names_and_files_give_the_model_back(tmp_path):
    frame = pd.DataFrame({"sky": ["blue", "grey", "blue", "grey"] * 10, "rain": [False, True, False, False] * 10})
    model = cc.fit(cc.chow_liu(frame), frame, **FULL).model
    assert model.conditional({"rain": True}, given={"sky": "grey"}) == pytest.approx(0.5)
    model.save(tmp_path / "tree.safetensors")
    loaded = cc.load(tmp_path / "tree.safetensors")
    assert loaded.schema == model.schema
    np.testing.assert_array_equal(loaded.log_prob(frame), model.log_prob(frame))


def test_a_value_that_training_did_not_see_is_impossible():
    data = rows_of(np.random.default_rng(0), 50, [2, 3])
    model = cc.fit(cc.chow_liu(data), data, **FULL).model
    assert model.log_prob(np.array([[0, 7]]))[0] == -np.inf


@pytest.mark.parametrize(
    ("column", "family", "problem"),
    [
        ([0.5, 1.5, -2.0, 0.1], cc.Gaussian(), "not finitely many values"),
        ([1, 3, 0, 9], cc.Poisson(), "not finitely many values"),
        ([1, 3, 0, 9], cc.Categorical(300), "300 values"),
    ],
)
def test_a_column_of_too_many_values_is_named(column, family, problem):
    frame = pd.DataFrame({"ok": [0, 1, 0, 1], "wide": column})
    expected = rf"column 2 \('wide'\) is .*, with {problem}; chow_liu takes columns of at most 256 states"
    with pytest.raises(OptionError, match=expected):
        cc.chow_liu(frame, families=[cc.Bernoulli(), family])


def test_a_tree_of_another_size_is_refused():
    with pytest.raises(OptionError, match="tree has 3 variables, the data has 2"):
        cc.chow_liu([[0, 1]], tree=[-1, 0, 0])


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_likelihoods(name, debd):
    data = cc.load_dataset(name, debd)
    fitted = cc.fit(cc.chow_liu(data.train), data.train, test=data.test, method=cc.Vanilla(1.0), **FULL)
    assert fitted.test_ll == pytest.approx(PUBLISHED[name], abs=0.02)
