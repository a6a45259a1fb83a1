"""What happens on the host before and between the steps of an epoch: the tree, the order of the rows, reading them.

    python benchmarks/host_cost.py

CPU seconds of this process with one thread, the median of `--turns` turns:

    tree    chow_liu_tree of N binary rows in memory: seconds = per_pair V^2 + per_value N V + per_row_and_pair N V^2,
            fitted to two thirds of the sizes and checked on every third
    order   the random order of an epoch, for each row
    check   the pass over all rows before the first epoch, for each row
    decode  a pass over the blocks of a Parquet file that were checked before, for each row
    pick    the rows of each batch as they are sent to a GPU, for each row: from a mapped array, and from the blocks of
            a Parquet file that are decoded already

Files are in the cache of the system, so this is decoding and copying, not the disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write_result
from cost_formula import error_summary, fit, parts, predict
from gpu_steps import say
from peers_cpu import sample_data

import circurve as cc
from circurve.data import prepare_source

TREES = tuple((rows, columns) for columns in (125, 250, 500, 1000) for rows in (5_000, 10_000, 20_000, 40_000))
TREE_TERMS = ("per_pair", "per_value", "per_row_and_pair")
ORDER_ROWS = 20_000_000
READ_ROWS, READ_COLUMNS, READ_BATCH = 60_000, 1000, 4096


def cpu_seconds(work: Callable[[], Any], turns: int) -> float:
    """The median over turns, after one that is not timed."""
    work()
    times = []
    for _ in range(turns):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times)


def tree_terms(rows: int, columns: int) -> list[float]:
    return [float(columns**2), float(rows * columns), float(rows * columns**2)]


def trees(turns: int) -> dict[str, Any]:
    data = sample_data(max(rows for rows, _ in TREES), max(columns for _, columns in TREES), seed=0).astype(np.uint8)
    seconds = []
    for rows, columns in TREES:
        part = np.ascontiguousarray(data[:rows, :columns])
        seconds.append(cpu_seconds(lambda part=part: cc.chow_liu_tree(part), turns))
        say(f"tree of {rows} x {columns}: {seconds[-1]:.3f} s")
    features, which = [tree_terms(*size) for size in TREES], parts(len(TREES))
    used = [place for place, part in enumerate(which) if part == "fit"]
    constants = fit([features[place] for place in used], [seconds[place] for place in used])
    errors = [predict(constants, row) / time - 1 for row, time in zip(features, seconds, strict=True)]
    return {
        "constants": dict(zip(TREE_TERMS, constants, strict=True)),
        "errors": {
            part: error_summary([error for error, of in zip(errors, which, strict=True) if of == part])
            for part in ("fit", "check")
        },
        "rows": [
            {"rows": rows, "columns": columns, "part": part, "seconds": time, "relative_error": error}
            for (rows, columns), part, time, error in zip(TREES, which, seconds, errors, strict=True)
        ],
    }


def order(turns: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    seconds = cpu_seconds(lambda: torch.randperm(ORDER_ROWS, generator=generator), turns)
    return {"rows": ORDER_ROWS, "seconds_per_row": seconds / ORDER_ROWS}


def write_files(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    data = sample_data(READ_ROWS, READ_COLUMNS, seed=0).astype(np.uint8)
    np.save(folder / "rows.npy", data)
    table = pa.table({f"c{column}": values for column, values in enumerate(data.T)})
    parquet.write_table(table, folder / "rows.parquet")


def read(turns: int) -> dict[str, Any]:
    """Seconds for each row, by kind of file."""
    found: dict[str, Any] = {"rows": READ_ROWS, "columns": READ_COLUMNS, "batch": READ_BATCH}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        mapped = np.load(folder / "rows.npy", mmap_mode="r")
        found["parquet_bytes_per_row"] = (folder / "rows.parquet").stat().st_size / READ_ROWS
        circuit = cc.hclt(np.asarray(mapped[:1000]), units=2, families=[cc.Bernoulli()] * READ_COLUMNS)
        sources = {"mapped": cc.open_stream(mapped), "parquet": cc.open_stream(folder / "rows.parquet")}
        for kind, source in sources.items():
            stream = prepare_source(source, circuit, "train")
            found[kind] = {
                "check": cpu_seconds(lambda source=source: prepare_source(source, circuit, "train"), turns) / READ_ROWS,
                "pick": cpu_seconds(lambda stream=stream: epoch(stream), turns) / READ_ROWS,
            }
            if kind == "parquet":
                found[kind]["decode"] = cpu_seconds(lambda stream=stream: deque(stream.pieces(), 0), turns) / READ_ROWS
            say(f"{kind}: {found[kind]}")
    return found


def epoch(stream: Any) -> None:
    """The rows of each batch of an epoch, in the order in which a GPU gets them."""
    for part in stream.order(torch.Generator().manual_seed(0)).split(READ_BATCH):
        table, places = stream.take(part)
        if stream.reader.access != "rows":
            table.rows(places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = {"order": order(arguments.turns), "read": read(arguments.turns), "tree": trees(arguments.turns)}
    say(str({name: found["tree"][name] for name in ("constants", "errors")}))
    say(f"written to {write_result('host_cost', found, arguments.out)}")


if __name__ == "__main__":
    main()
