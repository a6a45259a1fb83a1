"""Processes that train together in a group of torch.distributed, and what each of them returned or raised."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from circurve import OptionError, WorkerError
from forked import CONTEXT

PATIENCE = 600


@dataclass(frozen=True)
class Group:
    """How the workers are started. A process that uses a GPU must not be forked: context "spawn"."""

    workers: int = 2
    backend: str = "gloo"
    context: Any = CONTEXT


def _work(number: int, group: Group, store: Path, job: dict[str, Any], results: Any) -> None:
    """One worker; with job["death"], worker 1 kills itself after this many epochs."""
    torch.set_num_threads(1)
    dist.init_process_group(group.backend, init_method=f"file://{store}", rank=number, world_size=group.workers)
    options = dict(job["options"])

    def die(event: Any) -> None:
        if number == 1 and event.epoch == job["death"]:
            os.kill(os.getpid(), signal.SIGKILL)

    more = [options.pop(f"only {each}", {}) for each in range(group.workers)]
    own = {**options, **more[number]}
    try:
        results.put(pickle.dumps((number, job["train"](callbacks=[die], **own))))  # plain bytes, no shared memory
        dist.destroy_process_group()
    except (OptionError, WorkerError) as error:
        results.put(pickle.dumps((number, error)))
    except BaseException:  # the parent should see it
        results.put(pickle.dumps((number, AssertionError(traceback.format_exc()))))


def together(
    train: Callable[..., Any], folder: Path, death: int | None = None, group: Group | None = None, **options: Any
) -> dict[int, Any]:
    """What each worker returned or raised; options named "only 1" are those of worker 1."""
    group = group or Group()
    folder.mkdir(exist_ok=True)
    store = folder / f"store{len(list(folder.iterdir()))}"
    results = group.context.Queue()
    job = {"train": train, "options": options, "death": death}
    children = [
        group.context.Process(target=_work, args=(number, group, store, job, results))
        for number in range(group.workers)
    ]
    for child in children:
        child.start()
    answers = group.workers - (death is not None)
    found = dict(pickle.loads(results.get(timeout=PATIENCE)) for _ in range(answers))
    for child in children:
        child.join(PATIENCE)
    for answer in found.values():
        if isinstance(answer, AssertionError):
            raise answer
    return found
