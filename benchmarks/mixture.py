"""A mixture of latent trees against its members one by one: log-likelihoods, E-steps and training steps, in turns.

    python benchmarks/mixture.py [--device cuda] [--data-dir DIR] [--reference]

"same": all members have one tree, as the runs of a fleet; "bootstrap": the tree of each comes from rows drawn with
replacement. `mixture_over_members` is the time of the mixture over the sum of the times of its members.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import interleaved, medians, ratio_in_turns, write_result
from gpu_steps import CASES, Load, OurSteps, load_data, numbers

import circurve as cc
from circurve.data import prepare
from circurve.engine import Batch, Reference, Request, choose_backend, chunks
from circurve.engine.memory import chunk_size
from circurve.learning import mix

MEMBERS, MIXTURE, REFERENCE = "members", "mixture", "reference"


def circuits_of(data: np.ndarray, members: int, units: int, trees: str) -> list[cc.Circuit]:
    rng = np.random.default_rng(0)
    rows = [data if trees == "same" else data[rng.integers(0, len(data), len(data))] for _ in range(members)]
    return [cc.hclt(drawn, units, cc.Bernoulli()) for drawn in rows]


def start_models(circuits: Sequence[cc.Circuit], data: np.ndarray, device: str) -> list[cc.Model]:
    rows = data[:200]
    return [
        cc.fit(circuit, rows, epochs=0, seed=seed, device=device, progress=False).model
        for seed, circuit in enumerate(circuits)
    ]


def e_step(model: cc.Model, data: np.ndarray, request: Request, reference: bool = False) -> Callable[[], None]:
    """A function that adds up the statistics of all rows."""
    backend = Reference.of(model.program, model.params) if reference else choose_backend(model.program, model.params)
    table = prepare(data, model.circuit, "data").to(model.device)
    size = chunk_size(backend, backward=True)
    whole = Batch.rows(table, 0, len(table), model.dtype) if size >= len(table) else None

    def run() -> None:
        batches = chunks(table, size, model.dtype) if whole is None else [whole]
        backend.statistics(model.params, batches, request)

    return run


def training_steps(model: cc.Model, data: np.ndarray, batch: int, arguments: argparse.Namespace) -> OurSteps:
    """A few EM steps as `fit` does them, M-step included."""
    return OurSteps(model.circuit, data[: arguments.steps * batch], torch.device(arguments.device), Load(batch))


def one_by_one(runs: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    def run() -> None:
        for each in runs:
            each()

    return run


def tasks(
    models: Sequence[cc.Model], mixture: cc.Model, data: np.ndarray, arguments: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    """Each task by name: the members one by one, the mixture, and the mixture on the reference backend if asked for.

    Each is made when its turn comes, so that the buffers of the last one are free.
    """

    def sides(make: Callable[[cc.Model], Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
        return {MEMBERS: one_by_one([make(model) for model in models]), MIXTURE: make(mixture)}

    scores = sides(lambda model: lambda: model.log_prob(data))
    if arguments.reference:
        scores[REFERENCE] = lambda: mixture.log_prob(data, backend="reference")
    yield "log_prob", scores
    steps = sides(lambda model: e_step(model, data, Request()))
    if arguments.reference:
        steps[REFERENCE] = e_step(mixture, data, Request(), reference=True)
    yield "e_step", steps
    del steps
    yield "e_step_with_curvature", sides(lambda model: e_step(model, data, Request(curvature=True)))
    for batch in arguments.batches:
        yield (
            f"steps_of_{batch}",
            sides(partial(training_steps, data=data, batch=batch, arguments=arguments)),
        )


def measure(name: str, units: int, trees: str, arguments: argparse.Namespace) -> dict[str, Any]:
    data = load_data(CASES[name], arguments.data_dir)[: arguments.rows]
    circuits = circuits_of(data, arguments.members, units, trees)
    models = start_models(circuits, data, arguments.device)
    mixture = mix(models)
    found: dict[str, Any] = {"data": name, "units": units, "trees": trees, "members": arguments.members}
    found["layers"] = {"member": len(models[0].program.layers), "mixture": len(mixture.program.layers)}
    found["backend"] = mixture.backend.describe().splitlines()[0]
    for task, sides in tasks(models, mixture, data, arguments):
        times = interleaved(sides, arguments.repeats)
        found[task] = {"seconds": medians(times)}
        found[task]["mixture_over_members"] = ratio_in_turns(times[MIXTURE], times[MEMBERS])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-dir", type=Path, help="a folder with the DEBD files; else random data")
    parser.add_argument("--only", default="nltcs,plants")
    parser.add_argument("--rows", type=int, help="use only this many rows of each data set")
    parser.add_argument("--units", type=numbers, default=(16, 32))
    parser.add_argument("--trees", default="same,bootstrap")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--batches", type=numbers, default=(200, 2048), help="sizes of mini-batches")
    parser.add_argument("--steps", type=int, default=5, help="training steps in a call, at most")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--reference", action="store_true", help="also the mixture on the reference backend")
    parser.add_argument("--name", default="mixture", help="name of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    rows = []
    for name in arguments.only.split(","):
        for units in arguments.units:
            for trees in arguments.trees.split(","):
                rows.append(measure(name, units, trees, arguments))
                parts = {task: part for task, part in rows[-1].items() if isinstance(part, dict) and "seconds" in part}
                print(name, units, trees, rows[-1]["backend"], rows[-1]["layers"], flush=True)
                for task, part in parts.items():
                    seconds = " ".join(f"{side} {value:.3f} s" for side, value in part["seconds"].items())
                    print(f"  {task}: {part['mixture_over_members']:.2f} ({seconds})", flush=True)
                written = write_result(arguments.name, rows, arguments.out)
    print(f"written to {written}")


if __name__ == "__main__":
    main()
