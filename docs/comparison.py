"""The table that compares Circurve with other libraries: what each can do, and how long it takes, from result files."""

from __future__ import annotations

from collections.abc import Iterable

from pages import load, table

__all__ = ["comparison", "span"]

HEADS = ["", "Circurve", "PyJuice", "cirkit", "SPFlow"]

ABILITIES = [
    [
        "made for",
        "questions about tables; many models at once; sharpness",
        "very large circuits on a GPU",
        "circuits as algebra: products, squares, expectations",
        "building circuits from many leaf families; learning structure",
    ],
    [
        "structures",
        "hidden Chow-Liu trees, Chow-Liu trees, HMMs, random trees, mixtures, by hand",
        "HCLT, HMM, PD, RAT-SPN, by hand; pruning, growing, merging",
        "region graphs (Chow-Liu, random, images), HMM, tensor factorisations, logic, by hand",
        "LearnSPN, Prometheus, cutset networks, HCLT, RAT-SPN, Einet, convolutional, sums of squares, by hand",
    ],
    [
        "leaf families",
        "6, and your own",
        "7, among them Gaussian, discrete logistic; inputs from networks, soft evidence",
        "categorical, binomial, Gaussian, embeddings, polynomials",
        "15, among them gamma, log-normal, histograms; Chow-Liu trees",
    ],
    [
        "learning",
        "EM, curvature penalties, torch",
        "EM with momentum, gradients",
        "gradients, EM",
        "EM, gradients, structure",
    ],
    ["text, dates, column names, holes", "yes", "numbers, mask of holes", "numbers, mask of holes", "numbers, NaN"],
    [
        "questions beyond marginals, conditionals and samples",
        "intervals, quantiles, moments, most probable completions with a bound, information, explanations",
        "soft evidence",
        "expectations, products and derivatives of circuits; no conditional samples",
        "most probable explanations, intervals, information, weight of evidence",
    ],
    ["exact sharpness by node", "yes", "no", "no", "no"],
    ["seeds and strengths in one pass", "yes", "no", "no", "no"],
    ["scikit-learn", "density, classifier, imputer, outliers", "no", "no", "density, classifier"],
    ["licence", "Apache-2.0", "Apache-2.0", "GPL-3.0", "Apache-2.0"],
]


def comparison() -> str:
    """What each library can do, then its time over that of Circurve."""
    return f"""{table(HEADS, [*ABILITIES, *speeds()])}

{versions()} The last rows are times of the other library divided by those
of Circurve for the same hidden Chow-Liu trees: above 1, Circurve is faster. PyJuice on an H200, the others on 1 or 2
threads of a CPU."""


def speeds() -> list[list[str]]:
    """From the smallest to the largest ratio over all sizes that were measured."""
    cpu = load("cpu_em")["results"]["peers"]
    queries = load("queries")["results"]["sizes"]
    gpu = [size for name in ("queries_cuda", "queries_cuda_many") for size in load(name)["results"]["sizes"]]
    steps = [row for name in ("gpu_em", "gpu_em_large_256", "gpu_em_large") for row in load(name)["results"]["rows"]]
    peers = ("cirkit", "spflow")

    def graph(fleet: bool) -> str:
        return span(row["times_slower"]["graph"] for row in steps if (row["runs"] > 1) is fleet)

    def asked(task: str) -> list[str]:
        on_gpu = span(size[task]["pyjuice"]["times_slower_per_row"] for size in gpu)
        return [on_gpu, *(span(size[task][peer]["times_slower_per_row"] for size in queries) for peer in peers)]

    em = [span(row[peer]["times_slower"] for row in cpu) for peer in peers]
    return [
        ["time of an EM step, one model", "1", graph(fleet=False), *em],
        ["time of an EM step, for each of 16 or 64 models", "1", graph(fleet=True), "", ""],
        ["time of a sample", "1", *asked("sample")],
        ["time of a conditional", "1", *asked("conditional")],
    ]


def span(ratios: Iterable[float]) -> str:
    """`5 to 18`."""
    found = sorted(ratios)
    low, high = (f"{ratio:,.0f}" if ratio >= 2 else f"{ratio:.1f}" for ratio in (found[0], found[-1]))
    return f"{low} to {high}"


def versions() -> str:
    """Which versions were compared."""
    juice = load("gpu_em")["results"]["pyjuice"]["pyjuice"]
    peers = load("cpu_em")["results"]["peers"][0]
    return f"PyJuice {juice}, cirkit {peers['cirkit']['version']}, SPFlow {peers['spflow']['version']}."
