"""Write the pages that quote measurements, from the result files in benchmarks/results, and the page of options.

python docs/make_pages.py
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from comparison import span
from gpu_pages import GPU_FILES, gpu_section
from more_speed_pages import MORE_FILES, first_fit_section, leaves_section, mixture_section
from option_pages import options_page
from pages import commands, load, table
from scaling_pages import scaling_page
from stream_pages import large_data_page

DOCS = Path(__file__).parent

Row = dict[str, Any]

CURVATURE_FILES = {
    "Overfitting, and where the trace is": ["curvature_claims"],
    "What it costs": ["curvature_overhead_cuda", "curvature_overhead"],
    "A training step of each method": ["method_cost", "method_cost_cuda"],
}
"""The result files of each section of the page of curvature."""


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation over seeds."""
    return f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}"


def method(row: Row) -> str:
    """A method with its strength."""
    return row["method"] if row["method"] == "vanilla" else f"{row['method']}, mu = {row['mu']:g}"


def likelihoods(rows: Sequence[Row]) -> str:
    """Train and test log-likelihood by method."""
    heads = ["data", "epochs", "method", "train LL", "test LL", "test LL at the best validation epoch"]
    body = [
        [
            r["data"],
            str(r["epochs"]),
            method(r),
            spread(r["train_ll"]),
            spread(r["test_ll"]),
            spread(r["best_epoch_test_ll"]),
        ]
        for r in rows
    ]
    return table(heads, body)


def concentrations(rows: Sequence[Row]) -> str:
    """Which share of the nodes holds which share of T and t, and how often the two disagree."""
    heads = ["data", "method", "nodes", "T: 90 %", "99 %", "99.99 %", "t: 90 %", "99 %", "99.99 %", "reversed pairs"]
    body = []
    for row in rows:
        found = row["curvature_of_seed_0"]
        shares = [
            f"{found['fraction_of_nodes_for'][by][share]:.1%}"
            for by in ("total", "local")
            for share in ("0.9", "0.99", "0.9999")
        ]
        body.append(
            [row["data"], method(row), f"{found['sum_nodes']:,}", *shares, f"{found['reversed_pairs']['share']:.1%}"]
        )
    return table(heads, body)


def curvature_page() -> str:
    """Where the sharpness is, and what gating does, compared with the paper's claims."""
    claims, overhead = load("curvature_claims"), load("curvature_overhead_cuda")
    rows = claims["results"]
    plain = [row for row in rows if row["method"] == "vanilla"]

    def fractions(by: str) -> list[float]:
        return [row["curvature_of_seed_0"]["fraction_of_nodes_for"][by]["0.9999"] for row in plain]

    plants = next(row for row in rows if row["data"] == "plants" and row["method"] == "gated")
    before = next(row for row in plain if row["data"] == "plants")
    loss = statistics.fmean(plants["test_ll"]) - statistics.fmean(before["test_ll"])
    pairs = [row["curvature_of_seed_0"]["reversed_pairs"]["share"] for row in plain]
    cpu = load("curvature_overhead")
    on_cpu = [row["ratio"]["curvature"] - 1 for row in cpu["results"] if row["batch"] is None]
    small, fleets = (
        [row["ratio"]["curvature"] - 1 for row in cpu["results"] if row["batch"] and row["runs"] == runs]
        for runs in (1, 16)
    )
    costs = [row["ratio"]["curvature"] - 1 for row in overhead["results"] if row["runs"] == 1]
    return f"""# Curvature, measured

<!-- written by docs/make_pages.py from benchmarks/results; do not edit -->

1. {overfitting(rows)}
2. Sharpness is spread widely: {min(fractions("total")):.0%} to {max(fractions("total")):.0%} of the sum nodes hold
   99.99 % of T. T and t put {min(pairs):.0%} to {max(pairs):.0%} of all pairs of nodes in different order.
3. Measuring it adds {min(costs):.0%} to {max(costs):.0%} to a full-batch EM step on a GPU, {min(on_cpu):.0%} to
   {max(on_cpu):.0%} on a CPU.

## Overfitting

{likelihoods(rows)}

Hidden Chow-Liu trees with 100 units, mini-batch EM with batch 200 and step 0.1, no pseudocount, the last epoch's model,
means and standard deviations over seeds 0 to {len(rows[0]["seeds"]) - 1}.

On dna and bbc, 300 epochs of plain EM overfit, and gating with mu = 1 ends well above it, as the paper says. The last
column shows what the paper does not: choosing the epoch by validation likelihood does more than any penalty there. On
plants the gated method with mu = {plants["mu"]:g} changes the test likelihood by {loss:+.2f} against plain EM; the
paper, which chooses mu by validation likelihood, reports no loss.

## Where the trace is

The share of sum nodes that hold 90, 99 and 99.99 % of the sum of T and of the sum of t over nodes (means over the
training data, seed 0), and the share of node pairs that T and t put in different order:

{concentrations(rows)}

The paper reads its circuits differently: under 10 % of the nodes for 99.99 % of T, over 60 % for 99.99 % of t. In
circuits trained by plain EM we find {min(fractions("total")):.0%} to {max(fractions("total")):.0%} for T and
{min(fractions("local")):.0%} to {max(fractions("local")):.0%} for t: the exact mean of t is dominated by a few nodes
with weights close to zero, whose ratios p_c / p_n are enormous in a few samples. The claim that T and t disagree holds:
{min(pairs):.0%} to {max(pairs):.0%} of all pairs are reversed.

Such edges move the estimators `flow_weighted` and `clipped` far less, and `geometric` not at all;
[notation.md](notation.md) has their definitions and how far one edge can move each. They are columns of
`cc.curvature`'s record, `Gated(estimator=...)` takes its gates from them, and `circurve curvature` shows the geometric
mean, together with the share of the mean of t that edges with weights near zero make up. `circurve reproduce
estimators` compares all five.

## What it costs

The sums behind T, t and F^2 add {min(costs):.0%} to {max(costs):.0%} to a full-batch EM step of one run on a GPU with
the reference backend. On a CPU it is {min(on_cpu):.0%} to {max(on_cpu):.0%}. In steps of 200 rows, where costs that do
not depend on the rows matter most, it is
{min(small):.0%} to {max(small):.0%} for one run on a CPU and {min(fleets):.0%} to {max(fleets):.0%} for a fleet of 16.
The estimators mean_ratio and clipped and the second moments of the exact penalty each need one more matrix product, and
are computed only on request.

A whole training step of each method, its sums, gates and M-step included, against one of plain EM, in batches of 200.
(All these times are of random rows, as many and as wide as those of the sets that are named.)

{method_costs()}

{commands(CURVATURE_FILES)}
"""


def overfitting(rows: Sequence[Row]) -> str:
    """What penalties and early stopping do on the small sets, in one sentence each."""
    small = {
        name: {row["method"]: row for row in rows if row["data"] == name and row["method"] != "global"}
        for name in ("dna", "bbc")
    }

    def gain(name: str, score: str) -> float:
        return statistics.fmean(small[name]["gated"][score]) - statistics.fmean(small[name]["vanilla"][score])

    late = " and ".join(f"{gain(name, 'test_ll'):+.1f} nats on {name}" for name in small)
    best = " and ".join(f"{gain(name, 'best_epoch_test_ll'):+.1f} on {name}" for name in small)
    return f"""After 300 epochs plain EM overfits on small tables, and the gated penalty changes the test likelihood by
   {late}. With the epoch chosen by validation it changes it by {best}: it no longer helps."""


def method_costs() -> str:
    """One line for each data set, fleet and machine; how many times the step of plain EM."""
    files = [load(name) for name in ("method_cost", "method_cost_cuda")]
    labels = list(files[0]["results"][0]["ratio"])
    rows = [
        [
            found["environment"].get("gpu", "CPU"),
            row["data"],
            str(row["runs"]),
            f"{1e3 * row['seconds'][labels[0]]:.3g} ms",
            *(f"{row['ratio'][label]:.2f}" for label in labels[1:]),
        ]
        for found in files
        for row in found["results"]
    ]
    return table(["machine", "data", "models", *labels], rows)


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
