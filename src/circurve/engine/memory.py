"""How many samples to process at once: from a memory budget, and on a CPU from what its caches hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from circurve.budget import check_budget
from circurve.engine.backend import Backend
from circurve.errors import warn_user
from circurve.host_memory import available_memory
from circurve.words import counted

__all__ = [
    "CACHE_BYTES",
    "DEFAULT_SHARE",
    "chunk_size",
    "free_memory",
    "halve",
    "ran_out",
    "release_large",
    "within_memory",
]

Result = TypeVar("Result")

DEFAULT_SHARE = 0.4
"""The share of free memory used when no budget is given."""

CPU_CHUNK = 2048
"""Samples that a CPU computes at once by default: enough for the work of each operation to outweigh its overhead."""

CACHE_BYTES, MAX_BYTES = 36 << 20, 1 << 30
"""Small circuits take more samples, up to a working set of CACHE_BYTES; very large ones fewer, so that it stays below
MAX_BYTES. (Measured with benchmarks/cpu_em.py.)"""

MAX_CPU_CHUNK = 32768
"""No circuit gains from more samples at once than this on a CPU. (Measured.)"""


def free_memory(device: torch.device) -> int:
    """Bytes that could be allocated on a device now; 0 if other processes left too little even to ask."""
    if device.type == "cuda":
        try:
            free, _ = torch.cuda.mem_get_info(device)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            return 0
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + int(reserved)
    return available_memory()


MIN_FREE_BYTES = {"cpu": 16 << 20, "cuda": 256 << 20}
"""Bytes for which free memory is not looked up, which takes longer than computing a few rows. Should they not be free
after all, `within_memory` continues with fewer samples at once."""


def chunk_size(backend: Backend, backward: bool, memory_budget: int | None = None, samples: int | None = None) -> int:
    """The most samples whose buffers fit the budget in bytes (default: a share of the free memory), at least 1.

    samples: how many there are in all, if that is known. Without a budget, all of them if they need next to nothing.
    """
    check_budget(memory_budget)
    little = MIN_FREE_BYTES[backend.device.type]
    if memory_budget is None and samples and samples * backend.bytes_per_sample(backward) <= little:
        return samples
    budget = memory_budget if memory_budget is not None else int(DEFAULT_SHARE * free_memory(backend.device))
    fitting = max(1, budget // backend.bytes_per_sample(backward))
    if backend.device.type != "cpu":
        return fitting
    each = backend.bytes_per_sample(backward)
    comfortable = max(CACHE_BYTES // each, min(CPU_CHUNK, MAX_BYTES // each), 64)
    return min(fitting, comfortable, MAX_CPU_CHUNK)


OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What errors say that mean that a GPU has no memory left."""

MAX_KEPT_BYTES = 64 << 20
"""Buffers up to this size stay with a model between calls."""


def release_large(backend: Backend, samples: int, backward: bool) -> None:
    """Give the buffers of this many samples back, unless they are small: a person may hold many models."""
    if samples * backend.bytes_per_sample(backward) > MAX_KEPT_BYTES:
        with backend.lock:
            backend.release()


def within_memory(backend: Backend, chunk: int, work: Callable[[int], Result]) -> Result:
    """work(chunk), from the start with half as many samples at once whenever the device runs out of memory.

    The backend remembers what was too much. Its buffers are for one thread at a time: others wait.
    """
    chunk = min(chunk, backend.max_samples or chunk)
    while True:
        try:
            with backend.lock:
                return work(chunk)
        except RuntimeError as error:
            if chunk == 1 or not ran_out(error):
                raise
        chunk = backend.max_samples = halve(backend, chunk)  # here, where the error no longer holds on to tensors


def ran_out(error: BaseException) -> bool:
    """Whether a device ran out of memory. Libraries below torch have errors of their own for that."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY)


def halve(backend: Backend, chunk: int) -> int:
    """Half as many samples at once, with a warning; all buffers are given back."""
    backend.release()
    if backend.device.type == "cuda":
        torch.cuda.empty_cache()
    fewer = max(1, chunk // 2)
    warn_user(f"out of memory on {backend.device}: continuing with {counted(fewer, 'sample')} at once")
    return fewer
