"""PyJuice on a GPU, behind the few things that gpu_em.py asks for: EM steps, likelihoods, counts, time to compile.

PyJuice need not be installed. `make_importable` takes folders and wheels, of PyJuice and of what it needs:

    pip download --no-deps pyjuice==2.6.3 numba llvmlite tqdm -d wheels
    python benchmarks/gpu_em.py --pyjuice wheels
    python benchmarks/gpu_em.py --pyjuice wheels:CHECKOUT      # its repository, and numba from the wheels

Without numba a substitute lets its compiled loops run as plain Python: the steps are not affected, they run on the
GPU, but compiling the circuit is slower, and is reported as such. The same goes for tqdm, a progress bar.

The repository has CUDA kernels in addition to those in Triton. It compiles them when they are first needed, which takes
minutes, `nvcc` and the headers of CUTLASS: `pip download --no-deps nvidia-cutlass`, unpack it, and set
PYJUICE_CUTLASS_PATH to its folder `cutlass_library/source`. What is compiled stays in the folder TORCH_EXTENSIONS_DIR.
The kernels are for blocks of a multiple of 128 units (64 for the parameters) and batches of a multiple of 64 (32).
PyJuice then times them against Triton, for each layer and batch size, and takes the faster: `Peer.kernels` says which.

A step is what PyJuice's documentation shows for EM on mini-batches: forward pass, backward pass, `mini_batch_em`; its
own CUDA graphs hold the inner layers of both passes. Products of its sum layers are bfloat16 in the forward and tf32
(float16 in its CUDA kernels) in the backward pass unless float32 is forced, which turns the former to tf32 and the
latter to float32, and leaves its CUDA kernels out.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
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
PASSES = {
    "forward": ("_cached_fw_cuda_choice", "num_fw_partitions"),
    "element backward": ("_cached_bk_ele_choice", "num_bk_partitions"),
    "parameter backward": ("_cached_bk_par_choice", "num_fw_partitions"),
}
"""Where PyJuice's sum layers keep which kernel was the faster, and how many launches a pass has."""

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

    A checkout of PyJuice comes before a wheel of it. Substitutes are made for numba and tqdm if they cannot be
    imported.
    """
    unpacked = Path(tempfile.mkdtemp(prefix="pyjuice-"))
    sys.path.insert(0, str(unpacked))
    listed = list(places)
    for place in listed:
        wheels = [place] if place.suffix == ".whl" else sorted(place.glob("*.whl"))
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(unpacked)
        if not wheels:
            sys.path.insert(0, str(_source_folder(place).resolve()))
    used = {name: _import_or_stand_in(name) for name in STUBS}
    sys.setrecursionlimit(100_000)  # PyJuice walks its nodes by recursion
    import_module("pyjuice")
    if used["numba"] == STAND_IN:
        _avoid_slow_loops()
    found = {"triton": import_module("triton").__version__, "pyjuice": _version([unpacked, *listed])}
    commits = [commit for place in listed if _source_folder(place) != place and (commit := _commit(place))]
    return used | found | ({"commit": commits[0]} if commits else {})


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


def _source_folder(place: Path) -> Path:
    """Where a checkout of PyJuice keeps its package, or the folder itself."""
    return place / "src" if (place / "src" / "pyjuice").is_dir() else place


def _version(places: Sequence[Path]) -> str:
    """Of a checkout if there is one, as it comes first on the path."""
    for place in places:
        if _source_folder(place) != place:
            return str(tomllib.loads((place / "pyproject.toml").read_text())["project"]["version"])
    found = [info.name for folder in places if folder.is_dir() for info in folder.glob("pyjuice-*.dist-info")]
    if found:
        return found[0].removeprefix("pyjuice-").removesuffix(".dist-info")
    return metadata.version("pyjuice")


def _commit(checkout: Path) -> str | None:
    """The commit that a checkout is at; None if it is not under git."""
    folder = checkout / ".git"
    if not (folder / "HEAD").exists():
        return None
    head = (folder / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    branch = head.removeprefix("ref: ")
    if (folder / branch).exists():
        return (folder / branch).read_text().strip()
    packed = (line.split() for line in (folder / "packed-refs").read_text().splitlines())
    return next((parts[0] for parts in packed if parts[1:] == [branch]), None)


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

    def kernels(self, batch: int) -> dict[str, dict[str, int]]:
        """Which kernels the steps at a batch size used, see `kernels_chosen`."""
        groups = [group for group in self.circuit.inner_layer_groups if group.is_sum()]
        return kernels_chosen((layer for group in groups for layer in group.layers), batch)

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
    def sums(self, x: Tensor, fp32: bool, every: int = 1) -> tuple[np.ndarray, list[np.ndarray]]:
        """Log-likelihoods (N,), and the flows (units, child units) of each sum (or every n-th), children first."""
        values = self._flows(x, graph=False, fp32=fp32)
        self.circuit.update_param_flows()
        nodes = [node for node in self.root if node.is_sum()][::every]
        flows = [node.get_param_flows(as_matrix=True).double().numpy() for node in nodes]
        return values[:, 0].double().cpu().numpy(), flows


def kernels_chosen(layers: Iterable[Any], batch: int) -> dict[str, dict[str, int]]:
    """For each pass of sum layers at a batch size: how many launches use CUDA, how many Triton though CUDA was there.

    `other` are those that cannot use PyJuice's CUDA kernels at all, for their sizes or because nothing was compiled.
    """
    found = {}
    sums = list(layers)
    for name, (choices, partitions) in PASSES.items():
        total = sum(getattr(layer, partitions) for layer in sums)
        made = [str(kind) for layer in sums for kind in _choices_at(getattr(layer, choices, {}), batch)]
        counts = {kind: made.count(kind) for kind in ("cuda", "triton")}
        found[name] = counts | {"other": total - len(made)}
    return found


def _choices_at(choices: dict[tuple[Any, ...], Any], batch: int) -> list[str]:
    """PyJuice keeps (..., batch size, ...): kernel, or (kernel, configuration) in the place of the kernel."""
    return [kind if isinstance(kind, str) else kind[0] for key, kind in choices.items() if key[1] == batch]


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
