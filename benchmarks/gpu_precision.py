"""How far float32 and tf32 on a GPU are from float64: log-likelihoods, counts, input statistics, curvature sums.

python benchmarks/gpu_precision.py --data-dir DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import write_result
from peers_cpu import sample_data
from torch import Tensor

import circurve as cc
from circurve.data import Table, prepare
from circurve.engine import Backend, Batch, Params, Reference, Request, Statistics, choose_backend, compile

CASES = {"nltcs": (16, 100), "plants": (69, 100), "bbc": (1058, 128)}
ALL = Request(curvature=True, mean_ratio=True, second_moment=True, flow_weighted=True, squared_ratio=True)
PATHS = {
    "reference, float32": ("reference", "float32"),
    "fused, float32": ("fused", "float32"),
    "fused, tf32": ("fused", "tf32"),
}


def error(found: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """The norm of the difference over the norm, of the worst layer."""
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))


def errors(found: Statistics, exact: Statistics) -> dict[str, float]:
    ours, truth = found.curvature, exact.curvature
    assert ours is not None
    assert truth is not None
    names = ("flow_squared", "local", "total", "ratio", "second_moment")
    return {
        "log_likelihood": float(((found.log_likelihood - exact.log_likelihood) / exact.log_likelihood).abs().max()),
        "counts": error(found.counts, exact.counts),
        "inputs": error(found.inputs, exact.inputs),
        **{name: error(getattr(ours, name), getattr(truth, name)) for name in names},
        "trace": float(((ours.trace() - truth.trace()) / truth.trace()).abs().max()),
    }


def sums(backend: Backend, params: Params, table: Table) -> Statistics:
    return backend.statistics(params, [Batch.rows(table, 0, len(table), params.dtype)], ALL)


def measure(name: str, data_dir: Path | None, rows: int, epochs: int) -> list[dict[str, Any]]:
    """Errors with parameters of a short training: those of the start are too smooth to show anything."""
    variables, units = CASES[name]
    data = sample_data(2000, variables, seed=0) if data_dir is None else cc.load_dataset(name, data_dir).train
    circuit = cc.hclt(data, units=units)
    model = cc.fit(circuit, data, epochs=epochs, device="cuda", progress=False).model
    program = compile(circuit)
    table = prepare(data[:rows], circuit, "check").to(model.device)
    exact = model.params.to(dtype=torch.float64)
    truth = sums(Reference.of(program, exact), exact, table)
    found = []
    for label, (backend, precision) in PATHS.items():
        chosen = choose_backend(program, model.params, backend, precision)  # type: ignore[arg-type]
        row = {"data": name, "units": units, "rows": rows, "epochs": epochs, "path": label}
        found.append(row | errors(sums(chosen, model.params, table), truth))
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, help="a folder with the DEBD files; else random data")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    rows = [row for name in CASES for row in measure(name, arguments.data_dir, arguments.rows, arguments.epochs)]
    print(f"written to {write_result('gpu_precision', rows, arguments.out)}")


if __name__ == "__main__":
    main()
