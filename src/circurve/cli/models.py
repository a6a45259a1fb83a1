"""From names on the command line to circuits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum

from circurve.cli.tables import common_schema
from circurve.data import Dataset
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.structures import chow_liu, fully_factorized, hclt, hmm, mixture, random_binary_trees

__all__ = ["WITHOUT_UNITS", "Shape", "Structure", "build_circuit"]

RANDOM_TREES = 4
"""How many trees `rat` mixes; their products are unit by unit, so that 100 units stay affordable."""

BYTES = 24
"""What training takes for a parameter at the very least: its start, itself and its count."""

MOST_UNITS = 1_000_000
"""Beyond, even the sizes of a circuit are more than memory holds."""


class Structure(StrEnum):
    """The kind of circuit."""

    hclt = "hclt"
    chow_liu = "chow_liu"
    hmm = "hmm"
    rat = "rat"
    mixture = "mixture"
    factorized = "factorized"


WITHOUT_UNITS = (Structure.chow_liu, Structure.factorized)
"""Structures whose size the columns decide."""


@dataclass(frozen=True)
class Shape:
    """What is to be built."""

    structure: Structure
    units: int

    def __post_init__(self) -> None:
        if not 1 <= self.units <= MOST_UNITS:
            raise OptionError(f"--units must be a whole number from 1 to {MOST_UNITS}, not {self.units}")


def build_circuit(shape: Shape, data: Dataset, seed: int) -> Circuit:
    """The circuit for a data set, if there is memory for its parameters."""
    circuit = _build(shape, data, seed)
    parameters = circuit.describe().parameters
    if BYTES * parameters > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise OptionError(f"--units {shape.units}: {parameters:,} parameters are more than this machine's memory holds")
    return circuit


def _build(shape: Shape, data: Dataset, seed: int) -> Circuit:
    """The schema covers the values of all parts, the tree comes from `train`."""
    schema, units = data.train.schema or common_schema(data, {}), shape.units
    match shape.structure:
        case Structure.hclt:
            return hclt(data.train, units, schema=schema)
        case Structure.chow_liu:
            return chow_liu(data.train, schema=schema)
        case Structure.hmm:
            return hmm(schema, units)
        case Structure.rat:
            return random_binary_trees(schema, units, RANDOM_TREES, seed=seed, product="unitwise")
        case Structure.mixture:
            return mixture(schema, units)
        case Structure.factorized:
            return fully_factorized(schema)
