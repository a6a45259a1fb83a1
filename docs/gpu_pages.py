"""The GPU part of the performance page: tables and pictures from the result files of the GPU benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pages import load, table

from circurve.plots.style import SMALL_FONT, colour, entitle, grid_of_panels

__all__ = ["GPU_FILES", "gpu_section"]

Row = dict[str, Any]

AXES = {"samples": "samples", "variables": "variables", "units": "units K", "runs": "models in a fleet"}

EM_FILES = ("gpu_em", "gpu_em_large_256", "gpu_em_large")

GPU_FILES = {
    "EM on a GPU": EM_FILES,
    "Precision": ("gpu_precision",),
    "How close to the machine": ("roofline", "roofline_512", "roofline_fleets"),
    "What bounds a fleet": ("fleet_limits",),
    "Scaling": ("scaling",),
}
"""The result files of each section."""

CURVATURE = "curvature_in_turns"
"""What a step takes that also measures the curvature, over the plain one; only where the two were timed in turns."""

TICKS = (0.3, 1, 3, 10, 30, 100, 300)


def gpu_section(images: Path) -> str:
    """Everything that was measured on a GPU; its pictures are written to `images`."""
    files = [load(name) for name in EM_FILES]
    found, rows = files[0], [row for file in files for row in file["results"]["rows"]]
    precision, roofline, scaling = load("gpu_precision"), load("roofline"), load("scaling")
    wide, fleets = load("roofline_512"), load("roofline_fleets")
    near = newest(roofline["results"]["rows"], wide["results"]["rows"]) + fleets["results"]["rows"]
    draw_scaling(scaling["results"]["axes"]).savefig(images / "scaling.png", dpi=150)
    draw_speed(found["results"]["rows"]).savefig(images / "gpu_em.png", dpi=150)
    return f"""## EM on a GPU

Milliseconds of one mini-batch EM step for each model, compared with PyJuice
{found["results"]["pyjuice"]["pyjuice"]} on the same circuit and batches. K is the number of units; the
column "models" is how many models were trained at once.

![Times faster than PyJuice, by fleet size and batch](images/gpu_em.png)

{speeds(rows)}

A step includes its parameter update, as `fit` runs it: the whole step is one CUDA graph. PyJuice runs in the same
process, without and with its own CUDA graph. It trains one model at a time, so its time for a model of a fleet is that
for one model. It computes with its defaults: products in bfloat16 in the forward pass and in tf32 in the backward pass
where K suits its tensor cores. {extensions(found["results"])}

{limits(rows)}

Compiling the circuit, memory at the peak of one run, and the largest relative difference of log-likelihoods and of
counts from those of Circurve in float64 on the same parameters, PyJuice with float32 forced (its forward products are
tf32 then) and with its defaults:

{sides(rows)}

With K = 100 PyJuice does not use its tensor-core path; with other K it does, and the two differ more.

### Precision

The difference from float64 after 20 epochs of training: the norm of the difference over the norm, of the worst layer.

{errors(precision["results"])}

`precision="float32"` is the default. On tensor cores it takes three tf32 products that restore float32; `"tf32"` takes
one of them. {tf32_gain(near)}

### How close to the machine

A step takes at least the time of its arithmetic at the rate of large matrix products, and at least the time of its
memory traffic at the rate of a copy. The larger of the two is the bound, and the table shows its share of the measured
time.

{shares(near)}

The machine copies
{roofline["results"]["rates"]["copy"] / 1e12:.1f} TB/s and multiplies large matrices at
{roofline["results"]["rates"]["float32"] / 1e12:.0f} TFLOP/s in float32 and
{roofline["results"]["rates"]["tf32"] / 1e12:.0f} in tf32; the last two columns are what its library reaches for batched
products as small as those of the circuit. Over 100 % of the float32 bound is possible because three tf32 products are
faster than one in float32.
{fleet_limits(rows)}
### Scaling

One full-batch step around {base(scaling["results"]["base"])}, one size varied at a time; buffers are held to
{scaling["results"]["memory_gib"]:g} GiB, beyond which the batch is cut into chunks.

![Time and memory against samples, variables, units and fleet size](images/scaling.png)

{slopes(scaling["results"]["axes"])}
"""


def extensions(results: Row) -> str:
    """Which of the peer's own CUDA extensions took part."""
    missing = [name for name, there in results["pyjuice"]["extensions"].items() if not there]
    if not missing:
        return "All its optional CUDA extensions were compiled."
    return (
        f"Its optional CUDA extensions ({', '.join(missing)}) need a compiler; here Triton kernels were used instead."
    )


def speeds(rows: Sequence[Row]) -> str:
    """Milliseconds per step and model, of both sides."""
    heads = ["circuit", "K", "batch", "models", "ms per model", "PyJuice", "with graph", "times faster"]
    measured = any(CURVATURE in row for row in rows)
    body = []
    for row in rows:
        ours, peer = row["ours"], row["pyjuice"]
        if "error" in ours:
            continue
        body.append(
            [
                row["case"],
                str(row["units"]),
                str(row["batch"]),
                str(row["runs"]),
                f"{1e3 * ours['seconds_per_step'] / row['runs']:.3g}",
                *(milliseconds(peer.get(name, {})) for name in ("plain", "graph")),
                f"{row['times_slower']['graph']:.1f}" if "graph" in row["times_slower"] else "-",
                *([f"{row[CURVATURE] - 1:+.0%}" if CURVATURE in row else "-"] if measured else []),
            ]
        )
    return table([*heads, "curvature adds"] if measured else heads, body)


def milliseconds(side: Row) -> str:
    return f"{1e3 * side['seconds_per_step']:.3g}" if "seconds_per_step" in side else "-"


def limits(rows: Sequence[Row]) -> str:
    """What limits the speed of the smallest model and of fleets of small models."""
    one = next(row for row in rows if row["case"] == "nltcs" and row["batch"] == 200 and row["runs"] == 1)
    fleet = next(row for row in rows if row["case"] == "plants" and row["batch"] == 200 and row["runs"] == 64)
    seconds, units = one["ours"]["seconds_per_step"], fleet["units"]
    return f"""One small model is bound by waiting: the {1e6 * seconds:.0f} us of a step of nltcs at batch 200 are
kernels that need each other's results, level after level. Fleets fill the machine. There, products of {units} units
fill {units}² of the 128² entries that a block of the tensor cores has, and every operand is rounded, split and stored
again on its way."""


def fleet_limits(speeds: Sequence[Row]) -> str:
    """Where the time of a fleet's step goes; `speeds` are the rows compared with PyJuice."""
    found = load("fleet_limits")
    rows = [row for row in found["results"]["rows"] if "error" not in row]
    heads = ["circuit", "kernel", "us", "copy of as many bytes", "library, float32", "library, tf32"]
    body = []
    for row in rows:
        body.append([row["case"], "whole step", f"{1e6 * row['seconds_per_step']:.0f}", "", "", ""])
        for kernel in row["kernels"]:
            bound, library = kernel["copy_seconds"], kernel["library_seconds"] or {}
            if bound is not None:
                others = (f"{1e6 * library[name]:.0f}" if name in library else "" for name in ("float32", "tf32"))
                body.append(["", kernel["kernel"], f"{1e6 * kernel['seconds']:.0f}", f"{1e6 * bound:.0f}", *others])
    first = found["results"]["rows"][0]
    return f"""
### What bounds a fleet

Microseconds of the main kernels in a step of {first["runs"]} models at batch {first["batch"]}, compared with a copy of
as many bytes as each must read and write, and with the vendor's batched products of the same size. Some kernels run
side by side.

{table(heads, body)}

{" ".join(products_alone(row, speeds) for row in rows)}
"""


def products_alone(fleet: Row, speeds: Sequence[Row]) -> str:
    """How fast a step could be if it computed only the vendor's float32 products."""
    key = ("case", "batch", "runs")
    compared = next(row for row in speeds if all(row[name] == fleet[name] for name in key))
    peer = compared["pyjuice"]["graph"]["seconds_per_step"] * fleet["runs"]
    library = sum(kernel["library_seconds"]["float32"] for kernel in fleet["kernels"] if kernel["library_seconds"])
    return (
        f"For {fleet['case']}, a step that computed only the vendor's three float32 products would take "
        f"{1e6 * library:,.0f} us, {peer / library:.0f} times less than PyJuice needs for {fleet['runs']} models; "
        f"ours, with everything, takes {1e6 * fleet['seconds_per_step']:,.0f}."
    )


def sides(rows: Sequence[Row]) -> str:
    heads = [
        "circuit",
        "compile s",
        "PyJuice",
        "memory MB",
        "PyJuice",
        "log-likelihoods",
        "counts",
        "as it comes",
        "counts",
    ]
    body = []
    for row in rows:
        peer = row["pyjuice"]
        if row["runs"] != 1 or "agreement" not in peer or row["case"] in {line[0] for line in body}:
            continue
        keys = ("log_likelihood_float32", "counts_float32", "log_likelihood_default", "counts_default")
        memory = [side.get("peak_bytes", 0) / 1e6 for side in (row["ours"], peer["graph"])]
        body.append(
            [
                row["case"],
                f"{row['ours']['compile_seconds']:.2f}",
                f"{peer['compile_seconds']:.1f}",
                *(f"{value:,.0f}" for value in memory),
                *(f"{peer['agreement'][key]:.0e}" for key in keys),
            ]
        )
    return table(heads, body)


def errors(rows: Sequence[Row]) -> str:
    names = {"log_likelihood": "log-likelihoods", "counts": "counts", "trace": "trace", "total": "T", "local": "t"}
    heads = ["data", "path", *names.values()]
    return table(heads, [[row["data"], row["path"], *(f"{row[name]:.0e}" for name in names)] for row in rows])


def tf32_gain(rows: Sequence[Row]) -> str:
    """How much faster one product is than three, as a reason for the default."""
    times = {(row["case"], row["batch"], row["runs"], row["precision"]): row.get("seconds_per_step") for row in rows}
    gains = [
        exact / times[(*size, "tf32")]
        for (*size, precision), exact in times.items()
        if precision == "float32" and exact and times.get((*size, "tf32"))
    ]
    return (
        f"In the {len(gains)} configurations of the next section it takes between {1 / max(gains):.0%} and "
        f"{1 / min(gains):.0%} of the time: much of it goes into moving data."
    )


def newest(rows: Sequence[Row], later: Sequence[Row]) -> list[Row]:
    """Rows, with those that were measured again in their places."""
    again = {tuple(row[name] for name in ("case", "batch", "runs", "precision")): row for row in later}
    return [again.get(tuple(row[name] for name in ("case", "batch", "runs", "precision")), row) for row in rows]


def shares(rows: Sequence[Row]) -> str:
    heads = ["circuit", "K", "batch", "models", "precision", "ms", "TFLOP/s", "TB/s", "of the float32 bound"]
    heads += ["of the tf32 bound", "batched float32", "batched tf32"]
    body = []
    for row in rows:
        if "share" not in row:
            continue
        rates = row["batched_matmul"]
        body.append(
            [
                row["case"],
                *(str(row[name]) for name in ("units", "batch", "runs", "precision")),
                f"{1e3 * row['seconds_per_step']:.3g}",
                f"{row['flops_per_second'] / 1e12:.1f}",
                f"{row['bytes_per_second'] / 1e12:.2f}",
                *(f"{row['share'][name]:.0%}" for name in ("float32", "tf32")),
                *(f"{rates[name] / 1e12:.0f}" if name in rates else "-" for name in ("float32", "tf32")),
            ]
        )
    return table(heads, body)


def slopes(axes: dict[str, Row]) -> str:
    """Slopes on logarithmic axes."""
    heads = ["varied", "from", "to", "slope of time", "upper half", "slope of memory", "upper half"]
    body = []
    for name, axis in axes.items():
        values = [row[name] for row in axis["rows"] if "seconds_per_step" in row]
        found = [axis["slopes"][kind][part] for kind in ("seconds_per_step", "peak_bytes") for part in ("all", "upper")]
        body.append([AXES[name], f"{values[0]:,}", f"{values[-1]:,}", *(f"{slope:.2f}" for slope in found)])
    return table(heads, body)


def base(size: Row) -> str:
    return f"{size['samples']:,} samples of {size['variables']} variables, K = {size['units']}, one model"


def draw_scaling(axes: dict[str, Row]) -> Figure:
    """A panel for each size: time on the left axis, memory on the right, all logarithmic."""
    figure, panels = grid_of_panels(len(axes), height=2.2)
    for panel, (name, axis) in zip(panels, axes.items(), strict=True):
        rows = [row for row in axis["rows"] if "seconds_per_step" in row]
        sizes = [row[name] for row in rows]
        right = panel.twinx()
        panel.loglog(sizes, [1e3 * row["seconds_per_step"] for row in rows], "o-", color=colour("gated"), ms=3)
        right.loglog(sizes, [row["peak_bytes"] / 1e9 for row in rows], "s--", color=colour("global"), ms=3)
        panel.set_xlabel(AXES[name], fontsize=SMALL_FONT)
        panel.set_ylabel("ms per step", fontsize=SMALL_FONT, color=colour("gated"))
        right.set_ylabel("memory, GB (dashed)", fontsize=SMALL_FONT, color=colour("global"))
        right.tick_params(labelsize=SMALL_FONT)
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
        panel.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.set_ylim(0.5, 400)
        right.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        right.set_ylim(0.2, 20)
        for ax in (panel, right):
            ax.minorticks_off()
            ax.spines["top"].set_visible(False)
    return figure


def draw_speed(rows: Sequence[Row]) -> Figure:
    """Times faster than PyJuice against the size of the fleet, one panel for each circuit, one line for each batch."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, panels = grid_of_panels(len(cases), height=1.9)
    fleets = sorted({row["runs"] for row in rows})
    for panel, case in zip(panels, cases, strict=True):
        of_case = [row for row in rows if row["case"] == case and "graph" in row["times_slower"]]
        for method, batch in zip(
            ("gated", "global", "vanilla"), sorted({row["batch"] for row in of_case}), strict=False
        ):
            line = [row for row in of_case if row["batch"] == batch]
            times = [row["times_slower"]["graph"] for row in line]
            panel.loglog([row["runs"] for row in line], times, "o-", ms=3, color=colour(method), label=f"batch {batch}")
        panel.set_xticks(fleets, [str(runs) for runs in fleets])
        panel.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
        panel.set_ylim(1, 130)
        panel.minorticks_off()
        panel.legend(fontsize=SMALL_FONT, frameon=False, loc="lower right")
        panel.set_xlabel("models in a fleet", fontsize=SMALL_FONT)
        panel.set_ylabel("times faster than PyJuice", fontsize=SMALL_FONT)
        entitle(panel, case)
    return figure
