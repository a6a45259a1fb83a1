"""What the fuzzers feed: one target for each loader, its corpus, and ways to damage a file.

A loader may take a file or refuse it with a CircurveError. Any other exception is a defect, and so is more memory or
time than a file of that size may take. `tests/test_fuzzing.py` runs a few hundred damaged files with hypothesis,
`stress/fuzz.py` as many as fit an hour, and counts them.
"""

from __future__ import annotations

import io
import json
import random
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors

import circurve as cc
from circurve.curvature import load_curvature
from circurve.curvature.shards import load_statistics
from circurve.data.files import read_table
from circurve.errors import CircurveError
from circurve.persistence import read_metadata
from circurve.reproduction.records import read_records
from hostile_files import with_metadata

CORPUS = Path(__file__).parent / "corpus"

Mutation = Callable[[random.Random, bytes], bytes]

EDGES = (0, 1, 2, 7, 8, 127, 128, 255, 256, 65535, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
"""Numbers at which types end."""


@dataclass(frozen=True)
class Target:
    """A loader, the suffix that its files need, and how their content is damaged, in addition to single bytes."""

    name: str
    suffix: str
    load: Callable[[Path], Any]
    inside: Mutation | None = None
    """Damage behind checksums and archives, where byte-wise damage does not reach."""

    folder: str | None = None
    """Where its corpus lies, if not under its name."""

    def files(self) -> list[Path]:
        """The files to begin with."""
        return sorted((CORPUS / (self.folder or self.name)).iterdir())

    def corpus(self) -> list[bytes]:
        """Their content."""
        return [path.read_bytes() for path in self.files()]

    def run(self, path: Path, content: bytes) -> str:
        """Load a file of this content: `loaded`, or the name of the error that refused it. Anything else is raised."""
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.load(path)
            except CircurveError as error:
                if len(str(error)) > 2_000 + len(str(path)):
                    raise AssertionError(f"a message of {len(str(error)):,} characters") from error
                return type(error).__name__
        return "loaded"


def damaged(generator: random.Random, target: Target, corpus: list[bytes]) -> bytes:
    """One file of the corpus with a few damages."""
    content = generator.choice(corpus)
    if target.inside is not None and generator.random() < 0.6:
        content = target.inside(generator, content)
        if generator.random() < 0.8:
            return content
    for _ in range(generator.choice((1, 1, 2, 4, 16))):
        content = _byte_damage(generator, content, corpus)
    return content


def _byte_damage(generator: random.Random, content: bytes, corpus: list[bytes]) -> bytes:
    raw = bytearray(content)
    place = generator.randrange(len(raw) + 1)
    length = generator.choice((1, 2, 4, 8, 64, len(raw)))
    match generator.randrange(8):
        case 0 if raw:
            raw[place % len(raw)] ^= 1 << generator.randrange(8)
        case 1:
            raw[place : place + length] = generator.randbytes(length % 256)
        case 2:
            del raw[place : place + length]
        case 3:
            raw[place:place] = raw[place : place + length] * generator.choice((1, 2, 100))
        case 4:
            kind = generator.choice(["<B", "<H", "<I", "<Q", ">I", ">Q"])
            size = struct.calcsize(kind)
            number = generator.choice(EDGES) & (2 ** (8 * size) - 1)
            raw[place : place + size] = struct.pack(kind, number)
        case 5:
            other = generator.choice(corpus)
            start = generator.randrange(len(other) + 1)
            raw[place:] = other[start:]
        case 6:
            tokens = (
                b"-1",
                b"1e999",
                b"nan",
                b"0x1f",
                b'"',
                b"\r",
                b"\0",
                b"\xff",
                b"9" * 400,
                b"[" * 2_000,
                b",," * 50,
            )
            raw[place:place] = generator.choice(tokens)
        case _:
            del raw[place:]
    return bytes(raw)


def _json_damage(generator: random.Random, value: Any) -> Any:
    """The value with one part of it replaced, doubled or left out."""
    if isinstance(value, dict) and value and generator.random() < 0.85:
        key = generator.choice(list(value))
        if generator.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _json_damage(generator, value[key])}
    if isinstance(value, list) and value and generator.random() < 0.85:
        place = generator.randrange(len(value))
        match generator.randrange(8):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return value + value[place : place + 1] * generator.choice((1, 3, 1000))
            case _:
                return [*value[:place], _json_damage(generator, value[place]), *value[place + 1 :]]
    odd = (
        None,
        True,
        False,
        -1,
        0.5,
        1e308,
        float("nan"),
        10**400,
        "",
        "x" * 5_000,
        "\x1b[0m",
        [],
        {},
        [[]],
        [0] * 100,
    )
    if isinstance(value, int) and not isinstance(value, bool) and generator.random() < 0.7:
        return generator.choice((value + 1, value - 1, -value, 2 * value, *EDGES))
    return generator.choice(odd)


def _model_damage(generator: random.Random, content: bytes) -> bytes:
    """A model file with another structure or other tensors, and checksums that are right again."""
    length = struct.unpack("<Q", content[:8])[0]
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    structure, tensors = json.loads(metadata["circurve"]), load_tensors(content)
    extra = metadata["extra"]
    ordered = [name for name in _tensor_order(structure) if name in tensors]
    if generator.random() < 0.4 and ordered:
        name = generator.choice(ordered)
        tensors[name] = _array_damage(generator, tensors[name])
    else:
        structure = _json_damage(generator, structure)
    if isinstance(structure, dict) and generator.random() < 0.9:
        checksum = 0
        for name in ordered:
            checksum = zlib.crc32(np.ascontiguousarray(tensors[name]), checksum)
        structure["tensors_crc32"] = checksum
    return with_metadata(json.dumps(structure), tensors, extra)


def _tensor_order(structure: Any) -> list[str]:
    names = []
    for index, node in enumerate(structure["nodes"]):
        if node["kind"] == "product":
            names += [f"select.{index}.{place}" for place in node.get("select", [])]
        else:
            names += [f"{'weights' if node['kind'] == 'sum' else 'parameters'}.{index}", f"mask.{index}"]
    return names


def _array_damage(generator: random.Random, array: np.ndarray) -> np.ndarray:
    array = array.copy()
    match generator.randrange(6):
        case 0 if array.size and array.dtype.kind in "fiu":
            with np.errstate(all="ignore"):
                flat = array.reshape(-1)
                odd = (np.nan, np.inf, -1.0, 1e-310, 2.0, 1e38) if array.dtype.kind == "f" else (0, 1, 7, 100)
                flat[generator.randrange(array.size)] = generator.choice(odd)
        case 1:
            return array.reshape(-1)
        case 2:
            return np.repeat(array, 2, axis=0) if array.ndim else array
        case 3:
            return array[:0]
        case 4:
            return array.astype(generator.choice(["f4", "f8", "i8", "u1", "?", "f2"]))
        case _:
            return np.zeros((generator.choice((0, 1, 3, 100)),) * generator.choice((0, 1, 2, 3)), array.dtype)
    return array


def _archive_damage(generator: random.Random, content: bytes) -> bytes:
    """An .npz with one entry damaged, and the checksums of the archive right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = generator.choice(list(entries))
    entries[name] = _byte_damage(generator, entries[name], list(entries.values()))
    if generator.random() < 0.1:
        entries[generator.choice(("train.npy", "../x.npy", "bits.npy", ""))] = entries[name]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", generator.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for key, value in entries.items():
            archive.writestr(key or "empty", value)
    return packed.getvalue()


def _line_damage(generator: random.Random, content: bytes) -> bytes:
    """Records with one of them changed, with a checksum that is right, or none."""
    lines = content.splitlines()
    place = generator.randrange(len(lines))
    record = _json_damage(generator, json.loads(lines[place]))
    if isinstance(record, dict):
        record.pop("crc32", None)
    line = json.dumps(record).encode()
    if generator.random() < 0.5 and line.endswith(b"}"):
        line = line[:-1] + b',"crc32":"%08x"}' % zlib.crc32(line)
    lines[place] = line
    return b"\n".join(lines) + b"\n"


def _model(path: Path) -> None:
    """Load a model; what loads can be saved, and loads again."""
    model = cc.load(path)
    read_metadata(path)
    model.save(path)
    cc.load(path)


def _stream(path: Path) -> None:
    """Read all pieces of a file that is streamed."""
    for _ in cc.open_stream(path).pieces():
        pass


TARGETS = {
    target.name: target
    for target in (
        Target("model", ".safetensors", _model, _model_damage),
        Target("curvature", ".npz", load_curvature, _archive_damage),
        Target("statistics", ".npz", load_statistics, _archive_damage),
        Target("records", ".jsonl", read_records, _line_damage),
        Target("csv", ".csv", read_table),
        Target("tsv", ".tsv", read_table),
        Target("data", ".data", read_table),
        Target("csv.gz", ".csv.gz", read_table),
        Target("npy", ".npy", read_table),
        Target("npz", ".npz", read_table, _archive_damage),
        Target("parquet", ".parquet", read_table),
        Target("arrow", ".arrow", read_table),
        Target("feather", ".feather", read_table),
        Target("streamed parquet", ".parquet", _stream, folder="parquet"),
        Target("streamed feather", ".feather", _stream, folder="feather"),
    )
}
