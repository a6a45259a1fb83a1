"""Draws that are recorded as a CUDA graph are those of the first call, which is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import circurve as cc
from circurve.data import as_table, check
from circurve.engine import compile
from circurve.learning.initialize import initial_params
from circurve.queries import Target, no_evidence, sample
from circurve.queries.recorded import Recorded


def indicators(data: np.ndarray) -> cc.Circuit:
    return cc.chow_liu(data)


def counts(data: np.ndarray) -> cc.Circuit:
    return cc.hclt(data, units=5, families=[cc.Binomial(2), cc.Poisson(), *[cc.Categorical(3)] * 7])


def binary(data: np.ndarray) -> cc.Circuit:
    return cc.hclt(data, units=5)


CIRCUITS = [binary, indicators, counts]


def target_on(device: str, circuit_of: Callable[[np.ndarray], cc.Circuit] = binary) -> Target:
    rng = np.random.default_rng(0)
    data = (rng.random((200, 9)) < rng.random((200, 1))).astype(np.int64)
    circuit = circuit_of(data)
    program = compile(circuit)
    params = initial_params(program, 0, check(as_table(data), circuit.families))
    return Target.of(program, params.to(device, torch.float32))


def test_nothing_is_recorded_on_a_cpu() -> None:
    recorded, out = Recorded(), torch.empty(3)
    for number in range(3):
        recorded(lambda given: given + 1, torch.full((3,), float(number)), out)
        assert out.tolist() == [number + 1.0] * 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_recorded_draws_follow_their_seed() -> None:
    target = target_on("cuda")
    first, other = (sample(target, no_evidence(target), 700, seed=seed) for seed in (1, 2))
    assert not torch.equal(first, other)
    for _ in range(3):
        assert torch.equal(first, sample(target, no_evidence(target), 700, seed=1))
        assert torch.equal(other, sample(target, no_evidence(target), 700, seed=2))
    fewer = sample(target, no_evidence(target), 300, seed=1)
    assert torch.equal(fewer, sample(target, no_evidence(target), 300, seed=1))
    assert torch.equal(first, sample(target, no_evidence(target), 700, seed=1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("circuit_of", CIRCUITS)
def test_recorded_draws_have_the_model_s_means(circuit_of: Callable[[np.ndarray], cc.Circuit]) -> None:
    target, here = target_on("cuda", circuit_of), target_on("cpu", circuit_of)
    wanted = cc.queries.mean_and_variance(here, no_evidence(here))[0].flatten().float()
    for seed in range(3):
        found = sample(target, no_evidence(target), 40_000, seed=seed).flatten(0, 2).mean(0).cpu()
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.03)  # six standard errors of a variance of 1
