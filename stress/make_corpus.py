"""Makes the corpus of the fuzzers: a few small whole files for each loader.

    PYTHONPATH=src python stress/make_corpus.py

Existing files stay: the folder also has files that once broke a loader, and they are never made again.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import feather, ipc, parquet

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import circurve as cc
from circurve.curvature import statistics
from circurve.reproduction.records import line_of
from fixtures.make_models import MODELS
from fuzz_targets import CORPUS

CSV = "age,sex,income,day\n30,f,1.5,2020-01-31\n,m,?,2021-02-28\n41,f,-2e3,\n"
NUMBERS = "".join(f"{k % 3},{k % 7},{k % 2}.5\n" for k in range(20))
FRAME = pa.table(
    {
        "n": pa.array([1, None, 3, 4]),
        "x": [0.5, -1.0, 2.5, 1e9],
        "w": ["a", "b", None, "a"],
        "d": pa.array(["u", "v", "u", "u"]).dictionary_encode(),
        "b": [True, False, None, True],
        "t": pa.array([0, 1, 2, 3], pa.date32()),
    }
)


def files() -> dict[str, bytes]:
    rows = np.arange(24).reshape(8, 3) % 4
    frame = {"colour": ["red", "blue", "red", "green"] * 4, "warm": [True, False] * 8, "x": np.linspace(0, 1, 16)}
    model = cc.fit(cc.hclt(frame, units=2), frame, epochs=1, seed=0, device="cpu", progress=False).model
    found = {
        "csv/mixed.csv": CSV.encode(),
        "csv/numbers.csv": NUMBERS.encode(),
        "csv/quoted.csv": b'"a ""b""",c\n"1,5",2\n"line\nend",3\n',
        "tsv/mixed.tsv": CSV.replace(",", "\t").encode(),
        "data/digits.data": b"0,1,1\n1,0,0\n" * 4,
        "data/spaces.data": b"0 1.5 1\n1 0 -2\n",
        "csv.gz/mixed.csv.gz": gzip.compress(CSV.encode(), mtime=0),
        "npy/whole.npy": _npy(rows),
        "npy/text.npy": _npy(np.array([["a", "b"], ["c", "d"]])),
        "npz/parts.npz": _npz(train=rows, valid=rows[:2].astype(float), test=rows[:1]),
        "npz/one.npz": _npz(x=rows.astype(np.uint8)),
        "parquet/frame.parquet": _parquet(),
        "arrow/frame.arrow": _arrow(None, ipc.new_file),
        "arrow/stream.arrow": _arrow(None, ipc.new_stream),
        "arrow/packed.arrow": _arrow("zstd", ipc.new_file),
        "feather/packed.feather": _feather(),
        "records/three.jsonl": b"".join(
            line_of({"id": f"r{k}", "score": -k / 3, "history": {"ll": [k, 1.5]}}) for k in range(3)
        ),
        "records/old.jsonl": json.dumps({"id": "r", "final": {"test_ll": -6.25}}).encode() + b"\n",
    }
    made = {"frame": model, **{name: make()[0] for name, make in MODELS.items()}}
    for name, each in made.items():
        found[f"model/{name}.safetensors"] = _saved(each.save)
    found["curvature/small.npz"] = cc.curvature(model, frame).to_bytes()
    found["statistics/small.npz"] = _saved(statistics(model, frame, shard=(1, 2)).save)
    return found


def _npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def _npz(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def _parquet() -> bytes:
    content = io.BytesIO()
    parquet.write_table(FRAME, content, row_group_size=3)
    return content.getvalue()


def _arrow(compression: str | None, new: object) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, FRAME.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(FRAME)
    return sink.getvalue().to_pybytes()


def _feather() -> bytes:
    content = io.BytesIO()
    feather.write_feather(FRAME, content, compression="lz4")
    return content.getvalue()


def _saved(save: object) -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        save(Path(folder) / "x")
        return (Path(folder) / "x").read_bytes()


def main() -> None:
    for name, content in files().items():
        path = CORPUS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(content)


if __name__ == "__main__":
    main()
