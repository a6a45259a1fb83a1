"""Fits the formula of cost_formula.py to GPU steps of other benchmarks' result files, and checks it on some of them.

    python benchmarks/cost_of_benchmarks.py --data-dir DEBD

Steps in float32 of scaling.json, gpu_em*.json and roofline*.json. Sizes that were measured more than once count as
one, with their median. Sorted by columns, units, runs and rows, every third size is held out of the fit. The data sets
are needed for the shape of their trees, which the result files do not have. Memory is that of gpu_em*.json, whose
buffers had no bound, for fleets of up to 16: larger ones cut their batches into chunks.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from common import RESULTS, write_result
from cost_formula import Size, balanced, parts
from cost_model import fits
from gpu_steps import CASES, load_data, say

import circurve as cc

LARGEST_FLEET = 16
"""Larger fleets may cut a batch into chunks, and then their memory no longer grows with its rows."""

FILES = ("gpu_em", "gpu_em_large", "gpu_em_large_256", "roofline", "roofline_fleets")


def results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())["results"]


@cache
def tree(case: str, data_dir: Path) -> tuple[int, int]:
    """Columns with children and sum layers of a case's tree, which do not depend on its units."""
    found = cc.hclt(load_data(CASES[case], data_dir), units=2).describe()
    return found.products, found.sum_depth


def measured(data_dir: Path) -> Iterator[tuple[Size, float, int | None]]:
    """Size, seconds and peak memory of each step; None where memory was bounded."""
    for axis in results("scaling")["axes"].values():
        for row in axis["rows"]:
            names = ("samples", "variables", "units", "runs")
            yield balanced(*(row[name] for name in names)), row["seconds_per_step"], None
    for name in FILES:
        for row in results(name)["rows"]:
            if row["precision"] == "float32":
                ours = row.get("ours", row)
                rows = min(row["batch"], row["samples"])
                size = Size(rows, row["variables"], row["units"], row["runs"], *tree(row["case"], data_dir))
                yield size, ours["seconds_per_step"], ours.get("peak_bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="the data sets of gpu_em.py")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    seconds: dict[Size, list[float]] = defaultdict(list)
    peaks: dict[Size, int] = {}
    for size, time, peak in measured(arguments.data_dir):
        seconds[size].append(time)
        if peak is not None and size.runs <= LARGEST_FLEET:
            peaks[size] = peak
    sizes = sorted(seconds, key=lambda size: (size.columns, size.units, size.runs, size.rows))
    rows = [
        {**asdict(size), "part": part, "seconds": {"graph": statistics.median(seconds[size])}}
        | ({"peak_bytes": peaks[size]} if size in peaks else {})
        for size, part in zip(sizes, parts(len(sizes)), strict=True)
    ]
    sources = {name: json.loads((RESULTS / f"{name}.json").read_text())["environment"] for name in ("scaling", *FILES)}
    found = {"sources": sources, "fits": fits(rows), "rows": rows}
    say(f"written to {write_result('cost_of_benchmarks', found, arguments.out)}")


if __name__ == "__main__":
    main()
