"""The Chow-Liu tree of very many columns: seconds, and the peak memory of the process.

python benchmarks/wide_tree.py
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np
from common import write_result

import circurve as cc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--out", type=Path, help="the folder of the result file")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    data = np.empty((options.rows, options.columns), dtype=np.uint8)
    data[:, 0] = rng.random(options.rows) < 0.5
    for v in range(1, options.columns):
        data[:, v] = data[:, rng.integers(v)] ^ (rng.random(options.rows) < 0.2)
    started = time.perf_counter()
    cc.chow_liu_tree(data)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {"columns": options.columns, "rows": options.rows, "seconds": round(seconds, 1), "peak_gib": round(peak, 3)}
    print(write_result("wide_tree", found, options.out), found)


if __name__ == "__main__":
    main()
