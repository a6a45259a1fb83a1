"""The commands under `circurve data`, as records of what was typed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from circurve.cli import options

__all__ = ["DataDownload", "DataInfo", "DataList"]

NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", show_default=False, help="Data sets of DEBD by name.")
]

AllOption = Annotated[bool, typer.Option("--all", help="All sets of DEBD.")]


@dataclass(frozen=True, kw_only=True)
class DataList:
    """List the data sets that can be given by name."""

    data_dir: options.DataDirOption = None
    as_json: options.JsonOption = False


@dataclass(frozen=True, kw_only=True)
class DataInfo:
    """Show what is in a data set or a file."""

    data: options.DataArgument
    data_dir: options.DataDirOption = None
    missing: options.MissingOption = None
    types: options.TypesOption = None
    header: options.HeaderOption = None
    memory_budget: options.BudgetOption = None
    trust: options.TrustOption = False
    as_json: options.JsonOption = False


@dataclass(frozen=True, kw_only=True)
class DataDownload:
    """Download data sets of the public collection DEBD into the cache.

    Files in the cache are checked, not downloaded again. Set CIRCURVE_CACHE to
    use another folder for the cache, and CIRCURVE_DEBD_URL to download from
    another address.
    """

    names: NamesArgument = None
    everything: AllOption = False
    as_json: options.JsonOption = False
