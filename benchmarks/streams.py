"""Training from the disk compared with training in memory: peak memory, rate, and whether the result is the same.

    python benchmarks/streams.py --rows 2000000

Rows of a random tree of 64 binary variables are written once, as a .npy file that is mapped and as a Parquet file.
Each training runs in a process of its own, so that its peak is its own; the kinds take turns. The rate is that of the
epochs after the first, by the clock, waiting for the disk included, and by CPU time of the process (one thread), which
leaves waiting out and which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

VARIABLES = 64
GROUP = 200_000
KINDS = ("memory", "mapped", "parquet")


def write_data(folder: Path, rows: int) -> None:
    """The same rows as a .npy and a .parquet file, made in pieces."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    parents = [int(rng.integers(v)) for v in range(1, VARIABLES)]
    shape = (rows, VARIABLES)
    array = np.lib.format.open_memmap(folder / "rows.npy", mode="w+", dtype=np.uint8, shape=shape)
    names = [f"c{v}" for v in range(VARIABLES)]
    schema = pa.schema([(name, pa.uint8()) for name in names])
    with parquet.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for start in range(0, rows, GROUP):
            part = np.zeros((min(GROUP, rows - start), VARIABLES), dtype=np.uint8)
            part[:, 0] = rng.random(len(part)) < 0.5
            for v, parent in enumerate(parents, 1):
                part[:, v] = part[:, parent] ^ (rng.random(len(part)) < 0.2)
            array[start : start + len(part)] = part
            writer.write_table(pa.table(list(part.T), schema=schema))
    array.flush()


def train(kind: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One training: structure, then epochs; in a process of its own."""
    import circurve as cc
    from circurve.learning.fingerprint import circuit_digest  # of the nodes, whatever they are called

    data: Any = folder / "rows.parquet"
    if kind != "parquet":
        data = np.load(folder / "rows.npy", mmap_mode="r" if kind == "mapped" else None)
    seconds, cpu = [time.perf_counter()], [time.process_time()]

    def tick(_: Any) -> bool:
        seconds.append(time.perf_counter())
        cpu.append(time.process_time())
        return False

    circuit = cc.hclt(data, options.units)
    tick(None)
    settings = {"epochs": options.epochs, "batch_size": options.batch, "device": "cpu", "progress": False}
    result = cc.fit(circuit, data, valid=False, callbacks=[tick], **settings)
    tick(None)
    rows = options.rows * (options.epochs - 1 or 1)
    first = 2 if options.epochs > 1 else 1  # the first epoch follows the check of all rows
    used = resource.getrusage(resource.RUSAGE_SELF)
    weights = b"".join(w.numpy().tobytes() for w in result.model.params.weights)
    return {
        "kind": kind,
        "structure_seconds": round(seconds[1] - seconds[0], 2),
        "seconds": round(seconds[-1] - seconds[0], 2),
        "rows_per_second": round(rows / (seconds[-2] - seconds[first])),
        "rows_per_cpu_second": round(rows / (cpu[-2] - cpu[first])),
        "peak_gib": round(used.ru_maxrss / 2**20, 3),
        "reads_from_disk": used.ru_majflt,
        "train_ll": result.train_ll,
        "tree": circuit_digest(circuit)[-16:],
        "weights": zlib.crc32(weights),
    }


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The median of each kind, and its rate compared with that in memory, turn by turn."""
    by_kind = {kind: [run for run in found if run["kind"] == kind] for kind in KINDS}
    listed = []
    for runs in by_kind.values():
        first, memory = runs[0], by_kind["memory"]
        sides = {
            f"{rate}_beside_memory": round(
                statistics.median(a[rate] / b[rate] for a, b in zip(runs, memory, strict=True)), 3
            )
            for rate in ("rows_per_second", "rows_per_cpu_second")
        }
        medians = {
            name: statistics.median(run[name] for run in runs)
            for name in ("structure_seconds", "seconds", "rows_per_second", "rows_per_cpu_second")
        }
        listed.append(
            {
                **first,
                **medians,
                **sides,
                "turns": len(runs),
                "peak_gib": max(run["peak_gib"] for run in runs),
                "same_tree_as_in_memory": first["tree"] == memory[0]["tree"],
                "same_bits_as_in_memory": first["weights"] == memory[0]["weights"],
            }
        )
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--units", type=int, default=32)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--name", default="streams")
    parser.add_argument("--out", type=Path, help="the folder of the result file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train(options.child[0], Path(options.child[1]), options)))
        return
    from common import write_result

    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), options.rows)
        found = []
        for _ in range(options.turns):
            for kind in KINDS:
                command = [sys.executable, *sys.argv, "--child", kind, folder]
                alone = {**os.environ, "OMP_NUM_THREADS": "1"}
                done = subprocess.run(command, capture_output=True, text=True, env=alone, check=True)
                found.append(json.loads(done.stdout))
                print(found[-1], flush=True)
    size = {"rows": options.rows, "variables": VARIABLES, "units": options.units, "batch": options.batch}
    print(write_result(options.name, {**size, "epochs": options.epochs, "kinds": summary(found)}, options.out))


if __name__ == "__main__":
    main()
