"""Parts of the performance page on mixtures, on shared leaves, and on the first fit of a process on a GPU."""

from __future__ import annotations

from typing import Any

from pages import has, load, table

__all__ = ["MORE_FILES", "first_fit_section", "leaves_section", "mixture_section"]

Row = dict[str, Any]

MORE_FILES = {
    "Mixtures": ("mixture", "mixture_cuda"),
    "Shared leaves": ("leaves", "leaves_cuda"),
    "The first fit of a process": ("first_fit",),
}
"""The result files of each section; those that are not there are left out."""


def _there(section: str) -> list[Row]:
    return [load(name) for name in MORE_FILES[section] if has(name)]


def _machine(file: Row) -> str:
    environment = file["environment"]
    return str(environment["gpu"]) if environment["command"].count("--device cuda") else "CPU"


def mixture_section() -> str:
    """The time of a mixture over that of its members one by one."""
    tasks = {
        "log_prob": "scores",
        "e_step": "E-step",
        "e_step_with_curvature": "with curvature",
        "steps_of_200": "steps of 200 rows",
        "steps_of_2048": "steps of 2,048 rows",
    }
    trees = {"same": "one tree", "bootstrap": "resampled trees"}
    body = [
        [
            _machine(file),
            row["data"],
            str(row["units"]),
            trees[row["trees"]],
            *(f"{row[task]['mixture_over_members']:.2f}" for task in tasks),
        ]
        for file in _there("Mixtures")
        for row in file["results"]
    ]
    members = {row["members"] for file in _there("Mixtures") for row in file["results"]}
    return f"""## Mixtures

The time of a mixture of {", ".join(map(str, sorted(members)))} hidden Chow-Liu trees, divided by that of its
members one after the other, measured in turns: below 1, the mixture is faster. Resampled trees are those of rows drawn
with replacement, which differ from each other. A step is a training step, M-step included.

{table(["machine", "data", "K", "members", *tasks.values()], body)}
"""


def leaves_section() -> str:
    """Steps and scores of circuits with shared leaves over those with a latent for every column."""
    tasks = {"steps": "steps", "steps_with_curvature": "with curvature", "log_prob": "scores"}
    body = [
        [
            _machine(file),
            row["data"],
            str(row["units"]),
            str(row["batch"]),
            *(f"{row['sum_units'][kind]:,}" for kind in ("own", "shared")),
            *(f"{row[task]['shared_over_own']:.2f}" for task in tasks),
        ]
        for file in _there("Shared leaves")
        for row in file["results"]
    ]
    heads = ["machine", "data", "K", "batch", "sum units, own", "shared", *tasks.values()]
    return f"""## Shared leaves

With `leaves="shared"`, a column without children in the tree has no hidden variable of its own, so the circuit has
fewer sum units. The last columns are its time divided by that of `leaves="own"`, measured in turns. The difference is
small because sums right above leaves are computed once for each value of a column, not for each row.

{table(heads, body)}
"""


def first_fit_section() -> str:
    """Seconds of the first fit in a new process with an empty cache."""
    if not has("first_fit"):
        return ""
    file = load("first_fit")
    body = [
        [
            row["shape"],
            f"{row['rows']:,} x {row['columns']:,}",
            str(row["hidden_states"]),
            f"{row['first_seconds']:.1f}",
            f"{row['ahead_seconds']:.1f}",
            f"{row['second_seconds']:.2f}",
            str(row["kernels"]),
        ]
        for row in file["results"]
    ]
    heads = ["shape of", "rows x columns", "K", "first fit, s", "of it for kernels, s", "second fit, s", "kernels"]
    return f"""## The first fit of a process

Seconds of `cc.fit` for one epoch with a score, in a new process whose cache of compiled kernels is empty, and of the
same call again. Kernels are compiled at the same time, in processes of their own; here on
{file["environment"]["cores"]} cores. Later processes find them in the cache.

{table(heads, body)}
"""
