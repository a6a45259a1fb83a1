"""The M-step of every family over the whole range of flows, with subnormal numbers kept and flushed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from family_cases import ALL, DTYPES, GROUPS, INDICATOR, SAMPLES, UNITS, Case, parameters_of, statistics_of, values_of

from circurve.engine.numerics import LIMITS
from circurve.learning.mstep import moved_inputs
from mstep_cases import flush

FLOWS = (0.0, 1e-45, 1e-38, 1e-30, 1e-25, 1e-20, 1e-12, 1.0, 1e8)
PSEUDOCOUNTS = (0.0, 1e-30, 0.01, 1e18)
STEPS = (1e-3, 0.1, 1.0)
RUNS = 36


@pytest.mark.parametrize("flushed", [False, True], ids=["subnormals kept", "subnormals flushed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("case", ALL)
def test_units_move_to_valid_parameters_or_stay(case: Case, dtype: torch.dtype, flushed: bool) -> None:
    """Flows of one size or of mixed ones; a unit stays bit for bit if it received less than the least flow."""
    rng = np.random.default_rng(0)
    shape = (RUNS, GROUPS, UNITS)
    one = rng.choice(FLOWS, (*shape, 1)) * (rng.random((*shape, SAMPLES)) < 0.2)
    mixed = rng.choice(FLOWS, (*shape, SAMPLES))
    flow = torch.from_numpy(np.where(rng.random((*shape, 1)) < 0.8, one, mixed)).to(dtype)
    statistics = statistics_of(case, values_of(case, 0, dtype), flow)
    pseudocount, step = (
        torch.from_numpy(rng.choice(values, (RUNS, 1, 1, 1))).to(dtype) for values in (PSEUDOCOUNTS, STEPS)
    )
    old = parameters_of(case, 0, dtype, runs=RUNS)
    with flush(flushed):
        moved = moved_inputs(case.family, old, statistics, pseudocount, step)
    assert bool(moved.isfinite().all())
    assert case.family.check_parameters(moved) is None
    stays = (case.family.received(statistics) < LIMITS[dtype].least_flow)[..., 0]
    assert torch.equal(moved[stays], old[stays])
    if case is not INDICATOR:
        assert 0.05 < float(stays.double().mean()) < 0.7
        whole = ~stays & (pseudocount[..., 0] == 0) & (step[..., 0] == 1)
        assert not bool((moved[whole] == old[whole]).all(-1).any())


@pytest.mark.parametrize("case", ALL)
def test_what_a_unit_received_is_the_flow_of_observed_samples(case: Case) -> None:
    flow = torch.rand(2, GROUPS, UNITS, SAMPLES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = values_of(case, 0)
    observed = (torch.arange(SAMPLES) % 3 > 0).to(x.dtype).expand_as(x)
    received = case.family.received(statistics_of(case, x * observed, flow, observed))
    wanted = (flow * observed[:, :, None]).sum(-1, keepdim=True)
    torch.testing.assert_close(received, torch.zeros_like(wanted) if case is INDICATOR else wanted)
