"""The state of a training survives the way into arrays and back, to the last bit and stride."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.engine import Params
from circurve.learning.fleet import Finished
from circurve.learning.history import EpochRecord, Failure
from circurve.learning.plan import GateSummary
from circurve.learning.state import Sizes, TrainerState, from_arrays, to_arrays

numbers = st.floats(allow_nan=False)
maybe = st.none() | numbers


@st.composite
def tensors(draw, runs: int, dtype: torch.dtype) -> torch.Tensor:
    """(runs, G, K, C) with axes in any order in memory, and values of any kind."""
    shape = (runs, draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 4)))
    order = draw(st.permutations(range(4)))
    made = torch.rand([shape[axis] for axis in order], generator=torch.Generator().manual_seed(0), dtype=dtype)
    if made.numel():
        made.view(-1)[0] = draw(st.sampled_from([0.0, -0.0, math.inf, 1e-40, 1.0]))
    return made.permute([order.index(axis) for axis in range(4)])


@st.composite
def parameters(draw, runs: int, dtype: torch.dtype) -> Params:
    return Params(
        tuple(draw(st.lists(tensors(runs, dtype), max_size=2))),
        tuple(draw(st.lists(tensors(runs, dtype), min_size=1, max_size=2))),
    )


records = st.builds(
    EpochRecord,
    epoch=st.integers(1, 10**6),
    train_ll=numbers,
    valid_ll=maybe,
    test_ll=maybe,
    step_size=numbers,
    mu=numbers,
    seconds=numbers,
    sharpness=maybe,
    gates=st.none() | st.builds(GateSummary, numbers, numbers, numbers, numbers),
)


@st.composite
def states(draw) -> TrainerState:
    total = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    active = tuple(sorted(draw(st.sets(st.integers(0, total - 1)))))
    rest = [run for run in range(total) if run not in active]
    failure = st.none() | st.builds(Failure, st.integers(0, 9), st.text())
    one = draw(parameters(1, dtype))
    some = len(active)
    return TrainerState(
        epoch=draw(st.integers(0, 10**6)),
        seconds=draw(st.floats(0, 1e9)),
        warned=draw(st.booleans()),
        shuffles={seed: torch.Generator().manual_seed(seed).get_state() for seed in range(total)},
        backend=draw(st.sampled_from(["reference", "tree", "fused"])),
        sizes=Sizes(*draw(st.tuples(st.integers(1, 9), *[st.none() | st.integers(1, 9)] * 3))),
        active=active,
        kept=draw(parameters(some, dtype)) if some else None,
        memories=tuple(draw(st.lists(tensors(some, torch.float64), max_size=3))) if some else (),
        best=draw(st.none() | parameters(some, dtype)) if some else None,
        best_ll=tuple(draw(numbers | st.just(-math.inf)) for _ in active),
        best_epoch=tuple(draw(st.integers(0, 99)) for _ in active),
        history=tuple(tuple(draw(st.lists(records, max_size=3))) for _ in range(total)),
        finished={run: Finished(one, draw(st.integers(0, 9)), "patience", draw(failure)) for run in rest},
    )


def listed(params: Params | None) -> list[torch.Tensor]:
    return [] if params is None else [*params.weights, *params.inputs]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    as_bits = {torch.float32: torch.int32, torch.float64: torch.int64}
    kind = as_bits.get(one.dtype, one.dtype)
    strides = one.stride() == other.stride() or one.numel() <= 1 or 1 in one.shape or 0 in one.shape
    return strides and one.dtype == other.dtype and one.contiguous().view(kind).equal(other.contiguous().view(kind))


@given(state=states())
@settings(max_examples=60, deadline=None)
def test_there_and_back(state):
    arrays, values = to_arrays(state)
    assert all(array.flags.c_contiguous for array in arrays.values())
    found = from_arrays(arrays, json.loads(json.dumps(values)), torch.device("cpu"))
    for name in ("epoch", "seconds", "warned", "backend", "sizes", "active", "best_ll", "best_epoch", "history"):
        assert getattr(found, name) == getattr(state, name)
    for name in ("kept", "best"):
        pairs = zip(listed(getattr(state, name)), listed(getattr(found, name)), strict=True)
        assert all(same(a, b) for a, b in pairs)
    assert all(same(a, b) for a, b in zip(state.memories, found.memories, strict=True))
    assert {seed: bytes(s.numpy()) for seed, s in found.shuffles.items()} == {
        seed: bytes(s.numpy()) for seed, s in state.shuffles.items()
    }
    assert found.finished.keys() == state.finished.keys()
    for run, ended in state.finished.items():
        assert vars(found.finished[run]) | {"params": 0} == vars(ended) | {"params": 0}
        assert all(a.equal(b) for a, b in zip(listed(found.finished[run].params), listed(ended.params), strict=True))


def test_restored_tensors_have_memory_of_their_own():
    """A view into a file's buffer could be aligned otherwise, and a matrix product with it would round otherwise."""
    state = TrainerState(
        1, 0.0, False, {}, "reference", Sizes(1, None, None, None), (0,),
        Params((), (torch.ones(1, 2, 2, 3),)), (), None, (0.0,), (0,), ((),), {},
    )  # fmt: skip
    arrays, values = to_arrays(state)
    found = from_arrays(arrays, values, torch.device("cpu"))
    assert found.kept is not None
    assert found.kept.inputs[0].data_ptr() % 64 == 0
    arrays["kept.inputs.0"][:] = 7
    assert found.kept.inputs[0].eq(1).all()


@pytest.mark.parametrize("runs", [1, 3])
def test_no_history_is_no_history(runs):
    state = TrainerState(
        0, 0.0, False, {}, "tree", Sizes(1, None, None, None), tuple(range(runs)),
        Params((), (torch.ones(runs, 1, 1, 1),)), (), None, (0.0,) * runs, (0,) * runs, ((),) * runs, {},
    )  # fmt: skip
    assert from_arrays(*to_arrays(state), torch.device("cpu")).history == ((),) * runs
