"""Tables without gaps: means, modes, most probable completions or draws in place of missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from circurve.errors import OptionError
from circurve.queries.column_modes import column_modes
from circurve.queries.completion import most_probable
from circurve.queries.evidence import Evidence
from circurve.queries.moments import mean
from circurve.queries.passes import chunked, posterior, require_possible
from circurve.queries.sampling import sample
from circurve.queries.target import Target

__all__ = ["IMPUTATIONS", "Imputation", "impute", "modes"]

Imputation: TypeAlias = Literal["mean", "mode", "most_probable", "sample"]
IMPUTATIONS: tuple[Imputation, ...] = ("mean", "mode", "most_probable", "sample")


def impute(
    target: Target, rows: Evidence, how: Imputation = "mean", draws: int = 1, seed: int = 0
) -> Tensor:  # (R, draws, N, V)
    """Rows with every missing value filled in.

    "mean": E[x_v | e] of each column by itself, float64. "mode": the most probable value of each column by itself.
    "most_probable": all missing values of a row together, see `most_probable`. "sample": `draws` independent draws; the
    others give one table.
    """
    if how not in IMPUTATIONS:
        raise OptionError(f"how must be one of {', '.join(IMPUTATIONS)}, not {how!r}")
    if how == "sample":
        return sample(target, rows, draws, seed)
    if draws != 1:
        raise OptionError(f"draws={draws!r} has no effect with how={how!r}; use how='sample' for several tables")
    if how == "most_probable":
        return most_probable(target, rows).values.unsqueeze(1)
    return (mean if how == "mean" else modes)(target, rows).unsqueeze(1)


@torch.no_grad()
def modes(target: Target, rows: Evidence, columns: Sequence[int] | None = None) -> Tensor:  # (R, N, V)
    """The most probable value of each cell given the evidence of its row, one column at a time.

    columns: only these, and 0 in the missing cells of the others; None: all.
    """

    def work(part: Evidence) -> Tensor:
        found = posterior(target, part)
        require_possible(target, part, found.log_evidence)
        return column_modes(target, part, found, columns)

    return chunked(target, rows, work).transpose(1, 2)
