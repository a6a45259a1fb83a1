"""What a page shows, as data: every number is computed here in Python, and the page only draws it.

Indices: `node` is a place in `Explorer.nodes`, `unit` a place in its vectors (node after node), `column` a place in
`Page.columns`. Vectors are numpy arrays; `pack.py` writes them as base64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Cell",
    "ColumnInfo",
    "Conditionals",
    "Curve",
    "Explorer",
    "Finding",
    "Influence",
    "Marginal",
    "Page",
    "Part",
    "ReversalInfo",
    "RowInfo",
    "SmallCircuit",
    "SmallNode",
    "SumInfo",
    "Surprises",
    "Tile",
    "TrainingRun",
    "Weights",
]

Floats = NDArray[np.float32] | NDArray[np.float64]
Whole = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class Finding:
    """One of the most important things to know, as a headline and an explanation."""

    kind: Literal["fit", "sharpness", "advice"]
    headline: str
    text: str


@dataclass(frozen=True)
class Tile:
    """One number of the summary at the top."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class ColumnInfo:
    """A column of the table: what its values are and how they are written."""

    name: str
    family: str
    type: Literal["states", "real", "count"]
    labels: tuple[str, ...] | None
    """The values of a column with finitely many states, as people write them."""

    origin: str | None
    """For dates: numbers are days since this one."""


@dataclass(frozen=True)
class Curve:
    """One quantity by epoch; None where it was not measured."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class TrainingRun:
    """What happened in training, epoch by epoch."""

    name: str
    epochs: tuple[int, ...]
    curves: tuple[Curve, ...]
    kept: int
    """The epoch whose parameters the model has; 0 for the initial ones."""


@dataclass(frozen=True)
class Part:
    """What a child of a sum consists of: a column or a sum, and which of its units each child unit takes."""

    kind: Literal["column", "sum"]
    index: int
    select: Whole | None
    """One unit for each child unit; None: child unit j takes unit j."""


@dataclass(frozen=True)
class SumInfo:
    """A sum node, a vector of units."""

    name: str
    """The technical name, such as `sum 4`."""

    label: str
    """A description in words: `Root`, `above age`."""

    units: int
    parent: int
    """The node above it in the drawing; -1 at the top."""

    below: tuple[int, ...]
    """The nearest sums below."""

    own: tuple[int, ...]
    """The columns with inputs below it and no other sum between."""

    scope_size: int
    depth: float | None
    layer: int
    children: tuple[tuple[int, tuple[Part, ...]], ...]
    """For each child the number of its units, and what it consists of."""


@dataclass(frozen=True)
class Weights:
    """The largest weights of some units, or all of all: unit `unit[i]` has entries `start[i]` to `start[i + 1]`."""

    unit: NDArray[np.uint32]
    start: NDArray[np.uint32]
    child: Whole
    """The place of the child unit among all child units of its node, in their order."""

    weight: NDArray[np.float32]
    complete: bool


@dataclass(frozen=True)
class ReversalInfo:
    """Two units with T_i > T_j though t_i < t_j."""

    used: int
    sharper: int
    usage_ratio: float | None
    """None if the sharper unit is not used at all."""

    local_ratio: float


@dataclass(frozen=True)
class Explorer:
    """All sum units with the three factors of the decomposition; vectors are (M,)."""

    nodes: tuple[SumInfo, ...]
    flow_squared: Floats
    local: Floats
    total: Floats
    mean_trace: Floats | None
    """t as the exact mean over rows, which very large circuits leave out; `local` is the estimate by `estimator`."""

    edges: Whole | None
    """How many children each unit mixes; None: all child units of its node."""

    floor_edges: Whole | None
    """How many of them have a weight at the floor of training; None: none has."""

    estimator: str
    trace: float
    weights: Weights
    reversals: tuple[ReversalInfo, ...]
    reversed_share: float


@dataclass(frozen=True)
class Marginal:
    """The distribution of one column, in the data and under the model."""

    column: int
    rows: int
    """How many rows observe it."""

    labels: tuple[str, ...] | None
    """The values, for a column with states; those that do not fit the picture are one entry at the end."""

    edges: tuple[float, ...] | None
    """The ends of the bins, for numbers."""

    data: tuple[float, ...]
    """The share of rows in each state or bin."""

    model: tuple[float, ...]
    """The probability of each state or bin."""

    grid: tuple[float, ...] | None
    density: tuple[float, ...] | None
    """The density of real numbers on a grid."""

    distance: float
    """Total variation: half the sum of |data - model|."""

    chance: float
    """The distance to expect from the draw of the rows alone, if the model were right."""


@dataclass(frozen=True)
class SmallNode:
    """A node of a circuit that the page computes with; children are places in `SmallCircuit.nodes`."""

    kind: Literal["table", "gaussian", "poisson", "product", "sum"]
    units: int
    column: int
    """The column of an input; -1 for other nodes."""

    children: tuple[int, ...]
    select: tuple[Whole | None, ...] | None
    values: Floats | None
    """Weights (units, child units), log-probabilities (units, states) or parameters (units, parameters)."""


@dataclass(frozen=True)
class SmallCircuit:
    """The whole circuit, children before parents; the last node is the root."""

    nodes: tuple[SmallNode, ...]
    grids: tuple[tuple[float, ...] | None, ...]
    """For each column the numbers at which its distribution is drawn; None for states."""

    starts: tuple[float | None, ...]
    """For each column of numbers a usual value to begin with."""


class Influence(NamedTuple):
    """What one value of one column does to another column: its distribution (states), or mean and deviation.

    A tuple, not an object: a page holds thousands of them.
    """

    column: int
    distance: float
    """Total variation for states; for numbers the shift of the mean in standard deviations."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class Conditionals:
    """For circuits too large to compute with in the page: one column set to one value at a time."""

    columns: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    """The places of states, or numbers."""

    influences: tuple[tuple[tuple[Influence, ...], ...], ...]
    """For each column and each of its values, what changes most."""

    usual: tuple[tuple[float, ...], ...]
    """For each column of the table the same numbers when nothing is set."""


@dataclass(frozen=True)
class Cell:
    """A surprising cell of a row, and the value that the rest of the row makes likely."""

    column: int
    value: str
    expected: str
    surprise: float | None
    """-log P(a value at most as probable); None: impossible."""


@dataclass(frozen=True)
class RowInfo:
    """A row the model finds improbable."""

    place: str
    log_prob: float | None
    """None for probability zero."""

    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Surprises:
    """The least probable rows, and how the log-probabilities of all rows are distributed."""

    rows: tuple[RowInfo, ...]
    edges: tuple[float, ...]
    counts: tuple[tuple[str, tuple[float, ...]], ...]
    """For each part of the data the share of its rows in each bin."""


@dataclass(frozen=True)
class Page:
    """Everything that a page shows."""

    title: str
    about: str
    version: str
    columns: tuple[ColumnInfo, ...]
    tiles: tuple[Tile, ...]
    findings: tuple[Finding, ...]
    training: tuple[TrainingRun, ...]
    explorer: Explorer | None
    marginals: tuple[Marginal, ...]
    playground: SmallCircuit | Conditionals | None
    surprises: Surprises
    notes: tuple[str, ...] = ()

    @property
    def plain(self) -> dict[str, Any]:
        """The page as JSON values."""
        from circurve.report.pack import plain  # noqa: PLC0415 - it imports these records

        found = plain(self)
        assert isinstance(found, dict)
        return found
