"""The one place where a backend is chosen."""

from __future__ import annotations

import math

import torch

from circurve.engine.backend import Backend
from circurve.engine.cuda import Fused, why_not
from circurve.engine.numerics import IMPOSSIBLE, TINY_STATE
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.reference import Reference
from circurve.engine.states import has_few_states, state_logs
from circurve.engine.tree import LatentTree, MixtureLayout, TreeLayout, TreeMixture, mixture_layout, tree_layout
from circurve.errors import OptionError
from circurve.names import BACKENDS, BackendName

__all__ = ["BACKENDS", "BackendName", "choose_backend", "explain_choice", "fixed_bytes", "option_for"]


def choose_backend(
    program: Program,
    params: Params,
    backend: BackendName = "auto",
    precision: str = "float32",
    fixed: bool = False,
) -> Backend:
    """A backend for parameters of this shape, on their device.

    "auto" takes the fastest that can compute them; "reference", "tree" and "fused" give exactly that one, or an error
    that says why it cannot be used. precision: "tf32" lets the fused kernels round factors of products to 10 bits.
    fixed: `params` themselves are never changed in place, so that a backend may prepare them once.
    """
    if backend not in BACKENDS:
        raise OptionError(f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}")
    if backend == "fused" or (backend == "auto" and params.device.type == "cuda"):
        reason = _why_not_fused(program, params)
        if reason is None:
            return Fused(program, params.runs, params.device, precision, params if fixed else None)
        if backend == "fused":
            raise OptionError(f"backend='fused' cannot be used: {reason}")
    if backend == "tree" or (backend == "auto" and params.device.type == "cpu"):
        layout = _tree_layout(program, params)
        if isinstance(layout, TreeLayout):
            return LatentTree(program, layout, params.runs, params.dtype)
        if isinstance(layout, MixtureLayout):
            return TreeMixture(program, layout, params.runs, params.dtype)
        if backend == "tree":
            raise OptionError(f"backend='tree' cannot be used: {layout}")
    return Reference.of(program, params)


def fixed_bytes(program: Program, runs: int, dtype: torch.dtype, backend: BackendName, curved: bool) -> tuple[int, int]:
    """What an E-step on a CPU takes whatever the samples are, and for one sample, before there are parameters.

    curved: with the sums of curvature. Parameters with zeros may take another backend than the one that is counted.
    """
    layout = None if backend == "reference" else tree_layout(program) or mixture_layout(program)
    if layout is None:
        return 0, Reference(program, runs, torch.device("cpu"), dtype).bytes_per_sample(backward=True)
    tree = (LatentTree if isinstance(layout, TreeLayout) else TreeMixture)(program, layout, runs, dtype)  # type: ignore[arg-type]
    return tree.table_bytes(curved), tree.bytes_per_sample(backward=True)


def option_for(backend: Backend) -> BackendName:
    """What `backend=` must be for the same kind of backend."""
    if isinstance(backend, Fused):
        return "fused"
    return "tree" if isinstance(backend, LatentTree | TreeMixture) else "reference"


def explain_choice(program: Program, params: Params) -> str:
    """The backend that "auto" takes, and why faster ones cannot be used, as lines of text."""
    lines = [choose_backend(program, params).describe()]
    reasons = {"fused": _why_not_fused(program, params), "latent tree": _tree_layout(program, params)}
    lines += [f"not {name}: {reason}" for name, reason in reasons.items() if isinstance(reason, str)]
    return "\n".join(lines)


def _why_not_fused(program: Program, params: Params) -> str | None:
    reason = why_not(program, params.device, params.dtype)
    if reason is None and params.may_underflow(program):
        return "weights of zero may need sums in logs"
    return reason


def _tree_layout(program: Program, params: Params) -> TreeLayout | MixtureLayout | str:
    """The layout of a latent tree or of a mixture of them, or the reason why that backend cannot be used."""
    if params.device.type != "cpu":
        return f"the tree backend runs on a CPU, not on {params.device.type}"
    layout = tree_layout(program) or mixture_layout(program)
    if layout is None:
        return "the circuit is not a latent tree over inputs with few states, nor a mixture of such trees"
    if params.may_underflow():
        return "weights of zero may need sums in logs"
    if _has_tiny_states(program, params):
        return f"a state of an input is less probable than {TINY_STATE[params.dtype]:g}"
    return layout


def _has_tiny_states(program: Program, params: Params) -> bool:
    """True if a state is so improbable, yet possible, that a joint table would lose a product of a few of them.

    Training stays far above; parameters made by hand or elsewhere need not.
    """
    tiny = math.log(TINY_STATE[params.dtype])
    for layer, values in zip(program.inputs, params.inputs, strict=True):
        if has_few_states(layer.family):
            logs = state_logs(layer.family, values, missing=False)
            if bool(((logs < tiny) & (logs > IMPOSSIBLE)).any()):
                return True
    return False
