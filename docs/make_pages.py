"""Write the pages that quote measurements, from the result files in benchmarks/results, and the page of options.

python docs/make_pages.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from comparison import span
from curvature_pages import curvature_page
from gpu_pages import GPU_FILES, gpu_section
from more_speed_pages import MORE_FILES, first_fit_section, leaves_section, mixture_section
from option_pages import options_page
from pages import commands, load, table
from scaling_pages import scaling_page
from stream_pages import large_data_page

DOCS = Path(__file__).parent

Row = dict[str, Any]


def performance_page() -> str:
    """EM on a CPU and on a GPU: shares of what the machine can do, and seconds compared with the peers."""
    found = load("cpu_em")
    results = found["results"]
    shares = [
        [
            row["data"],
            f"{row['samples']:,} x {row['variables']}",
            str(row["units"]),
            str(row["runs"]),
            f"{row['seconds_per_step']:.3f}",
            f"{row['gflops']:.0f}",
            f"{row['matmul_gflops']:.0f}",
            f"{row['share']:.0%}",
        ]
        for row in (*results["share_of_matmul"], *results["share_of_matmul_fleets"])
    ]
    heads = ["samples x variables x units", "Circurve", "cirkit", "SPFlow"]
    tuned, plain = (
        [
            [
                row["size"].replace("x", " x "),
                f"{row['circurve']['seconds_per_step']:.4f}",
                *map(compared, (of(row)["cirkit"], of(row)["spflow"])),
            ]
            for row in results["peers"]
        ]
        for of in (lambda row: row, lambda row: row["plain"])
    )
    steps = {name: [row[name]["times_slower"] for row in results["peers"]] for name in ("cirkit", "spflow")}
    return f"""# Performance

<!-- written by docs/make_pages.py from benchmarks/results; do not edit -->

1. On a CPU, an EM step is {span(steps["cirkit"])} times faster than in cirkit, and {span(steps["spflow"])} times
   faster than in SPFlow.
2. {gpu_finding()}
3. Draws are faster than in all three libraries. Conditionals of rows that come from the CPU are the exception: of many
   rows at once, PyJuice answers them up to {slowest_conditional():.1f} times faster ([rates](questions.md#rates)).

## EM on a CPU

Seconds of a full-batch EM step of a hidden Chow-Liu tree, compared with two other libraries on the same data. In
brackets: how many times slower than Circurve. Each library has the allocator setting and the chunk size that suit it
best.

{table(heads, tuned)}

With default settings: the whole batch at once, and the default allocator.

{table(heads, plain)}

How fast a step is for this machine: operations of a step in each second, compared with a batched matrix product.

{table(["data", "shape", "units", "runs", "seconds", "GFLOP/s", "matmul GFLOP/s", "share"], shares)}

All steps are in float32, on rows drawn from a random tree, as many and as wide as those of the sets that are named.
`benchmarks/peers_cpu.py` says what a step is in each library. The rate counts 6 samples variables units² operations,
three matrix products over every edge of the tree; the matrix product was measured in turns with it in one process.
Leaves of the tree and products of few states are computed once for each state, so fewer operations are done than
counted, and the share can exceed 100 %.

{gpu_section(DOCS / "images")}
{mixture_section()}
{leaves_section()}
{first_fit_section()}
{commands({"EM on a CPU": ["cpu_em"], **GPU_FILES, **MORE_FILES})}
"""


def gpu_finding() -> str:
    """How many times faster than PyJuice a step is, in one sentence."""
    files = [load(name) for name in ("gpu_em", "gpu_em_large_256", "gpu_em_large")]
    rows = [row for file in files for row in file["results"]["rows"]]
    one, fleet = (
        span(row["times_slower"]["graph"] for row in rows if (row["runs"] > 1) is several) for several in (False, True)
    )
    return f"""On a GPU, a step of one model is {one} times faster than in PyJuice with its CUDA graph; in a fleet of 16
   or 64 models, {fleet} times for each model."""


def slowest_conditional() -> float:
    """The most that PyJuice is faster by at conditionals."""
    sizes = [size for name in ("queries_cuda", "queries_cuda_many") for size in load(name)["results"]["sizes"]]
    return 1 / min(float(size["conditional"]["pyjuice"]["times_slower_per_row"]) for size in sizes)


def compared(peer: Row) -> str:
    """A peer's seconds, and how many times slower that is."""
    if peer["seconds_per_step"] is None:
        return str(peer["status"])
    return f"{peer['seconds_per_step']:.3f} ({peer['times_slower']:.1f} x)"


PAGES: dict[str, Callable[[], str]] = {
    "curvature.md": curvature_page,
    "performance.md": performance_page,
    "options.md": options_page,
    "large-data.md": large_data_page,
    "scaling.md": scaling_page,
}


def main() -> None:
    """Write all pages."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
