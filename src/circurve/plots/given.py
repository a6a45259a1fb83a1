"""What a person has in hand, a model or the result of a training, as the records and curves that are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from circurve.curvature import Curvature
from circurve.curvature import curvature as measure
from circurve.errors import OptionError
from circurve.graph import Circuit, Node, Sum
from circurve.learning.gates import top_fraction
from circurve.learning.history import FitResult, FleetResult
from circurve.learning.methods import Gated, Vanilla, describe
from circurve.model import Model

__all__ = [
    "MeasuredTree",
    "Result",
    "Trained",
    "as_panels",
    "changes_of",
    "curvature_of",
    "curves_of",
    "measured_tree",
    "model_of",
    "scores_by_mu",
    "sum_tree",
]

Trained: TypeAlias = Model | FitResult
"""A model, or the result that holds one."""

Result: TypeAlias = FitResult | FleetResult

SPLITS = ("train", "valid", "test")


def as_panels(given: Any, kinds: type | tuple[type, ...] = (Curvature, Model, FitResult)) -> Mapping[str, Any]:
    """One panel for one thing, one for each run of a fleet; a mapping of panels stays as it is."""
    if isinstance(given, FleetResult):
        return {given.name(number): result for number, result in enumerate(given) if not result.failed}
    if isinstance(given, kinds):
        return {"": given}
    if isinstance(given, Mapping):
        return given
    raise OptionError(f"a plot takes a Model, FitResult, FleetResult or mapping of panels, not {type(given).__name__}")


def model_of(given: Trained) -> Model:
    """The model itself, or that of a result."""
    return given.model if isinstance(given, FitResult) else given


def curvature_of(given: Any, x: Any) -> Any:
    """The curvature of a model on the rows `x`; anything else as it is."""
    if isinstance(given, FleetResult):
        raise OptionError("this plot shows one model: pass one result of the fleet, such as fleet.best()")
    if not isinstance(given, Model | FitResult):
        return given
    if x is None:
        raise OptionError("the curvature of a model depends on data: pass them too, as x=data.train")
    return measure(model_of(given), x)


def curves_of(given: Any) -> Mapping[str, Mapping[str, ArrayLike]]:
    """Log-likelihoods by epoch: method -> split -> (seeds, epochs), NaN after the end of a run that stopped early."""
    if not isinstance(given, FitResult | FleetResult):
        found: Mapping[str, Mapping[str, ArrayLike]] = given
        return found
    results = [given] if isinstance(given, FitResult) else list(given)
    grouped: dict[str, list[FitResult]] = {}
    for result in results:
        if result.history:
            grouped.setdefault(result.run.label or describe(result.run.method), []).append(result)
    if not grouped:
        raise OptionError("there is no epoch to draw: the training ended before the first epoch")
    return {label: _splits(members) for label, members in grouped.items()}


def _splits(results: list[FitResult]) -> dict[str, ArrayLike]:
    epochs = max(len(result.history) for result in results)
    found: dict[str, ArrayLike] = {}
    for split in SPLITS:
        rows = np.full((len(results), epochs), np.nan)
        for row, result in zip(rows, results, strict=True):
            values = [getattr(record, f"{split}_ll") for record in result.history]
            row[: len(values)] = [np.nan if value is None else value for value in values]
        if np.isfinite(rows).any():
            found[split] = rows
    return found


def changes_of(fleet: FleetResult) -> tuple[dict[str, NDArray[np.float64]], tuple[float, ...]]:
    """Test likelihoods of runs with `gates.top_fraction` minus those of plain EM with the same seed, and the fractions.

    "total" and "local" are (seeds, fractions), NaN where there is no such run.
    """
    plain = {r.run.seed: r.test_ll for r in fleet if isinstance(r.run.method, Vanilla) and not r.failed}
    found: dict[tuple[str, int, float], float] = {}
    for result in fleet:
        method = result.run.method
        if isinstance(method, Gated) and isinstance(method.gate, top_fraction) and not result.failed:
            before = plain.get(result.run.seed)
            if result.test_ll is None or before is None:
                raise OptionError("node_selection needs test= in training, and a run with Vanilla() for each seed")
            found[method.gate.by, result.run.seed, method.gate.q] = result.test_ll - before
    if not found:
        raise OptionError("node_selection needs runs with Gated(mu, gate=gates.top_fraction(q, by)) in the fleet")
    fractions = tuple(sorted({q for _, _, q in found}))
    seeds = sorted({seed for _, seed, _ in found})
    changes = {
        by: np.array([[found.get((by, seed, q), np.nan) for q in fractions] for seed in seeds])
        for by in sorted({by for by, _, _ in found})
    }
    return changes, fractions


Scores: TypeAlias = dict[str, NDArray[np.float64]]
"""Log-likelihoods over seeds, by a label."""


def scores_by_mu(fleet: FleetResult) -> tuple[str, Scores, dict[str, dict[float, NDArray[np.float64]]]]:
    """The split that counts, the scores of plain EM over seeds, and of each penalised method by mu."""
    whole = [result for result in fleet if not result.failed]
    known = (s for s in ("valid", "test", "train") if all(getattr(r, f"{s}_ll") is not None for r in whole))
    split = next(known, "train")
    plain: dict[str, list[float]] = {}
    found: dict[str, dict[float, list[float]]] = {}
    for result in whole:
        method, score = result.run.method, float(getattr(result, f"{split}_ll"))
        if isinstance(method, Vanilla):
            plain.setdefault("vanilla", []).append(score)
        elif isinstance(method.mu, int | float):
            label = describe(method).partition(",")[0]
            found.setdefault(label, {}).setdefault(float(method.mu), []).append(score)
    if not found:
        raise OptionError("there is no strength to draw: the fleet has no run of Global(mu) or Gated(mu) that finished")
    levels = {label: np.array(scores) for label, scores in plain.items()}
    return split, levels, {label: {mu: np.array(s) for mu, s in by.items()} for label, by in found.items()}


def sum_tree(circuit: Circuit) -> tuple[list[Sum], list[int]]:
    """The sum nodes from the root down, and the number of the nearest sum above each, -1 for the root.

    Of several parents the first that is met counts; a hidden Chow-Liu tree has one for each.
    """
    found: list[Sum] = []
    parents: list[int] = []
    seen: set[Node] = set()
    waiting: list[tuple[Node, int]] = [(root, -1) for root in circuit.roots]
    while waiting:
        node, above = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Sum):
            found.append(node)
            parents.append(above)
            above = len(found) - 1
        waiting += [(child, above) for child in reversed(node.children)]
    return found, parents


@dataclass(frozen=True)
class MeasuredTree:
    """The tree of a model's sums with the curvature of all their units."""

    parents: list[int]
    curvature: Curvature
    node: NDArray[np.int64]  # the tree node of each unit
    unit: NDArray[np.int64]  # its number there

    def by_node(self, quantity: str) -> list[NDArray[np.float64]]:
        """A column of the curvature: for each node the values of its units."""
        order = np.lexsort((self.unit, self.node))
        ends = np.cumsum(np.bincount(self.node, minlength=len(self.parents)))
        return np.split(getattr(self.curvature, quantity)[order], ends[:-1])


def measured_tree(given: Trained, x: Any) -> MeasuredTree:
    """The tree of the sums of a model, measured on the rows `x`."""
    circuit, curv = model_of(given).circuit, curvature_of(given, x)
    sums, parents = sum_tree(circuit)
    if parents.count(-1) != 1:
        raise OptionError(f"a tree is drawn from one root that is a sum; this circuit has {parents.count(-1)}")
    position = {node: i for i, node in enumerate(sums)}
    node = np.array([position[circuit.nodes[ref.node]] for ref in curv.nodes], dtype=np.int64)
    return MeasuredTree(parents, curv, node, np.array([ref.unit for ref in curv.nodes], dtype=np.int64))
