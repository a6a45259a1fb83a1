"""Triton kernels around the sum layers: data and outputs, tables and sums by state, totals of units."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from circurve.engine import limits
from circurve.engine.cuda.kernels import IMPOSSIBLE, per_weight

LOG_ZERO = tl.constexpr(limits.LOG_ZERO)

__all__ = [
    "by_state",
    "input_table",
    "leaf_counts",
    "leaf_table",
    "leaf_units",
    "outputs",
    "pick",
    "unit_sums",
]

VARIES = [
    "first_row",
    "first_pack",
    "first_unit",
    "table_stride",
    "units",
    "rows",
    "size",
    "span",
    "start",
    "tiles",
    "width",
    "G",
    "M",
    "R",
    "V",
]
"""Numbers that differ from circuit to circuit: no kernel is compiled again for a multiple of 16 among them."""


@triton.jit(do_not_specialize=VARIES)
def pick(
    data, rows, number, row_weights, states, sample_weights, V, N, NS, R, state_stride, width, start,
    WEIGHTED: tl.constexpr, BV: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """States and weights of batch `number`: states[r, v, n] = data[rows[number, r, n], v]; a row below 0 is padding.

    rows may be shared by all R runs (then this runs for one run, and the weights are written for all).
    """
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    v = tl.program_id(1) * BV + tl.arange(0, BV)
    r = tl.program_id(2).to(tl.int64)
    lists = tl.num_programs(2)
    at = (tl.load(number) * lists + r) * width + start + n
    row = tl.load(rows + at, mask=n < N, other=-1).to(tl.int64)
    inside = (v < V)[:, None] & (n < NS)[None, :]
    state = tl.load(data + row[None, :] * V + v[:, None], mask=inside & (row >= 0)[None, :], other=0)
    tl.store(states + r * state_stride + v[:, None] * NS + n[None, :], state, mask=inside)
    if tl.program_id(1) == 0:
        weight = tl.where(row >= 0, 1.0, 0.0)
        if WEIGHTED:
            weight = tl.load(row_weights + row, mask=row >= 0, other=0.0)
        if lists == R:
            tl.store(sample_weights + r * NS + n, weight, mask=n < NS)
        else:
            for run in range(R):
                tl.store(sample_weights + run * NS + n, weight, mask=n < NS)


@triton.jit
def _log_state(parameters, unit, live, s, P: tl.constexpr, BERNOULLI: tl.constexpr):
    """log p(state s) of units; 0 for the state "missing", which comes after the family's own."""
    if BERNOULLI:
        p = tl.load(parameters + unit, mask=live, other=0.5)
        logs = tl.where(s == 0, tl.log(1.0 - p), tl.where(s == 1, tl.log(p), 0.0))
    else:
        p = tl.load(parameters + unit * P + s, mask=live & (s < P), other=1.0)
        logs = tl.log(p)
    return tl.where(logs < LOG_ZERO, LOG_ZERO, logs)  # NaN stays NaN, which a maximum would lose


@triton.jit(do_not_specialize=VARIES)
def input_table(
    parameters, table, table_stride, first_row, units,
    P: tl.constexpr, BERNOULLI: tl.constexpr, S: tl.constexpr, BU: tl.constexpr,
):  # fmt: skip
    """The logs of all states of an input layer's units; program (block of units, run)."""
    unit = tl.program_id(0) * BU + tl.arange(0, BU)
    r = tl.program_id(1).to(tl.int64)
    live = unit < units
    for s in tl.static_range(S):
        logs = _log_state(parameters + r * units * P, unit, live, s, P, BERNOULLI)
        tl.store(table + r * table_stride + (first_row + unit).to(tl.int64) * S + s, logs, mask=live)


@triton.jit(do_not_specialize=VARIES)
def leaf_table(
    parameters, weights, table, elements, scaled, largest,
    weight_stride, table_stride, first_row, first_pack, G, K, C, CW,
    P: tl.constexpr, BERNOULLI: tl.constexpr, S: tl.constexpr, BK: tl.constexpr, C2: tl.constexpr,
):  # fmt: skip
    """Sums over inputs, state by state: E (R, G, C, S), m (R, G, S), S (R, G, K, S), and log p into the table.

    Program (block of units, group, run).
    """
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    c = tl.arange(0, C2)
    w = tl.load(
        weights + r * weight_stride + (first_pack + g.to(tl.int64) * K + k)[:, None] * CW + c[None, :],
        mask=(k < K)[:, None] & (c < CW)[None, :], other=0.0,
    )  # fmt: skip
    group = r * G + g
    for s in tl.static_range(S):
        logs = _log_state(parameters + group * C * P, c, c < C, s, P, BERNOULLI)
        logs = tl.where(c < C, logs, -float("inf"))
        top = tl.max(logs, axis=0)
        e = tl.exp(logs - top)
        total = tl.sum(w * e[None, :], axis=1)
        tl.store(
            table + r * table_stride + (first_row + g * K + k).to(tl.int64) * S + s, tl.log(total) + top, mask=k < K
        )
        tl.store(scaled + (group * K + k) * S + s, total, mask=k < K)
        if tl.program_id(0) == 0:
            tl.store(elements + (group * C + c) * S + s, e, mask=c < C)
            tl.store(largest + group * S + s, top)


@triton.jit(do_not_specialize=VARIES)
def leaf_counts(
    flows, weights, elements, scaled, counts, child_flows,
    table_stride, weight_stride, first_row, first_pack, G, K, C, CW,
    S: tl.constexpr, S2: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Counts of sums over inputs and the inputs' flow by state (R, G, C, S), from flows by state (R, rows, S).

    Program (block of children, group, run).
    """
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    group = r * G + g
    column = tl.arange(0, S2)
    down = tl.zeros((BC, S2), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        inside = (k < K)[:, None] & (c < CW)[None, :]
        at = r * weight_stride + (first_pack + g.to(tl.int64) * K + k)[:, None] * CW + c[None, :]
        w = tl.load(weights + at, mask=inside, other=0.0)
        total = tl.zeros((BK, BC), dtype=tl.float32)
        for s in tl.static_range(S):
            flow = tl.load(
                flows + r * table_stride + (first_row + g * K + k).to(tl.int64) * S + s, mask=k < K, other=0.0
            )
            ratio = flow / tl.load(scaled + (group * K + k) * S + s, mask=k < K, other=1.0)
            e = tl.load(elements + (group * C + c) * S + s, mask=c < C, other=0.0)
            total += ratio[:, None] * e[None, :]
            part = e * tl.sum(w * ratio[:, None], axis=0)
            down += tl.where((column == s)[None, :], part[:, None], 0.0)
        total *= w
        if ADD:
            total += tl.load(counts + at, mask=inside, other=0.0)
        tl.store(counts + at, total, mask=inside)
    out = child_flows + (group * C + c)[:, None] * S + column[None, :]
    tl.store(out, down, mask=(c < C)[:, None] & (column < S)[None, :])


@triton.jit(do_not_specialize=VARIES)
def unit_sums(partial, out, tiles, size, BT: tl.constexpr, BM: tl.constexpr):
    """Totals over tiles of partial (R, tiles, size), as float64 (R, size); program (block of entries, run)."""
    i, t = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BT)
    r = tl.program_id(1).to(tl.int64)
    total = tl.zeros((BT, BM), dtype=tl.float64)
    for start in range(0, tiles, BT):
        row = r * tiles + start + t
        inside = (start + t < tiles)[:, None] & (i < size)[None, :]
        total += tl.load(partial + row[:, None] * size + i[None, :], mask=inside, other=0.0)
    tl.store(out + r * size + i, tl.sum(total, axis=0), mask=i < size)


@triton.jit(do_not_specialize=VARIES)
def leaf_units(
    flows, squares, weights, elements, scaled, largest, out, table_stride, first_row, first_unit, M, G, K, C,
    S: tl.constexpr, BK: tl.constexpr, C2: tl.constexpr, KINDS: tl.constexpr,
):  # fmt: skip
    """Sums of sums over inputs, (R, KINDS, M) float64, from F, F^2 and the samples' weights by state.

    KINDS 3: F^2, t and T; 6: also F t, F log t and F.

    Program (block of units, group, run).
    """
    k, c = tl.program_id(0) * BK + tl.arange(0, BK), tl.arange(0, C2)
    g, r = tl.program_id(1), tl.program_id(2).to(tl.int64)
    group = r * G + g
    flow_squared = tl.zeros((BK,), dtype=tl.float64)
    local = tl.zeros((BK,), dtype=tl.float64)
    total = tl.zeros((BK,), dtype=tl.float64)
    weighted = tl.zeros((BK,), dtype=tl.float64)
    weighted_log = tl.zeros((BK,), dtype=tl.float64)
    flow_sum = tl.zeros((BK,), dtype=tl.float64)
    for s in tl.static_range(S):
        row = r * table_stride + (first_row + g * K + k).to(tl.int64) * S + s
        square = tl.load(squares + row, mask=k < K, other=0.0)
        weight = tl.load(weights + row, mask=k < K, other=0.0)
        weight = tl.where(tl.load(largest + group * S + s) > IMPOSSIBLE, weight, 0.0)
        e = tl.load(elements + (group * C + c) * S + s, mask=c < C, other=0.0)
        inverse = 1.0 / tl.load(scaled + (group * K + k) * S + s, mask=k < K, other=1.0)
        sharp = tl.sum(e * e, axis=0) * inverse * inverse
        here = sharp.to(tl.float64)
        flow_squared += square
        local += weight * here
        total += square * here
        if KINDS > 3:
            flow = tl.load(flows + row, mask=k < K, other=0.0)
            weighted += flow * here
            weighted_log += flow * tl.log(tl.where(flow > 0, sharp, 1.0))
            flow_sum += flow
    at = out + r * KINDS * M + first_unit + g * K + k
    tl.store(at, flow_squared, mask=k < K)
    tl.store(at + M, local, mask=k < K)
    tl.store(at + 2 * M, total, mask=k < K)
    if KINDS > 3:
        tl.store(at + 3 * M, weighted, mask=k < K)
        tl.store(at + 4 * M, weighted_log, mask=k < K)
        tl.store(at + 5 * M, flow_sum, mask=k < K)


@triton.jit
def _put(at, running, value, ADD: tl.constexpr, RUNNING: tl.constexpr):
    """Store a number, or add it to the one that is there; and add it to the running one."""
    if RUNNING:
        tl.store(running, tl.load(running) + value)
    if ADD:
        value += tl.load(at)
    tl.store(at, value)


@triton.jit(do_not_specialize=VARIES)
def outputs(
    values, flows, sample_weights, labels, rows, totals, running, log_values, value_stride, flow_stride, N, NS, outputs,
    LABELS: tl.constexpr, ADD: tl.constexpr, RUNNING: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The end of the forward pass: log p of each sample, its weight as the outputs' flow, and the sums for the history.

    `sample_weights` (R, NS) becomes zero for samples of probability zero or NaN. `totals` (4, R): log-likelihood,
    weight, samples of probability zero, samples whose log-probability is NaN; `running`: the same over many E-steps.
    """
    r = tl.program_id(0).to(tl.int64)
    R = tl.num_programs(0)
    likelihood = tl.zeros((BN,), dtype=tl.float64)
    weight_sum = tl.zeros((BN,), dtype=tl.float64)
    impossible = tl.zeros((BN,), dtype=tl.float64)
    broken = tl.zeros((BN,), dtype=tl.float64)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        live = n < N
        label = tl.zeros((BN,), dtype=tl.int32)
        if LABELS:
            label = tl.load(labels + r * NS + n, mask=live, other=0).to(tl.int32)
        row = tl.load(rows + label).to(tl.int64)
        value = tl.load(values + r * value_stride + row * NS + n, mask=live, other=0.0)
        weight = tl.load(sample_weights + r * NS + n, mask=live, other=0.0)
        possible = value > IMPOSSIBLE
        wrong = value != value
        counted = live & (weight > 0)
        impossible += tl.where(counted & (possible == 0) & (wrong == 0), 1.0, 0.0)
        broken += tl.where(counted & wrong, 1.0, 0.0)
        weight = tl.where(possible & live, weight, 0.0)
        likelihood += tl.where(weight > 0, value.to(tl.float64) * weight, 0.0)
        weight_sum += weight
        tl.store(sample_weights + r * NS + n, weight, mask=live)
        tl.store(log_values + r * NS + n, value, mask=live)
        for o in range(outputs):
            tl.store(flows + r * flow_stride + (1 + o) * NS + n, tl.where(label == o, weight, 0.0), mask=live)
    _put(totals + r, running + r, tl.sum(likelihood, axis=0), ADD, RUNNING)
    _put(totals + R + r, running + R + r, tl.sum(weight_sum, axis=0), ADD, RUNNING)
    _put(totals + 2 * R + r, running + 2 * R + r, tl.sum(impossible, axis=0), ADD, RUNNING)
    _put(totals + 3 * R + r, running + 3 * R + r, tl.sum(broken, axis=0), ADD, RUNNING)


@triton.jit(do_not_specialize=VARIES)
def by_state(
    flows, states, sample_weights, readers, variables, sums, squares, weights,
    flow_stride, state_stride, table_stride, first_row, N, NS, K, J, span, split_stride,
    S: tl.constexpr, S2: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, SPLITS: tl.constexpr, SQUARES: tl.constexpr,
):  # fmt: skip
    """Flow of a table's units by state of their variable, (R, rows, S); also its square and the samples' weights.

    Program (block of units, group, run x part of the samples, `span` tiles).
    """
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    g, r, part = tl.program_id(1), (tl.program_id(2) // SPLITS).to(tl.int64), tl.program_id(2) % SPLITS
    flows += r * flow_stride
    state_row = states + r * state_stride + tl.load(variables + g).to(tl.int64) * NS
    column = tl.arange(0, S2)
    total = tl.zeros((BK, S2), dtype=tl.float32)
    square = tl.zeros((BK, S2), dtype=tl.float32)
    count = tl.zeros((S2,), dtype=tl.float32)
    # of two states, tiles are added up as they are, and reduced once in the end
    flows_0 = tl.zeros((BK, BN), dtype=tl.float32)
    flows_1 = tl.zeros((BK, BN), dtype=tl.float32)
    squares_0 = tl.zeros((BK, BN), dtype=tl.float32)
    squares_1 = tl.zeros((BK, BN), dtype=tl.float32)
    for tile in range(part * span, tl.minimum(part * span + span, tl.cdiv(N, BN))):
        n = tile * BN + tl.arange(0, BN)
        live = n < N
        state = tl.load(state_row + n, mask=live, other=-1).to(tl.int32)
        flow = tl.zeros((BK, BN), dtype=tl.float32)
        for j in range(J):
            rows = tl.load(readers + (g * J + j).to(tl.int64) * K + k, mask=k < K, other=0).to(tl.int64)
            flow += tl.load(
                flows + rows[:, None] * NS + n[None, :], mask=(rows > 0)[:, None] & live[None, :], other=0.0
            )
        if S == 2:
            flows_0 += tl.where((state == 0)[None, :], flow, 0.0)
            flows_1 += tl.where((state == 1)[None, :], flow, 0.0)
        if SQUARES:
            weight = tl.load(sample_weights + r * NS + n, mask=live, other=0.0)
            scaled = flow * per_weight(weight)[None, :] * flow
            if S == 2:
                squares_0 += tl.where((state == 0)[None, :], scaled, 0.0)
                squares_1 += tl.where((state == 1)[None, :], scaled, 0.0)
        for s in tl.static_range(S):
            here = (state == s)[None, :]
            one = (column == s)[None, :]
            if S > 2:
                total += tl.where(one, tl.sum(tl.where(here, flow, 0.0), axis=1)[:, None], 0.0)
            if SQUARES:
                if S > 2:
                    square += tl.where(one, tl.sum(tl.where(here, scaled, 0.0), axis=1)[:, None], 0.0)
                count += tl.where(column == s, tl.sum(tl.where(state == s, weight, 0.0), axis=0), 0.0)
    if S == 2:
        first = (column == 0)[None, :]
        total = tl.where(first, tl.sum(flows_0, axis=1)[:, None], tl.sum(flows_1, axis=1)[:, None])
        square = tl.where(first, tl.sum(squares_0, axis=1)[:, None], tl.sum(squares_1, axis=1)[:, None])
    at = part.to(tl.int64) * split_stride + r * table_stride
    at += (first_row + g * K + k).to(tl.int64)[:, None] * S + column[None, :]
    inside = (k < K)[:, None] & (column < S)[None, :]
    tl.store(sums + at, total, mask=inside)
    if SQUARES:
        tl.store(squares + at, square, mask=inside)
        tl.store(weights + at, tl.broadcast_to(count[None, :], (BK, S2)), mask=inside)
