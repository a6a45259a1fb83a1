"""Two versions of this library side by side: the same steps in two processes, in turns, and the ratio of their times.

python benchmarks/before_after.py --before ../older/checkout --name before_after_cpu
python benchmarks/before_after.py --before ../older/checkout --device cuda --name before_after_cuda

Each version runs the code of its own benchmarks folder (`EMStep`, `OurSteps`), with its own sources. Only one of the
two processes works at a time. A ratio above 1 means that this version is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent

CPU_CASES: list[dict[str, Any]] = [
    *({"step": "full", "data": data, "units": units} for data in ("nltcs", "plants") for units in (100, 16)),
    {"step": "full", "data": "bbc", "units": 16},
    {"step": "full", "data": "nltcs", "units": 16, "runs": 16},
    {"step": "full", "data": "nltcs", "units": 100, "curvature": True},
    {"step": "full", "data": "plants", "units": 16, "curvature": True},
    *({"step": "batches", "data": "nltcs", "method": method} for method in ("plain", "global", "gated", "exact")),
    {"step": "batches", "data": "plants", "method": "gated"},
    {"step": "batches", "data": "nltcs", "method": "gated", "runs": 16},
    *(
        {"step": "fit", "data": "numbers", "rows": rows, "columns": columns, "units": units, "batch": batch}
        for rows, columns, units in ((2000, 30, 32), (4000, 10, 16))
        for batch in (200, None)
    ),
]
CUDA_CASES: list[dict[str, Any]] = [
    *(
        {"step": "batches", "data": data, "batch": batch, "runs": runs}
        for data in ("nltcs", "plants", "dna", "bbc")
        for batch, runs in ((200, 1), (1600, 1), (200, 64))
        if (data, runs) != ("bbc", 64)
    ),
    {"step": "batches", "data": "bbc", "batch": 200, "runs": 8},
    {"step": "batches", "data": "large-512", "batch": 512},
    *(
        {"step": "batches", "data": data, "batch": 200, "runs": runs, "track": True}
        for data in ("nltcs", "plants")
        for runs in (1, 64)
    ),
    *(
        {"step": "batches", "data": data, "batch": 200, "runs": runs, "method": method}
        for data in ("nltcs", "plants")
        for runs in (1, 16)
        for method in ("global", "gated", "exact")
    ),
]
MU = 0.001


def serve() -> None:
    """The process of one version: a case as JSON, then a line for each repetition; answers with seconds."""
    import time

    import torch

    torch.set_flush_denormal(True)
    step, device = None, torch.device("cpu")
    for line in sys.stdin:
        if line.startswith("{"):
            step = None  # its memory goes first
            case = json.loads(line)
            device = torch.device(case["device"])
            step = prepare(case, device)
            step()
            step()
            print("ready", flush=True)
            continue
        assert step is not None
        start = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        print(time.perf_counter() - start, flush=True)


def prepare(case: dict[str, Any], device: Any) -> Any:
    import circurve as cc

    runs = case.get("runs", 1)
    if case["step"] == "fit":
        import numpy as np

        random = np.random.default_rng(0)
        steps = random.standard_normal((case["rows"], case["columns"]))
        x = steps.cumsum(1) + random.integers(0, 3, (case["rows"], 1))  # neighbouring columns depend on one another
        circuit = cc.hclt(x, units=case["units"])
        return lambda: cc.fit(circuit, x, epochs=20, batch_size=case["batch"], seed=0, progress=False)
    if case["step"] == "full":
        from common import EMStep
        from cpu_em import SHAPES
        from peers_cpu import sample_data

        from circurve.engine import Request

        step = EMStep(sample_data(*SHAPES[case["data"]], seed=0), case["units"], runs=runs)
        request = Request(curvature=True) if case.get("curvature") else None
        return lambda: step(request)
    from gpu_steps import CASES, Load, OurSteps, load_data

    methods = {
        "plain": cc.Vanilla(),
        "global": cc.Global(MU),
        "gated": cc.Gated(MU),
        "exact": cc.Gated(MU, simplex="exact", penalty="exact"),
    }
    batch, method = case.get("batch", 200), case.get("method", "plain")
    load = Load(
        batch, runs, (methods[method],) * runs, mu=0.0 if method == "plain" else MU, track=case.get("track", False)
    )
    data = load_data(CASES[case["data"]], None)
    rows = batch * max(1, min(len(data) // batch, 5 if device.type == "cpu" else 40))
    return OurSteps(cc.hclt(data, units=CASES[case["data"]].units), data[:rows], device, load)


class Version:
    """One checkout's process."""

    def __init__(self, checkout: Path) -> None:
        folders = os.pathsep.join([str(checkout / "src"), str(checkout / "benchmarks")])
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "before_after.py"), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": folders, "PYTHONSAFEPATH": "1"},
        )

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer, "the process has ended"
        return answer


def measure(versions: dict[str, Version], case: dict[str, Any], repeats: int) -> dict[str, Any]:
    for version in versions.values():
        assert version.ask(json.dumps(case)) == "ready"
    times: dict[str, list[float]] = {name: [] for name in versions}
    for turn in range(repeats):
        for name in sorted(versions, reverse=bool(turn % 2)):
            times[name].append(float(versions[name].ask("go")))
    pairs = zip(times["after"], times["before"], strict=True)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    least = min(times["after"]) / min(times["before"])
    return {**case, "seconds": seconds, "ratio": statistics.median(a / b for a, b in pairs), "ratio_of_least": least}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="a checkout of the older version")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--name", default="before_after")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    parser.add_argument("--serve", action="store_true", help="used by the script itself")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    from common import write_result

    versions = {"before": Version(arguments.before.resolve()), "after": Version(HERE.parent)}
    cases = CPU_CASES if arguments.device == "cpu" else CUDA_CASES
    rows = []
    for case in cases:
        rows.append(measure(versions, {**case, "device": arguments.device}, arguments.repeats))
        print(f"{rows[-1]['ratio']:.3f} ({rows[-1]['ratio_of_least']:.3f})", case, flush=True)
    print(f"written to {write_result(arguments.name, rows, arguments.out)}")


if __name__ == "__main__":
    main()
