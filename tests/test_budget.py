"""A memory budget is checked before memory is taken, wherever much can be taken; what it leaves changes no result."""

import numpy as np
import pytest

import circurve as cc
from circurve.budget import Need, readable
from circurve.errors import MemoryLimitError, OptionError

ROWS = (np.random.default_rng(0).random((80, 5)) < 0.4).astype(np.uint8)


@pytest.fixture(scope="module")
def model():
    return cc.fit(cc.hclt(ROWS, 3), ROWS, epochs=1, progress=False, device="cpu").model


def test_a_need_says_what_is_needed_for_what_and_what_to_change():
    need = Need("reading", {"rows": 1500, "names": 20, "nothing": 0}, "read less")
    assert need.left(2000) == 480
    assert need.left(1520) == 1
    with pytest.raises(MemoryLimitError) as caught:
        need.left(1519)
    wanted = "reading needs 1.52 kB (rows 1.5 kB, names 20 bytes), but memory_budget=1519 is less: read less"
    assert str(caught.value) == f"{wanted}, or a larger memory_budget"
    assert need.left(None, lambda: 2000) is None
    with pytest.raises(MemoryLimitError, match="but 100 bytes are free: read less"):
        need.left(None, lambda: 100)


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "1GB"])
def test_a_budget_is_a_positive_number_of_bytes(budget):
    with pytest.raises(OptionError, match="memory_budget must be a positive number of bytes"):
        Need("reading", {}, "").left(budget)


@pytest.mark.parametrize(("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (3 * 10**12, "3 TB")])
def test_sizes_for_people(size, text):
    assert readable(size) == text


CALLS = {
    "tree": lambda model, budget: cc.chow_liu_tree(ROWS, memory_budget=budget).parents,
    "hclt": lambda model, budget: [n.name for n in cc.hclt(ROWS, 2, memory_budget=budget).nodes],
    "chow_liu": lambda model, budget: [n.name for n in cc.chow_liu(ROWS, memory_budget=budget).nodes],
    "log_prob": lambda model, budget: model.log_prob(ROWS, memory_budget=budget),
    "streamed log_prob": lambda model, budget: model.log_prob(cc.open_stream(ROWS), memory_budget=budget),
    "curvature": lambda model, budget: cc.curvature(model, ROWS, memory_budget=budget).total,
    "per sample": lambda model, budget: (
        cc.curvature(model, ROWS, per_sample=True, memory_budget=budget).per_sample.total
    ),
    "hessian_trace": lambda model, budget: cc.hessian_trace(model, ROWS, memory_budget=budget),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_refuses_a_budget_that_is_too_small_and_is_the_same_within_one(name, model):
    call = CALLS[name]
    with pytest.raises(MemoryLimitError, match="but memory_budget=5 is less"):
        call(model, 5)
    free, bounded = call(model, None), call(model, 60_000)
    if isinstance(free, list):
        assert free == bounded
    else:
        np.testing.assert_allclose(bounded, free, rtol=1e-5, atol=1e-7)


def test_the_whole_matrix_of_very_many_columns_is_refused():
    wide = np.zeros((2, 2000), dtype=np.uint8)
    with pytest.raises(MemoryLimitError, match=r"the matrix 32 MB.*chow_liu_tree, which needs no matrix"):
        cc.structures.mutual_information(wide, memory_budget=10**7)
