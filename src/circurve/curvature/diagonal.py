"""The Hessian of one sum node in its own weights, and the diagonal of the whole Hessian; as in `hessian.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.budget import Need
from circurve.curvature.measure import batches_of, report_impossible, samples_of
from circurve.curvature.units import label
from circurve.data import RowSource
from circurve.data.need import check_data
from circurve.engine import Batch, Reference
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.reference import FRESH
from circurve.errors import OptionError
from circurve.graph import Sum
from circurve.model import Model

__all__ = ["hessian_diagonal", "local_hessian"]

Array = NDArray[np.float64]

RATIO_BYTES = 40
"""What rho of one row, unit and child unit takes while it is computed: in the model's precision, in float64, masked."""


def local_hessian(
    model: Model, x: Any, node: Sum | str, *, missing: int | None = None, memory_budget: int | None = None
) -> Array:  # (N, K, C, C)
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
    memory_budget : int, optional
        Memory limit for data, result and buffers, in bytes; checked before memory is allocated.

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
    check_data("local_hessian", memory_budget, x)
    samples = model.align(x, missing=missing, unseen="error").to(model.device)  # p_n needs no labels
    reference = model.reference
    _, units, children = model.program.sums[place[0]].shape
    row_bytes = reference.bytes_per_sample(True) + RATIO_BYTES * units * children
    parts = {"result": 8 * len(samples) * units * children**2, "data": samples.nbytes}
    cure = "use fewer rows, or a node with fewer child units"
    left = Need("local_hessian", parts, cure, row_bytes).left(memory_budget)
    outer: Array = np.empty((len(samples), units, children, children))
    filled = 0
    for batch in batches_of(reference, samples, left, row_bytes):
        ratio = _ratios(reference, model, batch, *place).cpu().numpy()  # (n, K, C)
        np.einsum("nkc,nkd->nkcd", ratio, ratio, out=outer[filled : filled + batch.size])
        filled += batch.size
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


def hessian_diagonal(
    model: Model, x: Any, *, labels: Any = None, missing: int | None = None, memory_budget: int | None = None
) -> dict[Sum, Array]:
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
    memory_budget : int, optional
        Memory limit for data, sums and buffers, in bytes; checked before memory is allocated.

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
    check_data("hessian_diagonal", memory_budget, x)
    samples = samples_of(model, x, None, labels, missing)
    reference = model.reference
    left = _diagonal_need(model, samples, reference).left(memory_budget)
    sums = [torch.zeros(layer.shape, dtype=torch.float64, device=model.device) for layer in model.program.sums]
    rows = 0
    for batch in batches_of(reference, samples, left):
        rows += _add_squares(reference, model, batch, sums)
    report_impossible(len(samples) - rows, rows)
    return {
        node: (squares[g] / rows).cpu().numpy()
        for layer, squares in zip(model.program.sums, sums, strict=True)
        for g, node in enumerate(layer.nodes)
    }


def _diagonal_need(model: Model, samples: RowSource, reference: Reference) -> Need:
    """Sums and their means in float64, the product of the largest layer twice, the data."""
    entries = [int(np.prod(layer.shape)) for layer in model.program.sums]
    parts = {"sums": 16 * sum(entries) + 16 * max(entries, default=0), "data": samples.nbytes}
    return Need("hessian_diagonal", parts, "use fewer rows, or fewer units", reference.bytes_per_sample(True))


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
