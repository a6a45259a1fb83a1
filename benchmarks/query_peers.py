"""Conditionals and samples of the peers, cirkit and SPFlow, on a CPU, as a process that answers one line at a time.

`queries.py` starts it with the Python of an environment of its own (see peers_cpu.py). It builds a hidden Chow-Liu tree
of the same data and the same size, prints a line with its versions, and then, for each line "TASK ROWS" on its standard
input, does that task and prints the seconds it took.

    sample       ROWS rows from the joint distribution
    conditional  log p(x_v | all others) of ROWS rows, each for a column of its own: two marginals

All parameters are random. Both peers flush subnormal numbers and use the same number of threads as Circurve.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import metadata

import numpy as np
import torch
from peers_cpu import Case, build_spflow, hclt_in_cirkit, sample_data
from torch import Tensor

Task = Callable[[int], object]
TASKS = ("sample", "conditional")


@cache
def questions(variables: int, rows: int) -> tuple[Tensor, Tensor]:  # (N, V), (N,)
    """Rows, and the column that is asked for in each."""
    data = torch.from_numpy(sample_data(rows, variables, seed=1))
    return data, torch.from_numpy(np.random.default_rng(2).integers(0, variables, rows))


def cirkit_tasks(variables: int, states: int) -> dict[str, Task]:
    """Folded, and fused where its sampling allows that."""
    from cirkit.backend.torch.queries import IntegrateQuery, SamplingQuery
    from cirkit.pipeline import PipelineContext
    from cirkit.templates.region_graph import ChowLiuTree

    data = torch.from_numpy(sample_data(2000, variables, seed=0))
    parents = ChowLiuTree(data, "categorical", num_categories=2, as_region_graph=False)
    symbolic = hclt_in_cirkit(parents, states)
    evaluated, sampled = (
        PipelineContext(backend="torch", semiring="lse-sum", fold=True, optimize=optimize).compile(symbolic)
        for optimize in (True, False)
    )
    integrate, draw = IntegrateQuery(evaluated), SamplingQuery(sampled)

    def conditional(rows: int) -> Tensor:
        x, column = questions(variables, rows)
        hidden = torch.zeros_like(x, dtype=torch.bool).scatter_(1, column[:, None], True)
        return evaluated(x).flatten() - integrate(x, integrate_vars=hidden).flatten()

    return {"sample": draw, "conditional": conditional}


def spflow_tasks(variables: int, states: int) -> dict[str, Task]:
    case = Case("spflow", 2000, variables, states, "default", True, 1, 0, 0, 0, 0.0)
    model = build_spflow(case).module

    def conditional(rows: int) -> Tensor:
        x, column = questions(variables, rows)
        whole = x.float()
        rest = whole.scatter(1, column[:, None], torch.nan)
        return torch.cat([(model.log_likelihood(w) - model.log_likelihood(r)).flatten() for w, r in parts(whole, rest)])

    return {"sample": lambda rows: model.sample(num_samples=rows), "conditional": conditional}


def parts(whole: Tensor, rest: Tensor) -> zip[tuple[Tensor, Tensor]]:
    """At most 1000 rows at once: more need too much memory."""
    return zip(whole.split(1000), rest.split(1000), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=("cirkit", "spflow"))
    parser.add_argument("size", help="variables x states")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    variables, states = map(int, arguments.size.split("x"))
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    tasks = (cirkit_tasks if arguments.peer == "cirkit" else spflow_tasks)(variables, states)
    package = {"cirkit": "libcirkit", "spflow": "spflow"}[arguments.peer]
    print(json.dumps({"version": metadata.version(package), "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        task, rows = line.split()
        start = time.perf_counter()
        with torch.no_grad():
            tasks[task](int(rows))
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
