"""Files that say more than they hold: models whose headers or structures ask for far more than their size."""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

Arrays = dict[str, np.ndarray]

LOADER = Path(__file__).with_name("load_file.py")


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


HALF, ONE = np.full((1, 1), 0.5, np.float32), np.ones((1, 1), np.float32)


def product_chain(length: int = 90_000) -> bytes:
    """Products of one child each, one above the other: the nodes that take the fewest bytes."""
    nodes = [coin(), *({"kind": "product", "units": 1, "children": [k]} for k in range(length))]
    return model_bytes(nodes, {"parameters.0": HALF}, [length])


def sum_chain(length: int = 60_000, masked: bool = False, wrong: bool = False) -> bytes:
    """Sums of one child each, in turns of float32 and float64. wrong: the weights of the last one sum to two."""
    more = {"mask": True} if masked else {}
    nodes = [coin(), *({"kind": "sum", "units": 1, "children": [k], **more} for k in range(length))]
    arrays = {"parameters.0": HALF}
    for k in range(1, length + 1):
        arrays[f"weights.{k}"] = (2 * ONE if wrong and k == length else ONE).astype("f4" if k % 2 else "f8")
        if masked:
            arrays[f"mask.{k}"] = np.ones((1, 1), bool)
    return model_bytes(nodes, arrays, [length])


def selections(length: int = 60_000) -> bytes:
    """Products of one child each, with a selection of its only unit."""
    nodes = [coin(), *({"kind": "product", "units": 1, "children": [k], "select": [0]} for k in range(length))]
    chosen = {f"select.{k + 1}.0": np.zeros(1, np.int64) for k in range(length)}
    return model_bytes(nodes, {"parameters.0": HALF, **chosen}, [length])


def distinct_families(count: int = 45_000, shared: bool = False) -> bytes:
    """A layer for each input: binomials of different trials, of one variable or of one each."""
    nodes = [coin(variable=0 if shared else k, family={"name": "binomial", "trials": k + 1}) for k in range(count)]
    arrays = {f"parameters.{k}": HALF for k in range(count)}
    if shared:
        arrays[f"weights.{count}"] = np.full((1, count), 1 / count, np.float32)
    kind = "sum" if shared else "product"
    return model_bytes([*nodes, {"kind": kind, "units": 1, "children": list(range(count))}], arrays, [count])


def repeated_child(count: int = 1_000_000) -> bytes:
    """A sum that names the same child again and again."""
    nodes = [coin(), {"kind": "sum", "units": 1, "children": [0] * count}]
    return model_bytes(nodes, {"parameters.0": HALF, "weights.1": np.full((1, count), 1 / count, np.float32)}, [1])


def wide_schema(columns: int = 30_000, twice: bool = False) -> bytes:
    """A column of the schema for each input. twice: the last two have the same name."""
    nodes = [coin(variable=k) for k in range(columns)]
    nodes.append({"kind": "product", "units": 1, "children": list(range(columns))})
    names = [f"c{k}" for k in range(columns - 1)]
    names.append(names[-1] if twice else "last")
    listed = [{"name": name, "kind": "boolean", "family": {"name": "bernoulli"}} for name in names]
    arrays = {f"parameters.{k}": HALF for k in range(columns)}
    return model_bytes(nodes, arrays, [columns], schema={"columns": listed})


def many_categories(count: int = 700_000) -> bytes:
    """One column of this many texts."""
    family = {"name": "categorical", "states": count}
    column = {"name": "a", "kind": "category", "categories": [f"k{k}" for k in range(count)], "family": family}
    share = np.full((1, count), 1 / count, np.float32)
    return model_bytes([coin(family=family)], {"parameters.0": share}, [0], schema={"columns": [column]})


def many_arrays(count: int = 30_000) -> bytes:
    """An .npz file of arrays of one number each."""
    one = io.BytesIO()
    np.save(one, np.zeros((1, 1)))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for k in range(count):
            archive.writestr(f"a{k}.npy", one.getvalue())
    return content.getvalue()


def measure(kind: str, path: Path, limit: int = 4 << 30) -> tuple[str | None, float, int]:
    """What loading a "model" or a "table" says in a process of its own, its CPU seconds, and its memory at the peak."""

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit + (8 << 30), limit + (8 << 30)))

    done = subprocess.run(
        [sys.executable, str(LOADER), kind, str(path)], capture_output=True, text=True, check=True, preexec_fn=bounded
    )
    message, seconds, memory = json.loads(done.stdout)
    return message, seconds, memory
