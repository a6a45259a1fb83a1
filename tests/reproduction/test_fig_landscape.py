from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from figure_records import round_trip

import circurve as cc
from circurve.data import Table, as_table, check
from circurve.data.synthetic import noisy_triangle
from circurve.engine import Params, stack
from circurve.reproduction import trained_figures
from circurve.reproduction.figures import FIGURES
from circurve.reproduction.spec import ReproduceOptions
from circurve.reproduction.trained_figures import evaluate, from_coordinates, principal_plane, to_coordinates

DATA = noisy_triangle()


@pytest.fixture(scope="module")
def models() -> list[cc.Model]:
    circuit = cc.hclt(DATA.train, 4, (cc.Gaussian(), 2))
    common = {"batch_size": None, "precision": "float64", "device": "cpu", "progress": False}
    return [cc.fit(circuit, DATA.train, seed=seed, epochs=4, **common).model for seed in (0, 1)]  # type: ignore[arg-type]


def fleet(models: list[cc.Model]) -> Params:
    return stack([model.params for model in models])


def samples(rows: object, model: cc.Model) -> Table:
    return check(as_table(rows), model.circuit.families)


def test_coordinates_lead_back_to_the_parameters(models: list[cc.Model]) -> None:
    params = fleet(models)
    back = from_coordinates(to_coordinates(params), params)
    for ours, theirs in zip((*back.weights, *back.inputs), (*params.weights, *params.inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_any_coordinates_are_a_valid_circuit(models: list[cc.Model]) -> None:
    params = models[0].params
    points = 3 * np.random.default_rng(0).standard_normal((20, to_coordinates(params).shape[1]))
    found = from_coordinates(points, params)
    assert found.runs == 20
    for weights in found.weights:
        assert bool((weights >= 0).all())
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert all(bool((layer[..., 1] > 0).all()) for layer in found.inputs)


def test_many_circuits_at_once_are_worth_what_each_is_alone(
    models: list[cc.Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained_figures, "RUNS_AT_ONCE", 2)
    assert DATA.test is not None
    params = stack([fleet(models), models[0].params])
    found = evaluate(models[0].program, params, samples(DATA.train, models[0]), samples(DATA.test, models[0]))
    for i, model in enumerate([*models, models[0]]):
        assert found.train_nll[i] == pytest.approx(-model.log_prob(DATA.train).mean())
        assert found.test_nll[i] == pytest.approx(-model.log_prob(DATA.test).mean())
        assert found.trace[i] == pytest.approx(cc.hessian_trace(model, DATA.train).mean())


def test_principal_plane_holds_points_that_lie_in_a_plane() -> None:
    rng = np.random.default_rng(1)
    directions = np.linalg.qr(rng.standard_normal((9, 2)))[0].T
    points = rng.standard_normal(9) + rng.standard_normal((30, 2)) * (5, 1) @ directions
    plane = principal_plane(points)
    np.testing.assert_allclose(plane.points(plane.project(points)), points)
    np.testing.assert_allclose(plane.directions @ plane.directions.T, np.eye(2), atol=1e-12)
    assert sum(plane.explained) == pytest.approx(1)
    assert plane.explained[0] > plane.explained[1]


def test_paths_start_together_and_ends_are_those_of_the_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trained_figures, "EPOCHS", 6)
    options = ReproduceOptions(quick=True, seeds=(3, 1), device="cpu")
    data = round_trip(FIGURES["fig-7"], [], options)
    assert list(data["paths"]) == ["vanilla", "global", "gated"]
    assert {len(path) for path in data["paths"].values()} == {7}
    assert len({tuple(path[0]) for path in data["paths"].values()}) == 1
    assert len({tuple(path[-1]) for path in data["paths"].values()}) == 3
    points = np.concatenate([np.array(path) for path in data["paths"].values()])
    for axis, name in enumerate("xy"):
        assert data[name][0] < points[:, axis].min()
        assert data[name][-1] > points[:, axis].max()
    assert np.shape(data["surfaces"]["trace"]) == (len(data["y"]), len(data["x"])) == (21, 21)
    circuit = cc.hclt(DATA.train, 16, (cc.Gaussian(), 2))
    common = {"batch_size": None, "precision": "float64", "device": "cpu", "progress": False, "step_size": 0.1}
    result = cc.fit(circuit, DATA.train, method=cc.Global(0.2), seed=3, epochs=6, test=DATA.test, **common)  # type: ignore[arg-type]
    assert data["ends"]["train_nll"]["global"] == pytest.approx(-result.train_ll, rel=1e-4)
    assert data["ends"]["test_nll"]["global"] == pytest.approx(-(result.test_ll or 0), rel=1e-4)
    assert "seed 3" in data["notes"][0]
    assert data["notes"][-1].startswith(
        "Mean test NLL over seeds 3, 1, and for how many of them it is the lowest: vanilla"
    )
    assert sum(int(count) for count in re.findall(r"\((\d)\)", data["notes"][-1])) == 2
