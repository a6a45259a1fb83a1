"""What is measured on trained models beyond their scores: coarse and noisy weights, noisy test rows, ensembles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data import Dataset, Table
from circurve.engine import Params
from circurve.experiments.records import Record
from circurve.experiments.variants import noisy_cells
from circurve.learning import Failure, FitResult
from circurve.learning.mixture_weights import Scores, find_weights
from circurve.model import Model
from circurve.models import Models

if TYPE_CHECKING:
    from circurve.experiments.plan import PlannedRun

__all__ = ["CHANGES", "MODELS_PROBE", "TEST_NOISE", "Probe", "add_noise", "quantise", "scale_by_noise"]

Floats: TypeAlias = NDArray[np.float64]

RANGE = math.log(1e6)
"""Quantised weights span this factor: what is smaller than a millionth of its sum's largest weight becomes that."""

DRAWS = 3
"""Draws of noise that are averaged."""

DIGITS = 5
"""Digits after the point of log-likelihoods in nats."""


@dataclass(frozen=True)
class Probe:
    """A measurement on the models of a fleet. Its name is a part of the ids of runs."""

    name: str
    measure: Callable[[Sequence[FitResult | Failure], Sequence[PlannedRun], Dataset], list[Record]]
    """From outcomes, their runs and the data to what each record gets; nothing for a run that failed."""


def quantise(weights: Tensor, bits: int) -> Tensor:  # (..., C), rows on the simplex
    """Each weight rounded to one of 2^bits levels, then normalised.

    Levels are even on the log scale, from the largest weight of the sum down by a factor of 1e6; edges that do not
    exist, of weight 0, stay so. With L levels, a weight moves by a factor of at most exp(RANGE / (2 (L - 1))).
    """
    step = RANGE / (2**bits - 1)
    largest = weights.amax(-1, keepdim=True)
    below = (largest / weights.clamp_min(torch.finfo(weights.dtype).tiny)).log()
    rounded = torch.exp(-step * (below / step).round().clamp_max(2**bits - 1))
    return _normalised(torch.where(weights > 0, rounded, 0.0))


def scale_by_noise(weights: Tensor, size: float, noise: Tensor) -> Tensor:  # (..., C)
    """theta exp(size e), normalised; noise: e, standard normal, of the shape of one run."""
    return _normalised(weights * (size * noise).exp())


def add_noise(weights: Tensor, size: float, noise: Tensor) -> Tensor:  # (..., C)
    """theta + size e, not below 0 nor below a tenth of theta, normalised: noise in the Hessian's own coordinates."""
    return _normalised(torch.maximum(weights + size * noise * (weights > 0), weights / 10))


def _normalised(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


Change: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From weights (R, G, K, C) and noise (G, K, C) to other weights."""

CHANGES: dict[str, tuple[Change, int]] = {
    "8 bits": (lambda weights, _: quantise(weights, 8), 1),
    "4 bits": (lambda weights, _: quantise(weights, 4), 1),
    "3 bits": (lambda weights, _: quantise(weights, 3), 1),
    "relative noise 0.3": (lambda weights, noise: scale_by_noise(weights, 0.3, noise), DRAWS),
    "added noise 0.01": (lambda weights, noise: add_noise(weights, 0.01, noise), DRAWS),
}
"""Name -> what happens to the weights of all sums, and how many draws of noise are averaged."""

TEST_NOISE = (0.02, 0.1)
"""Shares of the cells of test rows that get the value of another row."""


def _measure(outcomes: Sequence[FitResult | Failure], runs: Sequence[PlannedRun], data: Dataset) -> list[Record]:
    trained = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, FitResult)]
    found: list[Record] = [{} for _ in outcomes]
    if not trained or data.test is None or data.valid is None:
        return found
    models = [outcome.model for outcome in outcomes if isinstance(outcome, FitResult)]
    whole = Models(models)
    test = data.test
    means = {f"test noise {share:g}": _mean(whole, noisy_cells(test, 1.0, share, seed=0)) for share in TEST_NOISE}
    means |= {name: _mean_changed(whole, change, draws, test) for name, (change, draws) in CHANGES.items()}
    mixed = _ensembles([runs[place] for place in trained], whole.log_prob(data.valid), whole.log_prob(test))
    for number, place in enumerate(trained):
        scores = {name: _rounded(float(values[number])) for name, values in means.items()}
        found[place] = {"probe": {"scores": scores, "ensemble": mixed[number]}}
    return found


def _mean(models: Models, rows: Table) -> Floats:  # (R,)
    means: Floats = np.asarray(models.log_prob(rows)).mean(1)
    return means


def _mean_changed(models: Models, change: Change, draws: int, rows: Table) -> Floats:  # (R,)
    """Mean log-likelihood of rows with changed weights; noise is the same for all runs."""
    random = torch.Generator().manual_seed(0)
    found = []
    for _ in range(draws):
        weights = []
        for layer in models.params.weights:
            noise = torch.randn(layer.shape[1:], generator=random).to(layer)
            weights.append(change(layer, noise))
        params = Params(tuple(weights), models.params.inputs)
        found.append(_mean(_with(models, params), rows))
    mean: Floats = np.mean(found, axis=0)
    return mean


def _with(models: Models, params: Params) -> Models:
    """The same circuits with other parameters."""
    first = models[0]
    parts = (params.select([run]) for run in range(params.runs))
    return Models([Model(first.circuit, part, first.program, first.schema) for part in parts])


def _ensembles(runs: Sequence[PlannedRun], valid: Floats, test: Floats) -> list[Record]:  # (R, N) both
    """Of each run the ensemble that it is in: of one label, one run of each setting, all of different seeds.

    Setting c with the seed at place s belongs to ensemble (s - c) mod the number of seeds: as many ensembles as seeds,
    and no run in two of them. Weights are found by EM on the validation rows.
    """
    seeds = sorted({run.seed for run in runs})
    settings: dict[str, list[str]] = {}
    numbers = []
    for run in runs:
        label = run.labels[0]
        of_label = settings.setdefault(label, [])
        name = repr(run.setting)
        if name not in of_label:
            of_label.append(name)
        numbers.append((label, (seeds.index(run.seed) - of_label.index(name)) % len(seeds)))
    described: dict[tuple[str, int], Record] = {}
    for case in dict.fromkeys(numbers):
        members = [place for place, of in enumerate(numbers) if of == case]
        described[case] = {"number": seeds[case[1]], "members": len(members), **_mixture(valid[members], test[members])}
    return [described[case] for case in numbers]


def _mixture(valid: Floats, test: Floats) -> Record:  # (M, N) both
    held_out = Scores(valid, np.ones(valid.shape[1]))
    weights = find_weights(held_out, "em")
    tested = Scores(test, np.ones(test.shape[1]))
    return {"valid_ll": _rounded(held_out.mean_mixed(weights)), "test_ll": _rounded(tested.mean_mixed(weights))}


def _rounded(value: float) -> float | None:
    """None for minus infinity: some row has probability zero."""
    return round(value, DIGITS) if math.isfinite(value) else None


MODELS_PROBE = Probe("models 1", _measure)
"""The number is raised with every change of what it measures."""
