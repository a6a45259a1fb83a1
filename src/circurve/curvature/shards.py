"""Statistics of a share of the rows as a file: shares are measured apart, anywhere, and added up.

An E-step returns sums over samples, and a curvature record holds means with the weight behind them; both add up over
rows. So a table that is cut into n shards gives, shard by shard on any machine, the statistics of the whole: rows never
leave the machine that holds them, and no framework connects the machines. Sums are in float64, whatever the precision
of the model, so that merged statistics differ from those of one pass by rounding of float64 alone.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from circurve.bounds import cut, parse_json
from circurve.budget import Need
from circurve.curvature.measure import curvature, samples_of
from circurve.curvature.record import Curvature, curvature_from_bytes
from circurve.data import Stream, Table, as_source
from circurve.data.array_files import read_npz, read_record, record_bytes
from circurve.data.digest import reader_digest
from circurve.data.readers import ArrayReader, FrameReader
from circurve.data.section import section
from circurve.engine import CurvatureSums, Request, Statistics, chunks
from circurve.engine.memory import chunk_size, within_memory
from circurve.errors import CircurveError, FileFormatError, OptionError
from circurve.learning.methods import Method, Vanilla
from circurve.learning.plan import Plan
from circurve.model import Model
from circurve.whole_files import replace_file
from circurve.words import counted

__all__ = ["ShardStatistics", "load_statistics", "merge_files", "merge_statistics", "shard_rows", "statistics"]

FORMAT = "circurve statistics 1"

EVERYTHING = Request(curvature=True, mean_ratio=True, second_moment=True, flow_weighted=True, squared_ratio=True)
"""What an M-step of any method reads."""

BLOCK_VALUES = 1 << 22
"""How many values are digested at a time."""


@dataclass(frozen=True)
class Share:
    """Rows that statistics were measured on, as far as it takes to see that some would count twice."""

    name: str
    """`2/4`, or `rows` and their digest for rows that were not cut."""

    table: str = ""
    """The digest of the table's rows, or of its file if it is streamed; empty where it is not known."""

    rows: str = ""
    """The digest of the rows themselves; empty where it is not known."""

    @property
    def whole(self) -> bool:
        """Whether these are all rows of the table."""
        return "/" not in self.name


@dataclass(frozen=True, eq=False)
class ShardStatistics:
    """The sums of an E-step over some rows under one model, and the curvature of that model on them.

    Those of different shards add up: `merge_statistics`.
    """

    model: str
    """The fingerprint of the model: statistics of different models do not add up."""

    shares: tuple[Share, ...]
    """Which rows are in it."""

    rows: int
    sums: Statistics
    """On the CPU, in float64, for one run."""

    curvature: Curvature

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shares, as `2/4` or, for rows that were not cut, as the digest of the rows."""
        return tuple(share.name for share in self.shares)

    @property
    def mean_log_likelihood(self) -> float:
        """The mean over all rows; -inf if a row has probability zero."""
        return float(self.sums.mean_log_likelihood[0])

    def maximize(self, model: Model, method: Method | None = None, step_size: float = 1.0) -> Model:
        """One full-batch M-step of `model` with these statistics: theta <- (1 - step) theta + step theta~.

        method: Vanilla(), Global(...) or Gated(...) with a number for mu; plain EM by default.
        """
        self.check_model(model)
        chosen: Method = Vanilla() if method is None else method
        mu = 0.0 if isinstance(chosen, Vanilla) else chosen.mu
        if not isinstance(mu, int | float):
            raise OptionError(f"mu must be a number for an M-step of merged statistics, not {mu!r}")
        old = model.params.to("cpu", torch.float64)
        weight = float(self.sums.weight[0])
        plan = Plan(model.program, [chosen], old.weights[0] if old.weights else old.inputs[0], data_weight=weight)
        new = plan.maximize(old, self.sums, [step_size], [float(mu)])
        return Model(model.circuit, new.to(model.device, model.dtype), model.program, model.schema)

    def check_model(self, model: Model) -> None:
        """OptionError if the statistics were not measured under this model."""
        if fingerprint(model) != self.model:
            raise OptionError("these statistics were measured with another model; measure them with this one")

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one .npz file, all or nothing."""
        arrays: dict[str, Any] = {
            "format": FORMAT,
            "model": self.model,
            "shards": json.dumps(self.shards),
            "digests": json.dumps([[share.table, share.rows] for share in self.shares]),
            "rows": self.rows,
            "curvature": np.frombuffer(self.curvature.to_bytes(), np.uint8),
            **{name: values.numpy() for name, values in _tensors(self.sums).items()},
        }
        content = io.BytesIO()
        np.savez(content, **arrays)
        replace_file(path, content.getvalue())


def statistics(
    model: Model,
    x: Any,
    *,
    shard: tuple[int, int] | None = None,
    missing: int | None = None,
    memory_budget: int | None = None,
) -> ShardStatistics:
    """The statistics of the rows of x, or of shard i of n of them (`shard=(i, n)`, from 1), under a model.

    All machines cut the same table in the same way, or each has rows of its own and gives no `shard`. Two E-steps in
    float64. `memory_budget` in bytes covers data, results and buffers. Of a stream, rows of other shards are not read
    (those of an iterable of batches are passed over).
    """
    source = as_source(x, missing)
    part = source if shard is None else _part_of(source, shard_rows(len(source), *shard))
    digest = _digest(part)
    table = _digest_of_table(source, digest if shard is None else None)
    share = Share(f"rows {digest}" if shard is None else f"{shard[0]}/{shard[1]}", table, digest)
    exact = model.to(dtype=torch.float64)
    samples = samples_of(exact, part)
    record = curvature(exact, part if isinstance(part, Table) else samples, memory_budget=memory_budget)
    backend = exact.backend

    def measured(size: int) -> Statistics:
        return backend.statistics(exact.params, chunks(samples, size, torch.float64), EVERYTHING)

    sums = within_memory(
        backend, min(len(samples), chunk_size(backend, backward=True, memory_budget=memory_budget)), measured
    )
    return ShardStatistics(fingerprint(model), (share,), len(samples), _on_cpu(sums), record)


def shard_rows(rows: int, number: int, shards: int) -> slice:
    """The rows of shard `number` of `shards`, from 1: as equal as can be, in their order, each row in one of them."""
    if not 1 <= number <= shards:
        raise OptionError(f"shard must be i/n with 1 <= i <= n, not {number}/{shards}")
    if shards > rows:
        raise OptionError(f"shard {number}/{shards}: the table has only {counted(rows, 'row')}")
    return slice(rows * (number - 1) // shards, rows * number // shards)


def _part_of(source: Table | Stream, rows: slice) -> Table | Stream:
    return source.rows(rows) if isinstance(source, Table) else section(source, rows.start, rows.stop)


def merge_statistics(parts: Sequence[ShardStatistics]) -> ShardStatistics:
    """The statistics of all parts together; in the order of their shards, so that the order of files does not matter.

    OptionError for no parts, for parts of different models, and where rows would visibly count twice.
    """
    _check_parts([_Part(f"statistics {place}", part.model, part.shares) for place, part in enumerate(parts, 1)])
    return reduce(_added, sorted(parts, key=lambda part: _first(part.shares)))


def merge_files(
    paths: Sequence[str | PathLike[str]], *, trust: bool = False, memory_budget: int | None = None
) -> ShardStatistics:
    """`merge_statistics` of files, which are read one after the other: two of them are in memory at a time.

    `memory_budget` in bytes covers these two and their sum.
    """
    if memory_budget is not None:
        largest = max((record_bytes(path) for path in paths), default=0)
        Need("merge", {"two files and their sum": 3 * largest}, "merge files of a smaller model").left(memory_budget)
    parts = [_read_part(path, trust) for path in paths]
    _check_parts(parts)
    order = sorted(range(len(parts)), key=lambda place: _first(parts[place].shares))
    return reduce(_added, (load_statistics(paths[place], trust=trust) for place in order))


@dataclass(frozen=True)
class _Part:
    """What decides whether statistics can be merged, and what messages call them."""

    where: str
    model: str
    shares: tuple[Share, ...]


def _read_part(path: str | PathLike[str], trust: bool) -> _Part:
    """That of a file, without its sums; a damaged file is refused."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            stored = read_npz(file, size, trust, as_table=False, only=("model", "shards", "digests"))
        return _Part(str(path), str(stored["model"]), _shares(stored, size, trust))
    except Exception:  # the reader of the whole file says what is wrong
        found = load_statistics(path, trust=trust)
        return _Part(str(path), found.model, found.shares)


def _shares(stored: dict[str, Any], size: int, trust: bool) -> tuple[Share, ...]:
    """The shares of a file, which are taken out of what is stored."""
    names = parse_json(str(stored.pop("shards")), size, trust)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its shards are not a list of names")
    digests = parse_json(str(stored.pop("digests", "[]")), size, trust) or [["", ""]] * len(names)
    if not isinstance(digests, list) or len(digests) != len(names):
        raise ValueError("its digests do not fit its shards")
    return tuple(Share(name, str(table), str(rows)) for name, (table, rows) in zip(names, digests, strict=True))


def _first(shares: Sequence[Share]) -> list[tuple[int, str]]:
    return [_order(share.name) for share in shares]


def _check_parts(parts: Sequence[_Part]) -> None:
    """Refuse no parts, parts of different models, and shares that count some rows twice."""
    if not parts:
        raise OptionError("there are no statistics to merge; give at least one")
    if len({part.model for part in parts}) > 1:
        raise OptionError("the statistics were measured with different models; measure all shards with the same model")
    _check_overlap([(part.where, share) for part in parts for share in part.shares])
    counts = {share.name.partition("/")[2]: part.where for part in parts for share in part.shares if not share.whole}
    if len(counts) > 1:
        (one_count, one_place), (other_count, other_place), *_ = sorted(counts.items())
        raise OptionError(
            f"shards of different splits are mixed ({one_count} in {one_place}, {other_count} in {other_place}), "
            f"so some rows would count twice; use one split"
        )


def _check_overlap(placed: Sequence[tuple[str, Share]]) -> None:
    """Refuse shares that have rows in common, where names and digests tell; placed: where each share is."""
    names: dict[str, str] = {}
    wholes: dict[str, str] = {}
    cut: dict[str, tuple[str, str]] = {}
    contents: dict[str, tuple[str, str]] = {}
    for where, share in placed:
        before, why = names.get(share.name), f"shard {share.name} is given twice"
        if before is None and share.table:
            if share.whole and (of_it := cut.get(share.table) or cut.get(share.rows)):
                before, name = of_it
                why = f"all rows of a table and its shard {name} are given"
            elif not share.whole and share.table in wholes:
                before, why = wholes[share.table], f"all rows of a table and its shard {share.name} are given"
            elif share.rows in contents and contents[share.rows][1] != share.table:
                before, why = contents[share.rows][0], "the same rows are given twice"
        if before is not None:
            raise OptionError(f"{why} ({before} and {where}), so rows would count twice; leave one of them out")
        names[share.name] = where
        if share.table:
            contents.setdefault(share.rows, (where, share.table))
            if share.whole:
                wholes[share.table] = wholes[share.rows] = where  # shards know a streamed table by one of the two
            else:
                cut.setdefault(share.table, (where, share.name))


def _added(one: ShardStatistics, other: ShardStatistics) -> ShardStatistics:
    return ShardStatistics(
        one.model,
        tuple(sorted((*one.shares, *other.shares), key=lambda share: _order(share.name))),
        one.rows + other.rows,
        one.sums + other.sums,
        one.curvature + other.curvature,
    )


def _order(name: str) -> tuple[int, str]:
    number = name.partition("/")[0]
    return (int(number), "") if number.isdigit() else (0, name)


def fingerprint(model: Model) -> str:
    """The hash of a model's structure and parameters, whatever file or machine it is on."""
    found = hashlib.sha256(model.program.describe().encode())
    for values in (*model.params.weights, *model.params.inputs):
        found.update(_hash(values).encode())
    return found.hexdigest()[:20]


def _digest(source: Table | Stream) -> str:
    """The hash of values, gaps, weights and labels: the same for every kind of file that they were read from."""
    found = hashlib.sha256(f"{source.shape}".encode())
    for number, table in enumerate([source] if isinstance(source, Table) else source.pieces()):
        if number == 0:
            texts = [str((c.kind, c.categories, c.origin)) for c in table.codings or () if c.kind != "number"]
            found.update("\n".join(texts).encode())
        step = max(1, BLOCK_VALUES // max(1, table.shape[1]))
        for start in range(0, len(table), step):
            values = table.values[start : start + step].double().cpu() + 0.0  # -0.0 is 0.0
            if table.observed is not None:
                values = values.masked_fill(~table.observed[start : start + step].cpu(), torch.nan)
            found.update(np.ascontiguousarray(values.numpy()).data)
        for more in (table.weights, table.labels):
            if more is not None:
                found.update(np.ascontiguousarray(more.double().cpu().numpy()).data)
    return found.hexdigest()[:20]


def _digest_of_table(source: Table | Stream, known: str | None) -> str:
    """What tells the table of a share from others; of files that are streamed, without reading all rows.

    known: the digest of all its rows. Empty for batches and for chosen rows, of which too little is known.
    """
    if isinstance(source, Table):
        return known or _digest(source)
    whole = source.chosen is None and isinstance(source.reader, ArrayReader | FrameReader)
    return f"stream {reader_digest(source.reader)[:20]}" if whole else ""


def _hash(values: Tensor) -> str:
    array = np.ascontiguousarray(values.detach().cpu().numpy())
    return hashlib.sha256(f"{array.shape}{array.dtype}".encode() + array.tobytes()).hexdigest()[:20]


def _on_cpu(sums: Statistics) -> Statistics:
    whole = {
        name: values.cpu() if values.dtype == torch.int64 else values.double().cpu()
        for name, values in _tensors(sums).items()
    }
    return _statistics(whole)


def _tensors(sums: Statistics) -> dict[str, Tensor]:
    """All tensors of the sums by name; `counts.0` is that of the first layer."""
    named = {"log_likelihood": sums.log_likelihood, "weight": sums.weight}
    named |= {"impossible": sums.impossible, "broken": sums.broken}
    layers: dict[str, Sequence[Tensor] | None] = {"counts": sums.counts, "inputs": sums.inputs}
    if sums.curvature is not None:
        layers |= {f"curvature.{f.name}": getattr(sums.curvature, f.name) for f in fields(CurvatureSums)}
    for name, tensors in layers.items():
        named |= {f"{name}.{number}": tensor for number, tensor in enumerate(tensors or ())}
    return named


def _statistics(named: dict[str, Tensor]) -> Statistics:
    """The inverse of `_tensors`."""

    def layers(name: str) -> tuple[Tensor, ...]:
        count = sum(key.rpartition(".")[0] == name for key in named)
        return tuple(named[f"{name}.{number}"] for number in range(count))

    sums = CurvatureSums(**{f.name: layers(f"curvature.{f.name}") or None for f in fields(CurvatureSums)})
    single = {name: named[name] for name in ("log_likelihood", "weight", "impossible", "broken")}
    return Statistics(layers("counts"), layers("inputs"), **single, curvature=sums)


def load_statistics(
    path: str | PathLike[str], *, trust: bool = False, memory_budget: int | None = None
) -> ShardStatistics:
    """Read a file written by `ShardStatistics.save`. `memory_budget` in bytes covers the file and what it holds."""
    content = read_record(path, memory_budget)
    try:
        stored = read_npz(io.BytesIO(content), len(content), trust, as_table=False)
        if str(stored.pop("format", "")) != FORMAT:
            raise FileFormatError("not a statistics file of this version")
        shares = _shares(stored, len(content), trust)
        record = curvature_from_bytes(stored.pop("curvature").tobytes(), path, trust)
        model, rows = str(stored.pop("model")), int(stored.pop("rows"))
        if any(values.dtype.kind not in "fi" or not np.isfinite(values).all() for values in stored.values()):
            raise ValueError("its sums are not finite numbers")
        sums = _statistics({name: torch.from_numpy(values) for name, values in stored.items()})
        if any(values.shape != (1,) for values in (sums.log_likelihood, sums.weight, sums.impossible, sums.broken)):
            raise ValueError("its sums do not fit together")
        return ShardStatistics(model, shares, rows, sums, record)
    except CircurveError as error:
        raise FileFormatError(f"{path}: ", *error.parts) from error
    except Exception as error:
        raise FileFormatError(f"{path}: not a readable statistics file ({cut(str(error))})") from error
