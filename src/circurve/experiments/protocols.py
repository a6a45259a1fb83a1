"""How a study is trained and how its strengths and epochs are chosen: the paper's way, the best we know, and what the
user changes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from circurve.errors import OptionError
from circurve.learning.checks import check_at_least_zero, check_choice, check_count
from circurve.learning.initialize import Initialization
from circurve.learning.methods import as_gate
from circurve.learning.schedules import cosine
from circurve.model import as_device

__all__ = ["BEST", "PAPER", "PROTOCOLS", "Protocol", "ReproduceOptions", "protocol_for"]


@dataclass(frozen=True)
class Protocol:
    """Everything about a training but data, method and seed."""

    name: str
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    mus: tuple[float, ...] = (0.01, 0.05, 0.1, 0.5, 1.0)
    """The strengths of global and gated to choose from."""

    pseudocounts: tuple[float, ...] = (0.0,)
    """Of vanilla, to choose from; global and gated have none."""

    units: int = 100
    batch_size: int = 200
    step: float | cosine = 0.1
    inits: tuple[Initialization, ...] = ("random",)
    """How parameters start, to choose from."""

    epochs: int = 100
    small_epochs: int = 300
    """The epochs on fewer than `small_rows` training rows: there an epoch has few steps."""

    small_rows: int = 5000
    choose_epoch: Literal["last", "best"] = "last"
    """Whose scores count: the last epoch's, or those of each run's epoch with the best validation log-likelihood."""

    def epochs_for(self, rows: int) -> int:
        """How long to train on so many rows."""
        return self.small_epochs if rows < self.small_rows else self.epochs

    @property
    def step_name(self) -> str:
        """The step size as `circurve fit --step-size` takes it."""
        return f"cosine:{self.step.start:g}:{self.step.end:g}" if isinstance(self.step, cosine) else f"{self.step:g}"

    def in_words(self) -> str:
        """The protocol in one sentence."""
        epochs = f"{self.epochs} epochs"
        if self.small_epochs != self.epochs:
            epochs += f" ({self.small_epochs} on fewer than {self.small_rows:,} training rows)"
        epoch = "the last epoch" if self.choose_epoch == "last" else "each run's best epoch by validation likelihood"
        return (
            f"Protocol {self.name}: {self.units} units, mini-batch EM with batches of {self.batch_size}, "
            f"step size {self.step_name}, {' or '.join(self.inits)} start, {epochs}, "
            f"scores of {epoch}."
        )


PAPER = Protocol("paper")
"""The paper prints neither batch, step nor epochs; these give its vanilla column."""

BEST = Protocol(
    "best",
    mus=(0.0001, 0.001, 0.01, 0.1, 1.0),
    pseudocounts=(0.0, 0.003, 0.01, 0.03),
    step=cosine(0.2, 0.005),
    inits=("random", "prototypes"),
    epochs=150,
    small_epochs=100,
    choose_epoch="best",
)
"""Strengths from a hundredth of the paper's smallest on, by decades; plain EM smoothed, two starts, a falling step; the
epoch is chosen by validation too."""

PROTOCOLS = {protocol.name: protocol for protocol in (PAPER, BEST)}


@dataclass(frozen=True)
class ReproduceOptions:
    """What the user asks for, handed to every table and figure; None is what the protocol says."""

    protocol: str = "paper"
    datasets: tuple[str, ...] | None = None
    """Names or paths; None is what the table or figure shows, as far as it is at hand."""

    seeds: tuple[int, ...] | None = None
    epochs: int | None = None
    mu: tuple[float, ...] | None = None
    """The grid of strengths to choose from by validation likelihood."""

    gate: tuple[str, ...] = ("max_norm",)
    """The gates of the gated method; of several the best is chosen by validation likelihood."""

    data_dir: Path | None = None
    out: Path = Path("reproduction")
    device: str = "auto"
    units: int | None = None
    quick: bool = False
    """A first look: few units, epochs, seeds and strengths."""

    max_runs: int | None = None
    """The most runs to train at once; None goes by the size of the circuit."""

    def __post_init__(self) -> None:
        check_choice("protocol", self.protocol, tuple(PROTOCOLS))
        for name in ("epochs", "units", "max_runs"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), at_least=1)
        for name in ("datasets", "seeds", "mu", "gate"):
            if getattr(self, name) == ():
                raise OptionError(f"{name} must name at least one")
        for seed in self.seeds or ():
            check_count("seeds", seed, at_least=0)
        for mu in self.mu or ():
            check_at_least_zero("mu", mu)
        for gate in self.gate:
            as_gate(gate)
        as_device(self.device)


QUICK_UNITS, QUICK_EPOCHS, QUICK_SMALL_EPOCHS, QUICK_SEEDS, QUICK_MUS = 16, 10, 60, (0, 1), (0.001, 0.01, 0.1, 1.0)


def protocol_for(options: ReproduceOptions) -> Protocol:
    """The protocol with the changes that the options ask for."""
    protocol = PROTOCOLS[options.protocol]
    if options.quick:
        protocol = replace(
            protocol,
            seeds=QUICK_SEEDS,
            mus=tuple(mu for mu in protocol.mus if mu in QUICK_MUS),
            pseudocounts=protocol.pseudocounts[:2],
            inits=protocol.inits[:1],
            units=QUICK_UNITS,
            epochs=QUICK_EPOCHS,
            small_epochs=QUICK_SMALL_EPOCHS,
        )
    changes = {"seeds": options.seeds, "mus": options.mu, "units": options.units}
    changes |= {"epochs": options.epochs, "small_epochs": options.epochs}
    return replace(protocol, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]
