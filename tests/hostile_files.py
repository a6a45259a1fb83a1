"""Files that say more than they hold: models whose headers or structures ask for far more than their size."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

Arrays = dict[str, np.ndarray]


def model_bytes(nodes: list[dict[str, Any]], arrays: Arrays, roots: list[int], **more: Any) -> bytes:
    """A model file of these node records and tensors, with checksums that are right."""
    checksum = 0
    for array in arrays.values():
        checksum = zlib.crc32(np.ascontiguousarray(array), checksum)
    structure = {"format": "circurve", "version": 1, "roots": roots, "tensors_crc32": checksum, "nodes": nodes, **more}
    return with_metadata(json.dumps(structure, separators=(",", ":")), arrays)


def with_metadata(structure: str, arrays: Arrays, extra: str = "{}") -> bytes:
    """A file with these texts as its metadata."""
    checksum = zlib.crc32(extra.encode(), zlib.crc32(structure.encode()))
    return save(arrays, {"circurve": structure, "extra": extra, "crc32": str(checksum)})


def coin(**more: Any) -> dict[str, Any]:
    return {"kind": "input", "units": 1, "variable": 0, "family": {"name": "bernoulli"}, **more}


def one_coin(**more: Any) -> bytes:
    """A whole model of one input; `more` are further entries of the structure."""
    return model_bytes([coin()], {"parameters.0": np.full((1, 1), 0.5)}, [0], **more)


def many_binomials(count: int = 100) -> bytes:
    """Inputs of one variable, each with another huge number of trials, under one sum."""
    nodes = [coin(family={"name": "binomial", "trials": 2**24 - k}) for k in range(count)]
    nodes.append({"kind": "sum", "units": 1, "children": list(range(count))})
    arrays = {f"parameters.{k}": np.full((1, 1), 0.5, np.float32) for k in range(count)}
    return model_bytes(nodes, {**arrays, f"weights.{count}": np.full((1, count), 1 / count, np.float32)}, [count])


def select_chain(units: int = 100_000, length: int = 200) -> bytes:
    """A selection of many units, and products of one child each above it, which need no tensors at all."""
    nodes: list[dict[str, Any]] = [coin(), {"kind": "product", "units": units, "children": [0], "select": [0]}]
    nodes += [{"kind": "product", "units": units, "children": [k + 1]} for k in range(length)]
    arrays = {"parameters.0": np.full((1, 1), 0.5), "select.1.0": np.zeros(units, np.int64)}
    return model_bytes(nodes, arrays, [length + 1])


def many_states() -> bytes:
    """An input that declares 2^24 states, and holds the probability of one."""
    node = coin(family={"name": "categorical", "states": 2**24})
    return model_bytes([node], {"parameters.0": np.ones((1, 1), np.float32)}, [0])


def wide_products(inputs: int = 100, units: int = 4_000, products: int = 400) -> bytes:
    """Products that all read the same wide inputs: a few bytes for each child, `units` edges in memory."""
    nodes = [coin(variable=v, units=units) for v in range(inputs)]
    nodes += [{"kind": "product", "units": units, "children": list(range(inputs))}] * products
    roots = list(range(inputs, inputs + products))
    return model_bytes(nodes, {f"parameters.{v}": np.full((units, 1), 0.5, np.float32) for v in range(inputs)}, roots)


MEASURE = """
import json, resource, sys, time
import circurve as cc
from circurve.data import read_table
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, start = most(), time.process_time()
try:
    kept = cc.load(sys.argv[2]) if sys.argv[1] == "model" else read_table(sys.argv[2])
    message = None
except cc.CircurveError as error:
    message = f"{type(error).__name__}: {error}"
print(json.dumps([message, time.process_time() - start, (most() - before) * 1024]))
"""


def measure(kind: str, path: Path, limit: int = 4 << 30) -> tuple[str | None, float, int]:
    """What loading a "model" or a "table" says in a process of its own, its CPU seconds, and the memory it took."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit + (8 << 30), limit + (8 << 30)))

    done = subprocess.run(
        [sys.executable, "-c", MEASURE, kind, str(path)], capture_output=True, text=True, check=True, preexec_fn=bounded
    )
    message, seconds, memory = json.loads(done.stdout)
    return message, seconds, memory
