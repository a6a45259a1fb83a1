"""Full-batch EM on a CPU prepares its one batch once, however many epochs follow."""

from __future__ import annotations

from typing import Any

import pytest
from learning_helpers import binary_rows, quick

from circurve import hclt
from circurve.engine import Batch
from circurve.engine.tree import bound

TRAIN = binary_rows(90)


@pytest.mark.parametrize(("owner", "name"), [(bound, "mark_states"), (Batch, "_cut")])
def test_more_epochs_do_not_prepare_the_batch_again(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    calls, original = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *given: (calls.append(name), original(*given))[1])
    circuit = hclt(TRAIN, 2)
    counts = []
    for epochs in (2, 9):
        calls.clear()
        quick(circuit, TRAIN, batch_size=None, epochs=epochs, device="cpu")
        counts.append(len(calls))
    assert counts[0] == counts[1] > 0
