"""Exact Hessians: of one sum node, the diagonal, the whole matrix of a small circuit, the top of a large one.

All are Hessians of -log p in the sum weights, taken as free and untied variables: every `Sum` owns its weight block,
and a circuit has no way to tie two of them. Parameters of input distributions are not part of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.curvature.measure import batches_of, report_impossible, samples_of
from circurve.curvature.units import label
from circurve.engine import Batch, Params, Reference
from circurve.engine.memory import CPU_CHUNK
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.reference import FRESH
from circurve.errors import OptionError
from circurve.graph import Sum
from circurve.model import Model

__all__ = ["Edge", "Hessian", "hessian", "hessian_diagonal", "local_hessian", "top_eigenvalues"]

Array = NDArray[np.float64]

LARGEST = 5_000
"""The largest number of edges for which the whole Hessian is computed: 200 MB of matrix."""

SMALL = 200
"""Up to this many edges, the whole Hessian is faster than Lanczos and is certain to find multiple eigenvalues."""

AT_ONCE = 1 << 22
"""Vectors x rows x samples differentiated in one go: bounds the memory to some hundred megabytes."""


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


def local_hessian(model: Model, x: Any, node: Sum | str, *, missing: int | None = None) -> Array:  # (N, K, C, C)
    """rho rho^T of each unit of a sum node for each row of x: the Hessian of -log p_n in the node's own weights.

    rho_c = p_c / p_n. The matrix has rank one; its only eigenvalue that is not zero is t_n.

    Parameters
    ----------
    model : Model
        What to measure.
    x : array, tensor, list, data frame or Table
        (N, V).
    node : Sum or str
        The sum node, or its name.
    missing : int, optional
        A number that marks missing values, in addition to NaN.

    Returns
    -------
    array
        (N, units, child units, child units); NaN in rows where p_n is zero.

    Raises
    ------
    OptionError
        If the circuit has no such node, or more than one.

    Examples
    --------
    >>> import circurve as cc
    >>> root = cc.Sum(cc.Input(0, cc.Bernoulli(), units=2))
    >>> model = cc.Model.from_parameters(cc.Circuit(root), {root: [[0.5, 0.5]]}, {root.children[0]: [[0.9], [0.1]]})
    >>> cc.local_hessian(model, [[1]], root)[0, 0].round(2)
    array([[3.24, 0.36],
           [0.36, 0.04]])
    """
    place = _sum_position(model, node)
    samples = model.align(x, missing=missing, unseen="error").to(model.device)  # p_n needs no labels
    reference = model.reference
    parts = [_ratios(reference, model, batch, *place) for batch in batches_of(reference, samples)]
    ratio = torch.cat(parts).double().cpu().numpy()  # (N, K, C)
    outer: Array = np.einsum("nkc,nkd->nkcd", ratio, ratio)
    return outer


@torch.no_grad()
def _ratios(reference: Reference, model: Model, batch: Batch, number: int, position: int) -> Tensor:  # (N, K, C)
    """rho of each unit of node `position` in sum layer `number`."""
    layer, up = model.program.sums[number], reference.upward(model.params, batch)
    g, _, c = layer.shape
    children = reference.children[layer.block](up.values, FRESH).view(g, c, -1)[position].T  # (N, C)
    own = up.sums[number].log_value[0, position].T  # (N, K)
    ratio = (children[:, None] - own[:, :, None]).double().exp()
    mask = reference.masks[number]
    ratio = ratio if mask is None else ratio.masked_fill(mask[position] == 0, 0.0)
    return torch.where((own > IMPOSSIBLE)[:, :, None], ratio, torch.nan)


def hessian_diagonal(model: Model, x: Any, *, labels: Any = None, missing: int | None = None) -> dict[Sum, Array]:
    """The diagonal of the Hessian of the mean of -log p over rows: the mean of (F_nc / theta_nc)^2 for each edge.

    Equals the mean of (F_n rho_nc)^2, which is finite for zero weights too.

    Parameters
    ----------
    model : Model
        What to measure.
    x : array, tensor, list, data frame or Table
        (N, V); rows of probability zero are left out, with a warning that counts them.
    labels : array, optional
        (N,): which output of several each row belongs to.
    missing : int, optional
        A number that marks missing values, in addition to NaN.

    Returns
    -------
    dict
        For each Sum an array (units, child units).

    Examples
    --------
    >>> import circurve as cc
    >>> root = cc.Sum(cc.Input(0, cc.Bernoulli(), units=2))
    >>> model = cc.Model.from_parameters(cc.Circuit(root), {root: [[0.5, 0.5]]}, {root.children[0]: [[0.9], [0.1]]})
    >>> cc.hessian_diagonal(model, [[1]])[root].round(2)
    array([[3.24, 0.04]])
    """
    samples = samples_of(model, x, None, labels, missing)
    reference = model.reference
    sums = [torch.zeros(layer.shape, dtype=torch.float64, device=model.device) for layer in model.program.sums]
    rows = 0
    for batch in batches_of(reference, samples):
        rows += _add_squares(reference, model, batch, sums)
    report_impossible(len(samples) - rows, rows)
    return {
        node: (squares[g] / rows).cpu().numpy()
        for layer, squares in zip(model.program.sums, sums, strict=True)
        for g, node in enumerate(layer.nodes)
    }


@torch.no_grad()
def _add_squares(reference: Reference, model: Model, batch: Batch, sums: list[Tensor]) -> int:
    """Add (F_n rho_nc)^2 = A^2 E^2 over samples, one matrix product for each layer; returns the possible samples."""
    down = reference.passes(model.params, batch)
    for step in down.sums():
        squares = torch.matmul(step.ratio[0].square(), step.values.elements[0].square().transpose(-1, -2))
        sums[step.number] += squares if step.mask is None else squares * step.mask
        for entries in step.weak():
            log_flow = entries.flow.double().log()[:, None]  # minus infinity for a row of probability zero
            gradient = (entries.log_ratio.double() + log_flow).exp()
            sums[step.number].index_put_(entries.at[1:3], gradient.square(), accumulate=True)
    return int(down.root.possible.sum())


def hessian(model: Model, x: Any, *, labels: Any = None, missing: int | None = None) -> Hessian:
    """The whole Hessian of the mean of -log p over rows, by automatic differentiation in float64: small circuits only.

    A unit of probability zero in a possible row is a constant there, as it is in the trace. Differences of large terms
    lose digits if a node has hardly any flow, but would have much through an edge of weight zero or far below 1e-12;
    `hessian_diagonal` keeps them.

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
    _check_size(int(_existing(model).sum()))
    loss = _Loss.of(model, x, labels, missing)
    return Hessian(_matrix(loss), edges_of(model))


def _check_size(edges: int) -> None:
    if edges > LARGEST:
        raise OptionError(
            f"the circuit has {edges:,} edges, but the whole Hessian is limited to {LARGEST:,}: use hessian_diagonal "
            f"or top_eigenvalues"
        )


def _matrix(loss: _Loss) -> Array:  # (E, E)
    matrix: Array = loss.products(torch.eye(loss.edges, dtype=torch.float64)).numpy()
    return matrix


def top_eigenvalues(
    model: Model, x: Any, k: int = 5, *, labels: Any = None, missing: int | None = None
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
        raise OptionError(f"k must be a whole number from 1 to the {size} edges of the circuit, not {k!r}")
    whole = size <= SMALL or k >= size - 1
    if whole:
        _check_size(size)
    loss = _Loss.of(model, x, labels, missing)
    values = None if whole else _lanczos(loss, k)
    if values is None:
        _check_size(size)
        values = np.linalg.eigvalsh(_matrix(loss))
    return np.sort(values)[::-1][:k].astype(np.float64)


def _lanczos(loss: _Loss, k: int) -> NDArray[np.floating[Any]] | None:  # (k,)
    """The k largest eigenvalues, or None where ARPACK gives up, as it may for a matrix of low rank."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh  # noqa: PLC0415 - slow to import

    def product(vector: Array) -> Array:
        result: Array = loss.products(torch.from_numpy(vector.reshape(1, -1).astype(np.float64)))[0].numpy()
        return result

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
class _Loss:
    """The mean of -log p over rows as a function of one vector of all weight blocks; on the CPU, in float64."""

    model: Model
    batches: tuple[Batch, ...]
    rows: int
    weights: Tensor  # the model's own vector, (entries,)
    kept: Tensor  # which entries are edges, (entries,) boolean
    reference: Reference

    @classmethod
    def of(cls, model: Model, x: Any, labels: Any, missing: int | None) -> _Loss:
        """Check the data, leave out the rows of probability zero, and cut the others into batches."""
        here = model.to("cpu", torch.float64)
        samples = samples_of(here, x, None, labels, missing)
        log_value = torch.as_tensor(here.log_prob(x, missing=missing)).cpu()  # (N,) or (N, outputs)
        if samples.labels is not None:
            log_value = log_value.gather(1, samples.labels[:, None])[:, 0]
        possible = (log_value > -torch.inf).nonzero()[:, 0]
        rows = len(possible)
        report_impossible(len(samples) - rows, rows)
        size = max(1, min(CPU_CHUNK, AT_ONCE // here.program.values.rows))
        batches = tuple(Batch.pick(samples, part[None], here.dtype) for part in torch.split(possible, size))
        blocks = [torch.zeros(0, dtype=torch.float64), *(w.reshape(-1) for w in here.params.weights)]
        reference = here.reference
        return cls(here, batches, rows, torch.cat(blocks), _existing(here), reference)

    @property
    def edges(self) -> int:
        """E, the weights that exist."""
        return int(self.kept.sum())

    def of_batch(self, vector: Tensor, batch: Batch) -> Tensor:
        """What a batch adds to the mean."""
        shapes = [layer.shape for layer in self.model.program.sums]
        parts = torch.split(vector, [int(np.prod(shape)) for shape in shapes])
        blocks = [part.view(1, *shape) for part, shape in zip(parts, shapes, strict=True)]
        params = Params(tuple(blocks), self.model.params.inputs)
        outputs = self.reference.upward(params, batch).outputs[0]  # (outputs, N)
        log_value = outputs[0] if batch.labels is None else outputs.gather(0, batch.labels)[0]
        return -log_value.sum() / self.rows

    def products(self, vectors: Tensor) -> Tensor:  # (M, E) -> (M, E)
        """Each vector times the Hessian: reverse over reverse, a bounded number of vectors and rows at a time."""
        full = torch.zeros(len(vectors), len(self.kept), dtype=torch.float64)
        full[:, self.kept] = vectors
        total = torch.zeros_like(full)
        for batch in self.batches if self.edges else ():
            gradient = torch.func.grad(partial(self.of_batch, batch=batch))
            total += _products(gradient, self.weights, full, AT_ONCE // (self.model.program.values.rows * batch.size))
        return total[:, self.kept]


def _products(gradient: Callable[[Tensor], Tensor], at: Tensor, vectors: Tensor, at_once: int) -> Tensor:
    """Each vector times the derivative of a gradient, which is symmetric: (M, entries)."""
    transposed = torch.func.vjp(gradient, at)[1]
    products: Tensor = torch.func.vmap(lambda vector: transposed(vector)[0], chunk_size=max(1, at_once))(vectors)
    return products


def _sum_position(model: Model, node: Sum | str) -> tuple[int, int]:
    """Which sum layer a node is in, and where."""
    place = {other: i for i, other in enumerate(model.circuit.nodes)}
    found = [
        (number, position)
        for number, layer in enumerate(model.program.sums)
        for position, other in enumerate(layer.nodes)
        if (label(other, place[other]) == node if isinstance(node, str) else other is node)
    ]
    if len(found) != 1:
        raise OptionError(f"node: {'more than one' if found else 'no'} Sum {node!r} in this circuit")
    return found[0]
