"""Faults put into a training at a known moment, for one run of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from circurve import Run, Vanilla
from circurve.data import Table
from circurve.engine import Params
from circurve.learning.graph_steps import GraphSteps
from circurve.learning.steps import PlainSteps

MARKED = Run(Vanilla(pseudocount=0.125), seed=5)
"""The run that fails: it is found by its method, at any place in the fleet."""

Fault = Callable[[Params, int], None]
"""Changes the parameters of the run at a place."""


def in_weights(value: float) -> Fault:
    def fault(params: Params, place: int) -> None:
        params.weights[-1][place].view(-1)[0] = value

    return fault


def in_inputs(value: float) -> Fault:
    def fault(params: Params, place: int) -> None:
        params.inputs[0][place, -1, 0, 0] = value

    return fault


def place_of(plan: Any) -> int | None:
    return plan.methods.index(MARKED.method) if MARKED.method in plan.methods else None


def break_parameters(monkeypatch: Any, epoch: int, fault: Fault, before: bool = False) -> None:
    """The fault strikes at the end of the epoch, or before its first step."""
    for kind in (PlainSteps, GraphSteps):
        _break_run(monkeypatch, kind, epoch, fault, before)


def _break_run(monkeypatch: Any, kind: Any, epoch: int, fault: Fault, before: bool) -> None:
    epochs, run = iter(range(1, 10**6)), kind.run

    def strike(self: Any) -> None:
        place = place_of(self.plan)
        assert place is not None
        if isinstance(self, PlainSteps):
            self.params = self.params.clone()  # an M-step never writes into the parameters before it
        fault(self.params, place)

    def broken(self: Any, *arguments: Any) -> Any:
        now = place_of(self.plan) is not None and next(epochs) == epoch
        if now and before:
            strike(self)
        totals = run(self, *arguments)
        if now and not before:
            strike(self)
        return totals

    monkeypatch.setattr(kind, "run", broken)


def break_statistics(monkeypatch: Any, call: int, change: Callable[[Any, int], Any]) -> None:
    """Change what the E-step of that number, from 1, returns for the marked run."""
    calls, e_step = iter(range(1, 10**6)), PlainSteps._e_step

    def broken(self: Any, rows: Any) -> Any:
        sums = e_step(self, rows)
        place = place_of(self.plan)
        return change(sums, place) if place is not None and next(calls) == call else sums

    monkeypatch.setattr(PlainSteps, "_e_step", broken)


def break_data(monkeypatch: Any, rows: int) -> None:
    """Put a NaN into the table with this many rows once it is on the device, after all checks of the table."""
    move = Table.to

    def broken(self: Table, device: Any) -> Table:
        table = move(self, device)
        if len(table) != rows or table.schema is None:  # before its check
            return table
        values = table.values.clone()
        values[1, 0] = torch.nan
        return replace(table, values=values)

    monkeypatch.setattr(Table, "to", broken)
