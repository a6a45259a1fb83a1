"""The memory that a training needs, computed before it is allocated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circurve.budget import Need
from circurve.data import RowSource
from circurve.engine import Program, fixed_bytes
from circurve.graph import Circuit, Product
from circurve.learning.methods import Vanilla
from circurve.learning.options import Run, Settings
from circurve.model import as_device

__all__ = ["compiling_need", "training_need"]

COPIES = {"cpu": 9, "cuda": 6}
"""Copies of each run's parameters: the current ones, their statistics, the next ones, and those of the best epoch. On a
CPU also the sums and temporaries of an M-step: most parameters may be in a single layer. On a GPU those that scores
read, and those of the last epoch: a step changes the current ones in place."""

BEST_COPIES = {"cpu": 2, "cuda": 0}
"""More copies where validation rows choose an epoch: both sides of the choice, for all runs."""

ROUNDED_COPIES = 3
"""Copies of the weights of wide layers with precision="tf32": two for the steps, one for the scores."""

DRAWN = {"cpu": 0, "cuda": 8}
"""Bytes of a starting parameter, drawn in float64. On a CPU steps, which begin later, take more than that."""

STARTS = 16
"""Bytes of a starting parameter while those of all seeds are put together."""

COMPILING = {"node": 1_200, "unit": 24, "edge": 64}
"""Bytes that compiling takes at its peak: dictionaries of nodes; rows, readers and index arrays; edges being sorted."""

COMPILED = {"node": 900, "unit": 9, "edge": 27}
"""Bytes of what stays: the program, and the index tensors of a backend."""

ROW_NUMBER = 8
"""Bytes of a row's place in the order of an epoch."""

ROW_DRAW = 48
"""Bytes of a row where rows with weights are drawn to start from: its number, weight, time and place, with copies."""


def compiling_need(circuit: Circuit, data: Mapping[str, RowSource]) -> Need:
    """What the compiler takes for a moment, before there are parameters."""
    parts = {"circuit": _structure(circuit, COMPILING), "data": sum(table.nbytes for table in data.values())}
    return Need("compiling the circuit", parts, "use fewer units")


def training_need(
    circuit: Circuit,
    runs: Sequence[Run],
    settings: Settings,
    data: Mapping[str, RowSource],
    program: Program | None = None,
) -> Need:
    """What training these runs takes, without the buffers of a chunk, which are sized by the rest of the memory.

    program: None before the circuit is compiled, and for a circuit that was compiled earlier. Without it, what the
    steps of a CPU take whatever the rows are is not known, and left out.
    """
    device = as_device(settings.device).type
    starts = len({(run.seed, run.init) for run in runs})
    curved = settings.track or any(not isinstance(run.method, Vanilla) for run in runs)
    copies = COPIES[device] + curved + ROUNDED_COPIES * (settings.precision == "tf32")
    copies += BEST_COPIES[device] * ("valid" in data)
    itemsize = settings.dtype.itemsize
    each = max(DRAWN[device] * starts + itemsize * copies * len(runs), STARTS * starts + 2 * itemsize * len(runs))
    orders = 0 if settings.batch_size is None else ROW_NUMBER * len({run.seed for run in runs})
    parts = {
        "parameters": _parameters(circuit) * each,
        "data": sum(table.nbytes for table in data.values()),
        "shuffles": orders * len(data["train"]),
        "row weights": 0 if data["train"].weights is None else ROW_DRAW * len(data["train"]),
        "circuit": _structure(circuit, COMPILED) if device == "cpu" else 0,
    }
    row = 0
    if program is not None and device == "cpu":
        tables, row = fixed_bytes(program, len(runs), settings.dtype, settings.backend, curved)
        parts["tables"] = tables
    return Need("training", parts, "use fewer units, or fewer runs at once", row)


def _structure(circuit: Circuit, each: Mapping[str, int]) -> int:
    """Bytes of all nodes, units and edges: one for each child of each unit of a product, and child unit of a sum."""
    units = sum(node.units for node in circuit.nodes)
    edges = sum(node.units * len(node.children) for node in circuit.nodes if isinstance(node, Product))
    edges += sum(node.child_units for node in circuit.sums)
    return each["node"] * len(circuit.nodes) + each["unit"] * units + each["edge"] * edges


def _parameters(circuit: Circuit) -> int:
    """How many numbers the parameters of one run are, those that a mask leaves out counted."""
    weights = sum(node.units * node.child_units for node in circuit.sums)
    return weights + sum(node.units * node.family.parameter_count for node in circuit.inputs)
