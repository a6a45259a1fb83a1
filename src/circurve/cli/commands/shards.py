"""The commands for statistics of shares of the rows, as records of what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from circurve.cli import options

__all__ = ["Merge", "Statistics"]


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Measure a model on a share of the rows: sums of its E-step and its curvature.

    Each machine measures its own rows; `circurve merge` adds the files up.
    """

    model: options.ModelArgument
    data: options.DataArgument
    out: Annotated[Path, typer.Option(metavar="FILE", help="The statistics file to write, .npz.")]
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Use the I-th of N equal shards of the rows, counted from 1. Without it, all rows."
        ),
    ] = None
    split: options.PartOption = options.Part.train
    device: options.DeviceOption = options.DEVICE
    memory_budget: options.BudgetOption = None
    data_dir: options.DataDirOption = None
    missing: options.MissingOption = None
    types: options.DroppedOption = None
    header: options.HeaderOption = None
    trust: options.TrustOption = False
    as_json: options.JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Add up files of `circurve statistics`: log-likelihood and curvature of all rows, and one step of EM.

    The order of the files does not matter. It is an error to give the same
    shard twice, or shards of different models.
    """

    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Statistics files.")]
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the sum of all statistics to this file.")] = (
        None
    )
    model: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="The model that was measured; needed for --step.")
    ] = None
    step: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the model after one step of EM on all rows to this file.")
    ] = None
    memory_budget: options.BudgetOption = None
    trust: options.TrustOption = False
    as_json: options.JsonOption = False
