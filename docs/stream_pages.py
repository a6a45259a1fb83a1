"""The page about data that are larger than memory, with the figures of benchmarks/streams.py."""

from __future__ import annotations

from typing import Any

from pages import commands, load, table

__all__ = ["large_data_page"]

NAMES = {"memory": "in memory", "mapped": "mapped array", "parquet": "Parquet file"}


def _rows(found: dict[str, Any]) -> list[list[str]]:
    """One line for each kind of source."""
    return [
        [
            NAMES[kind["kind"]],
            f"{kind['peak_gib']:.2f} GiB",
            f"{kind['structure_seconds']:.0f}",
            f"{kind['rows_per_second']:,.0f}",
            f"{kind['rows_per_second_beside_memory']:.0%}",
            "yes" if kind["same_tree_as_in_memory"] else "no",
            "yes" if kind["same_bits_as_in_memory"] else "no",
            f"{kind['train_ll']:.4f}",
        ]
        for kind in found["kinds"]
    ]


def large_data_page() -> str:
    """docs/large-data.md."""
    found = load("streams")["results"]
    by_kind = {kind["kind"]: kind for kind in found["kinds"]}
    peak = max(by_kind[kind]["peak_gib"] for kind in ("mapped", "parquet"))
    rate = min(kind["rows_per_second_beside_memory"] for kind in found["kinds"])
    bits = "bit by bit that of" if by_kind["mapped"]["same_bits_as_in_memory"] else "close to that of"
    size = f"{found['rows']:,} rows x {found['variables']} columns"
    wide = load("wide_tree")["results"]
    heads = [
        *("source", "peak memory", "seconds for the tree", "rows per second", "rate"),
        *("same tree", "same bits", "train log-likelihood"),
    ]
    return f"""# Data larger than memory

<!-- written by docs/make_pages.py from benchmarks/results; do not edit -->

1. `fit`, `hclt`, `log_prob`, `curvature` and questions about rows take data that stay on the disk: a `numpy.memmap`,
   an .npy, Parquet or Arrow file, a folder of them, a torch `DataLoader`, a list or any other
   iterable of batches.
2. {size} train with a peak of {peak:.2f} GiB and at least {rate:.0%} of the rows per second that
   training in memory has. The result of a mapped array is {bits} the array in memory with the same seed.
3. `memory_budget=` (`--memory-budget 2GB`) limits the memory of a call. A call that needs more is refused before memory
   is allocated, with an error that says what needs it and what to change. The limit counts what a call holds; the C
   library of Linux keeps some of what was freed for later, up to 9 MB in the calls of `tests/test_budget_measured.py`,
   unless `MALLOC_MMAP_THRESHOLD_=131072` is set.

```python
import numpy as np
import circurve as cc

rows = np.load("rows.npy", mmap_mode="r")  # stays on the disk
model = cc.fit(cc.hclt(rows, units=32), rows).model

big = cc.open_stream("folder/", columns=["age", "income", "city"])  # Parquet files
model = cc.fit(cc.hclt(big, units=32), big, batch_size=4096).model
scores = np.lib.format.open_memmap("scores.npy", mode="w+", shape=(len(big),))
model.log_prob(big, out=scores)
found = model.most_probable(big)  # an entry or a row for each row: `mean`, `impute`, `explain`, `conditional`, ...
for table in big.pieces():  # where even the answers are too large for memory
    model.sample(10, given=table)
```

```
circurve fit big.parquet --out model.safetensors
circurve evaluate model.safetensors folder/ --scores scores.parquet
circurve impute model.safetensors folder/ --out filled.parquet
circurve statistics model.safetensors folder/ --shard 1/2 --out one.npz
```

## How rows are shuffled

| source | order of the rows in an epoch |
| --- | --- |
| `numpy.memmap`, arrays | the same random order as in memory |
| Parquet (row groups), Arrow (record batches) | blocks in random order; rows mixed within windows of blocks |
| `DataLoader`, iterables | in the order of the source: let the loader shuffle |

A window is as many blocks as half of `buffer` holds (`open_stream(buffer=...)`, 256 MiB by default), and two windows
are in memory at a time. Data that fit into one block are mixed as in memory. `open_stream(array, block_rows=N)`
shuffles an array like a file, which suits arrays that are larger than memory: a disk reads blocks faster than single
rows. Runs of a fleet with different seeds read different blocks at the same time, and each needs its own windows.

## What is read when

The schema comes from a pass over all rows; for batches with column names, from 100,000 evenly spaced rows. The tree
comes from a pass over all rows; for files and batches with more than about 4,000 columns, from evenly spaced rows,
256 MiB of them. A line on standard error says which. `fit` reads all rows another time to check them, then once in each
epoch.

Streams have no weights and no labels, and `refit`, `fit_ensemble`, `evaluate --explain` and `--report` need rows in
memory. On the command line, folders of Parquet or Arrow files are streamed, and Parquet, Arrow and .npy files with more
than {1 << 27:,} values. This holds for `fit`, `sweep`, `evaluate`, `curvature`, `statistics`, `impute` and `data info`.
`statistics --shard 2/4` reads only the blocks of its rows. Parquet and Arrow files that are packed too well to be read
as tables are streamed too.

Before a block is read, what it would take is worked out from the file's metadata. Row groups of
Parquet files that need more than ten times the size of the file and more than 256 MB are read in pieces. Record batches
that need as much are refused, and so are such row groups in files of more than 134,217,728 values: write smaller ones,
or say `open_stream(..., trust=True)`.

Questions whose answer has an entry or a row for each row are asked some rows at a time, and their answers are put
together in memory. Draws (`impute(how="sample")`, `sample(given=...)`) take another seed for each piece. `Models`,
`report`, `fit_ensemble`, `fit_units` and the estimators need a table, and refuse a stream.

## Measured

{size}, hidden Chow-Liu tree of {found["units"]} units, batches of {found["batch"]:,}, {found["epochs"]} epochs, each
source in a process of its own with one thread. Rates are by the clock, those of the epochs after the first, compared
with the rate in memory; how much of the files the system had in its cache was not controlled. Rows of a Parquet file
come in another order than in memory, so its log-likelihood differs in the last digits.

{table(heads, _rows(found))}

Chow-Liu trees of many columns are bounded too, because the matrix of mutual information is made block by block:
{wide["columns"]:,} binary columns x {wide["rows"]:,} rows take {wide["peak_gib"]:.2f} GiB,
the data included.

{commands({"Sources": ["streams"], "Chow-Liu trees of many columns": ["wide_tree"]})}
"""
