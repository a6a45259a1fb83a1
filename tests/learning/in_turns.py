"""Two workers as threads of one process that take turns: one goes on only where the other waits for its sums."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist
from torch import Tensor

PATIENCE = 600


class Turns:
    """Adds up the sums of two threads, in a fixed order. `calls` has the size of each sum."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.local, self.turn, self.met = threading.local(), threading.Lock(), threading.Barrier(2, timeout=PATIENCE)
        self.parts: dict[int, Tensor] = {}
        self.calls: list[int] = []
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        monkeypatch.setattr(dist, "get_rank", lambda: self.local.number)
        monkeypatch.setattr(dist, "all_reduce", self.all_reduce)

    def all_reduce(self, sums: Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        number = self.local.number
        self.parts[number] = sums.clone()
        added = op == dist.ReduceOp.SUM
        if number == 0 and added:
            self.calls.append(sums.numel())
        self.turn.release()
        try:
            self.met.wait()
            total = self.parts[0] + self.parts[1] if added else self.parts[0].maximum(self.parts[1])
            self.met.wait()
        finally:
            self.turn.acquire()
        sums.copy_(total)

    def run(self, train: Callable[[], Any]) -> list[Any]:
        """What `train` returns to each of the two workers."""
        found: dict[int, Any] = {}

        def work(number: int) -> None:
            self.local.number = number
            with self.turn:
                try:
                    found[number] = train()
                except BaseException as error:
                    found[number] = error
                    self.met.abort()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in found.values():
            if isinstance(result, BaseException) and not isinstance(result, threading.BrokenBarrierError):
                raise result
        return [found[0], found[1]]
