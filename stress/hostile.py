"""Hostile and ordinary files at full size: what each takes in memory and time, compared with what it may take.

    PYTHONPATH=src python stress/hostile.py

Each file is loaded in a process of its own, three times; the largest growth of its memory and its median CPU time
count. The record goes to stress/results/hostile_files.json.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import statistics
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import torch
from pyarrow import ipc, parquet

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
import circurve as cc  # noqa: E402
from circurve.bounds import SECONDS_PER_BYTE, allowed_bytes  # noqa: E402
from circurve.persistence import write_model  # noqa: E402
from circurve.reproduction.plan import describe_environment, portable_command  # noqa: E402
from hostile_files import (  # noqa: E402
    distinct_families,
    many_arrays,
    many_binomials,
    many_categories,
    many_states,
    measure,
    product_chain,
    repeated_child,
    select_chain,
    selections,
    sum_chain,
    wide_products,
    wide_schema,
)

RESULT = HERE / "results" / "hostile_files.json"
ROWS = 30_000_000
"""The rows of tables that a few kilobytes describe."""

REPEATS = 3


def packed_array() -> bytes:
    """An .npz of 4 GB of zeros, written piece by piece."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (1 << 30, 4)})
    content = io.BytesIO()
    with (
        zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train.npy", "w", force_zip64=True) as file,
    ):
        file.write(header.getvalue())
        for _ in range(256):
            file.write(bytes(1 << 24))
    return content.getvalue()


def packed_text(line: bytes, repeats: int) -> bytes:
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as file:
        block = line * 10_000
        for _ in range(repeats):
            file.write(block)
    return content.getvalue()


def batches() -> Iterator[pa.RecordBatch]:
    zeros = pa.array(np.zeros(1_000_000))
    for _ in range(ROWS // 1_000_000):
        yield pa.record_batch({"a": zeros, "b": zeros})


def parquet_of_zeros() -> bytes:
    sink = pa.BufferOutputStream()
    parts = list(batches())
    with parquet.ParquetWriter(sink, parts[0].schema) as writer:
        for part in parts:
            writer.write_batch(part)
    return bytes(sink.getvalue().to_pybytes())


def arrow_of_zeros() -> bytes:
    sink = pa.BufferOutputStream()
    parts = list(batches())
    with ipc.new_file(sink, parts[0].schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        for part in parts:
            writer.write_batch(part)
    return bytes(sink.getvalue().to_pybytes())


def wide(suffix: str, columns: int, parts: int = 1) -> bytes:
    """A table of one row for each part (row group or record batch), in as few bytes as possible."""
    table = pa.table({str(k): np.zeros(parts, np.int8) for k in range(columns)})
    sink = pa.BufferOutputStream()
    if suffix == ".parquet":
        plain = {"write_statistics": False, "use_dictionary": False, "compression": "none", "store_schema": False}
        parquet.write_table(table, sink, row_group_size=1, **plain)
    else:
        with ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1)
    return bytes(sink.getvalue().to_pybytes())


def named(columns: int, field: bytes) -> bytes:
    """Three lines of text: the names of columns, and two rows of this field."""
    row = b",".join([field] * columns) + b"\n"
    return b",".join(b"c%d" % k for k in range(columns)) + b"\n" + row + row


def text(rows: int, columns: int, words: list[str]) -> bytes:
    """An ordinary table of random words, without a header."""
    picks = np.random.default_rng(0).integers(0, len(words), (rows, columns))
    table = np.array(words)[picks]
    return ("\n".join(",".join(row) for row in table.tolist()) + "\n").encode()


def deep_chain(variables: int = 20_000) -> bytes:
    """The model file of a chain with a layer for each variable."""
    node: cc.Input | cc.Sum = cc.Input(0, cc.Bernoulli(), 2)
    for variable in range(1, variables):
        node = cc.Sum(cc.Product([node, cc.Input(variable, cc.Bernoulli(), 2)]), 2)
    circuit = cc.Circuit(node)
    blocks = {cc.Sum: torch.full((2, 2), 0.5), cc.Input: torch.full((2, 1), 0.5)}
    with TemporaryDirectory() as folder:
        given = {n: blocks[type(n)] for n in circuit.nodes if not isinstance(n, cc.Product)}
        write_model(Path(folder) / "m", circuit, given)
        return (Path(folder) / "m").read_bytes()


WORDS = [f"w{k}" for k in range(50)]
NUMBERS = [str(k) for k in range(12)]

CASES: dict[str, tuple[str, str, str, Callable[[], bytes]]] = {
    "100 binomials of 2^24 trials": ("hostile", "model", ".safetensors", many_binomials),
    "2^24 states declared": ("hostile", "model", ".safetensors", many_states),
    "200 products of 100,000 selected units": ("hostile", "model", ".safetensors", select_chain),
    "400 products that share wide inputs": ("hostile", "model", ".safetensors", wide_products),
    "90,000 products in a chain": ("hostile", "model", ".safetensors", product_chain),
    "250,000 products in a chain": ("hostile", "model", ".safetensors", lambda: product_chain(250_000)),
    "50,000 sums in a chain": ("hostile", "model", ".safetensors", lambda: sum_chain(50_000)),
    "150,000 sums in a chain": ("hostile", "model", ".safetensors", lambda: sum_chain(150_000)),
    "35,000 sums with masks in a chain": ("hostile", "model", ".safetensors", lambda: sum_chain(35_000, masked=True)),
    "50,000 sums, the last one wrong": ("hostile", "model", ".safetensors", lambda: sum_chain(50_000, wrong=True)),
    "50,000 selections in a chain": ("hostile", "model", ".safetensors", lambda: selections(50_000)),
    "35,000 families": ("hostile", "model", ".safetensors", lambda: distinct_families(35_000)),
    "35,000 families of one variable": (
        "hostile",
        "model",
        ".safetensors",
        lambda: distinct_families(35_000, shared=True),
    ),
    "1.5 million categories": ("hostile", "model", ".safetensors", lambda: many_categories(1_500_000)),
    "a sum that names a child a million times": ("hostile", "model", ".safetensors", repeated_child),
    "30,000 columns, two of one name": ("hostile", "model", ".safetensors", lambda: wide_schema(twice=True)),
    "30,000 arrays in an .npz": ("hostile", "table", ".npz", many_arrays),
    "4 GB of zeros in an .npz": ("hostile", "table", ".npz", packed_array),
    "1 GB of digits in a .csv.gz": ("hostile", "table", ".csv.gz", lambda: packed_text(b"0,1,1,0\n", 12_500)),
    "1 GB of blank lines in a .csv.gz": ("hostile", "table", ".csv.gz", lambda: packed_text(b"\n" * 80, 1_250)),
    "30 million equal rows in Parquet": ("hostile", "table", ".parquet", parquet_of_zeros),
    "30 million equal rows in Arrow, zstd": ("hostile", "table", ".arrow", arrow_of_zeros),
    "300,000 columns in a text": ("hostile", "table", ".csv", lambda: (b",".join([b"12"] * 300_000) + b"\n") * 3),
    "13,000 columns in Parquet": ("hostile", "table", ".parquet", lambda: wide(".parquet", 13_000)),
    "50,000 columns in Parquet": ("hostile", "table", ".parquet", lambda: wide(".parquet", 50_000)),
    "1,000 columns in 75 row groups": ("hostile", "table", ".parquet", lambda: wide(".parquet", 1_000, 75)),
    "1,000 columns in 300 row groups": ("hostile", "table", ".parquet", lambda: wide(".parquet", 1_000, 300)),
    "25,000 columns in Arrow": ("hostile", "table", ".arrow", lambda: wide(".arrow", 25_000)),
    "60,000 columns in Arrow": ("hostile", "table", ".arrow", lambda: wide(".arrow", 60_000)),
    "30,000 columns of text": ("hostile", "table", ".csv", lambda: named(30_000, b"x")),
    "60,000 columns of text": ("hostile", "table", ".csv", lambda: named(60_000, b"x")),
    "900,000 odd rows in a .csv.gz": ("hostile", "table", ".csv.gz", lambda: packed_text(b"1,0x1f,x\n", 90)),
    "9 million odd rows in a .csv.gz": ("hostile", "table", ".csv.gz", lambda: packed_text(b"1,0x1f,x\n", 900)),
    "300,000 different texts": ("hostile", "table", ".csv", lambda: b"".join(b"a%d,b\n" % k for k in range(300_000))),
    "2 million different texts": (
        "hostile",
        "table",
        ".csv",
        lambda: b"".join(b"a%d,b%d\n" % (k, k) for k in range(1_000_000)),
    ),
    "20 columns of small numbers": ("ordinary", "table", ".csv", lambda: text(800_000, 20, NUMBERS)),
    "the same with gaps": ("ordinary", "table", ".csv", lambda: text(800_000, 20, [*NUMBERS, "", "NA"])),
    "20 columns of digits": ("ordinary", "table", ".csv", lambda: text(800_000, 20, NUMBERS[:10])),
    "one column of numbers": ("ordinary", "table", ".csv", lambda: text(10_000_000, 1, NUMBERS)),
    "12 columns of words": (
        "ordinary",
        "table",
        ".csv",
        lambda: ",".join(f"c{k}" for k in range(12)).encode() + b"\n" + text(800_000, 12, WORDS),
    ),
    "numbers with blanks between them": (
        "ordinary",
        "table",
        ".txt",
        lambda: text(800_000, 20, NUMBERS).replace(b",", b" "),
    ),
    "a model of 30,000 columns": ("ordinary", "model", ".safetensors", wide_schema),
    "a model of 700,000 categories": ("ordinary", "model", ".safetensors", many_categories),
    "a model of 20,000 layers": ("ordinary", "model", ".safetensors", deep_chain),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--only", default="", help="a part of the names of cases; the others stay as recorded")
    arguments = parser.parse_args()
    recorded = json.loads(arguments.out.read_text())["cases"] if arguments.only else []
    known = {case["name"]: case for case in recorded}
    cases = []
    with TemporaryDirectory() as folder:
        for name, (kind, loader, suffix, make) in CASES.items():
            if arguments.only not in name:
                cases += [known[name]] if name in known else []
                continue
            path = Path(folder) / f"case{suffix}"
            path.write_bytes(make())
            found = [measure(loader, path) for _ in range(REPEATS)]
            size = path.stat().st_size
            cases.append(
                {
                    "name": name,
                    "kind": kind,
                    "loader": loader,
                    "bytes": size,
                    "refused": found[0][0] is not None,
                    "message": None
                    if found[0][0] is None
                    else found[0][0].replace(folder, "").replace("/case", "case"),
                    "seconds": round(statistics.median(seconds for _, seconds, _ in found), 3),
                    "memory": max(memory for _, _, memory in found),
                    "allowed_memory": allowed_bytes(size),
                    "allowed_seconds": round(max(1.0, SECONDS_PER_BYTE * size), 2),
                }
            )
            print(json.dumps(cases[-1]), flush=True)
    if arguments.only:  # the record keeps the command of the other cases
        document = {**json.loads(arguments.out.read_text()), "cases": cases}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
        return
    environment = describe_environment(portable_command(["python", "stress/hostile.py", *sys.argv[1:]]), "cpu")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"environment": environment, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
