"""What studies make and change.

Data: samples of a known circuit, whose true likelihood is the yardstick; data sets with noise in their cells, or
without some of their rows. Trained models: coarse and noisy weights, noisy test rows, ensembles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data import Dataset, Table
from circurve.data.convert import Array
from circurve.data.dataset import SPLITS
from circurve.engine import Params, compile
from circurve.engine.params import by_node, from_nodes
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.learning import Failure, FitResult
from circurve.learning.initialize import generator
from circurve.learning.mixture_weights import Scores, find_weights
from circurve.model import Model
from circurve.models import Models
from circurve.queries import limited
from circurve.reproduction.records import Record
from circurve.structures import random_binary_trees
from circurve.structures.arguments import Families, check_count

if TYPE_CHECKING:
    from circurve.reproduction.plan import PlannedRun

__all__ = [
    "CHANGES",
    "MODELS_PROBE",
    "TEST_NOISE",
    "KnownCircuit",
    "Probe",
    "Variant",
    "add_noise",
    "corrupted",
    "known_circuit",
    "noisy_cells",
    "quantise",
    "random_model",
    "sample_rows",
    "scale_by_noise",
    "selected",
]

CONTRAST, OWN_CHILD_WEIGHT = 6.0, 0.9
"""Weights are proportional to exp(CONTRAST u), u uniform: each sum has a few children that matter, not all alike. Where
a sum has as many units as child units, unit k gives OWN_CHILD_WEIGHT of its weight to child unit k, so that variables
far apart in the tree depend on one another."""

PARAMETERS, ROWS = 2, 3
"""The streams of a seed; training uses 0 and 1, so that a run with the same seed is independent of the true
parameters."""


@dataclass(frozen=True, eq=False)
class KnownCircuit:
    """Samples and what they were sampled from."""

    data: Dataset
    model: Model
    """The truth."""

    log_likelihood: Mapping[str, float]
    """The mean log-likelihood of each split under the truth, exactly: the best that learning can hope for."""


def known_circuit(
    families: Families, units: int = 8, rows: tuple[int, int, int] = (2000, 500, 2000), seed: int = 0
) -> KnownCircuit:
    """Samples of a random circuit: two random binary trees over the variables, with random parameters.

    families: one for each variable, `(family, count)`, or a count of binary variables. rows: for training, validation
    and test. The seed decides structure, parameters and samples.
    """
    counts = [check_count("rows", count) for count in rows]
    if len(counts) != len(SPLITS):
        raise OptionError(f"rows must be three numbers, for {', '.join(SPLITS)}, not {rows!r}")
    circuit = random_binary_trees(families, units, repetitions=2, seed=seed, product="unitwise")
    model = random_model(circuit, seed)
    values = sample_rows(model, sum(counts), seed)
    parts = np.split(values, np.cumsum(counts)[:-1])
    means = {split: float(model.log_prob(part).mean()) for split, part in zip(SPLITS, parts, strict=True)}
    train, valid, test = parts
    return KnownCircuit(Dataset(f"random circuit {seed}", train, valid, test), model, means)


def random_model(circuit: Circuit, seed: int = 0) -> Model:
    """The circuit with random parameters, float64: inputs as a training without data would start, uneven weights."""
    source = generator(seed, PARAMETERS)
    weights: dict[Node, Tensor] = {node: _random_weights(node, source) for node in circuit.sums}
    inputs: dict[Node, Tensor] = {n: n.family.initialize(np.empty(0), n.units, source) for n in circuit.inputs}
    program = compile(circuit)
    return Model(circuit, from_nodes(program, weights, inputs), program)


def _random_weights(node: Sum, source: torch.Generator) -> Tensor:  # (K, C)
    weight = (CONTRAST * torch.rand(node.units, node.child_units, generator=source, dtype=torch.float64)).exp()
    weight /= weight.sum(-1, keepdim=True)
    if node.units == node.child_units:
        weight = (1 - OWN_CHILD_WEIGHT) * weight + OWN_CHILD_WEIGHT * torch.eye(node.units, dtype=torch.float64)
    if node.mask is not None:
        weight *= torch.from_numpy(node.mask.copy())
    return weight / weight.sum(-1, keepdim=True)


def sample_rows(model: Model, rows: int, seed: int = 0) -> Array:  # (N, V)
    """Ancestral samples: from the root down, a sum follows one child unit by its weights, a product all its children.

    A sample comes to a node once at most, because the children of a product have no variable in common. Integers if all
    variables are discrete, else float64. O(rows x nodes) memory.
    """
    check_count("rows", rows)
    circuit = model.circuit
    if circuit.outputs != 1:
        raise OptionError(f"sampling needs a circuit with one output, not {circuit.outputs}")
    source = generator(seed, ROWS)
    parameters = by_node(model.program, model.params.to("cpu", torch.float64))
    unit = {node: torch.full((rows,), -1) for node in circuit.nodes}  # -1: the sample does not come here
    unit[circuit.roots[0]].fill_(0)
    values = torch.zeros(rows, circuit.variables, dtype=torch.float64)
    for node in reversed(circuit.nodes):
        here = (unit[node] >= 0).nonzero()[:, 0]
        if not len(here):
            continue
        at = unit[node][here]
        if isinstance(node, Sum):
            picked = torch.multinomial(parameters[node][at], 1, generator=source)[:, 0]
            _follow(node, picked, here, unit)
        elif isinstance(node, Product):
            for child, select in zip(node.children, node.select, strict=True):
                unit[child][here] = at if select is None else torch.from_numpy(select.copy())[at]
        else:
            values[here, node.variable] = _draw(node, parameters[node], at, source)
    whole = all(family.discrete for family in circuit.families)
    return values.numpy().astype(np.int64) if whole else values.numpy()


def _follow(node: Sum, picked: Tensor, here: Tensor, unit: Mapping[Node, Tensor]) -> None:
    """Send each sample to the child that its picked child unit belongs to."""
    start = 0
    for child in node.children:
        inside = (picked >= start) & (picked < start + child.units)
        unit[child][here[inside]] = picked[inside] - start
        start += child.units


def _draw(node: Input, parameters: Tensor, at: Tensor, source: torch.Generator) -> Tensor:  # (n,)
    if not parameters.shape[-1]:  # the units of an Indicator differ in value, not in parameters
        return node.family.mean(parameters)[at]
    return node.family.sample(parameters[at], source)


RARE_KEPT = 10
"""Of the rows with the rarer value, `selected` keeps one in this many."""


@dataclass(frozen=True)
class Variant:
    """A change of a data set. Its name is a part of the ids of runs, and so says all that matters."""

    name: str
    change: Callable[[Dataset], Dataset]


def noisy_cells(table: Table, rows: float, cells: float, seed: int) -> Table:
    """A share of the rows, and in these a share of the cells, get the value of another row in the same column.

    Each column keeps its own distribution, about; what is lost is how columns belong together.
    """
    random = np.random.default_rng(seed)
    count, columns = table.shape
    hit = (random.random((count, 1)) < rows) & (random.random((count, columns)) < cells)
    donors = random.integers(0, max(1, count), (count, columns))
    place = torch.from_numpy(np.where(hit, donors, np.arange(count)[:, None])).to(table.values.device)
    observed = None if table.observed is None else table.observed.gather(0, place)
    return replace(table, values=table.values.gather(0, place), observed=observed)


def corrupted(rows: float, cells: float) -> Variant:
    """Noise in a share of the training and validation rows; test rows stay clean."""

    def change(data: Dataset) -> Dataset:
        valid = None if data.valid is None else noisy_cells(data.valid, rows, cells, seed=1)
        return replace(data, train=noisy_cells(data.train, rows, cells, seed=0), valid=valid)

    return Variant(f"corrupted {rows:g} {cells:g}", change)


def selected() -> Variant:
    """Training and validation lack most rows with the rarer value of one column; test rows are as they were.

    The column is the one whose most frequent value has the smallest share of the values that are there, so that the
    shift is large. Rows in which it is missing stay.
    """

    def change(data: Dataset) -> Dataset:
        found = [_most_frequent(values) for values in np.asarray(data.train).T]
        column = min(range(len(found)), key=lambda v: found[v][1])
        common = found[column][0]
        valid = None if data.valid is None else _thinned(data.valid, column, common)
        return replace(data, train=_thinned(data.train, column, common), valid=valid)

    return Variant(f"selected 1/{RARE_KEPT}", change)


def _most_frequent(values: np.ndarray) -> tuple[float, float]:  # (N,)
    """The most frequent value, and its share; a share of 1 where there is none."""
    found, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    return (float(found[counts.argmax()]), float(counts.max() / counts.sum())) if len(found) else (math.nan, 1.0)


def _thinned(table: Table, column: int, common: float) -> Table:
    """All rows with the common value of a column or without a value, and one in RARE_KEPT of the others."""
    values = np.asarray(table)[:, column]
    other = ~np.isnan(values) & (values != common)
    rank = np.cumsum(other) - 1
    return table.rows(np.flatnonzero(~other | (rank % RARE_KEPT == 0)))


Floats: TypeAlias = NDArray[np.float64]

RANGE = math.log(1e6)
"""Quantised weights span this factor: what is smaller than a millionth of its sum's largest weight becomes that."""

DRAWS = 3
"""Draws of noise that are averaged."""

DIGITS = 5
"""Digits after the point of log-likelihoods in nats."""


@dataclass(frozen=True)
class Probe:
    """A measurement on the models of a fleet. Its name is a part of the ids of runs."""

    name: str
    measure: Callable[[Sequence[FitResult | Failure], Sequence[PlannedRun], Dataset, int | None], list[Record]]
    """From outcomes, their runs, the data and a memory budget to what each record gets; {} for a run that failed."""


def quantise(weights: Tensor, bits: int) -> Tensor:  # (..., C), rows on the simplex
    """Each weight rounded to one of 2^bits levels, then normalised.

    Levels are even on the log scale, from the largest weight of the sum down by a factor of 1e6; edges that do not
    exist, of weight 0, stay so. With L levels, a weight moves by a factor of at most exp(RANGE / (2 (L - 1))).
    """
    step = RANGE / (2**bits - 1)
    largest = weights.amax(-1, keepdim=True)
    below = (largest / weights.clamp_min(torch.finfo(weights.dtype).tiny)).log()
    rounded = torch.exp(-step * (below / step).round().clamp_max(2**bits - 1))
    return _normalised(torch.where(weights > 0, rounded, 0.0))


def scale_by_noise(weights: Tensor, size: float, noise: Tensor) -> Tensor:  # (..., C)
    """theta exp(size e), normalised; noise: e, standard normal, of the shape of one run."""
    return _normalised(weights * (size * noise).exp())


def add_noise(weights: Tensor, size: float, noise: Tensor) -> Tensor:  # (..., C)
    """theta + size e, not below 0 nor below a tenth of theta, normalised: noise in the Hessian's own coordinates."""
    return _normalised(torch.maximum(weights + size * noise * (weights > 0), weights / 10))


def _normalised(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)


Change: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From weights (R, G, K, C) and noise (G, K, C) to other weights."""

CHANGES: dict[str, tuple[Change, int]] = {
    "8 bits": (lambda weights, _: quantise(weights, 8), 1),
    "4 bits": (lambda weights, _: quantise(weights, 4), 1),
    "3 bits": (lambda weights, _: quantise(weights, 3), 1),
    "relative noise 0.3": (lambda weights, noise: scale_by_noise(weights, 0.3, noise), DRAWS),
    "added noise 0.01": (lambda weights, noise: add_noise(weights, 0.01, noise), DRAWS),
}
"""Name -> what happens to the weights of all sums, and how many draws of noise are averaged."""

TEST_NOISE = (0.02, 0.1)
"""Shares of the cells of test rows that get the value of another row."""


def _measure(
    outcomes: Sequence[FitResult | Failure],
    runs: Sequence[PlannedRun],
    data: Dataset,
    memory_budget: int | None = None,
) -> list[Record]:
    trained = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, FitResult)]
    found: list[Record] = [{} for _ in outcomes]
    if not trained or data.test is None or data.valid is None:
        return found
    models = [outcome.model for outcome in outcomes if isinstance(outcome, FitResult)]
    whole = limited(Models(models), memory_budget)
    test = data.test
    means = {f"test noise {share:g}": _mean(whole, noisy_cells(test, 1.0, share, seed=0)) for share in TEST_NOISE}
    means |= {name: _mean_changed(whole, change, draws, test) for name, (change, draws) in CHANGES.items()}
    mixed = _ensembles([runs[place] for place in trained], whole.log_prob(data.valid), whole.log_prob(test))
    for number, place in enumerate(trained):
        scores = {name: _rounded(float(values[number])) for name, values in means.items()}
        found[place] = {"probe": {"scores": scores, "ensemble": mixed[number]}}
    return found


def _mean(models: Models, rows: Table) -> Floats:  # (R,)
    means: Floats = np.asarray(models.log_prob(rows)).mean(1)
    return means


def _mean_changed(models: Models, change: Change, draws: int, rows: Table) -> Floats:  # (R,)
    """Mean log-likelihood of rows with changed weights; noise is the same for all runs."""
    random = torch.Generator().manual_seed(0)
    found = []
    for _ in range(draws):
        weights = []
        for layer in models.params.weights:
            noise = torch.randn(layer.shape[1:], generator=random).to(layer)
            weights.append(change(layer, noise))
        params = Params(tuple(weights), models.params.inputs)
        found.append(_mean(_with(models, params), rows))
    mean: Floats = np.mean(found, axis=0)
    return mean


def _with(models: Models, params: Params) -> Models:
    """The same circuits with other parameters."""
    first = models[0]
    parts = (params.select([run]) for run in range(params.runs))
    return Models([Model(first.circuit, part, first.program, first.schema) for part in parts])


def _ensembles(runs: Sequence[PlannedRun], valid: Floats, test: Floats) -> list[Record]:  # (R, N) both
    """The ensemble of each run: of one label, one run of each setting, seeds in turn.

    Setting c with the seed at place s belongs to ensemble (s - c) mod the number of seeds: as many ensembles as seeds,
    and no run in two of them. Weights are found by EM on the validation rows.
    """
    seeds = sorted({run.seed for run in runs})
    settings: dict[str, list[str]] = {}
    numbers = []
    for run in runs:
        label = run.labels[0]
        of_label = settings.setdefault(label, [])
        name = repr(run.setting)
        if name not in of_label:
            of_label.append(name)
        numbers.append((label, (seeds.index(run.seed) - of_label.index(name)) % len(seeds)))
    described: dict[tuple[str, int], Record] = {}
    for case in dict.fromkeys(numbers):
        members = [place for place, of in enumerate(numbers) if of == case]
        described[case] = {"number": seeds[case[1]], "members": len(members), **_mixture(valid[members], test[members])}
    return [described[case] for case in numbers]


def _mixture(valid: Floats, test: Floats) -> Record:  # (M, N) both
    held_out = Scores(valid, np.ones(valid.shape[1]))
    weights = find_weights(held_out, "em")
    tested = Scores(test, np.ones(test.shape[1]))
    return {"valid_ll": _rounded(held_out.mean_mixed(weights)), "test_ll": _rounded(tested.mean_mixed(weights))}


def _rounded(value: float) -> float | None:
    """None for minus infinity: some row has probability zero."""
    return round(value, DIGITS) if math.isfinite(value) else None


MODELS_PROBE = Probe("models 1", _measure)
"""The number is raised with every change of what it measures."""
