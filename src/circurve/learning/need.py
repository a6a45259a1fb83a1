"""The memory that a training needs, computed before it is allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circurve.budget import Need
from circurve.data import RowSource
from circurve.engine import Program
from circurve.learning.methods import Vanilla
from circurve.learning.options import Run, Settings
from circurve.model import as_device

__all__ = ["training_need"]

COPIES = {"cpu": 4, "cuda": 6}
"""Copies of each run's parameters: the current ones, their statistics, the next ones, and those of the best epoch. On a
GPU also those that scores read, and those of the last epoch: a step changes the current ones in place."""

ROUNDED_COPIES = 3
"""Copies of the weights of wide layers with precision="tf32": two for the steps, one for the scores."""

DRAWN = 8
"""Bytes of a starting parameter, drawn in float64."""

ROW_NUMBER = 8
"""Bytes of a row's place in the order of an epoch."""

ROW_DRAW = 48
"""Bytes of a row where rows with weights are drawn to start from: its number, weight, time and place, with copies."""


def training_need(program: Program, runs: Sequence[Run], settings: Settings, data: Mapping[str, RowSource]) -> Need:
    """What training these runs takes, without the buffers of a chunk, which are sized by the rest of the memory."""
    starts = len({(run.seed, run.init) for run in runs})
    curved = settings.track or any(not isinstance(run.method, Vanilla) for run in runs)
    copies = COPIES[as_device(settings.device).type] + curved + ROUNDED_COPIES * (settings.precision == "tf32")
    each = settings.dtype.itemsize * copies * len(runs)
    orders = 0 if settings.batch_size is None else ROW_NUMBER * len({run.seed for run in runs})
    parts = {
        "parameters": program.parameters * (DRAWN * starts + each),
        "data": sum(table.nbytes for table in data.values()),
        "shuffles": orders * len(data["train"]),
        "row weights": 0 if data["train"].weights is None else ROW_DRAW * len(data["train"]),
    }
    return Need("training", parts, "use fewer units, or fewer runs at once")
