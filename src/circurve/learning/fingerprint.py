"""What a training is: circuit, data and options as short texts and digests that can be compared by name.

Two calls with the same facts give the same training. Callbacks, progress, the device, the memory budget and the
checkpoints themselves are no part of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from circurve.data import RowSource, Stream, Table
from circurve.data.digest import reader_digest
from circurve.graph import Circuit, Input, Product, Sum
from circurve.learning.describe import Describer
from circurve.learning.options import Run, Settings
from circurve.model import Model

__all__ = [
    "Facts",
    "Training",
    "circuit_digest",
    "describe_value",
    "differences",
    "option_facts",
    "table_facts",
    "text_digest",
]

Facts: TypeAlias = dict[str, str]
"""Name -> a value in words, or a digest, which begins with DIGEST."""

DIGEST = "sha256:"

BLOCK = 1 << 26
"""How many bytes of a table are digested at a time."""

IGNORED_OPTIONS = ("device", "memory_budget", "checkpoint", "checkpoint_every")
"""Options that may change between two calls of one training."""


@dataclass(frozen=True)
class Training:
    """One training of a fleet."""

    circuit: Circuit
    tables: Mapping[str, RowSource]
    runs: Sequence[Run]
    settings: Settings
    start: Model | None
    more: Facts

    def facts(self) -> Facts:
        """All that decides about its result, but the device."""
        start = None if self.start is None else self.start.params
        return {
            "circuit": circuit_digest(self.circuit),
            **table_facts(self.tables),
            "number of runs": str(len(self.runs)),
            **{name: fact for number, run in enumerate(self.runs) for name, fact in self._run_facts(number, run)},
            **option_facts(self.settings),
            "start": "none" if start is None else digest([*start.weights, *start.inputs]),
            **self.more,
        }

    def _run_facts(self, number: int, run: Run) -> Iterator[tuple[str, str]]:
        lead = "" if len(self.runs) == 1 else f"run {number}: "
        yield f"{lead}method", type(run.method).__name__
        for record in (run, run.method):
            for name, fact in option_facts(record).items():
                if name not in ("method", "label"):
                    yield (f"{lead}step_size of the run" if name == "step_size" else f"{lead}{name}"), fact


def option_facts(record: Any) -> Facts:
    """The options of a record that decide about a training."""
    names = [given.name for given in fields(record) if given.name not in IGNORED_OPTIONS]
    return {name: describe_value(getattr(record, name)) for name in names}


def table_facts(tables: Mapping[str, RowSource | None]) -> Facts:
    """A digest of each table."""
    return {f"{name} rows": "none" if table is None else _table_digest(table) for name, table in tables.items()}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, in words: `epochs was 100, is 200`, `train rows differ`."""
    found = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name, "not given"), now.get(name, "not given")
        if old != new:
            hidden = old.startswith(DIGEST) and new.startswith(DIGEST)
            shown = [("given" if text.startswith(DIGEST) else text) for text in (old, new)]
            found.append(f"{name}: not the same" if hidden else f"{name}: was {shown[0]}, is {shown[1]}")
    return found


def text_digest(value: object) -> str:
    """The digest of the description of a value, for long descriptions."""
    return DIGEST + hashlib.sha256(describe_value(value).encode()).hexdigest()


def describe_value(value: Any) -> str:
    """A value as a text that is the same in every process: records field by field, functions by what they do."""
    return Describer(lambda each: circuit_digest(each) if isinstance(each, Circuit) else None)(value)


def circuit_digest(circuit: Circuit) -> str:
    """The digest of the nodes with their families, masks and selections, and of the roots; names do not count."""
    position = {node: number for number, node in enumerate(circuit.nodes)}
    found = hashlib.sha256()
    for node in circuit.nodes:
        text: list[Any] = [type(node).__name__, int(node.units)]
        arrays: list[Any] = []
        if isinstance(node, Input):
            text += [int(node.variable), describe_value(node.family)]
        else:
            text.append([position[child] for child in node.children])
        if isinstance(node, Product):
            text.append([chosen is not None for chosen in node.select])
            arrays += [chosen for chosen in node.select if chosen is not None]
        if isinstance(node, Sum) and node.mask is not None:
            arrays.append(node.mask)
        found.update(repr(text).encode())
        for array in arrays:
            found.update(np.ascontiguousarray(array).tobytes())
    found.update(repr([position[root] for root in circuit.roots]).encode())
    return DIGEST + found.hexdigest()


def _table_digest(source: RowSource) -> str:
    """The digest of all rows; for a stream see `_stream_digest`."""
    if isinstance(source, Table):
        return digest((source.values, source.observed, source.weights, source.labels, source.impossible))
    assert isinstance(source, Stream)
    return _stream_digest(source)


def _stream_digest(stream: Stream) -> str:
    """Of the source of a stream (see `reader_digest` for what it sees and what it does not), without a pass over it.

    To this comes what decides which rows come when, and what they become: the choice of rows, how far they are
    shuffled, the mark of missing values, the schema, and what the check of all rows found.
    """
    facts = [reader_digest(stream.reader), stream.shape, stream.window, stream.missing]
    facts.append("all rows" if stream.chosen is None else digest([stream.chosen]))
    if stream.binding is not None:
        bound = stream.binding
        facts += [bound.schema, bound.missing, bound.impossible, bound.known_values, str(bound.dtype)]
    return text_digest(facts)


def digest(tensors: Iterable[Tensor | None]) -> str:
    """The digest of the shapes, types and values of tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            found.update(b"none")
            continue
        found.update(repr((tuple(tensor.shape), str(tensor.dtype))).encode())
        rows = max(1, BLOCK // max(1, tensor[:1].numel() * tensor.element_size())) if tensor.ndim else 1
        for part in torch.split(tensor, rows) if tensor.ndim else [tensor]:
            found.update(np.ascontiguousarray(part.detach().cpu().numpy()).reshape(-1).view(np.uint8).data)
    return DIGEST + found.hexdigest()
