"""A study is data: which data sets, shares of the training rows, methods and seeds are trained by which protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from circurve.data import DEBD
from circurve.data.folders import check_folder, find_datasets
from circurve.errors import OptionError
from circurve.experiments.protocols import Protocol, ReproduceOptions, protocol_for
from circurve.experiments.records import Record
from circurve.learning import Gated, Global, Grid, Method, Vanilla
from circurve.learning.gates import gate_name
from circurve.learning.initialize import Initialization

__all__ = ["DEFAULT_DATASETS", "Setting", "Study", "describe_method", "describe_setting", "describe_use", "make_study"]

DEFAULT_DATASETS = DEBD
"""The paper's 20 data sets, in the order of its tables."""

EMBEDDED = ("digits",)
"""What a first look takes when no folder of data sets is given."""


@dataclass(frozen=True)
class Setting:
    """A method under a label. Settings with one label compete: validation likelihood chooses among them."""

    label: str
    method: Method
    init: Initialization = "random"

    def __post_init__(self) -> None:
        choice = not isinstance(self.method, Vanilla) and isinstance(self.method.mu, Grid | str)
        if choice or (isinstance(self.method, Gated) and isinstance(self.method.gate, str)):
            raise OptionError(
                f"{self.method!r}: a study lists every mu and gate as a setting, it does not leave them to be chosen"
            )


@dataclass(frozen=True)
class Study:
    """Every setting with every seed on every data set and share of its training rows."""

    name: str
    datasets: tuple[str, ...]
    """Names or paths."""

    settings: tuple[Setting, ...]
    protocol: Protocol
    fractions: tuple[float, ...] = (1.0,)
    data_dir: Path | None = None
    device: str = "auto"
    max_runs: int | None = None
    """The most runs of a fleet; None goes by the size of the circuit."""

    def __post_init__(self) -> None:
        for name in ("datasets", "settings", "fractions", "seeds"):
            if not getattr(self, name):
                raise OptionError(f"study {self.name}: {name} must name at least one")
        named = {str(describe_setting(setting)): setting.method for setting in self.settings}
        for setting in self.settings:
            if named[str(describe_setting(setting))] != setting.method:
                raise OptionError(
                    f"study {self.name}: {setting.method!r} stands for two methods; give their functions names"
                )
        for fraction in self.fractions:
            if not 0 < fraction <= 1:
                raise OptionError(f"study {self.name}: fractions must lie in (0, 1], not {fraction!r}")

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every setting."""
        return self.protocol.seeds

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in order, each once."""
        return tuple(dict.fromkeys(setting.label for setting in self.settings))

    @property
    def starts(self) -> tuple[Initialization, ...]:
        """How parameters start, to choose from, in order."""
        return tuple(dict.fromkeys(setting.init for setting in self.settings))

    @property
    def chooses_more_than_mu(self) -> bool:
        """Whether there are several starts, or several pseudocounts of vanilla, to choose from."""
        return len(self.starts) > 1 or len(self.protocol.pseudocounts) > 1


def make_study(
    name: str, options: ReproduceOptions, settings: Sequence[Setting], fractions: Sequence[float] = (1.0,)
) -> Study:
    """A study of these settings with the user's options."""
    data, protocol = chosen_datasets(options), protocol_for(options)
    machine = (options.data_dir, options.device, options.max_runs)
    return Study(name, data, tuple(settings), protocol, tuple(fractions), *machine)


def chosen_datasets(options: ReproduceOptions, preferred: Sequence[str] = DEFAULT_DATASETS) -> tuple[str, ...]:
    """Those that the user names; else the preferred ones, of which a folder need not hold all.

    A folder with none of them is taken whole; a first look without a folder takes the embedded data.
    """
    if options.datasets is not None:
        return tuple(dict.fromkeys(options.datasets))
    if options.data_dir is None:
        return EMBEDDED if options.quick else tuple(preferred)
    there = sorted(find_datasets(check_folder(options.data_dir)))
    found = [name for name in preferred if name in there] or there
    return tuple(found) or tuple(preferred)


def settings_for(label: str, methods: Sequence[Method], protocol: Protocol) -> list[Setting]:
    """Each method from each start of the protocol."""
    return [Setting(label, method, init) for init in protocol.inits for method in methods]


def vanilla_settings(protocol: Protocol) -> list[Setting]:
    """Plain EM, with the pseudocounts of the protocol."""
    return settings_for("vanilla", [Vanilla(count) for count in protocol.pseudocounts], protocol)


def global_settings(protocol: Protocol) -> list[Setting]:
    """The penalty on all nodes, with the strengths of the protocol."""
    return settings_for("global", [Global(mu) for mu in protocol.mus], protocol)


def standard_settings(options: ReproduceOptions) -> list[Setting]:
    """The three columns of the paper's tables: vanilla, global and gated."""
    protocol = protocol_for(options)
    gated = [Gated(mu, gate=gate) for gate in options.gate for mu in protocol.mus]
    return [*vanilla_settings(protocol), *global_settings(protocol), *settings_for("gated", gated, protocol)]


def describe_method(method: Method) -> Record:
    """A method as plain values; None for the options it does not have."""
    names = ("mu", "gate", "estimator", "gate_memory", "simplex", "penalty", "mu_scale", "multiplier", "pseudocount")
    fields = {name: getattr(method, name, None) for name in names}
    fields["gate"] = gate_name(method.gate) if isinstance(method, Gated) else None
    if not isinstance(fields["mu"], int | float | None):
        fields["mu"] = repr(fields["mu"])
    return {"name": type(method).__name__.lower(), **fields}


def describe_setting(setting: Setting) -> Record:
    """The `method` of a record: a method as plain values, and how its parameters start."""
    return {**describe_method(setting.method), "init": setting.init}


def describe_use(study: Study, label: str) -> dict[str, str]:
    """The part of a record that belongs to the study that looks at it; the run itself is the same in all of them."""
    protocol = study.protocol
    return {"study": study.name, "label": label, "protocol": protocol.name, "choose_epoch": protocol.choose_epoch}
