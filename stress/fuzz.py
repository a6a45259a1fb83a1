"""Fuzzing: every loader is fed damaged files for a given time, and executions are counted by what became of them.

    PYTHONPATH=src python stress/fuzz.py --seconds 3600

Each loader runs in a process of its own, so that a crash of a library is one more finding, not the end. A finding is
any exception that is not a CircurveError, a crash, or more memory or time than a file of its size may take; its file is
kept in --findings, and belongs into tests/corpus once it is mended. The record goes to stress/results/fuzzing.json.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

RESULT = HERE / "results" / "fuzzing.json"
MARGIN = 64 << 20
"""Memory that a process takes on the way, whatever the file: code that is loaded on first use, pools of allocators."""

LEAST_SECONDS = 1.0
"""Time that a file may take, however small it is; machines are busy."""


def run_target(name: str, seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    """Feed one loader until the time is over; runs in a process of its own."""
    import peak_memory
    from circurve.bounds import SECONDS_PER_BYTE, allowed_bytes
    from fuzz_targets import TARGETS, damaged

    target = TARGETS[name]
    generator, corpus, outcomes = random.Random(seed), target.corpus(), Counter[str]()
    path, findings = folder / f"case{target.suffix}", []
    slowest, largest = 0.0, 0
    for content in corpus:
        target.run(path, content)
    resource.setrlimit(resource.RLIMIT_AS, (_virtual() + (4 << 30),) * 2)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        content = damaged(generator, target, corpus)
        before, start = peak_memory.start(trim=False), time.process_time()
        try:
            outcome = target.run(path, content)
        except Exception as error:
            outcome = f"finding: {type(error).__name__}: {str(error)[:200]}"
        took, grown = time.process_time() - start, peak_memory.growth(before)
        slowest, largest = max(slowest, took), max(largest, grown)
        if grown > allowed_bytes(len(content)) + MARGIN:
            outcome = f"finding: {grown >> 20} MiB for {len(content)} bytes"
        if took > max(LEAST_SECONDS, SECONDS_PER_BYTE * len(content)):
            outcome = f"finding: {took:.1f} s for {len(content)} bytes"
        if outcome.startswith("finding") and len(findings) < 20:
            kept = folder / f"{len(findings)}{target.suffix}"
            kept.write_bytes(content)
            findings.append([outcome, kept.name])
        outcomes[outcome if not outcome.startswith("finding") else "finding"] += 1
    return {
        "seconds": round(seconds, 1),
        "executions": sum(outcomes.values()),
        "outcomes": dict(sorted(outcomes.items())),
        "findings": findings,
        "slowest_seconds": round(slowest, 3),
        "largest_growth_mib": largest >> 20,
    }


def _virtual() -> int:
    import psutil

    return int(psutil.Process().memory_info().vms)


def in_process(name: str, seconds: float, seed: int, folder: Path) -> dict[str, Any]:
    """`run_target` in a process of its own; a crash is a finding."""
    words = [sys.executable, __file__, "--child", name, "--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run([*words, "--findings", str(folder)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    reason = f"finding: the process ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    return {"seconds": round(seconds, 1), "executions": 0, "outcomes": {"finding": 1}, "findings": [[reason, "case"]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="in all, shared among the loaders")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of loaders, with commas between them")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--findings", type=Path, default=None, help="a folder for the files that broke something")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(run_target(arguments.child, arguments.seconds, arguments.seed, arguments.findings)))
        return
    from circurve.reproduction.plan import describe_environment, portable_command
    from fuzz_targets import TARGETS

    names = arguments.only.split(",") if arguments.only else list(TARGETS)
    environment = describe_environment(portable_command(["python", "stress/fuzz.py", *sys.argv[1:]]), "cpu")
    results: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as temporary:
        for place, name in enumerate(names):
            folder = (arguments.findings or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            results[name] = in_process(name, arguments.seconds / len(names), arguments.seed + place, folder)
            print(name, json.dumps(results[name]), flush=True)
            write(arguments.out, environment, arguments.seed, results)
    findings = sum(len(result["findings"]) for result in results.values())
    sys.exit(1 if findings else 0)


def write(path: Path, environment: dict[str, Any], seed: int, results: dict[str, dict[str, Any]]) -> None:
    """The record of the loaders so far: a run that is broken off keeps what it has."""
    document = {
        "environment": environment,
        "seconds": round(sum(result["seconds"] for result in results.values()), 1),
        "seed": seed,
        "executions": sum(result["executions"] for result in results.values()),
        "findings": sum(len(result["findings"]) for result in results.values()),
        "targets": results,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
