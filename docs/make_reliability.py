"""Writes docs/reliability.md from the records of stress/ and benchmarks/.

    python docs/make_reliability.py

A part without a record is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages import table

ROOT = Path(__file__).resolve().parents[1]
FUZZING = ROOT / "stress" / "results" / "fuzzing.json"
HOSTILE = ROOT / "stress" / "results" / "hostile_files.json"
FAULTS = ROOT / "benchmarks" / "results" / "kill_resume.json"

Record = dict[str, Any]

LOADERS = {
    "model": "model files",
    "curvature": "curvature records",
    "statistics": "statistics of shards",
    "records": "result records",
}


def read(path: Path) -> Record | None:
    """A record, None if there is none."""
    return json.loads(path.read_text()) if path.exists() else None


def size(count: float) -> str:
    """`812 kB`, `34.7 MB`, `4.2 GB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} bytes"


def origin(environment: Record) -> str:
    """Command, hardware and versions, in one line."""
    machine = environment.get("hardware") or f"{environment['cpu']}, {environment['threads']} thread"
    version = environment.get("version") or environment["circurve"]
    return f"`{environment['command']}` on {machine}, torch {environment['torch']}, Circurve {version}."


def note(record: Record) -> str:
    """The note of the record, after a blank."""
    return f" {record['note']}" if "note" in record else ""


def exceptions(cases: list[Record]) -> str:
    """The cases above their limit, in a sentence."""
    over = [
        f"{case['name']} ({case['memory'] / case['bytes']:.1f} times its size, {case['seconds']:.1f} s)"
        for case in cases
        if case["memory"] > case["allowed_memory"] or case["seconds"] > case["allowed_seconds"]
    ]
    return f"Above the limit: {'; '.join(over)}." if over else "No file below exceeds it."


def findings(fuzzing: Record | None, hostile: Record | None, faults: Record | None) -> list[str]:
    """The findings, one sentence each."""
    lines = []
    if faults is not None:
        found = faults["results"]
        struck = sum(fault["struck"] for fault in found["by fault"].values())
        lines.append(
            f"{struck} trainings struck by signals, full disks and lack of memory at random moments: "
            f"{found['bit-identical']} of {found['trainings finished']} that were continued gave bit by bit the "
            f"result without a break, and only the time since the last checkpoint was lost."
        )
    if fuzzing is not None:
        count = f"{len(fuzzing['targets'])}"
        what = "no crash, no other exception" if not fuzzing["findings"] else f"{fuzzing['findings']} findings"
        lines.append(
            f"{fuzzing['executions']:,} damaged files for {count} loaders, each loaded or refused with a message: "
            f"{what}."
        )
    if hostile is not None:
        bombs = [case for case in hostile["cases"] if case["kind"] == "hostile"]
        most = max(case["memory"] for case in bombs)
        slowest = max(case["seconds"] for case in bombs)
        lines.append(
            f"{len(bombs)} small files that ask for gigabytes or minutes take at most {size(most)} and {slowest:.1f} s "
            "before they are refused or loaded."
        )
    return lines


def fault_part(record: Record) -> str:
    """Trainings that were struck, by fault."""
    rows = [
        [
            name,
            str(fault["struck"]),
            str(fault["most_epochs_lost"]),
            str(fault["wrong_code"]),
            str(fault["lost_too_much"]),
        ]
        for name, fault in record["results"]["by fault"].items()
    ]
    every = record["results"]["epochs between checkpoints"]
    heads = ["fault", "struck", "most epochs trained again", "wrong exit codes", "lost more than a checkpoint"]
    return f"""## Faults in the middle of a training

{table(heads, rows)}

A checkpoint is written every {every} epochs here. {origin(record["environment"])}"""


def fuzzing_part(record: Record) -> str:
    """Executions by loader and outcome."""
    rows = []
    for name, target in record["targets"].items():
        refused = sum(count for kind, count in target["outcomes"].items() if kind not in ("loaded", "finding"))
        rows.append(
            [
                LOADERS.get(name, f".{name}"),
                f"{target['executions']:,}",
                f"{target['outcomes'].get('loaded', 0):,}",
                f"{refused:,}",
                str(len(target["findings"])),
                f"{target.get('slowest_seconds', 0):.2f} s",
                f"{target.get('largest_growth_mib', 0)} MiB",
            ]
        )
    heads = ["loader", "executions", "loaded", "refused", "findings", "slowest", "largest growth of memory"]
    return f"""## Damaged files

A file of the corpus is damaged, byte by byte or behind its checksums, and loaded. A finding is a crash, an exception
that is not a `CircurveError`, a message longer than 2,000 characters, or more memory or time than the file may take.

{table(heads, rows)}

{record["seconds"]:,.0f} seconds in all, `make stress` takes an hour. {origin(record["environment"])}{note(record)}"""


def hostile_part(record: Record) -> str:
    """Files that expand, and ordinary files for comparison."""
    parts = []
    for kind, title in (("hostile", "Files that ask for more than they hold"), ("ordinary", "Ordinary files")):
        rows = [
            [
                case["name"],
                size(case["bytes"]),
                "refused" if case["refused"] else "loaded",
                size(case["memory"]),
                f"{case['memory'] / case['bytes']:.1f}" if kind == "ordinary" else size(case["allowed_memory"]),
                f"{case['seconds']:.2f} s",
                f"{case['allowed_seconds']:.1f} s",
            ]
            for case in record["cases"]
            if case["kind"] == kind
        ]
        fourth = "times its size" if kind == "ordinary" else "may take"
        heads = ["file", "size", "outcome", "memory", fourth, "CPU time", "may take"]
        parts.append(f"### {title}\n\n{table(heads, rows)}")
    joined = "\n\n".join(parts)
    return f"""## Memory and time of loaders

A loader takes at most 10 times the size of its file or 256 MB, whichever is more, and a second for each 10 MB (at least
one); a file that needs more is refused before the memory is allocated. `trust=True`, on the command line `--trust`,
accepts it. {exceptions(record["cases"])} Models of very deep circuits, with a layer for each node, take longer than a
second for each 10 MB; their time is proportional to the size of the file, and their memory is held to the bound.

{joined}

Memory is the growth of a new process, the largest of three runs; CPU time is the median of three.
{origin(record["environment"])}{note(record)}"""


def page() -> str:
    """The whole page."""
    fuzzing, hostile, faults = read(FUZZING), read(HOSTILE), read(FAULTS)
    made = [(fault_part, faults), (hostile_part, hostile), (fuzzing_part, fuzzing)]
    parts = "\n\n".join(part(record) for part, record in made if record is not None)
    lines = "\n".join(f"- {line}" for line in findings(fuzzing, hostile, faults))
    return f"""# Reliability

<!-- written by docs/make_reliability.py from result files; do not edit -->

{lines}

{parts}

## What else is tested with every change

- The same training gives the same bytes of a model file, in processes of their own.
- Model files of every state of the format load with the log-probabilities that they had (`tests/fixtures`).
- Records of runs carry checksums, packed data sets are compared with the hash of their text, downloads have a limit.
- Statistics of shards, measured separately and merged, equal those of one pass within 1e-12; the order of files changes
no bit.
- Fleets on a Ray cluster give the results of this process, also when a worker is killed.
- Names and texts from files cannot act as commands in a terminal or a spreadsheet.
"""


if __name__ == "__main__":
    (ROOT / "docs" / "reliability.md").write_text(page())
