"""Merge result records, thin out their histories and compress them: what is kept next to docs/reproduction.md.

python docs/pack_records.py docs/reproduction/paper/records.jsonl.gz FOLDER [FOLDER ...]

Each folder is one that `circurve reproduce --out FOLDER` wrote. A run that several of them hold is kept once. Of a
history every tenth epoch and the last one stay, but for runs of studies that stop by it; all else stays as it is.
Scores of Chow-Liu trees, to which tables compare, are written next to the records.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from circurve.reproduction.comparisons import BASELINES_FILE
from circurve.reproduction.records import FILE_NAME, is_failed, line_of, read_records

EVERY = 10

Record = dict[str, Any]


def thinned(record: Record) -> Record:
    """The record with a tenth of its history, which says of what epochs; that of a failed run has none.

    Runs whose models were measured keep theirs whole: a study chooses epochs by it.
    """
    if is_failed(record) or "probe" in record["settings"]:
        return record
    history = {name: values for name, values in record["history"].items() if name != "epochs"}
    epochs = record["history"].get("epochs") or list(range(1, 1 + max(map(len, history.values()))))
    kept = [i for i, epoch in enumerate(epochs) if epoch % EVERY == 0 or epoch == epochs[-1]]
    short = {name: [values[i] for i in kept] for name, values in history.items()}
    return {**record, "history": {"epochs": [epochs[i] for i in kept], **short}}


def main() -> None:
    """Write the target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    arguments = parser.parse_args()
    records = merged(folder / f"{FILE_NAME}{ending}" for folder in arguments.folders for ending in ("", ".gz"))
    baselines = merged(folder / BASELINES_FILE for folder in (arguments.target.parent, *arguments.folders))
    arguments.target.parent.mkdir(parents=True, exist_ok=True)
    arguments.target.write_bytes(gzip.compress(lines(map(thinned, records)), mtime=0))
    if baselines:
        (arguments.target.parent / BASELINES_FILE).write_bytes(lines(baselines))
    print(f"{len(records)} runs, {arguments.target.stat().st_size / 1e6:.1f} MB in {arguments.target}")


def merged(paths: Iterable[Path]) -> list[Record]:
    """The records of all files that are there, each once."""
    found: dict[str, Record] = {}
    for path in paths:
        for record in read_records(path):
            found.setdefault(record["id"], record)
    return list(found.values())


def lines(records: Iterable[Record]) -> bytes:
    """Records as lines of a file, each with its checksum."""
    return b"".join(map(line_of, records))


if __name__ == "__main__":
    main()
