"""The page about what training costs at any size: the cost model, its check, and what it says about very large data.

A part of the page whose result file is not there is left out.
"""

from __future__ import annotations

from typing import Any

import pages
from pages import load, origin, table

__all__ = ["scaling_page"]

Row = dict[str, Any]

STEPS = {
    "cost_model_cuda": "random sizes, one GPU",
    "cost_of_benchmarks": "sizes of the GPU benchmarks",
    "cost_model_cpu": "random sizes, one CPU thread",
}
KINDS = {"graph": "CUDA graph", "plain": "step by step", "memory": "memory"}
TERMS = {
    "latency": "1",
    "per_level": "L",
    "per_level_row": "L N",
    "per_weight": "R V K²",
    "per_cell": "R V N",
    "per_value": "R I N K'",
    "per_edge": "R I N K K'",
}
MEMORY = {"weight_bytes": "R V K²", "column_bytes": "R V N K", "inner_bytes": "R I N K"}

AT_REST = 0.5
"""The largest load average of a machine on which times by the clock are shown."""


def has(name: str) -> bool:
    """Whether a result file is there."""
    return (pages.RESULTS / f"{name}.json").exists()


def scaling_page() -> str:
    """docs/scaling.md."""
    findings = "\n".join(f"{number}. {text}" for number, text in enumerate(_findings(), 1))
    parts = (_formula(), _checks(), _network(), _predictions(), _limits(), _origins())
    sections = "\n".join(part for part in parts if part)
    return f"""# What training costs, at any size

<!-- written by docs/make_pages.py from benchmarks/results; do not edit -->

{findings}

{sections}"""


def _files() -> dict[str, Row]:
    return {name: load(name) for name in STEPS if has(name)}


def _findings() -> list[str]:
    found = [_finding_of_checks()]
    if has("forecast"):
        forecast = load("forecast")["results"]
        found += [_finding_of_epochs(forecast), _finding_of_limits(forecast)]
    return found


def _finding_of_checks() -> str:
    """How good the formula is on sizes that it was not fitted to."""
    said = []
    for name, file in _files().items():
        for kind, fit in file["results"]["fits"].items():
            if kind != "memory":
                check = fit["errors"]["check"]
                within = round(check["within_20_percent"] * check["sizes"])
                said.append(
                    f"{within} of {check['sizes']} ({STEPS[name]}, {KINDS[kind]}; median error {check['median']:.0%})"
                )
    return (
        "A formula with seven constants predicts the seconds of an EM step. Of the sizes held out of the fit, so many\n"
        f"   are within 20 %: {'; '.join(said)}."
    )


def _finding_of_epochs(forecast: Row) -> str:
    """What an epoch takes on the GPUs."""
    job, rows = forecast["job"], _largest_batches(forecast)
    times = " and ".join(
        f"{_seconds(row['training_seconds'])} with K = {row['units']} "
        f"({1 - row['compute_share']:.0%} of it between the GPUs)"
        for row in rows
    )
    return (
        f"For {_power(job['rows'])} rows x {job['columns']:,} columns on {job['workers']} H200 it predicts {times} for "
        f"the steps of an epoch,\n   with {rows[0]['rows_per_gpu']:,} rows on each GPU and {rows[0]['network']} between "
        "them. This is a prediction: no more than one GPU\n   was measured."
    )


def _finding_of_limits(forecast: Row) -> str:
    """What breaks first."""
    host = forecast["host"]
    slowest = max(row["training_seconds"] for row in _largest_batches(forecast))
    return (
        f"The data break first, not the GPUs: every worker decodes every block of a Parquet file, which takes\n"
        f"   {_seconds(host['parquet_epoch'])} for an epoch, {host['parquet_epoch'] / slowest:.0f} times the steps; and "
        f"a Chow-Liu tree from all rows takes {_seconds(host['tree_once'])}. Use a mapped array\n"
        f"   and the tree of a sample."
    )


def _largest_batches(forecast: Row) -> list[Row]:
    """For each K, the epoch with the largest batch on the slower network."""
    most = max(row["rows_per_gpu"] for row in forecast["epochs"])
    slow = min(forecast["assumptions"]["bandwidths"], key=forecast["assumptions"]["bandwidths"].get)
    return [row for row in forecast["epochs"] if row["rows_per_gpu"] == most and row["network"] == slow]


def _formula() -> str:
    fits = [
        (name, kind, fit)
        for name, file in _files().items()
        for kind, fit in file["results"]["fits"].items()
        if kind != "memory"
    ]
    heads = ["constant, in ns", "times", *(f"{STEPS[name]}, {KINDS[kind]}" for name, kind, _ in fits)]
    body = [
        [f"`{term}`", times, *(f"{1e9 * fit['constants'][term]:.3g}" for _, _, fit in fits)]
        for term, times in TERMS.items()
    ]
    memory = [
        (name, file["results"]["fits"]["memory"])
        for name, file in _files().items()
        if "memory" in file["results"]["fits"]
    ]
    text = f"""## The formula

A step of R runs of a hidden Chow-Liu tree over V binary columns with K units, on N rows. I of the columns have children
in the tree; the other ones are computed once for each value, not for each row. L is the number of sum layers, one after
the other. K' is K rounded up to a multiple of 16. The seconds of a step are the sum of constants times sizes:

{table(heads, body)}

`per_level` is what launching and waiting cost, `per_weight` the M-step, `per_cell` and `per_value` memory traffic,
`per_edge` the arithmetic: 6 operations in each, so the rate is 6 / `per_edge`.
"""
    if not memory:
        return text
    heads = ["constant, in bytes", "times", *(STEPS[name] for name, _ in memory)]
    body = [
        [f"`{term}`", times, *(f"{fit['constants'][term]:.3g}" for _, fit in memory)] for term, times in MEMORY.items()
    ]
    return f"""{text}
Memory of a step at its peak, parameters and data included:

{table(heads, body)}
"""


def _checks() -> str:
    heads = ["measured", "what", "sizes", "median error", "largest", "within 20 %"]
    body = []
    for name, file in _files().items():
        for kind, fit in file["results"]["fits"].items():
            for part, title in (("fit", "fit"), ("check", "**held out**")):
                of = fit["errors"][part]
                body.append(
                    [
                        STEPS[name],
                        f"{KINDS[kind]}, {title}",
                        str(of["sizes"]),
                        f"{of['median']:.0%}",
                        f"{of['largest']:.0%}",
                        f"{of['within_20_percent']:.0%}",
                    ]
                )
    return f"""## The check

Constants are fitted to two thirds of the sizes, with the least squares of the relative errors, and none is negative.
Every third size is held out: of random sizes in the order in which they were drawn, of the benchmarks' sizes sorted by
columns, units, runs and rows. The form of the formula is not independent of all held-out sizes: a first form, without I, was off by more than 20 % on
9 of the 22 of the benchmarks, and its errors were seen before the present one was chosen, by cross-validation over the
sizes of the fit.

{table(heads, body)}
{_worst()}"""


def _worst() -> str:
    """The held-out sizes that are predicted worst."""
    listed = []
    for name, file in _files().items():
        results = file["results"]
        for kind, fit in results["fits"].items():
            if kind == "memory":
                continue
            rows = [row for row in results["rows"] if kind in row.get("seconds", {})]
            for row, error in zip(rows, fit["relative_errors"], strict=True):
                if row["part"] == "check" and abs(error) > 0.2:
                    listed.append([STEPS[name], KINDS[kind], *_size(row), f"{error:+.0%}"])
    if not listed:
        return ""
    heads = ["measured", "steps", "rows", "columns", "K", "runs", "levels", "error of the prediction"]
    return f"""
Held-out steps that the formula misses by more than 20 %:

{table(heads, listed)}
"""


def _size(row: Row) -> list[str]:
    return [f"{row[name]:,}" for name in ("rows", "columns", "units", "runs", "levels")]


def _network() -> str:
    """What workers exchange, and two of them measured."""
    if not has("parallel_cost"):
        return ""
    results = load("parallel_cost")["results"]
    rest = results["load_average_before"] <= AT_REST
    clocks = ["clock", "cpu"] if rest else ["cpu"]
    titles = {"clock": "by the clock", "cpu": "in CPU seconds"}
    heads = ["rows", "columns", "K", "runs", "bytes counted", "by the formula"]
    heads += [f"speed-up {titles[clock]}" for clock in clocks] + ["left by the exchange"]
    body = [
        [
            *_size(row)[:4],
            f"{row['bytes']:,}",
            f"{row['bytes_by_formula']:,}",
            *(f"{row['speed_up'][clock]:.2f}" for clock in clocks),
            f"{row['left_by_the_exchange']['cpu']:.0%}",
        ]
        for row in results["rows"]
    ]
    note = (
        ""
        if rest
        else f"""By the clock nothing is said: other work ran on the machine (load average
{results["load_average_before"]:.0f} on 2 cores), and CPU seconds leave out the time that workers wait for each other.
"""
    )
    return f"""## What workers exchange

Once in a step, workers add up their statistics with one all-reduce: a number for each weight, two for each input unit
of a binary column and four for each run, as float64,

    bytes = 8 R ((V - 1) K² + K + 2 V K + 4).

A ring of M workers sends 2 (M - 1) / M of that from each to the next in 2 (M - 1) hops. Validation and test rows are
shared out too, and add 16 bytes for each run to an epoch. Two processes with one thread each on gloo:

{table(heads, body)}

The speed-up is the time of one process for all rows over the time of one of the two for half of them, exchange
included; the last column is the part of a worker's time that the exchange leaves for the rows. {note}"""


def _predictions() -> str:
    if not has("forecast"):
        return ""
    forecast = load("forecast")["results"]
    job, assumed = forecast["job"], forecast["assumptions"]
    heads = ["K", "rows on each GPU", "steps", "network", "ms in a step: rows", "exchange", "steps of an epoch"]
    heads += ["share of the rows", "memory of a GPU", "bytes read per second"]
    body = [
        [
            str(row["units"]),
            f"{row['rows_per_gpu']:,}",
            f"{row['steps']:,}",
            row["network"],
            f"{1e3 * row['step_seconds']['compute']:.3g}",
            f"{1e3 * (row['step_seconds']['cast'] + row['step_seconds']['network']):.3g}",
            _seconds(row["training_seconds"]),
            f"{row['compute_share']:.0%}",
            f"{sum(row['memory_bytes'].values()) / 1e9:.0f} GB",
            f"{row['read_bytes_per_second'] / 1e9:.0f} GB",
        ]
        for row in forecast["epochs"]
    ]
    rates = assumed["bandwidths"]
    return f"""## What it says about {_power(job["rows"])} rows x {job["columns"]:,} columns on {job["workers"]} GPUs

{table(heads, body)}

{_lower_bound(forecast["steps_from"])} Assumed, not measured: {rates["InfiniBand"] / 1e9:.0f} GB/s from each GPU over
InfiniBand (one port of 400 Gb/s for each GPU, data sheet of the NVIDIA ConnectX-7) or {rates["NVLink"] / 1e9:.0f} GB/s
over NVLink (half of the 900 GB/s of both directions, data sheet of the NVIDIA H200; between 64 GPUs this is a bound,
since NVLink joins 8 H200 of one machine), {1e6 * assumed["hop_seconds"]:.0f} us for each hop of the ring, a tree with
{assumed["levels"]} sum layers in which {assumed["inner_share"]:.0%} of the columns have children. Binary columns of one
byte, one model, plain EM in float32. Memory holds {job["rows"] * 8 / 1e9:.0f} GB for the order of the rows. Bytes read
are those that all GPUs together need for the steps to run without waiting.

How many epochs are needed is another question: a step on {_thousand(forecast)} rows at a time moves the parameters once,
and the number of steps in an epoch falls as the batch grows.
"""


def _thousand(forecast: Row) -> str:
    sizes = sorted({row["rows_per_gpu"] * forecast["job"]["workers"] for row in forecast["epochs"]})
    return f"{sizes[0]:,} to {sizes[-1]:,}"


def _lower_bound(source: str) -> str:
    if source == "cost_model_cuda":
        return "The steps are those of `cost_model_cuda.json`, step by step, as workers train."
    return (
        "The steps are those of one process, recorded as a CUDA graph. Workers do not record theirs: they launch each\n"
        "kernel, which adds to a step of few rows; how much was not measured on a GPU."
    )


def _limits() -> str:
    if not has("forecast"):
        return ""
    forecast = load("forecast")["results"]
    job, host, assumed = forecast["job"], forecast["host"], forecast["assumptions"]
    steps = [row["training_seconds"] for row in _largest_batches(forecast)]
    body = [
        [
            "reading a Parquet file",
            f"{_seconds(host['parquet_epoch'])} an epoch",
            "each worker decodes all blocks, with one thread, because rows are mixed within windows of blocks",
            "a mapped array, or a file for each worker with an order of its own",
        ],
        [
            "reading a mapped array",
            f"{_seconds(host['mapped_epoch'])} an epoch",
            "each worker reads its own rows only, but nothing is read ahead while the GPU computes; without the disk",
            "read the next batch during the step",
        ],
        [
            "the order of the rows",
            f"{_seconds(host['order_epoch'])} an epoch",
            f"each worker draws the order of all rows, {job['rows'] * 8 / 1e9:.0f} GB on the host and on the GPU",
            "an order for each block",
        ],
        [
            "the check of the rows",
            f"{_seconds(host['check_mapped_once'])} once, of a Parquet file {_seconds(host['check_parquet_once'])}",
            "each worker reads all rows before the first epoch",
            "share the rows out; data that were checked before",
        ],
        [
            "the Chow-Liu tree of all rows",
            f"{_seconds(host['tree_once'])} once",
            "N V² operations on the host of each worker",
            f"the tree of {assumed['tree_sample']:,} rows: {_seconds(host['tree_of_sample_once'])}",
        ],
        [
            "small batches",
            "see the table above",
            "the exchange does not shrink with the rows, and does not overlap with the steps",
            "more rows on each GPU; a smaller K; float32 statistics would halve it",
        ],
        [
            "deep trees",
            "see the check above",
            "layers wait for each other, and the formula is too low where a layer is small",
            "more runs side by side",
        ],
    ]
    return f"""## Where it breaks

With one thread for each worker, beside {_seconds(min(steps))} (K = {min(row["units"] for row in forecast["epochs"])}) to
{_seconds(max(steps))} (K = {max(row["units"] for row in forecast["epochs"])}) for the steps of an epoch:

{table(["what", "time", "why", "what helps"], body)}

All workers must reach all rows, since all draw the same batches; each reads the part of a batch that is its own. The
files are assumed to be in memory or on disks that deliver the bytes of the table above: a random row of a mapped array
costs a disk at least one page of 4 KiB.
"""


def _origins() -> str:
    names = [*STEPS, "parallel_cost", "host_cost", "forecast"]
    lines = "\n".join(f"- {origin(load(name)['environment'])}" for name in names if has(name))
    text = """Times on a CPU are CPU seconds of one thread, medians over turns: other work on the machine disturbs
them less than the clock, and caches and memory are still shared. Times on a GPU are those between CUDA events."""
    if has("cost_of_benchmarks"):
        sources = load("cost_of_benchmarks")["results"]["sources"]
        text += " The sizes of\nthe GPU benchmarks are those of these result files: "
        text += ", ".join(f"`{name}.json`" for name in sources)
        text += f", measured on {_machines(sources.values())}."
    if has("host_cost"):
        host = load("host_cost")["results"]
        check = host["tree"]["errors"]["check"]
        text += (
            f"\nThe tree's formula has a median error of {check['median']:.0%} on its {check['sizes']} held-out sizes, "
            f"the largest is {check['largest']:.0%}."
        )
    return f"""## How it was measured

{text}

{lines}
"""


def _machines(environments: Any) -> str:
    return " and ".join(dict.fromkeys(each.get("gpu", each["cpu"]) for each in environments))


def _seconds(value: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, size in (("hours", 3600.0), ("minutes", 60.0)):
        if value >= 2 * size:
            return f"{value / size:.2g} {unit}"
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"


def _power(rows: int) -> str:
    """10^9 for a power of ten, the number for any other."""
    zeros = len(str(rows)) - 1
    return f"10^{zeros}" if rows == 10**zeros and zeros > 5 else f"{rows:,}"
