"""Everything public that computes on a device has an entry here, and gives there what it gives on a CPU.

`make gpu-check` runs the entries on a GPU. Without one, they run on the CPU, so that no entry is wrong unnoticed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import circurve as cc
from circurve.data import as_table, columns_of
from circurve.interop import from_pyjuice, to_pyjuice

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

X = np.random.default_rng(0).integers(0, 2, (120, 4)) ^ np.random.default_rng(1).integers(0, 2, (120, 1))
HOLES = np.where(np.random.default_rng(2).random(X.shape) < 0.2, np.nan, X)
TRAINING: dict[str, Any] = {"epochs": 3, "precision": "float64", "valid": False, "progress": False}

NOT_ON_A_DEVICE = {
    "Ensemble": "a record of what fit_ensemble gives",
    "Model.align": "tables stay on the host",
    "Model.backend": "what all others compute with",
    "Model.from_parameters": "makes a model on the host; Model.to moves it",
    "Model.program": "the layers of the circuit",
    "Model.reference": "what others compute with",
    "Model.schema": "says what the columns mean",
    "Model.save": "files are the same from any device: see load",
    "Models.backend": "what all others compute with",
    "Models.count": "of any sequence",
    "Models.index": "of any sequence",
}


@cache
def circuit() -> cc.Circuit:
    return cc.hclt(X, units=3)


@cache
def trained() -> cc.FitResult | Any:
    return cc.fit(circuit(), X, device="cpu", **TRAINING)


def model(device: str) -> cc.Model:
    return trained().model.to(device)


def models(device: str) -> cc.Models:
    other = cc.fit(circuit(), X, seed=1, device="cpu", **TRAINING).model
    return cc.Models([model(device), other.to(device)])


def fitted(name: str, method: str) -> Callable[[str], Any]:
    """An estimator trained on the device, and what one of its methods gives."""

    def answer(device: str) -> Any:
        made = getattr(cc, name)(n_units=3, max_epochs=3, random_state=0, device=device)
        return getattr(made.fit(HOLES, X[:, 0]), method)(HOLES)

    return answer


def loaded(device: str) -> Any:
    folder = Path(inspect.getfile(loaded)).parent / "fixtures"
    return cc.load(folder / "hidden_tree-0.1.0.safetensors", device=device).params.weights[0]


def gradient(device: str) -> Any:
    module = cc.torch_module(model(device))
    module(torch.as_tensor(X, dtype=torch.float64, device=device)).sum().backward()
    return torch.cat([parameter.grad.reshape(-1) for parameter in module.parameters() if parameter.grad is not None])


def weights_of(result: Any) -> Any:
    return result.params.weights[0]


QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "conditional": lambda m: m.conditional({0: 1}, {1: 1}),
    "covariance": lambda m: m.covariance(HOLES[:5]),
    "distribution": lambda m: m.distribution(0, {1: 1}),
    "entropy": lambda m: m.entropy([0, 1]).value,
    "explain": lambda m: m.explain(X[:3]),
    "impute": lambda m: m.impute(HOLES[:5]),
    "interval": lambda m: m.interval({0: (0, 1)}, {1: 1}),
    "log_prob": lambda m: m.log_prob(X),
    "marginal": lambda m: m.marginal({0: 1}),
    "mean": lambda m: m.mean(HOLES[:5]),
    "most_probable": lambda m: m.most_probable(HOLES[:5]).log_prob,
    "mutual_information": lambda m: m.mutual_information(0, 1).value,
    "quantile": lambda m: m.quantile(0, [0.25, 0.75], {1: 1}),
    "sample": lambda m: len(columns_of(m.sample(7, seed=0))["0"]),
    "variance": lambda m: m.variance(HOLES[:5]),
}

CASES: dict[str, Callable[[str], Any]] = {
    **{f"Model.{name}": lambda device, ask=ask: ask(model(device)) for name, ask in QUESTIONS.items()},
    **{f"Models.{name}": lambda device, ask=ask: ask(models(device)) for name, ask in QUESTIONS.items()},
    "Model.input_parameters": lambda device: model(device).input_parameters(circuit().inputs[0]),
    "Model.weights": lambda device: model(device).weights(circuit().sums[0]),
    "Model.to": lambda device: model(device).to("cpu").log_prob(X),
    "Table.to": lambda device: as_table(X).to(torch.device(device)).values,
    "Stream": lambda device: weights_of(cc.fit(circuit(), cc.open_stream(X), device=device, **TRAINING).model),
    "Stream.to": lambda device: cc.open_stream(X).to(device).take(torch.arange(5))[0].values,
    "CircuitClassifier": fitted("CircuitClassifier", "predict_proba"),
    "CircuitImputer": fitted("CircuitImputer", "transform"),
    "DensityEstimator": fitted("DensityEstimator", "score_samples"),
    "OutlierDetector": fitted("OutlierDetector", "score_samples"),
    "curvature": lambda device: cc.curvature(model(device), X).total,
    "fit": lambda device: weights_of(cc.fit(circuit(), X, method=cc.Gated(0.1), device=device, **TRAINING).model),
    "fit_ensemble": lambda device: cc.fit_ensemble(
        X, valid=X[:30], members=2, units=3, epochs=2, device=device, precision="float64", progress=False
    ).model.log_prob(X),
    "fit_fleet": lambda device: [
        result.train_ll for result in cc.fit_fleet(circuit(), X, [cc.Run(), cc.Run(seed=1)], device=device, **TRAINING)
    ],
    "fit_units": lambda device: (
        cc.fit_units(
            X, valid=X[:30], units=(2, 3), epochs=2, device=device, precision="float64", progress=False
        ).result.valid_ll
    ),
    "hessian": lambda device: cc.hessian(model(device), X).matrix,
    "hessian_diagonal": lambda device: np.concatenate(
        [block.ravel() for block in cc.hessian_diagonal(model(device), X).values()]
    ),
    "hessian_trace": lambda device: cc.hessian_trace(model(device), X),
    "load": loaded,
    "local_hessian": lambda device: cc.local_hessian(model(device), X[:5], circuit().sums[0]),
    "mix": lambda device: cc.mix([model(device), model(device)]).log_prob(X),
    "per_sample": lambda device: cc.per_sample(model(device), X).total,
    "report": lambda device: len(cc.report(model(device), X, valid=X[:30]).findings),
    "top_eigenvalues": lambda device: cc.top_eigenvalues(model(device), X, 2),
    "torch_module": gradient,
}
"""What is public, and what it gives on a device."""


def computing() -> Iterator[str]:
    """All public functions, classes and methods that take a device, a model or models, or belong to these."""
    for name in cc.__all__:
        found = getattr(cc, name)
        if found in (cc.Model, cc.Models):
            methods = (m for m, kind in inspect.getmembers(found, inspect.isroutine) if not m.startswith("_"))
            yield from (f"{name}.{method}" for method in methods)
            continue
        if not callable(found) or not _has_signature(found):
            continue
        parameters = inspect.signature(found).parameters
        if {"device", "model", "models"} & set(parameters):
            yield name
        if inspect.isclass(found) and not issubclass(found, torch.nn.Module):
            methods = inspect.getmembers(found, inspect.isroutine)
            yield from (
                f"{name}.{m}"
                for m, method in methods
                if not m.startswith("_") and _has_signature(method) and "device" in inspect.signature(method).parameters
            )


def _has_signature(found: Any) -> bool:
    try:
        inspect.signature(found)
    except (TypeError, ValueError):
        return False
    return True


def test_everything_that_computes_has_an_entry():
    assert set(computing()) - set(NOT_ON_A_DEVICE) <= set(CASES)
    assert set(NOT_ON_A_DEVICE) <= set(computing()), "no longer public"
    for name in CASES:
        owner, _, method = name.partition(".")
        assert hasattr(getattr(cc, owner), method) if method else hasattr(cc, owner)


def plain(answer: Any) -> dict[str, np.ndarray]:
    """The columns of an answer."""
    if isinstance(answer, torch.Tensor):
        return {"": answer.detach().cpu().numpy()}
    if isinstance(answer, np.ndarray | list | float | int):
        return {"": np.asarray(answer)}
    return {name: np.asarray(values) for name, values in columns_of(answer).items()}


def check(name: str, device: str) -> None:
    found, expected = plain(CASES[name](device)), plain(CASES[name]("cpu"))
    assert list(found) == list(expected)
    for column, values in expected.items():
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), column
            np.testing.assert_allclose(found[column], values, rtol=1e-8, atol=1e-9, err_msg=column)
        else:
            np.testing.assert_array_equal(found[column], values, err_msg=column)


@pytest.mark.parametrize("name", CASES)
def test_it_runs_on_a_cpu(name):
    check(name, "cpu")


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.parametrize("name", CASES)
def test_it_gives_on_a_gpu_what_it_gives_on_a_cpu(name):
    check(name, "cuda")


@pytest.mark.gpu
@on_a_gpu
def test_circuits_for_pyjuice_come_from_a_gpu_too():
    pytest.importorskip("pyjuice")
    there = from_pyjuice(to_pyjuice(model("cuda")))
    np.testing.assert_allclose(there.log_prob(X), model("cpu").log_prob(X), rtol=1e-4)
