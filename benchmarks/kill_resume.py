"""Trainings that meet faults at random moments, and must end with the result of an undisturbed one.

    python benchmarks/kill_resume.py --moments 100
    python benchmarks/kill_resume.py --moments 60 --within --name kill_resume_within

Each training is `circurve fit --checkpoint` in a process of its own. A fault strikes at a random moment; the same
command is started again, which may meet the next fault, until it ends by itself. Then its model, bit by bit, and all
numbers of its report must be those of the undisturbed training. Faults: SIGKILL, SIGTERM, SIGHUP, SIGINT; a full disk
(a small tmpfs that is filled up, or a file size limit of 0 where mounting is not allowed); no more memory (from then on
all that allocates for batches, M-steps and checkpoints raises MemoryError). Also: SIGINT in the first seconds of a new
process, while modules are imported. With --within, epochs are long and checkpoints are written between their steps;
what is lost is then counted in steps.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import write_result
from safetensors import safe_open

SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
FAULTS = (*SIGNALS, "full disk", "out of memory")
CODES = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 143, "SIGHUP": 129, "SIGINT": 130}
EVERY = 5
"""Epochs between two checkpoints: the most that SIGKILL may cost."""

EPOCHS_WITHIN = 3

FIT = (
    *("fit", "table.csv", "--units", "4", "--method", "gated", "--mu", "0.1", "--gate-memory", "0.5"),
    *("--device", "cpu", "--track", "--json", "--out", "disk/m.safetensors", "--checkpoint", "disk/runs"),
)
BETWEEN = ("--epochs", "60", "--batch-size", "50", "--checkpoint-every", f"{EVERY} epochs")
WITHIN = ("--epochs", str(EPOCHS_WITHIN), "--batch-size", "1", "--checkpoint-every", "0.1s")
DISK_BYTES, PATIENCE = 4 << 20, 120

CONTEXT = multiprocessing.get_context("forkserver")


@dataclass
class Tally:
    """What one kind of fault did."""

    struck: int = 0
    too_late: int = 0  # the training had ended before
    before: int = 0  # it had not made a step
    wrong_code: int = 0
    lost_too_much: int = 0  # more epochs than since the last checkpoint
    most_lost: int = 0  # epochs or steps
    kept_elsewhere: int = 0  # models, equal to the wanted one, that did not fit on the disk
    codes: dict[str, int] = field(default_factory=dict)


@dataclass
class Child:
    """A training in a process of its own; `done` counts whole epochs, or steps."""

    process: Any
    done: Any

    def end(self) -> int:
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            raise SystemExit("a training did not end")
        return int(self.process.exitcode)


def start(folder: Path, within: bool, limit: str | None = None, after: float = 0.0) -> Child:
    """Start the training; limit: the resource that is used up after this many seconds."""
    done, ready = CONTEXT.Value("i", 0), CONTEXT.Event()
    process = CONTEXT.Process(target=_train, args=(folder, within, done, ready, limit, after))
    process.start()
    if not ready.wait(PATIENCE):
        raise SystemExit("a training did not start")
    return Child(process, done)


def _train(folder: Path, within: bool, done: Any, ready: Any, limit: str | None, after: float) -> None:
    from circurve.cli.program import main

    os.chdir(folder)
    os.environ["TMPDIR"] = str(folder / "kept")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for number, name in ((1, "report.json"), (2, "errors.txt")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))
    _count_steps(done) if within else _count_epochs(done)
    if limit == "full disk":
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        _later(after, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard)))
    elif limit == "out of memory":
        _later(after, _take_memory)
    sys.argv = ["circurve", *FIT, *(WITHIN if within else BETWEEN)]
    ready.set()
    main()


def _count_epochs(done: Any) -> None:
    from circurve.learning.loop import Trainer

    state = Trainer._state

    def counted(self: Trainer, epoch: int) -> Any:
        found = state(self, epoch)
        done.value = epoch
        return found

    Trainer._state = counted  # type: ignore[method-assign]


def _count_steps(done: Any) -> None:
    """All steps since the start of this process, and those that a checkpoint spared it."""
    from circurve.learning.plan import Plan
    from circurve.learning.steps import PlainSteps

    run, maximize = PlainSteps.run, Plan.maximize

    def begins(self: PlainSteps, batches: Any, step_sizes: Any, mus: Any, begun: Any = None, pause: Any = None) -> Any:
        done.value += 0 if begun is None else begun.steps
        return run(self, batches, step_sizes, mus, begun, pause)

    def counted(self: Plan, *given: Any) -> Any:
        found = maximize(self, *given)
        done.value += 1
        return found

    PlainSteps.run, Plan.maximize = begins, counted  # type: ignore[method-assign]


def _later(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


def _take_memory() -> None:
    """From now on nothing large can be allocated."""
    from circurve.engine import Batch
    from circurve.learning import checkpoints
    from circurve.learning.plan import Plan

    def fail(*_: Any) -> None:
        raise MemoryError

    Batch.pick = Plan.maximize = checkpoints.to_arrays = fail  # type: ignore[assignment, method-assign]


def content(path: Path) -> Any:
    """Metadata and tensors of a file, whatever their order."""
    with safe_open(path, framework="np") as file:
        return file.metadata(), {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def outcome(folder: Path) -> Any:
    """All that a training gives, but its time."""
    report = json.loads((folder / "report.json").read_text())
    for record in report["history"]:
        del record["seconds"]
    return content(folder / "disk/m.safetensors"), {**report, "seconds": None}


def kept_model(folder: Path, wanted: Any) -> bool:
    """Whether a model that did not fit on the disk is kept in another folder, and is the wanted one; it is removed."""
    found = [content(path) == wanted for path in (folder / "kept").rglob("m.safetensors")]
    shutil.rmtree(folder / "kept")
    (folder / "kept").mkdir()
    return any(found)


def newest(folder: Path) -> tuple[int, int]:
    """The epoch of the newest checkpoint, and the steps of the next one; 0 if there is none."""
    names = [path.name for path in (folder / "disk/runs").glob("epoch-*.safetensors")]
    places = [tuple(map(int, name.removesuffix(".safetensors").split("-")[1:])) for name in names]
    epoch, *steps = max(places, default=(0,))
    return epoch, steps[0] if steps else 0


class Disk:
    """The folder that trainings write to: a small separate disk, if the system allows one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "disk"
        self.path.mkdir()
        options = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.path)]
        allowed = shutil.which("mount") is not None
        self.mounted = allowed and subprocess.run(options, check=False, capture_output=True).returncode == 0

    def fill(self) -> None:
        with open(self.path / "filler", "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    def empty(self) -> None:
        (self.path / "filler").unlink(missing_ok=True)

    def clear(self) -> None:
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self.path)], check=True)


def strike(fault: str, folder: Path, within: bool, disk: Disk, after: float) -> tuple[int, int]:
    """Train with a fault after this many seconds: the exit code, and how many epochs or steps the child had done."""
    limited = fault == "out of memory" or (fault == "full disk" and not disk.mounted)
    child = start(folder, within, fault if limited else None, after)
    if not limited:
        child.process.join(after)
        if fault == "full disk":
            disk.fill()
        elif child.process.exitcode is None:
            os.kill(child.process.pid, getattr(signal, fault))
    code = child.end()
    disk.empty()
    return code, int(child.done.value)


def judge(tally: Tally, fault: str, code: int, lost: int, most: int | None) -> None:
    """Add one fault that struck to its tally; most: the epochs that it may have cost, None if that is a time."""
    tally.struck += 1
    tally.codes[str(code)] = tally.codes.get(str(code), 0) + 1
    wanted = CODES.get(fault)
    tally.wrong_code += wanted is not None and code != wanted
    if fault != "full disk":  # with a full disk, training continues to its end, and its model is saved in another place
        tally.most_lost = max(tally.most_lost, lost)
        tally.lost_too_much += most is not None and lost > most


def first_seconds(moments: int, chance: random.Random, duration: float) -> dict[str, int]:
    """SIGINT while a new process is still importing."""
    found = {"struck": 0, "code 130": 0, "tracebacks": 0}
    for _ in range(moments):
        words = [sys.executable, "-m", "circurve", "data", "list"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(chance.uniform(0.15, duration))
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
        if process.returncode != 0:
            found["struck"] += 1
            found["code 130"] += process.returncode == 130
            found["tracebacks"] += "Traceback" in errors
    return found


def run(moments: int, early: int, seed: int, within: bool, folder: Path) -> dict[str, Any]:
    chance, tallies = random.Random(seed), {fault: Tally() for fault in FAULTS}
    rows = np.random.default_rng(0).random((300, 12)) < np.where(np.arange(300) % 2, 0.8, 0.2)[:, None]
    np.savetxt(folder / "table.csv", rows, fmt="%d", delimiter=",", header=",".join("abcdefghijkl"), comments="")
    (folder / "kept").mkdir()
    disk = Disk(folder)
    try:
        start(folder, within).end()
        disk.clear()
        before, child = time.monotonic(), start(folder, within)
        if child.end() != 0:
            raise SystemExit((folder / "errors.txt").read_text())
        duration, wanted = time.monotonic() - before, outcome(folder)
        steps = child.done.value // EPOCHS_WITHIN
        disk.clear()
        attempts, struck, finished, identical, left = 0, 0, 0, 0, 0
        while struck < moments:
            fault = FAULTS[attempts % len(FAULTS)]
            attempts += 1
            begun = newest(folder)[0]
            code, done = strike(fault, folder, within, disk, chance.uniform(0, 0.9 * duration))
            if code != 0:
                struck += 1
                epoch, step = newest(folder)
                lost = (begun - epoch) * steps + done - step if within else done - epoch
                most = None if within else 0 if fault in ("SIGTERM", "SIGHUP", "SIGINT") else EVERY
                judge(tallies[fault], fault, code, max(0, lost), most)
                tallies[fault].before += done == 0
                tallies[fault].kept_elsewhere += kept_model(folder, wanted[0])
                print(f"{struck:4} {fault:14} code {code:4}  {done:5} done, checkpoint of {newest(folder)}", flush=True)
                if chance.random() < 0.5 and struck < moments:
                    continue
                if start(folder, within).end() != 0:
                    raise SystemExit((folder / "errors.txt").read_text())
            else:
                tallies[fault].too_late += 1
            finished += 1
            identical += outcome(folder) == wanted
            left += len(list(folder.rglob(".circurve-*")))
            disk.clear()
        return {
            "moments": moments,
            "seed": seed,
            "seconds of a training": round(duration, 2),
            "full disk": "tmpfs filled up" if disk.mounted else "file size limit of 0",
            **({"steps of an epoch": steps} if within else {"epochs between checkpoints": EVERY}),
            "by fault": {fault: vars(tally) for fault, tally in tallies.items()},
            "trainings finished": finished,
            "bit-identical": identical,
            "temporary files left": left,
            "first seconds": first_seconds(early, chance, 3.0),
        }
    finally:
        disk.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=100)
    parser.add_argument("--early", type=int, default=20, help="interrupts in the first seconds of a process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", action="store_true", help="long epochs, with checkpoints between their steps")
    parser.add_argument("--name", default="kill_resume")
    parser.add_argument("--out", type=Path, help="folder of the result file")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets programs in the background ignore it
    CONTEXT.set_forkserver_preload(["circurve.cli.program", "circurve.cli.fit", "kill_resume"])
    with tempfile.TemporaryDirectory() as folder:
        results = run(given.moments, given.early, given.seed, given.within, Path(folder))
    print(write_result(given.name, results, given.out))
    tallies = results["by fault"].values()
    bad = sum(tally["wrong_code"] + tally["lost_too_much"] for tally in tallies) + results["temporary files left"]
    if bad or results["bit-identical"] < results["trainings finished"]:
        raise SystemExit("a fault cost more than the time since the last checkpoint")


if __name__ == "__main__":
    main()
