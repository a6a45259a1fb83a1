"""Write docs/support.md: what works for which structure on which backend, found by trying it.

python docs/make_support.py
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from pages import table

import circurve as cc
from circurve.engine import Reference
from circurve.engine.cuda import why_not

DOCS = Path(__file__).parent
RANDOM = np.random.default_rng(0)
BINARY = (RANDOM.random((40, 5)) < 0.5).astype(int)
MIXED = np.column_stack([BINARY[:, :3], RANDOM.normal(size=(40, 2))])

Made = tuple[cc.Circuit, Any]
"""A circuit and rows to train it on."""

STRUCTURES: dict[str, Callable[[], Made]] = {
    "hclt, discrete": lambda: (cc.hclt(BINARY, units=3), BINARY),
    "hclt, mixed": lambda: (cc.hclt(MIXED, units=3), MIXED),
    'hclt, leaves="shared"': lambda: (cc.hclt(BINARY, units=3, leaves="shared"), BINARY),
    "hmm": lambda: (cc.hmm(5, units=3), BINARY),
    "mixture": lambda: (cc.mixture(5, components=3), BINARY),
    "random_binary_trees": lambda: (cc.random_binary_trees(5, units=2, repetitions=2), BINARY),
    "chow_liu": lambda: (cc.chow_liu(BINARY), BINARY),
    "fully_factorized": lambda: (cc.fully_factorized(5), BINARY),
    "several outputs": lambda: (several_outputs(), cc.Examples(BINARY, labels=BINARY[:, 0])),
}

GIVEN = {0: 1}
SAVED = "`save`, `load`"

QUERIES: dict[str, Callable[[cc.Model, Any], Any]] = {
    "`fit`": lambda model, rows: cc.fit(model.circuit, rows, epochs=1, valid=False, progress=False),
    '`fit` with `Gated("auto")`': lambda model, rows: cc.fit(
        model.circuit, rows, method=cc.Gated("auto"), epochs=1, valid=rows, progress=False
    ),
    "`log_prob`": lambda model, rows: model.log_prob(np.asarray(rows), memory_budget=1 << 28),
    "gradient of `log_prob`": lambda model, rows: cc.torch_module(model)(torch.tensor(np.array(rows))).sum().backward(),
    "`marginal`": lambda model, rows: model.marginal(GIVEN),
    "`conditional`": lambda model, rows: model.conditional({1: 1}, given=GIVEN),
    "`distribution`": lambda model, rows: model.distribution(1, given=GIVEN),
    "`mean`, `variance`": lambda model, rows: (model.mean(GIVEN), model.variance(GIVEN)),
    "`covariance`": lambda model, rows: model.covariance(GIVEN),
    "`sample`": lambda model, rows: model.sample(3, given=GIVEN, seed=0),
    "`impute`": lambda model, rows: model.impute(GIVEN),
    "`most_probable`": lambda model, rows: model.most_probable(GIVEN),
    "`entropy`": lambda model, rows: model.entropy(draws=100),
    "`explain`": lambda model, rows: model.explain(np.asarray(rows)[:3]),
    "`curvature`": cc.curvature,
    "`hessian`, `top_eigenvalues`": lambda model, rows: cc.hessian(model, rows[:3]),
    SAVED: lambda model, rows: saved(model),
}


def several_outputs() -> cc.Circuit:
    """Two densities over the same inputs, one for each class."""
    inputs = [cc.Input(v, cc.Bernoulli(), units=3) for v in range(5)]
    return cc.Circuit(cc.Sum(cc.Product(inputs), units=2))


def saved(model: cc.Model) -> cc.Model:
    """Written to a file and read again."""
    import tempfile  # noqa: PLC0415 - for this one row

    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.safetensors")
        return cc.load(f"{folder}/model.safetensors")


def trained() -> Iterator[tuple[str, cc.Model, Any]]:
    """A model of every structure."""
    for name, make in STRUCTURES.items():
        circuit, rows = make()
        yield name, cc.fit(circuit, rows, epochs=1, valid=False, progress=False, method=cc.Vanilla(0.1)).model, rows


def answer(ask: Callable[[cc.Model, Any], Any], model: cc.Model, rows: Any) -> str:
    """`exact`, `bound` or `estimate` for an answer, `no` where it is refused."""
    try:
        found = ask(model, rows)
    except (cc.OptionError, cc.DataError, cc.StructureError):
        return "no"
    exact = getattr(found, "exact", True)
    if bool(np.all(exact)):
        return "yes"
    return "bound" if hasattr(found, "bound") else "estimate"


def computed_by(query: str, model: cc.Model, rows: Any) -> str:
    """Whether a question uses the fastest backend of a latent tree, or the reference; nothing for files."""
    if query == SAVED:
        return ""
    fast = type(model.backend)
    assert not issubclass(fast, Reference)
    used = []
    with contextlib.ExitStack() as stack:
        for name in ("log_prob", "statistics"):
            original = getattr(fast, name)

            def spy(self: Any, *given: Any, original: Any = original, **options: Any) -> Any:
                used.append(True)
                return original(self, *given, **options)

            stack.enter_context(mock.patch.object(fast, name, spy))
        with contextlib.suppress(cc.CircurveError):
            QUERIES[query](model, rows)
    return "fastest" if used else "reference"


def backends(models: Mapping[str, cc.Model]) -> str:
    """What computes each structure on a CPU and on a GPU."""
    rows = []
    for name, model in models.items():
        reason = why_not(model.program, torch.device("cuda"), torch.float32)
        rows.append([name, model.backend.name, "fused" if reason is None else f"reference: {reason}"])
    return table(["structure", "on a CPU", "on a CUDA device, float32"], rows)


def grouped(heads: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Structures with the same answers in one column; the first two columns stay as they are."""
    columns: dict[tuple[str, ...], list[str]] = {}
    for head, *answers in zip(heads[2:], *(row[2:] for row in rows), strict=True):
        columns.setdefault(tuple(answers), []).append(head)
    joined = [
        [question, backend, *answers]
        for (question, backend, *_), answers in zip(rows, zip(*columns, strict=True), strict=True)
    ]
    return [*heads[:2], *("; ".join(names) for names in columns.values())], joined


def support_page() -> str:
    """The whole page."""
    with contextlib.redirect_stderr(io.StringIO()):
        made = list(trained())
        latent_tree = made[0]
        rows = [
            [query, computed_by(query, *latent_tree[1:]), *(answer(ask, model, rows) for _, model, rows in made)]
            for query, ask in QUERIES.items()
        ]
        places = backends({name: model for name, model, _ in made})
    return f"""# What works where

<!-- written by docs/make_support.py, which tries everything; do not edit -->

1. Every structure can be trained, scored, differentiated, measured and saved, on a CPU and on a GPU.
2. Questions by column name need a circuit with one output; for several outputs, `circurve.queries` takes labels.
3. Training, curvature and scores use the fastest backend of a structure; most questions use the reference backend.

## Structures and backends

What `backend="auto"` selects. `backend="reference"` works everywhere, on every device, in float32 and float64.

{places}

The fused kernels need Triton and compute in float32; in float64 a GPU uses the reference backend.

## Structures and questions

*yes*: it works, and an answer is exact. *bound*: the best answer found, with a bound on how far the optimum can be.
*estimate*: a mean over draws with its standard error (entropies of up to 65,536 joint values are exact). *no*: refused
with an error. Structures with the same answers share a column. The second column says what computes the passes up
for a hidden Chow-Liu tree (a few rows are scored in numpy, without a backend).

{table(*grouped(["question", "backend", *(name for name, _, _ in made)], rows))}
"""


def main() -> None:
    """Write the page."""
    (DOCS / "support.md").write_text(support_page())
    print("wrote support.md")


if __name__ == "__main__":
    main()
