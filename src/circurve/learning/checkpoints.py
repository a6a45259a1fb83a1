"""Checkpoints: a folder that holds what a training is, and its state after some epochs.

    DIR/training.json                  what is trained, as names and digests (`fingerprint.py`)
    DIR/epoch-000120.safetensors       the state after epoch 120 (`state.py`), and the one before
    DIR/epoch-000100.safetensors
    DIR/epoch-000120-000000400.safetensors   the state after 400 steps of the next epoch
    DIR/units-8/...                    a part: a training of its own within a longer one
    DIR/.lock                          locked while a training uses the folder; a process that ends has no lock

Files are written whole or not at all. Their tensors are those of the state; everything else is JSON in the
metadata entry `checkpoint`, with checksums of both. Nothing in them can run code.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from circurve._version import __version__
from circurve.errors import Argument, FileAccessError, FileFormatError, OptionError, warn_user
from circurve.learning.every import Every, parse_every
from circurve.learning.fingerprint import Facts, differences
from circurve.learning.options import Settings
from circurve.learning.parallel import wait_for_workers, worker, workers
from circurve.learning.state import Array, TrainerState, from_arrays, to_arrays
from circurve.whole_files import LOCK_NAME, lock_file, replace_file
from circurve.words import counted

__all__ = ["KEPT", "Checkpoints", "claim", "open_checkpoints", "open_parts"]

FORMAT, VERSION = "circurve checkpoint", 1

KEPT = 2
"""How many checkpoints are kept: if the last one is damaged, the one before is used."""

FACTS = "training.json"
PARTS = "parts"
"""The entry of a training's facts that says into which parts it is divided."""

NAME = re.compile(r"epoch-(\d{6,})(?:-(\d{9,}))?\.safetensors")

Place: TypeAlias = tuple[int, int]
"""How far a training has come: complete epochs, and steps of the next one."""


def claim(folder: str | os.PathLike[str] | None, function: str, facts: Callable[[], Facts]) -> None:
    """Reserve a folder for this training; an error if it belongs to another training. None does nothing.

    For trainings of several parts, whose checkpoints are in subfolders.
    """
    if folder is not None:
        _claim_together(Path(folder), {"function": function, **facts()})


@contextmanager
def open_checkpoints(settings: Settings, facts: Facts) -> Iterator[Checkpoints | None]:
    """The checkpoints of one training of a fleet, with its folder locked until it ends; None if none are asked for.

    OptionError if another training is using the folder.
    """
    if settings.checkpoint is None:
        yield None
        return
    folder = Path(settings.checkpoint)
    with _locked(folder) if worker() == 0 else nullcontext():
        _claim_together(folder, {"function": "fit_fleet", **facts})
        yield Checkpoints(folder, parse_every(settings.checkpoint_every))


@contextmanager
def open_parts(folder: str | os.PathLike[str], function: str, facts: Facts, divide: Callable[[], str]) -> Iterator[str]:
    """Lock and reserve a folder for a training in parts, whose checkpoints are in subfolders; gives the parts as text.

    They are those of the first call, where `divide` made them, so that every later call finds all checkpoints.
    OptionError if the folder belongs to another training, or another process is using it.
    """
    place = Path(folder)
    with _locked(place):
        known = _read_facts(place)
        parts = divide() if known is None else known.get(PARTS, "")
        _claim(place, {"function": function, **facts, **({PARTS: parts} if parts else {})})
        yield parts


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder: two trainings in one folder would load each other's states."""
    _make(folder)
    try:
        number = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise FileAccessError(f"cannot write {folder / LOCK_NAME}: {error.strerror or error}") from error
    try:
        if not lock_file(number):
            hint = ": wait until it ends, or name another folder"
            raise OptionError(Argument("checkpoint"), f" {folder}: another training is using this folder", hint)
        yield
    finally:
        os.close(number)


def _claim_together(folder: Path, facts: Facts) -> None:
    """Worker 0 writes what is not there yet, the others compare with it."""
    if worker() == 0:
        _claim(folder, facts)
    wait_for_workers()
    if worker() > 0:
        _claim(folder, facts)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            Argument("checkpoint"), f" {folder}: cannot make the folder: {error.strerror or error}"
        ) from None


def _claim(folder: Path, facts: Facts) -> None:
    _make(folder)
    known = _read_facts(folder)
    if known is None:
        others = [name for name in os.listdir(folder) if NAME.fullmatch(name)]
        if others:
            raise FileFormatError(f"checkpoint {folder}: {FACTS} is missing; delete the folder to start again")
        document = {"format": FORMAT, "version": VERSION, "training": facts}
        replace_file(folder / FACTS, json.dumps(document, indent=1).encode())
        return
    found = differences(known, facts)
    if found:
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise OptionError(
            Argument("checkpoint"),
            f" {folder} belongs to another training ({'; '.join(found[:3])}{more}): "
            "name another folder, or delete this one",
        )


def _read_facts(folder: Path) -> Facts | None:
    path = folder / FACTS
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileAccessError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        document = json.loads(text)
        facts = document["training"]
        whole = document["format"] == FORMAT and all(isinstance(text, str) for text in facts.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise FileFormatError(f"{path} is damaged, or not a file of Circurve; delete the folder to start again")
    if document.get("version") != VERSION:
        raise FileFormatError(f"{path} was written by another version of Circurve; delete the folder to start again")
    return dict(facts)


class Checkpoints:
    """The states of one training, in a folder that no other training uses."""

    def __init__(self, folder: Path, every: Every) -> None:
        self.folder, self.every = folder, every
        self.saved: Place | None = None  # of the newest one
        self._last, self._failed = time.monotonic(), False

    @property
    def newest(self) -> str | None:
        """How far the newest checkpoint is that is there."""
        places = self._places()
        return in_words(places[0]) if places else None

    def due(self, epoch: int, done: bool) -> bool:
        """Whether one should be written after this epoch, or because the training is done."""
        if done and self.every.finished:
            return True
        if self.every.epochs is not None:
            return epoch % self.every.epochs == 0
        return self.overdue()

    def overdue(self) -> bool:
        """Whether one should be written before the epoch is complete."""
        return self.every.epochs is None and time.monotonic() - self._last >= (self.every.seconds or 0.0)

    def save(self, state: TrainerState) -> bool:
        """Write a state and keep the one before. Without space or memory for it: a warning, and False.

        Those that are further are of an epoch that is repeated, and removed. Of several workers the first one writes.
        """
        place = state.epoch, state.steps
        if worker() > 0:
            self.saved, self._last = place, time.monotonic()
            return True
        try:
            replace_file(self._path(place), _encoded(state))
        except (FileAccessError, MemoryError) as error:
            if not self._failed:
                kept = (
                    "there is no earlier checkpoint"
                    if self.saved is None or not os.path.exists(self._path(self.saved))
                    else f"the checkpoint of {in_words(self.saved)} is kept"
                )
                reason = str(error) or type(error).__name__
                warn_user(f"no checkpoint after {in_words(place)}: {reason}; {kept}, and training continues")
            self._failed, self._last = True, time.monotonic()
            return False
        self.saved, self._last, self._failed = place, time.monotonic(), False
        places = self._places()
        further, others = [other for other in places if other > place], [other for other in places if other <= place]
        for other in (*further, *others[KEPT:]):
            with suppress(OSError):
                self._path(other).unlink()
        return True

    def load(self, device: torch.device) -> TrainerState | None:
        """The newest state that is whole, with a warning for each damaged one that is newer; None at the beginning."""
        places = self._places()
        for number, place in enumerate(places):
            path = self._path(place)
            try:
                state, environment = _decoded(path, device)
            except FileFormatError as error:
                if number == len(places) - 1:
                    raise FileFormatError(
                        f"{error}; there is no other complete checkpoint: delete {self.folder}"
                    ) from error
                warn_user(f"{error}; using the earlier checkpoint of {in_words(places[number + 1])}")
                continue
            self.saved = place
            changed = differences(environment, _environment(device))
            if changed and not state.done:
                warn_user(f"checkpoint {self.folder}: {'; '.join(changed)}; results may differ by rounding")
            return state
        return None

    def _path(self, place: Place) -> Path:
        epoch, steps = place
        return self.folder / (f"epoch-{epoch:06}" + (f"-{steps:09}" if steps else "") + ".safetensors")

    def _places(self) -> list[Place]:
        """How far the existing checkpoints are, newest first."""
        found = (NAME.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(((int(match[1]), int(match[2] or 0)) for match in found if match is not None), reverse=True)


def in_words(place: Place) -> str:
    """`epoch 3`, or `epoch 3 and 20 steps`."""
    epoch, steps = place
    return f"epoch {epoch}" + (f" and {counted(steps, 'step')}" if steps else "")


def _environment(device: torch.device) -> Facts:
    """What the last bits of a result depend on, in addition to the training itself."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    facts = {"device": name, "torch": torch.__version__, "circurve": __version__, "platform": sys.platform}
    facts["workers"] = str(workers())
    return facts if device.type == "cuda" else {**facts, "threads": str(torch.get_num_threads())}


def _device(state: TrainerState) -> torch.device:
    if state.kept is not None:
        return state.kept.device
    return next(iter(state.finished.values())).params.device


def _encoded(state: TrainerState) -> bytes:
    arrays, values = to_arrays(state)
    document = json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "done": state.done,
            "environment": _environment(_device(state)),
            "tensors_crc32": _crc32(arrays),
            "state": values,
        }
    )
    checksum = str(zlib.crc32(document.encode()))
    return to_bytes(arrays, {"checkpoint": document, "crc32": checksum})


def _decoded(path: Path, device: torch.device) -> tuple[TrainerState, Facts]:
    """A state and the environment that it was written in; FileFormatError for a file that is not whole."""
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            document = metadata.get("checkpoint", "")
            if metadata.get("crc32") != str(zlib.crc32(document.encode())):
                raise FileFormatError(f"{path} is damaged")
            content: Mapping[str, Any] = json.loads(document)
            if content["version"] != VERSION:
                raise FileFormatError(f"{path} was written by another version of Circurve")
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
        if _crc32(arrays) != content["tensors_crc32"]:
            raise FileFormatError(f"{path} is damaged")
        return from_arrays(arrays, content["state"], device), dict(content["environment"])
    except FileFormatError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, IndexError) as error:
        raise FileFormatError(f"{path} is damaged ({error})") from error
    except OSError as error:
        raise FileAccessError(f"cannot read {path}: {error.strerror or error}") from error


def _crc32(arrays: Mapping[str, Array]) -> int:
    """One checksum over all arrays, in the order of their names."""
    checksum = 0
    for name in sorted(arrays):
        checksum = zlib.crc32(arrays[name].reshape(-1).view("uint8").data, checksum)
    return checksum
