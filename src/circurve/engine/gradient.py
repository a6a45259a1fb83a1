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

__all__ = ["differentiable_log_prob", "refuse_discrete", "wants_gradient"]


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

    Discrete columns have no derivative: `refuse_discrete` says so before a gradient is lost. The graph keeps the values
    of all nodes for all rows: rows x units numbers.
    """
    table = check(as_table(x, missing=missing).bare(), families)
    observed = None if table.observed is None else table.observed.to(backend.device)
    values = x.to(backend.device, backend.dtype)
    if observed is not None:
        values = torch.where(observed, values, 0.0)
        observed = observed.T.unsqueeze(0).to(backend.dtype)
    return backend.log_prob(params, Batch(values.T.unsqueeze(0), observed, None, None))[0]


def refuse_discrete(x: Tensor, families: Sequence[Family]) -> None:
    """Raise DataError if `x` (N, V) requires a gradient and holds discrete values, which have no derivative.

    Discrete columns that are missing throughout need none.
    """
    if not (torch.is_grad_enabled() and x.requires_grad) or x.ndim != 2 or x.shape[1] != len(families):
        return  # what has another shape is refused with the data
    for number, family in enumerate(families):
        if family.discrete and not bool(x[:, number].isnan().all()):
            raise DataError(
                f"x requires a gradient, but {column_label(None, number)} is discrete ({family!r}) and has none: pass "
                "x.detach(), or pass the discrete columns separately: "
                "circurve.torch_module(model)(continuous_columns, discrete=other_columns)"
            )
