"""A circuit with its parameters: what training returns, what files hold, what queries read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.budget import Need
from circurve.cards import card, facts_table
from circurve.data import QuickCheck, Table, align, answer_in_pieces, as_table, is_streamed, log_unseen
from circurve.data.align import MissingColumns
from circurve.data.unseen import Unseen
from circurve.engine import (
    Backend,
    BackendName,
    Params,
    Program,
    Reference,
    SmallBatches,
    by_node,
    choose_backend,
    compile,
    differentiable_log_prob,
    fold,
    from_nodes,
    refuse_discrete,
    wants_gradient,
)
from circurve.engine.params import SAVED_TOLERANCE, on_the_simplex
from circurve.errors import Argument, FileFormatError, OptionError, ParameterError
from circurve.graph import Circuit, Input, Node, Sum
from circurve.host_memory import without_collector
from circurve.inputs.family import takes_others
from circurve.persistence import read_model, write_model
from circurve.queries.questions import Questions
from circurve.schema import Schema
from circurve.scoring import finish_scores, score_rows

__all__ = ["Model", "as_device", "load"]

Array = NDArray[np.float64]

NOT_PICKLED = ("backend", "_by_node", "_small", "_quick_check", "reference", "_mixed", "_target")
"""What a model makes from its parameters when it is first needed, and keeps as long as it lives."""

SHOWN_COLUMNS = 8  # in a notebook


def as_device(device: str | torch.device) -> torch.device:
    """A torch device; "auto" is CUDA where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        expected = f" must be 'auto', 'cpu', 'cuda' or a torch device, not {device!r}"
        raise OptionError(Argument("device"), expected) from error
    if chosen.type not in ("cpu", "cuda"):
        raise OptionError(Argument("device"), f" must be a CPU or a CUDA device, not {device!r}")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(f"device {device!r}: torch finds no CUDA device; use device='cpu'")
    return chosen


class Model(Questions):
    """A circuit with one set of parameters, which are never changed in place: what training returns and files hold.

    `fit` makes one; `Model.from_parameters` takes weights by hand. Its methods are the questions that it answers; the
    page "Questions" shows every one of them.

    Parameters
    ----------
    circuit : Circuit
        The structure.
    params : Params
        The parameters of one run.
    program : Program, optional
        The compiled circuit, if it is at hand.
    schema : Schema, optional
        What the columns of data mean; None takes that of the circuit.

    Examples
    --------
    >>> import circurve as cc
    >>> rain, wind = (cc.Input(v, cc.Bernoulli(), units=2) for v in range(2))
    >>> root = cc.Sum(cc.Product([rain, wind]))
    >>> weights = {root: [[0.4, 0.6]]}
    >>> inputs = {rain: [[0.9], [0.2]], wind: [[0.7], [0.1]]}
    >>> model = cc.Model.from_parameters(cc.Circuit(root), weights, inputs)
    >>> model.marginal({0: 1})
    0.48
    >>> round(model.conditional({0: 1}, given={1: 1}), 3)
    0.776
    >>> model.log_prob([[1, 1], [0, float("nan")]]).round(3)
    array([-1.332, -0.654])
    """

    def __init__(
        self, circuit: Circuit, params: Params, program: Program | None = None, schema: Schema | None = None
    ) -> None:
        if params.runs != 1:
            raise ParameterError(f"a model has the parameters of one run, not of {params.runs}")
        self.circuit = circuit
        self.params = params
        if program is not None:
            self.program = program
        if schema:
            self.schema = schema

    @classmethod
    def from_parameters(
        cls,
        circuit: Circuit,
        weights: Mapping[Node, Any] | None = None,
        inputs: Mapping[Node, Any] | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Model:
        """A model with parameters given node by node.

        weights: for each Sum, (units, child units), rows on the simplex; what they miss it by, 1e-4 at most, is divided
        out. A Sum that is left out gets uniform weights.
        inputs: for each Input, (units, parameters of its family).
        """
        _check_precision(dtype)
        program = compile(circuit)
        given = from_nodes(program, weights or {}, inputs or {})
        exact = Params(tuple(on_the_simplex(values) for values in given.weights), given.inputs)
        return cls(circuit, exact.to(dtype=dtype), program)

    @property
    def device(self) -> torch.device:
        """Where the parameters are, and so where the model computes."""
        return self.params.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision the model computes in."""
        return self.params.dtype

    def to(self, device: str | torch.device | None = None, dtype: torch.dtype | None = None) -> Model:
        """A copy of the model on another device or in another precision."""
        place = None if device is None else as_device(device)
        if dtype is not None:
            _check_precision(dtype)
        return Model(self.circuit, self.params.to(place, dtype), self.program, self.schema)

    @cached_property
    def program(self) -> Program:  # type: ignore[override]
        """The compiled circuit. A loaded model compiles it at the first question."""
        return compile(self.circuit)

    @cached_property
    def schema(self) -> Schema:  # type: ignore[override]
        """What the columns of data mean: that of the circuit, or of the table that the model was trained on."""
        return self.circuit.schema or Schema.of(self.circuit.families)

    @cached_property
    def _by_node(self) -> dict[Node, Tensor]:
        return by_node(self.program, self.params)

    def weights(self, node: Sum | str) -> Array:  # (units, child units)
        """The weights of a sum, named by the node itself or by its name."""
        return self._parameters(node, Sum)

    def input_parameters(self, node: Input | str) -> Array:  # (units, parameters of the family)
        """The parameters of an input, named by the node itself or by its name."""
        return self._parameters(node, Input)

    def _parameters(self, node: Node | str, kind: type[Sum] | type[Input]) -> Array:
        found = [n for n in self._by_node if n.name == node] if isinstance(node, str) else [node]
        found = [n for n in found if n in self._by_node]
        if len(found) != 1 or not isinstance(found[0], kind):
            problem = "more than one node" if len(found) > 1 else f"no {kind.__name__}"
            raise ParameterError(f"{problem} {node!r} in this circuit")
        array: Array = self._by_node[found[0]].detach().double().cpu().numpy()
        return array

    def align(
        self,
        x: Any,
        *,
        missing: int | None = None,
        unseen: Unseen = "impossible",
        missing_columns: MissingColumns = "error",
    ) -> Table:
        """Data as a checked table in the model's schema, without weights and labels (`circurve.data.align`).

        Where inputs of one variable take different values, a value that only some of them take is not impossible, and
        the others cannot score it: it is then an error.
        """
        table = as_table(x, missing=missing).bare()
        if unseen == "impossible" and self._mixed:
            unseen = "error"
        return align(table, self.schema, unseen=unseen, missing_columns=missing_columns)

    @cached_property
    def _mixed(self) -> bool:
        """Whether a variable has inputs of families that take different values."""
        families = self.circuit.families
        return any(takes_others(node.family, families[node.variable]) for node in self.circuit.inputs)

    def log_prob(  # noqa: PLR0913 - each parameter is an option
        self,
        x: Any,
        *,
        missing: int | None = None,
        unseen: Unseen = "impossible",
        missing_columns: MissingColumns = "error",
        memory_budget: int | None = None,
        backend: BackendName = "auto",
        out: Any = None,
    ) -> Any:
        """Log-probability of each row: (N,), or (N, outputs) for a circuit with several outputs.

        Data frames, and columns by name, are ordered by name if the model has names; arrays are read by
        position. NaN marks a missing value, and so does the integer `missing`; they are summed (or integrated) out
        exactly. A row of probability zero gives -inf. The result is a torch tensor for a torch tensor, else a numpy
        array. Where a tensor `x` or the parameters require a gradient, the result does, too: the reference backend
        computes it.

        unseen: a value that was not seen in training makes a row impossible (-inf, with one warning), or counts as
        "missing", or is an "error". missing_columns: a column that x lacks is an "error", or all "missing". backend:
        "auto" takes the fastest, "reference", "tree" and "fused" exactly that one.

        A stream (`open_stream`; a `numpy.memmap`, a Parquet or Arrow file or folder) is read piece by piece. `out` is
        an array for the result, such as a `numpy.memmap`; it is filled and returned. `memory_budget` in bytes covers
        data, result and buffers.
        """
        memory_budget = self._memory_budget if memory_budget is None else memory_budget
        if is_streamed(x) or out is not None:
            options: Any = {"unseen": unseen, "missing_columns": missing_columns, "backend": backend}
            options["memory_budget"] = memory_budget
            rows = None if memory_budget is None else max(1, memory_budget // (4 * self._row_bytes))
            return answer_in_pieces(x, missing, lambda part: self.log_prob(part, **options), out, rows)
        if wants_gradient(x, self.params):
            return self._differentiable(x, missing, memory_budget, backend)
        short = backend == "auto" and memory_budget is None
        if memory_budget is not None:
            parts = {"data and result": len(as_table(x)) * self._row_bytes}
            cure = "pass open_stream(x), which reads some rows at a time"
            memory_budget = Need("log_prob", parts, cure).left(memory_budget)
        plain = missing is None and self.schema.numbers_only and isinstance(x, np.ndarray | Tensor)
        few = self._few_rows(x) if short and plain else None
        if few is None:
            table = self.align(x, missing=missing, unseen=unseen, missing_columns=missing_columns)
            extra = log_unseen(table)
            few = self._few_rows(table) if short and extra is None else None
        if few is not None:
            return torch.from_numpy(few).to(x.device, self.dtype) if isinstance(x, Tensor) else few
        computing = self.backend if backend == "auto" else choose_backend(self.program, self.params, backend)
        values = score_rows(computing, self.params, table.to(self.device), memory_budget)[0].T  # (N, outputs)
        return finish_scores(values, extra, x)

    @property
    def _row_bytes(self) -> int:
        """The memory of a row and its result, at most."""
        return 8 * (len(self.schema) + self.circuit.outputs)

    def _few_rows(self, x: Any) -> Array | None:
        """log_prob of a few rows in an array, tensor or checked table; None if they are many or out of the ordinary.

        What it refuses goes the longer way through `as_table`, `check` and a backend.
        """
        if not isinstance(x, np.ndarray | Tensor | Table) or len(x.shape) != 2 or len(x) > self._small.max_samples:
            return None
        columns = self._quick_check(x)
        values = None if columns is None else self._small.log_prob(*columns)  # (outputs, N)
        return None if values is None else values[0] if self.circuit.outputs == 1 else values.T

    @cached_property
    def _small(self) -> SmallBatches:
        return SmallBatches(self.program, self.params)

    @cached_property
    def _quick_check(self) -> QuickCheck:
        return QuickCheck(self.circuit.families)

    def _differentiable(self, x: Any, missing: int | None, memory_budget: int | None, backend: BackendName) -> Tensor:
        """log_prob in the autograd graph of `x` and the parameters; what would lose a gradient is refused."""
        if not isinstance(x, Tensor):
            raise OptionError(
                "the parameters require a gradient, which a numpy result would lose: pass x as a torch tensor, "
                "or call log_prob within torch.no_grad()"
            )
        if backend not in ("auto", "reference"):
            raise OptionError(
                f"backend={backend!r} gives no gradients: use backend='reference', "
                "or call log_prob within torch.no_grad()"
            )
        if memory_budget is not None:
            raise OptionError(
                "memory_budget has no effect when gradients are computed: pass fewer rows at a time instead"
            )
        refuse_discrete(x, self.circuit.families)
        values = differentiable_log_prob(self.reference, self.params, x, self.circuit.families, missing).T
        return (values[:, 0] if self.circuit.outputs == 1 else values).to(x.device)

    @cached_property
    def reference(self) -> Reference:
        """The backend in plain torch, which gives flows and gradients."""
        return self._target.reference if self.circuit.outputs == 1 else Reference.of(self.program, self.params)

    @cached_property
    def backend(self) -> Backend:
        """What computes this model on its device: chosen once, and gone with the model."""
        return choose_backend(self.program, self.params, fixed=True)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what can be made again."""
        return {name: value for name, value in self.__dict__.items() if name not in NOT_PICKLED}

    def save(self, path: str | PathLike[str], extra: Mapping[str, str] | None = None) -> None:
        """Write structure and parameters to one safetensors file, all or nothing.

        extra: text to save with the model, such as how it was trained; `persistence.read_metadata` returns it.
        """
        write_model(path, self.circuit, self._by_node, extra, self.schema)

    def _repr_html_(self) -> str:
        counts = self.circuit.describe()
        shown = ", ".join(self.schema.labels[:SHOWN_COLUMNS])
        more = f" and {len(self.schema) - SHOWN_COLUMNS:,} more" if len(self.schema) > SHOWN_COLUMNS else ""
        facts = {
            "columns": f"{counts.variables:,}: {shown}{more}",
            "sum nodes": f"{counts.sum_units:,} in {len(self.program.sums):,} layers",
            "parameters": f"{counts.parameters:,}",
            "outputs": f"{self.circuit.outputs:,}" if self.circuit.outputs > 1 else None,
            "computes in": f"{str(self.dtype).removeprefix('torch.')} on {self.device}",
        }
        return card("Model", facts_table(facts))

    def __repr__(self) -> str:
        return f"<Model: {self.circuit!r}, {self.dtype}, {self.device}>"


def _check_precision(dtype: object) -> None:
    if dtype not in (torch.float32, torch.float64):
        raise OptionError(f"dtype must be torch.float32 or torch.float64, not {dtype}")


@without_collector()
def load(
    path: str | PathLike[str],
    device: str | torch.device = "cpu",
    *,
    trust: bool = False,
    memory_budget: int | None = None,
) -> Model:
    """Read a model file written by `Model.save`.

    Parameters
    ----------
    path : str or path
        A safetensors file.
    device : str or torch.device, default "cpu"
        Where to put the parameters; "auto" is CUDA if there is one.
    trust : bool, default False
        Also accept a file that needs more than ten times its size in memory (and more than 256 MB). Without it, such a
        file is refused before the memory is allocated.
    memory_budget : int, optional
        Memory limit for the model and what is made while it is read, in bytes; checked before memory is allocated.

    Returns
    -------
    Model
        With the schema it was saved with.

    Raises
    ------
    FileAccessError
        If the file cannot be opened.
    FileFormatError
        If it is damaged, of another kind, or from a newer version.

    Examples
    --------
    >>> import os, tempfile
    >>> import circurve as cc
    >>> rows = {"city": ["Oslo", "Rome"] * 6, "warm": [False, True] * 6}
    >>> model = cc.fit(cc.hclt(rows, units=2), rows, epochs=20).model
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "weather.safetensors")
    >>> model.save(path)
    >>> round(cc.load(path).conditional({"warm": True}, given={"city": "Rome"}), 2)
    0.55
    """
    circuit, parameters = read_model(path, trust, memory_budget)
    try:
        dtype = torch.from_numpy(next(iter(parameters.values()))).dtype
        params = from_nodes(fold(circuit), parameters, parameters, SAVED_TOLERANCE, dtype)
    except ParameterError as error:
        raise FileFormatError(f"{fspath(path)}: {error}") from error
    return Model(circuit, params if as_device(device) == params.device else params.to(as_device(device)))
