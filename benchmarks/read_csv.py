"""Seconds to read a CSV file of numbers, compared with pandas.read_csv, in turns.

    python benchmarks/read_csv.py [--rows 1000000] [--columns 16]

`circurve` is `circurve.data.read_table`, which reads the file with pyarrow if it is installed, and most of it with
polars if that is imported, as it is here; `without polars` is the same where it is not; `own reader` is the same
without either, on a tenth of the rows. All check the numbers and put them into one table; pandas keeps columns.
`pyarrow` is
`pyarrow.csv.read_csv` alone.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import polars  # noqa: F401 - read_table uses it where it is imported
from common import interleaved, medians, ratio_in_turns, write_result
from pyarrow import csv

from circurve.data import Dataset, Table, read_table

KINDS: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "reals": lambda rng, size: rng.normal(size=size).round(6),
    "whole numbers": lambda rng, size: rng.integers(0, 1000, size=size),
}


def measure(kind: str, rows: int, columns: int, repeats: int) -> dict[str, Any]:
    values = KINDS[kind](np.random.default_rng(0), (rows, columns))
    names = [f"c{v}" for v in range(columns)]
    with tempfile.TemporaryDirectory() as folder:
        path, small = Path(folder, "rows.csv"), Path(folder, "tenth.csv")
        pd.DataFrame(values, columns=names).to_csv(path, index=False)
        pd.DataFrame(values[: rows // 10], columns=names).to_csv(small, index=False)
        table = read_table(path)
        assert np.array_equal(table, pd.read_csv(path).to_numpy())
        sides = {
            "circurve": lambda: read_table(path),
            "pandas": lambda: pd.read_csv(path),
            "without polars": lambda: _without_polars(path),
            "pyarrow": lambda: csv.read_csv(path),
        }
        times = interleaved(sides, repeats)
        processor = {name: _processor_seconds(run) for name, run in sides.items()}
        with mock.patch("circurve.data.arrow.find_spec", return_value=None):
            own = interleaved({"own reader": lambda: read_table(small)}, 1)
        megabytes = path.stat().st_size / 1e6
    return {
        "kind": kind,
        "rows": rows,
        "columns": columns,
        "megabytes": round(megabytes, 1),
        "read_by": table.source,
        "seconds": medians(times),
        "times": times,
        "processor_seconds": processor,
        "pandas_over_circurve": ratio_in_turns(times["pandas"], times["circurve"]),
        "pandas_over_circurve_without_polars": ratio_in_turns(times["pandas"], times["without polars"]),
        "own_reader_seconds_for_a_tenth": own["own reader"][0],
    }


def _without_polars(path: Path) -> Table | Dataset:
    with mock.patch("circurve.data.arrow._polars_for", return_value=None):
        return read_table(path)


def _processor_seconds(run: Callable[[], Any]) -> float:
    """The time that all threads together were busy, which other programs on the machine hardly change."""
    found = []
    for _ in range(3):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = [measure(kind, options.rows, options.columns, options.repeats) for kind in KINDS]
    for row in results:
        print(f"{row['kind']}: {row['seconds']}, pandas / circurve {row['pandas_over_circurve']:.2f}")
    versions = {name: metadata.version(name) for name in ("pandas", "pyarrow", "polars", "numpy")}
    facts = {"versions": versions, "load_average_5_minutes": os.getloadavg()[1], "files": results}
    print(write_result("read_csv", facts, options.out))


if __name__ == "__main__":
    main()
