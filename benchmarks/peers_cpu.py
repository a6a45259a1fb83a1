"""Seconds per full-batch EM step of the peers, cirkit and SPFlow, on CPU.

The model is a hidden Chow-Liu tree: one latent variable with `states` states per observed binary variable, so V - 1
transition tables of K x K, one prior and V x K inputs. Both peers get the same data and learn the tree with their own
Chow-Liu code; each starts from random parameters of its own.

Each case runs in a process of its own with a limit on its memory. Two ways of running the peers are measured:

- tuned: subnormal numbers flushed to zero, several settings of the C allocator and, for cirkit, several sizes of a
  chunk; the fastest is the result, the times of all are recorded with it.
- plain (`--plain`): as a user runs them, all samples at once and nothing set.

Every step starts from the same parameters: after a few steps in a row SPFlow's turn NaN.

    python3 -m venv peers && peers/bin/pip install torch==2.13.0 libcirkit spflow
    peers/bin/python benchmarks/peers_cpu.py > peers.json

This file needs only numpy to be imported; `sample_data` gives the very same data to other libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

SIZES = ("16181x16x16", "16181x16x64", "2000x200x16", "2000x200x64")
PACKAGES = {"cirkit": "libcirkit", "spflow": "spflow"}

# Page faults of fresh memory can cost more than the arithmetic, above all in a virtual machine. `retain` never gives
# memory back, so that a warm step has none, but it wastes memory on holes between aligned blocks; so does `default` for
# blocks below 32 MiB. `mapped` wastes none and faults most: it is for those cases that do not fit otherwise.
RETAIN = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
MAPPED = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
ALLOCATORS = {"retain": RETAIN, "default": {}, "mapped": MAPPED}


@dataclass(frozen=True)
class Case:
    """One measurement: what to run and how long."""

    peer: str
    samples: int
    variables: int
    states: int
    allocator: str
    plain: bool  # all samples at once, nothing tuned
    threads: int
    seed: int
    warmup: int
    repeats: int
    seconds: float  # warm-up and timed steps end early, each, once this much time is spent on them


@dataclass(frozen=True)
class Peer:
    """A model of a peer on its data, behind the two things this benchmark asks for."""

    step: Callable[[int], None]  # one full-batch EM step, this many samples at a time
    log_likelihood: Callable[[], float]  # mean over the samples
    module: Any  # the torch module that holds the parameters
    chunks: tuple[int, ...]  # sizes of a chunk worth trying


def sample_data(samples: int, variables: int, seed: int) -> np.ndarray:  # -> (N, V) of 0 and 1
    """Draw from a random Markov tree: a fair root, each variable its parent flipped with 0.2."""
    random = np.random.default_rng(seed)
    data = np.empty((samples, variables), dtype=np.int64)
    data[:, 0] = random.integers(0, 2, samples)
    for variable in range(1, variables):
        parent = random.integers(variable)
        data[:, variable] = data[:, parent] ^ (random.random(samples) < 0.2)
    return data


def hclt_in_cirkit(parents: np.ndarray, states: int) -> Any:
    """Hidden Chow-Liu tree as a symbolic circuit; `parents[v]` is -1 for the root.

    cirkit's own templates on this tree are not this model: `cp` adds a sum layer to every input and `cp-t` leaves out
    the transition to every leaf of the tree. Parameters are plain probabilities: its EM is wrong under its softmax.
    """
    from cirkit.symbolic.circuit import Circuit
    from cirkit.symbolic.layers import CategoricalLayer, HadamardLayer, SumLayer
    from cirkit.templates.utils import Parameterization, parameterization_to_factory
    from cirkit.utils.scope import Scope

    probabilities = parameterization_to_factory(Parameterization(activation="none", initialization="dirichlet"))
    children: list[list[int]] = [[] for _ in parents]
    for variable, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(variable)
    order = [int(np.argmin(parents))]
    for variable in order:
        order.extend(children[variable])

    layers, inputs, messages = [], {}, {}
    for variable in reversed(order):
        top = CategoricalLayer(Scope([variable]), states, num_categories=2, probs_factory=probabilities)
        layers.append(top)
        if children[variable]:
            factors = [top, *(messages[child] for child in children[variable])]
            top = HadamardLayer(states, arity=len(factors))
            layers.append(top)
            inputs[top] = factors
        units = 1 if variable == order[0] else states
        messages[variable] = message = SumLayer(states, units, weight_factory=probabilities)
        layers.append(message)
        inputs[message] = [top]
    return Circuit(layers, inputs, [messages[order[0]]])


def build_cirkit(case: Case) -> Peer:
    """cirkit with folding and fusing on, and its own EM optimiser at step size 1.

    A step is a forward and a backward pass for each chunk, which add up the flows of the sum weights and of the inputs
    (weight * gradient), then one normalising update.
    """
    import torch
    from cirkit.backend.torch.em_optimizer import EM
    from cirkit.pipeline import PipelineContext
    from cirkit.templates.region_graph import ChowLiuTree

    data = torch.from_numpy(sample_data(case.samples, case.variables, case.seed))
    parents = ChowLiuTree(data, "categorical", num_categories=2, as_region_graph=False)
    context = PipelineContext(backend="torch", semiring="lse-sum", fold=True, optimize=True)
    circuit = context.compile(hclt_in_cirkit(parents, case.states))
    optimiser = EM(circuit, lr=1.0, pseudocount=1e-6)

    def step(chunk: int) -> None:
        optimiser.zero_grad()
        for part in data.split(chunk):
            circuit(part).sum().backward()
        optimiser.step()

    @torch.no_grad()
    def log_likelihood() -> float:
        return sum(circuit(part).sum().item() for part in data.split(256)) / case.samples

    chunks = tuple(-(-case.samples // 2**halvings) for halvings in range(5))
    return Peer(step, log_likelihood, circuit, chunks)


def build_spflow(case: Case) -> Peer:
    """SPFlow's HCLT with Bernoulli leaves and its own `expectation_maximization`.

    A step is a forward and a backward pass over all samples, then a walk over the modules that computes each update
    from the values and gradients kept. It has no chunks: the batched variant updates after each batch, which is
    another algorithm.
    """
    import torch
    from spflow.learn.expectation_maximization import expectation_maximization
    from spflow.modules.sums import Sum
    from spflow.zoo.hclt.learn import learn_hclt_binary

    data = torch.from_numpy(sample_data(case.samples, case.variables, case.seed)).float()
    model = learn_hclt_binary(data, num_hidden_cats=case.states, init="uniform")
    # init="random" would give every transition a single output, so variables would be independent.
    for module in model.modules():
        if isinstance(module, Sum):
            weights = torch.rand(module.weights_shape) + 1e-3
            module.weights = weights / weights.sum(dim=module.sum_dim, keepdim=True)

    def step(_chunk: int) -> None:
        expectation_maximization(model, data, max_steps=1)

    @torch.no_grad()
    def log_likelihood() -> float:
        return sum(model.log_likelihood(part).sum().item() for part in data.split(256)) / case.samples

    return Peer(step, log_likelihood, model, chunks=(case.samples,))


def measure(case: Case) -> dict[str, Any]:
    """Build, warm up, choose the size of a chunk, time the steps and check that they are EM."""
    import torch

    torch.set_num_threads(case.threads)
    torch.set_flush_denormal(not case.plain)
    torch.manual_seed(case.seed)
    peer = {"cirkit": build_cirkit, "spflow": build_spflow}[case.peer](case)
    initial = [parameter.detach().clone() for parameter in peer.module.parameters()]

    def timed(chunk: int) -> tuple[float, float]:  # seconds, seconds of the processor
        for parameter, value in zip(peer.module.parameters(), initial, strict=True):
            parameter.data.copy_(value)
        start, start_cpu = time.perf_counter(), time.process_time()
        peer.step(chunk)
        return time.perf_counter() - start, time.process_time() - start_cpu

    def repeat(chunk: int, steps: int) -> list[tuple[float, float]]:
        times = [timed(chunk)]
        while len(times) < steps and sum(wall for wall, _ in times) < case.seconds:
            times.append(timed(chunk))
        return times

    before = peer.log_likelihood()
    chunks = (case.samples,) if case.plain else peer.chunks
    fastest = {chunk: min(repeat(chunk, case.warmup)) for chunk in chunks}
    chunk = min(fastest, key=lambda size: fastest[size])
    times = repeat(chunk, case.repeats)
    after = peer.log_likelihood()
    if not after > before:
        return {"status": f"not EM: log-likelihood {before} became {after}"}
    return {
        "status": "ok",
        "version": metadata.version(PACKAGES[case.peer]),
        "torch": torch.__version__,
        "parameters": sum(value.numel() for value in initial),
        "chunk": chunk,
        "seconds_by_chunk": {str(size): wall for size, (wall, _) in fastest.items()},
        "seconds_per_step": statistics.median(wall for wall, _ in times),
        "seconds": [wall for wall, _ in times],
        "cpu_seconds": [cpu for _, cpu in times],
        "log_likelihood_before": before,
        "log_likelihood_after": after,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def run_worker(case: Case) -> None:
    # Where the machine runs out before the limit does, this process is the one to go.
    Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        result = measure(case)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        result = {"status": "out of memory"}
    print(json.dumps(result))


def run_case(case: Case, memory_gib: float, timeout: float) -> dict[str, Any]:
    limit = int(memory_gib * 2**30)
    try:
        process = subprocess.run(
            [sys.executable, __file__, "--worker", json.dumps(asdict(case))],
            check=False,
            env=os.environ | ALLOCATORS[case.allocator] | {"OMP_NUM_THREADS": str(case.threads)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return {"status": f"no result in {timeout:g} s"}
    if process.returncode == -9 or "bad_alloc" in process.stderr or "MemoryError" in process.stderr:
        return {"status": "out of memory"}
    if process.returncode:
        return {"status": f"failed: {process.stderr.strip().splitlines()[-1]}"}
    return json.loads(process.stdout.splitlines()[-1])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="samples x variables x states")
    parser.add_argument("--allocators", nargs="+", choices=ALLOCATORS, default=list(ALLOCATORS))
    parser.add_argument("--plain", action="store_true", help="as a user runs them: all samples at once, nothing tuned")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=6, help="untimed steps at most")
    parser.add_argument("--repeats", type=int, default=7, help="timed steps at most")
    parser.add_argument("--seconds", type=float, default=60, help="time for either kind of steps, at most")
    parser.add_argument("--memory-gib", type=float, default=20, help="address space of a case")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for a whole case")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.worker:
        run_worker(Case(**json.loads(arguments.worker)))
        return
    shared = {name: getattr(arguments, name) for name in ("plain", "threads", "seed", "warmup", "repeats", "seconds")}
    allocators = ["default"] if arguments.plain else arguments.allocators
    results = []
    for peer in arguments.peers:
        for size in arguments.sizes:
            shape = dict(zip(("samples", "variables", "states"), map(int, size.split("x")), strict=True))
            tried, times = {}, {}
            for allocator in allocators:
                if allocator == "mapped" and any(result["status"] == "ok" for result in tried.values()):
                    continue
                case = Case(peer=peer, allocator=allocator, **shape, **shared)
                tried[allocator] = result = run_case(case, arguments.memory_gib, arguments.timeout)
                times[allocator] = result.get("seconds_per_step", result["status"])
                print(peer, size, allocator, times[allocator], file=sys.stderr)
            best = min(tried, key=lambda name: tried[name].get("seconds_per_step", float("inf")))
            results.append({"peer": peer, **shape, "allocator": best, **tried[best], "allocators": times})
    settings = {"cores": os.cpu_count(), "memory_gib": arguments.memory_gib, **shared}
    print(json.dumps({**settings, "results": results}, indent=1))


if __name__ == "__main__":
    main()
