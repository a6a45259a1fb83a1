"""Several models of one circuit, asked together: every question is answered for all of them in the passes of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np

from circurve.budget import Need
from circurve.data import log_unseen
from circurve.data.align import MissingColumns
from circurve.data.unseen import Unseen
from circurve.engine import Backend, BackendName, Params, choose_backend, stack, wants_gradient
from circurve.errors import OptionError
from circurve.model import Model
from circurve.queries.questions import Questions
from circurve.scoring import finish_scores, score_rows
from circurve.words import counted

__all__ = ["Models"]


class Models(Questions, Sequence[Model]):
    """Several models of one circuit, such as the runs of a fleet, which answer together in one pass.

    It has the questions of `Model`. Numbers and arrays get a leading axis R; frames a first column "run" with the
    labels of the runs, or their numbers. Each answer is that of the model alone: with the same seed all of them draw
    with the same random numbers. Evidence that is impossible under one of them is an error that gives the number of the
    run.

    Parameters
    ----------
    models : sequence of Model
        At least one; all with the same circuit, schema, device and precision.
    labels : sequence of str, optional
        What answers call the models; None gives them numbers from 0.

    Raises
    ------
    OptionError
        If the models differ in anything but their parameters.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> runs = [cc.Run(seed=seed) for seed in range(3)]
    >>> fleet = cc.fit_fleet(cc.hclt(data.train, units=4), data.train, runs, epochs=2, valid=False)
    >>> fleet.models
    <Models: 3 of <Circuit: 64 variables, 164 nodes, 1 output>>
    >>> fleet.models.log_prob(data.test).shape
    (3, 270)
    """

    def __init__(self, models: Sequence[Model], labels: Sequence[str] | None = None) -> None:
        self._models = tuple(models)
        if not self._models:
            raise OptionError("models is empty; pass at least one Model")
        first = self._models[0]
        for number, model in enumerate(self._models):
            _refuse_difference(first, model, number)
        if labels is not None and len(labels) != len(self._models):
            raise OptionError(f"{len(labels)} labels do not fit {counted(len(self._models), 'model')}")
        self.labels = None if labels is None else tuple(labels)
        """What answers call the models; None: their numbers, from 0 on."""

        self.circuit, self.program, self.schema = first.circuit, first.program, first.schema
        self.params: Params = stack(model.params for model in self._models)
        names = np.arange(len(self._models))
        self._run_names = names if self.labels is None else np.array(self.labels, dtype=object)

    @cached_property
    def backend(self) -> Backend:
        """What computes all of them on their device."""
        return choose_backend(self.program, self.params)

    @overload
    def __getitem__(self, index: int) -> Model: ...
    @overload
    def __getitem__(self, index: slice) -> Models: ...
    def __getitem__(self, index: int | slice) -> Model | Models:
        if isinstance(index, slice):
            return Models(self._models[index], None if self.labels is None else self.labels[index])
        return self._models[index]

    def __len__(self) -> int:
        return len(self._models)

    def log_prob(
        self,
        x: Any,
        *,
        missing: int | None = None,
        unseen: Unseen = "impossible",
        missing_columns: MissingColumns = "error",
        memory_budget: int | None = None,
        backend: BackendName = "auto",
    ) -> Any:
        """Log-probability of each row under each model, with missing values summed (or integrated) out exactly.

        Parameters
        ----------
        x : array, tensor, data frame, mapping or Table
            The rows, as in `Model.log_prob`.
        missing : int, optional
            A number that marks missing values, in addition to NaN.
        unseen : {"impossible", "missing", "error"}, default "impossible"
            As in `Model.log_prob`.
        missing_columns : {"error", "missing"}, default "error"
            A column that x lacks is an error, or all its values are missing.
        memory_budget : int, optional
            Memory limit for data, result and buffers, in bytes.
        backend : {"auto", "reference", "tree", "fused"}, default "auto"
            What computes; "auto" takes the fastest.

        Returns
        -------
        array or Tensor
            (R, N), or (R, N, outputs) for a circuit with several outputs. A torch tensor for a torch tensor, else a
            numpy array.

        Raises
        ------
        DataError
            If a column is unknown or absent, or a value is refused.
        OptionError
            If an option is wrong, or if x or the parameters require a gradient.
        MemoryLimitError
            If `memory_budget` is too small for the data and the result.

        Examples
        --------
        >>> fleet.models[:2].log_prob(data.test[:5]).shape
        (2, 5)
        """
        if wants_gradient(x, self.params):
            raise OptionError("Models gives no gradients: call log_prob of each Model, or use torch.no_grad()")
        memory_budget = self._memory_budget if memory_budget is None else memory_budget
        table = self._models[0].align(x, missing=missing, unseen=unseen, missing_columns=missing_columns)
        extra = log_unseen(table)
        computing = self.backend if backend == "auto" else choose_backend(self.program, self.params, backend)
        if memory_budget is not None:
            parts = {"data": table.nbytes, "result": 2 * 8 * len(table) * len(self) * self.circuit.outputs}
            need = Need("log_prob", parts, "pass fewer rows", computing.bytes_per_sample(False))
            memory_budget = need.left(memory_budget)
        found = score_rows(computing, self.params, table.to(self.params.device), memory_budget)
        return finish_scores(found.transpose(1, 2), extra, x)

    def __reduce__(self) -> tuple[Callable[..., Models], tuple[Any, ...]]:
        return Models, (self._models, self.labels)

    def __repr__(self) -> str:
        return f"<Models: {len(self)} of {self.circuit!r}>"


def _refuse_difference(first: Model, other: Model, number: int) -> None:
    """Models can be asked together only if they differ in their parameters alone."""
    if not isinstance(other, Model):
        raise OptionError(f"model {number} is a {type(other).__name__}, not a Model")
    same = {
        "circuit": other.circuit is first.circuit,
        "schema": other.schema == first.schema,
        "device": other.device == first.device,
        "dtype": other.dtype == first.dtype,
    }
    wrong = next((what for what, equal in same.items() if not equal), None)
    if wrong is not None:
        raise OptionError(f"model {number} has another {wrong} than model 0: ask each Model separately")
