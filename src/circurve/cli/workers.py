"""`torchrun -m circurve fit`: the process group of data-parallel training, and which worker prints and writes."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

from circurve.learning.parallel import worker

__all__ = ["join_workers", "leave_workers"]


def join_workers() -> None:
    """Form a group with the other processes that torchrun has started; else nothing happens.

    Workers other than the first are silent and write no files.
    """
    if not dist.is_available() or not dist.is_torchelastic_launched() or dist.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(dist.get_node_local_rank())
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend)
    if worker() > 0:
        nowhere = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
        sys.stdout = sys.stderr = nowhere


def leave_workers() -> None:
    """End the group, where there is one."""
    if dist.is_available() and dist.is_torchelastic_launched() and dist.is_initialized():
        dist.destroy_process_group()
