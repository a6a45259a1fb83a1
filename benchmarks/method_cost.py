"""What the methods cost: a training step of each, with its curvature sums, gates and M-step, against plain EM.

python benchmarks/method_cost.py [--device cuda]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import interleaved, medians, ratio_in_turns, write_result
from peers_cpu import sample_data

import circurve as cc
from circurve.engine import Samples, bind_engine, compile, stack
from circurve.engine.cuda.fused import FusedEngine
from circurve.learning.examples import prepare
from circurve.learning.graph_steps import GraphSteps
from circurve.learning.initialize import initial_params
from circurve.learning.plan import Plan
from circurve.learning.steps import Batches, ReferenceSteps, Steps

UNITS, BATCH, STEPS, MU = 100, 200, 5, 0.001
SIZES = {"nltcs": (16181, 16), "plants": (17412, 69)}
METHODS: dict[str, cc.Vanilla | cc.Global | cc.Gated] = {
    "plain EM": cc.Vanilla(),
    "global": cc.Global(MU),
    "gated": cc.Gated(MU),
    "gated, exact simplex": cc.Gated(MU, simplex="exact"),
    "gated, exact penalty": cc.Gated(MU, penalty="exact"),
    "gated, both": cc.Gated(MU, simplex="exact", penalty="exact"),
}


def training(name: str, method: cc.Vanilla | cc.Global | cc.Gated, runs: int, device: str) -> Callable[[], Any]:
    """A function that trains a fleet for some steps, on data of that shape."""
    data = sample_data(*SIZES[name], seed=0)
    circuit = cc.hclt(data, units=UNITS)
    table = prepare(data, circuit, "train").table
    program = compile(circuit)
    params = stack([initial_params(program, seed, table) for seed in range(runs)])
    params = params.to(torch.device(device), torch.float32)
    samples = Samples.of(table, torch.device(device), torch.float32)
    engine = bind_engine(program, params)
    plan = Plan(program, [method] * runs, params.inputs[0])
    steps: Steps
    if isinstance(engine, FusedEngine):
        steps = GraphSteps(engine, plan, samples, params)
    else:
        steps = ReferenceSteps(engine, plan, samples, params, None)
    orders = torch.stack([torch.randperm(len(data))[: STEPS * BATCH] for _ in range(runs)]).to(device)
    batches = Batches(orders, tuple(range(0, STEPS * BATCH + 1, BATCH)))
    return lambda: steps.run(batches, [[0.1] * runs] * STEPS, [[MU] * runs] * STEPS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fleets", type=lambda text: [int(part) for part in text.split(",")], default=[1, 16])
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--name", default="method_cost", help="name of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    rows = []
    for name in SIZES:
        for runs in arguments.fleets:
            sides = {label: training(name, method, runs, arguments.device) for label, method in METHODS.items()}
            times = interleaved(sides, arguments.repeats)
            ratios = {label: ratio_in_turns(values, times["plain EM"]) for label, values in times.items()}
            seconds = {label: value / STEPS for label, value in medians(times).items()}
            rows.append(
                {"data": name, "runs": runs, "batch": BATCH, "units": UNITS, "seconds": seconds, "ratio": ratios}
            )
            print(name, runs, " ".join(f"{label}: {ratio:.2f}" for label, ratio in ratios.items()), flush=True)
    print(f"written to {write_result(arguments.name, rows, arguments.out)}")


if __name__ == "__main__":
    main()
