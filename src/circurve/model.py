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

from circurve.cards import card, facts_table
from circurve.engine import (
    Params,
    Program,
    by_node,
    compile,
    fold,
    from_nodes,
)
from circurve.engine.params import SAVED_TOLERANCE, on_the_simplex
from circurve.errors import Argument, FileFormatError, OptionError, ParameterError
from circurve.graph import Circuit, Input, Node, Sum
from circurve.host_memory import without_collector
from circurve.persistence import read_model, write_model
from circurve.queries.questions import Questions
from circurve.schema import Schema
from circurve.scoring import RowScores
from circurve.words import counted

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


class Model(Questions, RowScores):
    """A circuit with one set of parameters, which are never changed in place: what training returns and files hold.

    `fit` makes one; `Model.from_parameters` takes weights by hand. Its methods are the questions that it answers; the
    page "Questions" shows every one of them. The examples of the methods use the model of the example below.

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
    >>> days = {"city": ["Oslo", "Oslo", "Rome", "Rome"], "rain": [True, False, False, False]}
    >>> weather = {name: values * 10 for name, values in days.items()} | {"degrees": [4.5, 7.5, 19.5, 24.5] * 10}
    >>> model = cc.fit(cc.hclt(weather, units=4), weather, epochs=30, seed=0, init="prototypes").model
    >>> model
    <Model: <Circuit: 3 variables, 7 nodes, 1 output>, torch.float32, cpu>
    >>> round(model.conditional({"rain": True}, given={"city": "Oslo"}), 2)
    0.48
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

        Parameters
        ----------
        circuit : Circuit
            The structure.
        weights : mapping, optional
            For each Sum, (units, child units), rows on the simplex; what they miss it by, 1e-4 at most, is divided out.
            A Sum that is left out gets uniform weights.
        inputs : mapping, optional
            For each Input, (units, parameters of its family).
        dtype : torch.dtype, default torch.float64
            The precision: torch.float32 or torch.float64.

        Returns
        -------
        Model
            On the CPU.

        Raises
        ------
        ParameterError
            If parameters have the wrong shape, are not on the simplex, or do not fit their family.
        OptionError
            If `dtype` is another type.

        Examples
        --------
        >>> import circurve as cc
        >>> rain, wind = (cc.Input(v, cc.Bernoulli(), units=2) for v in range(2))
        >>> root = cc.Sum(cc.Product([rain, wind]), name="root")
        >>> inputs = {rain: [[0.9], [0.2]], wind: [[0.7], [0.1]]}
        >>> by_hand = cc.Model.from_parameters(cc.Circuit(root), {root: [[0.4, 0.6]]}, inputs)
        >>> by_hand.marginal({0: 1})
        0.48
        >>> round(by_hand.conditional({0: 1}, given={1: 1}), 3)
        0.776
        >>> by_hand.log_prob([[1, 1], [0, float("nan")]]).round(3)
        array([-1.332, -0.654])
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
        """A copy of the model on another device or in another precision.

        Parameters
        ----------
        device : str or torch.device, optional
            "auto", "cpu", "cuda" or a torch device; None keeps the device.
        dtype : torch.dtype, optional
            torch.float32 or torch.float64; None keeps the precision.

        Returns
        -------
        Model
            With the same circuit and schema.

        Raises
        ------
        OptionError
            If torch does not find the device, or `dtype` is another type.

        Examples
        --------
        >>> import torch
        >>> model.to(dtype=torch.float64).dtype
        torch.float64
        """
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
        """The weights of a sum.

        Parameters
        ----------
        node : Sum or str
            The node itself or its name.

        Returns
        -------
        array
            (units, child units), float64.

        Raises
        ------
        ParameterError
            If the circuit has no such sum, or several of this name.

        Examples
        --------
        >>> model.weights("root").round(2)
        array([[0.21, 0.49, 0.15, 0.15]])
        """
        return self._parameters(node, Sum)

    def input_parameters(self, node: Input | str) -> Array:  # (units, parameters of the family)
        """The parameters of an input.

        Parameters
        ----------
        node : Input or str
            The node itself or its name.

        Returns
        -------
        array
            (units, parameters of the family), float64.

        Raises
        ------
        ParameterError
            If the circuit has no such input, or several of this name.

        Examples
        --------
        >>> node = model.circuit.inputs[0]
        >>> node.family.parameter_names
        ('mean', 'variance')
        >>> model.input_parameters(node).shape
        (4, 2)
        """
        return self._parameters(node, Input)

    def _parameters(self, node: Node | str, kind: type[Sum] | type[Input]) -> Array:
        found = [n for n in self._by_node if n.name == node] if isinstance(node, str) else [node]
        found = [n for n in found if n in self._by_node]
        if len(found) != 1 or not isinstance(found[0], kind):
            problem = "more than one node" if len(found) > 1 else f"no {kind.__name__}"
            raise ParameterError(f"{problem} {node!r} in this circuit")
        array: Array = self._by_node[found[0]].detach().double().cpu().numpy()
        return array

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what can be made again."""
        return {name: value for name, value in self.__dict__.items() if name not in NOT_PICKLED}

    def save(self, path: str | PathLike[str], extra: Mapping[str, str] | None = None) -> None:
        """Write structure and parameters to one safetensors file, all or nothing; `load` reads it.

        Parameters
        ----------
        path : str or path
            The file; one that is there is replaced.
        extra : mapping, optional
            Text to save with the model, such as how it was trained; `persistence.read_metadata` returns it.

        Raises
        ------
        FileAccessError
            If the file cannot be written.

        Examples
        --------
        >>> import os, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = os.path.join(folder.name, "weather.safetensors")
        >>> model.save(path)
        >>> cc.load(path).schema == model.schema
        True
        """
        write_model(path, self.circuit, self._by_node, extra, self.schema)

    def _repr_html_(self) -> str:
        counts = self.circuit.describe()
        shown = ", ".join(self.schema.labels[:SHOWN_COLUMNS])
        more = f" and {len(self.schema) - SHOWN_COLUMNS:,} more" if len(self.schema) > SHOWN_COLUMNS else ""
        facts = {
            "columns": f"{counts.variables:,}: {shown}{more}",
            "sum nodes": f"{counts.sum_units:,} in {counted(len(self.program.sums), 'layer')}",
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
