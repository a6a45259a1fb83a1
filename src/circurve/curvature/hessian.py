"""Exact Hessians: the whole matrix of a small circuit, the largest eigenvalues of a large one.

All are Hessians of -log p in the sum weights, taken as free and untied variables: every `Sum` owns its weight block,
and a circuit has no way to tie two of them. Parameters of input distributions are not part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.budget import Need
from circurve.curvature.measure import report_impossible, samples_of
from circurve.curvature.relative import RelativeValues
from circurve.data import RowSource
from circurve.data.need import check_data
from circurve.engine import Batch, Reference
from circurve.engine.memory import CPU_CHUNK
from circurve.errors import OptionError
from circurve.model import Model
from circurve.scoring import score_rows
from circurve.words import counted

__all__ = ["Edge", "Hessian", "hessian", "top_eigenvalues"]

Array = NDArray[np.float64]

LARGEST = 5_000
"""The largest number of edges for which the whole Hessian is computed: 200 MB of matrix."""

SMALL = 200
"""Up to this many edges, the whole Hessian is faster than Lanczos and is certain to find multiple eigenvalues."""

LANCZOS_VECTORS = 20
"""The least number of vectors that Lanczos keeps; it is twice the number of eigenvalues if that is larger."""

AT_ONCE = 1 << 22
"""Vectors x rows x samples differentiated in one go: bounds the memory to some hundred megabytes."""

GRAPH_COPIES, VECTOR_COPIES = 6, 3
"""Memory of second derivatives, as a multiple of what the reference backend takes for as many samples: for the graph of
the gradient, and for each vector that is multiplied with the Hessian at once. (Measured: at most 3.4 and 1.1.)"""

VECTOR_BYTES = 32
"""Bytes of each entry of a vector: the vector itself, its product, and copies of them without masked entries."""


@dataclass(frozen=True)
class Edge:
    """One sum weight: which node (its position in `circuit.nodes`), which of its units, which child unit."""

    node: int
    unit: int
    child: int


@dataclass(frozen=True)
class Hessian:
    """The Hessian of the mean of -log p over rows, and the weight that each of its rows and columns belongs to."""

    matrix: Array  # (E, E)
    edges: tuple[Edge, ...]


def hessian(
    model: Model, x: Any, *, labels: Any = None, missing: int | None = None, memory_budget: int | None = None
) -> Hessian:
    """The whole Hessian of the mean of -log p over rows, by automatic differentiation in float64: small circuits only.

    A unit of probability zero in a possible row is a constant there, as it is in the trace.

    Parameters
    ----------
    model : Model
        A model of at most 5,000 edges.
    x : array, tensor, list, data frame or Table
        (N, V); rows of probability zero are left out, with a warning that counts them.
    labels : array, optional
        (N,): which output of several each row belongs to.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    memory_budget : int, optional
        Memory limit for data, matrix and buffers, in bytes; checked before memory is allocated.

    Returns
    -------
    Hessian
        `.matrix` (E, E), and in `.edges` the weight of each row and column.

    Raises
    ------
    OptionError
        If the circuit has too many edges.

    Examples
    --------
    >>> import circurve as cc
    >>> root = cc.Sum(cc.Input(0, cc.Bernoulli(), units=2))
    >>> model = cc.Model.from_parameters(cc.Circuit(root), {root: [[0.5, 0.5]]}, {root.children[0]: [[0.9], [0.1]]})
    >>> cc.hessian(model, [[1]]).matrix.round(2)
    array([[3.24, 0.36],
           [0.36, 0.04]])
    """
    edges = int(_existing(model).sum())
    _check_size(edges)
    loss = _Loss.of(model, _Asked(x, labels, missing, "hessian", {"matrix": 8 * edges**2}, memory_budget))
    return Hessian(_matrix(loss), edges_of(model))


def _check_size(edges: int) -> None:
    if edges > LARGEST:
        raise OptionError(
            f"the circuit has {edges:,} edges, but the whole Hessian is limited to {LARGEST:,}: use hessian_diagonal "
            f"or top_eigenvalues"
        )


def _matrix(loss: _Loss) -> Array:  # (E, E)
    matrix = np.zeros((loss.edges, loss.edges))

    def unit_vectors(some: slice) -> Tensor:  # (m, E)
        made = torch.zeros(some.stop - some.start, loss.edges, dtype=torch.float64)
        made[:, some] = torch.eye(len(made), dtype=torch.float64)
        return made

    loss.add_products(unit_vectors, torch.from_numpy(matrix))
    return matrix


def top_eigenvalues(
    model: Model,
    x: Any,
    k: int = 5,
    *,
    labels: Any = None,
    missing: int | None = None,
    memory_budget: int | None = None,
) -> Array:  # (k,)
    """The k largest eigenvalues of the Hessian of the mean of -log p over rows, largest first.

    Lanczos (scipy's eigsh) on exact Hessian-vector products, each a forward-over-reverse pass over all rows; the whole
    matrix if it is small, or if Lanczos fails.

    Parameters
    ----------
    model : Model
        What to measure.
    x : array, tensor, list, data frame or Table
        (N, V); rows of probability zero are left out, with a warning.
    k : int, default 5
        How many eigenvalues.
    labels : array, optional
        (N,): which output of several each row belongs to.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    memory_budget : int, optional
        Memory limit for data, vectors and buffers, in bytes; checked before memory is allocated.

    Returns
    -------
    array
        (k,).

    Raises
    ------
    OptionError
        If k is larger than the number of edges.

    Examples
    --------
    >>> import circurve as cc
    >>> root = cc.Sum(cc.Input(0, cc.Bernoulli(), units=2))
    >>> model = cc.Model.from_parameters(cc.Circuit(root), {root: [[0.5, 0.5]]}, {root.children[0]: [[0.9], [0.1]]})
    >>> cc.top_eigenvalues(model, [[1]], k=1).round(2)
    array([3.28])
    """
    size = int(_existing(model).sum())
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= size:
        raise OptionError(f"k must be a whole number from 1 to the {counted(size, 'edge')} of the circuit, not {k!r}")
    whole = size <= SMALL or k >= size - 1
    if whole:
        _check_size(size)
    held = {"matrix": 16 * size**2} if whole else {"vectors": 8 * size * (max(2 * k + 1, LANCZOS_VECTORS) + 8)}
    loss = _Loss.of(model, _Asked(x, labels, missing, "top_eigenvalues", held, memory_budget))
    values = None if whole else _lanczos(loss, k)
    if values is None:
        _check_size(size)
        if not whole:  # Lanczos gave up
            replace(loss.asked, held={"matrix": 16 * size**2}).need(model, loss.samples).left(memory_budget)
        values = np.linalg.eigvalsh(_matrix(loss))
    return np.sort(values)[::-1][:k].astype(np.float64)


def _lanczos(loss: _Loss, k: int) -> NDArray[np.floating[Any]] | None:  # (k,)
    """The k largest eigenvalues, or None where ARPACK gives up, as it may for a matrix of low rank."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh  # noqa: PLC0415 - slow to import

    def product(vector: Array) -> Array:
        given, result = torch.from_numpy(vector.reshape(1, -1).astype(np.float64)), np.zeros((1, loss.edges))
        loss.add_products(lambda _: given, torch.from_numpy(result))
        found: Array = result[0]
        return found

    operator = LinearOperator((loss.edges, loss.edges), matvec=product, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(loss.edges)
    try:
        values: Array = eigsh(operator, k=k, which="LA", return_eigenvectors=False, v0=start)
    except ArpackError:
        return None
    return values


def edges_of(model: Model) -> tuple[Edge, ...]:
    """The sum weights in the order of the Hessian: layer, node, unit, child; masked edges left out."""
    position = {node: i for i, node in enumerate(model.circuit.nodes)}
    edges = []
    for layer in model.program.sums:
        for node in layer.nodes:
            mask = np.ones((node.units, node.child_units), bool) if node.mask is None else node.mask
            edges += [Edge(position[node], int(unit), int(child)) for unit, child in np.argwhere(mask)]
    return tuple(edges)


def _existing(model: Model) -> Tensor:  # (all entries of weight blocks,) boolean
    parts = [
        torch.ones(layer.shape, dtype=torch.bool) if layer.mask is None else torch.from_numpy(layer.mask)
        for layer in model.program.sums
    ]
    return torch.cat([torch.zeros(0, dtype=torch.bool), *(part.reshape(-1) for part in parts)])


@dataclass(frozen=True)
class _Asked:
    """Rows, what their Hessian is computed for, and the memory for it."""

    x: Any
    labels: Any
    missing: int | None
    what: str
    held: Mapping[str, int]
    """Bytes of the results."""

    memory_budget: int | None

    def need(self, model: Model, samples: RowSource) -> Need:
        """Results, the parameters in float64 twice, the data, and log p with the number of each row."""
        program, entries = model.program, len(_existing(model))
        parts = {**self.held, "parameters": 8 * (program.parameters + entries), "data": samples.nbytes}
        parts["rows"] = 24 * len(samples)
        buffers = Reference(program, 1, torch.device("cpu"), torch.float64).bytes_per_sample(True)
        one_row = (GRAPH_COPIES + VECTOR_COPIES) * buffers + VECTOR_BYTES * entries
        return Need(self.what, parts, "use fewer rows, or a circuit with fewer units", one_row)


@dataclass(frozen=True)
class _Loss:
    """The mean of -log p over rows as a function of one vector of all weight blocks; on the CPU, in float64."""

    model: Model
    samples: RowSource
    possible: Tensor  # the numbers of the rows of probability above zero, (N,) int64
    weights: Tensor  # the model's own vector, (entries,)
    kept: Tensor  # which entries are edges, (entries,) boolean
    reference: Reference
    asked: _Asked
    left: int | None
    """Bytes for derivatives; None without a budget."""

    @classmethod
    def of(cls, model: Model, asked: _Asked) -> _Loss:
        """Check data and memory, and find the rows of probability zero, which are left out."""
        check_data(asked.what, asked.memory_budget, asked.x)
        samples = samples_of(model, asked.x, None, asked.labels, asked.missing).to("cpu")
        left = asked.need(model, samples).left(asked.memory_budget)
        here = model.to("cpu", torch.float64)
        reference = here.reference
        with torch.no_grad():
            log_value = score_rows(reference, here.params, samples, left)[0]  # (outputs, N)
        own = log_value[0] if samples.labels is None else log_value.gather(0, samples.labels[None])[0]
        possible = (own > -torch.inf).nonzero()[:, 0]
        report_impossible(len(samples) - len(possible), len(possible))
        blocks = [torch.zeros(0, dtype=torch.float64), *(w.reshape(-1) for w in here.params.weights)]
        return cls(here, samples, possible, torch.cat(blocks), _existing(here), reference, asked, left)

    @property
    def edges(self) -> int:
        """E, the weights that exist."""
        return int(self.kept.sum())

    def of_batch(self, vector: Tensor, relative: RelativeValues) -> Tensor:
        """What a batch adds to the mean, less what it adds at the model's own weights."""
        shapes = [layer.shape for layer in self.model.program.sums]
        parts = torch.split(vector, [int(np.prod(shape)) for shape in shapes])
        blocks = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        return -relative(blocks).log().sum() / len(self.possible)

    def add_products(self, vectors: Callable[[slice], Tensor], total: Tensor) -> None:  # (m, E), (M, E)
        """total += each of M vectors times the Hessian: reverse over reverse, some vectors and rows at a time.

        vectors: makes those that are asked for.
        """
        samples = self._samples_at_once()
        for part in torch.split(self.possible, samples) if self.edges else ():
            batch = Batch.pick(self.samples, part[None], self.model.dtype)
            relative = RelativeValues(self.reference, self.model.params, batch)
            transposed = torch.func.vjp(torch.func.grad(partial(self.of_batch, relative=relative)), self.weights)[1]
            step = self._vectors_at_once(len(part))
            for start in range(0, len(total), step):
                some = slice(start, min(start + step, len(total)))
                total[some] += self._products(transposed, vectors(some))

    def _products(self, transposed: Callable[[Tensor], tuple[Tensor]], vectors: Tensor) -> Tensor:  # (m, E) -> (m, E)
        """Vectors times the derivative of a gradient, which is symmetric."""
        full = torch.zeros(len(vectors), len(self.kept), dtype=torch.float64)
        full[:, self.kept] = vectors
        found: Tensor = torch.func.vmap(lambda vector: transposed(vector)[0])(full)
        return found[:, self.kept]

    def _samples_at_once(self) -> int:
        most = min(CPU_CHUNK, AT_ONCE // self.model.program.values.rows)
        if self.left is not None:
            for_rows = self.left - VECTOR_BYTES * len(self.kept)
            most = min(most, for_rows // ((GRAPH_COPIES + VECTOR_COPIES) * self.reference.bytes_per_sample(True)))
        return max(1, most)

    def _vectors_at_once(self, samples: int) -> int:
        most = AT_ONCE // (self.model.program.values.rows * samples)
        if self.left is not None:
            buffers = samples * self.reference.bytes_per_sample(True)
            each = VECTOR_COPIES * buffers + VECTOR_BYTES * len(self.kept)
            most = min(most, (self.left - GRAPH_COPIES * buffers) // each)
        return max(1, most)
