"""A backend that may keep its parameters prepared gives the answers of one that prepares them in every call."""

from __future__ import annotations

import pytest
import torch
from test_fused import batch_of, on_device, tree

from circuits import ALL, all_sums
from circurve.engine import choose_backend

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")


def test_fixed_parameters_are_loaded_once_and_again_after_others() -> None:
    case = tree(units=5, samples=7)
    fixed, others = on_device(case), on_device(tree(units=5, samples=7, seed=1))
    batch = batch_of(case)
    plain = choose_backend(case.program, fixed, "fused")
    backend = choose_backend(case.program, fixed, "fused", fixed=True)
    wanted, of_others = plain.log_prob(fixed, batch), plain.log_prob(others, batch)
    assert not torch.equal(wanted, of_others)
    for params, values in ((fixed, wanted), (fixed, wanted), (others, of_others), (fixed, wanted)):
        assert torch.equal(backend.log_prob(params, batch), values)
    backend.release()
    assert torch.equal(backend.log_prob(fixed, batch), wanted)
    sums = zip(
        all_sums(backend.statistics(fixed, [batch], ALL)), all_sums(plain.statistics(fixed, [batch], ALL)), strict=True
    )
    assert all(torch.equal(a, b) for a, b in sums)


def test_other_parameters_may_change_in_place() -> None:
    case = tree(units=5, samples=7)
    fixed, changing = on_device(case), on_device(tree(units=5, samples=7, seed=1)).clone()
    backend = choose_backend(case.program, fixed, "fused", fixed=True)
    before = backend.log_prob(changing, batch_of(case))
    for weights in changing.weights:
        weights.copy_(torch.full_like(weights, 1 / weights.shape[-1]))
    after = backend.log_prob(changing, batch_of(case))
    assert not torch.allclose(before, after)
    wanted = choose_backend(case.program, changing, "reference").log_prob(changing, batch_of(case))
    torch.testing.assert_close(after, wanted, rtol=2e-4, atol=2e-4)


def test_a_failed_call_leaves_nothing_half_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    case = tree(units=5, samples=7)
    fixed, batch = on_device(case), batch_of(case)
    backend = choose_backend(case.program, fixed, "fused", fixed=True)
    wanted = choose_backend(case.program, fixed, "fused").log_prob(fixed, batch)

    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patch:
        patch.setattr(backend.engine, "accept", fail)
        with pytest.raises(torch.OutOfMemoryError):
            backend.log_prob(fixed, batch)
    assert torch.equal(backend.log_prob(fixed, batch), wanted)
