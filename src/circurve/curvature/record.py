"""`Curvature`: for every sum unit of a model how much it is used, how sharp it is, and what it adds to the trace."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from circurve.bounds import cut, parse_json
from circurve.cards import card, facts_table, rows_table
from circurve.data.array_files import read_npz, read_record
from circurve.errors import CircurveError, FileFormatError, OptionError, needs
from circurve.learning.checks import check_choice
from circurve.learning.local_curvature import ESTIMATORS
from circurve.whole_files import replace_file
from circurve.words import counted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["By", "Curvature", "NodeRef", "PerSample", "load_curvature"]

Vector = NDArray[np.float64]
By = Literal["total", "local", "flow", "mean_trace", "mean_ratio", "flow_weighted", "geometric", "clipped"]

PER_SAMPLE_MEANS = ("flow", "flow_squared", "local", "local_mean_ratio", "total")
COLUMNS = (*PER_SAMPLE_MEANS, "depth_min", "depth_max", "depth_mean", "layer", "scope_size", "edges")
ROBUST = ("local_flow_weighted", "local_geometric", "local_clipped", "floor_edges", "floor_local")
"""Columns that records of earlier versions lack."""

SHOWN_NODES = 5
"""How many nodes a notebook lists."""

QUANTITIES: dict[By, str] = {
    "total": "total",
    "local": "local",
    "flow": "flow_squared",
    "mean_trace": "local",
    "mean_ratio": "local_mean_ratio",
    "flow_weighted": "local_flow_weighted",
    "geometric": "local_geometric",
    "clipped": "local_clipped",
}
"""The column of each quantity that units can be put in order by."""


@dataclass(frozen=True)
class NodeRef:
    """A sum unit: the position of its node in `circuit.nodes`, the name of the node, and which of its units."""

    node: int
    name: str
    unit: int


@dataclass(frozen=True, eq=False)
class PerSample:
    """T_n(x), t_n(x) and F_n(x) of chosen sum units for each row: (N, units). NaN for a row of probability zero.

    A unit with p_n(x) = 0 in a possible row has no ratios p_c / p_n: its t_n(x) is 0, as in the means of `Curvature`.
    """

    total: Vector
    local: Vector
    flow: Vector
    nodes: tuple[NodeRef, ...]


@dataclass(frozen=True, eq=False)
class Curvature:
    """For each of the M sum units of a model, means over samples of its use, its sharpness and its share of the trace.

    `curvature` makes one. Its vectors have one entry for each unit, in the order of `nodes`; `trace` is the sum of
    `total`. Two records of the same model add up: the sum is that of both data sets together. Only `depth_mean` is then
    the flow-weighted mean of the two, which can differ if paths of different lengths lead to a unit.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> model = cc.fit(cc.hclt(data.train, units=4), data.train, epochs=3, valid=False).model
    >>> record = cc.curvature(model, data.train)
    >>> record.columns[:5]
    ('flow', 'flow_squared', 'local', 'local_mean_ratio', 'total')
    >>> record.to_pandas().nlargest(1, "total").iloc[0]["name"]
    'root'
    """

    flow: Vector
    """F^_n = mean of F_n(x)."""

    flow_squared: Vector
    """F^2_n = mean of F_n(x)^2, how much the node is used."""

    local: Vector
    """t^_n = mean of sum_c rho_nc(x)^2, how sharp its own mixture is (estimator "mean_trace")."""

    local_mean_ratio: Vector
    """sum_c (mean of rho_nc(x))^2, never larger (estimator "mean_ratio")."""

    total: Vector
    """T^_n = mean of F_n(x)^2 t_n(x), its share of the trace."""

    depth_min: Vector
    """d_Sigma: the fewest sum edges on a path from the root; all depths are infinite where there is no path."""

    depth_max: Vector
    depth_mean: Vector
    """The mean over paths, each parent weighted by the flow it sends."""

    layer: Vector
    """The position of the node's layer among the sum layers, inputs first."""

    scope_size: Vector
    """The number of variables below the node."""

    edges: Vector
    """How many children the unit mixes."""

    nodes: tuple[NodeRef, ...] = field(repr=False)
    weight: float
    """The sum of the sample weights; samples of probability zero are left out."""

    impossible: int
    """How many samples had probability zero."""

    mean_ratio: tuple[NDArray[np.float64], ...] = field(repr=False)
    """mean of rho_nc(x) for each sum layer, (G, K, C): what makes `local_mean_ratio` add up."""

    per_sample: PerSample | None = field(default=None, repr=False)
    """These quantities row by row, if they were requested; they are neither saved nor added up."""

    local_flow_weighted: Vector | None = None
    """sum of F_n(x) t_n(x) over sum of F_n(x): how sharp the node is where it is used (estimator "flow_weighted"); 0
    for a node without flow. This column and those below are None in records that earlier versions saved."""

    local_geometric: Vector | None = None
    """exp(sum of F_n(x) log t_n(x) over sum of F_n(x)), never larger (estimator "geometric")."""

    local_clipped: Vector | None = None
    """mean of sum_c (r_nc(x) / max(theta_nc, 1e-4))^2 (estimator "clipped")."""

    floor_edges: Vector | None = None
    """How many edges of the unit have a weight at the floor of training, at most 10 times 1e-12."""

    floor_local: Vector | None = None
    """The part of `local` that these edges make up."""

    @property
    def trace(self) -> float:
        """The mean over samples of the trace of the Hessian of -log p: the sharpness."""
        return float(self.total.sum())

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the vectors that this record has."""
        return (*COLUMNS, *(name for name in ROBUST if getattr(self, name) is not None))

    @property
    def floor_share(self) -> float | None:
        """Share of `local` from edges with a weight at the floor: near 1, use a robust estimate. None if not known."""
        if self.floor_local is None:
            return None
        whole, part = self.local.sum(), self.floor_local.sum()
        return float(min(part / whole, 1.0)) if 0 < whole < np.inf else 0.0

    def by(self, quantity: By) -> Vector:
        """The column that a ranking, a concentration or a profile uses; "local" is the estimator "mean_trace"."""
        if quantity not in QUANTITIES:
            *names, last = (repr(name) for name in QUANTITIES)
            raise OptionError(f"by must be {', '.join(names)} or {last}, not {quantity!r}")
        column: Vector | None = getattr(self, QUANTITIES[quantity])
        if column is None:
            raise OptionError(
                f"by={quantity!r}: this record was saved by an earlier version, without this column; measure the "
                f"curvature again"
            )
        return column

    def with_local(self, estimator: str) -> Curvature:
        """The record with another estimate of local curvature for `local`, which rankings and figures use.

        T^_n / `local` is then no longer exactly the use of a node, only a comparison of the two.
        """
        check_choice("estimator", estimator, ESTIMATORS)
        return replace(self, local=self.by(cast("By", estimator)))

    def rank_by(self, quantity: By) -> NDArray[np.int64]:
        """Unit numbers from the largest to the smallest.

        Parameters
        ----------
        quantity : {"total", "flow", "local"} or an estimator of local curvature
            What to compare, as in `by`.

        Returns
        -------
        array
            (M,): places in `nodes`; ties are in the order of `nodes`.

        Raises
        ------
        OptionError
            If there is no such quantity, or a record of an earlier version lacks it.
        """
        order: NDArray[np.int64] = np.argsort(-self.by(quantity), kind="stable")
        return order

    def __add__(self, other: Curvature) -> Curvature:
        if not isinstance(other, Curvature):
            return NotImplemented
        if not self._same_structure(other):
            raise CircurveError("curvatures of different circuits cannot be added")
        weight = self.weight + other.weight
        a, b = self.weight / weight, other.weight / weight
        ratio = tuple(a * x + b * y for x, y in zip(self.mean_ratio, other.mean_ratio, strict=True))
        means = {name: a * getattr(self, name) + b * getattr(other, name) for name in PER_SAMPLE_MEANS}
        means["local_mean_ratio"] = squared_ratios(ratio)
        reached = np.isfinite(self.depth_mean)
        x, y = (np.where(reached, part.depth_mean, 0) for part in (self, other))
        flow = means["flow"]
        depth = a * self.flow * x + b * other.flow * y
        means["depth_mean"] = np.where(flow > 0, depth / np.where(flow > 0, flow, 1), self.depth_mean)
        means |= self._added_robust(other, a, b)
        impossible = self.impossible + other.impossible
        return replace(self, **means, weight=weight, impossible=impossible, mean_ratio=ratio, per_sample=None)

    def _added_robust(self, other: Curvature, a: float, b: float) -> dict[str, Any]:
        """The robust columns of both data sets together, which have the shares a and b of the samples.

        Means weighted by flow have their shares of the flow instead. None for columns that one of the two lacks.
        """
        flow = a * self.flow + b * other.flow
        share = np.where(flow > 0, a * self.flow / np.where(flow > 0, flow, 1), 0)

        def mean(name: str, x: Vector, y: Vector) -> Vector:
            if name == "local_flow_weighted":
                return share * x + (1 - share) * y
            if name == "local_geometric":  # 0 without flow, and its share is 0 then
                found: Vector = np.where(x > 0, x, 1) ** share * np.where(y > 0, y, 1) ** (1 - share)
                return np.where(flow > 0, found, 0)
            return a * x + b * y

        pairs = {name: (getattr(self, name), getattr(other, name)) for name in ROBUST}
        return {name: None if x is None or y is None else mean(name, x, y) for name, (x, y) in pairs.items()}

    def _same_structure(self, other: Curvature) -> bool:
        shapes = [ratio.shape for ratio in self.mean_ratio] == [ratio.shape for ratio in other.mean_ratio]
        columns = ("layer", "scope_size", "edges", "depth_min", "depth_max")
        equal = (np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)
        return self.nodes == other.nodes and shapes and all(equal)

    def to_pandas(self) -> pd.DataFrame:
        """All columns as a pandas data frame; MissingPackageError if pandas is not installed.

        Returns
        -------
        DataFrame
            One row for each sum unit, in the order of `nodes`.
        """
        with needs("pandas", "to_pandas"):
            import pandas as pd  # noqa: PLC0415 - an optional dependency

        refs = {"node": [n.node for n in self.nodes], "name": [n.name for n in self.nodes]}
        refs["unit"] = [n.unit for n in self.nodes]
        return pd.DataFrame(refs | {name: getattr(self, name) for name in self.columns})

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one .npz file, all or nothing."""
        replace_file(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes."""
        refs = json.dumps([[n.node, n.name, n.unit] for n in self.nodes])
        arrays: dict[str, Any] = {name: getattr(self, name) for name in self.columns}
        arrays |= {f"mean_ratio.{i}": ratio for i, ratio in enumerate(self.mean_ratio)}
        arrays |= {"weight": self.weight, "impossible": self.impossible, "nodes": refs, "format": FORMAT}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        return content.getvalue()

    def _repr_html_(self) -> str:
        rows = [
            (
                f"{self.nodes[i].name}[{self.nodes[i].unit}]",
                *(f"{column[i]:.3g}" for column in (self.flow_squared, self.local, self.total)),
                f"{self.total[i] / self.trace:.1%}" if 0 < self.trace < np.inf else "-",
            )
            for i in self.rank_by("total")[:SHOWN_NODES].tolist()
        ]
        facts = {
            "trace (sharpness)": f"{self.trace:,.4g}, mean over {self.weight:,.6g} rows",
            "sum nodes": f"{len(self):,}",
            "left out": f"{counted(self.impossible, 'row')} of probability zero" if self.impossible else None,
        }
        heads = ("largest contributions", "F\u00b2", "t", "T", "of the trace")
        return card("Curvature", facts_table(facts), rows_table(heads, rows))

    def __str__(self) -> str:
        lines = [
            f"trace (sharpness)   {self.trace:,.4g} over {self.weight:,.6g} samples",
            f"sum nodes           {len(self):,}",
        ]
        if not len(self):
            return "\n".join(lines)
        shown = [i for i in self.rank_by("total")[:3] if 0 < self.trace < np.inf]
        shares = [f"{self.nodes[i].name}[{self.nodes[i].unit}] {self.total[i] / self.trace:.1%}" for i in shown]
        lines += [
            f"used: F^2           median {np.median(self.flow_squared):.3g}, largest {self.flow_squared.max():.3g}",
            f"sharp: t            median {np.median(self.local):.3g}, largest {self.local.max():.3g}",
            f"share: T            median {np.median(self.total):.3g}, largest {self.total.max():.3g}",
            f"largest shares      {', '.join(shares) or 'none'}",
        ]
        if self.floor_share and self.floor_edges is not None:
            edges = counted(int(self.floor_edges.sum()), "edge makes", "edges make")
            lines.append(f"weights near zero   {edges} up {self.floor_share:.1%} of t; they do not move `geometric`")
        return "\n".join(lines)


FORMAT = "circurve curvature 1"


def squared_ratios(mean_ratio: Sequence[NDArray[np.float64]]) -> Vector:
    """sum_c (mean rho)^2 of each unit, layer after layer."""
    return np.concatenate([np.zeros(0), *(np.square(layer).sum(-1).reshape(-1) for layer in mean_ratio)])


def load_curvature(path: str | PathLike[str], *, trust: bool = False, memory_budget: int | None = None) -> Curvature:
    """Read a file written by `Curvature.save`.

    Parameters
    ----------
    path : str or path
        A .npz file.
    trust : bool, default False
        Also accept a file that needs more than ten times its size in memory (and more than 256 MB).
    memory_budget : int, optional
        Memory limit for the file and the record, in bytes; checked before memory is allocated.

    Returns
    -------
    Curvature
        The record, without what it held for each sample.

    Raises
    ------
    FileAccessError, FileFormatError
        If the file cannot be opened, or is not a record of curvature.

    Examples
    --------
    >>> import os, tempfile
    >>> import circurve as cc
    >>> rows = [[0, 1, 1], [1, 0, 0]] * 5
    >>> record = cc.curvature(cc.fit(cc.mixture(3, components=2), rows, epochs=3).model, rows)
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "curvature.npz")
    >>> record.save(path)
    >>> cc.load_curvature(path).trace == record.trace
    True
    """
    return curvature_from_bytes(read_record(path, memory_budget), path, trust)


def curvature_from_bytes(content: bytes, path: str | PathLike[str], trust: bool) -> Curvature:
    """The record that `Curvature.to_bytes` wrote; `path` is for messages."""
    try:
        stored: dict[str, Any] = dict(read_npz(io.BytesIO(content), len(content), trust, as_table=False))
        if str(stored["format"]) != FORMAT:
            raise FileFormatError(f"not a curvature file of this version ({cut(str(stored['format']))})")
        layers = sum(name.startswith("mean_ratio.") for name in stored)
        robust = [name for name in ROBUST if name in stored]
        record = Curvature(
            **{name: stored[name] for name in (*COLUMNS, *robust)},
            nodes=tuple(NodeRef(*ref) for ref in parse_json(str(stored["nodes"]), len(content), trust)),
            weight=float(stored["weight"]),
            impossible=int(stored["impossible"]),
            mean_ratio=tuple(stored[f"mean_ratio.{i}"] for i in range(layers)),
        )
        columns = [stored[name] for name in (*COLUMNS, *robust)] + [squared_ratios(record.mean_ratio)]
        if any(column.dtype != np.float64 or column.shape != (len(record),) for column in columns):
            raise ValueError("its columns have different lengths")
        return record
    except CircurveError as error:
        raise FileFormatError(f"{path}: ", *error.parts) from error
    except Exception as error:
        raise FileFormatError(f"{path}: not a readable curvature file ({cut(str(error))})") from error
