"""Starting parameters, reproducible from a seed on every device."""

from __future__ import annotations

import numpy as np
import torch

from circurve.data import Table
from circurve.engine import Params, Program, random_weights

__all__ = ["generator", "initial_params"]

ROWS = 20_000
"""Inputs start from the first so many rows: enough for means and variances."""


def generator(seed: int, stream: int) -> torch.Generator:
    """An independent source of randomness for each purpose (`stream`) of a seed."""
    state = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) % (1 << 63))


def initial_params(program: Program, seed: int, table: Table) -> Params:
    """Random parameters for one run, float64: weights near uniform, inputs spread around their column."""
    source = generator(seed, stream=0)
    columns = table.values[:ROWS].numpy().T
    inputs = []
    for layer in program.inputs:
        drawn = []
        for node in layer.nodes:
            column = columns[node.variable]
            observed = column[~np.isnan(column)] if column.dtype.kind == "f" else column[column >= 0]
            drawn.append(layer.family.initialize(observed.astype(np.float64), layer.units, source))
        inputs.append(torch.stack(drawn).unsqueeze(0))
    return Params(random_weights(program, source), tuple(inputs))
