"""Log-probabilities of rows: `log_prob` of a model, and of all rows of a checked table in chunks that memory holds."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.budget import Need
from circurve.data import (
    QuickCheck,
    RowSource,
    Stream,
    Table,
    align,
    align_source,
    answer_in_pieces,
    as_table,
    is_streamed,
    log_unseen,
)
from circurve.data.align import MissingColumns
from circurve.data.unseen import Unseen
from circurve.engine import (
    Backend,
    BackendName,
    Batch,
    Params,
    Reference,
    SmallBatches,
    choose_backend,
    differentiable_log_prob,
    refuse_discrete,
    wants_gradient,
)
from circurve.engine.memory import chunk_size, release_large, within_memory
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.inputs.family import takes_others
from circurve.queries.asked import Asked

__all__ = ["RowScores", "align_rows", "finish_scores", "score_rows"]

Array = NDArray[np.float64]


def align_rows(model: RowScores, x: Any, unseen: Unseen) -> Table | Stream:
    """What `align` of a model returns, for tables in memory and for streams."""
    return align_source(x, model.schema, unseen=model._unseen(unseen))


def score_rows(
    backend: Backend, params: Params, table: RowSource, memory_budget: int | None
) -> Tensor:  # (R, outputs, N)
    """log p of the rows of a checked table, as many at once as memory holds.

    Buffers of a few rows stay with the backend for the next call; large ones go, since a person may hold many models.
    """
    rows = len(table)
    chunk = chunk_size(backend, backward=False, memory_budget=memory_budget, samples=rows)

    def score(size: int) -> Tensor:  # (R, outputs, N)
        parts = (Batch.rows(table, start, min(start + size, rows), params.dtype) for start in range(0, rows, size))
        return torch.cat([backend.log_prob(params, part) for part in parts], dim=2)

    found = within_memory(backend, max(1, min(chunk, rows)), score)
    release_large(backend, rows, backward=False)
    return found


def finish_scores(values: Tensor, extra: Tensor | None, x: Any) -> Any:  # (..., N, outputs), (N,)
    """Log-probabilities as a user gets them: `extra` added to each row, and no axis for a single output.

    A torch tensor, on the device of x, if x is one; else a numpy array.
    """
    if extra is not None:
        values = values + extra[:, None].to(values)
    values = values[..., 0] if values.shape[-1] == 1 else values
    return values.to(x.device) if isinstance(x, Tensor) else values.double().cpu().numpy()


class RowScores(Asked):
    """Log-probabilities of the rows of a table under one model."""

    circuit: Circuit

    def align(
        self,
        x: Any,
        *,
        missing: int | None = None,
        unseen: Unseen = "impossible",
        missing_columns: MissingColumns = "error",
    ) -> Table:
        """Data as a checked table in the model's schema, without weights and labels.

        Where inputs of one variable take different values, a value that only some of them take is not impossible, and
        the others cannot score it: it is then an error.

        Parameters
        ----------
        x : array, data frame, mapping or Table
            The rows, as in `log_prob`.
        missing : int, optional
            A number that marks missing values, in addition to NaN.
        unseen : {"impossible", "missing", "error"}, default "impossible"
            As in `log_prob`.
        missing_columns : {"error", "missing"}, default "error"
            As in `log_prob`.

        Returns
        -------
        Table
            Its columns are in the order of the schema, and its values are coded as numbers.

        Raises
        ------
        DataError
            If a column is unknown or absent, or a value does not fit its column.

        Examples
        --------
        >>> model.align({"degrees": [5.0], "rain": [True], "city": ["Rome"]})
        <Table: 1 row x 3 columns; float64; columns city, rain, degrees>
        """
        table = as_table(x, missing=missing).bare()
        return align(table, self.schema, unseen=self._unseen(unseen), missing_columns=missing_columns)

    def _unseen(self, asked: Unseen) -> Unseen:
        return "error" if asked == "impossible" and self._mixed else asked

    @cached_property
    def _mixed(self) -> bool:
        """Whether a variable has inputs of families that take different values."""
        families = self.circuit.families
        return any(takes_others(node.family, families[node.variable]) for node in self.circuit.inputs)

    def log_prob(  # noqa: PLR0913 - each parameter is an option
        self,
        x: Any,
        *,
        missing: int | None = None,
        unseen: Unseen = "impossible",
        missing_columns: MissingColumns = "error",
        memory_budget: int | None = None,
        backend: BackendName = "auto",
        out: Any = None,
    ) -> Any:
        """Log-probability of each row, with missing values summed (or integrated) out exactly.

        Parameters
        ----------
        x : array, tensor, data frame, mapping, Table or stream
            The rows. Data frames, and columns by name, are ordered by name if the model has names; arrays are read by
            position. NaN marks a missing value. A stream (`open_stream`; a `numpy.memmap`, a Parquet or Arrow file or
            folder) is read piece by piece.
        missing : int, optional
            A number that marks missing values, in addition to NaN.
        unseen : {"impossible", "missing", "error"}, default "impossible"
            A value that was not seen in training makes its row impossible (-inf, with one warning), counts as missing,
            or is an error.
        missing_columns : {"error", "missing"}, default "error"
            A column that x lacks is an error, or all its values are missing.
        memory_budget : int, optional
            Memory limit for data, result and buffers, in bytes.
        backend : {"auto", "reference", "tree", "fused"}, default "auto"
            What computes; "auto" takes the fastest.
        out : array, optional
            An array for the result, such as a `numpy.memmap`; it is filled and returned.

        Returns
        -------
        array or Tensor
            (N,), or (N, outputs) for a circuit with several outputs; -inf for a row of probability zero. A torch tensor
            for a torch tensor, else a numpy array. If a tensor x or the parameters require a gradient, the result has
            one: the reference backend computes it.

        Raises
        ------
        DataError
            If a column is unknown or absent, or a value is refused.
        OptionError
            If an option is wrong, or a gradient would be lost.
        MemoryLimitError
            If `memory_budget` is too small for the data and the result.

        Examples
        --------
        >>> model.log_prob({"city": ["Rome", "Oslo"], "rain": [False, None], "degrees": [20.5, None]}).round(2)
        array([-2.91, -0.67])
        """
        memory_budget = self._memory_budget if memory_budget is None else memory_budget
        if is_streamed(x) or out is not None:
            options: Any = {"unseen": unseen, "missing_columns": missing_columns, "backend": backend}
            options["memory_budget"] = memory_budget
            rows = None if memory_budget is None else max(1, memory_budget // (4 * self._row_bytes))
            return answer_in_pieces(x, missing, lambda part: self.log_prob(part, **options), out, rows)
        if wants_gradient(x, self.params):
            return self._differentiable(x, missing, memory_budget, backend)
        short = backend == "auto" and memory_budget is None
        if memory_budget is not None:
            parts = {"data and result": len(as_table(x)) * self._row_bytes}
            cure = "pass open_stream(x), which reads some rows at a time"
            memory_budget = Need("log_prob", parts, cure).left(memory_budget)
        plain = missing is None and self.schema.numbers_only and isinstance(x, np.ndarray | Tensor)
        few = self._few_rows(x) if short and plain else None
        if few is None:
            table = self.align(x, missing=missing, unseen=unseen, missing_columns=missing_columns)
            extra = log_unseen(table)
            few = self._few_rows(table) if short and extra is None else None
        if few is not None:
            return torch.from_numpy(few).to(x.device, self.params.dtype) if isinstance(x, Tensor) else few
        computing = self.backend if backend == "auto" else choose_backend(self.program, self.params, backend)
        values = score_rows(computing, self.params, table.to(self.params.device), memory_budget)[0].T  # (N, outputs)
        return finish_scores(values, extra, x)

    @property
    def _row_bytes(self) -> int:
        """The memory of a row and its result, at most."""
        return 8 * (len(self.schema) + self.circuit.outputs)

    def _few_rows(self, x: Any) -> Array | None:
        """log_prob of a few rows in an array, tensor or checked table; None if they are many or out of the ordinary.

        What it refuses goes the longer way through `as_table`, `check` and a backend.
        """
        if not isinstance(x, np.ndarray | Tensor | Table) or len(x.shape) != 2 or len(x) > self._small.max_samples:
            return None
        columns = self._quick_check(x)
        values = None if columns is None else self._small.log_prob(*columns)  # (outputs, N)
        return None if values is None else values[0] if self.circuit.outputs == 1 else values.T

    @cached_property
    def _small(self) -> SmallBatches:
        return SmallBatches(self.program, self.params)

    @cached_property
    def _quick_check(self) -> QuickCheck:
        return QuickCheck(self.circuit.families)

    def _differentiable(self, x: Any, missing: int | None, memory_budget: int | None, backend: BackendName) -> Tensor:
        """log_prob in the autograd graph of `x` and the parameters; what would lose a gradient is refused."""
        if not isinstance(x, Tensor):
            raise OptionError(
                "the parameters require a gradient, which a numpy result would lose: pass x as a torch tensor, "
                "or call log_prob within torch.no_grad()"
            )
        if backend not in ("auto", "reference"):
            raise OptionError(
                f"backend={backend!r} gives no gradients: use backend='reference', "
                "or call log_prob within torch.no_grad()"
            )
        if memory_budget is not None:
            raise OptionError(
                "memory_budget has no effect when gradients are computed: pass fewer rows at a time instead"
            )
        refuse_discrete(x, self.circuit.families)
        values = differentiable_log_prob(self.reference, self.params, x, self.circuit.families, missing).T
        return (values[:, 0] if self.circuit.outputs == 1 else values).to(x.device)

    @cached_property
    def reference(self) -> Reference:
        """The backend in plain torch, which gives flows and gradients."""
        return self._target.reference if self.circuit.outputs == 1 else Reference.of(self.program, self.params)

    @cached_property
    def backend(self) -> Backend:
        """What computes this model on its device: chosen once, and gone with the model."""
        return choose_backend(self.program, self.params, fixed=True)
