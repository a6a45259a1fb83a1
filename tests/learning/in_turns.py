"""Two workers as threads of one process that take turns: one goes on only where the other waits for its sums."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from circurve.learning import parallel, parallel_graph_steps, steps_choice

PATIENCE = 120


class Turns:
    """Adds up the sums of two threads, in a fixed order. `calls` has the size of each all-reduce."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.local, self.turn, self.met = threading.local(), threading.Lock(), threading.Barrier(2, timeout=PATIENCE)
        self.parts: dict[int, Tensor] = {}
        self.calls: list[int] = []
        for module in (parallel, steps_choice):
            monkeypatch.setattr(module, "workers", lambda: 2)
        monkeypatch.setattr(parallel, "worker", lambda: self.local.number)
        for module in (parallel, parallel_graph_steps):
            monkeypatch.setattr(module, "add_up", self.add_up)

    def add_up(self, sums: Tensor) -> None:
        number = self.local.number
        self.parts[number] = sums.clone()
        if number == 0:
            self.calls.append(sums.numel())
        self.turn.release()
        self.met.wait()
        total = self.parts[0] + self.parts[1]
        self.met.wait()
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
