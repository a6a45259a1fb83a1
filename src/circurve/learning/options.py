"""The options of a training, as records that are checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch

from circurve.engine import Backend
from circurve.errors import OptionError
from circurve.learning.checks import check_at_least_zero, check_choice, check_count, is_number
from circurve.learning.initialize import INITIALIZATIONS, Initialization
from circurve.learning.methods import Gated, Global, Method, Vanilla, describe
from circurve.learning.schedules import Schedule, constant

__all__ = ["PRECISIONS", "Run", "Settings", "as_schedule"]

PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "tf32": torch.float32}


def as_schedule(value: float | Schedule, name: str = "step_size") -> Schedule:
    """A number or a function as a schedule; its values must lie in (0, 1], at the ends now, elsewhere in due course."""
    schedule = value if callable(value) else constant(value)

    def checked(progress: float) -> float:
        at = schedule(progress)
        if not is_number(at) or not 0 < at <= 1:
            raise OptionError(f"{name} must lie in (0, 1], not {at!r}")
        return at

    for progress in (0.0, 1.0):
        checked(progress)
    return checked


@dataclass(frozen=True)
class Run:
    """One member of a fleet: what may differ from run to run. `step_size=None` takes the fleet's."""

    method: Method = field(default_factory=Vanilla)
    seed: int = 0
    step_size: float | Schedule | None = None
    label: str | None = None
    init: Initialization = "random"
    """How parameters start: "random", or "prototypes", where the units of all inputs start around rows of the data."""

    def __post_init__(self) -> None:
        check_count("seed", self.seed, at_least=0)
        object.__setattr__(self, "seed", int(self.seed))
        check_choice("init", self.init, INITIALIZATIONS)
        if not isinstance(self.method, Vanilla | Global | Gated):
            raise OptionError(f"method must be Vanilla(), Global(mu) or Gated(mu), not {self.method!r}")
        if self.step_size is not None:
            as_schedule(self.step_size)

    def name(self, number: int) -> str:
        """What messages call a run: `run 3 (global, mu 0.1, seed 0)`, or its label in place of the number."""
        return f"{f'run {number}' if self.label is None else self.label} ({describe(self.method)}, seed {self.seed})"


@dataclass(frozen=True)
class Settings:
    """What all runs of a fleet have in common."""

    epochs: int = 100
    batch_size: int | None = 200
    """The most samples in a mini-batch; None is full-batch EM. An epoch's rows are shared out evenly among its batches:
    a last batch of a few rows would move the parameters as far as a whole one does, and undo much of the epoch."""

    step_size: float | Schedule | None = None
    """alpha; None is 0.1 for mini-batches and 1 for the full batch."""

    tolerance: float | None = None
    """Stop a run when an epoch raises its training log-likelihood by less than this."""

    patience: int | None = None
    """Stop a run when its validation log-likelihood has not risen for so many epochs."""

    select: Literal["best", "last"] | None = None
    """Which epoch's parameters to return; None is "best" with validation data, else "last"."""

    device: str | torch.device = "auto"
    precision: Literal["float32", "float64", "tf32"] = "float32"
    """tf32 lets the tensor cores of a GPU round the factors of products to 10 bits; sums stay float32."""

    backend: Backend = "auto"
    """"reference" is plain torch; "fused" insists on the CUDA kernels; "auto" takes them where they serve."""

    memory_budget: int | None = None
    """Bytes for buffers; None is a share of what is free."""

    track: bool = False
    """Measure sharpness and gates in every epoch, for the history."""

    def __post_init__(self) -> None:
        check_count("epochs", self.epochs, at_least=0)
        for name in ("batch_size", "patience", "memory_budget"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), at_least=1)
        if self.tolerance is not None:
            check_at_least_zero("tolerance", self.tolerance)
        if self.select is not None:
            check_choice("select", self.select, ("best", "last"))
        check_choice("precision", self.precision, tuple(PRECISIONS))
        check_choice("backend", self.backend, ("auto", "reference", "fused"))
        as_schedule(self.step)

    @property
    def step(self) -> float | Schedule:
        """The step size in force."""
        return self.step_size if self.step_size is not None else 0.1 if self.batch_size is not None else 1.0
