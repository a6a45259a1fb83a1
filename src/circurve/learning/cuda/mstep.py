"""The M-step on the kernels: weights and discrete inputs of all runs, moved in place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from circurve.engine.cuda.blueprint import TablePlan
from circurve.engine.cuda.estep import FusedSums
from circurve.engine.cuda.fused import FusedEngine
from circurve.engine.cuda.sizes import parts, power
from circurve.learning.plan import Plan

__all__ = ["StepSizes", "move_inputs", "move_weights"]


@dataclass(frozen=True)
class StepSizes:
    """Step sizes and strengths of all steps, and which step it is."""

    alphas: Tensor  # (steps, R) float64
    mus: Tensor  # (steps, R) float64
    number: Tensor  # (1,) int64


def move_weights(engine: FusedEngine, plan: Plan, sums: FusedSums, gates: Tensor, steps: StepSizes) -> None:
    """Move the packed weights; gates: (R, M). Runs of an exact form have a kernel of their own."""
    from circurve.learning.cuda import mstep_kernels, simplex_kernels  # noqa: PLC0415 - Triton is imported only when used

    plain = (False, False)
    scale = plan.scale(sums.totals[1])
    for at, pack in enumerate(engine.packing.packs):
        width = power(pack.children)
        common = {
            "weights": engine.packed[at], "counts": sums.counts[at], "gates": gates, "units": engine.launch.units[at],
            "alphas": steps.alphas, "mus": steps.mus, "number": steps.number,
            "forms": plan.form_numbers, "multiplier": plan.multiplier, "scale": scale, "pseudocount": plan.pseudocount,
            "weight_stride": engine.packed[at].stride(0), "gate_stride": gates.stride(0),
            "rows": pack.size, "R": engine.runs, "C": pack.children, "CW": pack.width,
            "C2": width, "MASKED": engine.program.masked,
        }  # fmt: skip
        if plain in plan.forms:
            rows = max(1, min(16, 1024 // width))
            mstep_kernels.maximize[(parts(pack.size, rows), engine.runs)](**common, BR=rows)
        if set(plan.forms) != {plain}:
            rows = max(1, min(8, 512 // width))
            moments = sums.second[at] if sums.second else sums.counts[at]
            simplex_kernels.maximize_exactly[(parts(pack.size, rows), engine.runs)](**common, moments=moments, BR=rows)


def move_inputs(engine: FusedEngine, plan: TablePlan, flows: Tensor, steps: StepSizes, pseudocount: Tensor) -> None:
    """Move the parameters of a tabulated input layer, from its flow by state (R, units, S)."""
    from circurve.learning.cuda import mstep_kernels  # noqa: PLC0415 - Triton is imported only when used

    units = flows.shape[1]
    mstep_kernels.maximize_inputs[(parts(units, 256), engine.runs)](
        parameters=engine.inputs[plan.inputs], flows=flows, flow_stride=flows.stride(0),
        alphas=steps.alphas, number=steps.number, pseudocount=pseudocount, units=units, R=engine.runs,
        BU=256, **engine.launch.family(plan),
    )  # fmt: skip
