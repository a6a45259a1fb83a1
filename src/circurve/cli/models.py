"""From names on the command line to circuits."""

from __future__ import annotations

from dataclasses import dataclass

from circurve.cli.loading import common_schema
from circurve.cli.options import Leaves, Structure
from circurve.data import Dataset
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.host_memory import available_memory
from circurve.structures import chow_liu, fully_factorized, hclt, hmm, mixture, random_binary_trees

__all__ = ["WITHOUT_UNITS", "Shape", "build_circuit"]

RANDOM_TREES = 4
"""How many trees `rat` mixes; their products are unit by unit, so that 100 units stay affordable."""

BYTES = 24
"""The least memory of training for one parameter: its start, itself and its count."""

MAX_UNITS = 1_000_000
"""The largest number of units: beyond it, even the sizes of a circuit do not fit into memory."""


WITHOUT_UNITS = (Structure.chow_liu, Structure.factorized)
"""Structures whose size the columns decide."""


@dataclass(frozen=True)
class Shape:
    """Which circuit to build."""

    structure: Structure
    units: int
    leaves: Leaves | None = None
    """None if not given: then an hclt has `own` leaves."""

    def __post_init__(self) -> None:
        if self.leaves is not None and self.structure is not Structure.hclt:
            raise OptionError(f"--leaves has no effect with --structure {self.structure.value}; use hclt")
        if not 1 <= self.units <= MAX_UNITS:
            raise OptionError(f"--units must be a whole number from 1 to {MAX_UNITS}, not {self.units}")

    @property
    def shown_leaves(self) -> str | None:
        """The leaves of an hclt; None for other structures."""
        return (self.leaves or Leaves.own).value if self.structure is Structure.hclt else None


def build_circuit(shape: Shape, data: Dataset, seed: int, memory_budget: int | None = None) -> Circuit:
    """The circuit for a data set, if there is memory for its parameters; memory_budget: bytes to search for a tree."""
    circuit = _build(shape, data, seed, memory_budget)
    parameters = circuit.describe().parameters
    if BYTES * parameters > available_memory():
        raise OptionError(
            f"--units {shape.units}: {parameters:,} parameters do not fit into the memory of this machine; use fewer "
            f"units"
        )
    return circuit


def _build(shape: Shape, data: Dataset, seed: int, memory_budget: int | None) -> Circuit:
    """The schema is that of the training table, the tree comes from its rows."""
    schema, units = data.train.schema or common_schema(Dataset(data.name, data.train), {}), shape.units
    match shape.structure:
        case Structure.hclt:
            own = (shape.leaves or Leaves.own).value
            return hclt(data.train, units, schema=schema, leaves=own, memory_budget=memory_budget)  # type: ignore[arg-type]
        case Structure.chow_liu:
            return chow_liu(data.train, schema=schema, memory_budget=memory_budget)
        case Structure.hmm:
            return hmm(schema, units)
        case Structure.rat:
            return random_binary_trees(schema, units, RANDOM_TREES, seed=seed, product="unitwise")
        case Structure.mixture:
            return mixture(schema, units)
        case Structure.factorized:
            return fully_factorized(schema)
