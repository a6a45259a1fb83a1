"""What a step of a worker costs on a GPU beyond a step of one process, without the network.

    python benchmarks/parallel_gpu.py

NCCL refuses two workers on one GPU, so the group has one worker: it copies its statistics to the buffer, calls the
all-reduce and copies them back as in any group, but nothing travels. Timed in turns on the same batches:

    alone         one process, the step recorded as one CUDA graph
    worker        E-step and M-step recorded as two CUDA graphs, with the all-reduce in between
    not recorded  a worker that launches each kernel

worker / alone is the ratio; the median over the turns counts.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import interleaved, medians, ratio_in_turns, write_result
from gpu_steps import CASES, Case, Load, OurSteps, load_data, say

import circurve as cc
from circurve.engine import choose_backend
from circurve.learning.parallel import ParallelSteps
from circurve.learning.parallel_graph_steps import ParallelGraphSteps

SIDES = {"worker": ParallelGraphSteps, "not recorded": ParallelSteps}
SIZES = (("nltcs", 200), ("nltcs", 4096), ("plants", 200), ("plants", 4096), ("large-256", 4096))


def measure(case: Case, load: Load, device: torch.device, turns: int) -> dict[str, Any]:
    """One size; needs a process group."""
    data = load_data(case, None)
    circuit = cc.hclt(data[:2000], units=case.units)
    runs = {name: OurSteps(circuit, data, device, load) for name in ("alone", *SIDES)}
    for name, kind in SIDES.items():
        steps = runs[name].engine_steps
        params = steps.snapshot()
        backend = choose_backend(steps.plan.program, params, "fused", load.precision)
        runs[name].engine_steps = kind(backend, steps.plan, steps.train, params, None)  # type: ignore[attr-defined]
    times = interleaved(runs, turns)
    steps = runs["alone"].steps
    worker = runs["worker"].engine_steps
    return {
        "batch": load.batch,
        "columns": case.variables,
        "units": case.units,
        "bytes": worker.buffer.numel() * worker.buffer.element_size(),  # type: ignore[attr-defined]
        "seconds_per_step": {name: seconds / steps for name, seconds in medians(times).items()},
        "ratio": {name: ratio_in_turns(times[name], times["alone"]) for name in SIDES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device())
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        rows = []
        for name, batch in SIZES:
            most = 10 if name.startswith("large") else 40
            found = measure(CASES[name], Load(batch, most_steps=most), device, arguments.turns)
            rows.append({"case": name, **found})
            say(str(rows[-1]))
        dist.destroy_process_group()
    say(f"written to {write_result('parallel_gpu', rows, arguments.out)}")


if __name__ == "__main__":
    main()
