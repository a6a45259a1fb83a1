"""Where numbers come from: command, versions and hardware, without names or paths of the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from circurve._version import __version__
from circurve.model import as_device

__all__ = ["describe_environment", "portable_command"]


def describe_environment(command: str | None, device: str) -> dict[str, Any]:
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
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
