"""Log-probabilities that autograd differentiates, by a row's values or by parameters. A lost gradient is an error."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.data import as_table, check
from circurve.data.convert import column_label
from circurve.engine.batch import Batch
from circurve.engine.params import Params
from circurve.engine.reference import Reference
from circurve.errors import DataError
from circurve.inputs import Family

__all__ = ["differentiable_log_prob", "wants_gradient"]


def wants_gradient(x: object, params: Params) -> bool:
    """True if autograd is on and the rows or a parameter require a gradient."""
    if not torch.is_grad_enabled():
        return False
    tensors = (*params.weights, *params.inputs)
    return (isinstance(x, Tensor) and x.requires_grad) or any(tensor.requires_grad for tensor in tensors)


def differentiable_log_prob(
    backend: Reference, params: Params, x: Tensor, families: Sequence[Family], missing: int | None = None
) -> Tensor:  # (N, V) -> (outputs, N)
    """Log-probabilities in the autograd graph of `x` and `params`; the derivative by a missing value is 0.

    The graph keeps the values of all nodes for all rows: rows x units numbers.
    """
    table = check(as_table(x, missing=missing).bare(), families)
    if x.requires_grad:
        _refuse_discrete(table.observed, families)
    observed = None if table.observed is None else table.observed.to(backend.device)
    values = x.to(backend.device, backend.dtype)
    if observed is not None:
        values = torch.where(observed, values, 0.0)
        observed = observed.T.unsqueeze(0).to(backend.dtype)
    return backend.log_prob(params, Batch(values.T.unsqueeze(0), observed, None, None))[0]


def _refuse_discrete(observed: Tensor | None, families: Sequence[Family]) -> None:
    """Values of discrete columns have no derivative; columns that are missing throughout need none."""
    for number, family in enumerate(families):
        if family.discrete and (observed is None or bool(observed[:, number].any())):
            raise DataError(
                f"x requires a gradient, but {column_label(None, number)} is discrete ({family!r}) and has none: pass "
                "x.detach(), or give the discrete columns apart: "
                "circurve.torch_module(model)(continuous_columns, discrete=other_columns)"
            )
