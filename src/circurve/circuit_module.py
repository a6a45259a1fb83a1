"""A model as a `torch.nn.Module` with parameters without bounds, for training inside a network.

    module = cc.torch_module(model)
    loss = -module(encoder(rows)).mean()
    loss.backward()
    trained = module.to_model()

Weights of sums are the softmax of logits, over the edges that the mask leaves; parameters of inputs come from their
family's `from_free`. A weight or probability of exactly zero becomes a positive one (1e-30, or 1e-290 in float64),
which training can raise; where there is no edge, the weight stays zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from circurve.budget import Need
from circurve.engine import Params, Program, Reference, differentiable_log_prob, refuse_discrete
from circurve.engine.memory import free_memory
from circurve.errors import DataError, OptionError, ParameterError
from circurve.graph import Circuit
from circurve.inputs.common import SMALLEST_FREE
from circurve.model import Model
from circurve.words import counted

__all__ = ["CircuitModule", "torch_module"]

COPIES = 9
"""Copies of the parameters that a module is made with: those without bounds, and what they are compared with."""

MAX_CHANGE = 1e-3
"""How far, as a share, a parameter may move when it is written without bounds. Only values that training would not
give, such as a variance below `min_variance`, move further."""


def torch_module(model: Model, *, memory_budget: int | None = None) -> CircuitModule:
    """The model's circuit as a trainable `nn.Module` that starts from the model's parameters, on its device.

    Parameters
    ----------
    model : Model
        What to start from; it does not change.
    memory_budget : int, optional
        Memory limit for the parameters of the module, in bytes; checked before memory is allocated.

    Returns
    -------
    CircuitModule
        A module whose output is log p of each row.

    Raises
    ------
    OptionError
        If it is given something else than a Model.

    Examples
    --------
    >>> import numpy as np, torch
    >>> import circurve as cc
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = cc.fit(cc.hclt(rows, units=4), rows, epochs=3, valid=False).model
    >>> layer = cc.torch_module(model)
    >>> optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    >>> loss = -layer(torch.tensor(rows)).mean()
    >>> loss.backward()
    >>> optimizer.step()
    >>> layer.to_model()
    <Model: <Circuit: 2 variables, 5 nodes, 1 output>, torch.float32, cpu>
    """
    given: object = model
    if not isinstance(given, Model):
        hint = "; pass result.model" if hasattr(given, "model") else ""
        raise OptionError(f"torch_module takes a Model, not {type(given).__name__}{hint}")
    parts = {"parameters": COPIES * model.dtype.itemsize * model.program.parameters}
    Need("torch_module", parts, "use a model with fewer units").left(memory_budget, lambda: free_memory(model.device))
    return CircuitModule(model.circuit, model.program, model.params)


class CircuitModule(nn.Module):
    """Log-probabilities of a circuit as an `nn.Module` with unconstrained parameters; made by `torch_module`.

    `weights` holds the logits (G, K, C) of each sum layer and `inputs` the free parameters (G, K, Q) of each input
    layer that has any, in the order of `model.program`. They are what `parameters()` and `state_dict()` hold.

    Parameters
    ----------
    circuit : Circuit
        The structure.
    program : Program
        The compiled circuit.
    params : Params
        What the parameters start from.

    Examples
    --------
    >>> import circurve as cc
    >>> model = cc.fit(cc.mixture(3, components=2), [[0, 1, 1], [1, 0, 0]] * 5, epochs=3).model
    >>> layer = cc.torch_module(model)
    >>> sum(parameter.numel() for parameter in layer.parameters())
    8
    >>> isinstance(layer, cc.CircuitModule)
    True
    """

    def __init__(self, circuit: Circuit, program: Program, params: Params) -> None:
        super().__init__()
        self.circuit, self.program = circuit, program
        self.weights, self.inputs = nn.ParameterList(), nn.ParameterDict()
        for number, (layer, weights) in enumerate(zip(program.sums, params.weights, strict=True)):
            values = weights[0].detach()
            self.weights.append(nn.Parameter(values.clamp_min(SMALLEST_FREE[values.dtype]).log()))
            mask = None if layer.mask is None else torch.from_numpy(layer.mask.copy()).to(values.device)
            self.register_buffer(f"mask_{number}", mask, persistent=False)
        for number, (inputs, values) in enumerate(zip(program.inputs, params.inputs, strict=True)):
            free = inputs.family.to_free(values[0].detach())
            if free.shape[-1]:
                self.inputs[str(number)] = nn.Parameter(free)
            self._check_free(number, values[0].detach(), free)
        self._empty = [values[0].detach().cpu() for values in params.inputs]
        self._backend: Reference | None = None

    def _check_free(self, number: int, wanted: Tensor, free: Tensor) -> None:
        """Refuse parameters that have no form without bounds, naming their node."""
        layer = self.program.inputs[number]
        found = layer.family.from_free(free)
        near = torch.isclose(found, wanted, rtol=MAX_CHANGE, atol=MAX_CHANGE * 1e-3).flatten(1).all(1)  # (G,)
        if not bool(near.all()):
            node = layer.nodes[int((~near).nonzero()[0])]
            raise ParameterError(
                f"{self.circuit.name_of(node)}: gradient descent on {layer.family!r} cannot represent its "
                f"parameters; for a Gaussian, set min_variance below its variances"
            )

    @property
    def params(self) -> Params:
        """The parameters as functions of the free ones, in their autograd graph."""
        layers = enumerate(self.weights)
        weights = tuple(_softmax(logits, getattr(self, f"mask_{number}")).unsqueeze(0) for number, logits in layers)
        return Params(weights, tuple(self._input(number) for number in range(len(self.program.inputs))))

    def _input(self, number: int) -> Tensor:  # (1, G, K, P)
        family = self.program.inputs[number].family
        if str(number) in self.inputs:
            return family.from_free(self.inputs[str(number)]).unsqueeze(0)
        like = next(self.parameters(), self._empty[number])
        return self._empty[number].to(like.device, like.dtype).unsqueeze(0)

    def forward(self, x: Tensor, discrete: Any = None) -> Tensor:
        """Log-probability of each row.

        Half precision and autocast have no effect: the circuit computes in the precision of its parameters.

        Parameters
        ----------
        x : Tensor
            (N, V), NaN where a value is missing. If it comes from a network, gradients flow to its continuous columns.
        discrete : array or Tensor, optional
            The discrete columns (N, discrete columns), where `x` holds the continuous ones alone, both in the circuit's
            order.

        Returns
        -------
        Tensor
            (N,), or (N, outputs) for a circuit with several outputs.

        Raises
        ------
        DataError
            If `x` is not a tensor, the shapes do not fit, or a discrete column requires a gradient.
        OptionError
            If the parameters were converted to another type than float32 or float64.

        Examples
        --------
        >>> import torch
        >>> layer(torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])).shape
        torch.Size([2])
        """
        if not isinstance(x, Tensor):
            raise DataError(f"the module takes a torch tensor, not {type(x).__name__}: use torch.as_tensor(x)")
        if discrete is None:
            refuse_discrete(x, self.circuit.families)
        whole = x if discrete is None else self._joined(x, discrete)
        dtype = next((parameter.dtype for parameter in self.parameters()), torch.float32)
        if dtype not in (torch.float32, torch.float64):
            raise OptionError(f"a circuit computes in float32 or float64, not in {dtype}: use module.float()")
        with torch.autocast(x.device.type, enabled=False):
            params = self.params
            values = differentiable_log_prob(self._reference(params), params, whole, self.circuit.families).T
        return values[:, 0] if self.circuit.outputs == 1 else values

    def _joined(self, x: Tensor, discrete: Any) -> Tensor:  # (N, V)
        """Continuous and discrete columns, put in the circuit's order."""
        codes = torch.as_tensor(discrete, device=x.device)
        if codes.requires_grad:
            raise DataError("discrete requires a gradient, but discrete values have none: pass discrete.detach()")
        kinds = [family.discrete for family in self.circuit.families]
        for name, given, width in (("x", x, kinds.count(False)), ("discrete", codes, kinds.count(True))):
            if given.ndim != 2 or given.shape[1] != width:
                continuous = counted(kinds.count(False), "column is", "columns are")
                raise DataError(
                    f"{name} has shape {tuple(given.shape)}, expected (rows, {width}): "
                    f"{continuous} continuous, {kinds.count(True)} discrete"
                )
        if len(x) != len(codes):
            raise DataError(f"x has {counted(len(x), 'row')}, discrete has {len(codes)}")
        order = sorted(range(len(kinds)), key=lambda v: kinds[v])  # where the columns of both, side by side, belong
        back = torch.tensor(order, device=x.device).argsort()
        return torch.cat([x, codes.to(x.dtype)], dim=1)[:, back]

    def _reference(self, params: Params) -> Reference:
        """The backend for where the parameters are now."""
        made = self._backend
        if made is None or (made.device, made.dtype) != (params.device, params.dtype):
            made = self._backend = Reference.of(self.program, params)
        return made

    def to_model(self) -> Model:
        """An ordinary model with the current parameters.

        Returns
        -------
        Model
            It does not share its parameters with the module.

        Examples
        --------
        >>> layer.to_model()
        <Model: <Circuit: 3 variables, 5 nodes, 1 output>, torch.float32, cpu>
        """
        with torch.no_grad():
            return Model(self.circuit, self.params.clone(), self.program)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the backend, which is made again."""
        return {**self.__dict__, "_backend": None}


def _softmax(logits: Tensor, mask: Tensor | None) -> Tensor:  # (G, K, C) -> (G, K, C)
    allowed = logits if mask is None else logits.masked_fill(~mask, -torch.inf)
    return torch.softmax(allowed, dim=-1)
