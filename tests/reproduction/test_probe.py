"""Coarse and noisy weights against direct arithmetic, and ensembles of runs against mixtures by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_study import run, tiny_study, write_data

import circurve as cc
from circurve.reproduction.spec import Setting
from circurve.reproduction.study_data import CHANGES, MODELS_PROBE, RANGE, add_noise, quantise, scale_by_noise


def weights(*shape: int) -> torch.Tensor:
    values = torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 4
    return values / values.sum(-1, keepdim=True)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_quantised_weights_have_few_levels_and_move_by_half_a_level(bits: int) -> None:
    before = weights(5, 3, 40)
    after = quantise(before, bits)
    assert after.sum(-1).numpy() == pytest.approx(1.0)
    for row, found in zip(before.flatten(0, 1), after.flatten(0, 1), strict=True):
        levels = (found.max() / found).log() / (RANGE / (2**bits - 1))
        assert levels.numpy() == pytest.approx(levels.round().numpy(), abs=1e-9)
        assert levels.max() <= 2**bits - 1
        wanted = (row.max() / row).log().clamp_max(RANGE)
        moved = (found.max() / found).log() - wanted
        assert moved.abs().max() <= RANGE / (2 * (2**bits - 1)) + 1e-9


def test_more_bits_are_nearer_and_edges_that_do_not_exist_stay_so() -> None:
    before = weights(2, 10)
    before[0, 3] = 0.0
    before = before / before.sum(-1, keepdim=True)
    errors = [float((quantise(before, bits) - before).abs().max()) for bits in (2, 4, 8, 16)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4
    for after in (
        quantise(before, 3),
        scale_by_noise(before, 0.5, torch.ones(10)),
        add_noise(before, 0.5, torch.ones(10)),
    ):
        assert after[0, 3] == 0
        assert after.sum(-1).numpy() == pytest.approx(1.0)


def test_noise_is_what_its_formula_says() -> None:
    before, noise = weights(6), torch.tensor([0.0, 1, -1, 2, -2, 0.5], dtype=torch.float64)
    scaled = [w * math.exp(0.3 * e) for w, e in zip(before.tolist(), noise.tolist(), strict=True)]
    assert scale_by_noise(before, 0.3, noise).tolist() == pytest.approx([w / sum(scaled) for w in scaled])
    added = [max(w + 0.05 * e, w / 10) for w, e in zip(before.tolist(), noise.tolist(), strict=True)]
    assert add_noise(before, 0.05, noise).tolist() == pytest.approx([w / sum(added) for w in added])


def test_a_study_with_a_probe_measures_the_models_of_the_best_epochs(tmp_path: Path) -> None:
    settings = (*(Setting("vanilla", cc.Vanilla(p)) for p in (0.01, 0.1)), Setting("global", cc.Global(0.1)))
    study = tiny_study(tmp_path, settings=settings, fractions=(1.0,), probe=MODELS_PROBE, anatomy=False)
    study = replace(study, datasets=write_data(tmp_path, ("first",)), protocol=replace(study.protocol, step=0.9))
    records = run(study, tmp_path / "out")
    assert {record["settings"]["probe"] for record in records} == {MODELS_PROBE.name}
    data = cc.load_data(tmp_path / "first.npz")
    circuit = cc.hclt(data.train, 3, cc.Bernoulli())
    options = {"valid": data.valid, "epochs": 4, "batch_size": 20, "step_size": 0.9, "device": "cpu"}
    models = {
        (p, seed): cc.fit(circuit, data.train, method=cc.Vanilla(p), seed=seed, select="best", **options).model
        for p in (0.01, 0.1)
        for seed in (0, 1)
    }
    for record in records[:4]:
        model = models[record["method"]["pseudocount"], record["seed"]]
        own = float(np.mean(model.log_prob(data.test)))
        assert record["final"] == record["best"]
        assert record["best"]["test_ll"] == pytest.approx(own, abs=2e-5)
        assert record["curvature"] is None
        assert record["best"]["sharpness"] == pytest.approx(cc.curvature(model, data.train).trace, rel=1e-3)
        coarse = cc.Model(
            model.circuit, cc.engine.Params(tuple(quantise(w, 4) for w in model.params.weights), model.params.inputs)
        )
        assert record["probe"]["scores"]["4 bits"] == pytest.approx(
            float(np.mean(coarse.log_prob(data.test))), abs=2e-5
        )
        assert set(CHANGES) < set(record["probe"]["scores"])
    for number in (0, 1):  # one run of each setting, of different seeds
        members = [models[0.01, number], models[0.1, 1 - number]]
        mixed = cc.mix(members, _weights(members, data.valid))
        of = [r for r in records[:4] if r["probe"]["ensemble"]["number"] == number]
        assert {(r["method"]["pseudocount"], r["seed"]) for r in of} == {(0.01, number), (0.1, 1 - number)}
        for record in of:
            assert record["probe"]["ensemble"]["members"] == 2
            wanted = float(np.mean(mixed.log_prob(data.test)))
            assert record["probe"]["ensemble"]["test_ll"] == pytest.approx(wanted, abs=1e-4)


def _weights(members: list[cc.Model], rows: object) -> list[float]:
    """The best share of the first of two models on a fine grid."""
    first, second = (np.asarray(member.log_prob(rows)) for member in members)
    shares = np.linspace(0, 1, 20_001)[1:-1]
    scores = [np.logaddexp(np.log(s) + first, np.log(1 - s) + second).mean() for s in shares]
    best = float(shares[int(np.argmax(scores))])
    return [best, 1 - best]
