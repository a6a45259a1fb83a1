"""M-steps over the whole range of floating numbers: what is drawn, and what must hold for every row afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor

from circurve.engine.numerics import LIMITS
from circurve.learning import Gated, Global, Vanilla
from circurve.learning.methods import Method

__all__ = ["STEPS", "Fleet", "Layer", "check_rows", "draw_fleet", "draw_mask", "flush", "held", "layer_of"]

COUNTS = (0.0, 1e-45, 1e-38, 1e-30, 1e-25, 1e-20, 1e-12, 1.0, 1e8)
MUS = (0.0, 1e-30, 1e-4, 1.0, 1e12, 1e300)
GATES = (0.0, 1e-300, 0.5, 1.0)
PSEUDOCOUNTS = (0.0, 1e-30, 0.01, 1e18)
MULTIPLIERS = (1e-300, 1e-30, 1.0, 1e30, 1e300)
STEPS = (1e-3, 0.1, 1.0)
BATCHES = (1.0, 200.0, 1e8)
FORMS = list(product(("surrogate", "exact"), ("normalize", "exact"), ("count", "mean")))


@dataclass(frozen=True)
class Fleet:
    """One M-step of R runs with methods of their own."""

    methods: tuple[Method, ...]
    mus: tuple[float, ...]
    steps: tuple[float, ...]
    batch: Tensor  # (R,) float64, the weight of the samples

    @property
    def runs(self) -> int:
        return len(self.methods)


@dataclass(frozen=True)
class Layer:
    """Counts, second moments and weights of a sum layer, (R, K, C) float32 numbers; mask: (K, C) boolean."""

    counts: Tensor
    moments: Tensor
    old: Tensor
    gates: Tensor  # (R, K) float64
    mask: Tensor


# --- what is drawn ---


def draw_fleet(rng: np.random.Generator, steps: tuple[float, ...] = STEPS) -> Fleet:
    """Plain EM with every pseudocount; each form of penalty with every mu and, at random, all the rest."""
    methods: list[Method] = [Vanilla(pseudocount=value) for value in PSEUDOCOUNTS]
    mus = [0.0] * len(methods)
    for (penalty, simplex, scale), mu in product(FORMS, MUS):
        options = {
            "penalty": penalty, "simplex": simplex, "mu_scale": scale,
            "pseudocount": rng.choice(PSEUDOCOUNTS, p=(0.7, 0.1, 0.1, 0.1)).item(),
            "multiplier": rng.choice(MULTIPLIERS).item(),
        }  # fmt: skip
        methods.append(Global(mu, **options) if rng.random() < 0.4 else Gated(mu, "ones", **options))
        mus.append(mu)
    runs = len(methods)
    return Fleet(
        tuple(methods), tuple(mus), tuple(rng.choice(steps, runs).tolist()), torch.from_numpy(rng.choice(BATCHES, runs))
    )


def draw_mask(rng: np.random.Generator, units: int, children: int, masked: bool) -> np.ndarray:  # (K, C)
    """Each row has an edge."""
    mask = rng.random((units, children)) < (0.6 if masked else 2)
    mask[np.arange(units), rng.integers(0, children, units)] = True
    return mask


def layer_of(fleet: Fleet, rng: np.random.Generator, mask: np.ndarray) -> Layer:
    """Rows of one count, of one value throughout, of tiny ones alone, and of every mixture; gates of all sizes."""
    shape = (fleet.runs, *mask.shape)
    children = mask.shape[-1]
    kind = rng.integers(0, 5, shape[:2])[..., None]
    one = rng.choice(COUNTS, shape[:2])[..., None]
    hot = np.arange(children) == rng.integers(0, children, shape[:2])[..., None]
    mixed, tiny = rng.choice(COUNTS, shape), rng.choice(COUNTS[:4], shape)
    extremes = rng.choice((1e-45, 1e8), shape)
    counts = np.select(
        [kind == 0, kind == 1, kind == 2, kind == 3], [one * hot, one + 0 * mixed, tiny, extremes], mixed
    )
    counts = np.float32(counts * mask)
    flow = np.minimum(counts, rng.choice((1.0, 1e-3, 1e-10), shape))  # of one sample: S <= N max(F), F <= 1 and <= N
    moments = counts.astype(np.float64) * flow
    old = np.exp(rng.uniform(-25, 0, shape)) * mask
    old = np.where((rng.random(shape) < 0.1) & (old < 0.5 * old.max(-1, keepdims=True)), 1e-40 * mask, old)
    old = np.float32(old / old.sum(-1, keepdims=True))  # some of the weights are subnormal
    gates = rng.choice(GATES, shape[:2])
    for run, method in enumerate(fleet.methods):
        if not isinstance(method, Gated):
            gates[run] = float(isinstance(method, Global))
    arrays = (counts, np.float32(moments), old, gates, mask)
    return Layer(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))


@contextmanager
def flush(on: bool) -> Iterator[None]:
    """On a CPU, subnormal numbers become zero inside, as on a GPU; outside they are kept."""
    assert torch.set_flush_denormal(on)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


# --- what must hold ---


def held(counts: Tensor, dtype: torch.dtype) -> Tensor:  # (..., C) -> (..., 1)
    """Rows that received too little flow to move. Counts of the tests are never near the limit without being on it."""
    return counts.to(dtype).double().sum(-1, keepdim=True) < counts.new_tensor(LIMITS[dtype].least_flow, dtype=dtype)


def check_rows(found: Tensor, layer: Layer, dtype: torch.dtype = torch.float32) -> None:
    """Rows are finite, sum to one, are positive where an edge exists; those with too little flow stay bit for bit."""
    old = layer.old.to(dtype)
    exists = layer.mask.expand_as(found)
    assert bool(found.isfinite().all())
    assert bool((found[exists] > 0).all())
    assert bool((found[~exists] == 0).all())
    assert bool((found <= 1 + 1e-6).all())
    error = (found.double().sum(-1) - 1).abs().max()
    assert float(error) <= torch.finfo(torch.float32).eps * (8 + found.shape[-1] / 4)
    stays = held(layer.counts, dtype).expand_as(found)
    assert torch.equal(bits(found)[stays], bits(old)[stays])


def bits(values: Tensor) -> Tensor:
    """The numbers as they are stored: no comparison flushes them."""
    return values.contiguous().view(torch.int32 if values.dtype == torch.float32 else torch.int64)
