"""What the GPU benchmarks share: cases, and EM steps of a fleet as `fit` does them, timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import PeakMemory, median_seconds, seconds_of
from peers_cpu import sample_data
from pyjuice_peer import PSEUDOCOUNT, STEP_SIZE

import circurve as cc
from circurve.data import Table, prepare
from circurve.engine import Params, choose_backend, compile
from circurve.learning.initialize import initial_params
from circurve.learning.methods import Method
from circurve.learning.plan import Plan
from circurve.learning.steps import Batches, Steps
from circurve.learning.steps_choice import steps_for

MOST_STEPS = 50
"""If an epoch has more steps, only this number of steps is timed, and the others are assumed to take as long."""


@dataclass(frozen=True)
class Case:
    """A data set, as (samples, variables), and the units of its circuit.

    100 is what the paper uses; PyJuice prefers powers of two, so there are cases of 128 too.
    """

    data: str
    samples: int
    variables: int
    units: int


CASES = {
    "nltcs": Case("nltcs", 16181, 16, 100),
    "plants": Case("plants", 17412, 69, 100),
    "dna": Case("dna", 1600, 180, 100),
    "bbc": Case("bbc", 1670, 1058, 128),
    "nltcs-128": Case("nltcs", 16181, 16, 128),
    "plants-128": Case("plants", 17412, 69, 128),
    **{f"large-{units}": Case("synthetic", 60_000, 500, units) for units in (100, 128, 256, 512, 1024)},
}


@dataclass(frozen=True)
class Load:
    """How a circuit is trained: samples in a batch, models side by side."""

    batch: int
    runs: int = 1
    methods: tuple[Method, ...] | None = None
    """One for each run; None is plain EM."""

    mu: float = 0.0
    """The strength of all runs."""

    track: bool = False
    """Measure the curvature in every step."""

    precision: str = "float32"
    memory_budget: int | None = None
    most_steps: int = MOST_STEPS
    """Steps in a call, at most."""


def load_data(case: Case, data_dir: Path | None) -> np.ndarray:  # (N, V) of 0 and 1
    if data_dir is None or case.data == "synthetic":
        return sample_data(case.samples, case.variables, seed=0)
    return np.asarray(cc.load_dataset(case.data, data_dir=data_dir).train, dtype=np.int64)


class OurSteps:
    """EM steps of a fleet as `fit` does them: a call runs `steps` of them, one for each batch of a shuffled epoch.

    All runs start from the same parameters; nothing here depends on them.
    """

    def __init__(self, circuit: cc.Circuit, data: np.ndarray, device: torch.device, load: Load) -> None:
        table = prepare(data, circuit, "train")
        start = initial_params(compile(circuit), 0, table).to(device, torch.float32)
        start = start.map(lambda values: values.repeat(load.runs, 1, 1, 1))
        samples = table.to(device)
        methods = load.methods or (cc.Vanilla(pseudocount=PSEUDOCOUNT),) * load.runs
        self.engine_steps, self.compile_seconds = seconds_of(lambda: our_steps(circuit, start, samples, methods, load))
        self.batches = shuffled_batches(len(data), load, device)
        self.steps, self.mu = len(self.batches), load.mu

    def __call__(self) -> None:
        alphas = [[STEP_SIZE] * self.engine_steps.params.runs] * self.steps
        mus = [[self.mu] * self.engine_steps.params.runs] * self.steps
        self.engine_steps.run(self.batches, alphas, mus)


def our_steps(circuit: cc.Circuit, start: Params, samples: Table, methods: Sequence[Method], load: Load) -> Steps:
    """The steps that `fit` takes."""
    program = compile(circuit)
    plan = Plan(program, methods, start.inputs[0], load.track)
    backend = choose_backend(program, start, "auto", load.precision)
    return steps_for(backend, plan, samples, start, load.memory_budget)


def shuffled_batches(rows: int, load: Load, device: torch.device) -> Batches:
    """The first full batches of a shuffled epoch, at most `load.most_steps`, each run with an order of its own."""
    size = min(load.batch, rows)
    steps = min(rows // size, load.most_steps)
    generator = torch.Generator().manual_seed(0)
    orders = torch.stack([torch.randperm(rows, generator=generator)[: steps * size] for _ in range(load.runs)])
    return Batches(orders.to(device), tuple(range(0, (steps + 1) * size, size)))


def timing(run: Callable[[], Any], steps: int, rows: int, batch: int, budget: float) -> dict[str, Any]:
    """Times of a call that does `steps` steps; its first run compiles kernels and records graphs."""
    _, first = seconds_of(run)
    seconds = median_seconds(run, budget=budget) / steps
    return {
        "seconds_per_step": seconds,
        "seconds_per_epoch": seconds * epoch_steps(rows, batch),
        "first_call_seconds": first,
        "steps_in_a_call": steps,
    }


def epoch_steps(rows: int, batch: int) -> int:
    return -(-rows // min(batch, rows))


def measure_ours(
    circuit: cc.Circuit, data: np.ndarray, device: torch.device, load: Load, budget: float
) -> dict[str, Any]:
    peak = PeakMemory()
    run = OurSteps(circuit, data, device, load)
    row = timing(run, run.steps, len(data), load.batch, budget)
    engine = type(run.engine_steps).__name__
    return row | {"compile_seconds": run.compile_seconds, "peak_bytes": peak.bytes, "engine": engine}


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:400]


def guarded(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A side's row, or the error that kept it from having one."""
    try:
        return measured()
    except Exception as error:
        torch.cuda.empty_cache()
        return {"error": describe(error)}


def say(text: str) -> None:
    print(text, flush=True)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))
