"""Launches of the kernels around the sum layers: data and outputs, tables and sums by state, totals of units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from circurve.engine.cuda.blueprint import TablePlan
from circurve.engine.cuda.buffers import Buffers
from circurve.engine.cuda.compile_ahead import Kernels
from circurve.engine.cuda.sizes import cut, part_size, parts, power
from circurve.engine.states import StateSums
from circurve.inputs import Bernoulli, Categorical

__all__ = ["PickFrom", "TableLauncher"]


@dataclass(frozen=True)
class PickFrom:
    """Where a batch's samples come from."""

    states: Tensor  # (rows, V) int8
    rows: Tensor  # (steps, R or 1, N), -1 for padding
    number: Tensor  # (1,), which step
    weights: Tensor | None  # (rows,)


class TableLauncher:
    """The small kernels on one engine's buffers."""

    def __init__(self, buffers: Buffers) -> None:
        from circurve.engine.cuda import small_kernels  # noqa: PLC0415 - Triton is imported only when used

        self.buffers, self.small = buffers, Kernels(small_kernels)
        plan = buffers.blueprint
        self._tables = {t.inputs: (self._put(t.readers), self._put(t.variables)) for t in plan.tables}
        self._written = {w.inputs: self._put(w.readers) for w in plan.written}
        self._outputs = self._put(plan.outputs)

    def _put(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self.buffers.device)

    def states(self, plan: TablePlan, states: Tensor, sums: Tensor, squares: Tensor | None, weights: Tensor) -> None:
        """Flow of a table's units by state, into (parts, R, rows, S)."""
        b = self.buffers
        readers, variables = self._tables[plan.inputs]
        block, step = min(32, power(plan.units)), 64
        splits = sums.shape[0]
        self.small.by_state[(parts(plan.units, block), plan.groups, b.runs * splits)](
            flows=b.flows, states=states, sample_weights=b.sample_weights, readers=readers, variables=variables,
            sums=sums, squares=sums if squares is None else squares, weights=weights,
            flow_stride=b.flows.stride(0), state_stride=states.stride(0) if states.shape[0] > 1 else 0,
            table_stride=sums.stride(1), split_stride=sums.stride(0),
            first_row=plan.rows, N=b.width, NS=b.stride, K=plan.units, J=readers.shape[1],
            span=parts(part_size(b.width, splits), step),
            S=b.columns, S2=power(b.columns, 1), BK=block, BN=step, SPLITS=splits, SQUARES=squares is not None,
        )  # fmt: skip

    def state_splits(self) -> int:
        """Into how many parts the samples are cut when flows are added up by state."""
        b = self.buffers
        groups = sum(plan.groups for plan in b.blueprint.tables)
        return cut(b.width, max(1, groups * b.runs // 2))[0]

    def outputs(self, labels: Tensor | None, totals: Tensor, add: bool, running: Tensor | None) -> None:
        """The end of the forward pass; its sums replace `totals` or are added to them, and to `running`."""
        b = self.buffers
        self.small.outputs[(b.runs,)](
            values=b.values, flows=b.flows, sample_weights=b.sample_weights,
            labels=b.sample_weights if labels is None else labels, rows=self._outputs, totals=totals,
            running=totals if running is None else running, log_values=b.log_values,
            value_stride=b.values.stride(0), flow_stride=b.flows.stride(0), N=b.width, NS=b.stride,
            outputs=len(self._outputs), LABELS=labels is not None, ADD=add, RUNNING=running is not None, BN=256,
        )  # fmt: skip

    def received(self, inputs: int) -> Tensor:  # (R, G, K, N)
        """The flow of an input layer that is no table."""
        b = self.buffers
        readers = self._written[inputs].long()  # (G, J, K)
        g, j, k = readers.shape
        flow = b.flows.index_select(1, readers.flatten()).view(b.runs, g, j, k, b.stride)
        return flow.sum(2)[..., : b.samples]

    def pick(self, batch: PickFrom, start: int, states: Tensor) -> None:
        """States (R or 1, V, NS) and weights of `samples` samples of a batch, from number `start` on."""
        b = self.buffers
        lists, width = batch.rows.shape[1:]
        self.small.pick[(parts(b.width, 32), parts(b.variables, 32), lists)](
            data=batch.states, rows=batch.rows, number=batch.number,
            row_weights=b.sample_weights if batch.weights is None else batch.weights,
            states=states, sample_weights=b.sample_weights, V=b.variables, N=b.samples, NS=b.stride, R=b.runs,
            state_stride=states.stride(0), width=width, start=start,
            WEIGHTED=batch.weights is not None, BV=32, BN=32,
        )  # fmt: skip

    def knows(self, plan: TablePlan) -> bool:
        """True if the kernels know the family of a table."""
        return isinstance(self.buffers.program.inputs[plan.inputs].family, Bernoulli | Categorical)

    def family(self, plan: TablePlan) -> dict[str, Any]:
        """What the kernels are told of a table's family."""
        family = self.buffers.program.inputs[plan.inputs].family
        bernoulli = isinstance(family, Bernoulli)
        return {"P": family.parameter_count, "BERNOULLI": bernoulli, "S": self.buffers.columns}

    def tabulate(self, plan: TablePlan) -> None:
        """Columns by state of an input layer, or of the sums on top of it."""
        b = self.buffers
        parameters = b.inputs[plan.inputs]
        table = {"parameters": parameters, "table": b.table, "table_stride": b.table.stride(0), "first_row": plan.rows}
        if plan.sums is None:
            units = plan.groups * plan.units
            grid = (parts(units, 256), b.runs)
            self.small.input_table[grid](**table, units=units, BU=256, **self.family(plan))
            return
        g, k, c = b.program.sums[plan.sums].shape
        leaves = b.leaves[plan.inputs]
        block = max(1, min(power(k), 4096 // power(c)))
        self.small.leaf_table[(parts(k, block), g, b.runs)](
            **table, **self._weights(plan.sums),
            elements=leaves.elements, scaled=leaves.sums, largest=leaves.log_largest,
            G=g, K=k, C=c, BK=block, C2=power(c), **self.family(plan),
        )  # fmt: skip

    def leaf_counts(self, plan: TablePlan, flows: Tensor, counts: list[Tensor], add: bool) -> Tensor:  # (R, G x C, S)
        """Counts of a tabulated sum layer, from flows by state (R, rows, S); returns its inputs' flow by state."""
        b = self.buffers
        assert plan.sums is not None
        g, k, c = b.program.sums[plan.sums].shape
        leaves = b.leaves[plan.inputs]
        down = torch.empty(b.runs, g * c, b.columns, device=b.device, dtype=b.dtype)
        self.small.leaf_counts[(parts(c, 32), g, b.runs)](
            flows=flows, **self._weights(plan.sums), elements=leaves.elements, scaled=leaves.sums,
            counts=counts[b.packing.place[plan.sums][0]], child_flows=down,
            table_stride=flows.stride(0), first_row=plan.rows, G=g, K=k, C=c,
            S=b.columns, S2=power(b.columns, 2), BK=min(64, power(k)), BC=32, ADD=add,
        )  # fmt: skip
        return down

    def _weights(self, number: int) -> dict[str, Any]:
        at, unit = self.buffers.packing.place[number]
        weights = self.buffers.packed[at]
        return {"weights": weights, "weight_stride": weights.stride(0), "first_pack": unit, "CW": weights.shape[2]}

    def unit_sums(self, partial: Tensor) -> Tensor:  # (R, tiles, kinds, M) -> (R, kinds, M)
        """The sums of all units, in float64."""
        runs, tiles, kinds, units = partial.shape
        out = torch.empty(runs, kinds, units, device=partial.device, dtype=torch.float64)
        grid = (parts(kinds * units, 128), runs)
        self.small.unit_sums[grid](partial=partial, out=out, tiles=tiles, size=kinds * units, BT=8, BM=128)
        return out

    def leaf_units(self, plan: TablePlan, by_state: StateSums, out: Tensor) -> None:
        """The sums of a tabulated sum layer's units into out (R, kinds, M), from sums by state (R, rows, S)."""
        b = self.buffers
        assert plan.sums is not None
        g, k, c = b.program.sums[plan.sums].shape
        leaves = b.leaves[plan.inputs]
        self.small.leaf_units[(parts(k, 64), g, b.runs)](
            flows=by_state.flow, squares=by_state.square, weights=by_state.weight,
            elements=leaves.elements, scaled=leaves.sums, largest=leaves.log_largest,
            out=out, table_stride=by_state.flow.stride(0), first_row=plan.rows,
            first_unit=int(b.packing.starts[plan.sums]), M=b.packing.units, G=g, K=k, C=c,
            S=b.columns, BK=64, C2=power(c), KINDS=out.shape[1],
        )  # fmt: skip
