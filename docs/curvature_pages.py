"""The page of measured curvature: what penalties do, where the trace is with and without smoothing, what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import commands, load, table, wrapped

from circurve.reproduction.page import load_shelves
from circurve.reproduction.summary import Chosen, MeanStd, spread

__all__ = ["curvature_page"]

RESULTS = Path(__file__).parent / "reproduction"

PLAIN, SMOOTHED = "paper", "smoothed"
"""The protocols of the records: without a pseudocount and with one of 0.1."""

SMALL = ("dna", "bbc")
"""Sets of so few rows that plain EM overfits."""

FILES = {
    "What it costs": ["curvature_overhead_cuda", "curvature_overhead"],
    "A training step of each method": ["method_cost", "method_cost_cuda"],
}
"""The result files of the last section."""

Row = dict[str, Any]
Rows = Mapping[str, Mapping[str, Chosen]]


def curvature_page() -> str:
    """Findings, tables and commands."""
    shelves = load_shelves(RESULTS)
    plain, smoothed = (shelves[name].chosen("table-b") for name in (PLAIN, SMOOTHED))
    own = shelves["paper-own"].chosen("table-b")
    costs = measured_costs()
    findings = (
        overfitting(plain),
        trace_finding(plain, smoothed),
        f"Measuring it adds {costs['gpu']} to a full-batch EM step on a GPU, {costs['cpu']} on a CPU.",
    )
    settings = (
        f"{shelves[PLAIN].study('table-b').protocol.in_words()} Means and standard deviations over seeds. Strengths "
        "are chosen by validation likelihood."
    )
    return f"""# Curvature, measured

<!-- written by docs/make_pages.py from docs/reproduction and benchmarks/results; do not edit -->

{chr(10).join(wrapped(f"{n}. {finding}", "   ") for n, finding in enumerate(findings, 1))}

## Overfitting

{likelihoods(plain)}

{wrapped(settings)}

{wrapped(overfitting_reading(plain, own))}

## Where the trace is

The share of sum nodes that hold 99 and 99.99 % of the sum over nodes of T, of the mean of t, and of its geometric mean;
which share of the mean of t comes from edges with weights near zero; and how many pairs of nodes T and t put in
opposite order. Plain EM, means over seeds:

{concentrations({"0": plain, "0.1": smoothed})}

{wrapped(trace_reading(plain, smoothed))}

Edges with weights near zero move the estimators `flow_weighted` and `clipped` far less than the mean of t, and
`geometric` not at all; [notation.md](notation.md) has their definitions and how far one edge can move each. They are
columns of `cc.curvature`'s record, `Gated(estimator=...)` takes its gates from them, and `circurve curvature` shows the
geometric mean, together with the share of the mean of t that such edges make up. `circurve reproduce estimators`
compares all five.

## What it costs

{wrapped(costs_reading(costs))}

A whole training step of each method, its sums, gates and M-step included, against one of plain EM, in batches of 200.
(All these times are of random rows, as many and as wide as those of the sets that are named.)

{method_costs()}

{commands(FILES)}

The records of the first two sections, and the commands that made them, are those of
[the reproduction](reproduction.md), protocols `{PLAIN}` and `{SMOOTHED}`.
"""


def at(chosen: Chosen, epoch: str, name: str = "test_ll") -> MeanStd:
    """A score of the `final` or of the `best` epoch over seeds."""
    return spread([float(record[epoch][name]) for record in chosen.records])  # type: ignore[literal-required]


def gap(row: Mapping[str, Chosen], epoch: str) -> float:
    """Gated minus vanilla, in test log-likelihood."""
    return at(row["gated"], epoch).mean - at(row["vanilla"], epoch).mean


def overfitting(rows: Rows) -> str:
    """What the gated penalty and early stopping do on the small sets."""
    late = " and ".join(f"{gap(rows[name], 'final'):+.1f} nats on {name}" for name in SMALL)
    best = " and ".join(f"{gap(rows[name], 'best'):+.1f} on {name}" for name in SMALL)
    return (
        f"At the last epoch plain EM overfits on small tables, and the gated penalty changes the test likelihood by "
        f"{late}. With the epoch chosen by validation it changes it by {best}."
    )


def overfitting_reading(rows: Rows, own: Rows) -> str:
    """The table in words; own: the same with a latent for every variable."""
    shared, separate = (gap(of["plants"], "final") for of in (rows, own))
    return (
        f"On {' and '.join(SMALL)} plain EM overfits, and both penalties end well above it, as the paper says. The "
        "last column shows what the paper does not: the epoch that validation chooses does more than any penalty "
        f"does there. On plants the gated method changes the test likelihood by {shared:+.2f} against plain EM; the "
        "paper reports no loss. With [a latent for every variable](reproduction.md#both-structures) it is "
        f"{separate:+.2f}."
    )


def likelihoods(rows: Rows) -> str:
    """Train and test log-likelihood by method."""
    heads = ["data", "method", "train LL", "test LL", "test LL at the best validation epoch"]
    body = []
    for dataset, row in rows.items():
        for label, chosen in row.items():
            mu = chosen.method["mu"]
            scores = [("final", "train_ll"), ("final", "test_ll"), ("best", "test_ll")]
            told = [f"{found.mean:.3f} ± {found.std:.3f}" for found in (at(chosen, *score) for score in scores)]
            body.append([dataset, label if mu is None else f"{label}, mu = {mu:g}", *told])
    return table(heads, body)


def measured(rows: Rows, *path: str) -> dict[str, float]:
    """Data set -> a number of the curvature of plain EM, mean over seeds."""
    found = {}
    for dataset, row in rows.items():
        values: list[Any] = row["vanilla"].curvatures()
        for name in path:
            values = [value[name] for value in values]
        found[dataset] = sum(map(float, values)) / len(values)
    return found


def of_total(rows: Rows) -> Sequence[float]:
    """The share of the nodes that holds 99.99 % of T, for each data set."""
    return list(measured(rows, "total", "fractions", "0.9999").values())


def of_local(rows: Rows) -> Sequence[float]:
    """The share of the nodes that holds 99.99 % of the mean of t, for each data set."""
    return list(measured(rows, "local", "fractions", "0.9999").values())


def span(values: Sequence[float]) -> str:
    """From the smallest to the largest, in percent."""
    return f"{min(values):.0%} to {max(values):.0%}"


def trace_finding(plain: Rows, smoothed: Rows) -> str:
    """Where the trace is, with and without smoothing."""
    return (
        f"Where sharpness sits depends on smoothing. With a pseudocount of 0.1, {span(of_total(smoothed))} of the sum "
        f"nodes hold 99.99 % of T, and {span(of_local(smoothed))} hold as much of t. Without one, "
        f"{span(of_total(plain))} hold T and {span(of_local(plain))} hold t."
    )


def trace_reading(plain: Rows, smoothed: Rows) -> str:
    """Which of the paper's numbers these are."""
    shares = list(measured(plain, "floor", "share").values())
    pairs = [share for rows in (plain, smoothed) for share in measured(rows, "reversals").values()]
    geometric = list(measured(plain, "estimates", "geometric", "fractions", "0.9999").values())
    return (
        "The paper finds under 10 % of the nodes for 99.99 % of T, and over 60 % for 99.99 % of t. Our smoothed "
        "circuits are like that, ours without smoothing are not: there, training drives weights to zero, and edges "
        f"with such weights make up at least {min(shares):.2%} of the mean of t, because their ratios "
        "p_c / p_n are enormous in a few samples. An estimate that they cannot move is spread as the paper says even "
        f"then: 99.99 % of the geometric mean needs at least {min(geometric):.1%} of the nodes. That T and t disagree "
        f"holds with smoothing and without: {span(pairs)} of all pairs are reversed."
    )


def concentrations(by_pseudocount: Mapping[str, Rows]) -> str:
    """Which share of the nodes holds which share of T and t, by data set and pseudocount."""
    shares = {
        "T: 99 %": ("total", "fractions", "0.99"),
        "T: 99.99 %": ("total", "fractions", "0.9999"),
        "mean of t: 99 %": ("local", "fractions", "0.99"),
        "mean of t: 99.99 %": ("local", "fractions", "0.9999"),
        "geometric mean: 99.99 %": ("estimates", "geometric", "fractions", "0.9999"),
        "t from weights near zero": ("floor", "share"),
        "reversed pairs": ("reversals",),
    }
    found = {
        (pseudocount, head): measured(rows, *path)
        for pseudocount, rows in by_pseudocount.items()
        for head, path in shares.items()
    }
    nodes = measured(next(iter(by_pseudocount.values())), "sum_nodes")
    body = []
    for dataset in nodes:
        for pseudocount in by_pseudocount:
            told = (f"{found[pseudocount, head][dataset]:.1%}" for head in shares)
            body.append([dataset, pseudocount, f"{nodes[dataset]:,.0f}", *told])
    return table(["data", "pseudocount", "nodes", *shares], body)


def measured_costs() -> dict[str, str]:
    """What curvature adds to a step: spans over the shapes that were measured."""
    gpu, cpu = (load(name)["results"] for name in ("curvature_overhead_cuda", "curvature_overhead"))
    small = {
        runs: [row["ratio"]["curvature"] - 1 for row in cpu if row["batch"] and row["runs"] == runs] for runs in (1, 16)
    }
    return {
        "gpu": span([row["ratio"]["curvature"] - 1 for row in gpu if row["runs"] == 1]),
        "cpu": span([row["ratio"]["curvature"] - 1 for row in cpu if row["batch"] is None]),
        "small": span(small[1]),
        "fleets": span(small[16]),
    }


def costs_reading(costs: Mapping[str, str]) -> str:
    """What curvature costs, in sentences."""
    return (
        f"The sums behind T, t and F^2 add {costs['gpu']} to a full-batch EM step of one run on a GPU with the "
        f"reference backend. On a CPU it is {costs['cpu']}. In steps of 200 rows, where costs that do not depend "
        f"on the rows matter most, it is {costs['small']} for one run on a CPU and {costs['fleets']} for a fleet of "
        "16. The estimators mean_ratio and clipped and the second moments of the exact penalty each need one more "
        "matrix product, and are computed only on request."
    )


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
