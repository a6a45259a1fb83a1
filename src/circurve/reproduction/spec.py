"""A study is data: what the user asks for, by which protocol it is trained, and its data sets, methods and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from circurve.budget import check_budget
from circurve.data import DEBD
from circurve.data.catalogue import check_folder, find_datasets
from circurve.errors import OptionError
from circurve.learning import Gated, Global, Grid, Method, Vanilla
from circurve.learning.checks import check_at_least_zero, check_choice, check_count
from circurve.learning.gates import gate_name
from circurve.learning.initialize import Initialization
from circurve.learning.methods import as_gate
from circurve.learning.ray_engine import ENGINES, Engine
from circurve.learning.recipe import BEST_EPOCHS, BEST_STEP, SMALL_EPOCHS, SMALL_ROWS, SMOOTHING
from circurve.learning.schedules import cosine
from circurve.model import as_device
from circurve.reproduction.records import Record
from circurve.reproduction.study_data import Probe, Variant
from circurve.structures.hclt import Leaves
from circurve.words import counted

__all__ = [
    "BEST",
    "FAIR",
    "PAPER",
    "PAPER_OWN",
    "PROTOCOLS",
    "RECORD_PROTOCOL",
    "SMOOTHED",
    "Protocol",
    "ReproduceOptions",
    "Setting",
    "Study",
    "make_study",
]

DEFAULT_DATASETS = DEBD
"""The paper's 20 data sets, in the order of its tables."""

EMBEDDED = ("digits",)
"""What a first look takes when no folder of data sets is given."""


@dataclass(frozen=True)
class Protocol:
    """Everything about a training but data, method and seed."""

    name: str
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    mus: tuple[float, ...] = (0.01, 0.05, 0.1, 0.5, 1.0)
    """The strengths of global and gated to choose from."""

    pseudocounts: tuple[float, ...] = (0.0,)
    """The pseudocounts of vanilla to choose from."""

    penalty_pseudocount: float = 0.0
    """The pseudocount of global and gated."""

    leaves: Leaves = "own"
    """Whether a variable without children in the tree has a latent of its own or hangs on its parent's."""

    units: int = 100
    batch_size: int = 200
    step: float | cosine = 0.1
    inits: tuple[Initialization, ...] = ("random",)
    """How parameters start, to choose from."""

    epochs: int = 100
    small_epochs: int = 300
    """The epochs on fewer than `small_rows` training rows: there an epoch has few steps."""

    small_rows: int = SMALL_ROWS
    choose_epoch: Literal["last", "best"] = "last"
    """Whose scores count: the last epoch's, or those of each run's epoch with the best validation log-likelihood."""

    def epochs_for(self, rows: int) -> int:
        """How many epochs to train on this many rows."""
        return self.small_epochs if rows < self.small_rows else self.epochs

    @property
    def step_name(self) -> str:
        """The step size as `circurve fit --step-size` takes it."""
        return f"cosine:{self.step.start:g}:{self.step.end:g}" if isinstance(self.step, cosine) else f"{self.step:g}"

    def in_words(self) -> str:
        """The protocol in one sentence."""
        units, epochs = counted(self.units, "unit"), counted(self.epochs, "epoch")
        if self.small_epochs != self.epochs:
            epochs += f" ({self.small_epochs} on fewer than {self.small_rows:,} training rows)"
        epoch = "the last epoch" if self.choose_epoch == "last" else "each run's best epoch by validation likelihood"
        leaves = "a latent for every variable" if self.leaves == "own" else "leaves that share their parent's latent"
        smoothed = (
            f"a pseudocount of {self.penalty_pseudocount:g} in every method, " if self.penalty_pseudocount else ""
        )
        return (
            f"Protocol {self.name}: {units}, {leaves}, mini-batch EM with batches of {self.batch_size}, "
            f"step size {self.step_name}, {smoothed}{' or '.join(self.inits)} start, {epochs}, "
            f"scores of {epoch}."
        )


PAPER = Protocol("paper", leaves="shared")
"""The paper prints neither batch, step nor epochs; these give its vanilla column. Its structure is PyJuice's."""

PAPER_OWN = replace(PAPER, name="paper-own", leaves="own")
"""The protocol `paper` with a latent for every variable."""

SMOOTHED = replace(PAPER, name="smoothed", pseudocounts=(0.1,), penalty_pseudocount=0.1)
"""The protocol `paper` with every M-step smoothed: no weight falls to the floor."""

BEST = Protocol(
    "best",
    mus=(0.0001, 0.001, 0.01, 0.1, 1.0),
    pseudocounts=(0.0, *SMOOTHING),
    step=BEST_STEP,
    inits=("random", "prototypes"),
    epochs=BEST_EPOCHS,
    small_epochs=SMALL_EPOCHS,
    choose_epoch="best",
)
"""Strengths from a hundredth of the paper's smallest on, by decades; plain EM smoothed, two starts, a falling step; the
epoch is chosen by validation too."""

FAIR = Protocol(
    "fair",
    leaves="shared",
    units=32,
    step=BEST_STEP,
    epochs=60,
    small_epochs=60,
    choose_epoch="best",
)
"""For studies with as many candidates for every method, all of them smoothed and stopped by validation."""

PROTOCOLS = {protocol.name: protocol for protocol in (PAPER, PAPER_OWN, SMOOTHED, BEST, FAIR)}

RECORD_PROTOCOL = "record"
"""The protocol of the leaderboard, which trains ensembles: its numbers are those of `learning.recipe.RECORD`."""


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
    """The most runs to train at once; None decides by the size of the circuit."""

    engine: Engine = "local"
    """"ray" trains fleets as tasks of a Ray cluster; the records are the same."""

    memory_budget: int | None = None
    """Bytes for data, trees, training and curvature, checked before they are allocated; fewer runs at once fit less."""

    def __post_init__(self) -> None:
        check_budget(self.memory_budget)
        check_choice("engine", self.engine, ENGINES)
        check_choice("protocol", self.protocol, (*PROTOCOLS, RECORD_PROTOCOL))
        for name in ("epochs", "units", "max_runs"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), at_least=1)
        for name in ("datasets", "seeds", "mu", "gate"):
            if getattr(self, name) == ():
                raise OptionError(f"{name} must list at least one")
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
    """The most runs of a fleet; None decides by the size of the circuit."""

    variant: Variant | None = None
    """A change of all its data sets."""

    probe: Probe | None = None
    """What is measured on the models beyond their scores: those of each run's best epoch by validation."""

    anatomy: bool = True
    """Whether to measure where the trace of each model is."""

    memory_budget: int | None = None
    """Bytes for data, trees, training and curvature; None: the free memory."""

    def __post_init__(self) -> None:
        for name in ("datasets", "settings", "fractions", "seeds"):
            if not getattr(self, name):
                raise OptionError(f"study {self.name}: {name} must list at least one")
        named = {str(describe_setting(setting)): setting.method for setting in self.settings}
        for setting in self.settings:
            if named[str(describe_setting(setting))] != setting.method:
                raise OptionError(
                    f"study {self.name}: {setting.method!r} is the text of two methods; give their functions names"
                )
        for fraction in self.fractions:
            if not 0 < fraction <= 1:
                raise OptionError(f"study {self.name}: fractions must be above 0 and at most 1, not {fraction!r}")

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
    return Study(name, data, tuple(settings), protocol, tuple(fractions), *machine, memory_budget=options.memory_budget)


def chosen_datasets(options: ReproduceOptions, preferred: Sequence[str] = DEFAULT_DATASETS) -> tuple[str, ...]:
    """Those that the user names, otherwise the preferred ones; a folder need not contain all of these.

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


def standard_settings(options: ReproduceOptions) -> list[Setting]:
    """The three columns of the paper's tables: vanilla, global and gated."""
    protocol = protocol_for(options)
    pseudocount = protocol.penalty_pseudocount
    columns: dict[str, list[Method]] = {
        "vanilla": [Vanilla(pseudocount) for pseudocount in protocol.pseudocounts],
        "global": [Global(mu, pseudocount) for mu in protocol.mus],
        "gated": [Gated(mu, gate=gate, pseudocount=pseudocount) for gate in options.gate for mu in protocol.mus],
    }
    return [setting for label, methods in columns.items() for setting in settings_for(label, methods, protocol)]


def describe_method(method: Method) -> Record:
    """A method as plain values; None for the options it does not have."""
    names = ("mu", "gate", "estimator", "gate_memory", "simplex", "penalty", "mu_scale", "multiplier", "pseudocount")
    fields = {name: getattr(method, name, None) for name in names}
    fields["gate"] = gate_name(method.gate) if isinstance(method, Gated) else None
    if isinstance(method, Gated):  # what older records do not have is named only where it is not the usual one
        fields |= {"ratio_floor": method.ratio_floor} if method.estimator == "clipped" else {}
        fields |= {"gates_from": method.gates_from} if method.gates_from != "batch" else {}
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
