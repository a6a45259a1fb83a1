"""EM on a GPU: seconds of a step and of an epoch, memory and time to compile, of Circurve and of PyJuice.

    python benchmarks/gpu_em.py --pyjuice wheels --data-dir DIR
    python benchmarks/gpu_em.py --only nltcs,plants --batches 200 --fleets 1,16 --budget 600
    python benchmarks/gpu_em.py --only large-256,large-512 --fleets 1 --precision float32,tf32 --pyjuice wheels:CHECKOUT

Both have the same circuit (`circurve.hclt`, handed over by `to_pyjuice`) and the same data, and go over the same
batches with the same step size and pseudocount. PyJuice trains one model at a time, so its time for a fleet is that for
one model times the number of models. Before the clock starts, likelihoods and counts of both are compared with float64
on the same parameters. `curvature_in_turns` is the time of our step if it also measures the curvature, over that of the
plain one. `kernels` counts the launches of PyJuice's sum layers that use its CUDA kernels (see pyjuice_peer.py).
Without --data-dir the data are random, of the same shapes; without --pyjuice only Circurve runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyjuice_peer
import torch
from common import PeakMemory, interleaved, medians, seconds_of, write_result
from gpu_steps import (
    CASES,
    MOST_STEPS,
    Load,
    OurSteps,
    describe,
    guarded,
    load_data,
    measure_ours,
    numbers,
    say,
    shuffled_batches,
    timing,
)
from torch import Tensor

import circurve as cc
from circurve.data import prepare
from circurve.engine import Batch, Params, by_node, compile
from circurve.engine.memory import free_memory
from circurve.interop import from_pyjuice, to_pyjuice
from circurve.learning.initialize import initial_params

SIDES = ("plain", "curvature")
PRECISIONS = ("float32", "tf32")

BUILDS = 3
"""How often the pair that is measured in turns is made again: the place of its memory makes a difference, too."""

SHARE_OF_TWO = 0.3
"""The share of free memory for each of two that are measured in turns."""

CHECKED = 512
"""Samples on which likelihoods and counts are compared."""

COUNTS_CHECKED = 100_000_000
"""Of larger circuits every second, third, ... sum is compared, so that about this number of counts is."""


def our_sums(model: cc.Model, x: np.ndarray, every: int = 1) -> tuple[np.ndarray, list[np.ndarray]]:
    """Log-likelihoods (N,) and the counts (units, child units) of each sum (or every n-th), children first."""
    table = prepare(x, model.circuit, "check").to(model.device)
    sums = model.backend.statistics(model.params, [Batch.rows(table, 0, len(table), model.dtype)])
    counts = by_node(model.program, Params(sums.counts, model.params.inputs))
    values: np.ndarray = model.log_prob(x)
    return values, [counts[node].double().cpu().numpy() for node in model.circuit.sums[::every]]


def curvature_in_turns(
    circuit: cc.Circuit, data: np.ndarray, device: torch.device, load: Load, budget: float
) -> dict[str, Any]:
    """The time of steps that also measure the curvature over that of plain ones, measured in turns.

    Both have the same memory, whichever was made first. The median of several pairs, and all of them.
    """
    load = replace(load, memory_budget=int(SHARE_OF_TWO * free_memory(device)))
    pairs = [_ratio_of_pair(circuit, data, device, load, budget / BUILDS) for _ in range(BUILDS)]
    return {"curvature_in_turns": statistics.median(pairs), "curvature_pairs": pairs}


def _ratio_of_pair(circuit: cc.Circuit, data: np.ndarray, device: torch.device, load: Load, budget: float) -> float:
    sides = {name: OurSteps(circuit, data, device, replace(load, track=name == "curvature")) for name in SIDES}
    _, once = seconds_of(lambda: [run() for run in sides.values()])
    _, once = seconds_of(lambda: [run() for run in sides.values()])  # the first time compiled kernels
    found = medians(interleaved(sides, repeats=max(3, min(25, int(budget / once)))))
    return found["curvature"] / found["plain"]


class PyJuice:
    """PyJuice with a model of ours: first compared with it, then trained."""

    def __init__(self, model: cc.Model, data: np.ndarray) -> None:
        self.peak = PeakMemory()
        self.data = torch.from_numpy(data).to(model.device, torch.uint8)
        self.peer = pyjuice_peer.Peer(to_pyjuice(model), model.device)
        self.agreement = compare(model, self.peer, data[:CHECKED])

    def measure(self, load: Load, budget: float) -> dict[str, Any]:
        """Without and with its CUDA graph."""
        found: dict[str, Any] = {"compile_seconds": self.peer.compile_seconds, "agreement": self.agreement}
        rows = [part[0] for part in shuffled_batches(len(self.data), load, self.data.device) if part is not None]
        for name, graph in (("plain", False), ("graph", True)):
            self.peer.forget()
            self.peak.restart()
            run = partial(self._steps, rows, graph)
            found[name] = guarded(partial(timing, run, len(rows), len(self.data), load.batch, budget))
            found[name]["peak_bytes"] = self.peak.bytes
        return found | {"kernels": self.peer.kernels(load.batch)}

    def _steps(self, batches: Sequence[Tensor], graph: bool) -> None:
        for rows in batches:
            self.peer.step(self.data[rows], graph)


def compare(model: cc.Model, peer: pyjuice_peer.Peer, x: np.ndarray) -> dict[str, float]:
    """The largest differences from float64 on the same parameters: ours, and PyJuice's, float32 and as it comes.

    Log-likelihoods: |a - b| / |b|. Counts: |a - b| over the largest count of the same sum node.
    """
    values = torch.from_numpy(x).to(model.device, torch.uint8)
    every = 1 + sum(node.units * node.child_units for node in model.circuit.sums) // COUNTS_CHECKED
    exact, exact_counts = our_sums(model.to(dtype=torch.float64), x, every)
    sides = {
        "ours": partial(our_sums, model, x, every),
        "float32": partial(peer.sums, values, fp32=True, every=every),
        "default": partial(peer.sums, values, fp32=False, every=every),
    }
    found: dict[str, float] = {}
    for name, side in sides.items():
        likelihoods, counts = side()
        found[f"log_likelihood_{name}"] = float(np.abs((likelihoods - exact) / exact).max())
        pairs = zip(counts, exact_counts, strict=True)
        found[f"counts_{name}"] = max(float(np.abs(a - b).max() / b.max()) for a, b in pairs)
    return found


def import_check(data: np.ndarray, units: int, device: torch.device) -> dict[str, Any]:
    """PyJuice's own HCLT, compiled, trained for a few steps and imported: the same likelihoods and counts?"""
    peer = pyjuice_peer.Peer(pyjuice_peer.hclt(data, units, device), device)
    values = torch.from_numpy(data[:CHECKED]).to(device, torch.uint8)
    for _ in range(3):
        peer.step(values, graph=False)
    model = from_pyjuice(peer.circuit).to(device, torch.float32)
    return {"units": units, "circuit": repr(model.circuit), **compare(model, peer, data[:CHECKED])}


# --- the table ---


@dataclass(frozen=True)
class Settings:
    """What the command line asks for."""

    cases: tuple[str, ...]
    batches: tuple[int, ...]
    fleets: tuple[int, ...]
    data_dir: Path | None
    device: torch.device
    precisions: tuple[str, ...]
    leaves: str
    steps: int
    seconds: float
    curvature: bool
    peer: bool
    deadline: float

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.deadline


def rows_of(name: str, settings: Settings) -> Iterator[dict[str, Any]]:
    """All configurations of one case: PyJuice first, whose memory is then free again for our fleets."""
    case = CASES[name]
    data = load_data(case, settings.data_dir)
    circuit, structure_seconds = seconds_of(lambda: cc.hclt(data, case.units, leaves=settings.leaves))
    peers = peer_rows(name, circuit, data, settings)
    sizes = {"samples": len(data), "variables": data.shape[1], "units": case.units, "leaves": settings.leaves}
    for load in loads_of(settings, len(data)):
        if settings.late and load.batch not in peers:  # what was measured of PyJuice is compared
            return
        say(f"{name} batch {load.batch} runs {load.runs} {load.precision}: Circurve")
        given = (circuit, data, settings.device, load, settings.seconds)
        ours = guarded(partial(measure_ours, *given))
        curvature = guarded(partial(curvature_in_turns, *given)) if settings.curvature else {}
        peer = peers.get(load.batch, {"error": "not measured"})
        row = {"case": name, **sizes, **asdict(load), "structure_seconds": structure_seconds}
        row |= {"curvature_error": curvature["error"]} if "error" in curvature else curvature
        yield row | {"ours": ours, "pyjuice": peer, "times_slower": ratios(ours, peer, load.runs)}


def loads_of(settings: Settings, samples: int) -> list[Load]:
    """Batch sizes, sizes of fleets and precisions, each with each; no batch is larger than the data."""
    sizes = [min(batch, samples) for batch in settings.batches]
    every = product(dict.fromkeys(sizes), settings.fleets, settings.precisions)
    return [Load(batch, runs, precision=kind, most_steps=settings.steps) for batch, runs, kind in every]


def peer_rows(name: str, circuit: cc.Circuit, data: np.ndarray, settings: Settings) -> dict[int, dict[str, Any]]:
    """What PyJuice needs for each batch size; nothing if it is not asked for."""
    if not settings.peer or settings.late:
        return {}
    say(f"{name}: PyJuice compiles")
    loads = {load.batch: replace(load, runs=1) for load in loads_of(settings, len(data))}
    try:
        side = PyJuice(start_model(circuit, data, settings.device), data)
    except Exception as error:
        return {batch: {"error": describe(error)} for batch in loads}
    found = {}
    for batch, load in loads.items():
        if not settings.late:
            say(f"{name} batch {batch}: PyJuice")
            found[batch] = guarded(partial(side.measure, load, settings.seconds))
            say(f"  {found[batch]}")
    return found


def start_model(circuit: cc.Circuit, data: np.ndarray, device: torch.device) -> cc.Model:
    program = compile(circuit)
    params = initial_params(program, 0, prepare(data, circuit, "train"))
    return cc.Model(circuit, params.to(device, torch.float32), program)


def ratios(ours: dict[str, Any], peer: dict[str, Any], runs: int) -> dict[str, float]:
    """Seconds of PyJuice, one model after the other, over those of Circurve; only where both have some."""
    if "error" in ours:
        return {}
    sides = {name: peer.get(name, {}).get("seconds_per_step") for name in ("plain", "graph")}
    return {name: value * runs / ours["seconds_per_step"] for name, value in sides.items() if value is not None}


def precisions(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(PRECISIONS):
        raise argparse.ArgumentTypeError(f"must be {' or '.join(PRECISIONS)}, or both with a comma, not {text!r}")
    return names


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CASES), help=f"cases, of {', '.join(CASES)}")
    parser.add_argument("--batches", type=numbers, default=(200, 512, 4096))
    parser.add_argument("--fleets", type=numbers, default=(1, 16, 64))
    parser.add_argument("--data-dir", type=Path, help="a folder with the DEBD files; else random data")
    parser.add_argument("--pyjuice", help=f"checkout or wheels of PyJuice and what it needs, with {os.pathsep} between")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", type=precisions, default=(PRECISIONS[0],), help="float32, tf32 or float32,tf32")
    parser.add_argument("--leaves", default="own", choices=("own", "shared"), help="of the hidden Chow-Liu tree")
    parser.add_argument("--steps", type=int, default=MOST_STEPS, help="EM steps in a call, at most")
    parser.add_argument("--no-curvature", action="store_true", help="leave out steps that measure the curvature")
    parser.add_argument("--no-import-check", action="store_true", help="leave out PyJuice's own circuit, imported")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for the repeats of one side")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which nothing new is started")
    parser.add_argument("--quick", action="store_true", help="nltcs, one batch size, fleets of 1 and 16")
    parser.add_argument("--name", default="gpu_em", help="name of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    return parser.parse_args()


def settings_of(arguments: argparse.Namespace, peer: bool) -> Settings:
    device = torch.device(arguments.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return Settings(
        cases=("nltcs",) if arguments.quick else tuple(arguments.only.split(",")),
        batches=(512,) if arguments.quick else arguments.batches,
        fleets=(1, 16) if arguments.quick else arguments.fleets,
        data_dir=arguments.data_dir,
        device=device,
        precisions=arguments.precision,
        leaves=arguments.leaves,
        steps=arguments.steps,
        seconds=arguments.seconds,
        curvature=not arguments.no_curvature,
        peer=peer,
        deadline=time.perf_counter() + arguments.budget,
    )


def main() -> None:
    arguments = parse_arguments()
    used: dict[str, Any] = {}
    if arguments.pyjuice:
        places = [Path(place) for place in arguments.pyjuice.split(os.pathsep)]
        used = guarded(partial(pyjuice_peer.make_importable, places))
        say(f"PyJuice: {used}")
    settings = settings_of(arguments, peer=bool(used) and "error" not in used)
    results: dict[str, Any] = {"pyjuice": used, "rows": []}
    if settings.peer and not arguments.no_import_check:
        data = load_data(CASES["nltcs"], settings.data_dir)
        results["import_check"] = [guarded(partial(import_check, data, k, settings.device)) for k in (64, 100)]
        say(f"import check: {results['import_check']}")
    for name in settings.cases:
        for row in rows_of(name, settings):
            results["rows"].append(row)
            say(
                f"  {row['ours']}\n  times slower {row['times_slower']}, with curvature {row.get('curvature_in_turns')}"
            )
            if settings.peer:
                used["extensions"] = pyjuice_peer.extensions()
            write_result(arguments.name, results, arguments.out)
    path = write_result(arguments.name, results, arguments.out)
    say(f"written to {path}" + ("; out of time before the end" if settings.late else ""))


if __name__ == "__main__":
    main()
