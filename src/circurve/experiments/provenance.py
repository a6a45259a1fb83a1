"""Where numbers come from: command, data, seeds, versions and hardware, without names or paths of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch

from circurve._version import __version__
from circurve.experiments.records import Record, is_failed
from circurve.experiments.spec import Setting, Study
from circurve.learning import Gated, Vanilla
from circurve.learning.gates import gate_name
from circurve.model import as_device

__all__ = ["choice_note", "describe", "describe_environment", "grid_notes", "portable_command", "provenance"]


def describe_environment(command: str | None, device: str) -> Record:
    """Everything about the machine and the software that a result should say."""
    return {
        "command": command,
        "version": __version__,
        "commit": _commit(),
        "hardware": _hardware(str(as_device(device))),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def portable_command(words: Sequence[str]) -> str:
    """A command line as one string; of absolute paths only the last part is kept, the rest says nothing elsewhere."""
    return " ".join(Path(word).name if os.path.isabs(word) else word for word in words)


@lru_cache
def _commit() -> str | None:
    """The commit of a source checkout, with + if files of the package were changed; None for an installed package."""
    package = Path(__file__).resolve().parents[1]
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    head = _git(package, "rev-parse", "--short=12", "HEAD")
    return head if head is None or not _git(package, "status", "--porcelain", "--", ".") else f"{head}+"


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@lru_cache
def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name: {platform.processor()}"] if platform.processor() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    threads = torch.get_num_threads()
    return f"{names[0] if names else platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"


def provenance(records: Sequence[Record]) -> list[str]:
    """Everything that is needed to run it again, from the records themselves."""
    hashes = {record["dataset"]: record["environment"]["data_hash"] for record in records}
    lines = [
        f"Seeds: {', '.join(str(seed) for seed in sorted({record['seed'] for record in records}))}.",
        f"Data (SHA-256): {', '.join(f'{name} {digest[:12]}' for name, digest in hashes.items())}.",
        f"Training time: {sum(record['seconds'] for record in records):,.0f} s for {len(records):,} runs.",
    ]
    failed = [_failed_run(record) for record in records if is_failed(record)]
    left_out = f"{len(failed):,} of {len(records):,} runs failed in training and are left out: {'; '.join(failed)}."
    return [*([left_out] if failed else []), *describe(*(record["environment"] for record in records)), *lines]


def _failed_run(record: Record) -> str:
    """`dna, gated with mu 0.1, seed 3, in epoch 12: Sum 'root': a parameter is not finite`."""
    mu, share = record["method"]["mu"], record["fraction"]
    strength = "" if mu is None else f" with mu {mu:g}" if isinstance(mu, int | float) else f" with mu {mu}"
    rows = "" if share == 1 else f" {share:.0%}"
    failure = record["failure"]
    where = f"{record['dataset']}{rows}, {record['label']}{strength}, seed {record['seed']}"
    return f"{where}, in epoch {failure['epoch']}: {failure['reason']}"


def describe(*environments: Record) -> list[str]:
    """Command, hardware and software, each different one once."""
    lines = {
        "Command": [f"`{e['command']}`" for e in environments if e["command"]],
        "Hardware": [e["hardware"] for e in environments],
        "Software": [_software(e) for e in environments],
    }
    return [f"{name}: {'; '.join(dict.fromkeys(texts))}." for name, texts in lines.items() if texts]


def choice_note(study: Study) -> str:
    """How mu and whatever else competes was chosen."""
    epoch = "" if study.protocol.choose_epoch == "last" else " at each run's best epoch"
    starts = "starts, " if len(study.starts) > 1 else ""
    return (
        f"Of several strengths mu (and {starts}pseudocounts or gates) the one with the best mean validation "
        f"log-likelihood over seeds{epoch} is taken, for each data set and method on its own; test rows play no part."
    )


def grid_notes(study: Study) -> list[str]:
    """What validation chose from, for each method with a choice."""
    found: dict[str, list[str]] = {}
    for label in study.labels:
        settings = [setting for setting in study.settings if setting.label == label]
        if len(settings) > 1:
            found.setdefault(_grid(settings), []).append(label)
    return [f"{', '.join(labels)}: {grid}." for grid, labels in found.items()]


def _grid(settings: Sequence[Setting]) -> str:
    """`mu of 0.01, 0.1, from a random or prototypes start`; a start or gate that all of them have is left out."""
    methods = [setting.method for setting in settings]
    values = dict.fromkeys(m.pseudocount if isinstance(m, Vanilla) else m.mu for m in methods)
    gates = dict.fromkeys(gate_name(m.gate) for m in methods if isinstance(m, Gated))
    starts = dict.fromkeys(setting.init for setting in settings)
    text = f"{'pseudocounts' if isinstance(methods[0], Vanilla) else 'mu'} of {', '.join(f'{v:g}' for v in values)}"
    text += f", gated by {' or '.join(gates)}" if len(gates) > 1 else ""
    added = dict.fromkeys(m.pseudocount for m in methods if not isinstance(m, Vanilla))
    text += f", with a pseudocount of {' or '.join(f'{v:g}' for v in added)}" if any(added) else ""
    return text + (f", from a {' or '.join(starts)} start" if len(starts) > 1 else "")


def _software(environment: Record) -> str:
    commit = f" ({environment['commit']})" if environment["commit"] else ""
    return f"circurve {environment['version']}{commit}, torch {environment['torch']}, Python {environment['python']}"
