"""What the kernels of all sum layers read: the logs of their elements, and the flow that reaches their units."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["log_elements", "received"]


@triton.jit
def _row(values, rows, c, n, C, N, NS):
    """Rows of values."""
    return tl.load(values + rows[:, None] * NS + n[None, :], mask=(c < C)[:, None] & (n < N)[None, :], other=0.0)


@triton.jit
def _column(tables, state_row, rows, c, n, C, N, S: tl.constexpr, SHAPE: tl.constexpr):
    """Columns of a table, chosen by the samples' states."""
    state = tl.load(state_row + n, mask=n < N, other=0).to(tl.int32)
    if S == 2:
        low = tl.load(tables + rows * 2, mask=c < C, other=0.0)
        high = tl.load(tables + rows * 2 + 1, mask=c < C, other=0.0)
        total = tl.where((state == 0)[None, :], low[:, None], high[:, None])
    else:
        inside = (c < C)[:, None] & (n < N)[None, :]
        total = tl.load(tables + rows[:, None] * S + state[None, :], mask=inside, other=0.0)
    return total


@triton.jit
def _factor(
    values, tables, states, factors, kinds, bases, g, j, c, n, C, J, N, NS, S: tl.constexpr, CONTIGUOUS: tl.constexpr
):
    """The logs of factor j of a group: rows of values, or columns of a table chosen by the sample's state.

    No branches: loads that do not apply are masked, so that the loads of all factors can be under way at once.
    """
    kind = tl.load(kinds + g * J + j)
    if CONTIGUOUS:
        rows = tl.load(bases + g * J + j).to(tl.int64) + c
    else:
        rows = tl.load(factors + (g * J + j).to(tl.int64) * C + c, mask=c < C, other=0).to(tl.int64)
    total = tl.load(
        values + rows[:, None] * NS + n[None, :], mask=(c < C)[:, None] & (n < N)[None, :] & (kind == -1), other=0.0
    )
    state = tl.load(states + kind.to(tl.int64) * NS + n, mask=(n < N) & (kind >= 0), other=-1).to(tl.int32)
    if S <= 4:
        for s in tl.static_range(S):
            column = tl.load(tables + rows * S + s, mask=(c < C) & (kind >= 0), other=0.0)
            total = tl.where((state == s)[None, :], column[:, None], total)
    else:
        inside = (c < C)[:, None] & (state >= 0)[None, :]
        total += tl.load(tables + rows[:, None] * S + state[None, :], mask=inside, other=0.0)
    return total


@triton.jit
def log_elements(
    values, tables, states, factors, kinds, bases, g, c, n, C, J, N, NS,
    S: tl.constexpr, CONTIGUOUS: tl.constexpr, AT_ONCE: tl.constexpr, SHAPE: tl.constexpr,
):  # fmt: skip
    """The sum of the logs of all factors of an element; -inf beyond the last element.

    AT_ONCE, if not 0, is J: the loads of all factors start together, for few programs that wait for memory. Else one
    factor after the other does only what its kind needs, for many programs that hide each other's waiting.
    """
    total = tl.zeros(SHAPE, dtype=tl.float32)
    if AT_ONCE > 0:
        for j in tl.static_range(AT_ONCE):
            total += _factor(values, tables, states, factors, kinds, bases, g, j, c, n, C, J, N, NS, S, CONTIGUOUS)
    else:
        for j in range(J):
            kind = tl.load(kinds + g * J + j)
            if kind > -2:
                if CONTIGUOUS:
                    rows = tl.load(bases + g * J + j).to(tl.int64) + c
                else:
                    rows = tl.load(factors + (g * J + j).to(tl.int64) * C + c, mask=c < C, other=0).to(tl.int64)
                if kind == -1:
                    total += _row(values, rows, c, n, C, N, NS)
                else:
                    total += _column(tables, states + kind.to(tl.int64) * NS, rows, c, n, C, N, S, SHAPE)
    return tl.where((c < C)[:, None], total, -float("inf"))


@triton.jit
def received(flows, readers, g, k, n, K, J, N, NS):
    """F of the units k of a group: the sum of the flows of the elements that read them."""
    rows = tl.load(readers + (g * J).to(tl.int64) * K + k, mask=k < K, other=0).to(tl.int64)
    inside = (k < K)[:, None] & (n < N)[None, :]
    flow = tl.load(flows + rows[:, None] * NS + n[None, :], mask=inside, other=0.0)
    for j in range(1, J):
        rows = tl.load(readers + (g * J + j).to(tl.int64) * K + k, mask=k < K, other=0).to(tl.int64)
        flow += tl.load(flows + rows[:, None] * NS + n[None, :], mask=inside & (rows > 0)[:, None], other=0.0)
    return flow
