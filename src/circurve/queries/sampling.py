"""Exact draws, given any evidence, for many rows at once: from the outputs down, without work for single rows.

Without evidence a sum unit k passes on to child c with its weight theta_kc. Given evidence e the probability is

    theta_kc p_c(e) / p_k(e),

from the values of one upward pass. Where many draws are asked for the same evidence, these probabilities are written to
tables once and drawn from as weights are; otherwise they are computed for the active unit of each row alone.

A sum over one input with few states draws the state itself, from the product of the two tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from circurve.engine import Params, Reference
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.reference import Rows
from circurve.inputs import Family
from circurve.queries.checks import check_count
from circurve.queries.draws import DrawTables, Uniforms, uniform_numbers
from circurve.queries.evidence import Evidence, leaf_values
from circurve.queries.passes import own_output, require_possible
from circurve.queries.soft_draws import draw_inside
from circurve.queries.target import Target

__all__ = ["sample"]

CPU_BYTES, CUDA_BYTES = 1 << 24, 1 << 28
"""The working set, for each run, of the draws that are made at once. It depends on the circuit and the kind of device
alone, so that a seed gives the same rows whatever memory is free and whatever other runs there are."""

RECORDED_BYTES = 1 << 27
"""Draws without evidence whose working set is at most this are recorded as a CUDA graph, which keeps that memory."""

RUNS_AT_ONCE = 16
"""Larger fleets draw in groups of this many runs."""

TABLE_DRAWS = 2.0
"""Tables for each row of evidence are used from this many draws per unit of the widest sum on."""


@torch.no_grad()
def sample(target: Target, given: Evidence, draws: int = 1, seed: int = 0) -> Tensor:  # (R, draws, N, V)
    """Independent draws of all columns for each row of evidence; what is observed comes back as it is.

    The same seed gives the same draws on the same kind of device, and a run's draws do not depend on the other runs
    (all runs see the same random numbers).
    """
    draws, seed = check_count("draws", draws, least=1), check_count("seed", seed, least=0)
    widest = max((layer.units for layer in target.program.sums), default=1)
    draw = _with_tables if draws >= TABLE_DRAWS * widest else _row_by_row
    if not (given.soft or bool((given.observed > 0).any())):
        draw = _without_evidence
    starts = range(0, target.runs, RUNS_AT_ONCE)
    parts = [_some_runs(target, given, slice(start, start + RUNS_AT_ONCE)) for start in starts]
    found = [draw(*part, draws, _Random(seed, target.device)) for part in parts]
    return found[0] if len(found) == 1 else torch.cat(found)


def _some_runs(target: Target, given: Evidence, runs: slice) -> tuple[Target, Evidence]:
    if target.runs <= RUNS_AT_ONCE:
        return target, given
    params = target.params.map(lambda values: values[runs])
    part = replace(target, params=params, backend=Reference.of(target.program, params), first_run=runs.start)
    own = given if len(given.x) == 1 else replace(given, x=given.x[runs], observed=given.observed[runs])
    return part, own


class _Random:
    """A stream of generators from one seed, each of its own for one block of rows."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seeds, self._device = torch.Generator().manual_seed(seed % (1 << 63)), device

    def next_seed(self) -> int:
        return int(torch.randint(2**62, (), generator=self._seeds))

    def next(self) -> torch.Generator:
        return torch.Generator(self._device).manual_seed(self.next_seed())


def _budget(target: Target) -> int:
    return CPU_BYTES if target.device.type == "cpu" else CUDA_BYTES


def _block_size(target: Target, bytes_per_row: int) -> int:
    return max(64, _budget(target) // bytes_per_row)


def _walk_bytes(target: Target) -> int:
    """Memory of a walk down, for one row of one run: a number for each node, and temporaries of the widest layer."""
    widest = max(len(layer.nodes) for layer in (*target.program.inputs, *target.program.layers))
    return 8 * (len(target.program.circuit.nodes) + target.variables + 6 * widest)


def _groups(target: Target) -> int:
    """The most draws that one row takes: one for each sum and each input."""
    inputs, sums = target.program.inputs, target.program.sums
    return sum(len(layer.nodes) for layer in inputs) + sum(len(layer.nodes) for layer in sums)


def _blocks(rows: int, size: int) -> Iterator[slice]:
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


# --- draws from tables ---


def _without_evidence(target: Target, given: Evidence, draws: int, random: _Random) -> Tensor:
    tables = target.draw_tables
    labels = None if given.labels is None else given.labels.repeat(draws)
    rows, size = draws * given.size, _block_size(target, _walk_bytes(target))
    x = torch.empty(target.runs, target.variables, rows, dtype=target.dtype, device=target.device)
    walk = partial(_walk_without_evidence, target, tables, random)
    for block in _blocks(rows, size):
        count = block.stop - block.start
        numbers = uniform_numbers(1, _groups(target), count, random.next())
        if tables.complete and labels is None and _walk_bytes(target) * target.runs * count <= RECORDED_BYTES:
            target.recorded_draws(walk, numbers, out=x[..., block])
        else:
            x[..., block] = walk(numbers, None if labels is None else labels[block])
    return x.transpose(1, 2).reshape(target.runs, draws, given.size, target.variables)


def _walk_without_evidence(
    target: Target, tables: DrawTables, random: _Random, numbers: Tensor, labels: Tensor | None = None
) -> Tensor:  # (R, V, rows)
    return _draw_block(target, tables, labels, numbers, random)[0]


def _with_tables(target: Target, given: Evidence, draws: int, random: _Random) -> Tensor:
    """Many draws for each of a few rows of evidence."""
    found = torch.empty(target.runs, draws, given.size, target.variables, dtype=target.dtype, device=target.device)
    edges = sum(weights[0].numel() for weights in target.params.weights)
    for rows in _blocks(given.size, max(1, _budget(target) // (24 * max(1, edges)))):
        part = given.rows(rows)
        params = _tilted(target, part)
        tables = DrawTables.of(target.program, params, part.size, collapse=not part.soft)
        size = max(64, _block_size(target, _walk_bytes(target)) // part.size)
        for block in _blocks(draws, size):
            count = block.stop - block.start
            # the last axis holds `count` draws of each row of evidence, which is an axis next to the runs
            numbers = uniform_numbers(part.size, _groups(target), count, random.next())
            labels = None if part.labels is None else part.labels.repeat(target.runs)[:, None]
            x, units = _draw_block(target, tables, labels, numbers, random)
            x = x.reshape(target.runs, part.size, target.variables, count).transpose(1, 2).flatten(2)
            index = torch.arange(part.size, device=target.device).repeat_interleave(count)
            active = partial(_by_row, units, target.runs, part.size)
            x = _with_evidence(target, part.rows(index), x, active, random)
            x = x.reshape(target.runs, target.variables, part.size, count)
            found[:, block, rows] = x.permute(0, 3, 2, 1)
    return found


def _by_row(units: Callable[[int], Tensor], runs: int, copies: int, number: int) -> Tensor:
    """Active units (R B, G, n) as (R, G, B n)."""
    active = units(number)
    return active.reshape(runs, copies, active.shape[1], -1).transpose(1, 2).flatten(2)


def _tilted(target: Target, given: Evidence) -> Params:
    """The parameters of each run given each of B rows of evidence: R B runs."""
    reference, params = target.reference, target.params
    up = reference.upward_from(params, leaf_values(target, given))
    require_possible(target, given, _log_evidence(given, up.outputs))
    weights = []
    for layer, w in zip(target.program.sums, params.weights, strict=True):
        values = reference.child_values(layer, up.values)
        logits = w.log().unsqueeze(1) + values.movedim(-1, 1).unsqueeze(3)  # (R, B, G, K, C)
        weights.append(logits.softmax(-1).flatten(0, 1))
    inputs = (p.unsqueeze(1).expand(-1, given.size, -1, -1, -1).flatten(0, 1) for p in params.inputs)
    return Params(tuple(weights), tuple(inputs))


def _draw_block(
    target: Target,
    tables: DrawTables,
    labels: Tensor | None,  # (rows,) or (R B, 1)
    numbers: Tensor,  # (B, groups, rows) uniform
    random: _Random,
) -> tuple[Tensor, Callable[[int], Tensor]]:
    """Values (R B, V, rows), and the active units of the input layers that were not drawn through their sums."""
    descent, uniforms, rows = target.descent, Uniforms(numbers), numbers.shape[-1]
    drawn_through: dict[int, Tensor] = {}

    def choose(number: int, active: Tensor) -> Tensor:
        units = active if descent.certain[target.program.sums[number].block] else active.clamp_min(0)
        if number in tables.leaves:
            drawn_through[tables.leaves[number]] = active
            return torch.zeros_like(active)
        table = tables.sums[number]
        assert table is not None
        return table.draw(units, uniforms.take(active.shape[1]))

    runs = target.runs * tables.copies
    units = descent.walk(labels, (runs, rows), choose)
    x = torch.zeros(runs, target.variables, rows, dtype=target.dtype, device=target.device)
    for number in range(len(target.program.inputs)):
        active = drawn_through[number] if number in drawn_through else units(number)
        values = _input_draws(target, tables, number, active, uniforms, random)
        _place(target, x, number, active, values)
    return x, units


def _place(target: Target, x: Tensor, number: int, active: Tensor, values: Tensor) -> None:
    """Write the values of an input layer (R, G, N) to their columns of x (R, V, N), where a unit is active."""
    columns, layer = target.reference.variables[number], target.program.inputs[number]
    if target.descent.certain[layer.block]:
        x[:, columns] = values.to(x.dtype)
    else:
        x.index_add_(1, columns, values.to(x.dtype).masked_fill_(active < 0, 0))


def _input_draws(
    target: Target, tables: DrawTables, number: int, active: Tensor, uniforms: Uniforms, random: _Random
) -> Tensor:  # (R B, G, N)
    """A value from the active unit of each input; anything where none is active."""
    family, table = target.program.inputs[number].family, tables.inputs[number]
    units = active.clamp_min(0)
    if table is not None:
        entries, states = table.draw(units, uniforms.take(active.shape[1])), tables.states[number]
        return entries if states is None else states[entries]
    parameters = tables.parameters[number]
    gathered = parameters.gather(2, units.unsqueeze(-1).expand(-1, -1, -1, parameters.shape[-1]))
    return family_draws(family, gathered, target.runs, random.next_seed())


def family_draws(family: Family, parameters: Tensor, runs: int, seed: int) -> Tensor:  # (R B, ..., P) -> (R B, ...)
    """Draws by the family's own method, run by run, so that each run sees the same random numbers as if alone."""
    by_run = parameters.reshape(runs, -1, *parameters.shape[1:])
    drawn = [family.sample(own, torch.Generator(parameters.device).manual_seed(seed)) for own in by_run]
    return torch.stack(drawn).flatten(0, 1)


# --- draws row by row ---


def _row_by_row(target: Target, given: Evidence, draws: int, random: _Random) -> Tensor:
    """A few draws for each of many rows of evidence."""
    found = torch.empty(target.runs, draws, given.size, target.variables, dtype=target.dtype, device=target.device)
    widest = max((layer.children.targets for layer in target.program.sums), default=1)
    values = target.reference.bytes_per_sample(backward=False) // target.runs
    each = values + 4 * 8 * widest + _walk_bytes(target)
    tables = DrawTables.of_inputs(target.program, target.params)
    for rows in _blocks(given.size, _block_size(target, each)):
        part = given.rows(rows)
        up = target.reference.upward_from(target.params, leaf_values(target, part))
        require_possible(target, part, _log_evidence(part, up.outputs))
        for draw in range(draws):
            found[:, draw, rows] = _draw_rows(target, part, tables, up.values, random).transpose(1, 2)
    return found


def _draw_rows(
    target: Target, given: Evidence, tables: DrawTables, found: Rows, random: _Random
) -> Tensor:  # (R, V, N)
    reference, params = target.reference, target.params
    uniforms = Uniforms(uniform_numbers(1, _groups(target), given.size, random.next()))

    def choose(number: int, active: Tensor) -> Tensor:
        values = reference.child_values(target.program.sums[number], found)
        index = active.clamp_min(0).unsqueeze(2).expand(-1, -1, values.shape[2], -1)
        logits = params.weights[number].log().transpose(-1, -2).gather(-1, index) + values  # (R, G, C, N)
        sums = logits.softmax(2).cumsum(2, dtype=torch.float64)
        level = uniforms.take(active.shape[1]) * sums[:, :, -1]
        return (sums <= level.unsqueeze(2)).sum(2)

    units = target.descent.walk(given.labels, (target.runs, given.size), choose)
    x = torch.zeros(target.runs, target.variables, given.size, dtype=target.dtype, device=target.device)
    for number in range(len(params.inputs)):
        active = units(number)
        _place(target, x, number, active, _input_draws(target, tables, number, active, uniforms, random))
    return _with_evidence(target, given, x, units, random)


def _with_evidence(
    target: Target, given: Evidence, x: Tensor, units: Callable[[int], Tensor], random: _Random
) -> Tensor:  # (R, V, N)
    """Draws with what is observed in its place, and columns with likelihoods or intervals drawn within them."""
    for column in (*given.likelihoods, *given.intervals):
        x[:, column] = draw_inside(target, given, column, units, random.next_seed()).to(x.dtype)
    return torch.where(given.observed > 0, given.x, x)


def _log_evidence(given: Evidence, outputs: Tensor) -> Tensor:  # (R, outputs, N) -> (R, N)
    own = own_output(given, outputs)
    return torch.where(own <= IMPOSSIBLE, -torch.inf, own)
