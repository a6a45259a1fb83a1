"""The options of a training, as records that are checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from circurve.errors import OptionError
from circurve.learning.checks import check_at_least_zero, check_choice, check_count, check_step
from circurve.learning.every import parse_every
from circurve.learning.methods import Gated, Global, Method, Vanilla, describe
from circurve.learning.option_texts import option
from circurve.learning.schedules import Schedule
from circurve.names import BACKENDS, INITIALIZATIONS, PRECISIONS

if TYPE_CHECKING:
    import torch

__all__ = ["Run", "Settings", "TrainingOptions"]


def _check_steps(step_size: float | Schedule) -> None:
    """Refuse a step size outside (0, 1]. Of a schedule, the ends are checked now, other values when they are used."""
    for value in (step_size(0.0), step_size(1.0)) if callable(step_size) else (step_size,):
        check_step(value)


@dataclass(frozen=True)
class Run:
    """One member of a fleet: what may differ from run to run.

    Parameters
    ----------
    method : Vanilla, Global or Gated, default Vanilla()
        How sum weights are estimated.
    seed : int, default 0
        Seed of all random numbers.
    step_size : float or schedule, optional
        How far a step goes; None takes that of the fleet.
    label : str, optional
        What messages and tables call the run; None is its number in the fleet.
    init : {"random", "prototypes"}, default "random"
        random: start with random parameters; prototypes: place each unit around a row of the training data.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.Run(cc.Gated(mu=0.1), seed=3, label="gated")
    Run(method=Gated(mu=0.1), seed=3, step_size=None, label='gated', init='random')
    """

    method: Method = field(default_factory=Vanilla)
    seed: int = option(0, "Seed of all random numbers.")
    step_size: float | Schedule | None = None
    label: str | None = None
    """What messages and tables call the run; None is its number in the fleet."""

    init: Literal["random", "prototypes"] = option(
        "random",
        "random: start with random parameters; prototypes: place each unit around a row of the training data.",
    )

    def __post_init__(self) -> None:
        check_count("seed", self.seed, at_least=0)
        object.__setattr__(self, "seed", int(self.seed))
        check_choice("init", self.init, INITIALIZATIONS)
        if not isinstance(self.method, Vanilla | Global | Gated):
            raise OptionError(f"method must be Vanilla(), Global(mu) or Gated(mu), not {self.method!r}")
        if self.step_size is not None:
            _check_steps(self.step_size)

    def name(self, number: int) -> str:
        """What messages call a run.

        Parameters
        ----------
        number : int
            The number of the run in its fleet, from 0.

        Returns
        -------
        str
            Its label, or its number if it has none, with its method and seed.

        Examples
        --------
        >>> cc.Run(cc.Global(mu=0.1)).name(3)
        'run 3 (global, mu 0.1, seed 0)'
        """
        return f"{f'run {number}' if self.label is None else self.label} ({describe(self.method)}, seed {self.seed})"


@dataclass(frozen=True)
class Settings:
    """What all runs of a fleet have in common: the options of training.

    `fit`, `fit_fleet` and the command line take names, defaults and help texts from here.
    """

    epochs: int = option(100, "Passes over the data.", python="Patience and tolerance may stop a run earlier.")
    batch_size: int | None = option(
        200,
        "Rows in each step, or all of them.",
        python="None is full-batch EM. The rows of an epoch are divided evenly into batches, because a last batch of "
        "only a few rows would move the parameters as far as a full one.",
    )
    step_size: float | Schedule | None = option(
        None,
        "Step size alpha: a number above 0 and at most 1, or a schedule over the training.",
        python="None is 0.1 for mini-batches and 1 for the full batch.",
        shown="0.1; 1 for full batches",
    )
    tolerance: float | None = option(None, "Stop when an epoch raises the training log-likelihood by less than this.")
    patience: int | None = option(None, "Stop after this many epochs without a better validation log-likelihood.")
    select: Literal["best", "last"] | None = option(
        None,
        "best: keep the epoch with the best validation log-likelihood; last: keep the last epoch.",
        python='None is "best" with validation data, else "last".',
        shown="best with validation data",
    )
    device: str | torch.device = option(
        "auto", "Where to compute.", python='"auto" uses CUDA if there is a CUDA device.'
    )
    precision: Literal["float32", "float64", "tf32"] = option(
        "float32",
        "Precision of the computation; tf32 is for GPUs.",
        python="tf32 lets the tensor cores of a GPU round the factors of products to 10 bits; sums stay float32.",
    )
    backend: Literal["auto", "reference", "tree", "fused"] = option(
        "auto",
        "Which backend computes.",
        python='"reference" is plain torch, "fused" is the CUDA kernels, "auto" selects the fastest that can '
        "compute the circuit.",
    )
    memory_budget: int | None = option(
        None,
        "Memory limit for parameters, data, shuffles and buffers.",
        python="In bytes; checked before memory is allocated. None is the free memory, and a share of it for buffers.",
        shown="free memory",
    )
    track: bool = option(False, "Measure sharpness and gates in every epoch.")
    checkpoint: str | PathLike[str] | None = option(
        None,
        "A folder for checkpoints. The same call again continues from the last checkpoint.",
        python="On the same device with as many threads, the result equals bit by bit that of a training without a "
        "break. If the training is finished, the result is returned at once. A checkpoint of another training is an "
        "error.",
    )
    checkpoint_every: str = option(
        "5min",
        "How often to write a checkpoint: a time (30s, 5min, 2h; between two steps if an epoch takes longer) or a "
        "number of epochs (10 epochs).",
        python='The result of a finished training is written too, unless you store it elsewhere and say "5min, '
        'unfinished".',
    )

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs, at_least=0)
        for name in ("batch_size", "patience", "memory_budget"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), at_least=1)
        if self.tolerance is not None:
            check_at_least_zero("tolerance", self.tolerance)
        if self.select is not None:
            check_choice("select", self.select, ("best", "last"))
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("backend", self.backend, BACKENDS)
        _check_steps(self.step)
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | PathLike):
            raise OptionError(f"checkpoint must be the path of a folder, not {self.checkpoint!r}")
        parse_every(self.checkpoint_every)

    @classmethod
    def of(cls, options: TrainingOptions) -> Settings:
        """The record of options that were given by name."""
        return cls(**options)

    def options(self) -> TrainingOptions:
        """The settings as keywords, for `fit` and `fit_fleet`."""
        return cast("TrainingOptions", {own.name: getattr(self, own.name) for own in fields(self)})

    def part(self, name: str) -> Settings:
        """The options for one of several trainings, with its own folder of checkpoints."""
        return self if self.checkpoint is None else replace(self, checkpoint=Path(self.checkpoint) / name)

    @property
    def dtype(self) -> torch.dtype:
        """The type of all floating numbers of the training."""
        import torch  # noqa: PLC0415 - it takes a second, and help texts do not need it

        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def step(self) -> float | Schedule:
        """The step size in force."""
        return self.step_size if self.step_size is not None else 0.1 if self.batch_size is not None else 1.0


class TrainingOptions(TypedDict, total=False):
    """The fields of `Settings` as keywords: `**options: Unpack[TrainingOptions]`."""

    epochs: int
    batch_size: int | None
    step_size: float | Schedule | None
    tolerance: float | None
    patience: int | None
    select: Literal["best", "last"] | None
    device: str | torch.device
    precision: Literal["float32", "float64", "tf32"]
    backend: Literal["auto", "reference", "tree", "fused"]
    memory_budget: int | None
    track: bool
    checkpoint: str | PathLike[str] | None
    checkpoint_every: str
