"""Every input family with drawn parameters and values, its log-probability by scipy, and impossible values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from circurve.inputs import (
    LOG_ZERO,
    Bernoulli,
    Binomial,
    Categorical,
    Family,
    Gaussian,
    Indicator,
    Poisson,
)

RUNS, GROUPS, UNITS, SAMPLES = 3, 2, 4, 40


@dataclass(frozen=True)
class Case:
    """A family, how to draw parameters and values for it, its log-probability by scipy, and impossible values."""

    family: Family
    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]  # shape (...) -> (..., P)
    values: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]  # shape -> shape
    reference: Callable[[np.ndarray, np.ndarray], np.ndarray]  # (..., P), (...) -> (...)
    log_mass: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # (..., P), ends (...), (...) -> (...)
    impossible: tuple[tuple[tuple[float, ...], float], ...] = ()  # (parameters of a unit, value of probability 0)


def probability(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(1e-6, 1 - 1e-6, (*shape, 1))


def table_log_prob(parameters: np.ndarray, x: np.ndarray) -> np.ndarray:
    shape = np.broadcast_shapes(parameters.shape[:-1], x.shape)
    table = np.broadcast_to(parameters, (*shape, parameters.shape[-1]))
    states = np.broadcast_to(x, shape).astype(int)
    return np.log(np.take_along_axis(table, states[..., None], -1)[..., 0])


def summed_mass(
    log_prob: Callable[[np.ndarray, np.ndarray], np.ndarray], states: np.ndarray
) -> Callable[..., np.ndarray]:
    """The logarithm of the sum of p(x) over the states between two ends."""

    def log_mass(parameters: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        logs = log_prob(parameters[..., None, :], states)  # (..., states)
        inside = (low[..., None] <= states) & (states <= high[..., None])
        with np.errstate(divide="ignore"):
            return special.logsumexp(np.where(inside, logs, -np.inf), axis=-1)

    return log_mass


def interval_mass(log_cdf: Callable[..., np.ndarray], log_sf: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The logarithm of a difference of distribution functions, from the smaller tail. Ends may be open."""

    def log_mass(parameters: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        left = np.stack(np.broadcast_arrays(log_cdf(parameters, high), log_cdf(parameters, low)))
        right = np.stack(np.broadcast_arrays(log_sf(parameters, low), log_sf(parameters, high)))
        ends = np.where(left[0] <= right[0], left, right)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(ends[0] > ends[1], ends[0] + np.log(-np.expm1(ends[1] - ends[0])), -np.inf)

    return log_mass


def categorical(states: int) -> Case:
    unit = (0.0,) + (1 / (states - 1),) * (states - 1)

    def values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        drawn = rng.integers(0, states, shape)
        drawn[..., :states] = np.arange(states)  # every state occurs: the maximiser lies inside the simplex
        return drawn

    return Case(
        Categorical(states),
        lambda rng, shape: rng.dirichlet(np.ones(states), shape),
        values,
        table_log_prob,
        summed_mass(table_log_prob, np.arange(states)),
        ((unit, 0.0),),
    )


def gaussian(centre: float, spread: float) -> Case:
    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        mean, variance = rng.normal(centre, spread, shape), (spread * rng.uniform(0.5, 2, shape)) ** 2
        return np.stack([mean, variance], -1)

    return Case(
        Gaussian(),
        draw,
        lambda rng, shape: rng.normal(centre, 2 * spread, shape),
        lambda p, x: stats.norm.logpdf(x, p[..., 0], np.sqrt(p[..., 1])),
        interval_mass(
            lambda p, x: stats.norm.logcdf(x, p[..., 0], np.sqrt(p[..., 1])),
            lambda p, x: stats.norm.logsf(x, p[..., 0], np.sqrt(p[..., 1])),
        ),
        (((centre, 1e-4), 1e18), ((centre, 1e-30), -1e18)),
    )


def binomial(trials: int) -> Case:
    return Case(
        Binomial(trials),
        probability,
        lambda rng, shape: rng.integers(0, trials + 1, shape),
        lambda p, x: stats.binom.logpmf(x, trials, p[..., 0]),
        summed_mass(lambda p, x: stats.binom.logpmf(x, trials, p[..., 0]), np.arange(trials + 1)),
        (((0.0,), 1.0), ((0.0,), float(trials)), ((1.0,), 0.0), ((1.0,), trials - 1.0)),
    )


def poisson_mass(parameters: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Terms are added up within 3000 of the rate or, for an interval that lies beyond, from its nearer end on."""
    rate = parameters[..., 0]
    first, last = np.broadcast_arrays(np.maximum(np.ceil(low), 0), np.minimum(np.floor(high), 1e9))
    start = np.clip(np.clip(rate - 1500, first, last), 0, None)
    states = np.floor(start)[..., None] + np.arange(-3000, 3001)
    inside = (states >= first[..., None]) & (states <= last[..., None])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(inside, stats.poisson.logpmf(np.maximum(states, 0), rate[..., None]), -np.inf)
        return special.logsumexp(logs, axis=-1)


def poisson(scale: float) -> Case:
    return Case(
        Poisson(),
        lambda rng, shape: scale * rng.uniform(0.5, 2, (*shape, 1)),
        lambda rng, shape: rng.poisson(scale * rng.uniform(0.5, 2, shape)),
        lambda p, x: stats.poisson.logpmf(x, p[..., 0]),
        poisson_mass,
        (((0.0,), 1.0), ((0.0,), 2.0**24)),
    )


CASES = {
    "bernoulli": Case(
        Bernoulli(),
        probability,
        lambda rng, shape: rng.integers(0, 2, shape),
        lambda p, x: stats.bernoulli.logpmf(x, p[..., 0]),
        summed_mass(lambda p, x: stats.bernoulli.logpmf(x, p[..., 0]), np.arange(2)),
        (((0.0,), 1.0), ((1.0,), 0.0)),
    ),
    "categorical-2": categorical(2),
    "categorical-7": categorical(7),
    "gaussian": gaussian(0.0, 1.0),
    "gaussian-far": gaussian(1e4, 1.0),
    "gaussian-wide": gaussian(-50.0, 1e3),
    "binomial-1": binomial(1),
    "binomial-20": binomial(20),
    "binomial-20000": binomial(20_000),
    "poisson-small": poisson(0.3),
    "poisson": poisson(8.0),
    "poisson-large": poisson(2e4),
}
LEARNING = [pytest.param(case, id=name) for name, case in CASES.items()]
INDICATOR = Case(
    Indicator((0, 3, 1, 3)),
    lambda rng, shape: np.zeros((*shape, 0)),
    lambda rng, shape: rng.integers(0, 5, shape),
    lambda p, x: np.where(x == np.array([0, 3, 1, 3])[:, None], 0.0, LOG_ZERO),
    lambda p, low, high: np.where((low <= (v := np.array([0, 3, 1, 3])[:, None])) & (v <= high), 0.0, LOG_ZERO),
)
ALL = [*LEARNING, pytest.param(INDICATOR, id="indicator")]
DTYPES = [torch.float32, torch.float64]


def parameters_of(case: Case, seed: int, dtype: torch.dtype = torch.float64, runs: int = RUNS) -> Tensor:
    drawn = case.draw(np.random.default_rng(seed), (runs, GROUPS, UNITS))
    return torch.from_numpy(drawn).to(dtype)  # (R, G, K, P)


def values_of(case: Case, seed: int, dtype: torch.dtype = torch.float64, runs: int = 1) -> Tensor:
    drawn = case.values(np.random.default_rng(seed + 1000), (runs, GROUPS, SAMPLES))
    return torch.from_numpy(np.asarray(drawn, dtype=np.float64)).to(dtype)  # (R or 1, G, N)


def log_prob(case: Case, parameters: Tensor, x: Tensor) -> Tensor:
    found = case.family.log_prob(parameters, x)
    assert found.shape == (*parameters.shape[:-1], x.shape[-1])
    assert found.dtype == parameters.dtype
    return found


def statistics_of(case: Case, x: Tensor, weight: Tensor, observed: Tensor | None = None) -> Tensor:
    features = case.family.features(x, observed)
    return weight.to(features.dtype) @ features.transpose(-1, -2)  # (R, G, K, S)


def per_run(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype).reshape(-1, 1, 1, 1)


def weights(seed: int, runs: int = RUNS, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(runs, GROUPS, UNITS, SAMPLES, generator=generator, dtype=torch.float64).to(dtype)


def grid_of(case: Case, parameters: Tensor) -> tuple[Tensor, float]:
    """Points that hold all the probability of all units, and the distance between them."""
    support = case.family.support()
    if support is not None:
        return torch.tensor(support, dtype=torch.float64), 1.0
    mean = case.family.mean(parameters)
    if case.family.discrete:
        return torch.arange(0, 3 * mean.max().item() + 40, dtype=torch.float64), 1.0
    sd = parameters[..., 1].sqrt()
    low, high = (mean - 9 * sd).min().item(), (mean + 9 * sd).max().item()
    return torch.linspace(low, high, 4001, dtype=torch.float64), (high - low) / 4000
