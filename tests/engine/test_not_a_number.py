"""NaN in parameters or data stays NaN up to the root, and is never counted as probability zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from circurve import Bernoulli, Circuit, Gaussian, Indicator, Input, Model, Product, Sum, hclt
from circurve.data import as_table, check
from circurve.engine import Batch, Params, choose_backend

X = np.random.default_rng(0).integers(0, 2, (12, 4))


def masked_circuit() -> Circuit:
    mask = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=bool)
    leaves = [Sum(Input(v, Bernoulli(), 3), 3, mask) for v in range(4)]
    return Circuit(Sum(Product(leaves)))


CIRCUITS = {"latent tree": lambda: hclt(X, 3), "masked sums": masked_circuit}


def model_of(circuit: Circuit) -> Model:
    rng = np.random.default_rng(1)
    return Model.from_parameters(circuit, inputs={node: rng.uniform(0.2, 0.8, (3, 1)) for node in circuit.inputs})


def with_fault(params: Params, kind: str, value: float) -> Params:
    """Two runs; the second has one parameter that is not finite: a weight of the last layer, or one of an input."""
    both = Params(
        tuple(torch.cat([w, w]) for w in params.weights), tuple(torch.cat([p, p]) for p in params.inputs)
    ).clone()
    target = both.weights[-1] if kind == "weight" else both.inputs[0]
    target[1].view(-1)[0] = value
    return both


def batch_of(model: Model, weights: torch.Tensor | None = None) -> Batch:
    table = check(as_table(X, weights=weights), model.circuit.families)
    return Batch.rows(table, 0, len(X), model.dtype)


@pytest.mark.parametrize("kind", ["weight", "input"])
@pytest.mark.parametrize("make", CIRCUITS.values(), ids=CIRCUITS)
def test_a_broken_parameter_gives_nan_for_its_own_run_alone(make, kind):
    model = model_of(make())
    params = with_fault(model.params, kind, torch.nan)
    found = choose_backend(model.program, params).log_prob(params, batch_of(model))[:, 0]
    np.testing.assert_allclose(found[0].numpy(), model.log_prob(X), rtol=1e-12)
    assert found[1].isnan().all()


@pytest.mark.parametrize("kind", ["weight", "input"])
@pytest.mark.parametrize("make", CIRCUITS.values(), ids=CIRCUITS)
def test_statistics_count_nan_apart_from_probability_zero(make, kind):
    model = model_of(make())
    params = with_fault(model.params, kind, torch.nan)
    weights = torch.ones(len(X), dtype=torch.float64)
    weights[0] = 0.0
    found = choose_backend(model.program, params).statistics(params, [batch_of(model, weights)])
    assert found.broken.tolist() == [0, len(X) - 1]  # a sample without weight is nothing to report
    assert found.impossible.tolist() == [0, 0]
    assert found.weight.tolist() == [len(X) - 1, 0]
    assert found.log_likelihood[1] == 0
    assert found.mean_log_likelihood.isnan().tolist() == [False, True]
    assert (found + found).broken.tolist() == [0, 2 * (len(X) - 1)]


def test_a_model_with_nan_gives_nan_and_no_infinity():
    model = model_of(hclt(X, 3))
    params = model.params.clone()
    params.weights[0].view(-1)[0] = torch.nan
    assert np.isnan(Model(model.circuit, params).log_prob(X)).all()


def test_probability_zero_is_still_minus_infinity_beside_nan():
    """Two variables that must be equal, and a third with a Gaussian: with NaN there, nothing is known."""
    equal = Sum(Product([Input(v, Indicator((0, 1)), 2) for v in range(2)]))
    noise = Input(2, Gaussian(), 1)
    circuit = Circuit(Product([equal, noise]))
    model = Model.from_parameters(circuit, inputs={noise: [[0.0, 1.0]]})
    params = model.params.clone()
    rows = np.array([[0, 0, 1.0], [0, 1, 1.0]])
    assert model.log_prob(rows)[1] == -np.inf
    number = next(i for i, layer in enumerate(model.program.inputs) if layer.family == Gaussian())
    params.inputs[number].fill_(torch.nan)
    assert np.isnan(Model(circuit, params).log_prob(rows)).all()


def test_nan_in_the_data_of_one_sample_breaks_that_sample_alone():
    circuit = Circuit(Sum(Input(0, Gaussian(), 2)))
    model = Model.from_parameters(circuit, inputs={circuit.inputs[0]: [[0.0, 1.0], [1.0, 2.0]]})
    x = torch.tensor([[[0.5, torch.nan, 1.5]]], dtype=torch.float64)  # (1, V, N)
    batch = Batch(x, None, None, None)
    assert model.backend.log_prob(model.params, batch)[0, 0].isnan().tolist() == [False, True, False]
    found = model.backend.statistics(model.params, [batch])
    assert (found.broken.item(), found.impossible.item(), found.weight.item()) == (1, 0, 2)


def test_a_broken_run_does_not_spoil_the_impossible_units_of_its_neighbour():
    """At x = 1 the masked sum is impossible and has no flow, whatever is in the other run."""
    values, noise = Input(0, Indicator((0, 1)), 2), Input(1, Bernoulli())
    masked = Sum(values, 1, np.array([[True, False]]))
    circuit = Circuit(Sum([Product([masked, noise]), Product([Sum(values), noise])]))
    alone = Model.from_parameters(circuit, inputs={noise: [[0.3]]})
    params = with_fault(alone.params, "weight", torch.nan)
    for weights in params.weights:
        weights[1] = torch.nan
    batch = Batch.rows(check(as_table([[0, 1], [1, 1], [1, 0]]), circuit.families), 0, 3, alone.dtype)
    found = choose_backend(alone.program, params, "reference").statistics(params, [batch])
    wanted = choose_backend(alone.program, alone.params, "reference").statistics(alone.params, [batch])
    for one, other in zip(found.counts, wanted.counts, strict=True):
        torch.testing.assert_close(one[:1], other, rtol=1e-12, atol=0)
