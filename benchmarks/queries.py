"""Single-target conditionals per second and samples per second on hidden Chow-Liu trees, compared with other libraries.

    python benchmarks/queries.py --peers-python peers/bin/python        # cirkit and SPFlow, on a CPU
    python benchmarks/queries.py --device cuda --pyjuice wheels         # PyJuice, on a GPU

`peers_cpu.py` and `pyjuice_peer.py` say how to install the peers. All sides answer the same questions with trees of the
same size, random parameters and the same number of threads; turns alternate, and a ratio is the median over turns.

    sample       rows from the joint distribution
    conditional  log p(x_v | all others), for a column of each row's own, as the difference of two marginals; from
                 integers on the host, and on a GPU also from what is on the device already

A peer that cannot hold all rows at once is asked for fewer, and its time is that of the smaller number: rates are per
row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import interleaved, medians, ratio_in_turns, write_result
from peers_cpu import sample_data

import circurve as cc
from circurve.data import as_table, check
from circurve.engine import compile
from circurve.learning.initialize import initial_params
from circurve.queries import Evidence, Target, conditional, make_evidence, no_evidence, sample

SIZES = ("16x16", "16x100", "100x32")
TASKS = ("sample", "conditional")
PEER_ROWS = {
    "sample": {"cirkit": 25, "spflow": 1000},
    "conditional": {"cirkit": 1000, "spflow": 500},
}
"""Rows that peers on a CPU are asked for at once, about as many as suit them best and fit into memory."""

FOLDER = Path(__file__).parent


@cache
def questions(variables: int, rows: int) -> tuple[np.ndarray, np.ndarray]:  # (N, V), (N,)
    """Rows, and the column that is asked for in each."""
    return sample_data(rows, variables, seed=1), np.random.default_rng(2).integers(0, variables, rows)


class Circurve:
    """A hidden Chow-Liu tree with random parameters, asked for coded rows."""

    def __init__(self, variables: int, states: int, device: str) -> None:
        data = sample_data(2000, variables, seed=0)
        circuit = cc.hclt(data, units=states)
        program = compile(circuit)
        table = check(as_table(data), circuit.families)
        self.target = Target.of(program, initial_params(program, 0, table).to(device, torch.float32))
        self.variables = variables

    def sample(self, rows: int) -> object:
        return sample(self.target, no_evidence(self.target), rows)

    def conditional_on_device(self, rows: int) -> object:
        """A conditional whose evidence and question are already on the device."""
        return conditional(self.target, *self._evidence(rows))

    def conditional(self, rows: int) -> object:
        """From integers on the host to log-probabilities, as for the peers."""
        return conditional(self.target, *self._evidence.__wrapped__(self, rows))

    @cache  # noqa: B019 - a benchmark has few of these objects
    def _evidence(self, rows: int) -> tuple[Evidence, Evidence]:
        data, column = questions(self.variables, rows)
        known = make_evidence(self.target, check(as_table(data), self.target.program.circuit.families))
        asked = torch.zeros_like(known.observed)
        asked[0, torch.from_numpy(column), torch.arange(rows)] = 1
        return Evidence(known.x, asked), Evidence(known.x, known.observed - asked)


class Process:
    """A peer in a process of its own (`query_peers.py`)."""

    def __init__(self, python: str, peer: str, size: str, threads: int) -> None:
        command = [python, str(FOLDER / "query_peers.py"), peer, size, "--threads", str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=FOLDER
        )
        self.about: dict[str, str] = json.loads(self._read())

    def ask(self, task: str, rows: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{task} {rows}\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with exit code {self._process.wait()}")
        return line

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


class PyJuice:
    """PyJuice's own hidden Chow-Liu tree on a GPU; it is a smaller model (see `pyjuice_peer.hclt`)."""

    def __init__(self, variables: int, states: int) -> None:
        import pyjuice
        from pyjuice_peer import Peer, hclt

        device = torch.device("cuda")
        self._queries = pyjuice.queries
        states_of_inputs = pyjuice.distributions.Categorical(num_cats=2)  # its marginals do not know Bernoulli
        nodes = hclt(sample_data(2000, variables, seed=0), states, device, states_of_inputs)
        self._circuit = Peer(nodes, device).circuit
        self._variables, self._device = variables, device

    def sample(self, rows: int) -> object:
        return self._queries.sample(self._circuit, num_samples=rows)

    def conditional_on_device(self, rows: int) -> object:
        return self._difference(*self._rows(rows))

    def conditional(self, rows: int) -> object:
        return self._difference(*self._rows.__wrapped__(self, rows))

    @cache  # noqa: B019
    def _rows(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        data, column = questions(self._variables, rows)
        x, at = torch.from_numpy(data).to(self._device).long(), torch.from_numpy(column).to(self._device)
        return x, torch.zeros_like(x, dtype=torch.bool).scatter_(1, at[:, None], True)

    def _difference(self, x: torch.Tensor, hidden: torch.Tensor) -> object:
        whole = self._circuit(x).clone()
        return whole - self._queries.marginal(self._circuit, x, missing_mask=hidden)


def compare(sides: Mapping[str, tuple[Callable[[int], object], int]], repeats: int) -> dict[str, Any]:
    """Seconds and rates of all sides in turns. sides: what to call, and with how many rows."""
    times = interleaved({name: partial(call, rows) for name, (call, rows) in sides.items()}, repeats)
    rows = {name: count for name, (_, count) in sides.items()}
    found: dict[str, Any] = {
        name: {"rows": rows[name], "seconds": median, "rows_per_second": rows[name] / median}
        for name, median in medians(times).items()
    }
    for name in [name for name in sides if name != "circurve"]:
        per_row = ratio_in_turns(times[name], times["circurve"]) * rows["circurve"] / rows[name]
        found[name]["times_slower_per_row"] = per_row
    return found


def on_cpu(size: str, arguments: argparse.Namespace) -> dict[str, Any]:
    variables, states = map(int, size.split("x"))
    own = Circurve(variables, states, "cpu")
    peers = {name: Process(arguments.peers_python, name, size, arguments.threads) for name in arguments.peers}
    result: dict[str, Any] = {"variables": variables, "states": states}
    for task in TASKS:
        sides: dict[str, tuple[Callable[[int], object], int]] = {"circurve": (getattr(own, task), arguments.rows)}
        for name, peer in peers.items():
            rows = PEER_ROWS[task][name]
            sides[name] = (partial(peer.ask, task), rows)
        result[task] = compare(sides, arguments.repeats)
        print(size, task, json.dumps(result[task]), flush=True)
    for peer in peers.values():
        peer.close()
    return result | {"versions": {name: peer.about for name, peer in peers.items()}}


def on_gpu(size: str, arguments: argparse.Namespace) -> dict[str, Any]:
    variables, states = map(int, size.split("x"))
    sides = {"circurve": Circurve(variables, states, "cuda")}
    if arguments.pyjuice:
        sides["pyjuice"] = PyJuice(variables, states)
    result: dict[str, Any] = {"variables": variables, "states": states}
    for task in (*TASKS, "conditional_on_device"):
        calls = {name: (getattr(side, task), arguments.rows) for name, side in sides.items()}
        result[task] = compare(calls, arguments.repeats)
        print(size, task, json.dumps(result[task]), flush=True)
    return result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="variables x states")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", nargs="+", choices=("cirkit", "spflow"), default=["cirkit", "spflow"])
    parser.add_argument("--peers-python", help="the Python of an environment with cirkit and SPFlow")
    parser.add_argument("--pyjuice", type=Path, nargs="+", help="folders and wheels of PyJuice and what it needs")
    parser.add_argument("--out", type=Path, help="folder of the result file")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    name, versions = "queries", {}
    if arguments.device == "cuda":
        name = "queries_cuda"
        if arguments.pyjuice:
            from pyjuice_peer import make_importable

            versions = make_importable(arguments.pyjuice)
        results = [on_gpu(size, arguments) for size in arguments.sizes]
    else:
        if not arguments.peers_python:
            arguments.peers = []
        results = [on_cpu(size, arguments) for size in arguments.sizes]
    print(write_result(name, {"versions": versions, "sizes": results}, arguments.out))


if __name__ == "__main__":
    main()
