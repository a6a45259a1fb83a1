"""A plane in the space of a circuit's parameters, and what the circuits on it are worth.

Coordinates are free to take any value: s = sqrt(theta) for each sum weight, the mean m and the log standard deviation
log(v) / 2 for each Gaussian input. A point stands for the parameters

    theta_nc = s_nc^2 / sum_c' s_nc'^2,    m,    v = exp(2 log sd),

so that every point is a valid circuit. The square root keeps weights that die out from running off to infinity, as
their logarithms would.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data import Table
from circurve.engine import Params, Program, Request, choose_backend, chunks
from circurve.engine.memory import chunk_size
from circurve.learning.score import mean_log_likelihood

__all__ = ["Plane", "Surfaces", "evaluate", "from_coordinates", "principal_plane", "to_coordinates"]

Array = NDArray[np.float64]

RUNS_AT_ONCE = 512
"""How many points of the plane are evaluated side by side, as runs of one fleet."""


@dataclass(frozen=True, eq=False)
class Plane:
    """origin + a first + b second, both directions of length 1 and at right angles."""

    origin: Array  # (P,)
    directions: Array  # (2, P)
    explained: tuple[float, float]
    """The share of the iterates' variance along each direction."""

    def project(self, points: Array) -> Array:  # (N, P) -> (N, 2)
        """The nearest points of the plane."""
        projected: Array = (points - self.origin) @ self.directions.T
        return projected

    def points(self, place: Array) -> Array:  # (N, 2) -> (N, P)
        """The coordinates of points of the plane."""
        found: Array = self.origin + place @ self.directions
        return found


@dataclass(frozen=True, eq=False)
class Surfaces:
    """What circuits are worth: mean negative log-likelihoods in nats, and the mean trace over the training rows."""

    train_nll: Array  # (N,)
    test_nll: Array
    trace: Array


def principal_plane(iterates: Array) -> Plane:  # (N, P)
    """The plane of the first two principal components of the iterates, through their mean."""
    origin = iterates.mean(0)
    _, lengths, directions = np.linalg.svd(iterates - origin, full_matrices=False)
    variance = np.square(lengths) / max(float(np.square(lengths).sum()), 1e-300)
    return Plane(origin, directions[:2], (float(variance[0]), float(variance[1])))


def to_coordinates(params: Params) -> Array:  # -> (R, P)
    """The coordinates of each run of a fleet with Gaussian inputs only."""
    runs = params.runs
    means, variances = zip(*(layer.double().unbind(-1) for layer in params.inputs), strict=True)
    parts = [*(w.double().sqrt() for w in params.weights), *means, *(v.log() / 2 for v in variances)]
    coordinates: Array = torch.cat([part.reshape(runs, -1) for part in parts], dim=1).cpu().numpy()
    return coordinates


def from_coordinates(points: Array, like: Params) -> Params:  # (N, P) -> a fleet of N runs
    """The parameters that points stand for, shaped, placed and typed as those of `like`."""
    count = len(points)
    layers = [*like.weights, *(layer[..., 0] for layer in like.inputs), *(layer[..., 1] for layer in like.inputs)]
    sizes = [layer[0].numel() for layer in layers]
    parts = torch.split(torch.from_numpy(points), sizes, dim=1)
    shaped = [part.reshape(count, *layer.shape[1:]) for part, layer in zip(parts, layers, strict=True)]
    weights = [_on_simplex(part.square()) for part in shaped[: len(like.weights)]]
    inner = shaped[len(like.weights) :]
    half = len(inner) // 2
    inputs = [torch.stack([m, (2 * s).exp()], dim=-1) for m, s in zip(inner[:half], inner[half:], strict=True)]
    return Params(tuple(weights), tuple(inputs)).to(like.device, like.dtype)


def _on_simplex(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


def evaluate(program: Program, params: Params, train: Table, test: Table) -> Surfaces:
    """Likelihoods and the exact trace of the Hessian for every run of a fleet, a few hundred runs at a time."""
    found = []
    for start in range(0, params.runs, RUNS_AT_ONCE):
        part = params.select(range(start, min(start + RUNS_AT_ONCE, params.runs)))
        backend = choose_backend(program, part)
        batches = chunks(train, chunk_size(backend, backward=True), part.dtype)
        sums = backend.statistics(part, batches, Request(curvature=True))
        assert sums.curvature is not None
        test_ll = mean_log_likelihood(backend, part, test, chunk_size(backend, backward=False))
        trace = sums.curvature.trace() / sums.weight
        found.append(torch.stack([-sums.mean_log_likelihood, -test_ll, trace.double()]).cpu().numpy())
    return Surfaces(*np.concatenate(found, axis=1))
