"""Download servers that fail, each in every part of a data set: what the reader is told, and what is left behind.

    PYTHONPATH=src python stress/servers.py

Every failure is followed by a download from a server that works, which must give the rows of the collection. The record
goes to stress/results/servers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
import circurve as cc  # noqa: E402
from circurve.data import debd  # noqa: E402
from circurve.reproduction.plan import describe_environment, portable_command  # noqa: E402
from debd_server import Server, content, entry, serving  # noqa: E402

RESULT = HERE / "results" / "servers.json"

FAILURES = {
    "404": "404 Not Found",
    "500": "500 Internal Server Error",
    "503": "503 Service Unavailable",
    "interrupted": "half of the file",
    "hangs up": "no answer",
    "changed": "a file with one other bit",
    "empty": "an empty file",
    "endless": "a file without an end",
    "endless, packed": "64 MB packed in a few kilobytes",
}
"""How a server answers -> in words."""

LONGEST_MESSAGE = 1_000


def strike(server: Server, how: str, split: str) -> dict[str, Any]:
    """One failing download and one that works, with an empty cache."""
    with TemporaryDirectory() as folder:
        os.environ["CIRCURVE_CACHE"] = folder
        server.how[split] = how
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        outcome = told(lambda: cc.load_dataset("tiny"))
        seconds = time.perf_counter() - started
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        left = [path.name for path in Path(folder).rglob("*") if path.is_file() and split in path.name]
        server.how.clear()
        works = told(lambda: check_rows(cc.load_dataset("tiny"))) == "loaded"
    return {"outcome": outcome, "seconds": seconds, "grown_kib": grown, "left": left, "works_afterwards": works}


def told(work: Callable[[], Any]) -> str:
    """`loaded`, `message`, or what went wrong."""
    try:
        work()
    except cc.CircurveError as error:
        text = str(error)
        return "message" if text.count("\n") == 0 and len(text) <= LONGEST_MESSAGE else f"a message like {text[:80]!r}"
    except Exception as error:  # what must not happen is counted
        return f"{type(error).__name__}: {str(error)[:80]}"
    return "loaded"


def check_rows(data: cc.Dataset) -> None:
    """The rows are those that the server has."""
    for split in debd.SPLITS:
        lines = content("tiny", split).decode().splitlines()
        np.testing.assert_array_equal(getattr(data, split), [[int(cell) for cell in line.split(",")] for line in lines])


def main() -> None:
    """Strike, count, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    debd.COLLECTION["tiny"] = entry("tiny")
    cases = []
    with serving("tiny") as server:
        os.environ["CIRCURVE_DEBD_URL"] = server.url
        told(lambda: cc.load_dataset("tiny"))  # what is imported for a first download is not counted
        for how, words in FAILURES.items():
            found = [strike(server, how, split) for _ in range(options.repeats) for split in debd.SPLITS]
            cases.append(
                {
                    "server": words,
                    "struck": len(found),
                    "messages": sum(one["outcome"] == "message" for one in found),
                    "others": sorted({one["outcome"] for one in found} - {"message"}),
                    "files left": sum(bool(one["left"]) for one in found),
                    "works afterwards": sum(one["works_afterwards"] for one in found),
                    "slowest_seconds": round(max(one["seconds"] for one in found), 3),
                    "grown_mib": round(max(one["grown_kib"] for one in found) / 1024, 1),
                }
            )
            print(cases[-1])
    command = portable_command(["python", "stress/servers.py", *sys.argv[1:]])
    record = {"environment": describe_environment(command, "cpu"), "cases": cases}
    options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
