"""Writes docs/reliability.md from the records of stress/ and benchmarks/.

    python docs/make_reliability.py

A part without a record is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pages import table

ROOT = Path(__file__).resolve().parents[1]
FUZZING = ROOT / "stress" / "results" / "fuzzing.json"
HOSTILE = ROOT / "stress" / "results" / "hostile_files.json"
SERVERS = ROOT / "stress" / "results" / "servers.json"
EQUALITY = ROOT / "stress" / "results" / "equality.json"
WORKERS = ROOT / "stress" / "results" / "workers.json"
STREAMS = ROOT / "benchmarks" / "results" / "streams.json"
FAULTS = ROOT / "benchmarks" / "results" / "kill_resume.json"
FAULTS_WITHIN = FAULTS.with_stem("kill_resume_within")

Record = dict[str, Any]

SOURCES = {"memory": "in memory", "mapped": "mapped array", "parquet": "Parquet file"}

LOADERS = {
    "model": "model files",
    "curvature": "curvature records",
    "statistics": "statistics of shards",
    "records": "result records",
    "streamed parquet": ".parquet, as a stream",
    "streamed feather": ".feather, as a stream",
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
    threads = environment.get("threads")
    machine = environment.get("hardware") or f"{environment['cpu']}, {threads} thread{'s' if threads != 1 else ''}"
    version = environment.get("version") or environment["circurve"]
    return f"`{environment['command']}` on {machine}, torch {environment['torch']}, Circurve {version}."


def note(record: Record) -> str:
    """The note of the record, after a blank."""
    return f" {record['note']}" if "note" in record else ""


def exceptions(cases: list[Record]) -> str:
    """The cases above their limit, in a sentence."""
    over = []
    for case in cases:
        if case["memory"] > case["allowed_memory"]:
            over.append(f"{case['name']} ({case['memory'] / case['bytes']:.1f} times its size)")
        if case["seconds"] > case["allowed_seconds"]:
            over.append(f"{case['name']} ({case['seconds']:.1f} s in place of {case['allowed_seconds']:.1f} s)")
    return f"Above the limit: {'; '.join(over)}." if over else "No file below exceeds it."


def findings(records: Mapping[str, Record | None]) -> list[str]:
    """The findings, one sentence each."""
    fuzzing, hostile, faults, equality = (records[name] for name in ("fuzzing", "hostile", "faults", "equality"))
    lines = []
    if faults is not None:
        found = [record["results"] for record in (faults, records["faults within"]) if record is not None]
        struck = sum(fault["struck"] for each in found for fault in each["by fault"].values())
        same, finished = (sum(each[key] for each in found) for key in ("bit-identical", "trainings finished"))
        lines.append(
            f"{struck} trainings struck by signals, full disks and lack of memory at random moments, between epochs "
            f"and within them: {same} of {finished} that were continued gave bit by bit the result without a break, "
            "and only the time since the last checkpoint was lost."
        )
    workers = records["workers"]
    if workers is not None:
        killed = sum(workers[kind]["struck"] for kind in ("torchrun", "ray"))
        same = sum(workers[kind]["same bits"] for kind in ("torchrun", "ray"))
        lines.append(
            f"{same} of {killed} trainings of which a worker was killed at a random moment (torchrun, Ray) ended with "
            "the bits of an undisturbed one."
        )
    if equality is not None:
        pairs = equality["pairs"]
        repeats = [pair for name, pair in pairs.items() if "twice" in name or "break" in name]
        same = sum(pair["same_model_bytes"] and pair["same_score_bits"] for pair in repeats)
        most = max(pair["largest_difference_nats"] for pair in pairs.values())
        lines.append(
            f"With the same numbers of threads and workers, {same} of {len(repeats)} trainings that were repeated or "
            "broken off and continued gave the same bits. Other numbers, and scores in smaller chunks, change a "
            f"log-probability by at most {most:.0e} nats."
        )
    if fuzzing is not None:
        count = f"{len(fuzzing['targets'])}"
        mended = sum(len(target.get("mended", ())) for target in fuzzing["targets"].values())
        what = "no crash, no other exception" if not fuzzing["findings"] else f"{fuzzing['findings']} findings"
        if mended:
            what += f"; {mended} {'defect' if mended == 1 else 'defects'} found on the way and mended"
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
    found, early = record["results"], record["results"]["first seconds"]
    every = found["epochs between checkpoints"]
    return f"""## Faults in the middle of a training

{_struck(found, "epochs")}

A checkpoint is written every {every} epochs here. {_continued(found)} Ctrl-C in the first seconds of a command:
{early["code 130"]} of {early["struck"]} ended with code 130, with {early["tracebacks"]} tracebacks.
{origin(record["environment"])}"""


def fault_within_part(record: Record) -> str:
    """Trainings that were struck within a long epoch, by fault."""
    found = record["results"]
    return f"""## Faults within a long epoch

{_struck(found, "steps")}

An epoch has {found["steps of an epoch"]} steps here, and a checkpoint is written every 0.1 s, between two of them.
{_continued(found)} {origin(record["environment"])}"""


def _struck(found: Record, unit: str) -> str:
    heads = ["fault", "struck", f"before the first {unit[:-1]} ended", f"most {unit} trained again", "wrong exit codes"]
    heads += ["lost more than a checkpoint"] * (unit == "epochs") + ["model kept elsewhere"]
    keys = ["struck", "before", "most_lost", "wrong_code", *(["lost_too_much"] * (unit == "epochs")), "kept_elsewhere"]
    return table(heads, [[name, *(str(fault[key]) for key in keys)] for name, fault in found["by fault"].items()])


def _continued(found: Record) -> str:
    return (
        "Continued trainings that ended with the model file of the undisturbed one, to the bit: "
        f"{found['bit-identical']} of {found['trainings finished']}. Temporary files left: "
        f"{found['temporary files left']}."
    )


def worker_part(record: Record) -> str:
    """Workers that were killed."""
    job, fleets = record["torchrun"], record["ray"]
    rows = [
        ["torchrun, two workers", str(job["struck"]), "starting the same command again", str(job["same bits"])],
        [f"Ray {fleets['version']}", str(fleets["struck"]), "itself", str(fleets["same bits"])],
    ]
    return f"""## Workers that are killed

SIGKILL for one worker at a random moment of a training.

{table(["workers", "killed", "continued by", "result of an undisturbed training, to the bit"], rows)}

Of the torchrun jobs, {job["code 1"]} ended with code 1, and {job["continued"]} had a checkpoint to continue from. In
{job["messages asked for"]} of them worker 0 was left, and printed one error in {job["messages"]}.
Temporary files left: {job["temporary files left"]}. Every other fleet on Ray had checkpoints.
{origin(record["environment"])}"""


def fuzzing_part(record: Record) -> str:
    """Executions by loader and outcome."""
    rows = []
    least = min(target["seconds"] for target in record["targets"].values())
    for name, target in record["targets"].items():
        refused = sum(count for kind, count in target["outcomes"].items() if kind not in ("loaded", "finding"))
        rows.append(
            [
                LOADERS.get(name, f".{name}"),
                f"{target['executions']:,}",
                f"{target['outcomes'].get('loaded', 0):,}",
                f"{refused:,}",
                str(len(target["findings"])),
                str(len(target.get("mended", ()))),
                f"{target.get('slowest_seconds', 0):.2f} s",
                f"{target.get('largest_growth_mib', 0)} MiB",
            ]
        )
    heads = ["loader", "executions", "loaded", "refused", "findings", "mended", "slowest", "largest growth of memory"]
    return f"""## Damaged files

A file of the corpus is damaged, byte by byte or behind its checksums, and loaded. A finding is a crash, an exception
that is not a `CircurveError`, a message longer than 2,000 characters, or more memory or time than the file may take.

{table(heads, rows)}

{record["seconds"]:,.0f} seconds in all, at least {least:.0f} for each loader; `make stress` spends an hour on them.
{origin(record["environment"])}{note(record)}"""


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
accepts it. {exceptions(record["cases"])} A circuit is checked in full when it is loaded, and compiled when its model is
first asked a question.

{joined}

Memory is the growth of a new process, the largest of three runs; CPU time is the median of three.
{origin(record["environment"])}{note(record)}"""


def server_part(record: Record) -> str:
    """Downloads that fail."""
    rows = [
        [
            case["server"],
            str(case["struck"]),
            str(case["messages"]),
            str(case["files left"]),
            str(case["works afterwards"]),
            f"{case['slowest_seconds']:.2f} s",
            f"{case['grown_mib']:.1f} MiB",
        ]
        for case in record["cases"]
    ]
    heads = ["the server sends", "downloads", "one message", "files left", "works afterwards", "slowest", "memory"]
    return f"""## Download servers that fail

Each answer in place of each of the three files of a data set. "Works afterwards" counts the downloads of the same data
set from a server that works, which must give the rows of the collection. Server and reader share a process.

{table(heads, rows)}

{origin(record["environment"])}{note(record)}"""


def stream_part(record: Record) -> str:
    """Memory while data are read from the disk."""
    found = record["results"]
    rows = [
        [
            SOURCES[kind["kind"]],
            f"{kind['peak_gib']:.2f} GiB",
            f"{kind['rows_per_second']:,}",
            f"{kind['rows_per_second_beside_memory']:.0%}",
            "yes" if kind["same_bits_as_in_memory"] else "no",
            f"{kind['train_ll']:.4f}",
        ]
        for kind in found["kinds"]
    ]
    heads = ["source", "peak memory", "rows per second", "rate", "same bits as in memory", "train log-likelihood"]
    return f"""## Memory under streams

{found["rows"]:,} rows x {found["variables"]} columns, {found["epochs"]} epochs. Row groups of Parquet are shuffled, so
its batches differ.

{table(heads, rows)}

{origin(record["environment"])}"""


def speed_up(found: Record) -> str:
    """Two workers compared with one, if the machine had time for both."""
    load, cores = found["load_average"], found["cores"]
    if load is not None and load > cores + 1:
        busy = f"other programs were running (load average {load} on {cores} cores)"
        return f"The speed-up of two workers is not known: {busy}. An idle machine is needed to measure it."
    faster = f"Two workers of one thread each are {found['speed_up']:.2f} times as fast as one"
    return f"{faster}, medians of {found['turns']} turns."


def equality_part(record: Record) -> str:
    """Determinism, resume and workers."""
    rows = [
        [
            name,
            "yes" if pair["same_model_bytes"] else "no",
            "yes" if pair["same_score_bits"] else "no",
            "0" if not pair["largest_difference_nats"] else f"{pair['largest_difference_nats']:.1e}",
        ]
        for name, pair in record["pairs"].items()
    ]
    heads = ["compared", "same model file", "same bits of scores", "largest difference, nats"]
    size, speed = record["size"], record["workers"]
    return f"""## Threads, chunks, breaks and workers

Trainings of one circuit on {size["rows"]:,} rows x {size["variables"]} columns, {size["units"]} units, batches of
{size["batch"]:,}, one thread and float32 where nothing else is said. The difference is the largest of 2,000
log-probabilities.

{table(heads, rows)}

{speed_up(speed)}
{origin(record["environment"])}{note(record)}"""


def page() -> str:
    """The whole page."""
    files = {
        "fuzzing": FUZZING,
        "hostile": HOSTILE,
        "faults": FAULTS,
        "faults within": FAULTS_WITHIN,
        "workers": WORKERS,
        "equality": EQUALITY,
        "streams": STREAMS,
        "servers": SERVERS,
    }
    records = {name: read(path) for name, path in files.items()}
    made = [
        (fault_part, records["faults"]),
        (fault_within_part, records["faults within"]),
        (worker_part, records["workers"]),
        (equality_part, records["equality"]),
        (stream_part, records["streams"]),
        (hostile_part, records["hostile"]),
        (fuzzing_part, records["fuzzing"]),
        (server_part, records["servers"]),
    ]
    parts = "\n\n".join(part(record) for part, record in made if record is not None)
    lines = "\n".join(f"- {line}" for line in findings(records))
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
