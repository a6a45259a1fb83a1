"""Parts of a fleet, or fleets of a study, as tasks of a Ray cluster.

A task gets what it needs as one record, and asks for as many cores as torch uses here, or for a GPU. Ray runs a task
again when its worker or node is lost; a part of a fleet depends only on its record, so the result is the same.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data import RowSource, Table
from circurve.errors import MissingPackageError, OptionError, TrainingError
from circurve.graph import Circuit
from circurve.learning.checkpoints import open_parts
from circurve.learning.checks import check_choice
from circurve.learning.fingerprint import Training
from circurve.learning.history import FleetResult
from circurve.learning.options import Run, Settings

__all__ = [
    "ENGINES",
    "Engine",
    "FleetTask",
    "check_engine",
    "require_ray",
    "run_on_ray",
    "run_until_interrupted",
    "train_on_ray",
]

Engine: TypeAlias = Literal["local", "ray"]
ENGINES = ("local", "ray")

PART = re.compile(r"(\d+)-(\d+)")

MAX_RETRIES = 5
"""How often a task is run again whose worker was lost."""

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class FleetTask:
    """All that the training of a fleet, or of a part of it, depends on."""

    circuit: Circuit
    prepared: Mapping[str, RowSource]
    """Checked data: train, and valid and test where there are any."""

    rows: Mapping[str, NDArray[np.int64]]
    """Which rows of the given table went where."""

    runs: tuple[Run, ...]
    settings: Settings
    refit: bool


def check_engine(engine: object, prepared: Mapping[str, RowSource], start: object, callbacks: Sequence[Any]) -> Engine:
    """The engine, if it can do what is asked for; OptionError if not."""
    check_choice("engine", engine, ENGINES)
    if engine == "local":
        return "local"
    require_ray()
    refused = {
        "start": start is not None,
        "callbacks": bool(callbacks),
        "data that are read as a stream": not all(isinstance(part, Table) for part in prepared.values()),
    }
    wrong = next((name for name, given in refused.items() if given), None)
    if wrong is not None:
        raise OptionError(f"engine='ray' cannot be combined with {wrong}; use engine='local'")
    return "ray"


def require_ray() -> None:
    """MissingPackageError if Ray is not installed."""
    if find_spec("ray") is None:
        raise MissingPackageError("engine='ray' needs ray: pip install 'circurve[ray]'")


def train_on_ray(task: FleetTask, train: Callable[[FleetTask], FleetResult]) -> FleetResult:
    """The results of all runs, trained in as many parts as the cluster can train at once.

    With checkpoints, the parts are those of the first call, however many the cluster could train now.
    """
    settings, device = task.settings, str(task.settings.device)

    def divide() -> str:
        return ", ".join(f"{first}-{last}" for first, last in _cuts(len(task.runs), slots(device)))

    if settings.checkpoint is None:
        return _train_parts(task, divide(), train)
    folder = Path(settings.checkpoint).absolute()  # tasks may run in another folder
    here = replace(task, settings=replace(settings, checkpoint=folder))
    facts = Training(task.circuit, task.prepared, task.runs, settings, None, {"refit": str(task.refit)}).facts()
    with open_parts(folder, "fit_fleet with engine='ray'", facts, divide) as parts:
        return _train_parts(here, parts, train)


def _train_parts(task: FleetTask, parts: str, train: Callable[[FleetTask], FleetResult]) -> FleetResult:
    """parts: from which run to which each goes, such as `0-2, 2-4`."""
    cuts = [(int(first), int(last)) for first, last in PART.findall(parts)]
    tasks = [
        replace(task, runs=task.runs[first:last], settings=task.settings.part(f"part-{first}-{last}"))
        for first, last in cuts
    ]
    found = run_until_interrupted(train, tasks, str(task.settings.device))
    if not found:
        raise KeyboardInterrupt
    results = (found[number] if number in found else _begun(part, train) for number, part in enumerate(tasks))
    return FleetResult(tuple(result for part in results for result in part))


def _begun(task: FleetTask, train: Callable[[FleetTask], FleetResult]) -> FleetResult:
    """The runs of an interrupted part that returned nothing: with their initial parameters."""
    settings = replace(task.settings, epochs=0, checkpoint=None)
    results = train(replace(task, settings=settings, refit=False))
    return FleetResult(tuple(replace(result, stopped="interrupted") for result in results))


def _cuts(count: int, parts: int) -> list[tuple[int, int]]:
    """Where the parts of a fleet of this many runs begin and end; parts are as equal as possible."""
    parts = max(1, min(parts, count))
    return [(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def slots(device: str) -> int:
    """How many tasks the cluster runs at once."""
    ray = _connected()
    need, there = _resources(device), ray.cluster_resources()
    scarce = "GPU" if need["num_gpus"] else "CPU"
    return max(1, int(there.get(scarce, 0) // need[f"num_{scarce.lower()}s"]))


def run_on_ray(
    function: Callable[[Any], Result], parts: Sequence[Any], device: str = "cpu"
) -> Iterator[tuple[int, Result]]:
    """`function` of each part as a task; the number of each part with its result, as soon as it is there.

    An exception of the function itself is raised here. A part whose worker is lost runs again, MAX_RETRIES times.
    """
    ray = _connected()
    waiting = _start(ray, function, parts, device)
    try:
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done[0])
            yield number, _result(ray, done[0], number)
    finally:
        _end(ray, waiting)


def run_until_interrupted(
    function: Callable[[Any], Result], parts: Sequence[Any], device: str = "cpu"
) -> dict[int, Result]:
    """`function` of each part as a task: the results by the number of the part.

    An interrupt is passed on to the tasks; those that return then have a result too. Another one ends the others.
    """
    ray = _connected()
    waiting, found = _start(ray, function, parts, device), dict[int, Result]()
    interrupts = 0
    try:
        while waiting and interrupts < 2:
            try:
                if interrupts:
                    _end(ray, waiting, force=False)
                _collect(ray, waiting, found, interrupts > 0)
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        _end(ray, waiting)
    return found


def _collect(ray: Any, waiting: dict[Any, int], found: dict[int, Any], interrupted: bool) -> None:
    """Move tasks from those that are waited for to those whose result is found; all that return, in the end.

    interrupted: tasks may end without a result.
    """
    while waiting:
        done, _ = ray.wait(list(waiting), num_returns=1)
        number = waiting[done[0]]
        try:
            found[number] = _result(ray, done[0], number)
        except ray.exceptions.TaskCancelledError:
            if not interrupted:
                raise
        del waiting[done[0]]


def _start(ray: Any, function: Callable[[Any], Any], parts: Sequence[Any], device: str) -> dict[Any, int]:
    """A task for each part, with the part's number."""
    remote = ray.remote(max_retries=MAX_RETRIES, **_resources(device))(_in_worker)
    return {remote.remote(function, part, torch.get_num_threads()): number for number, part in enumerate(parts)}


def _end(ray: Any, tasks: Iterable[Any], force: bool = True) -> None:
    """End tasks; without force they are interrupted, and may return what they have."""
    for task in tasks:
        ray.cancel(task, force=force)


def _result(ray: Any, task: Any, number: int) -> Any:
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        error.cause.add_note(f"in a task of Ray: {error}")
        raise error.cause from None
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError) as error:
        lost = f"the worker of part {number + 1} was lost {MAX_RETRIES + 1} times ({type(error).__name__})"
        raise TrainingError(f"{lost}; give workers more memory, or train fewer runs at once") from None


def _in_worker(function: Callable[[Any], Result], part: Any, threads: int) -> Result:
    """With as many threads as the caller has: results then have the same bits."""
    torch.set_num_threads(threads)
    return function(part)


def _resources(device: str) -> dict[str, float]:
    """What a task asks for. "auto" takes a GPU where the cluster has any."""
    ray = _connected()
    there = ray.cluster_resources()
    gpu = device.startswith("cuda") or (device == "auto" and there.get("GPU", 0) >= 1)
    cores = max(node["Resources"].get("CPU", 1.0) for node in ray.nodes() if node["Alive"])
    return {"num_cpus": min(float(torch.get_num_threads()), cores), "num_gpus": 1.0 if gpu else 0.0}


def _connected() -> Any:
    """Ray, connected to a cluster: the one that the user has chosen, or a local one with the cores of this machine."""
    import ray  # noqa: PLC0415 - optional, and slow to import

    if not ray.is_initialized():
        before = signal.getsignal(signal.SIGTERM)
        ray.init(log_to_driver=False, configure_logging=False)
        if callable(before):  # Ray has a handler of its own, which would end the program without saving anything
            with suppress(ValueError):  # in another thread neither of the two can be set
                signal.signal(signal.SIGTERM, before)
    return ray
