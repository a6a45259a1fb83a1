"""Options that several commands share, as records: each is defined once, and a command takes the whole record.

Names, defaults and help texts of training come from `Settings`, `Run`, `Vanilla` and `Gated`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circurve.cli import options
from circurve.cli.options import (
    DATA,
    TRAINING,
    Estimator,
    MuScale,
    Penalty,
    Precision,
    Select,
    Simplex,
    Unseen,
    option_of,
)
from circurve.learning.methods import Gated, Vanilla
from circurve.learning.option_texts import help_of, shown_default
from circurve.learning.options import Run, Settings

if TYPE_CHECKING:
    from circurve.cli.loading import HeldOut, Source

__all__ = ["HeldOutOptions", "MethodOptions", "SourceOptions", "TrainingOptions"]


@dataclass(frozen=True)
class MethodOptions:
    """What all methods of a command have in common; None where it was not given."""

    estimator: Annotated[Estimator | None, option_of(Gated, "estimator", "NAME", shown_default(Gated, "estimator"))] = (
        None
    )
    gate_memory: Annotated[float | None, option_of(Gated, "gate_memory", "F", f"{Gated.gate_memory:g}")] = None
    ratio_floor: Annotated[float | None, option_of(Gated, "ratio_floor", "F", f"{Gated.ratio_floor:g}")] = None
    simplex: Annotated[Simplex | None, option_of(Gated, "simplex", shown=shown_default(Gated, "simplex"))] = None
    penalty: Annotated[Penalty | None, option_of(Gated, "penalty", shown=shown_default(Gated, "penalty"))] = None
    mu_scale: Annotated[MuScale | None, option_of(Gated, "mu_scale", shown=shown_default(Gated, "mu_scale"))] = None
    pseudocount: Annotated[float, option_of(Gated, "pseudocount", "F")] = Vanilla.pseudocount


@dataclass(frozen=True)
class TrainingOptions:
    """The options of training as they were typed."""

    epochs: Annotated[int, option_of(Settings, "epochs", "N")] = Settings.epochs
    batch_size: Annotated[str, option_of(Settings, "batch_size", "N|full")] = str(Settings.batch_size)
    step_size: Annotated[
        str | None,
        typer.Option(
            metavar="F|KIND:F:F",
            rich_help_panel=TRAINING,
            show_default=shown_default(Settings, "step_size"),
            help=f"{help_of(Settings, 'step_size')} A schedule is cosine, linear or exponential from one number to "
            "another: cosine:0.2:0.005.",
        ),
    ] = None
    seed: options.SeedOption = Run.seed
    select: Annotated[Select | None, option_of(Settings, "select", shown=shown_default(Settings, "select"))] = None
    patience: Annotated[int | None, option_of(Settings, "patience", "N")] = None
    tolerance: Annotated[float | None, option_of(Settings, "tolerance", "F")] = None
    device: options.DeviceOption = options.DEVICE
    precision: Annotated[Precision, option_of(Settings, "precision")] = options.PRECISION
    memory_budget: Annotated[str | None, option_of(Settings, "memory_budget", "N|NMB|NGB", "free memory")] = None
    checkpoint: Annotated[Path | None, option_of(Settings, "checkpoint", "FOLDER")] = None
    checkpoint_every: Annotated[str, option_of(Settings, "checkpoint_every", "TIME|N epochs")] = (
        Settings.checkpoint_every
    )
    overwrite: options.OverwriteOption = False

    def settings(self, track: bool = False) -> Settings:
        """The options as a checked record."""
        from circurve.cli.parse import parse_batch_size, parse_bytes, parse_step_size
        from circurve.model import as_device

        return Settings(
            epochs=self.epochs,
            batch_size=parse_batch_size(self.batch_size),
            step_size=None if self.step_size is None else parse_step_size(self.step_size),
            tolerance=self.tolerance,
            patience=self.patience,
            select=None if self.select is None else self.select.value,
            device=as_device(self.device),
            precision=self.precision.value,
            track=track,
            memory_budget=parse_bytes(self.memory_budget),
            checkpoint=self.checkpoint,
            checkpoint_every=self.checkpoint_every,
        )


@dataclass(frozen=True)
class SourceOptions:
    """How a table for training is read."""

    data_dir: options.DataDirOption = None
    missing: options.MissingOption = None
    types: options.TypesOption = None
    unseen: Annotated[
        Unseen,
        typer.Option(
            "--unseen",
            rich_help_panel=DATA,
            help="What to do with a value of a validation or test table that the training table does not contain. "
            "missing: the value counts as missing; impossible: its row has probability zero; error: stop.",
        ),
    ] = Unseen.missing
    header: options.HeaderOption = None
    trust: options.TrustOption = False

    def source(self, data: str, memory_budget: int | None = None) -> Source:
        """Where the data come from; types are checked."""
        from circurve.cli.loading import Source
        from circurve.cli.parse import parse_types

        how: dict[str, Any] = {"unseen": self.unseen.value, "trust": self.trust, "memory_budget": memory_budget}
        return Source(data, self.data_dir, self.header, self.missing, parse_types(self.types), **how)


@dataclass(frozen=True)
class HeldOutOptions:
    """Where validation and test rows come from, as it was typed."""

    valid: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=DATA, help="A table of validation rows.")
    ] = None
    test: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=DATA, help="A table of test rows.")] = (
        None
    )
    split: Annotated[
        str | None,
        typer.Option(
            metavar="F,F,F",
            rich_help_panel=DATA,
            show_default="0.8,0.1,0.1",
            help="Shares of a single table for training, validation and test.",
        ),
    ] = None
    no_split: Annotated[
        bool, typer.Option("--no-split", rich_help_panel=DATA, help="Train on all rows of a single table.")
    ] = False

    def held_out(self) -> HeldOut:
        """The options as a checked record."""
        from circurve.cli.loading import HeldOut
        from circurve.cli.parse import parse_shares

        shares = None if self.split is None else parse_shares(self.split)
        return HeldOut(self.valid, self.test, shares, self.no_split)
