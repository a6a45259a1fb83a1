"""The M-step on the kernels: weights and discrete inputs of all runs, moved in place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from circurve.engine.cuda.blueprint import TablePlan
from circurve.engine.cuda.fused import FusedEngine
from circurve.engine.cuda.sizes import parts, power
from circurve.inputs.common import FLOOR as INPUT_FLOOR

__all__ = ["StepSizes", "Update", "move_inputs", "move_weights"]


@dataclass(frozen=True)
class StepSizes:
    """Step sizes and strengths of all steps, (steps, R) float64, and which step it is."""

    alphas: Tensor
    mus: Tensor
    number: Tensor
    floor: float


@dataclass(frozen=True)
class Update:
    """How the sum weights of each run move, (R,) each."""

    forms: Tensor  # int32: 0 as the paper does, 1 exact simplex, 2 exact penalty, 3 both
    multiplier: Tensor
    scale: Tensor
    """What counts are divided by first."""

    pseudocount: Tensor
    any_plain: bool
    any_exact: bool


def move_weights(
    engine: FusedEngine, counts: list[Tensor], moments: list[Tensor], gates: Tensor, steps: StepSizes, update: Update
) -> None:
    """Move the packed weights; gates: (R, M). Runs of an exact form have a kernel of their own."""
    from circurve.engine.cuda import mstep_kernels, simplex_kernels  # noqa: PLC0415 - Triton is imported only when used

    masked = engine.program.masked
    columns = (update.forms, update.multiplier, update.scale, update.pseudocount)
    for at, pack in enumerate(engine.packing.packs):
        weights, width = engine.packed[at], power(pack.children)
        common = (gates, engine.launch.units[at], steps.alphas, steps.mus, steps.number, *columns)
        sizes = (weights.stride(0), gates.stride(0), pack.size, engine.runs, pack.children, pack.width)
        if update.any_plain:
            rows = max(1, min(16, 1024 // width))
            mstep_kernels.maximize[(parts(pack.size, rows), engine.runs)](
                weights, counts[at], *common, *sizes, FLOOR=steps.floor, C2=width, BR=rows, MASKED=masked
            )
        if update.any_exact:
            rows = max(1, min(8, 512 // width))
            simplex_kernels.maximize_exactly[(parts(pack.size, rows), engine.runs)](
                weights, counts[at], moments[at] if moments else counts[at], *common, *sizes,
                FLOOR=steps.floor, C2=width, BR=rows, MASKED=masked,
            )  # fmt: skip


def move_inputs(engine: FusedEngine, plan: TablePlan, flows: Tensor, steps: StepSizes, pseudocount: Tensor) -> None:
    """Move the parameters of a tabulated input layer, from its flow by state (R, units, S)."""
    from circurve.engine.cuda import mstep_kernels  # noqa: PLC0415 - Triton is imported only when used

    units = flows.shape[1]
    mstep_kernels.maximize_inputs[(parts(units, 256), engine.runs)](
        engine.inputs[plan.inputs], flows, flows.stride(0), steps.alphas, steps.number, pseudocount, units, engine.runs,
        FLOOR=INPUT_FLOOR, BU=256, **engine.launch.family(plan),
    )  # fmt: skip
