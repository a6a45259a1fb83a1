"""Every question by name on a GPU gives the answers of a CPU. Columns are given as lists: no data frame is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import circurve as cc
from circurve import Model
from circurve.data import columns_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def people(rows: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, rows)
    return {
        "city": np.array(["Oslo", "Paris", "Rome"])[(kind + (rng.random(rows) < 0.2)) % 3].tolist(),
        "adult": (rng.random(rows) < np.array([0.2, 0.6, 0.9])[kind]).tolist(),
        "income": rng.normal(np.array([1.0, 3.0, 6.0])[kind], 0.8).tolist(),
        "visits": rng.poisson(np.array([2.0, 9.0, 25.0])[kind]).tolist(),
    }


@pytest.fixture(scope="module", params=[torch.float64, torch.float32], ids=["float64", "float32"])
def pair(request: pytest.FixtureRequest) -> tuple[Model, Model]:
    table = people(500)
    circuit = cc.hclt(table, 8, schema=cc.infer_schema(table, types={"visits": "poisson"}))
    model = cc.fit(circuit, table, epochs=5, batch_size=None, progress=False, valid=False, device="cpu").model
    here = model.to(dtype=request.param)
    return here, here.to("cuda")


KNOWN = {"city": ["Rome", "Oslo", None], "income": [2.5, None, 4.0]}

QUESTIONS: dict[str, Callable[[Model], Any]] = {
    "marginal": lambda m: m.marginal(KNOWN, log=True),
    "conditional": lambda m: m.conditional({"adult": True}, KNOWN),
    "interval": lambda m: m.interval({"income": (1, 3), "visits": (None, 9)}, {"city": "Rome"}),
    "soft": lambda m: m.conditional({"income": 2.0}, {"city": {"Rome": 0.7, "Oslo": 0.3}, "visits": (2, 8)}),
    "states": lambda m: m.distribution("adult", KNOWN),
    "density": lambda m: m.distribution("income", {"city": "Rome"}, points=11),
    "counts": lambda m: m.distribution("visits", {"city": "Rome"}),
    "quantile": lambda m: m.quantile("income", [0.1, 0.9], {"city": "Rome"}),
    "mean": lambda m: m.mean(KNOWN),
    "variance": lambda m: m.variance(KNOWN),
    "covariance": lambda m: m.covariance(KNOWN),
    "impute": lambda m: m.impute(KNOWN),
    "modes": lambda m: m.impute(KNOWN, "mode"),
    "most probable": lambda m: m.most_probable(KNOWN).log_prob,
    "information": lambda m: m.mutual_information("city", "adult").value,
    "entropy": lambda m: m.entropy(["city", "adult"]).value,
    "explain": lambda m: m.explain({"city": ["Rome"], "income": [2.5], "adult": [True], "visits": [3]}),
    "log_prob": lambda m: m.log_prob(people(300)),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_gpu_gives_the_answers_of_a_cpu(pair: tuple[Model, Model], name: str) -> None:
    expected, found = (QUESTIONS[name](model) for model in pair)
    tolerance = 1e-9 if pair[0].dtype == torch.float64 else 2e-4
    if isinstance(expected, float | np.ndarray):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        return
    expected, found = columns_of(expected), columns_of(found)
    assert list(found) == list(expected)
    for column, values in expected.items():
        if np.asarray(values).dtype.kind == "f":
            np.testing.assert_allclose(found[column], values, rtol=tolerance, atol=tolerance, err_msg=column)
        else:
            assert np.asarray(found[column]).tolist() == np.asarray(values).tolist()


@pytest.mark.parametrize("name", QUESTIONS)
def test_several_runs_on_a_gpu_answer_as_each_alone(pair: tuple[Model, Model], name: str) -> None:
    _, model = pair
    blurred = model.params.map(lambda values: values.clone())
    for weights in blurred.weights:
        weights.mul_(0.7).add_(0.3 / weights.shape[-1])
    runs = [model, Model(model.circuit, blurred, model.program, model.schema)]
    together = QUESTIONS[name](cc.Models(runs))
    tolerance = 1e-9 if model.dtype == torch.float64 else 2e-4
    for run, alone in enumerate(map(QUESTIONS[name], runs)):
        if isinstance(alone, float | np.ndarray):
            np.testing.assert_allclose(together[run], alone, rtol=tolerance, atol=tolerance)
            continue
        found = columns_of(together)
        own = np.asarray(found["run"]) == run
        for column, values in columns_of(alone).items():
            if np.asarray(values).dtype.kind == "f":
                part = np.asarray(found[column])[own]
                np.testing.assert_allclose(part, values, rtol=tolerance, atol=tolerance, err_msg=column)


def test_draws_on_a_gpu_follow_the_conditional_and_their_seed(pair: tuple[Model, Model]) -> None:
    _, model = pair
    first, again = (columns_of(model.sample(4000, {"city": "Rome"}, seed=1)) for _ in range(2))
    assert set(first["city"]) == {"Rome"}
    np.testing.assert_array_equal(np.asarray(first["income"]), np.asarray(again["income"]))
    share = model.conditional({"adult": True}, {"city": "Rome"})
    assert np.mean(first["adult"]) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 4000))
    mean = columns_of(model.mean({"city": "Rome"}))
    spread = columns_of(model.variance({"city": "Rome"}))
    assert np.mean(first["income"]) == pytest.approx(mean["income"][0], abs=4 * np.sqrt(spread["income"][0] / 4000))


def test_training_on_a_gpu_with_text_and_counts_gives_the_answers_of_a_cpu() -> None:
    table = people(500)
    circuit = cc.hclt(table, 8)
    here, there = (
        cc.fit(circuit, table, epochs=5, batch_size=None, progress=False, valid=False, device=device).model
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(there.log_prob(table), here.log_prob(table), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(
        there.conditional({"adult": True}, KNOWN), here.conditional({"adult": True}, KNOWN), atol=2e-3
    )
