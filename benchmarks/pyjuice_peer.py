"""PyJuice on a GPU, behind the few things that gpu_em.py asks for: EM steps, likelihoods, counts, time to compile.

PyJuice need not be installed. `make_importable` takes folders and wheels, of PyJuice and of what it needs:

    pip download --no-deps pyjuice==2.6.3 numba llvmlite tqdm -d wheels
    python benchmarks/gpu_em.py --pyjuice wheels

Without numba a substitute lets its compiled loops run as plain Python: the steps are not affected, they run on the
GPU, but compiling the circuit is slower, and is reported as such. The same goes for tqdm, a progress bar.

A step is what PyJuice's documentation shows for EM on mini-batches: forward pass, backward pass, `mini_batch_em`; its
own CUDA graphs hold the inner layers of both passes. Products of its sum layers are bfloat16 in the forward and tf32 in
the backward pass unless float32 is forced, which turns the former to tf32 and the latter to float32.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Iterable
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import seconds_of
from torch import Tensor

STEP_SIZE, PSEUDOCOUNT = 0.1, 0.1
STAND_IN = "stand-in"
BUFFERS = ("node_mars", "element_mars", "node_flows", "element_flows")
STUBS = {
    "numba": """
def njit(*arguments, **options):
    return arguments[0] if arguments and callable(arguments[0]) else lambda function: function
""",
    "tqdm": """
def tqdm(iterable=None, *arguments, **options):
    return iterable
""",
}


def make_importable(places: Iterable[Path]) -> dict[str, str]:
    """Put PyJuice on the path from folders and wheels (or folders of wheels); says what is used, or raises ImportError.

    Substitutes are made for numba and tqdm if they cannot be imported.
    """
    unpacked = Path(tempfile.mkdtemp(prefix="pyjuice-"))
    listed = list(places)
    for place in listed:
        wheels = [place] if place.suffix == ".whl" else sorted(place.glob("*.whl"))
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(unpacked)
        if not wheels:
            sys.path.insert(0, str(place.resolve()))
    sys.path.insert(0, str(unpacked))
    used = {name: _import_or_stand_in(name) for name in STUBS}
    sys.setrecursionlimit(100_000)  # PyJuice walks its nodes by recursion
    import_module("pyjuice")
    if used["numba"] == STAND_IN:
        _avoid_slow_loops()
    return used | {"triton": import_module("triton").__version__, "pyjuice": _version([unpacked, *listed])}


def _import_or_stand_in(name: str) -> str:
    """The version of a package, after replacing it by a substitute if it cannot be imported."""
    try:
        return str(import_module(name).__version__)
    except ImportError:
        for half in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            del sys.modules[half]
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        (folder / f"{name}.py").write_text(STUBS[name])
        sys.path.insert(0, str(folder))
        return STAND_IN


def _version(places: Iterable[Path]) -> str:
    found = [info.name for folder in places if folder.is_dir() for info in folder.glob("pyjuice-*.dist-info")]
    if found:
        return found[0].removeprefix("pyjuice-").removesuffix(".dist-info")
    return metadata.version("pyjuice")


def _avoid_slow_loops() -> None:
    """Two loops over single parameters, which without numba would take minutes.

    One normalises the parameters: ours and PyJuice's own initial ones are normalised already. The other has a form in
    torch.
    """
    module = import_module("pyjuice.model.tensorcircuit")
    module.normalize_parameters = lambda *_arguments, **_options: None
    module.compile_par_update_fn = partial(module.compile_par_update_fn, use_numba=False)


class Peer:
    """A PyJuice circuit compiled for a GPU."""

    def __init__(self, root: Any, device: torch.device) -> None:
        juice = import_module("pyjuice")
        self.root = root
        self.circuit, self.compile_seconds = seconds_of(lambda: juice.compile(root, verbose=False).to(device))

    @torch.no_grad()
    def step(self, x: Tensor, graph: bool) -> None:  # (N, V)
        """One EM step on a batch."""
        self._flows(x, graph)
        self.circuit.mini_batch_em(step_size=STEP_SIZE, pseudocount=PSEUDOCOUNT)

    def forget(self) -> None:
        """Let go of recorded graphs and of the buffers of the last batch size."""
        self.circuit._recorded_cuda_graphs.clear()
        self.circuit.__dict__.update(dict.fromkeys(BUFFERS))

    def _flows(self, x: Tensor, graph: bool, fp32: bool = False) -> Tensor:  # -> (N, 1)
        options = {"record_cudagraph": graph, "apply_cudagraph": graph, "force_use_fp32": fp32}
        values: Tensor = self.circuit(x, **options)
        self.circuit.backward(x, flows_memory=0.0, **options)
        return values

    @torch.no_grad()
    def sums(self, x: Tensor, fp32: bool) -> tuple[np.ndarray, list[np.ndarray]]:
        """Log-likelihoods (N,), and the flows (units, child units) of the parameters of each sum, children first."""
        values = self._flows(x, graph=False, fp32=fp32)
        self.circuit.update_param_flows()
        flows = [node.get_param_flows(as_matrix=True).double().numpy() for node in self.root if node.is_sum()]
        return values[:, 0].double().cpu().numpy(), flows


def extensions() -> dict[str, bool]:
    """Which of PyJuice's optional CUDA extensions got compiled (they need nvcc, and some the CUTLASS headers)."""
    kernels = import_module("pyjuice.layer.kernels.c")
    names = {"forward": "_module", "element backward": "_ele_module", "parameter backward": "_par_module"}
    return {name: getattr(kernels, attribute) is not None for name, attribute in names.items()}


def hclt(data: np.ndarray, units: int, device: torch.device, input_dist: Any = None) -> Any:
    """PyJuice's own hidden Chow-Liu tree of binary data, with random parameters; Bernoulli inputs by default.

    It is a smaller model than `circurve.hclt`: a variable without children shares the latent of its parent.
    """
    structures, distributions = import_module("pyjuice.structures"), import_module("pyjuice.distributions")
    values = torch.from_numpy(data).to(device, torch.float32)
    inputs = distributions.Bernoulli() if input_dist is None else input_dist
    return structures.HCLT(values, num_latents=units, num_bins=2, input_dist=inputs)
