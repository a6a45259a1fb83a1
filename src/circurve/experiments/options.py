"""What the user asked `circurve reproduce` for: one record, handed to every table and figure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from circurve.errors import OptionError
from circurve.learning.checks import check_at_least_zero, check_choice, check_count
from circurve.learning.methods import as_gate
from circurve.model import as_device

__all__ = ["PROTOCOL_NAMES", "ReproduceOptions"]

PROTOCOL_NAMES = ("paper", "best")


@dataclass(frozen=True)
class ReproduceOptions:
    """The options of a reproduction; None is what the protocol says."""

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
        check_choice("protocol", self.protocol, PROTOCOL_NAMES)
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
