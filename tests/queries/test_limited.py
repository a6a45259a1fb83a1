"""A limit on the memory of questions: the same answers, fewer rows at once, and a refusal before memory is taken."""

from __future__ import annotations

import numpy as np
import pytest

import circurve as cc
from circurve.engine.reference import Reference
from circurve.queries import limited, passes

ROWS = np.random.default_rng(0).integers(0, 3, (200, 5)).astype(float)
MODEL = cc.fit(cc.hclt(ROWS, units=3), ROWS, epochs=2, device="cpu", precision="float64", progress=False).model
HOLES = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.3, np.nan, ROWS)


def test_answers_are_the_same_with_fewer_rows_at_once(monkeypatch):
    sizes = []
    within = passes.within_memory

    def counted(backend, size, work):
        sizes.append(size)
        return within(backend, size, work)

    monkeypatch.setattr(passes, "within_memory", counted)
    budget = 7 * Reference.of(MODEL.program, MODEL.params).bytes_per_sample(True)
    small = limited(MODEL, budget)
    np.testing.assert_allclose(small.impute(HOLES), MODEL.impute(HOLES), rtol=1e-12)
    assert min(sizes) < len(ROWS) <= max(sizes)
    np.testing.assert_allclose(small.marginal(HOLES), MODEL.marginal(HOLES), rtol=1e-12)


def test_the_model_itself_keeps_no_limit():
    limited(MODEL, 1)
    assert MODEL._target.memory_budget is None
    assert limited(limited(MODEL, 10), None)._target.memory_budget is None


def test_more_rows_than_memory_holds_are_refused_before_they_are_drawn():
    with pytest.raises(cc.MemoryLimitError, match=r"^sample needs 80 TB .* are free: draw fewer rows at once"):
        MODEL.sample(10**12)
    with pytest.raises(cc.MemoryLimitError, match=r"sample needs 8 kB .*, but memory_budget=5000 is less: draw fewer"):
        limited(MODEL, 5000).sample(100)
    assert len(limited(MODEL, 9000).sample(100)) == 100


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1GB"])
def test_a_limit_is_a_positive_number_of_bytes(wrong):
    with pytest.raises(cc.OptionError, match="memory_budget must be a positive number of bytes"):
        limited(MODEL, wrong)
