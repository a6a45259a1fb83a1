"""What the cost model says about very large data, from benchmarks/results/forecast.json, and where it breaks."""

from __future__ import annotations

from typing import Any

from pages import has, load, table, wrapped

__all__ = ["forecast_findings", "limits_section", "predictions_section"]

Row = dict[str, Any]


def forecast_findings() -> list[str]:
    """What an epoch takes, and which part is the bottleneck."""
    forecast = load("forecast")["results"]
    return [_finding_of_epochs(forecast), _finding_of_limits(forecast)]


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
        f"the steps of an epoch, with {rows[0]['rows_per_gpu']:,} rows on each GPU and {rows[0]['network']} between "
        "them. This is a prediction: no more than one GPU was measured."
    )


def _finding_of_limits(forecast: Row) -> str:
    """Which part is the bottleneck."""
    host, rows = forecast["host"], _largest_batches(forecast)
    steps = [row["training_seconds"] for row in rows]
    parquet = rows[0]["parquet_seconds"]
    return (
        "The host is the bottleneck, not the GPUs. With one thread for each worker, an epoch needs "
        f"{_seconds(host['order_epoch'])} for the order of the rows and {_seconds(parquet)} for reading them from a "
        f"Parquet file ({parquet / max(steps):.0f} to {parquet / min(steps):.0f} times the steps), or "
        f"{_seconds(host['mapped_epoch'])} from a mapped array in memory. A Chow-Liu tree of all rows takes "
        f"{_seconds(host['tree_once'])}, one of {forecast['assumptions']['tree_sample']:,} rows "
        f"{_seconds(host['tree_of_sample_once'])}."
    )


def _largest_batches(forecast: Row) -> list[Row]:
    """For each K, the epoch with the largest batch on the slower network."""
    most = max(row["rows_per_gpu"] for row in forecast["epochs"])
    slow = min(forecast["assumptions"]["bandwidths"], key=forecast["assumptions"]["bandwidths"].get)
    return [row for row in forecast["epochs"] if row["rows_per_gpu"] == most and row["network"] == slow]


def predictions_section() -> str:
    """Epochs by K, rows on each GPU and network."""
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
    text = f"""{_lower_bound(forecast["steps_from"])} Assumed, not measured: {rates["InfiniBand"] / 1e9:.0f} GB/s from
    each GPU over InfiniBand (one port of 400 Gb/s for each GPU, data sheet of the NVIDIA ConnectX-7) or
    {rates["NVLink"] / 1e9:.0f} GB/s over NVLink (half of the 900 GB/s of both directions, data sheet of the NVIDIA
    H200; between 64 GPUs this is a bound, since NVLink joins 8 H200 of one machine),
    {1e6 * assumed["hop_seconds"]:.0f} us for each hop of the ring, a tree with {assumed["levels"]} sum layers in which
    {assumed["inner_share"]:.0%} of the columns have children. Binary columns of one byte, one model, plain EM in
    float32. Memory holds {job["rows"] * 8 / 1e9:.0f} GB for the order of the rows. Bytes read are those that all GPUs
    together need for the steps to run without waiting."""
    return f"""## What it says about {_power(job["rows"])} rows x {job["columns"]:,} columns on {job["workers"]} GPUs

{table(heads, body)}

{wrapped(text)}

How many epochs are needed is another question: a step on {_batches(forecast)} rows moves the parameters once, so the
larger the batch, the fewer steps an epoch has.
"""


def _batches(forecast: Row) -> str:
    sizes = sorted({row["rows_per_gpu"] * forecast["job"]["workers"] for row in forecast["epochs"]})
    return f"{sizes[0]:,} to {sizes[-1]:,}"


def _lower_bound(source: str) -> str:
    text = (
        f"The steps are those of one process (`{source}.json`), recorded as a CUDA graph. Workers record two, the "
        "E-step and the M-step, with the all-reduce in between; "
    )
    if not has("parallel_gpu"):
        return text + "how much longer that takes was not measured on a GPU."
    ratios = [row["ratio"]["worker"] for row in load("parallel_gpu")["results"]]
    return text + f"without the network that takes {min(ratios):.2f} to {max(ratios):.2f} times as long."


def limits_section() -> str:
    """What takes longer than the steps."""
    forecast = load("forecast")["results"]
    job, host, assumed = forecast["job"], forecast["host"], forecast["assumptions"]
    steps = [row["training_seconds"] for row in _largest_batches(forecast)]
    parquet = [row["parquet_seconds"] for row in forecast["epochs"]]
    units = [row["units"] for row in forecast["epochs"]]
    body = [
        [
            "reading a Parquet file",
            f"{_seconds(min(parquet))} to {_seconds(max(parquet))} an epoch",
            "a worker decodes all blocks of the windows that its part of a batch comes from; with batches smaller than "
            f"a window, {assumed['window_bytes'] >> 20} MiB of rows, these are all blocks",
            "a mapped array; larger batches; a smaller buffer (`open_stream(buffer=...)`)",
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
            "each worker checks a part of the rows",
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
    opening = f"""The steps of an epoch take {_seconds(min(steps))} (K = {min(units)}) to {_seconds(max(steps))}
    (K = {max(units)}). With one thread for each worker, the host needs:"""
    closing = """All workers must reach all rows, since all draw the same batches; each reads the part of a batch that
    is its own. Validation and test rows are shared among the workers, except those of an iterable, whose order may
    differ between workers. `track=True` measures the curvature of all training rows on every worker when the training
    ends. The files are assumed to be in memory or on disks that deliver the bytes of the table above: a random row of a
    mapped array costs a disk at least one page of 4 KiB."""
    return f"""## Where it breaks

{wrapped(opening)}

{table(["what", "time", "why", "what helps"], body)}

{wrapped(closing)}
{_streams(forecast)}"""


def _streams(forecast: Row) -> str:
    """The rates that were measured from the disk, compared with what the GPUs need."""
    if not has("streams"):
        return ""
    measured = load("streams")["results"]
    rates = [kind["rows_per_second"] for kind in measured["kinds"]]
    needed = [row["rows_per_second"] / forecast["job"]["workers"] for row in _largest_batches(forecast)]
    text = f"""For comparison: a GPU needs {min(needed):,.0f} to {max(needed):,.0f} rows of
    {forecast["job"]["columns"]:,} columns in a second. [Training from the disk](large-data.md#measured) on one CPU
    thread had {min(rates):,.0f} to {max(rates):,.0f} rows of {measured["variables"]} columns in a second, the steps
    included."""
    return f"""
{wrapped(text)}
"""


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
