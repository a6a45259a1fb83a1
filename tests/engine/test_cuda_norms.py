"""One pass over flows and scaled sums gives what several torch operations give."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from circurve.engine.cuda.norms import add_row_sums, serves, state_sums

pytest.importorskip("triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def draw(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))).add(0.1).to(DEVICE)


@pytest.mark.parametrize("samples", [1, 5, 40])
def test_row_sums(samples):
    flow, scaled = draw(2, 3, 5, samples), draw(2, 3, 5, samples)
    norm, weight, inverse = draw(2, 3, 1, samples), draw(2, samples), draw(2, samples)
    largest = torch.zeros(2, 3, 1, samples, device=DEVICE)
    largest[1, 0, 0, 0] = -1e30  # no child is possible there
    units = torch.ones(3, 2, 20, dtype=torch.float64, device=DEVICE)
    add_row_sums(units, 4, SimpleNamespace(flow=flow, scaled=scaled, log_largest=largest), norm, (weight, inverse))
    used, sharp = flow**2 * inverse[:, None, None], (norm / scaled) ** 2
    possible = weight[:, None, None] * (largest > -1e29)
    wanted = torch.stack([used.sum(-1), (sharp * possible).sum(-1), (used * sharp).sum(-1)]).flatten(2)
    torch.testing.assert_close(units[..., 4:19], 1 + wanted.double(), rtol=1e-5, atol=1e-6)
    assert bool((units[..., :4] == 1).all())
    assert bool((units[..., 19:] == 1).all())


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("states", [1, 2, 3, 5])
def test_state_sums(states, shared):
    flow, inverse = draw(2, 3, 5, 9), draw(2, 9)
    chosen = torch.randint(0, states, (1 if shared else 2, 3, 9), generator=torch.Generator().manual_seed(0))
    indicator = torch.nn.functional.one_hot(chosen, states).transpose(-1, -2).float().to(DEVICE)
    sums, squares = state_sums(flow, indicator, inverse)
    wide = indicator.expand(2, -1, -1, -1).transpose(-1, -2)
    torch.testing.assert_close(sums, flow @ wide)
    torch.testing.assert_close(squares, (flow**2 * inverse[:, None, None]) @ wide)


def test_only_float32_on_a_gpu_is_served():
    assert not serves(torch.zeros(2))
    assert not serves(torch.zeros(2, dtype=torch.float64, device=DEVICE))
