"""Write the tables of measurements into README.md and the pages on questions, estimators and tables.

python docs/make_tables.py

A page has `<!-- NAME: benchmarks/results -->` before and `<!-- end -->` after each part that is written here; the rest
of it is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from comparison import comparison
from pages import RESULTS, load, origin, table

DOCS = Path(__file__).parent
PAGES = ("../README.md", "questions.md", "estimators.md", "tables.md")
PART = re.compile(r"(<!-- ([a-z]+): benchmarks/results -->\n).*?(<!-- end -->\n)", re.DOTALL)

Row = dict[str, Any]


def written(text: str) -> str:
    """A page with all its parts as the result files have them now."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]().strip()}\n\n{found[3]}", text)


def listed(names: Sequence[str]) -> str:
    """Names as part of a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"


def number(value: float) -> str:
    """At least two significant digits, no powers of ten."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def settings(found: Row) -> str:
    """Which rows, which seeds, which machine."""
    results = found["results"]
    return (
        f"Means and standard errors over {results['seeds']} splits, {results['test_share']:.0%} of the rows for "
        f"testing, scikit-learn {results['sklearn']}. {origin(found['environment'])}"
    )


# --- estimators ---


def label(method: str) -> str:
    """A method, or the steps of a pipeline."""
    return method.replace(", ", " + ")


def compare(found: Row, score: str, best: Callable[..., Any]) -> str:
    """A line for each table and a column for each method; the best mean is bold."""
    tables = found["results"]["tables"]
    methods = list(next(iter(tables.values())))
    body = []
    for name, scores in tables.items():
        means = {method: scores[method][score]["mean"] for method in methods if score in scores[method]}
        if not means:
            continue
        first = best(means.values())
        cells = [f"{means[m]:.3f} ± {scores[m][score]['stderr']:.3f}" for m in methods]
        body.append(
            [name, *(f"**{cell}**" if means[m] == first else cell for m, cell in zip(methods, cells, strict=True))]
        )
    return table(["table", *map(label, methods)], body)


def outcome(found: Row, score: str, best: Callable[..., Any], own: str) -> tuple[list[str], list[str]]:
    """The tables on which the circuit has the best mean, and the others, each with the best peer."""
    won, lost = [], []
    for name, scores in found["results"]["tables"].items():
        means = {method: values[score]["mean"] for method, values in scores.items()}
        peer = best((method for method in means if method != own), key=means.__getitem__)
        level = abs(means[own] - means[peer]) <= scores[own][score]["stderr"]
        if means[own] == best(means[own], means[peer]):
            won.append(f"{name} (level with {label(peer)})" if level else name)
        else:
            close = ", level" if level else ""
            lost.append(f"{name} ({means[own]:.3f} against {means[peer]:.3f} of {label(peer)}{close})")
    return won, lost


def verdict(found: Row, score: str, best: Callable[..., Any], own: str) -> str:
    """Where the circuit has the best mean, and where it has not."""
    won, lost = outcome(found, score, best, own)
    behind = f" It is behind on {'; '.join(lost)}." if lost else ""
    return (
        f"The circuit has the best mean on {len(won)} of {len(won) + len(lost)} tables: {listed(won)}.{behind} "
        '"Level" is a difference of at most one standard error.'
    )


def findings() -> str:
    """On how many tables each estimator is best."""
    asked = (
        ("filling holes", "tables_imputation", "rmse", min, "CircuitImputer"),
        ("accuracy of classes", "tables_classification", "accuracy", max, "CircuitClassifier"),
        ("log-loss of classes", "tables_classification", "log_loss", min, "CircuitClassifier"),
        ("densities", "tables_density", "log_likelihood", max, "DensityEstimator"),
    )
    said = []
    for what, file, score, best, own in asked:
        won, lost = outcome(load(file), score, best, own)
        said.append(f"{what} {len(won)} of {len(won) + len(lost)}")
    return f"""3. Compared with tuned estimators of scikit-learn, these are best on some tables and worse on others:
   {listed(said)}.
   They suit mixed columns, clusters and curves; linear methods are better where columns depend on each other linearly,
   and the classifier is often too confident."""


def imputation() -> str:
    """How far filled values are from those that were hidden."""
    found = load("tables_imputation")
    mixed = found["results"]["tables"]["mixed"]
    rates = ", ".join(f"{method} {values['error_rate']['mean']:.3f}" for method, values in mixed.items())
    return f"""{verdict(found, "rmse", min, "CircuitImputer")}

Root mean square error of filled numbers, in units of each column's standard deviation:

{compare(found, "rmse", min)}

Wrong categories in the table `mixed`: {rates}. {settings(found)}"""


def classification() -> str:
    """Accuracy and log-loss."""
    found = load("tables_classification")
    return f"""By accuracy. {verdict(found, "accuracy", max, "CircuitClassifier")}

{compare(found, "accuracy", max)}

By log-loss. {verdict(found, "log_loss", min, "CircuitClassifier")}

{compare(found, "log_loss", min)}

{settings(found)}"""


def density() -> str:
    """Held-out log-likelihood."""
    found = load("tables_density")
    return f"""{verdict(found, "log_likelihood", max, "DensityEstimator")}

Log-likelihood of test rows, in nats:

{compare(found, "log_likelihood", max)}

{settings(found)}"""


# --- questions ---

TASKS = {
    "sample": "samples",
    "conditional": "conditionals",
    "conditional_on_device": "conditionals, rows already on the GPU",
}
PEERS = {"cirkit": "cirkit", "spflow": "SPFlow", "pyjuice": "PyJuice"}


def speed() -> str:
    """Samples and conditionals per second, compared with peers on a CPU and, if it was measured, on a GPU."""
    names = ("queries", "queries_cuda", "queries_cuda_many")
    files = [load(name) for name in names if (RESULTS / f"{name}.json").exists()]
    return "\n\n".join(rates(found) for found in files)


def rates(found: Row) -> str:
    """One machine's table."""
    sizes = found["results"]["sizes"]
    peers = [name for name in PEERS if name in sizes[0]["sample"]]
    body = []
    for task, tasks in TASKS.items():
        for size in (size for size in sizes if task in size):
            cells = [f"{size[task]['circurve']['rows_per_second']:,.0f}"]
            for peer in peers:
                side = size[task][peer]
                cells.append(f"{side['rows_per_second']:,.0f} ({compared(side['times_slower_per_row'])})")
            rows = f"{size[task]['circurve']['rows']:,}"
            body.append([tasks, str(size["variables"]), str(size["states"]), rows, *cells])
    heads = ["per second", "variables", "K", "rows at once", "Circurve", *(PEERS[peer] for peer in peers)]
    return f"{table(heads, body)}\n\n{versions(found['results'])}{origin(found['environment'])}"


def compared(ratio: float) -> str:
    """`29 x slower`, or `2.0 x faster`."""
    return f"{number(ratio)} x slower" if ratio >= 1 else f"{number(1 / ratio)} x faster"


def versions(results: Row) -> str:
    """Which versions of the peers were asked."""
    of_peers = results["sizes"][0].get("versions", {})
    named = [f"{PEERS[name]} {about['version']}" for name, about in of_peers.items()]
    named += [f"PyJuice {results['versions']['pyjuice']}"] if "pyjuice" in results["versions"] else []
    return f"{listed(named)}. " if named else ""


def latency() -> str:
    """Milliseconds of one call of log_prob, by the number of rows."""
    found = load("latency")
    models = found["results"]
    heads = ["rows", *(f"{m['states']} states: {what}" for m in models for what in ("median ms", "fastest ms"))]
    body = []
    for points in zip(*(model["curve"] for model in models), strict=True):
        times = [1e3 * point["numpy"][key] for point in points for key in ("median_seconds", "fastest_seconds")]
        body.append([f"{points[0]['rows']:,}", *map(number, times)])
    one = [1e3 * model["curve"][0]["numpy"]["median_seconds"] for model in models]
    few, first = [str(model["rows_without_backend"]) for model in models], models[0]
    return f"""One row takes {min(one):.2f} to {max(one):.2f} ms. `model.log_prob` of an array, for hidden Chow-Liu
trees of {first["variables"]} variables and {first["hidden_states"]} hidden states, over columns of
{listed([str(m["states"]) for m in models])} states. Up to {listed(few)} rows are computed in numpy; above, a backend
computes them, which takes time to start.

{table(heads, body)}

{origin(found["environment"])}"""


# --- tables ---


def reading() -> str:
    """Seconds to read a CSV file, compared with pandas."""
    found = load("read_csv")
    files = found["results"]["files"]
    body = [
        [
            f["kind"],
            f"{f['rows']:,} x {f['columns']}",
            f["read_by"],
            f"{f['seconds']['circurve']:.2f}",
            f"{f['seconds']['without polars']:.2f}",
            f"{f['seconds']['pandas']:.2f}",
            f"{f['own_reader_seconds_for_a_tenth']:.2f}",
        ]
        for f in files
    ]
    slower = [f for f in files if f["pandas_over_circurve"] < 1]
    behind = [f"{1 / f['pandas_over_circurve']:.1f} times as long as pandas for {f['kind']}" for f in slower]
    ahead = [
        f"{f['pandas_over_circurve']:.1f} times faster than pandas for {f['kind']}" for f in files if f not in slower
    ]
    said = [f"takes {listed(behind)}"] * bool(behind) + [f"is {listed(ahead)}"] * bool(ahead)
    load_average = found["results"]["load_average_5_minutes"]
    busy = ""
    if load_average > found["environment"]["cores"]:
        used = [f"{f['processor_seconds'][side]:.2f}" for f in files for side in ("circurve", "pandas")]
        busy = (
            f"Other programs kept the cores busy (load average {load_average:.1f}), so these seconds do not measure "
            f"either "
            f"reader well. Processor seconds, Circurve and pandas in turn: {listed(used)}. "
        )
    heads = ["numbers", "size", "read by", "seconds", "without polars", "pandas.read_csv", "a tenth without pyarrow"]
    return f"""Reading a CSV file {listed(said)}; every number is checked and put into one table.

{table(heads, body)}

{busy}pandas {found["results"]["versions"]["pandas"]}. {origin(found["environment"])}"""


PARTS: dict[str, Callable[[], str]] = {
    "findings": findings,
    "imputation": imputation,
    "classification": classification,
    "density": density,
    "speed": speed,
    "latency": latency,
    "reading": reading,
    "comparison": comparison,
}


def main() -> None:
    """Write the parts of all pages."""
    for name in PAGES:
        page = DOCS / name
        page.write_text(written(page.read_text()))
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
