"""The page about what training costs at any size: the cost model, its check, and what workers exchange.

A part of the page whose result file is not there is left out.
"""

from __future__ import annotations

from typing import Any

from pages import has, load, origin, table, wrapped
from scaling_forecast import forecast_findings, limits_section, predictions_section

__all__ = ["scaling_page"]

Row = dict[str, Any]

STEPS = {
    "cost_model_cuda": "random sizes, one GPU",
    "cost_of_benchmarks": "sizes of the GPU benchmarks",
    "cost_model_cpu": "random sizes, one CPU thread",
}
PLACES = {
    "cost_model_cuda": "random sizes on a GPU",
    "cost_of_benchmarks": "sizes of the GPU benchmarks",
    "cost_model_cpu": "random sizes on one CPU thread",
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


def scaling_page() -> str:
    """docs/scaling.md."""
    findings = "\n".join(wrapped(f"{number}. {text}", "   ") for number, text in enumerate(_findings(), 1))
    forecast = (predictions_section(), limits_section()) if has("forecast") else ()
    parts = (_formula(), _checks(), _network(), *forecast, _origins())
    sections = "\n".join(part for part in parts if part)
    return f"""# What training costs, at any size

<!-- written by docs/make_pages.py from benchmarks/results; do not edit -->

{findings}

{sections}"""


def _files() -> dict[str, Row]:
    return {name: load(name) for name in STEPS if has(name)}


def _findings() -> list[str]:
    return [_finding_of_checks(), *(forecast_findings() if has("forecast") else [])]


def _finding_of_checks() -> str:
    """How good the formula is on sizes that it was not fitted to."""
    said = []
    for name, file in _files().items():
        for kind, fit in file["results"]["fits"].items():
            if kind != "memory":
                check = fit["errors"]["check"]
                within = round(check["within_20_percent"] * check["sizes"])
                way = " step by step" if (name, kind) == ("cost_model_cuda", "plain") else ""
                errors = f"(median error {check['median']:.0%})"
                said.append(f"{within} of {check['sizes']} {PLACES[name]}{way} {errors}")
    seen = " We revised the formula after seeing its errors at the sizes of the benchmarks"
    seen += ", before the random sizes on a GPU were measured." if has("cost_model_cuda") else "."
    return (
        "A formula with seven constants predicts the seconds of an EM step. Of the sizes that were held out of its "
        f"fit, it is within 20 % at {', at '.join(said)}."
        f"{seen if has('cost_of_benchmarks') else ''}"
    )


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
    edges = [fit["constants"]["per_edge"] for *_, fit in fits]
    rates = ", ".join(f"{6e-9 / seconds:,.0f}" if seconds else "unknown" for seconds in edges)
    text = f"""## The formula

A step of R runs of a hidden Chow-Liu tree over V binary columns with K units, on N rows. I of the columns have children
in the tree; the other ones are computed once for each value, not for each row. L is the number of sum layers, one after
the other. K' is K rounded up to a multiple of 16. The seconds of a step are the sum of constants times sizes:

{table(heads, body)}

`per_level` is what launching and waiting cost, `per_weight` the M-step, `per_cell` and `per_value` memory traffic,
`per_edge` the arithmetic, 6 operations in each: {rates} GFLOP/s.
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
    text = """Constants are fitted to two thirds of the sizes, with the least squares of the relative errors, and none
    is negative. Every third size is held out: of random sizes in the order in which they were drawn, of the benchmarks'
    sizes sorted by columns, units, runs and rows. The forms of the formulas were not chosen blindly: those of the
    steps, of memory and of the tree were each revised once after the errors of a first form had been seen at all sizes,
    that of the steps then by cross-validation over the sizes of the fit."""
    if has("cost_model_cuda"):
        text += " The random sizes on a GPU were measured after that."
    return f"""## The check

{wrapped(text)}

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
        else f"""The speed-up by the clock was not measured: other work ran on the machine (load average
        {results["load_average_before"]:.0f} on 2 cores). CPU seconds leave out the time that workers wait for each
        other."""
    )
    text = f"""The speed-up is the time of one process for all rows over the time of one of the two for half of them,
    exchange included; the last column is the part of a worker's time that the exchange leaves for the rows. {note}"""
    return f"""## What workers exchange

Once in a step, workers add up their statistics with one all-reduce: a number for each weight, two for each input unit
of a binary column and four for each run, as float64,

    bytes = 8 R ((V - 1) K² + K + 2 V K + 4).

A ring of M workers sends 2 (M - 1) / M of that from each to the next in 2 (M - 1) hops. Validation and test rows are
shared too, and add 16 bytes for each run to an epoch. Two processes with one thread each on gloo:

{table(heads, body)}

{wrapped(text)}
{_exchange()}"""


def _exchange() -> str:
    """The seconds of an all-reduce by its bytes, and how far the formula is off."""
    if not has("network_cost"):
        return ""
    found = load("network_cost")["results"]
    check = found["errors"]["check"]
    sizes = [row["bytes"] for row in found["rows"]]
    text = f"""Fitted to
    {found["errors"]["fit"]["sizes"]} exchanges of {min(sizes) / 1e6:.2g} to {max(sizes) / 1e6:.0f} MB between
    {found["workers"]} processes of one machine on gloo, a hop takes {1e6 * found["hop_seconds"]:.0f} us and
    {found["bytes_per_second"] / 1e9:.1f} GB travel in a second. Of {check["sizes"]} exchanges that were held out,
    {round(check["sizes"] * check["within_20_percent"])} are within 20 % (median error {check["median"]:.0%}, largest
    {check["largest"]:.0%}). The way of timing was changed twice after its errors had been seen: small messages
    are sent many times in a row, because the time of a single one varied by more than the formula may be off, and then
    each size took more turns."""
    return f"""
The seconds of an exchange are those of its hops and of its bytes:

    seconds = 2 (M - 1) (hop + bytes / M / bandwidth).

{wrapped(text)}
"""


def _origins() -> str:
    names = [*STEPS, "parallel_cost", "network_cost", "host_cost", "forecast"]
    lines = "\n".join(f"- {origin(load(name)['environment'])}" for name in names if has(name))
    text = """Times on a CPU are CPU seconds of one thread, medians over turns: other work on the machine disturbs
them less than the clock, and caches and memory are still shared. Times on a GPU are those between CUDA events."""
    if has("cost_of_benchmarks"):
        sources = load("cost_of_benchmarks")["results"]["sources"]
        text += " The sizes of the GPU benchmarks are those of these result files: "
        text += ", ".join(f"`{name}.json`" for name in sources)
        text += f", measured on {_machines(sources.values())}."
    if has("host_cost"):
        host = load("host_cost")["results"]
        check = host["tree"]["errors"]["check"]
        text += (
            f" The tree's formula has a median error of {check['median']:.0%} on its {check['sizes']} held-out sizes, "
            f"the largest is {check['largest']:.0%}."
        )
    return f"""## How it was measured

{wrapped(text)}

{lines}
"""


def _machines(environments: Any) -> str:
    return " and ".join(dict.fromkeys(each.get("gpu", each["cpu"]) for each in environments))
