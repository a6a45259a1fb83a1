"""Curvature records made up for tests of their analysis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from circurve.curvature.record import Curvature, NodeRef

Values = Sequence[float] | NDArray[np.float64]


def record(total: Values, local: Values, depth: Values | None = None, depth_mean: Values | None = None) -> Curvature:
    """A record of given T^ and t^; depths are 0, 1, 2.. unless given."""
    t, loc = np.array(total, dtype=np.float64), np.array(local, dtype=np.float64)
    m = len(t)
    low = np.arange(m, dtype=np.float64) if depth is None else np.array(depth, dtype=np.float64)
    mean = low if depth_mean is None else np.array(depth_mean, dtype=np.float64)
    with np.errstate(over="ignore"):
        use = np.divide(t, loc, out=np.zeros(m), where=loc > 0)
    return Curvature(
        flow=np.sqrt(use),
        flow_squared=use,
        local=loc,
        local_mean_ratio=loc,
        total=t,
        depth_min=low,
        depth_max=low,
        depth_mean=mean,
        layer=np.zeros(m),
        scope_size=np.ones(m),
        edges=np.full(m, 2.0),
        nodes=tuple(NodeRef(3 * i, f"s{i}", i % 2) for i in range(m)),
        weight=10.0,
        impossible=0,
        mean_ratio=(),
    )


# few levels, so that ties and zeros are common; T^ > 0 only where t^ > 0, as T^ is a mean of F^2 t
LEVELS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0, 7.0]) | st.floats(1e-3, 1e3)
UNITS = st.tuples(LEVELS, LEVELS, st.integers(0, 5)).map(lambda u: (u[0] if u[1] > 0 else 0.0, *u[1:]))
RECORDS = st.lists(UNITS, max_size=14).map(lambda units: record(*([u[k] for u in units] for k in range(3))))


def uneven(m: int) -> Curvature:
    rng = np.random.default_rng(7)
    depth = rng.integers(0, 40, m).astype(np.float64)
    local = np.round(rng.gamma(1.0, 20.0, m), 1) + 1
    total = local * np.exp(-0.7 * depth + rng.normal(size=m))
    total[rng.random(m) < 0.05] = 0
    return record(total, local, depth, depth + rng.random(m))
