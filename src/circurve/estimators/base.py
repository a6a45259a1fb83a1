"""What the estimators share: their parameters, the check of X, and training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from circurve.data import Table, align, as_table, infer_schema
from circurve.data.entry import refuse_stream
from circurve.data.frames import as_narwhals
from circurve.data.need import check_data
from circurve.data.unseen import check_unseen
from circurve.errors import DataError, OptionError
from circurve.estimators.compat import check_columns, check_numbers
from circurve.estimators.training import Recipe
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["CircuitEstimator"]

Array = NDArray[Any]


class CircuitEstimator(BaseEstimator):  # type: ignore[misc]
    """The parameters of every estimator. A subclass with more of them repeats the list, as scikit-learn requires."""

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters from this signature
        self,
        n_units: Any = 32,
        *,
        n_estimators: int = 4,
        ensemble: int | None = None,
        structure: Any = "hclt",
        method: Any = "vanilla",
        mu: Any = "auto",
        init: Any = "auto",
        max_epochs: int = 100,
        batch_size: int | None = None,
        step_size: Any = None,
        pseudocount: Any = "auto",
        validation_fraction: float | None = 0.2,
        patience: int = 10,
        types: Any = None,
        schema: Schema | None = None,
        unseen: Any = "impossible",
        random_state: Any = None,
        device: str | torch.device = "auto",
        verbose: int = 0,
        checkpoint: Any = None,
        memory_budget: int | None = None,
    ) -> None:
        self.n_units = n_units
        self.n_estimators = n_estimators
        self.ensemble = ensemble
        self.structure = structure
        self.method = method
        self.mu = mu
        self.init = init
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.step_size = step_size
        self.pseudocount = pseudocount
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.types = types
        self.schema = schema
        self.unseen = unseen
        self.random_state = random_state
        self.device = device
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.memory_budget = memory_budget

    def _recipe(self) -> Recipe:
        if self.checkpoint is not None and not isinstance(self.random_state, int | np.integer):
            raise OptionError("checkpoint needs the same seed in every call: set random_state to a number")
        return Recipe(**{name: getattr(self, name) for name in (f.name for f in fields(Recipe))})

    def _seed(self, random_state: Any = None) -> int:
        """A seed from `random_state`, or from that of the estimator where it is None."""
        state = self.random_state if random_state is None else random_state
        return int(check_random_state(state).randint(np.iinfo(np.int32).max))

    def _training_rows(self, x: Any, sample_weight: Any, *, reset: bool) -> tuple[Table, Array]:
        """The rows of X of weight above zero, in the estimator's schema, and which they are, (N,) boolean.

        `reset` finds the schema first.
        """
        check_unseen(self.unseen)
        raw, used = _weighted(self._raw(x, reset=reset), sample_weight)
        if reset:
            self.schema_ = self._find_schema(raw)
        return align(raw, self.schema_, unseen="missing" if self.unseen == "missing" else "error"), used

    def _rows(self, x: Any) -> Table:
        """X for a fitted estimator."""
        check_is_fitted(self)
        return align(self._raw(x, reset=False), self.schema_, unseen=self.unseen)

    def _raw(self, x: Any, *, reset: bool) -> Table:
        """Frames with all that their columns hold, anything else as numbers.

        Columns without a name are those of the frame in training, by position, as scikit-learn warns; else x0, x1, ...
        """
        refuse_stream(x)
        check_data(type(self).__name__, self.memory_budget, x)
        if as_narwhals(x) is None:
            table = as_table(check_numbers(self, x, reset=reset))
        else:
            check_columns(self, x, reset=reset)
            table = as_table(x)
        known = None if reset else getattr(self, "feature_names_in_", None)
        numbered = (f"x{number}" for number in range(table.shape[1]))
        return replace(table, columns=table.columns or tuple(numbered if known is None else map(str, known)))

    def _find_schema(self, table: Table) -> Schema:
        if self.schema is not None:
            if self.types is not None:
                raise OptionError("pass types= or schema=, not both: a schema contains the families")
            return self.schema
        listed = self.types is not None and not isinstance(self.types, Mapping)
        if listed and len(self.types) != table.shape[1]:
            raise OptionError(f"types has {len(self.types)} families for {counted(table.shape[1], 'column')}")
        return infer_schema(
            table,
            types=dict(enumerate(self.types)) if listed else self.types,
            memory_budget=self.memory_budget,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _more_tags(self) -> dict[str, Any]:  # before scikit-learn 1.6
        return {"allow_nan": True}


def _weighted(table: Table, sample_weight: Any) -> tuple[Table, Array]:
    """The rows of weight above zero, with their weights, and which they are, (N,) boolean."""
    if sample_weight is None:
        return table, np.ones(len(table), dtype=np.bool_)
    weights: Array = _check_sample_weight(sample_weight, np.zeros((len(table), 1)), dtype=np.float64)
    if (weights < 0).any():
        raise DataError(f"sample_weight: the weight of row {int((weights < 0).argmax()) + 1} is negative")
    used = weights > 0
    if not used.any():
        raise DataError("sample_weight: all weights are zero")
    return as_table(table.rows(used), weights=weights[used]), used
