"""Data and small trainings that the tests of learning share."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import torch
from hypothesis import assume

from circuits import Case
from circurve import Circuit, CircurveWarning, Examples, Model, fit, fit_fleet, hclt
from circurve.learning import FitResult, FleetResult, Run


def binary_rows(rows: int, seed: int = 0, variables: int = 6, noise: float = 0.2) -> np.ndarray:
    """Two kinds of rows, blurred."""
    rng = np.random.default_rng(seed)
    pattern = rng.random((2, variables)) < 0.5
    return (pattern[rng.integers(0, 2, rows)] ^ (rng.random((rows, variables)) < noise)).astype(np.int64)


def small_circuit(data: np.ndarray | None = None, units: int = 3) -> Circuit:
    return hclt(binary_rows(200) if data is None else data, units)


def quick(circuit: Circuit, train: Any, **options: Any) -> FitResult:
    """`fit` in float64 on the CPU."""
    return fit(circuit, train, **{"precision": "float64", "device": "cpu", "epochs": 5, **options})


def quick_fleet(circuit: Circuit, train: Any, runs: list[Run], **options: Any) -> FleetResult:
    """`fit_fleet` in float64 on the CPU."""
    return fit_fleet(circuit, train, runs, **{"precision": "float64", "device": "cpu", "epochs": 5, **options})


def parameters(result: FitResult | Model) -> list[torch.Tensor]:
    params = (result if isinstance(result, Model) else result.model).params
    return [*params.weights, *params.inputs]


def assert_same_model(one: FitResult | Model, other: FitResult | Model, tolerance: float = 1e-9) -> None:
    for a, b in zip(parameters(one), parameters(other), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def same_parameters(one: FitResult | Model, other: FitResult | Model) -> bool:
    return all(torch.equal(a, b) for a, b in zip(parameters(one), parameters(other), strict=True))


def model_of(case: Case) -> Model:
    return Model(case.circuit, case.params, case.program)


def learn(case: Case, **options: Any) -> FitResult:
    """Full-batch EM with step size 1 from the case's own parameters on its own samples."""
    used = case.weight > 0
    assume(bool(used.any()) and not np.isnan(case.x).all())
    examples = Examples(case.x, case.sample_weights, case.labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CircurveWarning)  # rows without a value, samples without probability
        return quick(case.circuit, examples, start=model_of(case), **{"batch_size": None, **options})


def shown(value: object) -> str:
    """repr without memory addresses, so that test names are the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
