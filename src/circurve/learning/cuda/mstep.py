"""The M-step on the kernels: weights and discrete inputs of all runs, moved in place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from circurve.engine.cuda.blueprint import TablePlan
from circurve.engine.cuda.fused import FusedEngine
from circurve.engine.cuda.sizes import parts, power

__all__ = ["StepSizes", "Update", "move_inputs", "move_weights"]


@dataclass(frozen=True)
class StepSizes:
    """Step sizes and strengths of all steps, (steps, R) float64, and which step it is."""

    alphas: Tensor
    mus: Tensor
    number: Tensor


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
    from circurve.learning.cuda import mstep_kernels, simplex_kernels  # noqa: PLC0415 - Triton is imported only when used

    for at, pack in enumerate(engine.packing.packs):
        width = power(pack.children)
        common = {
            "weights": engine.packed[at], "counts": counts[at], "gates": gates, "units": engine.launch.units[at],
            "alphas": steps.alphas, "mus": steps.mus, "number": steps.number,
            "forms": update.forms, "multiplier": update.multiplier, "scale": update.scale,
            "pseudocount": update.pseudocount,
            "weight_stride": engine.packed[at].stride(0), "gate_stride": gates.stride(0),
            "rows": pack.size, "R": engine.runs, "C": pack.children, "CW": pack.width,
            "C2": width, "MASKED": engine.program.masked,
        }  # fmt: skip
        if update.any_plain:
            rows = max(1, min(16, 1024 // width))
            mstep_kernels.maximize[(parts(pack.size, rows), engine.runs)](**common, BR=rows)
        if update.any_exact:
            rows = max(1, min(8, 512 // width))
            simplex_kernels.maximize_exactly[(parts(pack.size, rows), engine.runs)](
                **common, moments=moments[at] if moments else counts[at], BR=rows
            )


def move_inputs(engine: FusedEngine, plan: TablePlan, flows: Tensor, steps: StepSizes, pseudocount: Tensor) -> None:
    """Move the parameters of a tabulated input layer, from its flow by state (R, units, S)."""
    from circurve.learning.cuda import mstep_kernels  # noqa: PLC0415 - Triton is imported only when used

    units = flows.shape[1]
    mstep_kernels.maximize_inputs[(parts(units, 256), engine.runs)](
        parameters=engine.inputs[plan.inputs], flows=flows, flow_stride=flows.stride(0),
        alphas=steps.alphas, number=steps.number, pseudocount=pseudocount, units=units, R=engine.runs,
        BU=256, **engine.launch.family(plan),
    )  # fmt: skip
