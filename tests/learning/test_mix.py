"""The mixture of several models is one model: its probabilities, its members, and everything that takes a model."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learning_helpers import binary_rows, model_of, quick, small_circuit
from scipy.special import logsumexp

import circurve as cc
from circuits import Case, cases
from circurve.errors import OptionError, StructureError
from circurve.learning import components

TRAIN = binary_rows(60)
EVERY = np.array(list(product([0, 1], repeat=6)))


def log_mixture(models, weights, x):
    return logsumexp([model.log_prob(x) for model in models], axis=0, b=np.array(weights)[:, None])


@pytest.fixture(scope="module")
def members():
    """An HCLT, a Chow-Liu tree, random trees and a factorised model over the same columns."""
    circuits = [
        small_circuit(TRAIN),
        cc.chow_liu(TRAIN),
        cc.random_binary_trees(6, 2, 2, seed=0),
        cc.fully_factorized(6),
    ]
    return [quick(circuit, TRAIN, epochs=2, method=cc.Vanilla(0.5)).model for circuit in circuits]


@settings(max_examples=30, deadline=None)
@given(cases(roots=1).filter(lambda case: case.circuit.outputs == 1), st.integers(2, 3), st.booleans())
def test_mixture_of_any_models_is_the_weighted_mean_of_their_probabilities(case: Case, count: int, uniform: bool):
    """Shared children, masks, selections and all families; the members differ in their weights."""
    shuffled = {node: weights.flip(0) for node, weights in case.weights.items() if node.mask is None}
    other = replace(case, weights={**case.weights, **shuffled})
    models = [model_of(case), *[model_of(other)] * (count - 1)]
    shares = np.full(count, 1 / count) if uniform else np.arange(1, count + 1) / (count * (count + 1) / 2)
    mixed = cc.mix(models, None if uniform else 7 * shares)
    expected = log_mixture(models, shares, case.x)
    np.testing.assert_allclose(mixed.log_prob(case.x), expected, rtol=1e-9, atol=1e-9)


def test_mixture_of_runs_of_one_circuit():
    circuit = small_circuit(TRAIN)
    models = [quick(circuit, TRAIN, seed=seed).model for seed in range(3)]
    mixed = cc.mix(models)
    np.testing.assert_allclose(mixed.log_prob(TRAIN), log_mixture(models, [1 / 3] * 3, TRAIN), rtol=1e-5)
    assert mixed.dtype == models[0].dtype
    assert mixed.circuit.free_parameters == 2 + 3 * circuit.free_parameters


def test_members_of_different_circuits(members):
    weights = [0.4, 0.3, 0.2, 0.1]
    mixed = cc.mix(members, weights)
    np.testing.assert_allclose(mixed.log_prob(EVERY), log_mixture(members, weights, EVERY), rtol=1e-9)
    assert np.exp(mixed.log_prob(EVERY)).sum() == pytest.approx(1)


def test_one_model_is_its_own_mixture_and_weight_zero_leaves_a_member_out(members):
    assert cc.mix(members[:1]) is members[0]
    assert cc.mix(members[:2], [0, 3]) is members[1]


def test_members_that_are_mixtures_are_taken_as_their_members(members):
    inner = cc.mix(members[:2], [0.25, 0.75])
    outer = cc.mix([inner, *members[3:]], [0.8, 0.2])
    np.testing.assert_allclose(outer.log_prob(EVERY), log_mixture([inner, members[3]], [0.8, 0.2], EVERY), rtol=1e-9)
    assert [child.name for child in outer.circuit.roots[0].children] == [
        *("root of model 0", "root of model 1", "product of model 2"),
    ]
    np.testing.assert_allclose(outer.weights("mixture"), [[0.2, 0.6, 0.2]])


def test_components_give_the_members_back(members):
    parts, weights = components(cc.mix(members[:2] + members[3:], [0.5, 0.3, 0.2]))
    np.testing.assert_allclose(weights, [0.5, 0.3, 0.2])
    for part, member in zip(parts, members[:2] + members[3:], strict=True):
        np.testing.assert_allclose(part.log_prob(EVERY), member.log_prob(EVERY), rtol=1e-12)
        assert [node.name for node in part.circuit.nodes] == [node.name for node in member.circuit.nodes]


def test_a_sum_over_nodes_that_share_something_is_one_component():
    shared = cc.Input(0, cc.Bernoulli(), 1)
    root = cc.Sum([cc.Product([shared, cc.Input(1, cc.Bernoulli(), 1)]) for _ in range(2)])
    model = quick(cc.Circuit(root), TRAIN[:, :2], epochs=1).model
    assert components(model)[0] == (model,)


def test_columns_are_put_in_order_by_their_names():
    frame = pd.DataFrame(TRAIN, columns=list("abcdef"))
    one = quick(cc.hclt(frame, 2), frame).model
    two = quick(cc.hclt(frame[list("fedcba")], 3), frame[list("fedcba")]).model
    mixed = cc.mix([one, two])
    np.testing.assert_allclose(mixed.log_prob(frame), log_mixture([one, two], [0.5, 0.5], frame), rtol=1e-9)
    assert mixed.schema.names == tuple("abcdef")


def test_with_zero_weights_columns_and_precision_are_still_those_of_all_models():
    frame = pd.DataFrame(TRAIN, columns=list("abcdef"))
    turned = frame[list("fedcba")]
    one = quick(cc.hclt(frame, 2), frame, precision="float64").model
    two = quick(cc.hclt(turned, 3), turned, precision="float32").model
    alone = cc.mix([one, two], [0, 1])
    assert alone.schema.names == tuple("abcdef")
    assert alone.dtype == torch.float64
    np.testing.assert_allclose(alone.log_prob(TRAIN), two.log_prob(frame), rtol=1e-6)
    np.testing.assert_allclose(alone.log_prob(TRAIN), cc.mix([one, two], [1e-12, 1]).log_prob(TRAIN), rtol=1e-6)
    assert [node.name for node in alone.circuit.nodes] == [node.name for node in two.circuit.nodes]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_with_zero_weights_the_device_is_that_of_the_first_model(members):
    first = members[0].to("cuda")
    assert cc.mix([first, members[1]], [0, 1]).device == first.device


def frame_model(frame, **options):
    return quick(cc.hclt(frame, 2, **options), frame, epochs=1).model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.rename(columns={"b": "z"}), "it has no column 'b', but a column 'z'"),
        (lambda f: f[["a", "b"]], "it has 2 columns, not 3"),
        (lambda f: f.assign(c=["x", "z"] * 20), r"column 3 \('c'\) is coded as .*'z'.*, not as .*'y'"),
        (lambda f: f.assign(a=[0, 1, 2, 2] * 10), r"column 1 \('a'\) is Categorical\(states=3\), not Bernoulli"),
        (lambda f: f.assign(a=np.linspace(0, 1, 40)), r"column 1 \('a'\) is Gaussian"),
    ],
)
def test_an_error_names_the_column_that_differs(change, message):
    frame = pd.DataFrame({"a": [0, 1] * 20, "b": [1, 1, 0, 0] * 10, "c": ["x", "y"] * 20})
    with pytest.raises(StructureError, match=f"member 1 cannot be mixed with member 0: {message}"):
        cc.mix([frame_model(frame), frame_model(change(frame))])


@pytest.mark.parametrize(
    ("weights", "shown"), [([1], "2 numbers"), ([1, -1], "-1"), ([0, 0], "not all zero"), ("ab", "'ab'")]
)
def test_bad_weights_are_refused(members, weights, shown):
    with pytest.raises(OptionError, match=shown):
        cc.mix(members[:2], weights)


def test_what_is_no_model_of_one_output_is_refused(members):
    with pytest.raises(OptionError, match="at least one Model"):
        cc.mix([])
    with pytest.raises(OptionError, match="member 1 is str"):
        cc.mix([members[0], "model"])
    classes = cc.Circuit([cc.fully_factorized(2).roots[0], cc.fully_factorized(2).roots[0]])
    two = cc.Model.from_parameters(classes, inputs={node: [[0.5]] for node in classes.inputs})
    with pytest.raises(StructureError, match="member 0 has 2"):
        cc.mix([two])


@pytest.fixture(scope="module")
def mixed(members):
    return cc.mix(members, [0.4, 0.3, 0.2, 0.1])


class TestEverythingThatTakesAModel:
    """The mixture as it is saved, asked, measured, differentiated and trained further."""

    def test_files(self, mixed, tmp_path):
        mixed.save(tmp_path / "m.safetensors")
        loaded = cc.load(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(loaded.log_prob(EVERY), mixed.log_prob(EVERY))

    def test_questions(self, mixed):
        p = np.exp(mixed.log_prob(EVERY))
        given = {1: 1, 4: 0}
        fits = (EVERY[:, 1] == 1) & (EVERY[:, 4] == 0)
        expected = p[fits & (EVERY[:, 0] == 1)].sum() / p[fits].sum()
        assert mixed.conditional({0: 1}, given=given) == pytest.approx(expected)
        drawn = np.asarray(mixed.sample(4000, seed=0))
        np.testing.assert_allclose(drawn.mean(axis=0), p @ EVERY, atol=0.05)
        row = np.array([[1.0, np.nan, 0, np.nan, np.nan, 1]])
        best = mixed.most_probable(row)
        alike = np.all(np.isnan(row) | (row == EVERY), axis=1)
        assert best.log_prob[0] <= np.log(p[alike].max()) + 1e-9 <= best.bound[0] + 2e-9

    def test_values_that_no_member_has_seen(self, mixed):
        with pytest.warns(cc.CircurveWarning, match="not seen in training"):
            assert mixed.log_prob(np.array([[0, 1, 0, 1, 0, 5]]))[0] == -np.inf

    def test_curvature(self, mixed):
        record = cc.curvature(mixed, TRAIN)
        assert cc.hessian_trace(mixed, TRAIN).mean() == pytest.approx(record.trace)

    def test_gradients(self, mixed):
        module = cc.torch_module(mixed)
        loss = -module(torch.from_numpy(TRAIN)).mean()
        loss.backward()
        assert -loss.item() == pytest.approx(mixed.log_prob(TRAIN).mean())
        np.testing.assert_allclose(module.to_model().log_prob(EVERY), mixed.log_prob(EVERY), rtol=1e-6)

    def test_joint_training_starts_from_it(self, mixed):
        further = quick(mixed.circuit, TRAIN, start=mixed, epochs=3, batch_size=None, valid=False)
        before = mixed.log_prob(TRAIN).mean()
        assert further.history[0].train_ll == pytest.approx(before)
        assert before < further.history[1].train_ll < further.train_ll
