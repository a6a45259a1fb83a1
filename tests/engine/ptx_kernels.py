"""Which of a GPU's inexact instructions each kernel compiles to, and a script that compiles them all without a GPU.

`python ptx_kernels.py FILE` compiles every variant below to PTX for sm_90 and saves its instructions as JSON. It needs
Triton's compiler, so TRITON_INTERPRET must not be set: `test_ptx.py` runs it in another process.

How instructions are replaced and emulated is written in `tests/gpu_arithmetic.py`.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["HELPERS", "VARIANTS", "Variant"]

ENGINE = "circurve.engine.cuda"
LEARNING = "circurve.learning.cuda"
"""The package of the M-step kernels."""

NONE: set[str] = set()
EXP = {"ex2.approx.f32"}
"""tl.exp: subnormal results are kept."""

EXP2 = {"ex2.approx.ftz.f32"}
LOG = {"fma.rn.ftz.f32"}
"""tl.log and tl.log2: a polynomial, of numbers that are far from subnormal."""

DOUBLE = {"abs.ftz.f32", "rcp.approx.ftz.f64"}
"""tl.exp and tl.log of float64: a test of the exponent's size, and the start of an iteration for an inverse."""

SQRT = {"sqrt.approx.ftz.f32"}
DIVIDE = {"div.full.f32"}
MAX, MIN = {"max.f32"}, {"min.f32"}
MMA = {"mma.tf32"}
WGMMA = {"wgmma.tf32"}
SPLIT = {"cvt.rna.tf32.f32"}
"""tl.dot with tf32x3."""


@dataclass(frozen=True)
class Variant:
    """A kernel with its constants: what it must compile to, and the types of arguments whose name is not enough."""

    kernel: str
    """Module and name, as in "kernels.forward"."""

    constants: dict[str, Any]
    instructions: set[str]
    types: dict[str, str] = field(default_factory=dict)
    package: str = ENGINE
    warps: int = 4

    @property
    def label(self) -> str:
        """The kernel and its constants."""
        return self.kernel + " " + " ".join(f"{name}={value}" for name, value in self.constants.items())


TREE = {"S": 2, "CONTIGUOUS": True}
BERNOULLI = {"P": 1, "BERNOULLI": True, "S": 2}
CATEGORICAL = {"P": 5, "BERNOULLI": False, "S": 6}
ROWS = {"C2": 32, "BR": 8}

# Blocks are the smallest that tensor cores take for the same instructions: larger ones only take longer to compile.
FORWARD = {**TREE, "BK": 64, "C2": 32, "BN": 16, "AT_ONCE": 2, "EXACT": False}
BACKWARD = {"K2": 32, "BC": 64, "BN": 16, "CURVATURE": 3, "EXACT": False}
SUMS = {"BK": 64, "BC": 32, "BN": 128, "EXACT": False}
FLOWS = {"BK": 16, "BC": 64, "BN": 16}
COUNTS = {"EXACT": False, "ADD": True, "BK": 64, "BC": 16, "BN": 16, "SPLITS": 2, "PRECISION": "tf32x3"}
RATIOS = {"BK": 32, "BN": 16, "ROUND": True}
WIDE = {"BK": 64, "BC": 32, "BN": 64, "PRECISION": "tf32"}
EDGES = {"BK": 32, "BC": 32, "EXACT": False}
FLOAT64 = {"alphas": "*fp64", "mus": "*fp64", "multiplier": "*fp64", "scale": "*fp64", "pseudocount": "*fp64"}

VARIANTS = [
    Variant("kernels.forward", {**FORWARD, "PRECISION": "tf32x3", "EARLY": False}, EXP | LOG | MAX | WGMMA | SPLIT),
    Variant("kernels.forward", {**FORWARD, "PRECISION": "tf32", "EARLY": True}, EXP | LOG | MAX | WGMMA),
    Variant("kernels.forward", {**FORWARD, "AT_ONCE": 0, "S": 6, "PRECISION": "ieee", "EARLY": False}, EXP | LOG | MAX),
    Variant(
        "kernels.forward", {**FORWARD, "BK": 16, "C2": 16, "PRECISION": "tf32", "EARLY": False}, EXP | LOG | MAX | MMA
    ),
    Variant(
        "kernels.forward", {**FORWARD, "EXACT": True, "PRECISION": "tf32", "EARLY": False}, EXP | LOG | MAX | WGMMA
    ),
    Variant("kernels.elements", {**TREE, "BC": 128, "BN": 16, "WHOLE": True, "ROUND": True}, EXP | MAX, warps=8),
    Variant("kernels.elements", {**TREE, "BC": 128, "BN": 16, "WHOLE": False, "ROUND": False}, EXP | MAX),
    Variant("kernels.sums", {**SUMS, "PRECISION": "tf32x3"}, LOG | WGMMA, warps=8),
    Variant("kernels.sums", {**SUMS, "EXACT": True, "PRECISION": "tf32"}, LOG | WGMMA, warps=8),
    Variant(
        "kernels.backward", {**BACKWARD, "PRECISION": "tf32x3", "EARLY": False}, EXP | DIVIDE | MIN | WGMMA | SPLIT
    ),
    Variant("kernels.backward", {**BACKWARD, "CURVATURE": 0, "PRECISION": "tf32", "EARLY": True}, EXP | WGMMA),
    Variant("kernels.backward", {**BACKWARD, "EXACT": True, "PRECISION": "tf32", "EARLY": False}, DIVIDE | MIN | WGMMA),
    Variant("kernels.ratios", {**RATIOS, "CURVATURE": 3, "EXACT": False}, EXP | DIVIDE | MIN),
    Variant("kernels.ratios", {**RATIOS, "CURVATURE": 3, "EXACT": True}, DIVIDE | MIN),
    Variant("kernels.ratios", {**RATIOS, "CURVATURE": 6, "EXACT": False}, EXP | LOG | DIVIDE | MIN),
    Variant("kernels.flows", {**FLOWS, "PRECISION": "tf32x3"}, WGMMA | SPLIT),
    Variant("kernels.flows", {**FLOWS, "PRECISION": "tf32"}, WGMMA),
    Variant("kernels.counts", {"MODE": 0, **COUNTS}, WGMMA),
    Variant("kernels.counts", {"MODE": 1, **COUNTS}, EXP | WGMMA),
    Variant("kernels.counts", {"MODE": 1, **COUNTS, "EXACT": True}, DIVIDE | WGMMA),
    Variant("kernels.counts", {"MODE": 2, **COUNTS}, DIVIDE | MIN | WGMMA),
    Variant("kernels.counts", {"MODE": 3, **COUNTS}, EXP | MIN | WGMMA),
    Variant("wide_kernels.round_weights", {"BK": 64, "BC": 64, "TRANSPOSE": True}, NONE),
    Variant("wide_kernels.wide_sums", {**WIDE, "EXACT": False}, LOG | WGMMA),
    Variant("wide_kernels.wide_sums", {**WIDE, "EXACT": True}, LOG | WGMMA),
    Variant("wide_kernels.wide_flows", {**WIDE, "BK": 32, "BC": 64}, WGMMA),
    Variant("wide_kernels.wide_counts", {**WIDE, "BC": 64, "BN": 16, "ADD": True}, WGMMA),
    Variant("wide_kernels.wide_counts", {**WIDE, "BC": 64, "BN": 16, "ADD": False}, WGMMA),
    Variant("small_kernels.pick", {"WEIGHTED": True, "BV": 32, "BN": 32}, NONE, {"rows": "*i64"}),
    Variant("small_kernels.input_table", {**BERNOULLI, "BU": 256}, LOG),
    Variant("small_kernels.input_table", {**CATEGORICAL, "BU": 256}, LOG),
    Variant("small_kernels.leaf_table", {**BERNOULLI, "BK": 16, "C2": 16}, EXP | LOG | MAX),
    Variant("small_kernels.leaf_table", {**CATEGORICAL, "BK": 16, "C2": 16}, EXP | LOG | MAX),
    Variant("small_kernels.leaf_counts", {"S": 2, "S2": 2, "BK": 64, "BC": 32, "ADD": True}, DIVIDE),
    Variant("small_kernels.unit_sums", {"BT": 8, "BM": 128}, NONE, {"out": "*fp64"}),
    Variant("small_kernels.leaf_units", {"S": 2, "BK": 64, "C2": 128, "KINDS": 3}, DIVIDE, {"out": "*fp64"}),
    Variant("small_kernels.leaf_units", {"S": 2, "BK": 64, "C2": 128, "KINDS": 6}, DIVIDE | LOG, {"out": "*fp64"}),
    Variant(
        "small_kernels.outputs",
        {"LABELS": True, "ADD": True, "RUNNING": True, "BN": 256},
        NONE,
        {"rows": "*i32", "totals": "*fp64", "running": "*fp64", "outputs": "i32"},
    ),
    Variant("small_kernels.by_state", {"S": 2, "S2": 2, "BK": 8, "BN": 16, "SPLITS": 2, "SQUARES": True}, DIVIDE),
    Variant("small_kernels.by_state", {"S": 6, "S2": 8, "BK": 8, "BN": 16, "SPLITS": 1, "SQUARES": True}, DIVIDE),
    Variant("edge_kernels.edge_logs", {**TREE, "BC": 32, "BN": 32}, NONE),
    Variant("edge_kernels.edge_sums", {"BK": 32, "BN": 32, "EXACT": True}, EXP | LOG | MAX),
    Variant("edge_kernels.edge_ratios", {"BK": 32, "BN": 16, "CURVATURE": 3, "EXACT": False}, EXP | DIVIDE | MIN),
    Variant("edge_kernels.edge_ratios", {"BK": 32, "BN": 16, "CURVATURE": 3, "EXACT": True}, EXP | LOG | DIVIDE | MIN),
    Variant("edge_kernels.edge_ratios", {"BK": 32, "BN": 16, "CURVATURE": 6, "EXACT": False}, EXP | LOG | DIVIDE | MIN),
    Variant("edge_kernels.edge_flows", {"BC": 32, "BN": 32, "EXACT": False}, EXP),
    Variant("edge_kernels.edge_flows", {"BC": 32, "BN": 32, "EXACT": True}, EXP | LOG),
    Variant("edge_kernels.edge_counts", {"MODE": 0, "ADD": True, **EDGES}, EXP),
    Variant("edge_kernels.edge_counts", {"MODE": 2, "ADD": True, **EDGES}, EXP | DIVIDE | MIN),
    Variant("edge_kernels.edge_counts", {"MODE": 3, "ADD": True, **EDGES}, EXP | MIN),
    Variant(
        "mstep_kernels.maximize", {**ROWS, "MASKED": True}, SQRT | DIVIDE | MAX, {"units": "*i32", **FLOAT64}, LEARNING
    ),
    Variant("mstep_kernels.maximize_inputs", {**BERNOULLI, "BU": 256}, DIVIDE, FLOAT64, LEARNING),
    Variant("mstep_kernels.maximize_inputs", {**CATEGORICAL, "BU": 256}, DIVIDE | MAX, FLOAT64, LEARNING),
    Variant(
        "simplex_kernels.maximize_exactly",
        {**ROWS, "BR": 4, "MASKED": True},
        EXP | EXP2 | LOG | DOUBLE | SQRT | DIVIDE | MAX | MIN,
        {"units": "*i32", **FLOAT64},
        LEARNING,
    ),
]

HELPERS = {
    "at_least",
    "between",
    "effective_step",
    "let_next_begin",
    "log_elements",
    "per_weight",
    "product",
    "received",
    "rounded",
    "wait_for_last",
}
"""Public functions that are part of kernels, and none themselves."""


# -- types of arguments, by their names

INTEGERS = {"rows", "units", "tiles", "span", "width", "start", "size"}
POINTERS = {
    **dict.fromkeys(("states", "data"), "*i8"),
    **dict.fromkeys(("factors", "kinds", "bases", "readers", "variables", "labels", "forms"), "*i32"),
    **dict.fromkeys(("number", "groups", "group_rows", "group_elements", "group_weights"), "*i64"),
}


def argument_type(name: str) -> str:
    """By the naming of the kernels: capitals, strides and first places are numbers; most pointers are to float32."""
    if name.isupper() or name.endswith("_stride") or name.startswith("first_") or name in INTEGERS:
        return "i32"
    return POINTERS.get(name, "*fp32")


# -- compilation; runs in a process of its own

INEXACT = re.compile(
    r"\b((?:wgmma\.mma_async|mma\.sync)\S*|(?:\w+\.)*(?:ftz|approx|full|rna)\.\S+|(?:max|min|div|sqrt)\.\S*f32)"
)


def instructions(ptx: str) -> list[str]:
    """Instructions that flush, approximate, drop NaN or shorten their operands; tensor cores without their shapes."""
    found = set()
    for name in INEXACT.findall(ptx):
        product = re.match(r"(wgmma|mma)\..*\.(tf32|f16|bf16)\b", name)
        found.add(f"{product[1]}.{product[2]}" if product else name.rstrip(";"))
    return sorted(found)


def compile_variant(variant: Variant) -> list[str]:
    """The inexact instructions of a kernel's PTX for sm_90."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from circurve.engine.cuda.compile_ahead import FUSED

    module, name = variant.kernel.split(".")
    kernel = getattr(importlib.import_module(f"{variant.package}.{module}"), name)
    given = dict.fromkeys(variant.constants, "constexpr")
    types = {n: given.get(n) or variant.types.get(n) or argument_type(n) for n in kernel.arg_names}
    source = ASTSource(kernel, types, variant.constants)
    compiled = triton.compile(source, GPUTarget("cuda", 90, 32), {"num_warps": variant.warps, **FUSED})
    return instructions(compiled.asm["ptx"])


def main(target: Path) -> None:
    """Compile all variants; the step from PTX to machine code is left out, since nothing of it is read."""
    from triton.backends.nvidia.compiler import CUDABackend

    CUDABackend.make_cubin = lambda *_: b""
    target.write_text(json.dumps({variant.label: compile_variant(variant) for variant in VARIANTS}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
